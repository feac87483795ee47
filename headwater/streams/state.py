"""Where rows meet state in the plan of a function, and by which column Spark tells there whether they are late.

Spark drops a row before an operator with state when its event time, or the end of the window that stands for it, is
at or before the watermark. A row that has passed its first operator with state passes the ones above it as well.
"""

from typing import Any

from pyspark.sql import DataFrame

# How Spark marks an event time, with its delay, and a window made of it.
WATERMARK = "spark.watermarkDelayMs"
TIME_WINDOW, SESSION_WINDOW = "spark.timeWindow", "spark.sessionWindow"
# What an event time says of itself behind a join: by how many microseconds the join holds rows back at most.
HELD_BACK = "headwater.held_back"

_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark",
}


def ways_into_state(frame: DataFrame) -> list[tuple[Any, int]]:
    """The plans below the lowest operators with state, and the number of each one's column of event time."""
    return _ways(frame._jdf.queryExecution().analyzed())


def elements(sequence: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [sequence.apply(number) for number in range(sequence.size())]


def position(output: Any, attribute: Any) -> int | None:
    """Which column of an operator's output this is."""
    for number, column in enumerate(elements(output)):
        if column.exprId().equals(attribute.exprId()):
            return number
    return None


def _ways(plan: Any) -> list[tuple[Any, int]]:
    children = elements(plan.children())
    lower = [way for child in children for way in _ways(child)]
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
        time = None if key is None else position(below.output(), plan.groupingExpressions().apply(key))
    return [] if time is None else [(below, time)]


def _event_time(expressions: Any) -> int | None:
    """The number of the expression that is marked as an event time, the last such one: windows come last."""
    found = None
    for number, expression in enumerate(elements(expressions)):
        if expression.getClass().getSimpleName() == "AttributeReference" and expression.metadata().contains(
            WATERMARK
        ):
            found = number
    return found
