"""Which ticks to write, so that a silent input does not hold the event time of the others. Pure.

A query's watermark is the lowest of its inputs'. When an input has brought nothing for its `idle` time, a
tick in its place says: "go on as if an event of this time had come". The tick is a record of a topic of
ours, so that it is part of what a query has read: a repeated batch reads it again at the same place.

A tick is meant for one query, and may be written only when that query has read all that the silent input
has: a query that is behind would take everything it has yet to read for late. For the same reason a query
that begins anew starts behind all ticks that are there. An event that comes after a tick with an older time
is late, as it is after any newer event: `idle` is the patience with a sleeping input.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InputState:
    """One input of a query. Event times and durations are in microseconds, wall clock in seconds."""

    lateness: int
    idle: int
    # The highest event time, ticks included, that the query has read since it was started; None before any. A
    # started query begins without: Spark keeps the watermark, and forgets what each input had contributed.
    newest: int | None
    heard: float  # wall clock of its last record, or of the query's start
    behind: bool = False  # whether the log has records that the query has yet to read

    @property
    def watermark(self) -> int | None:
        """How far this input alone would let event time go."""
        return None if self.newest is None else self.newest - self.lateness


def ticks_due(inputs: Mapping[str, InputState], now: float, *, step: int = 1_000_000) -> dict[str, int]:
    """The event times of the ticks to write now, by input; those that speak have none.

    A silent input is brought to where the slowest of the others is that still speak, and never back. When
    none speaks nothing is held up, and nothing moves. A move of less than `step` is not worth a record.

    >>> second = 1_000_000
    >>> clicks = InputState(lateness=10 * second, idle=60 * second, newest=500 * second, heard=1000.0)
    >>> orders = InputState(lateness=30 * second, idle=60 * second, newest=100 * second, heard=900.0)
    >>> ticks_due({"clicks": clicks, "orders": orders}, now=1000.5)
    {'orders': 520000000}
    """
    silent = {
        name: state
        for name, state in inputs.items()
        if not state.behind and (now - state.heard) * 1_000_000 >= state.idle
    }
    speaking = [state.watermark for name, state in inputs.items() if name not in silent]
    reached = [watermark for watermark in speaking if watermark is not None]
    if not reached or len(reached) < len(speaking):
        return {}  # nobody speaks, or one that does has not said anything yet and holds all of them rightly
    target = min(reached)
    due = {}
    for name, state in silent.items():
        if state.watermark is None or target - state.watermark >= step:
            due[name] = target + state.lateness
    return due
