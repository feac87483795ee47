"""Every client finds offsets by time, and keeps those of a group."""

from collections.abc import Callable

import pytest

from tests.clients.matrix import Client, able
from tests.clients.peer import Peer
from tests.clients.records import START, Record, numbered

Peers = Callable[[Client], Peer]


@pytest.mark.parametrize("client", able("offset_at"), ids=str)
def test_offsets_by_time(
    client: Client, peers: Peers, reference: Peer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    # Times need not rise with the offsets: the answer is the first record that is not earlier.
    times = [0, 100, 50, 200, 200, 150, 300]
    records = [Record(None, str(time).encode(), (), START + time) for time in times]
    reference.produce(topic, records[:4], codec="lz4")
    reference.produce(topic, records[4:])
    asker = peers(client)
    asked = {-2: 0, -1: 7}
    asked |= {
        START + time: offset
        for time, offset in {-1000: 0, 0: 0, 1: 1, 50: 1, 100: 1, 101: 3, 200: 3, 201: 6, 300: 6}.items()
    }
    assert {time: asker.ask("offset_at", topic=topic, partition=0, timestamp=time) for time in asked} == asked


@pytest.mark.parametrize("client", able("set_offsets"), ids=str)
def test_offsets_are_kept_with_their_text(
    client: Client,
    peers: Peers,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(partitions=3), unique("group")
    reference.produce(topic, numbered(30, 3))
    one = peers(client)
    partitions = [[topic, 0], [topic, 1], [topic, 2]]
    assert one.ask("committed", group=group, partitions=partitions) == [
        [topic, 0, None, ""], [topic, 1, None, ""], [topic, 2, None, ""],
    ]  # fmt: skip
    one.ask("set_offsets", group=group, offsets=[[topic, 0, 3, "three ✓"], [topic, 2, 0, ""]])
    for asker in (one, reference):
        found = asker.ask("committed", group=group, partitions=partitions)
        assert [offset for _, _, offset, _ in found] == [3, None, 0]
        # Not equal, for one client reads past the end of the text.
        assert found[0][3].startswith("three ✓")
    one.ask("set_offsets", group=group, offsets=[[topic, 0, 1, ""]])
    assert one.committed(group, topic, [0, 1, 2]) == {0: 1, 1: None, 2: 0}
