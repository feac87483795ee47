"""Event time: which column it is, setting it, correcting it, and letting it go on where an input is silent.

Three clocks are columns to choose from as a stream's `time`: the event's own, ``LOG_TIME`` (when the log
took the record) and ``PROCESSING_TIME`` (when Spark's batch began; a batch that is repeated keeps its
time).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import LOG_TIME, PROCESSING_TIME
from headwater.streams.durations import Duration, interval
from headwater.streams.naming import col, quoted
from headwater.streams.state import HELD_BACK, WATERMARK

__all__ = [
    "LOG_TIME",
    "PROCESSING_TIME",
    "corrected_time",
    "event_time",
    "lateness_of",
    "time_of",
    "watermarked",
    "with_ticks",
    "with_ticks_among",
    "without_time",
]

# An explicit mark in place of the old one: Spark's optimizer would take an empty one for nothing new.
_NO_TIME = {"headwater.time": "none"}
_BOUND = "_headwater_after"
_TICK = "_headwater_tick"
_FIRST, _LAST = -(2**63), 2**63 - 1


def corrected_time(happened: str | Column, sent: str | Column, received: str | Column) -> Column:
    """When something happened by our clock, though it was noted by a device whose clock is wrong.

    The device says when it `happened` and when it `sent` the event, both by its own clock; we know when we
    `received` it. The way here counts as no time, so what is left of the error is how long the way took.
    Where one of the last two is missing, the device is believed::

        hw.event_time(readings, hw.corrected_time("at", "sent", hw.LOG_TIME), lateness="1 minute")
    """
    happened, sent, received = (_column(time) for time in (happened, sent, received))
    corrected = F.unix_micros(happened) + F.unix_micros(received) - F.unix_micros(sent)
    return F.coalesce(F.timestamp_micros(corrected), happened)


def event_time(frame: DataFrame, time: Column, *, lateness: Duration, name: str = "event_time") -> DataFrame:
    """The frame with a computed event time in the column `name`, for streams that are declared without `time`.

    Spark takes no second event time above one that is there: such a function is refused.
    """
    columns = [_unmarked(frame, column) for column in frame.columns if column != name]
    return frame.select(*columns, time.alias(name)).withWatermark(
        quoted(name), interval(lateness, use="lateness", zero=True)
    )


def time_of(frame: DataFrame) -> str | None:
    """The name of the frame's column of event time, None without one.

    The last one counts: what is made of an event time, such as a window, comes after it.
    """
    marked = [field.name for field in frame.schema if WATERMARK in (field.metadata or {})]
    return marked[-1] if marked else None


def lateness_of(frame: DataFrame, time: str) -> int:
    """The lateness of a column of event time, in milliseconds."""
    return int(frame.schema[time].metadata[WATERMARK])


def held_back_of(frame: DataFrame, time: str) -> int:
    """By how many microseconds the joins that a column of event time has come through hold rows back."""
    return int((frame.schema[time].metadata or {}).get(HELD_BACK, 0))


def required_time(frame: DataFrame, operation: str, subject: str) -> str:
    """As `time_of`; refuses a frame that has none, or one that is not a moment."""
    time = time_of(frame)
    if time is None:
        raise ApplicationInvalid(
            operation,
            subject,
            "it has no event time, so nothing would ever be forgotten",
            "Declare its stream with time=... and lateness=..., or use hw.event_time.",
        )
    if not isinstance(frame.schema[time].dataType, TimestampType):
        raise ApplicationInvalid(
            operation,
            subject,
            f"its event time {time!r} is of type {frame.schema[time].dataType.simpleString()}, not a moment",
            f"Select one first: F.window_time({time!r}).",
        )
    return time


def without_time(frame: DataFrame, *columns: str) -> DataFrame:
    """The frame with these columns, or all, as plain times: only one event time may enter a state."""
    chosen = columns or tuple(frame.columns)
    return frame.select(*(_unmarked(frame, name) if name in chosen else col(name) for name in frame.columns))


def with_ticks(events: DataFrame, ticks: DataFrame, time: str, lateness: Duration) -> DataFrame:
    """The events with their watermark, which the times of `ticks` move as well.

    A silent input holds the event time of all that are joined with it. Ticks are rows (a column `time`) of
    a small topic: part of the input, with offsets of their own, so that a repeated batch sees the same
    ones. They pass the watermark and are then left out.

    The filter that leaves them out compares the event time with a bound that every event is above of, and no
    tick: Spark moves a filter below a watermark unless it looks at the event time.
    """
    marked = events.withColumn(_TICK, F.lit(False))
    passing = ticks.select(col(time), F.lit(True).alias(_TICK))
    both = marked.unionByName(passing, allowMissingColumns=True)
    return with_ticks_among(both, _TICK, time, lateness)


def with_ticks_among(frame: DataFrame, is_tick: str, time: str, lateness: Duration) -> DataFrame:
    """As `with_ticks`, for a frame with both, in which a column says which rows are ticks; it is dropped."""
    bounded = frame.withColumn(_BOUND, F.when(F.col(is_tick), F.lit(_LAST)).otherwise(F.lit(_FIRST)))
    above = F.coalesce(F.unix_micros(col(time)), F.lit(0)) > F.col(_BOUND)
    return watermarked(bounded, time, lateness, keep=above).drop(_BOUND, is_tick)


def watermarked(frame: DataFrame, time: str, lateness: Duration, *, keep: Column | None = None) -> DataFrame:
    """The frame with its watermark, which every row moves, and of which the rows to `keep` are left.

    With withWatermark alone, Spark moves the filters of the function that reads the stream below the
    watermark, and only rows that pass them move it: each reader of the stream would have a time of its own.
    A condition that depends on the partition stays where it is, and keeps all those above it.
    """
    timed = frame.withWatermark(quoted(time), interval(lateness, use="lateness", zero=True))
    here = F.spark_partition_id() >= 0
    return timed.where(here if keep is None else keep & here)


def _column(time: str | Column) -> Column:
    return F.col(time) if isinstance(time, str) else time


def _unmarked(frame: DataFrame, name: str) -> Column:
    marks = frame.schema[name].metadata or {}
    column = col(name)
    if WATERMARK not in marks:
        return column
    rest = {key: value for key, value in marks.items() if key != WATERMARK}
    return column.alias(name, metadata=rest | _NO_TIME)
