"""Members with a group.instance.id keep their partitions over a restart, and there is only one of each."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.clients.matrix import Client, clients
from tests.clients.peer import Peer
from tests.clients.records import Record, in_order, numbered
from tests.clients.waiting import until

Peers = Callable[[Client], Peer]
STATIC = [
    pytest.param(client, protocol, id=f"{client}-{protocol}")
    for client in clients()
    for protocol in sorted({protocol for protocol, _ in client.groups})
    if protocol in client.static
]


@pytest.mark.parametrize(("client", "protocol"), STATIC)
def test_a_restarted_member_has_its_partitions_back(
    client: Client,
    protocol: str,
    peers: Peers,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    one, two, again = peers(client), peers(client), peers(client)

    def join(peer: Peer, instance: str) -> None:
        peer.join(group, [topic], protocol=protocol, session_ms=30_000, instance=instance)

    join(one, "one")
    until(one.assigned, lambda held: len(held) == 4, "the first member has all partitions")
    join(two, "two")
    until(lambda: (len(one.assigned()), len(two.assigned())), lambda held: held == (2, 2), "each has two")
    before = (one.assigned(), two.assigned())
    assert before[0] | before[1] == {(topic, partition) for partition in range(4)}

    if protocol == "classic":
        two.kill()
    else:
        two.ask("leave")  # in this protocol a seat whose holder died is free only when its session has ended
    join(again, "two")
    # Well before the session of the other has ended.
    until(again.assigned, lambda held: held == before[1], "the restarted member has what it had", timeout=8)
    assert one.assigned() == before[0]
    sent = reference.produce(topic, numbered(8, 4))
    taken: list[Record] = []

    def look() -> int:
        taken.extend(one.taken() + again.taken())
        return len(taken)

    until(look, lambda count: count >= 8, "the records are taken")
    assert in_order(taken) == in_order(sent)


@pytest.mark.parametrize(
    ("protocol", "refused", "words"),
    [
        ("classic", "old", "Static consumer fenced by other consumer with same group.instance.id"),
        ("consumer", "new", "The instance ID is still used by another member in the consumer group"),
    ],
    ids=["classic", "consumer"],
)
def test_there_is_one_member_of_an_instance(
    bootstrap: str,
    protocol: str,
    refused: str,
    words: str,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(), unique("group")

    def join() -> Consumer:
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "group.instance.id": "the one",
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 300}
        consumer = Consumer(config)
        consumer.subscribe([topic])
        return consumer

    def look() -> dict[str, tuple[int, str | None]]:
        """How many partitions each member holds, and the error that ended it."""
        for name, member in members.items():
            message = member.poll(0.05)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError._FATAL:
                ended[name] = error.str()
        return {name: (len(member.assignment()), ended.get(name)) for name, member in members.items()}

    members = {"old": join()}
    ended: dict[str, str] = {}
    until(look, lambda seen: seen == {"old": (1, None)}, "the first has the partition")
    members["new"] = join()
    until(look, lambda seen: seen[refused][1] is not None, f"the {refused} one is refused")
    kept = "new" if refused == "old" else "old"
    until(look, lambda seen: seen[kept] == (1, None), f"the {kept} one has the partition")
    for member in members.values():
        member.close()
    assert words in ended[refused]
