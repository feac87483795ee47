"""The continuous window: every event with what came before it."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headwater.errors import ApplicationInvalid
from headwater.streams.durations import Duration, microseconds
from headwater.streams.joins import interval_of
from headwater.streams.naming import col
from headwater.streams.times import required_time, without_time

_EVENT, _COPIES = "_headwater_event_", "_headwater_copies"


def sliding(
    frame: DataFrame, size: Duration, by: str | Sequence[str], time: str | None = None, **aggregates: Column
) -> DataFrame:
    """Every event, with aggregates over the events of its key from `size` before it up to its own time.

    ::

        hw.sliding(trades, "10 seconds", by="symbol", average=F.avg("price"), trades=F.count("*"))

    Both ends belong to it, as with RANGE BETWEEN INTERVAL size PRECEDING AND CURRENT ROW: events of the
    same moment count for each other. An event is shown at once, and again when one that came late changes
    its aggregates; with emit="final" it is shown once, when its time is `size` and the lateness behind. The
    work grows with the number of events within `size` for each key.
    """
    keys = [by] if isinstance(by, str) else list(by)
    subject = f"a sliding window by {', '.join(keys)}"
    _check(frame, keys, aggregates, subject)
    moment = required_time(frame, "compute", subject)
    if time is not None and time != moment:
        raise ApplicationInvalid(
            "compute", subject, f"its event time is {moment!r}, not {time!r}", "Set it with hw.event_time."
        )
    length = interval_of(microseconds(size, use="the size of a window"))

    # The stream joined with itself, then gathered by event. Events that are equal in every column are one
    # group, and are as many as the event finds of itself. (An id for each would have to be a random one, and
    # a repeated batch would spread its rows otherwise over its tasks; writing each row once rests on that.)
    events = frame.select(*(col(name).alias(_EVENT + name) for name in frame.columns)).dropDuplicates()
    own = col(_EVENT + moment)
    condition = (col(moment) <= own) & (col(moment) >= own - length)
    for key in keys:
        condition = condition & col(_EVENT + key).eqNullSafe(col(key))  # nulls are a key as well
    pairs = without_time(events.join(frame, condition), moment)

    same = reduce(and_, (col(_EVENT + name).eqNullSafe(col(name)) for name in frame.columns))
    gathered = pairs.groupBy(*(col(_EVENT + name) for name in frame.columns)).agg(
        *(column.alias(name) for name, column in aggregates.items()), F.count_if(same).alias(_COPIES)
    )
    copied = gathered.withColumn(_COPIES, F.explode(F.sequence(F.lit(1), col(_COPIES))))
    return copied.select(
        *(col(_EVENT + name).alias(name) for name in frame.columns), *(col(name) for name in aggregates)
    )


def _check(frame: DataFrame, keys: list[str], aggregates: dict[str, Column], subject: str) -> None:
    columns = ", ".join(frame.columns)
    if missing := [key for key in keys if key not in frame.columns]:
        raise ApplicationInvalid(
            "compute",
            subject,
            f"there is no column {missing[0]!r} among {columns}",
            "Name columns of the stream.",
        )
    if maps := [field.name for field in frame.schema if _has_map(field.dataType)]:
        raise ApplicationInvalid(
            "compute",
            subject,
            f"the column {maps[0]!r} is or has a map, and Spark cannot tell whether two maps are equal",
            "Select the columns that are needed, or F.to_json of it.",
        )
    if not aggregates:
        raise ApplicationInvalid(
            "compute", subject, "there is nothing to compute", "Name an aggregate: average=F.avg('price')."
        )
    if clash := [name for name in aggregates if name in frame.columns]:
        raise ApplicationInvalid(
            "compute",
            subject,
            f"the aggregate {clash[0]!r} is called like a column of the stream",
            "Give it another name.",
        )


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))
