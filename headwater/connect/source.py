"""What a source is: a generator of steps, each with records for the log and the position after them.

A worker (headwater.connect.worker) writes the records and the position in one transaction of the log, so that a
source which begins again at its position neither loses nor repeats anything. Everything that a source has to
remember lies in its position; what it keeps elsewhere (a slot, a cache) must be rebuildable from there.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from headwater.client.connection import Connection

# JSON-able, flat enough to be read by people: {"lsn": "0/16B3748", "snapshot": {...}}.
Position = Mapping[str, Any]
Headers = Sequence[tuple[str, bytes | None]]
SignalKind = Literal["snapshot", "stop-snapshot", "pause", "resume"]

# A source that has nothing to say yields an empty step after at most so many seconds, so that its worker
# can commit, hear signals and stop.
QUIET_SECONDS = 0.2


class Record(NamedTuple):
    """One record for the log. A plain tuple of the same shape will do where every microsecond counts."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


class Step(NamedTuple):
    """Records in their order, and where to go on after them.

    A step may end in the middle of a database's transaction if its position says where: transactions may be larger
    than memory. Neither records nor position are changed by the source once they are yielded; records are tuples of
    all four fields. Several megabytes make a step large enough.
    """

    records: Sequence[Record]
    position: Position


@dataclass(frozen=True)
class TopicNeeds:
    """How a topic is to be made when it is not there."""

    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=lambda: {"cleanup.policy": "compact"})


@dataclass(frozen=True)
class Signal:
    """Something asked of a running source.

    ``snapshot`` reads tables again, ``stop-snapshot`` ends that (of all tables when none is named), ``pause`` and
    ``resume`` stop and continue the reading of tables. Changes flow all the while.
    """

    kind: SignalKind
    tables: tuple[str, ...] = ()
    where: str | None = None  # a condition in the database's SQL: only these rows are read again

    @property
    def asks_for_all(self) -> bool:
        """Whether all tables are to be read again: then a source may begin anew whose database lacks changes.

        >>> Signal("snapshot").asks_for_all, Signal("snapshot", ("users",)).asks_for_all
        (True, False)
        """
        return self.kind == "snapshot" and not self.tables and self.where is None


@dataclass(frozen=True)
class TableProgress:
    """How far the snapshot of one table is. `total` is the database's estimate."""

    table: str
    rows: int
    total: int | None
    done: bool


@dataclass(frozen=True)
class SourceStatus:
    """Where a source is, for people and metrics."""

    position: str = ""
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    snapshot: tuple[TableProgress, ...] = ()
    notes: tuple[str, ...] = ()  # what somebody should know: a slot that was made anew, a column left out


class Source(ABC):
    """Events from outside. `name` is its identity in the log: its position is kept under it."""

    name: str

    @abstractmethod
    def steps(self, position: Position | None) -> Iterator[Step]:
        """All that happens from a position on, without end; None is the very beginning.

        Connections are opened in here and closed in its ``finally``. What may pass (a server that restarts) is
        raised as ConnectionLost and tried again by the worker from the last committed position; any other
        HeadwaterError stops the source and is shown until somebody acts.
        """

    def attach(self, log: Connection) -> None:
        """The log that it writes to, told before `steps`: a source may have to read back what it has written
        (which keys a table's topic holds, when the table was truncated or changes were missed)."""
        return None

    def acknowledge(self, position: Position) -> None:
        """The records up to here are durable in the log. Called by the worker, between steps, in the same thread."""
        return None

    def signal(self, signal: Signal) -> None:
        """Takes a signal, between steps, in the same thread. What came of it has to be in the next position.

        Those that were sent while the source did not run come before its first step: a snapshot of all tables allows
        it to begin anew where changes were missed.
        """
        raise NotImplementedError

    def status(self) -> SourceStatus:
        """Where it is. May be called from another thread."""
        return SourceStatus()

    def topic_needs(self, topic: str) -> TopicNeeds:
        """How a topic of this source is to be made."""
        return TopicNeeds()
