"""The quick path: Spark's real-time mode, where a row is passed on by itself and waits for no batch.

It reads and writes through Spark's Kafka connector alone, keeps a slot for each of its tasks all the time, and
knows fewer operators. What it cannot do is said before anything starts. It writes each row at least once: after
a failure, what was read since the last checkpoint (``Topic.checkpoint``) is written again. While it makes one, all of
its tasks end and begin anew, and rows wait for a second or two: often is not better.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.errors import ApplicationInvalid, EngineMissing
from headwater.streams.declarations import Topic
from headwater.streams.graph import describe
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.topics import records
from headwater.streams.sources.connector import java_properties

GUARANTEE = "at least once"

# The operators of Spark's plan that real-time mode runs.
_ALLOWED = {
    "Project",
    "Filter",
    "EventTimeWatermark",
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "SubqueryAlias",
    "Generate",
    "Union",
    "Expand",
    "LocalRelation",
    "LogicalRDD",
    "StreamingRelation",
    "StreamingRelationV2",
    "StreamingDataSourceV2Relation",
    "DataSourceV2Relation",
}
_REFUSED = {
    "PythonUDF": "a Python function",
    "PythonUDAF": "a Python function",
    "SessionWindow": "a session window",
}


def check(output: Topic, frame: DataFrame) -> None:
    """Refuses a function that real-time mode cannot run, with the operator that it cannot."""
    plan = frame._jdf.queryExecution().analyzed()
    session = ["SessionWindow"] if "session_window" in plan.toString() else []
    for name in (*session, *_operators(plan)):
        if name == "Join" or name not in _ALLOWED:
            what = _REFUSED.get(name, f"the operator {name}")
            raise ApplicationInvalid(
                "run in real time",
                describe(output.function),
                f"it uses {what}, which Spark's real-time mode cannot run",
                "Leave realtime=True out: it then runs in micro-batches, exactly once.",
            )


def require_connector(jars: list[Any], output: Topic) -> None:
    """Refuses to start without the connector."""
    if not jars:
        raise EngineMissing(
            "run in real time",
            describe(output.function),
            "Spark's Kafka connector is not there",
            "Fetch it with `headwater jars`, or leave realtime=True out.",
        )


def slots(partitions_read: list[int], shuffle_partitions: int) -> int:
    """How many tasks run at once for ever: those of every stage of every such query, and some for the rest.

    >>> slots([2, 1], shuffle_partitions=2)
    9
    """
    return sum(read + shuffle_partitions for read in partitions_read) + 2


class RealtimeSink:
    """Where a real-time query writes: Spark does it, row by row, and counts nothing for us."""

    rows = 0

    def __init__(self, output: Topic, settings: StreamSettings) -> None:
        self._output, self._settings = output, settings

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """The query, ready to be named and started."""
        made = records(frame, self._output.key).writeStream.format("kafka")
        made = made.option("kafka.bootstrap.servers", self._settings.bootstrap)
        for key, value in java_properties(self._settings.properties).items():
            made = made.option(f"kafka.{key}", value)
        # Each row goes out by itself: what waits for more to come would be late.
        made = made.option("kafka.linger.ms", "0").option("kafka.acks", "all")
        made = made.option("topic", self._output.topic).outputMode("update")
        every = f"{self._output.checkpoint} microseconds"
        return made.trigger(realTime=every)  # type: ignore[no-any-return, call-overload]


def _operators(plan: Any) -> Iterator[str]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node.nodeName()
        expressions = node.expressions()
        for number in range(expressions.size()):
            yield from _refused_within(expressions.apply(number))
        children = node.children()
        waiting += [children.apply(number) for number in range(children.size())]


def _refused_within(expression: Any) -> Iterator[str]:
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        name = each.getClass().getSimpleName()
        if name in _REFUSED:
            yield name
        children = each.children()
        waiting += [children.apply(number) for number in range(children.size())]
