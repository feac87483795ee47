"""Every client shares a topic among the members of a group: one joins, one leaves, one dies."""

from collections.abc import Callable, Sequence

import pytest

from tests.clients.matrix import Client, able, groups_of
from tests.clients.peer import Peer
from tests.clients.records import Record, in_order, numbered
from tests.clients.waiting import until

Peers = Callable[[Client], Peer]
PARTITIONS = 4
GROUPS = [
    pytest.param(client, protocol, assignor, id=f"{client}-{protocol}-{assignor}")
    for client in able("join")
    for protocol, assignor in groups_of(client)
]


def wait_for_shares(members: Sequence[Peer], topic: str) -> None:
    """Until the members hold all partitions among them, each its fair part, none held by two."""
    everything = sorted((topic, partition) for partition in range(PARTITIONS))
    fair = [PARTITIONS // len(members)] * len(members)

    def look() -> list[set[tuple[str, int]]]:
        return [member.assigned() for member in members]

    def right(shares: list[set[tuple[str, int]]]) -> bool:
        return [len(share) for share in shares] == fair and sorted(p for s in shares for p in s) == everything

    until(look, right, f"{len(members)} members share {topic}", timeout=45)


def wait_for_records(members: Sequence[Peer], expected: Sequence[Record]) -> None:
    """Until the members have taken all of the records; none is taken twice, and no other."""
    seen: list[Record] = []

    def look() -> list[Record]:
        for member in members:
            seen.extend(member.taken())
        return seen

    until(look, lambda taken: len(taken) >= len(expected), f"{len(expected)} records are taken")
    assert in_order(seen) == in_order(expected)


@pytest.mark.parametrize(("client", "protocol", "assignor"), GROUPS)
def test_members_join_leave_and_die(
    client: Client,
    protocol: str,
    assignor: str,
    peers: Peers,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(partitions=PARTITIONS), unique("group")
    first, second, third = peers(client), peers(client), peers(client)

    def join(member: Peer, name: str) -> None:
        member.join(group, [topic], protocol=protocol, assignor=assignor, session_ms=3000, client_id=name)

    def write(round_: int) -> list[Record]:
        return reference.produce(topic, numbered(40, PARTITIONS, prefix=f"round {round_} record "))

    sent = write(0)
    join(first, "first")
    wait_for_shares([first], topic)
    wait_for_records([first], sent)
    first.ask("commit")

    join(second, "second")
    wait_for_shares([first, second], topic)
    wait_for_records([first, second], write(1))
    described = reference.ask("group", group=group)
    assert described == {"state": "STABLE", "members": ["first", "second"], "held": [2, 2]}
    first.ask("commit")
    second.ask("commit")

    second.ask("leave")
    wait_for_shares([first], topic)
    wait_for_records([first], write(2))
    first.ask("commit")

    join(third, "third")
    wait_for_shares([first, third], topic)
    third.kill()
    wait_for_shares([first], topic)
    wait_for_records([first], write(3))
    first.ask("commit")
    ends = dict.fromkeys(range(PARTITIONS), 40)
    assert first.committed(group, topic, ends) == ends
    assert reference.committed(group, topic, ends) == ends

    first.ask("leave")
    until(
        lambda: reference.ask("group", group=group),
        lambda seen: seen == {"state": "EMPTY", "members": [], "held": []},
        "the group is empty",
    )


@pytest.mark.parametrize(("client", "protocol", "assignor"), GROUPS)
def test_a_member_goes_on_where_the_group_was(
    client: Client,
    protocol: str,
    assignor: str,
    peers: Peers,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(partitions=PARTITIONS), unique("group")
    sent = reference.produce(topic, numbered(40, PARTITIONS))
    member = peers(client)
    reference.ask("set_offsets", group=group, offsets=[[topic, 1, 4, "here"], [topic, 2, 10, ""]])
    member.join(group, [topic], protocol=protocol, assignor=assignor)
    expected = [record for record in sent if (record.offset or 0) >= {1: 4, 2: 10}.get(record.partition, 0)]
    wait_for_records([member], expected)
