"""Duplicates removed by id, within a time."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from headwater.errors import ApplicationInvalid
from headwater.streams.durations import Duration, microseconds
from headwater.streams.naming import col
from headwater.streams.state import WATERMARK
from headwater.streams.times import lateness_of, required_time


def unique(frame: DataFrame, id: str | Sequence[str], within: Duration) -> DataFrame:
    """The first event of every id; another one with that id within this time of it is left out.

    ::

        hw.unique(orders, "order_id", within="10 minutes")

    An id is remembered from its event on until the watermark is `within` past it. So of two events with one
    id whose times are no further apart than `within` never more than one comes through. One that is later
    than that comes through once the watermark has passed, and may be left out before. What is behind the
    watermark is late, and left out as well.
    """
    ids = [id] if isinstance(id, str) else list(id)
    subject = f"by {', '.join(ids)}"
    if missing := [name for name in ids if name not in frame.columns]:
        raise ApplicationInvalid(
            "remove duplicates",
            subject,
            f"there is no column {missing[0]!r} among {', '.join(frame.columns)}",
            "Name columns of the stream.",
        )
    time = required_time(frame, "remove duplicates", subject)
    length = microseconds(within, use="the time within which duplicates are removed")
    # Spark remembers an id for the lateness that the column of event time says; so it says another meanwhile.
    # Milliseconds, rounded up: rather longer than shorter.
    remembered = _with_lateness(frame, time, -(-length // 1000))
    return _with_lateness(remembered.dropDuplicatesWithinWatermark(ids), time, lateness_of(frame, time))


def _with_lateness(frame: DataFrame, time: str, milliseconds: int) -> DataFrame:
    marks = dict(frame.schema[time].metadata or {}) | {WATERMARK: milliseconds}
    return frame.withColumn(time, col(time).alias(time, metadata=marks))
