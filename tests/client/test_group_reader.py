"""Members of a group: commits follow what is done, and partitions move."""

import threading
import time
from collections.abc import Callable

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.group_reader import GroupReader
from headwater.client.groups import Groups
from headwater.errors import UnknownTopic

Write = Callable[..., None]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


def take(reader: GroupReader, wanted: int, *, done: bool = True) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 30
    for batch in reader.batches():
        found += [(record.value() or b"").decode() for record in batch]
        if done:
            reader.done(batch)
        if len(found) >= wanted:
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} records came"
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_after_what_was_done(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write, protocol: str
) -> None:
    connection = Connection(connection.bootstrap, {"group.protocol": protocol})
    admin.create_topic(topic)
    write(topic, "a", "b")
    with GroupReader(connection, group, [topic], unread="earliest") as reader:
        assert take(reader, 2) == ["a", "b"]
    assert Groups(admin).committed(group) == {(topic, 0): 2}
    write(topic, "c")
    with GroupReader(connection, group, [topic], unread="earliest") as reader:
        assert take(reader, 1) == ["c"]
    assert Groups(admin).committed(group) == {(topic, 0): 3}


def test_what_is_not_done_is_not_committed(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, *"abc")
    with GroupReader(connection, group, [topic], unread="earliest") as reader:
        for batch in reader.batches():
            if batch:
                reader.done(batch[:1])
                break
    assert Groups(admin).committed(group) == {(topic, 0): 1}


def test_commits_without_waiting_arrive(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "a")
    groups = Groups(admin)
    with GroupReader(connection, group, [topic], unread="earliest") as reader:
        take(reader, 1)
        reader.commit()
        deadline = time.monotonic() + 10
        while groups.committed(group) != {(topic, 0): 1}:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_to_the_end_and_no_further(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic, 3)
    for partition in range(3):
        write(topic, f"{partition}", partition=partition)
    with GroupReader(connection, group, [topic], unread="earliest", to_end=True) as reader:
        write(topic, "late", partition=0)
        assert sorted(take(reader, 99)) == ["0", "1", "2"]
    assert Groups(admin).committed(group) == {(topic, partition): 1 for partition in range(3)}


def test_a_new_group_starts_at_the_end_when_told_so(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write
) -> None:
    admin.create_topic(topic)
    write(topic, "before")
    with GroupReader(connection, group, [topic], unread="latest", to_end=True) as reader:
        assert take(reader, 99) == []


def test_an_unknown_topic_is_refused_before_joining(connection: Connection, topic: str, group: str) -> None:
    with pytest.raises(UnknownTopic, match="there is no such topic"):
        GroupReader(connection, group, [topic])


@pytest.mark.parametrize("to_end", [False, True])
def test_a_topic_deleted_under_the_group_is_an_error(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write, to_end: bool
) -> None:
    admin.create_topic(topic)
    write(topic, "a")
    quick = Connection(connection.bootstrap, {"topic.metadata.refresh.interval.ms": "500"})
    reader = GroupReader(quick, group, [topic], unread="earliest", to_end=to_end)
    with reader, pytest.raises(UnknownTopic, match="it is not there any more"):
        if to_end:
            write(topic, "b")
            reader._ends[topic, 0] = 3  # an end that cannot be reached any more
        deleted = False
        deadline = time.monotonic() + 30
        for batch in reader.batches():
            if batch and not deleted:
                deleted = True
                admin.delete_topic(topic)
            assert time.monotonic() < deadline


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share_the_partitions_and_repeat_nothing(
    connection: Connection, admin: Admin, topic: str, group: str, write: Write, protocol: str
) -> None:
    connection = Connection(connection.bootstrap, {"group.protocol": protocol})
    admin.create_topic(topic, 4)
    seen: dict[str, list[str]] = {"first": [], "second": []}
    enough = threading.Event()

    def member(name: str) -> None:
        with GroupReader(connection, group, [topic], unread="earliest") as reader:
            for batch in reader.batches():
                seen[name] += [(record.value() or b"").decode() for record in batch]
                reader.done(batch)
                if enough.is_set():
                    return

    first = threading.Thread(target=member, args=("first",))
    second = threading.Thread(target=member, args=("second",))
    sent: list[str] = []

    def send_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            for partition in range(4):
                sent.append(f"{len(sent)}")
                write(topic, sent[-1], partition=partition)
            assert time.monotonic() < deadline, {name: len(found) for name, found in seen.items()}
            time.sleep(0.1)

    try:
        first.start()
        send_until(lambda: bool(seen["first"]))
        second.start()
        send_until(lambda: bool(seen["second"]))
        deadline = time.monotonic() + 30
        while len(seen["first"]) + len(seen["second"]) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        enough.set()
        first.join(30)
        second.join(30)
    assert sorted(seen["first"] + seen["second"], key=int) == sent
    assert sum(Groups(admin).committed(group).values()) == len(sent)
