"""Processes of sources answer Spark before they import anything."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from headwater.streams.engine import early

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
# In place of Spark's: its imports take until something is written to it, and it connects only then.
SLOW = """
import os, socket, sys
sys.stdin.readline()
own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
own.settimeout(30)
own.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
other.connect(os.environ["OTHER"])
with own.makefile("rwb") as file:
    file.write(b"here" + file.readline())
other.sendall(b"other")
"""


def test_a_source_connects_before_its_imports(tmp_path: Path) -> None:
    folder = tmp_path / Path(*RUNNER.split(".")[:-1])
    folder.mkdir(parents=True)
    for package in [folder, *folder.relative_to(tmp_path).parents][:-1]:
        (tmp_path / package / "__init__.py").touch()
    (folder / f"{RUNNER.rpartition('.')[2]}.py").write_text(SLOW)
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['OTHER'] += '2'\n")
    path = os.pathsep.join([str(Path(early.__file__).parent), str(tmp_path)])
    with socket.socket(socket.AF_UNIX) as spark, socket.socket(socket.AF_UNIX) as other:
        for each, name in ((spark, "spark"), (other, "other2")):
            each.bind(str(tmp_path / name))
            each.listen()
            each.settimeout(30)
        found = {"PYTHONPATH": path, "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "spark")}
        process = subprocess.Popen(
            [sys.executable, "-m", RUNNER],
            env=os.environ | found | {"OTHER": str(tmp_path / "other")},
            stdin=subprocess.PIPE,
        )
        try:
            connection, _ = spark.accept()
            assert process.stdin is not None
            process.stdin.write(b"go on\n")
            process.stdin.flush()
            with connection:
                connection.settimeout(30)
                connection.sendall(b" I am\n")
                assert connection.makefile("rb").read() == b"here I am\n"
            with other.accept()[0] as second:
                assert second.recv(10) == b"other"
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
