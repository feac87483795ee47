"""Tables: a topic's records as changes, and the schema of the rows that they leave.

The query of a table only reads and decodes; which change of a key is the last one, and what it does to the view,
is the sink's (``sinks.tables``).
"""

from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from headwater.errors import ApplicationInvalid
from headwater.streams.columns import reading_notes
from headwater.streams.declarations import Changes, Format, Table, TableView
from headwater.streams.faults import sentence
from headwater.streams.formats.changes import ChangeReader
from headwater.streams.naming import type_text
from headwater.streams.settings import StreamSettings
from headwater.streams.sources.opening import open_range, open_stream
from headwater.streams.sources.spark_json import decode_in_spark
from headwater.streams.sources.topic_read import PROBLEM, Offsets, TopicRead
from headwater.streams.values import parsed
from headwater.views.types import arrow_type

# The columns of a change, before those of its row.
CHANGE, KEPT, PARTITION, OFFSET = "_change", "_kept", "_partition", "_offset"
OWN = (CHANGE, KEPT, PARTITION, OFFSET)

BATCH = 100_000  # records of a batch: its changes pass through the driver on their way to the store

_READ = "kind string, row string, kept array<string>, problem string"
_READ_TYPE = pa.struct(
    [
        ("kind", pa.string()),
        ("row", pa.string()),
        ("kept", pa.list_(pa.field("element", pa.string()))),
        ("problem", pa.string()),
    ]
)


def changes_of(table: Table) -> Changes:
    """The stream from which a table is filled.

    >>> changes_of(Table("users", "shop.users", ("id",), "id long")).topic
    'shop.users'
    """
    return Changes(
        name=table.name,
        topic=table.topic,
        schema=table.schema,
        format=table.format,
        key=table.key,
        max_rows=BATCH,
    )


def view_of(table: Table) -> TableView:
    """The view that holds a table. Its changes are in the table's own topic: it needs no other."""

    def unchanged(changes: DataFrame) -> DataFrame:
        return changes

    return TableView(table.name, unchanged, (), table.key, version=table.version, changelog=False)


def row_schema(table: Table | Changes) -> StructType:
    """The schema of the rows; refuses one that Spark cannot read, that no view can hold, or without the key."""
    subject = f"the table {table.name}"
    try:
        schema = parsed(table.schema)
    except PySparkException as error:
        raise ApplicationInvalid(
            "read the schema of",
            subject,
            sentence(error),
            "Write it as in CREATE TABLE: 'id long, name string, joined date'.",
        ) from error
    names = schema.fieldNames()
    for column in table.key:
        if column not in names:
            raise ApplicationInvalid(
                "declare",
                subject,
                f"its key is {column!r}, and its columns are {', '.join(names)}",
                "Add the column to the schema, or name another as the key.",
            )
    for field in schema.fields:
        if field.name in OWN:
            raise ApplicationInvalid(
                "declare",
                subject,
                f"a column cannot be called {field.name!r}: Headwater uses the name",
                "Leave the column out.",
            )
        try:
            arrow_type(type_text(field.dataType))
        except ValueError as error:
            raise ApplicationInvalid("declare", subject, str(error), "Declare another type.") from None
    return schema


def changes(
    spark: SparkSession,
    stream: Changes,
    settings: StreamSettings,
    *,
    metric: str,
    connector: bool = False,
) -> DataFrame:
    """The changes as they come: kind, place in the log, and the row. Records with a problem are left out."""
    read = _read(stream, settings, connector)
    decoded = _decoded(open_stream(spark, read, check=False), stream)
    counted = decoded.observe(
        metric,
        F.count_if(F.col(PROBLEM).isNotNull()).alias("dead"),
        F.count_if(F.col(CHANGE) == "delete").alias("tombstones"),
        F.count("*").alias("rows"),
        F.lit(None).cast("long").alias("newest"),
    )
    good = counted.where(F.col(PROBLEM).isNull() & F.col(CHANGE).isNotNull())
    place = (F.col("partition").alias(PARTITION), F.col("offset").alias(OFFSET))
    return good.select(CHANGE, KEPT, *place, "value.*")


def problems(
    spark: SparkSession, stream: Changes, settings: StreamSettings, start: Offsets, end: Offsets
) -> DataFrame:
    """Where the records with a problem lie between two positions: partition, offset, problem."""
    read = TopicRead(
        settings.bootstrap,
        (stream.topic,),
        properties=dict(settings.properties),
        on_gap="continue",
        columns=("key", "value", "partition", "offset"),
    )
    decoded = _decoded(open_range(spark, read, start, end), stream)
    return decoded.where(F.col(PROBLEM).isNotNull()).select("partition", "offset", PROBLEM)


def reader_of(schema: StructType, key: tuple[str, ...], format: Format) -> ChangeReader:
    """What reads the records of a table."""
    columns = {field.name: type_text(field.dataType) for field in schema.fields}
    said, notes = format.option("timestamps"), reading_notes(format)
    return ChangeReader(
        columns,
        key,
        format.name,  # type: ignore[arg-type]
        said if isinstance(said, str) else notes["units"] | dict(said or ()),
        format.option("decimals", "precise"),
        notes["digits"],
        "null" if notes["misfits"].get("null") else "refused",
    )


def _read(stream: Changes, settings: StreamSettings, connector: bool) -> TopicRead:
    return TopicRead(
        settings.bootstrap,
        (stream.topic,),
        properties=dict(settings.properties),
        start=stream.start,
        max_rows=stream.max_rows,
        on_gap=stream.on_gap,
        columns=("key", "value", "partition", "offset"),
        connector=connector,
    )


def _decoded(raw: DataFrame, stream: Changes) -> DataFrame:
    schema = row_schema(stream)
    read = partial(_read_all, reader_of(schema, stream.key, stream.format))

    @arrow_udf(_READ)  # type: ignore[call-overload, untyped-decorator]
    def as_changes(keys: pa.Array, values: pa.Array) -> pa.Array:
        return read(keys, values)

    found = raw.withColumn("_read", as_changes("key", "value")).withColumn("value", F.col("_read.row"))
    decoded = decode_in_spark(found, schema)
    return (
        decoded.withColumn(PROBLEM, F.coalesce(F.col("_read.problem"), F.col(PROBLEM)))
        .withColumn(CHANGE, F.col("_read.kind"))
        .withColumn(KEPT, F.col("_read.kept"))
        .drop("_read")
    )


def _read_all(reader: ChangeReader, keys: pa.Array, values: pa.Array) -> pa.Array:
    kinds: list[str | None] = []
    rows: list[str | None] = []
    kept: list[tuple[str, ...] | None] = []
    wrong: list[str | None] = []
    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        change = problem = None
        try:
            change = reader.read(key, value)
        except ValueError as error:
            problem = str(error)
        kinds.append(change.kind if change is not None else None)
        rows.append(change.row if change is not None else None)
        kept.append(change.kept or None if change is not None else None)
        wrong.append(problem)
    arrays = [
        pa.array(column, field.type)
        for column, field in zip((kinds, rows, kept, wrong), _READ_TYPE, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(_READ_TYPE))
