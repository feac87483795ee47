"""The source for MariaDB and MySQL."""

from collections.abc import Iterator
from dataclasses import replace

from headwater.client.connection import Connection
from headwater.connect.cdc.livekeys import LogKeys, TopicKeys
from headwater.connect.cdc.mysql.run import Run
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Position, Signal, Source, SourceStatus, Step, TopicNeeds

# Events of a table without a key cannot be compacted; with what people have to read in order, neither may.
KEPT = TopicNeeds(configs={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})


class MySQLSource(Source):
    """Changes of MariaDB or MySQL from its binary log, after a snapshot of what is there.

    Nothing is written to the database, and nothing but the position is remembered.
    """

    def __init__(self, options: CdcOptions, keys: TopicKeys | None = None) -> None:
        options.know("server_id")
        self.options = options
        self.name = options.logical_name
        self._keys = keys
        self._run: Run | None = None
        self._waiting: list[Signal] = []  # that came before a life began
        self._status = SourceStatus()

    def attach(self, log: Connection) -> None:
        self._keys = LogKeys(log, self.options.data / "cdc" / self.name)

    def steps(self, position: Position | None) -> Iterator[Step]:
        waiting, self._waiting = self._waiting, []
        run = self._run = Run(self.options, self._keys, position, waiting)
        try:
            yield from run.steps()
        finally:
            self._status = replace(run.status(), lag_seconds=None)
            self._run = None
            run.close()

    def acknowledge(self, position: Position) -> None:
        if self._run is not None:
            self._run.acknowledge(position)

    def signal(self, signal: Signal) -> None:
        if self._run is not None:
            self._run.signal(signal)
        else:
            self._waiting.append(signal)

    def status(self) -> SourceStatus:
        run = self._run
        return run.status() if run is not None else self._status

    def topic_needs(self, topic: str) -> TopicNeeds:
        if topic in self.options.own_topics or topic.startswith("outbox.event."):
            return KEPT
        run = self._run
        return KEPT if run is not None and run.has_no_key(topic) else TopicNeeds()
