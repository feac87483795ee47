"""The source that captures a PostgreSQL database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.client.connection import Connection
from headwater.connect.cdc.livekeys import LogKeys, TopicKeys
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.outbox import PREFIX
from headwater.connect.cdc.postgres.run import Run
from headwater.connect.source import Position, Signal, Source, SourceStatus, Step, TopicNeeds

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class PostgresSource(Source):
    """Every change of a database's tables, from the first row on."""

    def __init__(self, options: CdcOptions) -> None:
        options.know()
        self.options = options
        self.name = options.logical_name
        # What the log has of our topics; without it, a truncated table leaves its keys there.
        self.keys: TopicKeys | None = None
        self.acknowledged: Position | None = None
        self._run: Run | None = None
        self._waiting: list[Signal] = []  # that came before a life began
        self.gap: str | None = None  # why changes were missed, when a life has found it out that ended of it
        self.gap_is_to_be_closed = False  # that life was asked to read all tables again, and was about to
        self.without_key: set[str] = set()  # topics of tables without a key
        self._status = SourceStatus()

    @property
    def directory(self) -> Path:
        """For what can be rebuilt."""
        return self.options.data / "connect" / self.name

    def attach(self, log: Connection) -> None:
        self.keys = LogKeys(log, self.directory)

    def steps(self, position: Position | None) -> Iterator[Step]:
        self.acknowledged = position
        waiting, self._waiting = self._waiting, []
        run = self._run = Run(self, dict(position) if position is not None else None)
        try:
            for signal in waiting:
                run.signal(signal)
            yield from run.steps()
        finally:
            self._run = None
            run.close()

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = position

    def signal(self, signal: Signal) -> None:
        if self._run is not None:
            self._run.signal(signal)
        else:
            self._waiting.append(signal)

    def status(self) -> SourceStatus:
        return self._status

    def show(self, **what: Any) -> None:
        """Sets what `status` answers."""
        self._status = SourceStatus(**what)

    def topic_needs(self, topic: str) -> TopicNeeds:
        if topic in self.options.own_topics or topic in self.without_key or topic.startswith(PREFIX):
            return TopicNeeds(configs=_KEPT)
        return TopicNeeds()
