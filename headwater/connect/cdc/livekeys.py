"""Which keys a table's topic holds: read back from the log when a table was truncated, or changes were missed.

The topic itself is the only complete record of what was written. Keys that are alive are collected in a
file, not in memory: a topic may have more of them than fit.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import lmdb

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.errors import UnknownTopic

Ends = Mapping[str, int]  # partition -> offset; JSON has no other keys than strings

_MAP_BYTES = 1 << 40  # address space; the file is sparse
_LONGEST_KEY = 500  # LMDB takes 511 bytes


class TopicKeys(Protocol):
    """What a source asks of the log about its own topics."""

    def ends(self, topic: str) -> dict[str, int]:
        """Where each partition ends now; nothing for a topic that is not there."""

    def live(self, topic: str, before: Ends | None = None) -> Iterator[bytes]:
        """The keys whose last committed record has a value; with `before`, only those where it lies before it."""


class LogKeys:
    """The keys in a real log."""

    def __init__(self, connection: Connection, directory: Path) -> None:
        self._connection, self._directory = connection, directory

    def ends(self, topic: str) -> dict[str, int]:
        admin = Admin(self._connection)
        try:
            partitions = [(topic, number) for number in admin.partitions(topic)]
        except UnknownTopic:
            return {}
        return {str(number): end for (_, number), end in admin.latest(partitions).items()}

    def live(self, topic: str, before: Ends | None = None) -> Iterator[bytes]:
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="keys-", dir=self._directory) as place:
            environment = lmdb.open(place, map_size=_MAP_BYTES, sync=False, metasync=False, writemap=True)
            try:
                yield from self._live(environment, topic, before)
            finally:
                environment.close()

    def _live(self, environment: lmdb.Environment, topic: str, before: Ends | None) -> Iterator[bytes]:
        long: set[bytes] = set()
        try:
            reader = Reader(self._connection, [topic], to_end=True)
        except UnknownTopic:
            return
        with reader:
            for batch in reader.batches():
                with environment.begin(write=True) as transaction:
                    for message in batch:
                        key = message.key()
                        if key is None:
                            continue
                        alive = message.value() is not None and (
                            before is None
                            or (message.offset() or 0) < before.get(str(message.partition()), 0)
                        )
                        if len(key) > _LONGEST_KEY:
                            long.add(key) if alive else long.discard(key)
                        elif alive:
                            transaction.put(key, b"")
                        else:
                            transaction.delete(key)
        with environment.begin() as transaction, transaction.cursor() as cursor:
            for key in cursor.iternext(keys=True, values=False):
                yield bytes(key)
        yield from sorted(long)
