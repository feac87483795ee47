"""Spark's standalone cluster from the pip package, as child processes: a master and its workers.

::

    with SparkCluster(workers=2) as cluster:
        SparkSession.builder.master(cluster.address)
        cluster.kill_worker(0)     # SIGKILL, with the executors that it runs: as if its machine were gone
        cluster.start_worker(0)
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import pyspark

from tests.support.packages import require
from tests.support.servers import HOST, ServerFailed, free_port

_READY_WITHIN = 90.0  # seconds


class SparkCluster:
    """A master and workers on loopback, each worker with so many cores and so much memory."""

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.port, self._web_port = free_port(), free_port()
        self._count, self._cores, self._memory = workers, cores, memory
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()  # of processes, each led by a worker

    @property
    def address(self) -> str:
        """What an application names as its master."""
        return f"spark://{HOST}:{self.port}"

    def start_worker(self, number: int) -> None:
        """Starts a worker, and waits until the master knows it."""
        known = self._alive_workers()
        options = ["--host", HOST, "--cores", str(self._cores), "--memory", self._memory]
        options += ["--webui-port", str(free_port()), "--work-dir", str(self._directory / f"work-{number}")]
        self._workers[number] = self._launch("worker.Worker", [*options, self.address], f"worker-{number}")
        self._sessions.add(self._workers[number].pid)
        self._wait(lambda: self._alive_workers() > known, f"worker-{number}")

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and to the executors it has started, and waits until the master has noticed."""
        alive = self._alive_workers()
        process = self._workers.pop(number)
        _kill_session(process.pid)
        process.wait()
        self._wait(lambda: self._alive_workers() < alive, "master")

    def cores_used(self) -> int:
        """The cores that applications have got."""
        return int(self._state().get("coresused", 0))

    def log(self, name: str) -> str:
        """The end of what a part has printed: ``master``, ``worker-0``, ..."""
        path = self._directory / f"{name}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def __enter__(self) -> Self:
        options = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self._web_port)]
        self._master = self._launch("master.Master", options, "master")
        try:
            self._wait(lambda: self._state().get("status") == "ALIVE", "master")
            for number in range(self._count):
                self.start_worker(number)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for session in self._sessions:
            _kill_session(session)
        for process in [*self._workers.values(), *([self._master] if self._master else [])]:
            process.kill()
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _launch(self, what: str, options: list[str], name: str) -> "subprocess.Popen[bytes]":
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_HOME": str(Path(require("java")).resolve().parents[1]),
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *options]
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _alive_workers(self) -> int:
        return int(self._state().get("aliveworkers", 0))

    def _state(self) -> dict[str, Any]:
        """What the master says of itself; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=5) as answer:
                found: dict[str, Any] = orjson.loads(answer.read())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return found

    def _wait(self, there: Any, name: str) -> None:
        end = time.monotonic() + _READY_WITHIN
        while not there():
            if time.monotonic() > end:
                raise ServerFailed(f"Spark's {name} did not get ready. Its log ends with:\n{self.log(name)}")
            time.sleep(0.1)


def _kill_session(leader: int) -> None:
    """Kills every process of a session; executors are in process groups of their own at times."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
