"""Runs a source: its records and its position go to the log in one transaction, again after every failure.

A worker that begins takes the source's transactional.id over, so that an older one can write no more, reads the last
committed position and lets the source go on from there. What passes by itself (a database or a broker that restarts)
is tried again with growing pauses; any other error of the catalogue stops the source and is shown until somebody acts.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.connect.positions import Standing, read_standing
from headwater.connect.signals import SignalReader
from headwater.connect.source import Position, Signal, Source, SourceStatus, Step
from headwater.connect.writing import LogWriter
from headwater.errors import (
    ConnectionLost,
    HeadwaterError,
    NotDelivered,
    RequestFailed,
    StaleProducerEpoch,
    TakenOver,
    TransactionAborted,
    UnknownTopic,
    Unreachable,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
FENCED_SECONDS = 2.0  # after which a worker that took over has said who it is

# What passes by itself: something outside restarts, or the topic was deleted and is made again.
PASSING = (ConnectionLost, Unreachable, TransactionAborted, NotDelivered, RequestFailed, UnknownTopic)

State = Literal["starting", "running", "waiting", "failed", "stopped"]

logger = logging.getLogger("headwater.connect")


@dataclass(frozen=True)
class WorkerStatus:
    """How a source is doing, for people and metrics."""

    name: str
    state: State
    source: SourceStatus
    position: Position | None = None  # the last committed
    records: int = 0  # written since the start of the process
    bytes: int = 0
    transactions: int = 0
    commit_seconds: float = 0.0
    restarts: int = 0
    error: str = ""


class Worker:
    """One source and its place in the log. `run` returns when it is told to stop, and raises what does not pass."""

    def __init__(self, connection: Connection, source: Source) -> None:
        self.connection, self.source = connection, source
        source.attach(connection)
        self.id = uuid.uuid4().hex
        self._state: State = "starting"
        self._error = ""
        self._restarts = 0
        self._writer: LogWriter | None = None
        self._before = (0, 0, 0)  # records, bytes, transactions of writers that are gone
        self._last: Position | None = None
        self._was_taken = False  # whether the log knows us as the source's worker
        self._acknowledged: Position | None = None

    def run(self, stopping: threading.Event) -> None:
        """Brings the source's events into the log until `stopping` is set."""
        pause = FIRST_PAUSE
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._run_once(stopping)
            except StaleProducerEpoch as error:
                stopping.wait(FENCED_SECONDS)
                self._note(error)
            except PASSING as error:
                self._note(error)
            except BaseException as error:
                self._fail(error)
                raise
            else:
                break
            if time.monotonic() - began > 4 * LONGEST_PAUSE:
                pause = FIRST_PAUSE
            stopping.wait(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        self._state = "stopped"

    def status(self) -> WorkerStatus:
        """How it is doing. May be called from another thread."""
        writer = self._writer
        now = (writer.records, writer.bytes, writer.transactions) if writer is not None else (0, 0, 0)
        records, size, transactions = (a + b for a, b in zip(self._before, now, strict=True))
        return WorkerStatus(
            name=self.source.name,
            state=self._state,
            source=self.source.status(),
            position=writer.committed.position if writer is not None else self._last,
            records=records,
            bytes=size,
            transactions=transactions,
            commit_seconds=writer.commit_seconds if writer is not None else 0.0,
            restarts=self._restarts,
            error=self._error,
        )

    # -- one life ----------------------------------------------------------------------------------

    def _run_once(self, stopping: threading.Event) -> None:
        if self._restarts:
            self._give_way()
        writer = LogWriter(
            self.connection,
            self.source.name,
            self.source.topic_needs,
            worker=self.id,
            give_up=stopping.is_set,
        )
        self._writer, self._was_taken = writer, True
        try:
            with SignalReader(self.connection, self.source.name, writer.committed.signals) as signals:
                self._follow(writer, signals, stopping)
            writer.finish()
            self._acknowledge(writer.committed)
        finally:
            writer.abandon()
            self._last = writer.committed.position
            past = (writer.records, writer.bytes, writer.transactions)
            self._before = tuple(a + b for a, b in zip(self._before, past, strict=True))  # type: ignore[assignment]
            self._writer = None

    def _follow(self, writer: LogWriter, signals: SignalReader, stopping: threading.Event) -> None:
        self._acknowledged = writer.committed.position
        steps: Iterator[Step] = self.source.steps(writer.committed.position)
        try:
            for signal in signals.waiting():
                self._signal(signal)
            for step in steps:
                writer.put(step, signals.take_offsets())
                self._state, self._error = "running", ""
                self._acknowledge(writer.committed)
                if stopping.is_set():
                    break
                for signal in signals.read():
                    self._signal(signal)
        finally:
            close = getattr(steps, "close", None)
            if close is not None:
                close()

    def _signal(self, signal: Signal) -> None:
        logger.info("%s: signal %s", self.source.name, signal)
        self.source.signal(signal)

    def _acknowledge(self, committed: Standing) -> None:
        position = committed.position
        if position is not None and position is not self._acknowledged:
            self.source.acknowledge(position)
            self._acknowledged = position

    # -- failures ----------------------------------------------------------------------------------

    def _note(self, error: HeadwaterError) -> None:
        self._restarts += 1
        if str(error) != self._error:
            logger.warning("%s: %s", self.source.name, error)
        self._state, self._error = "waiting", str(error)

    def _fail(self, error: BaseException) -> None:
        self._state, self._error = "failed", str(error)

    def _give_way(self) -> None:
        """A worker that begins again must not take the source back from a newer one: they would take turns for ever.

        That it was fenced does not say that there is one: its transaction may have been open for too long, as when
        a machine has slept.
        """
        admin = Admin(self.connection)
        standing = read_standing(self.connection, admin, self.source.name)
        if self._was_taken and standing.worker != self.id:
            cause = "another worker has taken this source over"
            raise TakenOver("write for", self.source.name, cause)
