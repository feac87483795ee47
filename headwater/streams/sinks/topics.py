"""A batch into a topic: rows and the batch's mark in one transaction of each task.

In local mode the driver writes, in one place: the rows are in this machine's memory anyway, and its producer
stays open between batches. On a cluster each task writes its own rows, in a place of its own; its producer is
kept in the worker for the next batch.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType, StructType

from headwater.client.connection import Connection
from headwater.client.marked import PLACES, MarkedWriter, prepare_marks
from headwater.client.transactions import TransactionalWriter
from headwater.streams.engine.checkpoint import Checkpoint
from headwater.streams.naming import col
from headwater.streams.sinks.collecting import Collector

CHUNK = 50_000  # records handed to the producer at once

# As Kafka's Java client does it, so that a key goes to one partition whoever writes it.
PRODUCER = {"partitioner": "murmur2_random", "linger.ms": "2"}

# Spark's own way has milliseconds; who reads the topic is to have what the function gave.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def records(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows as records: ``key`` and ``value``. The value is a JSON object of all columns, nulls included.

    A key of one column is its text, as other producers would write it; of several, a JSON object.
    """
    return frame.select(_key(frame.schema, key).alias("key"), _json(frame.columns).alias("value"))


def _json(columns: list[str] | tuple[str, ...]) -> Column:
    return F.to_json(F.struct(*map(col, columns)), _JSON)


def _key(schema: StructType, key: tuple[str, ...]) -> Column:
    if not key:
        return F.lit(None).cast("string")
    if len(key) == 1 and isinstance(schema[key[0]].dataType, StringType | NumericType):
        return col(key[0]).cast("string")
    return _json(key)


class TopicSink:
    """Writes the batches of one query to one topic, each once."""

    def __init__(
        self,
        connection: Connection,
        query: str,
        topic: str,
        key: tuple[str, ...],
        checkpoint: Checkpoint,
        *,
        spread: bool,
    ) -> None:
        self._connection = connection
        self._name, self._topic, self._key, self._spread = query, topic, key, spread
        self._checkpoint = checkpoint
        self._writer: MarkedWriter | None = None
        self._places = PLACES
        self._collect = Collector()
        self.rows = 0

    def prepared(self, frame: DataFrame) -> DataFrame:
        """What the query has to compute: rows as records. A batch would have to plan them each time."""
        return records(frame, self._key)

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._checkpoint.sync(number)
        if self._spread:
            self._write_spread(rows, number)
        else:
            self._write_here(self._collect(rows, self._checkpoint.batch(number)), number)

    def close(self) -> None:
        """Lets go of the driver's producer."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @functools.cached_property
    def _query(self) -> str:
        """The name of the marks; a checkpoint that is made anew numbers other batches, with other marks."""
        return f"{self._name}.{self._checkpoint.identity()[:8]}"

    def _write_here(self, table: pa.Table, number: int) -> None:
        if self._writer is None:
            self._writer = MarkedWriter(self._connection, self._query, producing=PRODUCER)
        if self._writer.write(number, filling(self._topic, table.to_batches())):
            self.rows += table.num_rows

    def _write_spread(self, rows: DataFrame, number: int) -> None:
        places = rows.rdd.getNumPartitions()
        if places > self._places:
            prepare_marks(self._connection, places)
            self._places = places
        task = spread_task(self._connection, self._query, self._topic, places, number)
        written = rows.mapInArrow(task, "place int, written long").collect()
        self.rows += sum(row["written"] for row in written)


def filling(topic: str, batches: list[pa.RecordBatch]) -> Callable[[TransactionalWriter], None]:
    """Writes the records of Arrow batches, in order."""

    def fill(writer: TransactionalWriter) -> None:
        for batch in batches:
            for start in range(0, batch.num_rows, CHUNK):
                part = batch.slice(start, CHUNK)
                keys, values = part.column("key").to_pylist(), part.column("value").to_pylist()
                writer.write_many(
                    topic, [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
                )

    return fill


# Of this worker: opening a transactional producer costs far more than a transaction.
_writers: dict[tuple[Any, ...], MarkedWriter] = {}


def spread_task(
    connection: Connection, query: str, topic: str, places: int, number: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task runs: it writes its rows in the place of its partition."""
    bootstrap, properties = connection.bootstrap, dict(connection.properties)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        place, rows = context.partitionId(), list(batches)
        writer = _worker_writer(bootstrap, properties, query, place, places)
        wrote = writer.write(number, filling(topic, rows))
        count = sum(batch.num_rows for batch in rows) if wrote else 0
        yield pa.RecordBatch.from_pydict(
            {"place": pa.array([place], pa.int32()), "written": pa.array([count], pa.int64())}
        )

    return task


def _worker_writer(
    bootstrap: str, properties: Mapping[str, str], query: str, place: int, places: int
) -> MarkedWriter:
    identity = (bootstrap, tuple(sorted(properties.items())), query, place)
    writer = _writers.get(identity)
    if writer is None:
        connection = Connection(bootstrap, properties)
        writer = _writers[identity] = MarkedWriter(connection, query, place, places, producing=PRODUCER)
    writer.places = places
    return writer
