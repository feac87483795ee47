"""A stream in memory that a test fills: Spark's own, reached in the JVM."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.streams.testing.rows import Row, arrow_table


class MemoryStream:
    """A source of one partition, so that rows keep the order in which they were added."""

    def __init__(self, spark: SparkSession, schema: StructType, subject: str) -> None:
        self._spark, self._schema, self._subject = spark, schema, subject
        jvm: Any = spark._jvm
        self._jvm = jvm
        encoder = _scala_object(jvm.org.apache.spark.sql.catalyst.encoders, "ExpressionEncoder").apply(
            spark._jsparkSession.parseDataType(schema.json())
        )
        streams = _scala_object(jvm.org.apache.spark.sql.execution.streaming.runtime, "MemoryStream")
        self._stream = streams.apply(spark._jsparkSession, 1, encoder)
        self.frame = DataFrame(self._stream.toDF(), spark)

    def prepare(self, batches: Sequence[Sequence[Row]]) -> list[Any]:
        """The rows of each batch in the JVM, to be added one by one: one way there for all of them."""
        rows = [row for batch in batches for row in batch]
        frame = self._spark.createDataFrame(arrow_table(rows, self._schema, self._subject), self._schema)
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        everything = converters.asScala(frame._jdf.collectAsList()).toSeq()
        prepared, start = [], 0
        for batch in batches:
            prepared.append(everything.slice(start, start + len(batch)))
            start += len(batch)
        return prepared

    def add(self, rows: Any) -> None:
        """Adds what `prepare` gave."""
        self._stream.addData(rows)


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")
