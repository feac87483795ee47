"""All tests, in two runs at once: those that wait for brokers most of the time, and those that keep Spark busy.

``python -m tests.support.halves [pytest's arguments]``. What the second run prints comes when the first has ended.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

SPARK = (
    "headwater/streams",
    "headwater/views",
    "tests/cli/test_streams_broker.py",
    "tests/cli/test_streams_declared.py",
    "tests/cli/test_streams_running.py",
    "tests/examples",
    "tests/faults/streams",
    "tests/streams",
    "tests/views",
)


def commands(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The two runs. Whatever is not named above belongs to the first."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    first = [*pytest, *(f"--ignore={path}" for path in SPARK)]
    # Two runs must not write one cache.
    return first, [*pytest, "-p", "no:cacheprovider", *SPARK]


def main(arguments: Sequence[str]) -> int:
    """Runs both; fails when one of them does."""
    missing = [path for path in SPARK if not (REPOSITORY / path).exists()]
    assert not missing, f"not there any more: {missing}"
    first, second = commands(arguments)
    with tempfile.TemporaryFile() as output:
        beside = subprocess.Popen(second, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT)
        codes = [subprocess.run(first, cwd=REPOSITORY, check=False).returncode, beside.wait()]
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
