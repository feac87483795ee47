"""A stream's DataFrame: its topic read, its values decoded, what does not parse left out and counted.

A value that does not parse, or that lacks the event time, is not an event: it has a problem. The query counts
those (see `dead_metric`), and the side path of ``aside`` writes them to ``<stream>.dead``. A record without a
value says that its key was deleted; it is no event either, and is counted as a tombstone.
"""

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from headwater.errors import ApplicationInvalid
from headwater.streams import tables
from headwater.streams.declarations import LOG_TIME, PROCESSING_TIME, Changes, Stream
from headwater.streams.faults import sentence
from headwater.streams.required import lacking
from headwater.streams.settings import StreamSettings
from headwater.streams.sources.json_rules import can_convert
from headwater.streams.sources.opening import open_range, open_stream
from headwater.streams.sources.spark_json import decode_with_reasons
from headwater.streams.sources.topic_read import PROBLEM, Offsets, TopicRead
from headwater.streams.times import watermarked, with_ticks_among
from headwater.streams.values import declared, decode, value_schema
from headwater.views.types import FIRST_MICROS, LAST_MICROS

META = {
    "key": "_key",
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": LOG_TIME,
    "headers": "_headers",
}


TICK = "_tick"


def dead_metric(stream: str) -> str:
    """The name under which a query counts the problems of a stream."""
    return f"headwater.dead.{stream}"


def schema_of(stream: Stream) -> StructType:
    """The schema of a stream's values; refuses one that Spark cannot read, or without its event time."""
    subject = f"the stream {stream.name}"
    try:
        schema = value_schema(stream)
    except PySparkException as error:
        raise ApplicationInvalid(
            "read the schema of",
            subject,
            sentence(error),
            "Write it as in CREATE TABLE: 'user_id long, page string, at timestamp'.",
        ) from error
    if stream.time is not None and stream.time not in (LOG_TIME, PROCESSING_TIME):
        names = schema.fieldNames()
        if stream.time not in names:
            raise ApplicationInvalid(
                "declare",
                subject,
                f"time is the column {stream.time!r}, and its columns are {', '.join(names)}",
                "Name the column of the event time, LOG_TIME or PROCESSING_TIME.",
            )
        kind = schema[stream.time].dataType
        if not isinstance(kind, TimestampType):  # a timestamp_ntz is no moment: Spark has no watermark of it
            raise ApplicationInvalid(
                "declare",
                subject,
                f"its event time {stream.time!r} is of type {kind.simpleString()}",
                f"Declare it as '{stream.time} timestamp'.",
            )
    return schema


def read_of(
    stream: Stream, settings: StreamSettings, *, connector: bool = False, ticks: str | None = None
) -> TopicRead:
    """How a stream's topic is read, with its topic of ticks if it has one."""
    columns: tuple[str, ...] = ("value",)
    if stream.metadata:
        columns += tuple(META)
    elif stream.time == LOG_TIME:
        columns += ("timestamp",)
    if ticks is not None and "topic" not in columns:
        columns += ("topic",)
    return TopicRead(
        settings.bootstrap,
        (stream.topic,) if ticks is None else (stream.topic, ticks),
        properties=dict(settings.properties),
        start=stream.start,
        # A query asks its sources one after the other: a silent one must not keep it from the others.
        wait_seconds=0.4 if ticks is None else 0.05,
        max_rows=stream.max_rows,
        on_gap=stream.on_gap,
        columns=columns,
        connector=connector,
    )


def events(
    spark: SparkSession,
    stream: Stream,
    settings: StreamSettings,
    *,
    connector: bool = False,
    realtime: bool = False,
    ticks: str | None = None,
) -> DataFrame:
    """The stream as its functions see it, with its watermark, which the topic `ticks` may move as well.

    The changes of a table are as its sink sees them.
    """
    if isinstance(stream, Changes):
        metric = dead_metric(stream.name)
        return tables.changes(spark, stream, settings, metric=metric, connector=connector)
    schema = schema_of(stream)
    read = read_of(stream, settings, connector=connector, ticks=ticks)
    is_tick = F.lit(False) if ticks is None else F.col("topic") == F.lit(ticks)
    decoded = _checked(
        decode(stream, schema, lambda inner: open_stream(spark, read, inner, check=False)), stream, is_tick
    )
    problem, value = F.col(PROBLEM), F.col("value")
    counted = decoded
    if not realtime:  # which has no metrics of one's own; the engine looks for what is dead by itself
        newest = F.lit(None) if stream.time is None else F.unix_micros(_time_column(stream))
        counted = decoded.observe(
            dead_metric(stream.name),
            F.count_if(problem.isNotNull()).alias("dead"),
            F.count_if(problem.isNull() & value.isNull()).alias("tombstones"),
            F.count_if(~is_tick).alias("rows"),
            F.max(newest.cast("long")).alias("newest"),
        )
    good = counted.where(problem.isNull() & value.isNotNull())
    if stream.time is None:
        return good.select(*_columns(stream))
    lateness = f"{stream.lateness} microseconds"
    if ticks is None:
        return watermarked(good.select(*_columns(stream)), stream.time, lateness)
    return with_ticks_among(good.select(*_columns(stream), is_tick.alias(TICK)), TICK, stream.time, lateness)


def problems(
    spark: SparkSession, stream: Stream, settings: StreamSettings, start: Offsets, end: Offsets
) -> DataFrame:
    """Where the values with a problem lie between two positions: partition, offset, problem."""
    if isinstance(stream, Changes):
        return tables.problems(spark, stream, settings, start, end)
    schema = schema_of(stream)
    read = TopicRead(
        settings.bootstrap,
        (stream.topic,),
        properties=dict(settings.properties),
        on_gap="continue",  # what is gone cannot be set aside any more
        columns=("value", "partition", "offset"),
    )

    def open(inner: StructType | None) -> DataFrame:
        if inner is None or can_convert(inner):  # then our source knows the reason itself
            return open_range(spark, read, start, end, inner)
        return decode_with_reasons(open_range(spark, read, start, end), inner)

    decoded = _checked(decode(stream, schema, open), stream, F.lit(False))
    return decoded.where(F.col(PROBLEM).isNotNull()).select("partition", "offset", PROBLEM)


def times(
    spark: SparkSession, stream: Stream, settings: StreamSettings, start: Offsets, end: Offsets
) -> DataFrame:
    """The event times of the events between two positions: partition, offset, and the time's own column."""
    schema = schema_of(stream)
    read = TopicRead(
        settings.bootstrap,
        (stream.topic,),
        properties=dict(settings.properties),
        on_gap="continue",
        columns=("value", "partition", "offset", "timestamp"),
    )
    decoded = _checked(
        decode(stream, schema, lambda inner: open_range(spark, read, start, end, inner)), stream, F.lit(False)
    )
    assert stream.time is not None
    good = decoded.where(F.col(PROBLEM).isNull() & F.col("value").isNotNull())
    return good.select("partition", "offset", _time_column(stream).alias(stream.time))


def _time_column(stream: Stream) -> Column:
    if stream.time == LOG_TIME:
        return F.col("timestamp")
    if stream.time == PROCESSING_TIME:
        return F.current_timestamp()
    return F.col("value").getField(str(stream.time))


def _checked(decoded: DataFrame, stream: Stream, is_tick: Column) -> DataFrame:
    """With a problem for each value that lacks what it must have, or whose event time is none."""
    if stream.format.name == "json":
        missing = lacking(F.col("value"), declared(stream.schema))
        if missing is not None:  # a tick has an event time and nothing else
            decoded = decoded.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), F.when(~is_tick, missing)))
    return _with_time_checked(decoded, stream)


def _with_time_checked(decoded: DataFrame, stream: Stream) -> DataFrame:
    if stream.time is None or stream.time in (LOG_TIME, PROCESSING_TIME):
        return decoded
    time = F.col("value").getField(stream.time)
    missing = F.col("value").isNotNull() & time.isNull()
    # One would end all windows and be late for none; mostly it is milliseconds that were written as a number.
    outside = ~F.unix_micros(time).between(F.lit(FIRST_MICROS), F.lit(LAST_MICROS))
    reason = F.when(missing, F.lit(f"the event time {stream.time!r} is missing")).when(
        outside,
        F.lit(f"the event time {stream.time!r} is not within the years 1 to 9999 (a number counts seconds)"),
    )
    return decoded.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), reason))


def _columns(stream: Stream) -> list[Column]:
    columns = [F.col("value.*")]
    if stream.metadata:
        columns += [F.col(name).alias(shown) for name, shown in META.items()]
    elif stream.time == LOG_TIME:
        columns.append(F.col("timestamp").alias(LOG_TIME))
    if stream.time == PROCESSING_TIME:
        columns.append(F.current_timestamp().alias(PROCESSING_TIME))
    return columns
