# mypy: disable-error-code="import-not-found"
"""Spark's Kafka connector in one SparkSession: batches and streams, told over standard input.

Arguments: the broker's address and the connector's jars, with commas between. Records are in JSON as for the
other drivers; an offset of a partition is ``{"0": 5}``.
"""

import json
import os
import sys
import traceback
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from tests.clients.drivers.serving import Json, decode, encode

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
OUTGOING = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)


class Spark:
    """The session and what it is asked for."""

    def __init__(self, bootstrap: str, jars: str) -> None:
        self.bootstrap = bootstrap
        self.session = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.log.level", "WARN")
            .getOrCreate()
        )

    def hello(self) -> str:
        return f"spark {self.session.version}"

    def read(self, topic: str, options: dict[str, str]) -> list[Json]:
        """A batch of what the topic holds."""
        reader = self.session.read.format("kafka").options(**self._source(topic, options))
        return [_record(row) for row in reader.load().collect()]

    def write(self, topic: str, records: list[Json], options: dict[str, str]) -> None:
        """A batch written to the topic."""
        rows = [
            (
                one["p"],
                decode(one["k"]),
                decode(one["v"]),
                [(name, decode(value)) for name, value in one["h"]] or None,
            )
            for one in records
        ]
        frame = self.session.createDataFrame(rows, OUTGOING)
        target = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": topic,
            "includeHeaders": "true",
            **options,
        }
        frame.write.format("kafka").options(**target).save()

    def stream_to_files(
        self, topic: str, folder: str, checkpoint: str, options: dict[str, str]
    ) -> list[Json]:
        """A stream of all there is now, into files; all that the files then hold."""
        frame = self._stream(topic, options)
        query = (
            frame.writeStream.format("parquet")
            .option("path", folder)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [_record(row) for row in self.session.read.schema(frame.schema).parquet(folder).collect()]

    def stream_to_topic(self, topic: str, target: str, checkpoint: str, options: dict[str, str]) -> None:
        """A stream of all there is now, with values in capitals, into another topic."""
        frame = self._stream(topic, options)
        changed = frame.select(
            "key", F.upper(F.col("value").cast("string")).alias("value"), "headers", "partition"
        )
        query = (
            changed.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", target)
            .option("includeHeaders", "true")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def running_counts(self, topic: str, checkpoint: str, expected: dict[str, int]) -> dict[str, int]:
        """A stream of micro-batches that counts values until they are as expected, or two minutes pass."""
        counts: dict[str, int] = {}

        def keep(batch: DataFrame, _: int) -> None:
            counts.update({row["value"]: row["count"] for row in batch.collect()})

        values = self._stream(topic, {}).select(F.col("value").cast("string").alias("value"))
        query = (
            values.groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        for _ in range(1200):
            if counts == expected or query.awaitTermination(0.1):
                break
        query.stop()
        return counts

    def _stream(self, topic: str, options: dict[str, str]) -> Any:
        source = {"startingOffsets": "earliest", **self._source(topic, options)}
        return self.session.readStream.format("kafka").options(**source).load()

    def _source(self, topic: str, options: dict[str, str]) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topic,
            "includeHeaders": "true",
            **options,
        }


def _record(row: Any) -> Json:
    return {
        "topic": row["topic"],
        "p": row["partition"],
        "o": row["offset"],
        "t": round(row["timestamp"].timestamp() * 1000),
        "k": encode(row["key"]),
        "v": encode(row["value"]),
        "h": [[one["key"], encode(one["value"])] for one in row["headers"] or ()],
    }


def main() -> None:
    """Answer commands; Spark's own output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = Spark(sys.argv[2], sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer: Json = {"ok": getattr(spark, command.pop("do"))(**command)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": type(error).__name__, "message": str(error)[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.session.stop()


if __name__ == "__main__":
    main()
