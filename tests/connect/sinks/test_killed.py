"""Sinks, Redis and the broker killed at random, while a writer changes the topic: all is as the topic has it.

``HEADWATER_KILLS`` says how many; a few unless given.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import orjson

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.connect.sinks.resp import RedisAddress, RedisConnection, command
from headwater.errors import ConnectionLost, HeadwaterError
from tests.connect.sinks.following import Pair, delete, table_of, until, upsert
from tests.support.redis import Redis
from tests.support.servers import Headwater

KILLS = int(os.environ.get("HEADWATER_KILLS", "5"))
KEYS = 400
TOPIC = "shop.rows"


class Writing:
    """Changes in transactions, some of them rolled back; each row counts how often it was changed."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._connection, self._chance = Connection(bootstrap), random.Random(seed)
        self._numbers: dict[int, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed = 0

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        writer: TransactionalWriter | None = None
        while not self._stopping.is_set():
            try:
                writer = writer or TransactionalWriter(self._connection, "writing")
                with contextlib.suppress(_Undone), writer.transaction():
                    for key, value in self._changes():
                        writer.write(TOPIC, value, key)
                    if self._chance.random() < 0.1:
                        raise _Undone
                    self.committed += 1
            except HeadwaterError:
                writer = None  # the broker went away
            time.sleep(0.005)

    def _changes(self) -> Iterator[Pair]:
        for _ in range(self._chance.choice((1, 3, 200))):
            id = self._chance.randrange(KEYS)
            self._numbers[id] = self._numbers.get(id, 0) + 1  # never the same row twice
            if self._chance.random() < 0.3:
                yield from delete(id)
            else:
                yield upsert({"id": id, "number": self._numbers[id], "name": f"n{id}"}, "u")


class _Undone(Exception):
    """A transaction is rolled back."""


@contextmanager
def sink_process(*arguments: str) -> Iterator["Killable"]:
    process = Killable([sys.executable, "-m", "tests.connect.sinks.sinking", *arguments])
    try:
        yield process
    finally:
        process.kill()


class Killable:
    def __init__(self, command_line: list[str]) -> None:
        self._command = command_line
        self._process = subprocess.Popen(command_line, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def again(self) -> None:
        self.kill()
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(60)


def test_redis_is_as_the_topic_is_whatever_is_killed() -> None:
    chance = random.Random(7)
    with Headwater() as broker, Redis() as redis:
        connection = Connection(broker.bootstrap)
        Admin(connection).create_topic(TOPIC, 1)
        address = RedisAddress(redis.url)
        watching = Watching(address)
        with (
            sink_process(broker.bootstrap, "redis", redis.url, TOPIC) as sink,
            Writing(broker.bootstrap, 3) as writing,
            watching,
        ):
            position = 0
            for number in range(KILLS):
                time.sleep(chance.uniform(0.1, 0.8))
                victims = [("sink",), ("redis",), ("sink", "redis"), ("broker",)][
                    number % 4 if number < 4 else chance.choice((0, 0, 1, 2))
                ]
                if "redis" in victims:
                    redis.kill()
                if "broker" in victims:
                    broker.kill()
                if "sink" in victims:
                    sink.again()
                if "redis" in victims:
                    redis.start()
                if "broker" in victims:
                    broker.start()
                before = position
                until(lambda before=before: _offset(redis) > before, 60)  # type: ignore[misc]
                position = _offset(redis)
        with sink_process(broker.bootstrap, "redis", redis.url, TOPIC):
            end = Admin(connection).latest([(TOPIC, 0)])[TOPIC, 0]
            wanted = {f"row:{row['id']}": row for row in table_of(connection, TOPIC).values()}
            until(lambda: _rows(redis) == wanted, 60)
        assert writing.committed > 5 * KILLS and len(wanted) > KEYS / 3 and end > 1000
        assert watching.looks > KILLS and not watching.wrong
        assert len(watching.seen) > KILLS
        rows: dict[object, object] = {}
        records = iter([*_records(connection), (sys.maxsize, None, None, None)])
        record = next(records)
        for at, numbers in sorted(watching.seen.items()):
            while int(str(record[0])) < at:
                if record[1] == "u":
                    rows[record[2]] = record[3]
                elif record[1] == "d":
                    rows.pop(record[2], None)
                record = next(records)
            assert numbers == rows, f"at {at}"


class Watching:
    """Looks at Redis all the while: neither the position nor a row's number may ever go back.

    What it saw at which position is kept, to be held against the topic.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = 0
        self.wrong: list[str] = []
        self.seen: dict[int, dict[int, int]] = {}  # position -> row -> number

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        keys = [f"row:{id}".encode() for id in range(KEYS)]
        together = [
            command(b"MULTI"),
            command(b"HGET", b"headwater:sink:shop.rows.redis", b"shop.rows-0"),
            command(b"MGET", *keys),
            command(b"EXEC"),
        ]
        last: tuple[int, dict[int, int]] = (0, {})
        connection: RedisConnection | None = None
        while not self._stopping.wait(0.02):
            try:
                connection = connection or RedisConnection(self._address)
                offset, rows = connection.ask(together)[-1]
            except (ConnectionLost, TypeError):  # it is away, or loads its data
                connection = None
                continue
            numbers = {id: orjson.loads(row)["number"] for id, row in enumerate(rows) if row is not None}
            back = [id for id, number in numbers.items() if number < last[1].get(id, 0)]
            if int(offset or 0) < last[0] or back:
                self.wrong.append(f"from {last[0]} to {offset}: rows {back[:5]}")
            last = int(offset or 0), last[1] | numbers
            self.seen[last[0]] = numbers
            self.looks += 1


def test_each_record_is_in_the_files_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(8)
    with Headwater() as broker:
        connection = Connection(broker.bootstrap)
        Admin(connection).create_topic(TOPIC, 1)
        folder = tmp_path / TOPIC
        with (
            sink_process(broker.bootstrap, "parquet", str(tmp_path), TOPIC) as sink,
            Writing(broker.bootstrap, 4),
        ):
            for number in range(max(2, KILLS // 2)):
                before = len(list(folder.glob("*.parquet")))
                until(lambda before=before: len(list(folder.glob("*.parquet"))) > before, 60)  # type: ignore[misc]
                time.sleep(chance.uniform(0, 0.3))
                if number == 1:
                    broker.kill()
                    broker.start()
                sink.again()
        sink.again()
        records = _records(connection)
        until(lambda: _last(folder) >= records[-1][0], 60)
        assert sink.stop() == 0
        found = duckdb.sql(
            f"SELECT _offset, _op, id, number FROM read_parquet('{folder}/*.parquet', union_by_name=true) "
            "ORDER BY _offset"
        ).fetchall()
        assert found == records and len(records) > 1000
        assert not list(folder.glob(".part-*"))


def _records(connection: Connection) -> list[tuple[object, ...]]:
    """What the files have to have, read by another path."""
    from headwater.client.reader import Reader

    rows: list[tuple[object, ...]] = []
    with Reader(connection, [TOPIC], to_end=True) as reader:
        for batch in reader.batches():
            for message in batch:
                value = message.value()
                if value is None:
                    rows.append((message.offset(), "tombstone", None, None))
                    continue
                event = orjson.loads(value)
                row = event["after"] or event["before"]
                rows.append((message.offset(), event["op"], row["id"], row.get("number")))
    return rows


def _last(folder: Path) -> int:
    return max((int(path.name[27:47]) - 1 for path in folder.glob("0*.parquet")), default=-1)


def _offset(redis: Redis) -> int:
    try:
        return int(redis.ask("HGET", "headwater:sink:shop.rows.redis", "shop.rows-0") or 0)
    except (ConnectionLost, TypeError):
        return -1


def _rows(redis: Redis) -> dict[str, object]:
    return {name: orjson.loads(row) for name, row in redis.rows("row:*").items()}
