"""The answers to requests with an idempotency key, for as long as a client may repeat them.

The topic ``headwater.ingest.<application>`` has them, each written in the transaction that wrote the request's events;
a file beside it makes them quick to find. The file holds how far it has read the topic: whatever a kill leaves out,
the next start reads. It can be deleted at any time.
"""

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import orjson

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import BEGINNING, Reader, Start
from headwater.errors import Unreachable

KEPT_SECONDS = 24 * 3600.0
SWEEP_SECONDS = 60.0
LARGEST_ANSWER = 15 << 20
CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(round((KEPT_SECONDS + 3600) * 1000)),
    "max.message.bytes": str(LARGEST_ANSWER + (1 << 20)),
}

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (at);
CREATE TABLE IF NOT EXISTS position (topic_id TEXT NOT NULL, next INTEGER NOT NULL);
"""


class Remembered(NamedTuple):
    """The answer to a request. `fingerprint` stands for what was asked."""

    key: str
    fingerprint: str
    status: int
    body: bytes
    at: float

    def to_record(self) -> bytes:
        """The value of its record in the topic.

        >>> answer = Remembered("clicks k1", "ab12", 200, b'{"taken":1}', 1.5)
        >>> Remembered.from_record(b"clicks k1", answer.to_record()) == answer
        True
        """
        return orjson.dumps(
            {
                "status": self.status,
                "at": self.at,
                "fingerprint": self.fingerprint,
                "body": orjson.Fragment(self.body),
            }
        )

    @classmethod
    def from_record(cls, key: bytes, value: bytes) -> "Remembered":
        """The answer in a record."""
        found = orjson.loads(value)
        return cls(
            key.decode(), found["fingerprint"], found["status"], orjson.dumps(found["body"]), found["at"]
        )


def topic_of(application: str) -> str:
    """Where the answers of an application's server are kept.

    >>> topic_of("shop")
    'headwater.ingest.shop'
    """
    return f"headwater.ingest.{application}"


class Memory:
    """Used by one thread, the one that opened it."""

    def __init__(self, file: Path, topic: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self.topic = file, topic
        self._database = self._open()
        self._swept = 0.0

    def _open(self) -> sqlite3.Connection:
        for is_last in (False, True):
            database = sqlite3.connect(self._file, isolation_level=None, timeout=10.0)
            try:
                database.execute("PRAGMA journal_mode = wal")
                database.execute("PRAGMA synchronous = normal")
                database.executescript(_TABLES)
                return database
            except sqlite3.DatabaseError:  # damaged: the topic has it all
                database.close()
                if is_last:
                    raise
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """What was kept is there without it."""
        self._database.close()

    def catch_up(self, connection: Connection) -> None:
        """Reads what the topic has and the file has not. Nobody may write to the topic meanwhile."""
        admin = Admin(connection)
        admin.create_topic(self.topic, 1, configs=CONFIGS, exist_ok=True)
        topic_id = admin.topic(self.topic).id
        known = self._database.execute("SELECT topic_id, next FROM position").fetchone()
        place = (self.topic, 0)
        end = admin.latest([place])[place]
        if known is None or known[0] != topic_id:
            self._database.executescript("BEGIN; DELETE FROM answers; DELETE FROM position; COMMIT")
            self._database.execute("INSERT INTO position VALUES (?, 0)", [topic_id])
            known = (topic_id, 0)
        first = admin.earliest([place])[place]
        if known[1] > end:
            # A Kafka node that comes back after a crash may for a moment know of less than it has.
            cause = f"it ends at {end}, and was read up to {known[1]}"
            raise Unreachable("read", self.topic, cause, "It is tried again.")
        start = Start.at_offset(known[1]) if first <= known[1] else BEGINNING
        with closing(Reader(connection, [self.topic], start=start, to_end=True, admin=admin)) as reader:
            for messages in reader.batches():
                found = [
                    (Remembered.from_record(key, value), (message.offset() or 0) + 1)
                    for message in messages
                    if (key := message.key()) is not None and (value := message.value()) is not None
                ]
                if found:
                    self.keep([answer for answer, _ in found], found[-1][1])

    def find(self, key: str) -> Remembered | None:
        """The answer to the request with this key, unless it has expired."""
        row = self._database.execute(
            "SELECT key, fingerprint, status, body, at FROM answers WHERE key = ? AND at > ?",
            [key, time.time() - KEPT_SECONDS],
        ).fetchone()
        return None if row is None else Remembered(*row)

    def keep(self, answers: Iterable[Remembered], next_offset: int) -> None:
        """Answers that are in the topic now, which has been read up to this offset."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", answers)
            database.execute("UPDATE position SET next = max(next, ?)", [next_offset])
            if time.time() - self._swept > SWEEP_SECONDS:
                self._swept = time.time()
                database.execute("DELETE FROM answers WHERE at <= ?", [self._swept - KEPT_SECONDS])
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
