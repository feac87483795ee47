"""A broker loads what it needs and nothing else: that is most of its start."""

import subprocess
import sys


def test_neither_hypothesis_nor_spark_is_loaded() -> None:
    code = (
        "import sys, headwater.broker.server\n"
        "heavy = ('hypothesis', 'pyspark', 'pandas', 'pyarrow', 'confluent_kafka', 'typer', 'rich')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "import hypothesis  # it can be had afterwards\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
