"""How the values of a stream become columns: JSON, Avro, Protobuf, Debezium's envelope, or bytes as they are.

Whatever the format, what comes out has the columns ``value`` (a struct of the stream's columns, null when
there is none) and ``problem`` (why the value does not parse, null when it does), beside those of the log.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Stream
from headwater.streams.sources.topic_read import PROBLEM

# Opens the topic: with a schema, values are JSON and are decoded on the way; without, they are bytes.
Open = Callable[[StructType | None], DataFrame]


def value_schema(stream: Stream) -> StructType:
    """The schema of the columns that a stream's values become."""
    if stream.format.name == "raw":
        return parsed("value binary")
    if stream.format.name == "json":
        return parsed(stream.schema)
    raise ApplicationInvalid("read", f"the stream {stream.name}", f"{stream.format.name} is not there yet")


def parsed(ddl: str) -> StructType:
    """A schema written as DDL; raises what Spark raises."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def decode(spark: SparkSession, stream: Stream, schema: StructType, open: Open) -> DataFrame:
    """The topic with its values decoded."""
    if stream.format.name == "raw":
        return (
            open(None)
            .withColumn("value", F.when(F.col("value").isNotNull(), F.struct("value")))
            .withColumn(PROBLEM, F.lit(None).cast("string"))
        )
    return open(schema)
