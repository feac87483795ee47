"""Topics as DataFrames: `open_stream` follows them, `open_range` reads between two positions."""

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.streams.sources import python_source as ours
from headwater.streams.sources.connector import connector_range, connector_stream
from headwater.streams.sources.json_rules import can_convert
from headwater.streams.sources.reading import fetcher_of
from headwater.streams.sources.spark_json import decode_in_spark
from headwater.streams.sources.topic_read import HEADERS, PROBLEM, Offsets, TopicRead

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}


def open_stream(
    spark: SparkSession, read: TopicRead, schema: StructType | None = None, *, check: bool = True
) -> DataFrame:
    """The topics as a stream of rows with the columns wanted.

    With a ``schema`` values are JSON: ``value`` is a struct, and the column ``problem`` says why a value does
    not parse (``value`` is null then). UnknownTopic when a topic is not there, unless ``check`` is off.
    """
    if check:
        fetcher_of(read).partitions(read.topics)
    if read.connector:
        return _decoded(connector_stream(spark, read), schema)
    _register(spark)
    inside = _decoded_inside(read, schema)
    stream = spark.readStream.format(ours.NAME).options(**_options(spark, read, inside)).load()
    return stream if inside is not None else _decoded(stream, schema)


def open_range(
    spark: SparkSession,
    read: TopicRead,
    start: Offsets | str,
    end: Offsets | str,
    schema: StructType | None = None,
) -> DataFrame:
    """The records from one position up to another, as a batch; positions as a query's progress has them."""
    if read.connector:
        return _decoded(connector_range(spark, read, _offsets(start), _offsets(end)), schema)
    _register(spark)
    inside = _decoded_inside(read, schema)
    options = _options(spark, read, inside)
    options |= {ours.START: json.dumps(_offsets(start)), ours.END: json.dumps(_offsets(end))}
    rows = spark.read.format(ours.NAME).options(**options).load()
    return rows if inside is not None else _decoded(rows, schema)


def _decoded_inside(read: TopicRead, schema: StructType | None) -> StructType | None:
    """The schema when our source decodes values by it; it leaves the types that it does not know to Spark."""
    return schema if schema is not None and "value" in read.columns and can_convert(schema) else None


def _decoded(raw: DataFrame, schema: StructType | None) -> DataFrame:
    return raw if schema is None or "value" not in raw.columns else decode_in_spark(raw, schema)


def output_schema(read: TopicRead, schema: StructType | None = None) -> StructType:
    """The columns that a read gives.

    >>> output_schema(TopicRead("k:9092", ("t",), columns=("value", "offset"))).simpleString()
    'struct<value:binary,offset:bigint>'
    """
    fields = [StructField(name, _TYPES[name]) for name in read.columns]
    if schema is not None and "value" in read.columns:
        fields = [StructField("value", schema) if each.name == "value" else each for each in fields]
        fields.append(StructField(PROBLEM, StringType()))
    return StructType(fields)


def _options(spark: SparkSession, read: TopicRead, schema: StructType | None) -> dict[str, str]:
    return {
        ours.READ: read.to_json(),
        ours.SCHEMA: output_schema(read, schema).json(),
        ours.TIME_ZONE: str(spark.conf.get("spark.sql.session.timeZone")),
    }


def _register(spark: SparkSession) -> None:
    if getattr(spark, "_headwater_source", False):
        return
    # Every query that starts writes to the environment of the source's one Python function. In the plain map that
    # Spark makes of a dict, two of them at once can leave a wrong size, and no task can read the plan from then on.
    context = spark.sparkContext
    plain = context.environment
    assert context._jvm is not None
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(plain)
    try:
        spark.dataSource.register(ours.HeadwaterSource)
    finally:
        context.environment = plain
    spark._headwater_source = True  # type: ignore[attr-defined]


def _offsets(offsets: Offsets | str) -> Offsets:
    read: Offsets = json.loads(offsets) if isinstance(offsets, str) else offsets
    return read
