"""Every record that is written is acknowledged or counted as failed."""

import time
from collections.abc import Callable
from typing import Literal

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.client.writer import Writer
from headwater.errors import BatchTooLarge, HeadwaterError, InvalidBatch, NotDelivered, Unreachable
from tests.support.servers import ApacheKafka, Headwater, Server


def test_all_of_a_record_arrives(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 3, configs={"retention.ms": "-1"})
    with Writer(connection) as writer:
        writer.write(
            topic, b"\xff\x00", "key", headers=[("a", b"1"), ("a", b"2"), ("none", None)], partition=2,
            timestamp=1_700_000_000_123,
        )  # fmt: skip
        writer.write(topic, None, "key", partition=2)
    with Reader(connection, [topic], to_end=True) as reader:
        record, tombstone = (record for batch in reader.batches() for record in batch)
    assert (record.key(), record.value(), record.partition()) == (b"key", b"\xff\x00", 2)
    assert record.headers() == [("a", b"1"), ("a", b"2"), ("none", None)]
    assert record.timestamp()[1] == 1_700_000_000_123
    assert tombstone.value() is None


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_acknowledgement(
    connection: Connection, admin: Admin, topic: str,
    acks: Literal["0", "1", "all"], compression: Literal["none", "gzip", "snappy", "lz4", "zstd"],
) -> None:  # fmt: skip
    admin.create_topic(topic)
    with Writer(connection, acks=acks, compression=compression) as writer:
        for number in range(500):
            writer.write(topic, f"value {number} " * 5, str(number))
    assert (writer.written, writer.failed) == (500, 0)
    deadline = time.monotonic() + 10
    while admin.latest([(topic, 0)])[topic, 0] < 500 and time.monotonic() < deadline:
        time.sleep(0.05)  # acks=0: sent is not yet written
    with Reader(connection, [topic], to_end=True) as reader:
        keys = [record.key() for batch in reader.batches() for record in batch]
    assert keys == [b"%d" % number for number in range(500)]


def test_keys_go_where_the_java_client_puts_them(connection: Connection, admin: Admin, topic: str) -> None:
    from confluent_kafka.cimpl import murmur2

    admin.create_topic(topic, 5)
    with Writer(connection) as writer:
        for number in range(50):
            writer.write(topic, b"", f"key-{number}")
    with Reader(connection, [topic], to_end=True) as reader:
        for batch in reader.batches():
            for record in batch:
                assert record.partition() == murmur2(record.key() or b"", 5)


def test_failures_are_counted_told_and_raised(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, configs={"max.message.bytes": "1000"})
    writer = Writer(connection)
    told: list[HeadwaterError] = []
    writer.write(topic, b"small", on_failure=told.append)
    writer.settle()
    writer.write(topic, b"x" * 5000, on_failure=told.append)  # the broker refuses it
    writer.settle()
    writer.write(topic, b"x" * 2_000_000, on_failure=told.append)  # librdkafka would, left to itself
    with pytest.raises(NotDelivered, match="cannot deliver 2 of 3 records: "):
        writer.flush()
    assert [type(fault) for fault in told] == [BatchTooLarge, BatchTooLarge]
    assert (writer.written, writer.failed) == (3, 2)
    assert admin.latest([(topic, 0)]) == {(topic, 0): 1}


def test_a_record_without_a_key_on_a_compacted_topic(
    connection: Connection, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, configs={"cleanup.policy": "compact"})
    writer = Writer(connection)
    writer.write(topic, b"keyless")
    with pytest.raises(NotDelivered) as raised:
        writer.flush()
    assert isinstance(raised.value.__cause__, InvalidBatch)


def test_an_exception_in_the_block_is_not_hidden(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    with pytest.raises(KeyError), Writer(connection) as writer:
        writer.write(topic, b"x")
        raise KeyError


@pytest.mark.parametrize("kind", [Headwater, ApacheKafka])
def test_a_broker_that_goes_away_fails_what_was_not_acknowledged(kind: type[Server]) -> None:
    with kind() as server:
        connection = Connection(server.bootstrap)
        Admin(connection).create_topic("t")
        writer = Writer(connection, delivery_seconds=2)
        writer.write("t", b"acknowledged")
        writer.flush()
        server.kill()
        began = time.monotonic()
        writer.write("t", b"lost")
        with pytest.raises(NotDelivered, match="1 of 2 records") as raised:
            writer.flush()
        assert isinstance(raised.value.__cause__, Unreachable)
        assert time.monotonic() - began < 10


def test_more_than_the_buffer_holds(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    small = Connection(connection.bootstrap, {"queue.buffering.max.messages": "100"})
    with Writer(small) as writer:
        for number in range(5_000):
            writer.write(topic, str(number))
    consumer = Consumer({"bootstrap.servers": connection.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 5_000)
    consumer.close()


def test_order_is_kept_within_a_partition(
    connection: Connection, admin: Admin, topic: str, write: Callable[..., None]
) -> None:
    admin.create_topic(topic)
    with Writer(connection) as writer:
        for number in range(30_000):
            writer.write(topic, str(number))
    with Reader(connection, [topic], to_end=True) as reader:
        found = [int(record.value() or b"-1") for batch in reader.batches() for record in batch]
    assert found == list(range(30_000))
