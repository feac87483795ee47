"""A source run as the worker runs it, with a log in memory: what is committed stays, what is not is lost by a kill."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from headwater.connect.cdc.mysql.source import MySQLSource
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Position, Record
from tests.support.mariadb import MariaDB

_numbers = itertools.count(1)


def fresh_database(server: MariaDB, *statements: str) -> str:
    """A database that no other test has."""
    name = f"test{next(_numbers)}"
    server.run(f"drop database if exists {name}", f"create database {name}", database=None)
    if statements:
        server.run(*statements, database=name)
    return name


class MemoryLog:
    """What was committed, a list of records a topic; answers which keys are alive, as the real log does."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._topics: dict[str, list[Record]] = {}
        self._alive: dict[str, dict[bytes, int]] = {}  # topic -> key -> offset of its last record

    def add(self, records: list[Record]) -> None:
        self.records += records
        for record in records:
            topic, key, value, _ = record
            of_topic = self._topics.setdefault(topic, [])
            if key is not None:
                alive = self._alive.setdefault(topic, {})
                if value is None:
                    alive.pop(key, None)
                else:
                    alive[key] = len(of_topic)
            of_topic.append(record)

    def of(self, topic: str) -> list[Record]:
        return self._topics.get(topic, [])

    def ends(self, topic: str) -> dict[str, int]:
        return {"0": len(self.of(topic))}

    def live(self, topic: str, before: Mapping[str, int] | None = None) -> Iterator[bytes]:
        limit = None if before is None else before.get("0", 0)
        for key, offset in list(self._alive.get(topic, {}).items()):
            if limit is None or offset < limit:
                yield key


class Capture:
    """A source and what became of it."""

    def __init__(self, server: MariaDB, database: str, **options: Any) -> None:
        self.options = CdcOptions(server.url(database), **options)
        self.log = MemoryLog()
        self.position: Position | None = None
        self.steps = 0
        self._open()

    def _open(self) -> None:
        self.source = MySQLSource(self.options, self.log)
        self._steps: Iterator[Any] | None = None
        self._pending: list[Record] = []
        self._next: Position | None = self.position

    def take(self, commits: bool = True) -> int:
        """One step; how many records it had."""
        if self._steps is None:
            self._steps = self.source.steps(self.position)
        step = next(self._steps)
        orjson.dumps(step.position)  # positions are JSON
        self._pending += step.records
        self._next = step.position
        self.steps += 1
        if commits:
            self.commit()
        return len(step.records)

    def commit(self) -> None:
        self.log.add(self._pending)
        self._pending = []
        self.position = self._next
        if self.position is not None:
            self.source.acknowledge(self.position)

    def kill(self) -> None:
        """What was not committed is lost; the next `take` begins at the committed position."""
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]
        self._open()

    def until(self, done: Callable[[], bool], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"did not come: {len(self.log.records)} records, {self.position}"
            self.take()

    def until_caught_up(self, server: MariaDB, seconds: float = 30) -> None:
        """Until all that the server has now is committed, and no table is being read."""
        gtid = server.run("select @@global.gtid_binlog_pos", database=None)[0][0]
        self.until(lambda: self.is_past(gtid), seconds)

    def is_past(self, gtid: str) -> bool:
        if self.position is None or "jobs" in self.position.get("snapshot", {}):
            return False
        last = {
            part.split("-")[0]: int(part.split("-")[2]) for part in self.position["gtid"].split(",") if part
        }
        return (
            all(
                last.get(part.split("-")[0], 0) >= int(part.split("-")[2]) for part in gtid.split(",") if part
            )
            and "group" not in self.position
        )

    def close(self) -> None:
        self.kill()

    # -- what a reader sees

    def events(self, table: str) -> list[Any]:
        """The values of a table's topic, as JSON."""
        return [
            None if value is None else orjson.loads(value)
            for _, _, value, _ in self.log.of(self.options.topic(table))
        ]

    def rows(self, table: str) -> dict[bytes, Any]:
        """The table as its topic has it."""
        found: dict[bytes, Any] = {}
        for _, key, value, _ in self.log.of(self.options.topic(table)):
            assert key is not None
            if value is None:
                found.pop(key, None)
                continue
            event = orjson.loads(value)
            if event["op"] == "d":
                found.pop(key, None)
            else:
                found[key] = event["after"]
        return found

    def bag(self, table: str) -> "Counter[bytes]":
        """A table without a key as its topic has it: how often each row is there."""
        found: Counter[bytes] = Counter()
        for _, _, value, _ in self.log.of(self.options.topic(table)):
            if value is None:
                continue
            event = orjson.loads(value)
            if event["op"] == "t":
                found.clear()
            if event["op"] in "ud":
                found[orjson.dumps(event["before"])] -= 1
            if event["op"] in "cru":
                found[orjson.dumps(event["after"])] += 1
        assert all(count >= 0 for count in found.values())
        return +found
