"""The two that are measured: `headwater connect` and Debezium, each as one process that is started and stopped."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from benchmarks.cdc_servers import Server
from tests.support.debezium import Debezium

APPLICATION = Path(__file__).with_name("cdc_app.py")


class Side(Protocol):
    """A connector that goes on where it was when it is started again."""

    name: str  # as benchmarks.table has it: ours or theirs

    @property
    def pid(self) -> int: ...

    def topic(self, table: str) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def check(self) -> None:
        """Raise when it has ended."""


class Ours:
    """`headwater connect`."""

    name = "ours"

    def __init__(self, server: Server, broker: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-cdc-")
        self._log = Path(self._folder.name) / "log"
        program = Path(sys.executable).with_name("headwater")
        self._command = [str(program), "connect", str(APPLICATION), "--bootstrap", broker]
        self._command += ["--data", self._folder.name]
        self._environment = {**os.environ, "CAPTURED_URL": server.url}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def topic(self, table: str) -> str:
        return f"shop.{table}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(60)

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"headwater connect has ended:\n{self._log.read_text()[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()


class Theirs:
    """Debezium in Kafka Connect, with the settings and the memory that both have by default."""

    name = "theirs"

    def __init__(self, server: Server, broker: str) -> None:
        self._made = Debezium(broker, server.debezium(broker))
        self._is_postgres = server.name == "PostgreSQL"

    @property
    def pid(self) -> int:
        return self._made.pid

    def topic(self, table: str) -> str:
        return f"shop.{'public' if self._is_postgres else 'shop'}.{table}"

    def start(self) -> None:
        self._made.start()

    def stop(self) -> None:
        if self._made.running:
            self._made.stop()

    def check(self) -> None:
        self._made.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._made.discard()
