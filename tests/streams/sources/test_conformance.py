"""What every source of topics promises, asked of ours and of Spark's Kafka connector."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.errors import RecordsMissed, UnknownTopic
from headwater.streams.sources.gaps import in_words, missed
from headwater.streams.sources.opening import open_range, open_stream, output_schema
from headwater.streams.sources.positions import PIECE
from tests.streams.sources.conftest import ALL_COLUMNS, Source, TopicWriter, numbered, values_of

both_servers = pytest.mark.parametrize("server", ["embedded", "kafka"], indirect=True)

MOMENT = round(time.time() * 1000) - 3_600_000  # young enough for retention


# -- records -----------------------------------------------------------------------------------------


@both_servers
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_column(source: Source, writer: TopicWriter, topic: str, codec: str) -> None:
    writer.create(topic)
    producer = writer.producer(compression_type=codec)
    headers = [("trace", b"7"), ("empty", b""), ("null", None), ("trace", "ä".encode())]
    writer.write(topic, [b"v"], key=b"k", headers=headers, timestamp=MOMENT, producer=producer)
    writer.write(topic, [None], key=b"gone", timestamp=MOMENT + 1, producer=producer)
    writer.write(topic, [b""], key=None, timestamp=MOMENT + 2, producer=producer)
    writer.write(topic, [b"x" * 300] * 3, key=b"long" * 50, timestamp=MOMENT + 90_000, producer=producer)
    read = source.read(topic, columns=ALL_COLUMNS)
    frame = open_range(source.spark, read, {topic: {"0": 0}}, {topic: {"0": 6}})
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        (field.name, field.dataType.simpleString()) for field in output_schema(read)
    ]
    rows = frame.collect()
    assert values_of(rows) == [b"v", None, b"", *[b"x" * 300] * 3]
    assert [None if row.key is None else bytes(row.key) for row in rows[:4]] == [
        b"k",
        b"gone",
        None,
        b"long" * 50,
    ]
    assert [row.offset for row in rows] == list(range(6))
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic, 0, 0)}
    moments = frame.select(F.unix_millis("timestamp")).collect()
    assert [row[0] - MOMENT for row in moments] == [0, 1, 2, 90_000, 90_000, 90_000]
    told = [(one.key, None if one.value is None else bytes(one.value)) for one in rows[0].headers]
    assert told == headers
    assert rows[1].headers is None


def test_columns_in_the_order_asked_for(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    writer.write(topic, [b"v"])
    rows = source.range(source.read(topic, columns=("offset", "value")), {topic: {"0": 0}}, {topic: {"0": 1}})
    assert [tuple(row) for row in rows] == [(0, b"v")]


def test_log_append_time(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic, message_timestamp_type="LogAppendTime")
    before = time.time() * 1000
    writer.write(topic, numbered(3), timestamp=MOMENT)
    frame = open_range(source.spark, source.read(topic), {topic: {"0": 0}}, {topic: {"0": 3}})
    for row in frame.select("timestampType", F.unix_millis("timestamp").alias("at")).collect():
        assert row.timestampType == 1
        assert before - 1000 < row.at < time.time() * 1000 + 1000


@both_servers
def test_transactions(source: Source, writer: TopicWriter, topic: str) -> None:
    """Committed records alone, though markers and rolled back records take offsets between them."""
    writer.create(topic)
    first = writer.producer(transactional_id=f"{topic}.a")
    other = writer.producer(transactional_id=f"{topic}.b")
    for producer in (first, other):
        producer.init_transactions(30)
    first.begin_transaction()
    other.begin_transaction()
    for number in range(20):  # interleaved, in batches of their own
        writer.write(topic, [b"first %d" % number], producer=first)
        writer.write(topic, [b"other %d" % number], producer=other)
    other.abort_transaction(30)
    first.commit_transaction(30)
    writer.write(topic, [b"plain"])
    other.begin_transaction()
    writer.write(topic, [b"open"], producer=other)
    wanted = [*(b"first %d" % number for number in range(20)), b"plain"]
    assert values_of(source.run(source.read(topic))) == wanted
    other.commit_transaction(30)
    assert values_of(source.run(source.read(topic))) == [b"open"]
    # A range that begins within the transactions knows of those that began before it.
    rows = source.range(source.read(topic), {topic: {"0": 21}}, {topic: {"0": 40}})
    assert {value.split()[0] for value in values_of(rows) if value} == {b"first"}
    assert [row.offset for row in rows] == sorted(row.offset for row in rows)


def test_compacted_gaps(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(
        topic,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        segment_ms="100",
        max_compaction_lag_ms="100",
    )
    producer = writer.producer()
    for number in range(300):
        producer.produce(topic, b"%d" % number, b"key %d" % (number % 3), partition=0)
    producer.flush(30)
    time.sleep(0.2)
    writer.write(topic, [b"the last"], key=b"other")
    deadline = time.monotonic() + 30
    while writer.visible(topic) > 4:
        assert time.monotonic() < deadline, "it is never compacted"
        time.sleep(0.2)
    rows = source.range(source.read(topic), {topic: {"0": 0}}, {topic: {"0": 301}})
    assert [(row.offset, bytes(row.value)) for row in rows] == [
        (297, b"297"), (298, b"298"), (299, b"299"), (300, b"the last")
    ]  # fmt: skip
    assert source.range(source.read(topic), {topic: {"0": 10}}, {topic: {"0": 200}}) == []
    assert len(source.run(source.read(topic))) == 4


# -- positions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["embedded", "kafka"], indirect=True)
def test_admission(source: Source, writer: TopicWriter, topic: str) -> None:
    """No batch takes more than it may, what waits longer goes first, and everything comes once."""
    writer.create(topic, partitions=3)
    for partition, count in enumerate((200, 50, 0)):
        writer.write(topic, numbered(count), partition)
    rows = source.run(source.read(topic, max_rows=60))
    sizes = [len(batch) for batch in source.batches if batch]
    assert max(sizes) <= 60 and len(sizes) >= 5
    for partition, count in enumerate((200, 50, 0)):
        mine = [row for row in rows if row.partition == partition]
        assert values_of(mine) == numbered(count)
    assert source.run(source.read(topic)) == []


def test_a_restart_goes_on_where_it_was(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    writer.write(topic, numbered(10))
    assert values_of(source.run(source.read(topic))) == numbered(10)
    writer.write(topic, numbered(5, 10))
    assert values_of(source.run(source.read(topic))) == numbered(5, 10)
    assert values_of(source.run(source.read(topic), checkpoint="another")) == numbered(15)


def test_new_partitions_are_read_from_their_start(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    writer.write(topic, [b"before"])
    source.start(source.read(topic, start="latest"))
    source.await_rows(lambda rows: True)
    writer.write(topic, [b"after"])
    # Whether the query had begun at the end before "after" came is not for us to say.
    while not source.rows():
        writer.write(topic, [b"after"])
        time.sleep(0.3)
    writer.admin.add_partitions(topic, 3)
    writer.write(topic, numbered(5), partition=2)
    rows = source.await_rows(lambda rows: len([row for row in rows if row.partition == 2]) >= 5)
    assert values_of([row for row in rows if row.partition == 2]) == numbered(5)
    assert {value for value in values_of(rows) if value} == {b"after", *numbered(5)}


def test_starts(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic, partitions=2)
    for number in range(10):
        writer.write(topic, [b"%d" % number], timestamp=MOMENT + 1000 * number)
    writer.write(topic, [b"side"], partition=1, timestamp=MOMENT)
    moment = datetime.fromtimestamp((MOMENT + 6500) / 1000, UTC)
    starts = {
        "earliest": [*numbered(10), b"side"],
        "latest": [],
        moment: numbered(3, 7),
        moment.isoformat(): numbered(3, 7),
    }
    for number, (start, wanted) in enumerate(starts.items()):
        rows = source.run(source.read(topic, start=start), checkpoint=f"start {number}")
        assert sorted(values_of(rows)) == sorted(wanted), start
    rows = source.run(source.read(topic, start={topic: {0: 8}}), checkpoint="offsets")
    assert sorted(values_of(rows)) == [b"8", b"9", b"side"]


def test_several_topics(source: Source, writer: TopicWriter, unique: Callable[[str], str]) -> None:
    topics = [unique("left"), unique("right")]
    for name in topics:
        writer.create(name, partitions=2)
        writer.write(name, [name.encode()], partition=1)
    rows = source.run(source.read(*topics))
    assert sorted((row.topic, row.partition, bytes(row.value).decode()) for row in rows) == sorted(
        (name, 1, name) for name in topics
    )


def test_a_long_range_becomes_tasks_in_its_order(source: Source, writer: TopicWriter, topic: str) -> None:
    """A topic of one partition uses all cores, and a batch that is run again is cut in the same way."""
    count = 2 * PIECE + 500
    writer.create(topic)
    producer = writer.producer(queue_buffering_max_messages=count)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    read = source.read(topic, columns=("value", "offset"))
    frame = open_range(source.spark, read, {topic: {"0": 0}}, {topic: {"0": count}})
    tasks = frame.groupBy(F.spark_partition_id().alias("task")).agg(
        F.min("offset"),
        F.max("offset"),
        F.count("*"),
        F.count_if(F.col("value").cast("string").cast("long") == F.col("offset")),
    )
    found = sorted(tuple(row) for row in tasks.collect())
    assert len(found) == 3
    assert sum(row[3] for row in found) == sum(row[4] for row in found) == count
    assert [row[1:3] for row in found] == [(found[i][1], found[i][1] + found[i][3] - 1) for i in range(3)]
    assert [row[1] for row in found] == sorted(row[1] for row in found)


def test_no_such_topic(source: Source, topic: str) -> None:
    with pytest.raises(UnknownTopic) as raised:
        open_stream(source.spark, source.read(topic))
    assert raised.value.subject == topic


# -- gaps --------------------------------------------------------------------------------------------


@both_servers
def test_records_that_retention_took_are_an_error(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    writer.write(topic, numbered(10))
    source.run(source.read(topic))
    writer.write(topic, numbered(30, 10))
    writer.delete_before(topic, 25)
    with pytest.raises(StreamingQueryException) as raised:
        source.run(source.read(topic))
    error = in_words(raised.value, source.read(topic), {topic: {"0": 10}})
    assert isinstance(error, RecordsMissed)
    assert "15 records were removed" in str(error)
    assert error.subject == f"{topic}-0"


@both_servers
def test_or_they_are_counted_and_the_rest_is_read(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    writer.write(topic, numbered(10))
    source.run(source.read(topic, on_gap="continue"))
    writer.write(topic, numbered(30, 10))
    writer.delete_before(topic, 25)
    read = source.read(topic, on_gap="continue")
    assert values_of(source.run(read)) == numbered(15, 25)
    assert missed(read, {topic: {"0": 10}}, {topic: {"0": 40}}) == {(topic, 0): 15}
    assert missed(read, {topic: {"0": 30}}, {topic: {"0": 40}}) == {}


# -- values ------------------------------------------------------------------------------------------


def test_json(source: Source, writer: TopicWriter, topic: str) -> None:
    writer.create(topic)
    values = [b'{"n": 1, "at": "2026-01-02T03:04:05Z"}', b"{", None, b'{"n": "x"}', b'{"other": 1}']
    writer.write(topic, values)
    schema = StructType.fromDDL("n long, at timestamp")
    read = source.read(topic, columns=("offset", "value"))
    for rows in (
        source.range(read, {topic: {"0": 0}}, {topic: {"0": 5}}, schema),
        source.run(read, schema=schema),
    ):
        assert [row.problem is None for row in rows] == [True, False, True, False, True]
        assert [row.value and row.value.n for row in rows] == [1, None, None, None, None]
        assert rows[0].value.at is not None
        assert [row.value is None for row in rows] == [False, True, True, True, False]


# -- following ---------------------------------------------------------------------------------------


def test_a_record_wakes_an_idle_query_which_stops_at_once(
    source: Source, writer: TopicWriter, topic: str
) -> None:
    writer.create(topic)
    writer.write(topic, [b"first"])
    query = source.start(source.read(topic, wait_seconds=20.0))
    source.await_rows(lambda rows: len(rows) == 1)
    time.sleep(1.0)  # it waits for a record now
    began = time.monotonic()
    writer.write(topic, [b"second"])
    source.await_rows(lambda rows: len(rows) == 2)
    assert time.monotonic() - began < 15, "it slept over the record"
    time.sleep(1.0)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 10, "it waited for a record before it stopped"
