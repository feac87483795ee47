"""What is forgotten, and when."""

import asyncio

from headwater.broker.messages import duration
from headwater.errors import DiskFull
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script, assignment, committed
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World

DAY = 24 * 60 * 60
OUTSIDE = {"generation_id_or_member_epoch": -1, "member_id": ""}
FULL = DiskFull("append to", "__consumer_offsets-0", "no space left on device")


def speaking(world: World) -> Script:
    return Script(world.call, world.topics.ids, "")


async def committed_topics(world: World, group: str) -> set[str]:
    response = await world.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
    return {topic.name for topic in response.topics}


def names(world: World) -> set[str]:
    return {group.group_id for group in world.groups.overview()}


def test_offsets_of_simple_consumers_expire_a_week_after_their_commit() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.commit("g", 9, -1, "")
        await asyncio.sleep(4 * DAY)
        await k("OffsetCommit", 9, group_id="g", topics=[committed("beta", 0, 1)], **OUTSIDE)
        await asyncio.sleep(4 * DAY)
        assert await committed_topics(world, "g") == {"beta"}
        await asyncio.sleep(4 * DAY)
        assert names(world) == set()
        await world.restart()
        assert names(world) == set() and await committed_topics(world, "g") == set()

    run(program())


def test_a_client_of_old_may_say_how_long_its_offsets_live() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        for days, group in ((1, "short"), (30, "long")):
            retention = duration(days * DAY * 1000)
            topics = [committed("alpha", 0, 5)]
            await k("OffsetCommit", 4, group_id=group, topics=topics, retention_time=retention, **OUTSIDE)
        await world.restart()
        await asyncio.sleep(2 * DAY)
        assert names(world) == {"long"}
        await asyncio.sleep(27 * DAY)
        assert names(world) == {"long"}
        await asyncio.sleep(2 * DAY)
        assert names(world) == set()

    run(program())


def test_offsets_of_a_group_expire_a_week_after_it_became_empty() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        await k.sync("g", joined, {joined.member_id: assignment("alpha", 0)})
        topics = [committed("alpha", 0, 1), committed("beta", 0, 1)]
        member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        await k("OffsetCommit", 9, group_id="g", topics=topics, **member)
        for _ in range(8 * DAY // 9):
            world.groups.classic.heartbeat("g", joined.generation_id, joined.member_id, None)
            await asyncio.sleep(9)
        assert await committed_topics(world, "g") == {"alpha"}, "beta is not read any more"
        await k("LeaveGroup", 5, group_id="g", members=[{"member_id": joined.member_id}])
        await world.restart()
        await asyncio.sleep(6.9 * DAY)
        assert await committed_topics(world, "g") == {"alpha"}
        await asyncio.sleep(0.2 * DAY)
        assert names(world) == set()

    run(program())


def test_offsets_that_a_transaction_would_change_stay() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.commit("g", 9, -1, "")
        transaction = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0}
        await k("TxnOffsetCommit", 3, group_id="g", topics=[committed("alpha", 0, 9)], **transaction)
        await asyncio.sleep(8 * DAY)
        assert await committed_topics(world, "g") == {"alpha"}
        world.end_transaction(7, committed=False)
        await asyncio.sleep(DAY)
        assert names(world) == set()

    run(program())


def test_a_group_without_members_and_offsets_is_gone_after_a_while() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("classic")
        await k("LeaveGroup", 5, group_id="classic", members=[{"member_id": joined.member_id}])
        await k.beat("consumer", "a", 0)
        await k.beat("consumer", "a", -1)
        await k.beat("alive", "a", 0)
        assert names(world) == {"classic", "consumer", "alive"}
        for _ in range(300):
            await asyncio.sleep(3)
            await k.beat("alive", "a", 1)
        assert names(world) == {"alive"}
        await world.restart()
        assert names(world) == {"alive"}

    run(program())


def test_what_could_not_be_deleted_is_deleted_later() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.commit("g", 9, -1, "")
        await k.commit("h", 9, -1, "")
        world.journal.failure = FULL
        assert codes(await k("DeleteGroups", 2, groups_names=("h",))) == "not_coordinator"
        world.topics.delete("alpha")
        await world.groups.topic_deleted("alpha")
        assert names(world) == {"g", "h"} and await committed_topics(world, "g") == {"alpha"}
        world.journal.failure = None
        await asyncio.sleep(700)
        assert names(world) == set()

    run(program())


def test_a_deleted_group_waits_for_nobody_and_takes_nobody_in() -> None:
    """A member that joins while its group is being deleted joins a new one."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.commit("g", 9, -1, "")
        world.journal.delay = 1
        deletion = asyncio.create_task(k("DeleteGroups", 2, groups_names=("g",)))
        await asyncio.sleep(0.1)
        classic = asyncio.create_task(k.join("g"))
        assert codes(await deletion) == "none"
        joined = await classic
        assert joined.generation_id == 1 and await committed_topics(world, "g") == set()
        again = await k("DeleteGroups", 2, groups_names=("g",))
        assert codes(again) == "non_empty_group"

    run(program())
