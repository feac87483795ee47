"""Which events came too late for an output: those whose windows had all ended when their batch began.

Spark drops them and counts what it dropped. Which events they were follows from the windows that the function
groups by, noted here while it runs, and from the watermark that the batch ran with.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class WindowUse:
    """Windows of `size` that begin `every` so often, both in microseconds; a session has its gap as `size`.

    A size of nothing stands for state that looks at the time itself: joins, duplicates, the continuous window.
    """

    size: int
    every: int


_noted: ContextVar[list[WindowUse] | None] = ContextVar("windows", default=None)


@contextmanager
def windows_used() -> Iterator[list[WindowUse]]:
    """Collects the windows that are made within the block.

    >>> with windows_used() as windows:
    ...     note_window(60_000_000, 60_000_000)
    >>> windows
    [WindowUse(size=60000000, every=60000000)]
    """
    windows: list[WindowUse] = []
    token = _noted.set(windows)
    try:
        yield windows
    finally:
        _noted.reset(token)


def note_window(size: int, every: int | None = None) -> None:
    """A window was made; without `every` it is a session."""
    noted = _noted.get()
    if noted is not None:
        noted.append(WindowUse(size, every or 0))


def is_late(time: Column, watermark: datetime, windows: Sequence[WindowUse]) -> Column:
    """Whether Spark drops an event with this time in a batch with this watermark.

    An event is late when the last of its windows has ended by then; without a window, when its own time has
    come by then. What lies in the gap between two windows is in neither, and never late. Of several states in one
    function the first to meet the event decides, and that is nearly always the one without windows.
    """
    mark = F.lit(round(watermark.timestamp() * 1_000_000))
    if not windows or any(window.size == 0 for window in windows):
        return F.unix_micros(time) <= mark
    ends = [last_end(F.unix_micros(time), window) for window in windows]
    return (F.greatest(*ends) if len(ends) > 1 else ends[0]) <= mark


def last_end(micros: Column, window: WindowUse) -> Column:
    """The end of the last window that an event of this time is in, null when it is in none."""
    if window.every == 0:
        return micros + F.lit(window.size)
    past = F.pmod(micros, F.lit(window.every))
    return F.when(past < F.lit(window.size), micros - past + F.lit(window.size))
