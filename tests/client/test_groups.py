"""Groups seen and moved from outside."""

from collections.abc import Callable

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.group_reader import GroupReader
from headwater.client.groups import Groups
from headwater.errors import GroupActive, UnknownGroup

Write = Callable[..., None]


@pytest.fixture
def groups(admin: Admin) -> Groups:
    return Groups(admin)


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


def consume_all(connection: Connection, group: str, topic: str) -> None:
    with GroupReader(connection, group, [topic], unread="earliest", to_end=True) as reader:
        for batch in reader.batches():
            reader.done(batch)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_described_with_its_members_and_lag(
    connection: Connection, admin: Admin, groups: Groups, topic: str, group: str, write: Write, protocol: str
) -> None:
    admin.create_topic(topic, 2)
    for partition in (0, 1):
        write(topic, "a", "b", partition=partition)
    member = Connection(connection.bootstrap, {"group.protocol": protocol, "client.id": "reader-7"})
    with GroupReader(member, group, [topic], unread="earliest") as reader:
        received = 0
        for batch in reader.batches():
            received += len(batch)
            reader.done([record for record in batch if record.offset() == 0])
            if received == 4:
                break
        reader.commit(wait=True)
        found = groups.get(group)
        assert (found.state, found.type, found.is_active) == ("Stable", protocol, True)
        (only,) = found.members
        assert (only.client, only.host, sorted(only.partitions)) == (
            "reader-7", "127.0.0.1", [(topic, 0), (topic, 1)],
        )  # fmt: skip
        assert [
            (place.partition, place.committed, place.end, place.lag, place.member)
            for place in groups.progress(found)
        ] == [(0, 1, 2, 1, only), (1, 1, 2, 1, only)]
        assert (group, "Stable", protocol, 1) in [
            (summary.name, summary.state, summary.type, summary.members) for summary in groups.summaries()
        ]
        with pytest.raises(GroupActive, match=r"it has 1 active member \(reader-7 on 127\.0\.0\.1\)"):
            groups.refuse_if_active(group, "reset")
        with pytest.raises(GroupActive):
            groups.set_offsets(group, {(topic, 0): 0})
        with pytest.raises(GroupActive):
            groups.delete(group)
    groups.refuse_if_active(group, "reset")
    assert groups.get(group).state == "Empty"


def test_moved_offsets_are_where_the_group_goes_on(
    connection: Connection, admin: Admin, groups: Groups, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, *"abcd")
    consume_all(connection, group, topic)
    groups.set_offsets(group, {(topic, 0): 2})
    with GroupReader(connection, group, [topic], to_end=True) as reader:
        assert [record.value() for batch in reader.batches() for record in batch] == [b"c", b"d"]


def test_offsets_can_be_set_for_a_group_that_never_was(
    admin: Admin, groups: Groups, topic: str, group: str
) -> None:
    admin.create_topic(topic)
    groups.set_offsets(group, {(topic, 0): 0})
    assert groups.committed(group) == {(topic, 0): 0}


def test_a_deleted_group_is_unknown(
    connection: Connection, admin: Admin, groups: Groups, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "a")
    consume_all(connection, group, topic)
    groups.delete(group)
    assert groups.committed(group) == {}
    with pytest.raises(UnknownGroup, match="there is no such group"):
        groups.get(group)
    with pytest.raises(UnknownGroup):
        groups.delete(group)


def test_an_unknown_group_has_near_names(admin: Admin, groups: Groups, topic: str, group: str) -> None:
    admin.create_topic(topic)
    groups.set_offsets(group, {(topic, 0): 0})
    with pytest.raises(UnknownGroup, match=f"Did you mean .*{group}"):
        groups.get(group[:-1] + "x")


def test_a_topic_that_is_gone_is_not_part_of_the_progress(
    connection: Connection,
    admin: Admin,
    groups: Groups,
    group: str,
    unique: Callable[[str], str],
    write: Write,
) -> None:
    gone, kept = unique("gone"), unique("kept")
    for name in (gone, kept):
        admin.create_topic(name)
        groups.set_offsets(group, {(name, 0): 0})
    admin.delete_topic(gone)
    assert [place.topic for place in groups.progress(groups.get(group))] == [kept]
