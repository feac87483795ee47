"""All tests, in five runs at once: one that keeps Spark busy, and four that mostly wait for clients and processes.

``python -m tests.support.together [pytest's arguments]``. Two cores are enough for the five: together they need less
of them than one after the other would take time. What the runs in the background print comes at the end.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

EXAMPLES = "tests/examples"
SHOP = f"{EXAMPLES}/test_shop.py"  # an application in processes of its own
SPARK = ("headwater/streams", EXAMPLES, "tests/streams")
CLIENTS = ("tests/clients", "tests/client", "tests/views", "tests/ui")
COMMANDS = ("tests/cli",)
CONNECT = ("headwater/connect", "tests/connect", "tests/faults/connect", "tests/serve", SHOP)


def commands(arguments: Sequence[str]) -> list[list[str]]:
    """The runs. Whatever is not named above belongs to the first."""
    pytest = [sys.executable, "-m", "pytest", "--durations=20", *arguments]  # all have to fit into 15 minutes
    alone = ["-p", "no:cacheprovider"]  # runs beside each other must not write one cache
    apart = [f"--ignore={path}" for path in SPARK]
    rest = [f"--ignore={path}" for path in (*CLIENTS, *COMMANDS, *CONNECT)]
    return [
        [*pytest, *apart, *rest],
        [*pytest, *alone, f"--ignore={SHOP}", *SPARK],
        [*pytest, *alone, *CLIENTS],
        [*pytest, *alone, *COMMANDS],
        [*pytest, *alone, *CONNECT],
    ]


def main(arguments: Sequence[str]) -> int:
    """Runs all; fails when one of them does."""
    missing = [path for path in (*SPARK, *CLIENTS, *COMMANDS, *CONNECT) if not (REPOSITORY / path).exists()]
    assert not missing, f"not there any more: {missing}"
    first, *others = commands(arguments)
    started = []
    for command in others:
        output = tempfile.TemporaryFile()
        started.append((subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output), output))
    codes = [subprocess.run(first, cwd=REPOSITORY, check=False).returncode]
    for process, output in started:
        codes.append(process.wait())
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
        output.close()
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
