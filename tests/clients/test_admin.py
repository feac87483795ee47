"""Every client administers topics and groups, as far as it can."""

import functools
from collections.abc import Callable

import pytest

from tests.clients.matrix import Client, able
from tests.clients.peer import Peer, PeerError
from tests.clients.records import Record, numbered
from tests.clients.waiting import until

Peers = Callable[[Client], Peer]
Name = Callable[[str], str]


@pytest.mark.parametrize("client", able("create_topic", "delete_topic"), ids=str)
def test_the_life_of_a_topic(client: Client, peers: Peers, reference: Peer, unique: Name) -> None:
    topic = unique("topic")
    admin = peers(client)
    admin.ask("create_topic", topic=topic, partitions=3, config={"retention.ms": "86400000"})
    until(lambda: topic in admin.ask("topics"), lambda there: there, "the topic is there")
    assert admin.ask("partitions", topic=topic) == 3
    with pytest.raises(PeerError) as refused:
        admin.ask("create_topic", topic=topic, partitions=3, config={})
    assert "exist" in f"{refused.value.name} {refused.value}".lower()
    sent = reference.produce(topic, numbered(9, 3))
    assert reference.read(topic, last={0: 2, 1: 2, 2: 2}) == sorted(sent, key=lambda one: one.partition)
    admin.ask("delete_topic", topic=topic)
    until(lambda: topic in admin.ask("topics"), lambda there: not there, "the topic is gone")
    # Made again, it is empty: nothing of the old one is left.
    admin.ask("create_topic", topic=topic, partitions=1, config={})
    again = reference.produce(topic, numbered(1, prefix="again "))
    assert [record.offset for record in again] == [0]


@pytest.mark.parametrize("client", able("add_partitions"), ids=str)
def test_partitions_are_added(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    reference.produce(topic, numbered(4, 2))
    admin = peers(client)
    admin.ask("add_partitions", topic=topic, total=5)
    until(lambda: reference.ask("partitions", topic=topic), lambda count: count == 5, "five partitions")
    sent = reference.produce(topic, numbered(10, 5, prefix="later "))
    assert [record.offset for record in sent] == [2, 2, 0, 0, 0, 3, 3, 1, 1, 1]


@pytest.mark.parametrize("client", able("config", "set_config"), ids=str)
def test_configs_of_a_topic(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(config={"retention.ms": "3600000"})
    admin = peers(client)
    before = admin.ask("config", topic=topic)
    assert before["retention.ms"] == "3600000"
    admin.ask("set_config", topic=topic, config={"max.message.bytes": "2000", "retention.ms": "7200000"})
    for asker in (admin, reference):
        look = functools.partial(asker.ask, "config", topic=topic)
        after = until(look, lambda seen: seen["retention.ms"] == "7200000", "the new retention")
        assert after["max.message.bytes"] == "2000"
    # A record over the new limit is refused; one within it is not.
    with pytest.raises(PeerError) as refused:
        reference.produce(topic, [Record(b"k", bytes(3000))])
    assert refused.value.name == "MSG_SIZE_TOO_LARGE"
    assert reference.produce(topic, numbered(1))[0].offset == 0


@pytest.mark.parametrize("client", able("delete_records"), ids=str)
def test_records_are_deleted(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    sent = reference.produce(topic, numbered(20, 2))
    admin = peers(client)
    assert admin.ask("delete_records", topic=topic, before={"0": 4, "1": 10}) == {"0": 4, "1": 10}
    assert reference.ask("offset_at", topic=topic, partition=0, timestamp=-2) == 4
    assert reference.ask("offset_at", topic=topic, partition=1, timestamp=-2) == 10
    left = [record for record in sent if record.partition == 0 and (record.offset or 0) >= 4]
    assert reference.read(topic, first={0: 4}, last={0: 9}) == left


@pytest.mark.parametrize("client", able("groups", "group", "delete_group"), ids=str)
def test_the_life_of_a_group(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str], unique: Name
) -> None:
    topic, group = make_topic(), unique("group")
    admin = peers(client)
    reference.join(group, [topic], client_id="a member")
    until(reference.assigned, lambda held: held == {(topic, 0)}, "the member has its partition")
    assert group in admin.ask("groups")
    described = admin.ask("group", group=group)
    assert (described["state"].upper(), described["members"]) == ("STABLE", ["a member"])
    with pytest.raises(PeerError) as refused:
        admin.ask("delete_group", group=group)
    assert "empty" in f"{refused.value.name} {refused.value}".lower()
    reference.produce(topic, numbered(3))
    until(lambda: len(reference.taken()), lambda count: count > 0, "records are taken")
    reference.ask("commit")
    reference.ask("leave")
    described = admin.ask("group", group=group)
    assert (described["state"].upper(), described["members"]) == ("EMPTY", [])
    admin.ask("delete_group", group=group)
    assert group not in admin.ask("groups")
    assert reference.committed(group, topic, [0]) == {0: None}
