"""Our capture of a workload's database, run by a worker in a thread."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import headwater as hw
from headwater.client.connection import Connection
from headwater.connect.worker import Worker
from tests.connect.debezium.databases import Database


class Ours:
    """A worker that captures all tables of a database."""

    def __init__(self, made: Database, broker: str, data: Path, **options: Any) -> None:
        source = hw.cdc(made.url, **{"transactions": True, **options}).make(data)
        self.worker = Worker(Connection(broker), source)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.worker.run(self._stopping)
        except BaseException as error:
            self._failure = error

    def check(self) -> None:
        """Fail when the worker has stopped, or has had to begin again."""
        if self._failure is not None:
            raise AssertionError(f"our capture has stopped: {self._failure!r}") from self._failure
        status = self.worker.status()
        assert not status.restarts, f"our capture had to begin again: {status.error}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(30)
