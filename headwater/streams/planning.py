"""From declarations to DataFrames: every function is called, and what it gives is checked, before a start."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from headwater.errors import ApplicationInvalid, HeadwaterError
from headwater.streams import realtime
from headwater.streams.columns import noted
from headwater.streams.declarations import Changes, Files, Format, Node, Output, Stream, Table, Topic, View
from headwater.streams.engine.fingerprint import fingerprint
from headwater.streams.faults import line_in, reason, sentence
from headwater.streams.graph import Graph, describe
from headwater.streams.late import WindowUse, windows_of
from headwater.streams.modes import Mode, choose_mode, prepared
from headwater.streams.naming import quoted, type_text
from headwater.streams.sinks.files import unwritable
from headwater.streams.sinks.topics import records
from headwater.streams.sinks.views import view_schema
from headwater.streams.state import HELD_BACK, WATERMARK
from headwater.streams.tables import changes_of, row_schema, view_of
from headwater.views.definitions import fault

# What Spark says of everything that would need all rows of a stream at once; it has no name for that error.
_WANTS_ALL = "Queries with streaming sources must be executed with writeStream"


@dataclass(frozen=True)
class Pipeline:
    """An output that a streaming query computes."""

    output: Output
    frame: DataFrame
    mode: Mode
    streams: tuple[Stream, ...]  # what it reads
    windows: tuple[WindowUse, ...]  # what its function groups by
    fingerprint: str
    schema: StructType  # of the output's rows


@dataclass(frozen=True)
class Recomputed:
    """A view that reads views and tables alone: it is computed as a whole whenever one of them has changed."""

    output: View
    inputs: tuple[str, ...]
    schema: StructType
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """All outputs of an application, each after those it reads."""

    pipelines: tuple[Pipeline, ...]
    recomputed: tuple[Recomputed, ...]
    streams: Mapping[str, Stream]  # by name, those that topics of the application have become among them


def plan(
    spark: SparkSession,
    graph: Graph,
    open_stream: Callable[[Stream, bool], DataFrame],
) -> Plan:
    """Calls every function on the DataFrames of its inputs.

    `open_stream` gives the DataFrame of a stream; it is told whether the query is to run in real time.
    """
    # One frame a stream: queries that compute several outputs read it once.
    opened = functools.cache(functools.partial(_open, open_stream))
    streams: dict[str, Stream] = {}
    view_schemas: dict[str, StructType] = {}
    pipelines: list[Pipeline] = []
    recomputed: list[Recomputed] = []
    for node in graph.nodes.values():
        if isinstance(node, Stream):
            streams[node.name] = node
            continue
        if isinstance(node, Table):
            pipeline = _plan_table(node, opened)
            streams[node.name] = pipeline.streams[0]
            view_schemas[node.name] = pipeline.schema
            pipelines.append(pipeline)
            continue
        kinds = {name: graph.nodes[name] for name in node.inputs}
        if any(isinstance(source, View | Table) for source in kinds.values()):
            derived = _plan_recomputed(spark, node, kinds, view_schemas)
            view_schemas[node.name] = derived.schema
            recomputed.append(derived)
            continue
        quick = isinstance(node, Topic) and node.realtime
        read = tuple(streams[name] for name in node.inputs)
        frame = _call(node, {stream.name: opened(stream, quick) for stream in read})
        if isinstance(node, Topic) and node.realtime:
            realtime.check(node, frame)
        frame = prepared(frame)
        _check_columns(node, frame.schema)
        _check_kept(node, frame)
        mode = _mode(node, frame)
        pipelines.append(
            Pipeline(
                node,
                frame,
                mode,
                read,
                windows_of(frame),
                fingerprint(frame, node.version, _extra(node, read)),
                frame.schema,
            )
        )
        if isinstance(node, View):
            view_schemas[node.name] = frame.schema
        if isinstance(node, Topic):
            streams[node.name] = _as_stream(node, frame.schema, read)
    return Plan(tuple(pipelines), tuple(recomputed), streams)


def _open(open_stream: Callable[[Stream, bool], DataFrame], stream: Stream, quick: bool) -> DataFrame:
    try:
        return open_stream(stream, quick)
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("DATATYPE_MISMATCH"):
            raise
        raise ApplicationInvalid(
            "read",
            f"the {'table' if isinstance(stream, Changes) else 'stream'} {stream.name}",
            sentence(error),
            "Give the column a type that its values can be read as: keys of maps are strings.",
        ) from error


def _call(node: Output, inputs: Mapping[str, DataFrame]) -> DataFrame:
    subject = describe(node.function)
    try:
        frame: Any = node.function(**inputs)
    except HeadwaterError as error:  # of a window, a join: it does not know in whose function it stands
        raise _within(error, subject) from error
    except PySparkException as error:
        line = line_in(error, _file_of(node))
        if _WANTS_ALL in str(error):
            raise ApplicationInvalid(
                "run",
                subject,
                f"it asks for the rows of a stream while it is called{f' (line {line})' if line else ''}, "
                "and a stream has no end",
                "Leave out count(), collect(), show(), cache() and the like: return a DataFrame, of "
                "groupBy().count() for example, which is brought up to date with every batch.",
            ) from error
        raise ApplicationInvalid("run", subject, _spark_reason(error, inputs)) from error
    except Py4JNetworkError:  # Java has ended, which is not the function's fault
        raise
    except Exception as error:
        raise ApplicationInvalid(
            "run", subject, reason(error, _file_of(node)), "Correct the function."
        ) from error
    if not isinstance(frame, DataFrame):
        raise ApplicationInvalid(
            "run", subject, f"it returned {type(frame).__name__} and not a DataFrame", "Return the DataFrame."
        )
    return frame


def _file_of(node: Output) -> str:
    return str(getattr(getattr(node.function, "__code__", None), "co_filename", ""))


def _within(error: HeadwaterError, function: str) -> HeadwaterError:
    return type(error)(error.operation, f"{error.subject} in {function}", error.cause, error.next_step)


def _spark_reason(error: PySparkException, inputs: Mapping[str, DataFrame]) -> str:
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    has = "; ".join(f"{name} has {', '.join(frame.columns)}" for name, frame in inputs.items())
    if condition.startswith("UNRESOLVED_COLUMN"):
        wanted = str(parameters.get("objectName", "?")).replace("`", "")
        return f"it wants the column {wanted!r}, and {has}"
    return f"{sentence(error)} ({has})"


def _check_columns(node: Output, schema: StructType) -> None:
    wanted = node.partition_by if isinstance(node, Files) else node.key
    names = schema.fieldNames()
    for column in wanted:
        if column not in names:
            raise ApplicationInvalid(
                "declare",
                describe(node.function),
                f"its key is {column!r}, and it returns the columns {', '.join(names)}",
                "Return that column, or name another as the key.",
            )
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ApplicationInvalid(
            "declare",
            describe(node.function),
            f"it returns more than one column named {', '.join(twice)}",
            "Rename or drop one of them.",
        )


def _check_kept(node: Output, frame: DataFrame) -> None:
    """Whether what the function returns can be written where it is to go."""
    cause = None
    if isinstance(node, View):
        cause = fault(view_schema(node.name, 1, frame.schema, node.key))
    elif isinstance(node, Topic):
        try:
            records(frame, node.key)
        except AnalysisException as error:
            cause = f"JSON cannot hold it: {sentence(error)}"
    else:
        cause = unwritable(frame.schema, node.partition_by)
    if cause is not None:
        step = "Cast, rename or drop the column."
        raise ApplicationInvalid("declare", describe(node.function), cause, step)


def _plan_table(table: Table, opened: Callable[[Stream, bool], DataFrame]) -> Pipeline:
    schema, stream, view = row_schema(table), changes_of(table), view_of(table)
    frame = opened(stream, False)
    extra = [*_extra(view, (stream,)), stream.format.options]
    definition = fingerprint(frame, table.version, extra, view.kind, noted(table))
    return Pipeline(view, frame, "append", (stream,), (), definition, schema)


def _mode(node: Output, frame: DataFrame) -> Mode:
    wanted = "final" if isinstance(node, Files) else node.emit
    return choose_mode(frame, wanted, subject=describe(node.function), complete=isinstance(node, View))


def _plan_recomputed(
    spark: SparkSession, node: Output, kinds: Mapping[str, Node], schemas: Mapping[str, StructType]
) -> Recomputed:
    subject = describe(node.function)
    others = [source for source in kinds.values() if not isinstance(source, View | Table)]
    tables = [source for source in kinds.values() if isinstance(source, Table)]
    if others and tables:
        raise ApplicationInvalid(
            "wire",
            subject,
            f"it reads the {others[0].kind} {others[0].name!r} together with the table {tables[0].name!r}",
            "Joins of streams and tables come with hw.enrich in a later version. Until then let a view compute "
            "what you need of the stream, and another view join that one with the table.",
        )
    if others or not isinstance(node, View):
        what = f"it reads {others[0].name!r} as well" if others else f"it is a {node.kind}"
        read = f"table {tables[0].name!r}" if tables else "view"
        raise ApplicationInvalid(
            "wire",
            subject,
            f"a {read} is read by views alone, and {what}",
            "Read the table's topic as a stream."
            if tables
            else "Read the changelog topic of the view as a stream.",
        )
    frame = _call(node, {name: spark.createDataFrame([], schemas[name]) for name in kinds})
    _check_columns(node, frame.schema)
    _check_kept(node, frame)
    return Recomputed(node, node.inputs, frame.schema, fingerprint(frame, node.version, _extra(node)))


def _extra(node: Output, read: tuple[Stream, ...] = ()) -> list[object]:
    """What belongs to a definition and is not in the plan."""
    key = node.partition_by if isinstance(node, Files) else node.key
    return [node.kind, *key, *((stream.topic, stream.format.name, stream.schema) for stream in read)]


def _as_stream(node: Topic, schema: StructType, read: tuple[Stream, ...]) -> Stream:
    """A topic of the application, as those see it who read it further down."""
    fields = ", ".join(f"{quoted(field.name)} {type_text(field.dataType)}" for field in schema.fields)
    times = [
        field.name
        for field in schema.fields
        if isinstance(field.dataType, TimestampType) and WATERMARK in (field.metadata or {})
    ]
    return Stream(
        name=node.name,
        topic=node.topic,
        schema=fields,
        format=Format("json"),
        time=times[0] if times else None,
        lateness=_lateness(schema[times[0]], read) if times else 0,
        partitions=node.partitions,
    )


def _lateness(time: StructField, read: tuple[Stream, ...]) -> int:
    """How far behind its newest row a topic has others, whose times are in this column.

    A pair comes with the later of its two, and who finds no partner when none can come any more: behind others
    whose times are newer by the range of the join.
    """
    marks = time.metadata or {}
    lateness = max(1000 * int(marks[WATERMARK]), *(stream.lateness for stream in read))
    return lateness + int(marks.get(HELD_BACK, 0))
