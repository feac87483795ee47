"""Transactions: all or nothing, positions included, and the newest instance wins."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.group_reader import GroupReader
from headwater.client.groups import Groups
from headwater.client.reader import Reader
from headwater.client.transactions import TransactionalWriter
from headwater.errors import HeadwaterError, InvalidTransaction, StaleProducerEpoch, TransactionAborted

Write = Callable[..., None]


@pytest.fixture
def transactional_id(unique: Callable[[str], str]) -> str:
    return unique("txn")


def read(connection: Connection, *topics: str) -> list[str]:
    with Reader(connection, list(topics), to_end=True) as reader:
        return sorted((record.value() or b"").decode() for batch in reader.batches() for record in batch)


def test_a_transaction_over_two_topics_is_seen_whole(
    connection: Connection, admin: Admin, unique: Callable[[str], str], transactional_id: str
) -> None:
    one, two = unique("one"), unique("two")
    admin.create_topic(one, 2)
    admin.create_topic(two)
    with TransactionalWriter(connection, transactional_id) as writer:
        with writer.transaction():
            writer.write(one, "a", partition=0)
            writer.write(one, "b", partition=1)
            writer.write(two, "c")
            writer.producer.flush()
            assert read(connection, one, two) == []
        assert read(connection, one, two) == ["a", "b", "c"]


def test_an_exception_aborts_and_goes_on(
    connection: Connection, admin: Admin, topic: str, transactional_id: str
) -> None:
    admin.create_topic(topic)
    with TransactionalWriter(connection, transactional_id) as writer:
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.write(topic, "dropped")
            _ = 1 / 0
        with writer.transaction():
            writer.write(topic, "kept")
    assert read(connection, topic) == ["kept"]


def test_an_empty_transaction_is_fine(connection: Connection, transactional_id: str) -> None:
    with TransactionalWriter(connection, transactional_id) as writer, writer.transaction():
        pass


def test_positions_are_part_of_the_transaction(
    connection: Connection, admin: Admin, unique: Callable[[str], str], transactional_id: str, write: Write
) -> None:
    source, target, group = unique("source"), unique("target"), unique("group")
    admin.create_topic(source)
    admin.create_topic(target)
    write(source, "a", "b")
    groups = Groups(admin)
    with (
        GroupReader(connection, group, [source], unread="earliest") as reader,
        TransactionalWriter(connection, transactional_id) as writer,
    ):
        batch = next(batch for batch in reader.batches() if len(batch) == 2)
        position = [TopicPartition(source, 0, (batch[-1].offset() or 0) + 1)]
        with pytest.raises(KeyError), writer.transaction():
            writer.write(target, "dropped")
            writer.send_offsets(reader.consumer, position)
            raise KeyError
        assert groups.committed(group) == {}
        with writer.transaction():
            for record in batch:
                writer.write(target, (record.value() or b"").upper())
            writer.send_offsets(reader.consumer, position)
    assert groups.committed(group) == {(source, 0): 2}
    assert read(connection, target) == ["A", "B"]


def test_the_newest_instance_fences_the_older(
    connection: Connection, admin: Admin, topic: str, transactional_id: str
) -> None:
    admin.create_topic(topic)
    old = TransactionalWriter(connection, transactional_id)
    with pytest.raises(StaleProducerEpoch, match="a newer producer has taken"), old.transaction():
        old.write(topic, "old")
        old.producer.flush()
        new = TransactionalWriter(connection, transactional_id)
        with new.transaction():
            new.write(topic, "new")
    with pytest.raises(StaleProducerEpoch), old.transaction():
        old.write(topic, "old again")
    with new.transaction():
        new.write(topic, "new again")
    assert read(connection, topic) == ["new", "new again"]


def test_a_transaction_past_its_time_is_not_committed(
    connection: Connection, admin: Admin, topic: str, transactional_id: str
) -> None:
    """The coordinator looks for such transactions every ten seconds, by Kafka's default."""
    admin.create_topic(topic)
    writer = TransactionalWriter(connection, transactional_id, transaction_seconds=1)
    with pytest.raises((StaleProducerEpoch, TransactionAborted, InvalidTransaction)), writer.transaction():
        writer.write(topic, "too late")
        writer.producer.flush()
        deadline = time.monotonic() + 40
        while admin.latest([(topic, 0)], committed=True)[topic, 0] == 0:
            assert time.monotonic() < deadline, "the transaction was never aborted"
            time.sleep(0.2)
    assert read(connection, topic) == []


def test_a_record_that_is_refused_aborts_its_transaction(
    connection: Connection, admin: Admin, topic: str, transactional_id: str
) -> None:
    admin.create_topic(topic, configs={"max.message.bytes": "1000"})
    with TransactionalWriter(connection, transactional_id) as writer:
        with pytest.raises(TransactionAborted, match="cannot commit"), writer.transaction():
            writer.write(topic, "small")
            writer.producer.flush()
            writer.write(topic, "x" * 5000)
        # librdkafka needs one more abort before it asks for a new epoch: the caller repeats, as it has to.
        for _ in range(3):
            try:
                with writer.transaction():
                    writer.write(topic, "afterwards")
                break
            except TransactionAborted:
                continue
    assert read(connection, topic) == ["afterwards"]


def test_a_transaction_in_a_transaction_is_refused(
    connection: Connection, admin: Admin, topic: str, transactional_id: str
) -> None:
    admin.create_topic(topic)
    with TransactionalWriter(connection, transactional_id) as writer, writer.transaction():
        writer.write(topic, "kept")
        with pytest.raises(InvalidTransaction, match="one is open already"), writer.transaction():
            pass
    assert read(connection, topic) == ["kept"]


def test_a_time_longer_than_the_broker_allows_is_refused(
    connection: Connection, transactional_id: str
) -> None:
    with pytest.raises(HeadwaterError, match="INVALID_TRANSACTION_TIMEOUT"):
        TransactionalWriter(connection, transactional_id, transaction_seconds=3600)
