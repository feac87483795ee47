"""A broker that is away: what is bounded fails in time, and nobody waits for a commit that cannot come."""

import time
from collections.abc import Iterator

import pytest

from headwater.client import reader as reader_module
from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.group_reader import GroupReader
from headwater.client.reader import Reader
from headwater.client.writer import Writer
from headwater.errors import Unreachable
from tests.support.servers import ApacheKafka, Headwater, Server


@pytest.fixture(params=[Headwater, ApacheKafka])
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as server:
        Admin(Connection(server.bootstrap)).create_topic("t")
        with Writer(Connection(server.bootstrap)) as writer:
            for value in "abc":
                writer.write("t", value)
        yield server


def joined(connection: Connection, group: str) -> GroupReader:
    """A member that has read all three records, and has finished two of them."""
    reader = GroupReader(connection, group, ["t"], unread="earliest")
    records = []
    deadline = time.monotonic() + 30
    for batch in reader.batches():
        records += batch
        if len(records) == 3:
            break
        assert time.monotonic() < deadline
    reader.done(records[:2])
    return reader


def test_nobody_waits_for_a_broker_that_is_gone(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "OUTAGE_SECONDS", 2.0)
    connection = Connection(own.bootstrap)
    committed, uncommitted = joined(connection, "committed"), joined(connection, "uncommitted")
    committed.commit(wait=True)
    bounded = Reader(connection, ["t"], to_end=True)
    bounded._remaining["t", 0] = 4  # one record more than will ever come
    assert len(next(batch for batch in bounded.batches() if batch)) > 0
    own.kill()

    began = time.monotonic()
    with bounded, pytest.raises(Unreachable, match="cannot reach a broker at"):
        for _ in bounded.batches():
            assert time.monotonic() - began < 30
    began = time.monotonic()
    committed.close()
    with pytest.raises(Unreachable, match=r"commit offsets of group uncommitted: .* expect repeated records"):
        uncommitted.close()
    assert time.monotonic() - began < 10
