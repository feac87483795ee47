"""Real brokers as child processes: ours, and Apache Kafka beside it.

Both have the same interface, so that a test, the fault harness and the benchmark can run against either::

    with Headwater() as server:
        client = Producer({"bootstrap.servers": server.bootstrap})
        server.kill()     # SIGKILL
        server.start()    # the same port, the same data
"""

import atexit
import base64
import fcntl
import functools
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support import jars
from tests.support.packages import ComponentMissing, require

HOST = "127.0.0.1"
_READY_LINE = re.compile(rb"headwater broker ready at ([0-9.]+):(\d+)")


class ServerFailed(AssertionError):
    """A server did not start, did not stop, or ended on its own; the end of its log is in the message."""


_given_out: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, below the range from which clients get theirs.

    A client that retries a dead port inside that range can end up connected to itself, and then the
    restarted server cannot bind. It stays with this process: those that run tests beside it take none of its
    ports, also before its server listens, and while that is killed and started again.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(20_000, 32_000)
        if port not in _given_out and _reserve(port):
            with socket.socket() as probe:
                try:
                    probe.bind((HOST, port))
                except OSError:
                    continue
            _given_out.add(port)
            return port
    raise ServerFailed("no free port between 20000 and 32000")


def _reserve(port: int) -> bool:
    """Locks the byte of this port in a file that all share; the system unlocks it when the process ends."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _reservations() -> IO[bytes]:
    return (Path(tempfile.gettempdir()) / "headwater-ports").open("ab")


def answers_metadata(port: int, timeout: float = 1.0) -> bool:
    """Whether a broker answers a Metadata request there and names itself as the cluster's node."""
    # Metadata v4: key, version, correlation id, client id; no topics, no auto-creation.
    request = struct.pack(">hhih5sib", 3, 4, 7, 5, b"probe", 0, 0)
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = _receive(connection, 16)
    except OSError:
        return False
    # size, correlation id, throttle time, number of brokers
    return len(head) == 16 and struct.unpack(">iiii", head)[1::2] == (7, 1)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            break
        received += piece
    return received


class Server:
    """A broker process. ``data``, ``port`` and ``log`` outlive it: ``start`` goes on where ``kill`` cut."""

    name = "server"
    start_timeout = 60.0
    stop_timeout = 30.0

    def __init__(self, data: Path | None = None, port: int | None = None) -> None:
        self._own_data = data is None
        self.data = data or Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.port = free_port() if port is None else port
        self.log = self.data.with_name(self.data.name + ".log")
        self.returncode: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # where this run's part of the log begins

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start on the same port and data; returns when the server answers."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already")
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process without waiting for it to be ready."""
        self.prepare()
        self.returncode = None
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = self._spawn(log)
        atexit.register(self._end_at_exit)

    def wait_ready(self, every: float = 0.02) -> None:
        """Wait until the launched process serves."""
        deadline = time.monotonic() + self.start_timeout
        while not self.is_ready():
            if self._process is None or self._process.poll() is not None:
                code = self._process.returncode if self._process else None
                raise ServerFailed(self._explain(f"ended while starting, with exit code {code}"))
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(self._explain(f"was not ready after {self.start_timeout:.0f} s"))
            time.sleep(every)

    def stop(self) -> int:
        """SIGTERM, and wait. Returns the exit code; a server that does not end is killed and reported."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is closed."""
        self._end(signal.SIGKILL)

    def show_stacks(self) -> str:
        """End the server with SIGABRT, on which Python and Java print where each thread stands; its log."""
        if self._process is not None:
            self._end(signal.SIGABRT if self.name == "headwater" else signal.SIGQUIT)
        return self.output()

    def output(self) -> str:
        """What the server has printed since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process is not None:
                self.stop()
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the data and the log, when the data was not given by the caller."""
        if self._own_data:
            shutil.rmtree(self.data, ignore_errors=True)
            self.log.unlink(missing_ok=True)

    def prepare(self) -> None:
        """What is to be done before each start."""

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def is_ready(self) -> bool:
        return answers_metadata(self.port)

    def _spawn(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.environment())
        )

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        if process is None:
            raise ServerFailed(f"{self.name} is not running")
        process.send_signal(how)  # does nothing when the process has ended
        try:
            self.returncode = process.wait(self.stop_timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.returncode = process.wait()
            raise ServerFailed(
                self._explain(f"did not end {self.stop_timeout:.0f} s after {how.name}")
            ) from None
        finally:
            self._process = None
            atexit.unregister(self._end_at_exit)
        return self.returncode

    def _end_at_exit(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.discard()

    def _explain(self, what: str) -> str:
        tail = self.output()[-6000:] if self.log.exists() else ""
        return f"{self.name} at {self.bootstrap} (data {self.data}) {what}. Its log ends with:\n{tail}"


class Headwater(Server):
    """The embedded broker, by its command line. ``arguments`` are added to ``headwater broker``."""

    name = "headwater"

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data, port)
        self.arguments = list(arguments)
        self._environment = dict(environment or {})

    def command(self) -> Sequence[str]:
        program = Path(sys.executable).with_name("headwater")
        if not program.exists():
            raise ComponentMissing(f"{program} is not there: run `make setup`")
        return [str(program), "broker", "--data", str(self.data), "--port", str(self.port), *self.arguments]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **self._environment}

    def is_ready(self) -> bool:
        """It says so itself, in one line, which also names the port when 0 was asked for."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            said = _READY_LINE.search(log.read())
        if said is not None:
            self.port = int(said[2])
        return said is not None


class ApacheKafka(Server):
    """Apache Kafka, one node, KRaft, with its default settings but for what one node needs."""

    name = "kafka"

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "512m",
        options: Sequence[str] = (),
    ) -> None:
        """`options` are Java's."""
        super().__init__(data, port)
        self.config = dict(config or {})
        self.heap = heap
        self.options = options
        self._controller_port = free_port()

    @property
    def properties(self) -> Path:
        return self.data.with_name(self.data.name + ".properties")

    def command(self) -> Sequence[str]:
        return [*java(f"-Xmx{self.heap}", *self.options), "kafka.Kafka", str(self.properties)]

    def prepare(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            self._format()

    def discard(self) -> None:
        super().discard()
        if self._own_data:
            self.properties.unlink(missing_ok=True)

    def _format(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        cluster = "hw" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[2:22]
        java_tool("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties))


def java(*options: str) -> list[str]:
    """The start of a command that runs a main class of Kafka's jars, which log warnings to stderr."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [require("java"), *options, quiet, "-cp", jars.kafka_classpath()]


def java_tool(main_class: str, *arguments: str, timeout: float = 120) -> str:
    """Run a main class of Kafka's jars; what it printed. A failure shows its output."""
    command = [*java("-Xmx512m"), main_class, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if result.returncode != 0:
        raise ServerFailed(f"{main_class} failed:\n{(result.stdout + result.stderr)[-6000:]}")
    return result.stdout
