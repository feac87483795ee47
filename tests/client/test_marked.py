"""Numbered batches: each once, whoever repeats it and however often."""

from collections.abc import Callable
from contextlib import closing

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.marked import MarkedWriter, prepare_marks
from headwater.client.reader import Reader
from headwater.client.transactions import TransactionalWriter
from headwater.errors import InvalidTransaction
from tests.support.servers import Headwater


@pytest.fixture
def connection(headwater: Headwater) -> Connection:
    connection = Connection(headwater.bootstrap)
    prepare_marks(connection)
    return connection


@pytest.fixture
def name(unique: Callable[[str], str], connection: Connection) -> str:
    name = unique("marked")
    Admin(connection).create_topic(name, 1)
    return name


def batch(topic: str, number: int) -> Callable[[TransactionalWriter], None]:
    def fill(writer: TransactionalWriter) -> None:
        writer.write_many(topic, [{"value": f"{number}.{part}".encode()} for part in range(3)])

    return fill


def content(connection: Connection, topic: str) -> list[str]:
    with Reader(connection, [topic], to_end=True) as reader:
        return [message.value().decode() for messages in reader.batches() for message in messages]


def expected(*numbers: int) -> list[str]:
    return [f"{number}.{part}" for number in numbers for part in range(3)]


def test_a_repeated_batch_is_not_written_again(connection: Connection, name: str) -> None:
    with closing(MarkedWriter(connection, name)) as writer:
        assert writer.write(0, batch(name, 0))
        assert not writer.write(0, batch(name, 0))
    with closing(MarkedWriter(connection, name)) as writer:
        assert writer.position() == 1
        assert not writer.write(0, batch(name, 0))
        assert writer.write(1, batch(name, 1))
    assert content(connection, name) == expected(0, 1)


def test_two_writers_in_one_place_write_each_batch_once(connection: Connection, name: str) -> None:
    with closing(MarkedWriter(connection, name)) as one, closing(MarkedWriter(connection, name)) as other:
        written: list[list[bool]] = []
        for number in range(4):
            pair: tuple[MarkedWriter, ...] = (one, other) if number % 2 else (other, one)
            written.append([writer.write(number, batch(name, number)) for writer in pair])
    assert written == [[True, False]] * 4
    assert content(connection, name) == expected(0, 1, 2, 3)


def test_a_batch_that_fails_half_way_leaves_nothing(connection: Connection, name: str) -> None:
    def fail(writer: TransactionalWriter) -> None:
        batch(name, 0)(writer)
        raise ZeroDivisionError

    with closing(MarkedWriter(connection, name)) as writer:
        with pytest.raises(ZeroDivisionError):
            writer.write(0, fail)
        assert writer.write(0, batch(name, 0))
    assert content(connection, name) == expected(0)


def test_a_batch_spread_otherwise_is_refused(connection: Connection, name: str) -> None:
    with closing(MarkedWriter(connection, name, 0, 2)) as writer:
        writer.write(7, batch(name, 7))
    with closing(MarkedWriter(connection, name, 0, 3)) as writer:
        with pytest.raises(InvalidTransaction, match="from 2 tasks, and comes again from 3"):
            writer.write(7, batch(name, 7))
        assert writer.write(8, batch(name, 8))


def test_there_is_a_mark_for_every_place(connection: Connection, name: str) -> None:
    prepare_marks(connection, 18)
    with closing(MarkedWriter(connection, name, 17, 18)) as writer:
        assert writer.write(0, batch(name, 0))
        assert not writer.write(0, batch(name, 0))
