"""A source driven by hand: its records in memory, and the tables rebuilt from them."""

import base64
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite.source import SQLiteSource
from headwater.connect.source import Position, Record, Signal, Source, Step

Row = tuple[tuple[str, Any], ...]


class Log:
    """Records of topics in order, with the keys that are alive: what a source asks of the log."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {}
        self.position: Position | None = None

    def write(self, step: Step) -> None:
        for record in step.records:
            self.records.setdefault(record[0], []).append(Record(*record))
        self.position = orjson.loads(orjson.dumps(step.position))

    def ends(self, topic: str) -> dict[str, int]:
        return {"0": len(self.records[topic])} if topic in self.records else {}

    def live(self, topic: str, before: Mapping[str, int] | None = None) -> Iterator[bytes]:
        last: dict[bytes, tuple[int, bool]] = {}
        for place, record in enumerate(self.records.get(topic, ())):
            if record.key is not None:
                last[record.key] = (place, record.value is not None)
        end = len(self.records.get(topic, ())) if before is None else before.get("0", 0)
        yield from [key for key, (place, alive) in last.items() if alive and place < end]

    def values(self, topic: str) -> list[Any]:
        return [
            orjson.loads(record.value) if record.value else None for record in self.records.get(topic, ())
        ]

    def events(self, topic: str) -> list[tuple[str, Any, Any]]:
        """(op, before, after) of each event, without tombstones."""
        return [
            (each["op"], each["before"], each["after"]) for each in self.values(topic) if each is not None
        ]


class Capture:
    """A source and its log; may be stopped at any step, and goes on from its position."""

    def __init__(self, url: str, **options: Any) -> None:
        self.options = CdcOptions(url, **options)
        self.log = Log()
        self.source: Source | None = None
        self._steps: Iterator[Step] | None = None

    def begin(self, *signals: Signal) -> None:
        """Makes a source, for which signals are waiting, as a worker does."""
        self.source = SQLiteSource(self.options, self.log)
        self._steps = self.source.steps(self.log.position)
        for signal in signals:
            self.source.signal(signal)

    def step(self) -> Step:
        if self._steps is None:
            self.begin()
        assert self.source is not None
        assert self._steps is not None
        step = next(self._steps)
        self.log.write(step)
        self.source.acknowledge(step.position)
        return step

    def catch_up(self, until: Callable[[], bool] = lambda: True) -> Log:
        """Goes on until the source is silent with nothing left to read."""
        quiet = 0
        for _ in range(100_000):
            step = self.step()
            quiet = 0 if step.records or step.position["jobs"] else quiet + 1
            if quiet >= 2 and until():
                return self.log
        raise AssertionError("it does not come to rest")

    def stop(self) -> None:
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]
        self._steps = None


def in_json(value: Any) -> Any:
    """A value of SQLite as the events have it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def table_rows(path: Path, table: str) -> Counter[Row]:
    """What is in the table; columns that are NULL are left out, as one that an event lacks."""
    with sqlite3.connect(path, timeout=30) as connection:
        connection.text_factory = lambda raw: _text(raw)
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in cursor.description]
        rows = Counter(_row(dict(zip(names, map(in_json, row), strict=True))) for row in cursor)
    connection.close()
    return rows


def _text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _row(values: Mapping[str, Any]) -> Row:
    return tuple(sorted((name, value) for name, value in values.items() if value is not None))


def rebuilt(records: list[tuple[bytes | None, bytes | None]]) -> Counter[Row]:
    """The table that the topic's records make; checks that each change fits what was there before it."""
    if any(key is not None for key, _ in records):
        state: dict[bytes, Row] = {}
        for key, value in records:
            assert key is not None
            if value is None:
                state.pop(key, None)
                continue
            event = orjson.loads(value)
            if event["op"] == "d":
                state.pop(key, None)
            else:
                state[key] = _row(event["after"])
        return Counter(state.values())
    bag: Counter[Row] = Counter()
    for _, value in records:
        if value is None:
            continue
        event = orjson.loads(value)
        if event["op"] == "t":
            bag.clear()
        if event["before"] is not None and event["op"] in "ud":
            before = _row(event["before"])
            assert bag[before] > 0, f"{event} takes away what is not there"
            bag[before] -= 1
        if event["after"] is not None:
            bag[_row(event["after"])] += 1
    return +bag


def check(path: Path, log: Log, *tables: str) -> None:
    """Every table equals what its topic makes."""
    for table in tables:
        records = [(record.key, record.value) for record in log.records.get(f"{path.stem}.{table}", [])]
        assert rebuilt(records) == table_rows(path, table), table
