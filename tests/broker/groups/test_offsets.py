"""Offsets: durable before they are seen, exact in transactions, and as their groups allow."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DiskFull, StaleProducerEpoch
from tests.broker.groups.calling import codes
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World, offsets

FULL = DiskFull("append to", "__consumer_offsets-0", "no space left on device")


async def commit(world: World, group: str = "g", *positions: tuple[int, int]) -> str:
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    return codes(await world.call("OffsetCommit", 9, topics=offsets("alpha", *positions), **fields))


async def commit_in(world: World, producer: int, group: str, *positions: tuple[int, int]) -> str:
    fields = {"group_id": group, "transactional_id": "t", "producer_id": producer, "producer_epoch": 0}
    response = await world.call("TxnOffsetCommit", 3, topics=offsets("alpha", *positions), **fields)
    return codes(response)


async def fetch(world: World, group: str = "g", stable: bool = False) -> dict[int, Any]:
    response = await world.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=stable)
    return {
        p.partition_index: p.error_code.name if p.error_code else p.committed_offset
        for topic in response.topics
        for p in topic.partitions
    }


def test_a_commit_is_not_seen_before_it_is_durable() -> None:
    async def program() -> None:
        world = World.started()
        await commit(world, "g", (0, 1))
        world.journal.delay = 1
        second = asyncio.create_task(commit(world, "g", (0, 2), (1, 7)))
        await asyncio.sleep(0.5)
        assert await fetch(world) == {0: 1}
        assert await second == ["none", "none"]
        assert await fetch(world) == {0: 2, 1: 7}

    run(program())


def test_a_commit_that_was_not_written_is_refused_and_not_seen() -> None:
    async def program() -> None:
        world = World.started()
        world.journal.failure = FULL
        assert await commit(world, "new", (0, 1)) == "not_coordinator"
        assert await fetch(world, "new") == {}
        assert world.groups.overview() == [], "a refused commit makes no group"
        world.journal.failure = None
        await commit(world, "g", (0, 1))
        world.journal.failure = FULL
        assert await commit(world, "g", (0, 2)) == "not_coordinator"
        assert await fetch(world) == {0: 1}
        world.journal.failure = None
        assert await commit(world, "g", (0, 2)) == "none"
        assert await fetch(world) == {0: 2}

    run(program())


def test_commits_under_way_together_end_in_the_order_of_the_journal() -> None:
    async def program() -> None:
        world = World.started()
        world.journal.delay = 3
        slow = asyncio.create_task(commit(world, "g", (0, 1)))
        await asyncio.sleep(0.1)
        world.journal.delay = 1
        await commit(world, "g", (0, 2))
        await slow
        assert await fetch(world) == {0: 2}
        await world.restart()
        assert await fetch(world) == {0: 2}

    run(program())


def test_a_cancelled_commit_counts_if_the_journal_has_it() -> None:
    async def program() -> None:
        world = World.started()
        world.journal.delay = 1
        task = asyncio.create_task(commit(world, "g", (0, 5)))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.sleep(1)
        assert await fetch(world) == {0: 5}

    run(program())


def test_the_end_of_a_transaction_that_overtakes_a_commit_waits_for_it() -> None:
    """The marker is behind the commit in the journal, but the commit's answer comes later."""

    async def program() -> None:
        for committed in (True, False):
            world = World.started()
            world.journal.delay = 1
            task = asyncio.create_task(commit_in(world, 7, "g", (0, 5)))
            await asyncio.sleep(0.5)
            world.end_transaction(7, committed)
            await task
            await asyncio.sleep(0)
            assert await fetch(world, stable=True) == ({0: 5} if committed else {})
            assert world.groups.registry.offsets.pending_groups(7) == frozenset()

    run(program())


def test_a_commit_after_a_transactional_one_outlives_the_transaction() -> None:
    """The later one in the journal counts, not the one that became visible later."""

    async def program() -> None:
        world = World.started()
        await commit_in(world, 7, "g", (0, 5), (1, 6))
        await commit(world, "g", (0, 50))
        world.end_transaction(7, committed=True)
        assert await fetch(world) == {0: 50, 1: 6}
        await world.restart()
        assert await fetch(world) == {0: 50, 1: 6}

    run(program())


def test_a_fenced_producer_is_told_so() -> None:
    async def program() -> None:
        world = World.started()
        world.journal.failure = StaleProducerEpoch("append for", "producer 7", "epoch 0 is over")
        assert await commit_in(world, 7, "g", (0, 5)) == "invalid_producer_epoch"
        assert await fetch(world, stable=True) == {}
        assert world.groups.overview() == []

    run(program())


def test_an_aborted_transaction_leaves_no_group_behind() -> None:
    async def program() -> None:
        world = World.started()
        await commit_in(world, 7, "g", (0, 5))
        assert [group.group_id for group in world.groups.overview()] == ["g"]
        world.end_transaction(7, committed=False)
        assert world.groups.overview() == []

    run(program())


def test_a_deleted_group_takes_pending_offsets_with_it() -> None:
    async def program() -> None:
        world = World.started()
        await commit(world, "g", (0, 1))
        await commit_in(world, 7, "g", (1, 5))
        await world.call("DeleteGroups", 2, groups_names=("g",))
        world.end_transaction(7, committed=True)
        assert await fetch(world) == {}
        await world.restart()
        assert await fetch(world) == {}

    run(program())


def test_a_commit_that_is_on_its_way_survives_the_deletion_of_its_group() -> None:
    async def program() -> None:
        world = World.started()
        await commit(world, "g", (0, 1))
        world.journal.delay = 2
        task = asyncio.create_task(commit(world, "g", (1, 9)))
        await asyncio.sleep(0.1)
        world.journal.delay = 0
        assert codes(await world.call("DeleteGroups", 2, groups_names=("g",))) == "none"
        await task
        live = await fetch(world), [group.group_id for group in world.groups.overview()]
        await world.restart()
        assert live == (await fetch(world), [group.group_id for group in world.groups.overview()])
        assert live == ({1: 9}, ["g"])

    run(program())


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    async def program() -> None:
        world = World.started()
        await commit(world, "g", (0, 1))
        await commit_in(world, 7, "g", (1, 5))
        await commit(world, "only alpha", (2, 2))
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        await world.call("OffsetCommit", 9, topics=offsets("beta", (1, 8)), **fields)
        world.topics.delete("alpha")
        await world.groups.topic_deleted("alpha")
        world.topics.create("alpha", 3)
        world.end_transaction(7, committed=True)
        assert await fetch(world) == {1: 8}
        assert [group.group_id for group in world.groups.overview()] == ["g"]
        await world.restart()
        assert await fetch(world) == {1: 8}

    run(program())


operations = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 2), st.integers(0, 99)),
        st.tuples(st.just("commit in"), st.integers(0, 2), st.integers(0, 99), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 2)),
        st.tuples(st.just("delete group")),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(operations)
def test_offsets_are_those_of_a_simple_model(steps: list[Any]) -> None:
    """The model: a list of what happened, read from its start each time, as a log is."""

    async def program() -> None:
        world, history = World.started(), []
        for step in steps:
            match step:
                case "commit", partition, offset:
                    assert await commit(world, "g", (partition, offset)) == "none"
                case "commit in", partition, offset, producer:
                    assert await commit_in(world, producer, "g", (partition, offset)) == "none"
                case "end", producer, committed:
                    world.end_transaction(producer, committed)
                case "delete", partition:
                    topics = [{"name": "alpha", "partitions": [{"partition_index": partition}]}]
                    await world.call("OffsetDelete", 0, group_id="g", topics=topics)
                case ("delete group",):
                    await world.call("DeleteGroups", 2, groups_names=("g",))
                case ("restart",):
                    await world.restart()
            history.append(step)
            expected, unstable = model(history)
            assert await fetch(world) == expected
            stable = await fetch(world, stable=True)
            assert stable == {
                p: "unstable_offset_commit" if p in unstable else o for p, o in expected.items()
            }

    run(program())


def model(history: list[Any]) -> tuple[dict[int, int], set[int]]:
    order: dict[int, tuple[int, int]] = {}  # partition -> position and offset
    pending: dict[int, dict[int, tuple[int, int]]] = {}
    for position, step in enumerate(history):
        match step:
            case "commit", partition, offset:
                order[partition] = (position, offset)
            case "commit in", partition, offset, producer:
                pending.setdefault(producer, {})[partition] = (position, offset)
            case "end", producer, committed:
                for partition, entry in pending.pop(producer, {}).items():
                    if committed and order.get(partition, (-1, 0)) < entry:
                        order[partition] = entry
            case "delete", partition:
                order.pop(partition, None)
                for offsets_of_producer in pending.values():
                    offsets_of_producer.pop(partition, None)
            case ("delete group",):
                order.clear()
                pending.clear()
    unstable = {partition for entries in pending.values() for partition in entries}
    return {partition: offset for partition, (_, offset) in order.items()}, unstable
