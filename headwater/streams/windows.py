"""Windows over event time, as columns to group by: tumbling, hopping and session.

Each gives a column ``window`` of type struct<start: timestamp, end: timestamp>; the start belongs to the
window, the end does not. Tumbling and hopping windows begin at multiples of their step since 1970-01-01 00:00
UTC. An event without a time is in no window. The window that follows each event is in `sliding`.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.streams.durations import Duration, interval, microseconds
from headwater.streams.late import EVERY
from headwater.streams.state import TIME_WINDOW, WATERMARK

WINDOW = "window"


def tumbling(time: str | Column, size: Duration) -> Column:
    """Windows one after the other: every event is in exactly one.

    ::

        clicks.groupBy(hw.tumbling("at", "1 minute"), "page").count()
    """
    microseconds(size, use="the size of a window")
    return F.window(_column(time), interval(size)).alias(WINDOW)


def hopping(time: str | Column, size: Duration, every: Duration) -> Column:
    """Windows of `size` that begin `every` so often.

    With `every` smaller than `size` they overlap and an event is in several; with `every` larger they leave
    gaps, and an event in a gap is in none::

        clicks.groupBy(hw.hopping("at", "10 minutes", every="1 minute"), "page").count()
        sensors.groupBy(hw.hopping("at", "1 minute", every="1 hour"), "device").avg("celsius")
    """
    length = microseconds(size, use="the size of a window")
    step = microseconds(every, use="the step of a window")
    if step > length:
        return _with_gaps(_column(time), length, step)
    return F.window(_column(time), interval(size), interval(every)).alias(WINDOW)


def session(time: str | Column, gap: Duration | Column) -> Column:
    """Windows of activity: one goes on until nothing has come for `gap`, and ends that long after its last.

    The gap may be a column, so that it differs between events. Spark shows a session when it is closed, not
    while it grows::

        clicks.groupBy(hw.session("at", "30 minutes"), "user_id").count()
    """
    if not isinstance(gap, Column):
        microseconds(gap, use="the gap of a session")
    length = gap if isinstance(gap, Column) else interval(gap)
    return F.session_window(_column(time), length).alias(WINDOW)


def _column(time: str | Column) -> Column:
    return F.col(time) if isinstance(time, str) else time


def _with_gaps(time: Column, size: int, every: int) -> Column:
    """Spark has no windows with gaps; this is a tumbling window of `every`, of which the first `size` counts.

    A time in a gap becomes null, and F.window leaves rows without a time out. Only a column may be a
    watermarked key for Spark, and the end of this one is computed; so it says by itself that it is an event
    time, in the one place where the analyzer keeps that (a field of a struct), and `modes.prepared` makes a
    column of it.
    """
    inside = F.pmod(F.unix_micros(time), F.lit(every)) < F.lit(size)
    start = F.window(F.when(inside, time), f"{every} microseconds").getField("start")
    end = F.timestamp_micros(F.unix_micros(start) + F.lit(size))
    window = F.struct(start.alias("start"), end.alias("end"))
    marks = {WATERMARK: 0, TIME_WINDOW: True, EVERY: every}
    return F.struct(window.alias(WINDOW, metadata=marks)).getField(WINDOW).alias(WINDOW, metadata=marks)
