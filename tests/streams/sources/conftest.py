"""Both sources, and what fills topics for them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.streams.sources.opening import open_range, open_stream
from headwater.streams.sources.topic_read import COLUMNS, Offsets, TopicRead
from tests.support.servers import Headwater, Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

SECONDS = 60.0


@pytest.fixture(scope="session")
def embedded() -> Iterator[Headwater]:
    """A broker of ours whose compaction looks often."""
    with Headwater(arguments=["--set", "log.cleaner.backoff.ms=100"]) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The embedded broker; for tests that ask for it, Apache Kafka as well."""
    name = getattr(request, "param", "embedded")
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture
def writer(server: Server) -> "TopicWriter":
    return TopicWriter(server.bootstrap)


@pytest.fixture(params=[False, True], ids=["ours", "connector"])
def source(
    request: pytest.FixtureRequest, spark: "SparkSession", server: Server, tmp_path: Path
) -> Iterator["Source"]:
    with_source = Source(spark, server.bootstrap, request.param, tmp_path)
    yield with_source
    with_source.stop()


class TopicWriter:
    """Writes records that tests read, and waits until they are there."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Admin(Connection(bootstrap))

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        self.admin.create_topic(topic, partitions, configs=settings)

    def producer(self, **options: Any) -> Producer:
        quiet = {"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5}
        return Producer(quiet | {name.replace("_", "."): value for name, value in options.items()})

    def write(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        producer: Producer | None = None,
        **more: Any,
    ) -> None:
        producer = producer or self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """What retention does, at once."""
        (future,) = self.admin.client.delete_records([TopicPartition(topic, partition, offset)]).values()
        assert future.result(SECONDS).low_watermark == offset

    def visible(self, topic: str) -> int:
        """How many records a read_committed consumer of librdkafka sees."""
        options = {
            "bootstrap.servers": self.bootstrap, "group.id": "counter", "log_level": 0,
            "enable.partition.eof": True, "enable.auto.commit": False,
        }  # fmt: skip
        consumer, count = Consumer(options), 0
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error():
                break
            count += message is not None
        consumer.close()
        return count


@dataclass
class Source:
    """One of the two sources, reading from one server."""

    spark: "SparkSession"
    bootstrap: str
    connector: bool
    folder: Path
    batches: list[list[Any]] = field(default_factory=list)
    queries: "list[StreamingQuery]" = field(default_factory=list)

    def read(self, *topics: str, **options: Any) -> TopicRead:
        return TopicRead(self.bootstrap, topics, connector=self.connector, **options)

    def range(
        self, read: TopicRead, start: Offsets, end: Offsets, schema: "StructType | None" = None
    ) -> list[Any]:
        """The rows of a range in the order of partitions and offsets in which tasks give them."""
        return open_range(self.spark, read, start, end, schema).collect()

    def start(
        self,
        read: TopicRead,
        *,
        checkpoint: str = "checkpoint",
        available_now: bool = False,
        schema: "StructType | None" = None,
    ) -> "StreamingQuery":
        """Follows topics; ``batches`` are the rows that came, batch by batch."""

        def keep(frame: "DataFrame", batch: int) -> None:
            self.batches.append(frame.collect())

        stream = open_stream(self.spark, read, schema).writeStream.foreachBatch(keep)
        stream = stream.option("checkpointLocation", str(self.folder / checkpoint))
        query = stream.trigger(availableNow=True).start() if available_now else stream.start()
        self.queries.append(query)
        return query

    def run(self, read: TopicRead, **options: Any) -> list[Any]:
        """The rows that are there now, read by a query that ends at their end."""
        before = len(self.batches)
        query = self.start(read, available_now=True, **options)
        assert query.awaitTermination(SECONDS), "the query did not end"
        return [row for batch in self.batches[before:] for row in batch]

    def rows(self) -> list[Any]:
        return [row for batch in list(self.batches) for row in batch]

    def await_rows(self, wanted: Callable[[list[Any]], bool], seconds: float = SECONDS) -> list[Any]:
        deadline = time.monotonic() + seconds
        while not wanted(self.rows()):
            for query in self.queries:
                assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, self.rows()
            time.sleep(0.01)
        return self.rows()

    def stop(self) -> None:
        for query in self.queries:
            query.stop()


def values_of(rows: Sequence[Any]) -> list[bytes | None]:
    return [None if row.value is None else bytes(row.value) for row in rows]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def offsets(**topics: Mapping[int, int]) -> Offsets:
    return {
        topic: {str(number): at for number, at in partitions.items()} for topic, partitions in topics.items()
    }


ALL_COLUMNS = (*COLUMNS, "headers")
