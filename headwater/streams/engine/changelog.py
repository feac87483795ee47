"""The changelog of each view: the changes that the store recorded, in a topic, each once and in order.

The store numbers the changes of a view. The number of the next one to write is the mark of the writer (see
``headwater.client.marked``), committed with the records: a restart goes on where the topic ends.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from headwater.client.connection import Connection
from headwater.client.marked import MarkedWriter
from headwater.client.transactions import TransactionalWriter
from headwater.streams.engine.watch import first_line
from headwater.views.model import Change
from headwater.views.store import ViewStore

logger = logging.getLogger("headwater.streams")

AT_ONCE = 5000  # changes in a transaction
KEPT = 10_000  # changes kept in the store behind what was written, for those who follow the view
PAUSE = 2.0  # after a failure


class Changelog:
    """Follows the views of an application."""

    def __init__(self, store: ViewStore, connection: Connection, topics: dict[str, str], name: str) -> None:
        self._store, self._connection, self._topics, self._name = store, connection, topics, name
        self._writers: dict[str, MarkedWriter] = {}
        self._news = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="changelog", daemon=True)
        self.written = 0

    def begin(self) -> None:
        """Starts to write what is there, then what comes."""
        self._news.set()
        self._thread.start()

    def news(self) -> None:
        """A view has changed."""
        self._news.set()

    def end(self, seconds: float = 10.0) -> None:
        """Writes what is left, and stops."""
        self._stopped = True
        self._news.set()
        self._thread.join(seconds)
        for writer in self._writers.values():
            writer.close()

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            last = self._stopped
            for view in self._topics:
                try:
                    self.publish(view)
                except Exception as error:  # whatever it is: nobody else writes changelogs
                    logger.warning("the changelog of %s waits: %s", view, first_line(error))
                    if not last:
                        threading.Timer(PAUSE, self._news.set).start()
            if last:
                return

    def publish(self, view: str) -> None:
        """Writes the changes of a view that are not in its topic yet."""
        writer = self._writers.get(view)
        if writer is None:
            writer = self._writers[view] = MarkedWriter(self._connection, f"{self._name}.{view}.changelog")
        while changes := self._store.changes(view, writer.position() - 1, AT_ONCE):
            last = changes[-1].number
            if writer.write(last, records_of(self._topics[view], changes)):
                self.written += len(changes)
            if last > KEPT:
                self._store.trim_changes(view, up_to=last - KEPT)
            if len(changes) < AT_ONCE:
                return

    def trim(self, view: str) -> None:
        """Of a view without a topic: forgets changes but the last."""
        self._store.trim_changes(view, keep=KEPT)


def records_of(topic: str, changes: Iterable[Change]) -> Callable[[TransactionalWriter], None]:
    """Changes as records: the key's columns, and the row or nothing, both in JSON."""
    records = [
        {"key": change.key.encode(), "value": None if change.value is None else change.value.encode()}
        for change in changes
    ]
    return lambda writer: writer.write_many(topic, [dict(record) for record in records])
