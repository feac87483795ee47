"""Runs a source without a worker, against a log in memory: steps are taken one by one, and lives end anywhere."""

import base64
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.postgres.slot import removal
from headwater.connect.cdc.postgres.source import PostgresSource
from headwater.connect.source import Step

_numbers = itertools.count(1)


class Event(NamedTuple):
    topic: str
    key: Any
    value: Any
    headers: dict[str, bytes | None]
    raw_key: bytes | None


class MemoryLog:
    """What a worker would have committed."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.position: Mapping[str, Any] | None = None

    def commit(self, steps: list[Step]) -> None:
        for step in steps:
            self.records.extend(tuple(record) for record in step.records)
            self.position = json.loads(json.dumps(step.position))

    def ends(self, topic: str) -> dict[str, int]:
        return {"0": sum(record[0] == topic for record in self.records)}

    def live(self, topic: str, before: Mapping[str, int] | None = None) -> Iterator[bytes]:
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, record in enumerate(each for each in self.records if each[0] == topic):
            if record[1] is not None:
                last[record[1]] = (offset, record[2])
        for key, (offset, value) in last.items():
            if value is not None and (before is None or offset < before["0"]):
                yield key

    def events(self, topic: str | None = None) -> list[Event]:
        def loaded(data: bytes | None) -> Any:
            if data is None:
                return None
            try:
                return json.loads(data)
            except ValueError:
                return data

        return [
            Event(record[0], loaded(record[1]), loaded(record[2]), dict(record[3] or ()), record[1])
            for record in self.records
            if topic is None or record[0] == topic
        ]

    def table(self, topic: str) -> dict[bytes, dict[str, Any]]:
        """The table as one who reads the topic later finds it: by the last record of each key."""
        rows: dict[bytes, dict[str, Any]] = {}
        for event in self.events(topic):
            assert event.raw_key is not None
            if event.value is None:
                rows.pop(event.raw_key, None)
            elif event.value["op"] == "d" or event.raw_key == b"null":
                continue
            else:
                rows[event.raw_key] = event.value["after"]
        return rows

    def bag(self, topic: str) -> list[str]:
        """The rows of a table without a key, following every event."""
        rows: list[str] = []

        def text(row: Any) -> str:
            return json.dumps(row, sort_keys=True)

        for event in self.events(topic):
            if event.value is None:
                continue
            op = event.value["op"]
            if op == "t":
                rows.clear()
            if op in "ud":
                rows.remove(text(event.value["before"]))
            if op in "cru":
                rows.append(text(event.value["after"]))
        return sorted(rows)


class Following:
    """A source and the log in memory that it fills."""

    def __init__(self, url: str, data: Path, log: MemoryLog | None = None, **options: Any) -> None:
        self.options = CdcOptions(url, data=data, **options)
        self.log = log or MemoryLog()
        self.source = PostgresSource(self.options)
        self.source.keys = self.log
        self.url = url
        self._steps: Iterator[Step] | None = None
        self._pending: list[Step] = []
        self.lives = 0

    def step(self) -> Step:
        """The next step, not yet committed."""
        if self._steps is None:
            self.lives += 1
            self._steps = self.source.steps(self.log.position)
        step = next(self._steps)
        self._pending.append(step)
        return step

    def commit(self, count: int | None = None) -> None:
        """Commits the first steps that are pending, as a worker does, and acknowledges them."""
        done, self._pending = self._pending[:count], self._pending[count:] if count is not None else []
        if done:
            self.log.commit(done)
            assert self.log.position is not None
            if self._steps is not None:
                self.source.acknowledge(done[-1].position)

    def crash(self) -> None:
        """What was not committed is lost."""
        self.close()
        self._pending = []

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()  # type: ignore[attr-defined]
            self._steps = None

    def until(self, done: Callable[[], bool], seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"not done: {self.log.position} {self.source.status()}"
            self.step()
            self.commit()

    def catch_up(self, seconds: float = 30.0) -> None:
        """Follows until all that was committed so far has come, and every table was read."""
        self.step()  # the slot has to be there before the marker
        self.commit()
        marker = f"marker {next(_numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_logical_emit_message(true, 'marker', %s)", [marker])
        needle = base64.b64encode(marker.encode())

        def done() -> bool:
            came = any(
                record[0].endswith(".message") and needle in record[2]
                for record in self.log.records[-50_000:]
            )
            return came and "snapshot" not in (self.log.position or {})

        self.until(done, seconds)

    def random_life(self, chances: random.Random, steps: int) -> None:
        """Some steps, committed in groups; then a crash with something pending, perhaps."""
        for _ in range(steps):
            self.step()
            if chances.random() < 0.4:
                self.commit(chances.randrange(1, len(self._pending) + 1))
        self.crash()

    def remove(self) -> None:
        self._run(removal(self.source.name))

    def drop_slot(self) -> None:
        self._run(removal(self.source.name)[:1])

    def _run(self, statements: list[str]) -> None:
        """Runs statements about what the server may hold to be in use for a moment after the end of a life."""
        self.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                for _ in range(100):
                    try:
                        connection.execute(statement)
                        break
                    except psycopg.errors.ObjectInUse:
                        time.sleep(0.02)
