"""How the values of a stream become columns: JSON, Avro, Protobuf, Debezium's envelope, or bytes as they are.

Whatever the format, what comes out has the columns ``value`` (a struct of the stream's columns, null when
there is none) and ``problem`` (why the value does not parse, null when it does), beside those of the log.
"""

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from headwater.errors import HeadwaterError
from headwater.streams.declarations import Format, Stream
from headwater.streams.formats import avro, debezium, protobuf
from headwater.streams.required import nullable
from headwater.streams.sources.spark_json import decode_in_spark
from headwater.streams.sources.topic_read import PROBLEM

# Opens the topic: with a schema, values are JSON and are decoded on the way; without, they are bytes.
Open = Callable[[StructType | None], DataFrame]

_TEXT = pa.struct([("text", pa.string()), ("problem", pa.string())])


def value_schema(stream: Stream) -> StructType:
    """The schema of the columns that a stream's values become."""
    kind = stream.format
    if kind.name == "raw":
        return parsed("value binary")
    if stream.schema:
        return parsed(stream.schema)
    return parsed({"avro": avro.ddl, "protobuf": protobuf.ddl, "debezium": debezium.ddl}[kind.name](kind))


def parsed(ddl: str) -> StructType:
    """A schema written as DDL, in which everything may be null; raises what Spark raises."""
    return nullable(declared(ddl))


def declared(ddl: str) -> StructType:
    """The same with what it says of nulls: see `required`."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def decode(stream: Stream, schema: StructType, open: Open) -> DataFrame:
    """The topic with its values decoded."""
    kind = stream.format
    if kind.name == "raw":
        return (
            open(None)
            .withColumn("value", F.when(F.col("value").isNotNull(), F.struct("value")))
            .withColumn(PROBLEM, F.lit(None).cast("string"))
        )
    if kind.name == "debezium":
        return debezium.unwrapped(open(debezium.both_shapes(schema)), schema)
    if kind.name in ("avro", "protobuf"):
        return _by_function(open(None), schema, decoder(kind))
    return open(schema)


def decoder(kind: Format) -> Callable[[bytes], Any]:
    """The function that decodes one value of a binary format, for the workers."""
    if kind.name == "avro":
        avro.require()
        return partial(avro.decode, schema=kind.option("schema"), registry=kind.option("registry"))
    return partial(
        protobuf.decode,
        message=kind.option("message"),
        descriptors=kind.option("descriptors"),
        registry=kind.option("registry", False),
    )


def _by_function(raw: DataFrame, schema: StructType, function: Callable[[bytes], Any]) -> DataFrame:
    @arrow_udf("text string, problem string")  # type: ignore[call-overload, untyped-decorator]
    def as_json(values: pa.Array) -> pa.Array:
        return texts(values, function)

    read = raw.withColumn("_read", as_json("value")).withColumn("value", F.col("_read.text"))
    decoded = decode_in_spark(read, schema)
    return decoded.withColumn(PROBLEM, F.coalesce(F.col("_read.problem"), F.col(PROBLEM))).drop("_read")


def texts(values: pa.Array, function: Callable[[bytes], Any]) -> pa.Array:
    """Each value as JSON, or the reason why it cannot be read.

    >>> texts(pa.array([b"7", b"x", None]), int).to_pylist()[:2]
    [{'text': '7', 'problem': None}, {'text': None, 'problem': "invalid literal for int() with base 10: b'x'"}]
    """
    found: list[str | None] = []
    problems: list[str | None] = []
    for value in values.to_pylist():
        text = problem = None
        if value is not None:
            try:
                text = orjson.dumps(function(value), default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
            except HeadwaterError:
                raise
            except (ValueError, TypeError) as error:
                problem = str(error)
        found.append(text)
        problems.append(problem)
    return pa.StructArray.from_arrays(
        [pa.array(found, pa.string()), pa.array(problems, pa.string())], fields=list(_TEXT)
    )


def _plain(value: Any) -> Any:
    """What orjson does not know: decimals as text, bytes as base64, as Spark's JSON has them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
