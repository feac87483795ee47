"""The source that captures a SQLite database."""

from collections.abc import Iterator
from dataclasses import replace

from headwater.client.connection import Connection
from headwater.connect.cdc.livekeys import LogKeys, TopicKeys
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.outbox import PREFIX
from headwater.connect.cdc.sqlite.database import Database, file_of
from headwater.connect.cdc.sqlite.run import Run
from headwater.connect.source import Position, Signal, Source, SourceStatus, Step, TopicNeeds
from headwater.errors import CaptureImpossible

# Without keys nothing can be compacted.
KEPT = TopicNeeds(configs={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})


class SQLiteSource(Source):
    """Every change of a database's tables, from the first row on, by triggers that this installs."""

    def __init__(self, options: CdcOptions, keys: TopicKeys | None = None) -> None:
        options.know()
        if options.transactions:
            cause = "its triggers do not see where transactions begin and end"
            raise CaptureImpossible("tell the transactions of", options.url, cause, "Leave transactions out.")
        self.options = options
        self.name = options.logical_name
        self._keys = keys
        self._run: Run | None = None
        self._waiting: list[Signal] = []  # that came before a life began
        self._status = SourceStatus()
        self._without_key: set[str] = set()

    def attach(self, log: Connection) -> None:
        self._keys = LogKeys(log, self.options.data / "connect" / self.name)

    def steps(self, position: Position | None) -> Iterator[Step]:
        waiting, self._waiting = self._waiting, []
        run = self._run = Run(self.options, self._keys, position, waiting)
        try:
            yield from run.steps()
        finally:
            self._status = replace(run.status(), lag_seconds=None)
            self._without_key |= run.without_key
            self._run = None
            run.close()

    def acknowledge(self, position: Position) -> None:
        if self._run is not None:
            self._run.acknowledged = position

    def signal(self, signal: Signal) -> None:
        if self._run is not None:
            self._run.signal(signal)
        else:
            self._waiting.append(signal)

    def status(self) -> SourceStatus:
        run = self._run
        return run.status() if run is not None else self._status

    def topic_needs(self, topic: str) -> TopicNeeds:
        run = self._run
        without_key = self._without_key | (run.without_key if run is not None else set())
        if topic in self.options.own_topics or topic in without_key or topic.startswith(PREFIX):
            return KEPT
        return TopicNeeds()


def remove(options: CdcOptions) -> bool:
    """Takes the triggers and the changelog out of the database again; False when there was nothing of ours."""
    database = Database(file_of(options.url))
    try:
        return database.remove(options.logical_name)
    finally:
        database.close()
