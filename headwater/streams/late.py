"""Which events came too late for an output: those whose windows had all ended when their batch began.

Spark drops them and counts what it dropped. Which events they were follows from the windows that the function
groups by, whoever made them, and from the watermark that the batch ran with. The windows are found in the plan:
what leads from an event time to the column that Spark compares with the watermark is computed for one moment,
and the windows around that moment say how long they all are, and how far apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.state import SESSION_WINDOW, elements, position, ways_into_state

# What a window with gaps says of itself besides: how many microseconds lie between the beginnings of two.
EVERY = "headwater.every"

# Where event time stands before the first event for Spark: older ones are late from the beginning.
FIRST_WATERMARK = datetime.fromtimestamp(0, UTC)

_MOMENT = 1_767_225_600_000_000  # in microseconds, 2026-01-01: any one would do


@dataclass(frozen=True)
class WindowUse:
    """Windows of `size` that begin `every` so often, all in microseconds; a session has its gap as `size`.

    One of them begins at `offset`. A size of nothing stands for state that looks at the time itself: joins,
    duplicates, the continuous window.
    """

    size: int
    every: int = 0
    offset: int = 0


def windows_of(frame: DataFrame) -> tuple[WindowUse, ...]:
    """By which windows the rows of a function, which has been through `modes.prepared`, are late; none: never.

    A session whose gap differs between events counts as state that looks at the time itself.
    """
    uses = [_use(frame, plan, column) for plan, column in ways_into_state(frame)]
    return tuple(dict.fromkeys(uses))


def _use(frame: DataFrame, plan: Any, column: int) -> WindowUse:
    metadata = plan.output().apply(column).metadata()
    every = int(metadata.getLong(EVERY)) if metadata.contains(EVERY) else None
    moment = (
        _MOMENT if every is None else _MOMENT - _MOMENT % every
    )  # a window with gaps begins at its multiples
    try:
        found = _Tracing(frame.sparkSession._jvm, moment).values(plan, column)
    except (_Untraceable, Py4JError, PySparkException):
        return WindowUse(0)
    windows = sorted((each.getLong(0), each.getLong(1)) for each in found if hasattr(each, "getLong"))
    if not windows:
        return WindowUse(0)
    start, end = windows[0]
    if metadata.contains(SESSION_WINDOW):
        return WindowUse(end - start)
    if every is None:
        every = windows[1][0] - start if len(windows) > 1 else end - start
    return WindowUse(end - start, every, start % every)


class _Untraceable(Exception):
    """A column depends on more than the event time."""


class _Tracing:
    """What becomes of an event of one moment on its way through a plan, computed as Spark does."""

    def __init__(self, jvm: Any, moment: int) -> None:
        self._jvm, self._moment = jvm, moment
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions

    def values(self, plan: Any, column: int) -> list[Any]:
        """What is in a column of the plan: several values when an event becomes several rows."""
        name, children = plan.nodeName(), elements(plan.children())
        attribute = plan.output().apply(column)
        if name == "EventTimeWatermark" and attribute.exprId().equals(plan.eventTime().exprId()):
            return [self._moment]
        if name == "Project":
            return self._computed(plan.projectList().apply(column), children[0])
        if name == "Expand":
            rows = elements(plan.projections())
            return [value for row in rows for value in self._computed(row.apply(column), children[0])]
        if name == "Union":
            return [value for child in children for value in self.values(child, column)]
        for child in children:
            below = position(child.output(), attribute)
            if below is not None:
                return self.values(child, below)
        raise _Untraceable

    def _computed(self, expression: Any, child: Any) -> list[Any]:
        output = child.output()
        columns = sorted({self._column(output, each) for each in elements(expression.references().toSeq())})
        bound = self._bound(expression, output)
        found = []
        for values in product(*(self.values(child, column) for column in columns)):
            row = self._jvm.java.util.ArrayList([None] * output.size())
            for column, value in zip(columns, values, strict=True):
                row.set(column, value)
            found.append(bound.eval(self._expressions.GenericInternalRow(row.toArray())))
        return found

    def _column(self, output: Any, attribute: Any) -> int:
        found = position(output, attribute)
        if found is None:
            raise _Untraceable
        return found

    def _bound(self, expression: Any, output: Any) -> Any:
        inputs = getattr(self._expressions, "package$AttributeSeq")(output)
        return self._expressions.BindReferences.bindReference(expression, inputs, False)


def is_late(time: Column, watermark: datetime, windows: Sequence[WindowUse]) -> Column:
    """Whether Spark drops an event with this time in a batch with this watermark.

    An event is late when the last of its windows has ended by then; without a window, when its own time has
    come by then. What lies in the gap between two windows is in neither, and never late. Of several states in one
    function the first to meet the event decides; where it meets several at once, the one without windows.
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
    past = F.pmod(micros - F.lit(window.offset), F.lit(window.every))
    return F.when(past < F.lit(window.size), micros - past + F.lit(window.size))
