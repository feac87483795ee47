"""A Python environment with Spark: this one when it has pyspark, else one of its own in the cache."""

import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

from tests.support import jars

PYSPARK = "4.3.0"
ENVIRONMENT = jars.REPOSITORY / ".cache" / f"pyspark-{PYSPARK}"


def python() -> Path:
    """An interpreter that can import pyspark."""
    if find_spec("pyspark") is not None:
        return Path(sys.executable)
    interpreter = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "complete").exists():
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        install = [str(interpreter), "-m", "pip", "install", "-q", f"pyspark=={PYSPARK}"]
        result = subprocess.run(install, capture_output=True, text=True, timeout=1200, check=False)
        assert result.returncode == 0, f"cannot install pyspark {PYSPARK}: {result.stderr[-2000:]}"
        (ENVIRONMENT / "complete").touch()
    return interpreter


def driver() -> list[str]:
    """The command of the Spark driver; the broker's address follows."""
    connector = ",".join(map(str, jars.spark_connector()))
    return [str(python()), "-m", "tests.clients.drivers.spark", connector]
