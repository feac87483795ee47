"""Reading from a position, to the end or on and on."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import BEGINNING, END, Reader, Start
from headwater.client.transactions import TransactionalWriter
from headwater.client.writer import Writer
from headwater.errors import OffsetOutOfRange, UnknownTopic, Unreachable
from tests.support.servers import ApacheKafka, Headwater, Server

Write = Callable[..., None]


def values(records: list[Message]) -> list[str]:
    return [(record.value() or b"").decode() for record in records]


def read_to_end(connection: Connection, topic: str, **how: object) -> list[str]:
    with Reader(connection, [topic], to_end=True, **how) as reader:  # type: ignore[arg-type]
        return [value for batch in reader.batches() for value in values(batch)]


def follow(reader: Reader, count: int, seconds: float = 20) -> Iterator[Message]:
    """The next ``count`` records of a reader that follows; fails when they do not come."""
    deadline = time.monotonic() + seconds
    for batch in reader.batches():
        for record in batch:
            count -= 1
            yield record
        if count <= 0:
            return
        assert time.monotonic() < deadline, f"{count} records did not come"


def test_the_whole_topic_to_its_end(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 3)
    with Writer(connection) as writer:
        for number in range(20_000):
            writer.write(topic, str(number), str(number))
    assert sorted(map(int, read_to_end(connection, topic))) == list(range(20_000))


def test_an_empty_topic_ends_at_once(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2)
    began = time.monotonic()
    assert read_to_end(connection, topic) == []
    assert time.monotonic() - began < 3


def test_what_comes_after_the_end_is_not_read(
    connection: Connection, admin: Admin, topic: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "a", "b")
    with Reader(connection, [topic], to_end=True) as reader:
        write(topic, "late")
        assert [value for batch in reader.batches() for value in values(batch)] == ["a", "b"]


def test_an_offset_a_time_and_a_distance_from_the_end(
    connection: Connection, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, configs={"retention.ms": "-1"})
    with Writer(connection) as writer:
        for number in range(10):
            writer.write(topic, str(number), timestamp=1_700_000_000_000 + number * 1000)
    assert read_to_end(connection, topic, start=Start.at_offset(7)) == ["7", "8", "9"]
    assert read_to_end(connection, topic, start=Start.at_offset(10)) == []
    assert read_to_end(connection, topic, start=Start.at_time(1_700_000_007_500)) == ["8", "9"]
    assert read_to_end(connection, topic, start=Start.at_time(1_800_000_000_000)) == []
    assert read_to_end(connection, topic, start=Start.before_end(2)) == ["8", "9"]
    assert len(read_to_end(connection, topic, start=Start.before_end(99))) == 10
    assert read_to_end(connection, topic, start=END) == []


def test_an_offset_out_of_range_and_an_unknown_partition_are_refused(
    connection: Connection, admin: Admin, topic: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "a")
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0: offset 2 is not in its range, 0 to 1"):
        Reader(connection, [topic], start=Start.at_offset(2))
    with pytest.raises(UnknownTopic, match="has partitions 0 to 0"):
        Reader(connection, [topic], partitions=[1])


def test_chosen_partitions_of_several_topics(
    connection: Connection, admin: Admin, unique: Callable[[str], str], write: Write
) -> None:
    one, two = unique("one"), unique("two")
    for name in (one, two):
        admin.create_topic(name, 2)
        for partition in (0, 1):
            write(name, f"{name}-{partition}", partition=partition)
    with Reader(connection, [one, two], partitions=[1], to_end=True) as reader:
        found = [value for batch in reader.batches() for value in values(batch)]
    assert sorted(found) == sorted([f"{one}-1", f"{two}-1"])


def test_following_from_now_on(connection: Connection, admin: Admin, topic: str, write: Write) -> None:
    admin.create_topic(topic)
    write(topic, "before")
    with Reader(connection, [topic], start=END) as reader:
        write(topic, "after")  # the position is taken when the reader is made
        assert values(list(follow(reader, 1))) == ["after"]
        write(topic, "later")
        assert values(list(follow(reader, 1))) == ["later"]


def test_idle_is_said_with_an_empty_batch(connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    with Reader(connection, [topic]) as reader:
        assert next(reader.batches(idle=0.1)) == []


def test_new_partitions_are_picked_up_from_their_beginning(
    connection: Connection, admin: Admin, topic: str, write: Write
) -> None:
    admin.create_topic(topic)
    with Reader(connection, [topic], start=END) as reader:
        admin.add_partitions(topic, 2)
        write(topic, "in the new one", partition=1)
        (record,) = follow(reader, 1)
        assert (record.value(), record.partition(), record.offset()) == (b"in the new one", 1, 0)


def test_a_topic_deleted_under_the_reader_is_an_error(
    connection: Connection, admin: Admin, topic: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "a")
    with Reader(connection, [topic]) as reader, pytest.raises(UnknownTopic, match="it is not there any more"):
        deleted = False
        deadline = time.monotonic() + 30
        for batch in reader.batches():
            if batch and not deleted:
                deleted = True
                admin.delete_topic(topic)
            assert time.monotonic() < deadline


def test_only_committed_records_are_read_unless_asked_otherwise(
    connection: Connection, admin: Admin, topic: str, unique: Callable[[str], str]
) -> None:
    admin.create_topic(topic)
    with TransactionalWriter(connection, unique("txn")) as writer:
        with writer.transaction():
            writer.write(topic, "kept")
        with pytest.raises(KeyError), writer.transaction():
            writer.write(topic, "dropped")
            writer.producer.flush()
            raise KeyError
        with writer.transaction():
            writer.write(topic, "last")
    # The topic ends with a marker, which has an offset but is no record.
    assert read_to_end(connection, topic) == ["kept", "last"]
    assert read_to_end(connection, topic, isolation="read_uncommitted") == ["kept", "dropped", "last"]


def test_an_open_transaction_is_the_end_for_who_reads_committed(
    connection: Connection, admin: Admin, topic: str, unique: Callable[[str], str], write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "before")
    with TransactionalWriter(connection, unique("txn")) as writer, writer.transaction():
        writer.write(topic, "open")
        writer.producer.flush()
        write(topic, "behind")
        assert read_to_end(connection, topic) == ["before"]
        assert read_to_end(connection, topic, isolation="read_uncommitted") == ["before", "open", "behind"]
    assert read_to_end(connection, topic) == ["before", "open", "behind"]


def test_a_compacted_topic_with_its_last_records_gone_still_ends(
    connection: Connection, admin: Admin, topic: str
) -> None:
    """Reading to the end needs no record at the end: here everything was deleted."""
    from confluent_kafka import TopicPartition

    admin.create_topic(topic)
    with Writer(connection) as writer:
        for _ in range(5):
            writer.write(topic, b"x")
    (future,) = admin.client.delete_records([TopicPartition(topic, 0, 5)]).values()
    future.result()
    assert read_to_end(connection, topic) == []
    assert read_to_end(connection, topic, start=BEGINNING, partitions=[0]) == []


def test_records_deleted_under_a_position_are_an_error_not_a_gap(
    connection: Connection, admin: Admin, topic: str, write: Write
) -> None:
    from confluent_kafka import TopicPartition

    admin.create_topic(topic)
    write(topic, *"abcdef")
    reader = Reader(connection, [topic], start=Start.at_offset(1))
    with reader, pytest.raises(OffsetOutOfRange, match=f"{topic}-0: offset 1 is not in the log"):
        assert len(list(follow(reader, 5))) == 5
        (future,) = admin.client.delete_records([TopicPartition(topic, 0, 4)]).values()
        future.result()
        reader.consumer.seek(TopicPartition(topic, 0, 1))
        list(follow(reader, 10))


@pytest.mark.parametrize("kind", [Headwater, ApacheKafka])
def test_following_outlives_a_killed_broker(kind: type[Server]) -> None:
    with kind() as server:
        connection = Connection(server.bootstrap)
        admin = Admin(connection)
        admin.create_topic("kept")
        said: list[bool] = []
        with Reader(connection, ["kept"], on_outage=said.append) as reader:
            with Writer(connection) as writer:
                writer.write("kept", "first")
            assert values(list(follow(reader, 1))) == ["first"]
            server.kill()
            restart = threading.Timer(4, server.start)
            restart.start()
            records = follow(reader, 1, seconds=60)
            with Writer(connection, delivery_seconds=60) as writer:
                writer.write("kept", "second")
                assert values(list(records)) == ["second"]
            restart.join()
            assert said in ([True, False], [])  # an outage that nobody noticed needs no words
            server.kill()
            with pytest.raises(Unreachable):
                Admin(connection)
