"""Every client that has transactions: committed is read, aborted is not, and old instances are ended."""

import time
from collections.abc import Callable

import pytest

from tests.clients.matrix import Client, clients
from tests.clients.peer import Peer, PeerError
from tests.clients.records import Record, numbered
from tests.clients.waiting import until

Peers = Callable[[Client], Peer]
Name = Callable[[str], str]
Topics = Callable[..., str]
TRANSACTIONAL = [client for client in clients() if client.transactions]
END = Record(b"end", b"of the test")


def all_of(parts: list[list[Record]]) -> list[Record]:
    """The records of the parts as they stand in the log, by partition."""
    return sorted(
        (record for part in parts for record in part), key=lambda record: (record.partition, record.offset)
    )


@pytest.mark.parametrize("client", TRANSACTIONAL, ids=str)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_committed_is_read_and_aborted_is_not(
    client: Client, codec: str, peers: Peers, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic(partitions=2)
    writer, reader = peers(client), peers(client)
    writer.txn_open(unique("id"), codec=codec)
    kept: list[list[Record]] = []
    dropped: list[list[Record]] = []
    for number, end in enumerate(["commit", "abort", "commit", "abort", "abort", "commit"]):
        writer.ask("txn_begin")
        sent = writer.txn_send(topic, numbered(6, 2, prefix=f"transaction {number} record "))
        writer.ask(f"txn_{end}")
        (kept if end == "commit" else dropped).append(sent)
    outside = reference.produce(topic, [END.at(0, partition) for partition in (0, 1)])
    # Six transactions of three records and a marker in each partition.
    assert [record.offset for record in outside] == [24, 24]
    last = {0: 24, 1: 24}
    for one in (reader, reference):
        assert one.read(topic, last=last, isolation="read_committed") == all_of([*kept, outside])
        assert one.read(topic, last=last, isolation="read_uncommitted") == all_of([*kept, *dropped, outside])


@pytest.mark.parametrize("client", TRANSACTIONAL, ids=str)
def test_an_open_transaction_holds_back_readers_of_committed(
    client: Client, peers: Peers, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic()
    before = reference.produce(topic, numbered(3, prefix="before "))
    writer, reader = peers(client), peers(client)
    writer.txn_open(unique("id"))
    writer.ask("txn_begin")
    inside = writer.txn_send(topic, numbered(3, prefix="inside "))
    after = reference.produce(topic, numbered(3, prefix="after "))
    for one in (reader, reference):
        assert one.read(topic, last={0: 8}, isolation="read_uncommitted") == [*before, *inside, *after]
        assert one.read(topic, last={0: 8}, isolation="read_committed", quiet_ms=1200) == before
    writer.ask("txn_commit")
    for one in (reader, reference):
        assert one.read(topic, last={0: 8}, isolation="read_committed") == [*before, *inside, *after]


@pytest.mark.parametrize("client", [one for one in TRANSACTIONAL if "txn_offsets" not in one.lacks], ids=str)
def test_consume_transform_produce(
    client: Client, peers: Peers, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    source, target, group = make_topic(purpose="source"), make_topic(purpose="target"), unique("group")
    reference.produce(source, numbered(10))
    worker = peers(client)
    worker.join(group, [source], isolation="read_committed")
    worker.txn_open(unique("id"))
    taken: list[Record] = []

    def look() -> int:
        taken.extend(worker.taken())
        return len(taken)

    def transform(end: str) -> list[Record]:
        worker.ask("txn_begin")
        results = [Record(record.key, b"seen " + (record.value or b"")) for record in taken]
        sent = worker.txn_send(target, results)
        worker.ask("txn_offsets", group=group, offsets=[[source, 0, len(taken)]])
        worker.ask(f"txn_{end}")
        return sent

    until(look, lambda count: count >= 10, "ten records are taken")
    transform("abort")
    assert reference.committed(group, source, [0]) == {0: None}
    kept = transform("commit")
    assert [record.value for record in kept] == [f"seen r{i}".encode() for i in range(10)]
    assert reference.committed(group, source, [0]) == {0: 10}
    assert worker.committed(group, source, [0]) == {0: 10}
    # Ten aborted, a marker, ten committed, a marker: the last offset with a record is 20.
    assert reference.read(target, last={0: 20}, isolation="read_committed") == kept


@pytest.mark.parametrize("client", TRANSACTIONAL, ids=str)
def test_a_new_instance_fences_the_old_one(
    client: Client, peers: Peers, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic, id = make_topic(), unique("id")
    old, new = peers(client), peers(client)
    old.txn_open(id)
    old.ask("txn_begin")
    old.txn_send(topic, numbered(3, prefix="old "))
    new.txn_open(id)
    with pytest.raises(PeerError) as refused:
        old.txn_send(topic, numbered(3, prefix="late "))
        old.ask("txn_commit")
    assert refused.value.name in client.fenced, str(refused.value)
    new.ask("txn_begin")
    kept = new.txn_send(topic, numbered(3, prefix="new "))
    new.ask("txn_commit")
    last = {0: kept[-1].offset or 0}
    assert reference.read(topic, last=last, isolation="read_committed") == kept


@pytest.mark.parametrize("client", TRANSACTIONAL, ids=str)
def test_a_dead_producers_transaction_is_aborted_in_time(
    client: Client, peers: Peers, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic()
    writer = peers(client)
    writer.txn_open(unique("id"), timeout_ms=2000)
    writer.ask("txn_begin")
    writer.txn_send(topic, numbered(3, prefix="lost "))
    writer.kill()
    started = time.monotonic()
    after = reference.produce(topic, [END])
    assert after[0].offset == 3
    assert reference.read(topic, last={0: 3}, isolation="read_committed") == after
    assert time.monotonic() - started < 10
    assert len(reference.read(topic, last={0: 3}, isolation="read_uncommitted")) == 4
