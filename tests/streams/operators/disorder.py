"""Random streams with disorder, duplicates and lateness, and what a plain computation makes of them.

Times are whole seconds after BASE. Spark's rule, exactly: the watermark of a batch is the highest event time
of all batches before it, less the lateness, and of several streams the lowest; it never goes back, and is not
there before each of them has had an event. A row enters a state unless its time, or the end of its window, is
at or before the watermark.
"""

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pandas as pd

BASE = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id long, k string, at timestamp, v long"
NEVER = -(10**9)  # before anything

# HEADWATER_SEEDS=20 tries as many streams for each operator.
SEEDS = range(int(os.environ.get("HEADWATER_SEEDS", "1")))


def second(number: float) -> datetime:
    return BASE + timedelta(seconds=number)


def seconds(moment: datetime) -> int:
    return round((moment - BASE).total_seconds())


@dataclass(frozen=True)
class Event:
    """One row, with the batch it comes in."""

    batch: int
    id: int
    k: str
    at: int
    v: int

    def row(self) -> dict[str, Any]:
        return {"id": self.id, "k": self.k, "at": second(self.at), "v": self.v}


def random_events(
    seed: int, *, batches: int = 5, each: int = 25, keys: str = "abc", disorder: int = 15, pace: int = 12
) -> list[Event]:
    """Times that go on by `pace` a batch, up to `disorder` behind; some rows twice, some far too old."""
    chance = random.Random(seed)
    events: list[Event] = []
    for batch in range(batches):
        for _ in range(each):
            if events and chance.random() < 0.1:
                twin = chance.choice(events)
                events.append(Event(batch, twin.id, twin.k, twin.at, twin.v))
                continue
            behind = (
                chance.randint(0, disorder)
                if chance.random() < 0.9
                else chance.randint(disorder, 5 * disorder)
            )
            at = max(0, (batch + 1) * pace - behind + chance.randint(0, pace))
            events.append(Event(batch, len(events), chance.choice(keys), at, chance.randint(1, 9)))
    return events


def in_batches(events: Iterable[Event]) -> list[list[dict[str, Any]]]:
    """As testing.run takes them."""
    everything = list(events)
    number = max(event.batch for event in everything) + 1
    return [[event.row() for event in everything if event.batch == batch] for batch in range(number)]


def watermarks(*streams: tuple[Sequence[Event], int]) -> list[int]:
    """The watermark before each batch, and after the last one, of streams with their lateness."""
    number = max(event.batch for events, _ in streams for event in events) + 1
    marks = [NEVER]
    for batch in range(number):
        highest = [
            max((event.at for event in events if event.batch <= batch), default=NEVER) - lateness
            for events, lateness in streams
        ]
        marks.append(max(marks[-1], min(highest)))
    return marks


def table(events: Sequence[Event], marks: Sequence[int]) -> pd.DataFrame:
    """The events with the watermark that each of them met, for DuckDB."""
    return pd.DataFrame(
        [(event.batch, marks[event.batch], event.id, event.k, event.at, event.v) for event in events],
        columns=["batch", "mark", "id", "k", "t", "v"],  # AT is a word of SQL
    )


def query(sql: str, **tables: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Rows of DuckDB, sorted."""
    with duckdb.connect() as connection:
        for name, frame in tables.items():
            connection.register(name, frame)
        return sorted_rows(connection.execute(sql).fetchall())


def sorted_rows(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """In an order, nulls first."""
    return sorted((tuple(row) for row in rows), key=lambda row: [(value is not None, value) for value in row])
