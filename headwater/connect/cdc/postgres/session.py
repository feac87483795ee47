"""What the parts of a capture share while it is connected: connections, tables, where the stream is."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater import __version__
from headwater.connect.cdc.postgres import slot as slots
from headwater.connect.cdc.postgres.catalog import connect, look_up_types
from headwater.connect.cdc.postgres.changes import Changes
from headwater.connect.cdc.postgres.jobs import Jobs
from headwater.connect.cdc.postgres.lsn import lsn_text
from headwater.connect.cdc.postgres.plan import Names
from headwater.connect.cdc.postgres.replication import Replication
from headwater.connect.cdc.postgres.tables import Tables
from headwater.connect.cdc.postgres.toast import ValueCache
from headwater.connect.cdc.postgres.types import Types
from headwater.connect.source import Record, Step

if TYPE_CHECKING:
    from headwater.connect.cdc.postgres.source import PostgresSource

STEP_RECORDS = 10_000


class Session:
    """A capture between two interruptions. `changes`, `replication` and `cache` are set when it is opened."""

    changes: Changes
    replication: Replication
    cache: ValueCache

    def __init__(self, source: "PostgresSource", position: Mapping[str, Any]) -> None:
        self.source, self.options = source, source.options
        self.slot = slots.slot_name(source.name)
        url = self.options.url
        self.server = slots.identify(url)
        self.names = Names(__version__, source.name, self.server.database)
        self.database = connect(url)  # for questions
        self.reader = connect(url)  # for reading tables
        self.types = Types(lambda oids: look_up_types(self.database, oids))
        self.tables = Tables(
            self.database,
            self.options,
            self.slot,
            self.names,
            self.types,
            source.directory,
            position.get("tables", {}),
        )
        self.jobs = Jobs(position.get("snapshot"))
        self.paused = bool(position.get("paused"))
        self.begun = bool(position.get("begun"))  # whether a row of the first read was written
        # Signals that were taken and are yet to be followed: by then a step of something else may have been written.
        self.asked: tuple[Mapping[str, Any], ...] = tuple(position.get("asked", ()))
        self.notes: dict[str, str] = {}
        self._written: tuple[Any, ...] = ()
        self._position_now: dict[str, Any] = {}

    def reached(self) -> int:
        """All that was committed before this place has gone by."""
        if self.changes.commit:
            return self.changes.commit
        return max(self.changes.lsn, self.replication.sent)

    def step(self, out: list[Record]) -> Step:
        """Records, and the position after them."""
        if hasattr(self, "cache"):
            self.cache.seen(self.changes.lsn, self.changes.done)
        return Step(out, self.position())

    def position(self) -> dict[str, Any]:
        changes = self.changes
        # A position before the part that is skipped says what was done before.
        commit, done = changes.place
        tables, jobs = self.tables.known, self.jobs.all
        state = (changes.lsn, commit, done, tables, jobs, self.paused, self.begun, self.asked)
        if state != self._written:
            self._written = state
            position: dict[str, Any] = {
                "system": self.server.system,
                "timeline": self.server.timeline,
                "slot": self.slot,
                "lsn": lsn_text(changes.lsn),
            }
            if changes.last != b"null":
                position["last"] = lsn_text(int(changes.last.strip(b'\\"')))
            if done:
                position |= {"commit": lsn_text(commit), "done": done}
            position["tables"] = self.tables.known
            if self.jobs:
                position["snapshot"] = self.jobs.all
            if self.paused:
                position["paused"] = True
            if self.asked:
                position["asked"] = self.asked
            if self.begun and self.jobs:
                position["begun"] = True
            self._position_now = position
        return self._position_now

    def settled(self) -> Iterator[Step]:
        """Waits until the log has all that was handed over."""
        while self.source.acknowledged != (position := self.position()):
            yield Step((), position)
            self.replication.keep_alive()
            if self.source.acknowledged != position:
                time.sleep(0.005)

    def close(self) -> None:
        """Lets go of everything."""
        if hasattr(self, "replication"):
            self.replication.close()
        self.database.close()
        self.reader.close()
        if hasattr(self, "cache"):
            self.cache.close()
