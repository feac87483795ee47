"""Which rows a function's state no longer takes, because they come behind the watermark.

Spark drops a row before its state when the end of its window, or its time where there is no window, is at
or before the watermark of the batch before. So the function is applied to that one row, as a DataFrame that
does not stream, and what would reach its lowest stateful operators is looked at: the row is late when
something of it would, and all of that is behind the watermark.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from headwater.streams.declarations import Function
from headwater.streams.modes import with_keys_as_columns
from headwater.streams.testing.rows import plain_rows
from headwater.streams.windows import WATERMARK

_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark",
}


def is_dropped(function: Function, inputs: Mapping[str, DataFrame], watermark: datetime) -> bool:
    """Whether the row in `inputs`, which has one row in all, is late by this watermark."""
    frame = with_keys_as_columns(function(**inputs))
    kept = dropped = 0
    for below, time in _ways_into_state(frame._jdf.queryExecution().analyzed()):
        rows = plain_rows(_frame(frame, below).toArrow())
        for row in rows:
            moment = list(row.values())[time]
            end = moment["end"] if isinstance(moment, dict) else moment
            if end is not None and end <= watermark:
                dropped += 1
            else:
                kept += 1
    return dropped > 0 and kept == 0


def _ways_into_state(plan: Any) -> list[tuple[Any, int]]:
    """The plans below the lowest stateful operators, and the number of each one's column of event time."""
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    lower = [way for child in children for way in _ways_into_state(child)]
    if lower:
        return lower
    name = plan.nodeName()
    if name == "Join" and all(_event_time(child.output()) is not None for child in children):
        return [(child, _event_time(child.output())) for child in children]  # type: ignore[misc]
    if name not in _STATEFUL:
        return []
    below = children[0]
    time = _event_time(below.output())
    if name == "Aggregate":
        # The key counts, not the column it was made of; without a key of event time nothing is ever late.
        key = _event_time(plan.groupingExpressions())
        time = None if key is None else _position(below.output(), plan.groupingExpressions().apply(key))
    return [] if time is None else [(below, time)]


def _event_time(expressions: Any) -> int | None:
    """The number of the expression that is marked as an event time, the last such one: windows come last."""
    found = None
    for number in range(expressions.size()):
        expression = expressions.apply(number)
        if expression.getClass().getSimpleName() == "AttributeReference" and expression.metadata().contains(
            WATERMARK
        ):
            found = number
    return found


def _position(output: Any, attribute: Any) -> int | None:
    for number in range(output.size()):
        if output.apply(number).exprId().equals(attribute.exprId()):
            return number
    return None


def _frame(frame: DataFrame, plan: Any) -> DataFrame:
    jvm: Any = frame.sparkSession._jvm
    dataset = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
    return DataFrame(dataset.ofRows(frame.sparkSession._jsparkSession, plan), frame.sparkSession)
