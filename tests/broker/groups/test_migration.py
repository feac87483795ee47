"""Groups that change their protocol at the worst moments."""

import asyncio

from headwater.errors import DiskFull
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script, assignment
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World

FULL = DiskFull("append to", "__consumer_offsets-0", "no space left on device")


def speaking(world: World) -> Script:
    return Script(world.call, world.topics.ids, "")


def test_a_sync_that_meets_an_upgrade_is_sent_back_to_join() -> None:
    """Else the journal would have the classic group after the new one."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        world.journal.delay = 1
        upgrade = asyncio.create_task(k.beat("g", "new", 0))
        await asyncio.sleep(0.5)
        refused = await k.sync("g", joined, {joined.member_id: assignment("alpha", 0, 1, 2)})
        assert codes(refused) == "rebalance_in_progress"
        assert codes(await upgrade) == "none"
        await asyncio.sleep(2)
        await world.restart()
        assert [group.group_type for group in world.groups.overview()] == ["consumer"]

    run(program())


def test_an_upgrade_waits_for_an_assignment_that_is_being_written() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        world.journal.delay = 1
        sync = asyncio.create_task(k.sync("g", joined, {joined.member_id: assignment("alpha", 0, 1, 2)}))
        await asyncio.sleep(0.5)
        new = await k.beat("g", "new", 0)
        assert sync.done() and codes(sync.result()) == "none"
        assert new.assignment is not None and not new.assignment.topic_partitions, "all belongs to the first"

    run(program())


def test_an_upgrade_that_was_not_written_leaves_the_classic_group_at_work() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        world.journal.failure, world.journal.delay = FULL, 3
        upgrade = asyncio.create_task(k.beat("g", "new", 0))
        await asyncio.sleep(0.5)
        world.journal.failure, world.journal.delay = None, 0
        assert codes(await k.heartbeat("g", joined)) == "none"
        assert codes(await upgrade) == "not_coordinator"
        synced = await k.sync("g", joined, {joined.member_id: b"x"})
        assert synced.assignment == b"x"
        await asyncio.sleep(20)
        assert world.groups.overview()[0].state == "Empty", "sessions end as ever"

    run(program())


def test_what_a_member_has_not_given_up_is_remembered_through_a_downgrade() -> None:
    """The group goes to the new protocol, back, and to the new one again before its member has noticed."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        await k.sync("g", joined, {joined.member_id: assignment("alpha", 0, 1, 2)})
        await k.beat("g", "new", 0)
        await k.beat("g", "new", -1)
        assert [group.group_type for group in world.groups.overview()] == ["classic"]
        newer = await k.beat("g", "newer", 0)
        assert not newer.assignment.topic_partitions, "the classic member still reads all of them"

    run(program())


def test_members_learn_of_a_downgrade_even_from_a_restarted_broker() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "new", 0)
        joined = await k.join("g")
        await k.sync("g", joined, {})
        await k.beat("g", "new", -1)
        await world.restart()
        k = speaking(world)
        assert codes(await k.heartbeat("g", joined)) == "illegal_generation"
        again = await k.join("g", member_id=joined.member_id)
        assert codes(again) == "none"

    run(program())


def test_a_member_of_each_protocol_survives_a_restart_of_the_broker() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "new", 0)
        joined = await k.join("g")
        await k.sync("g", joined, {})
        await world.restart()
        k = speaking(world)
        await k.beat("g", "new", 1, topic_partitions=k.owned(alpha=(0, 1, 2)))
        await k.beat("g", "new", 1, topic_partitions=k.owned(alpha=(0, 1)))
        assert codes(await k.heartbeat("g", joined)) == "rebalance_in_progress", "its partition is free"
        again = await k("JoinGroup", 9, **k.join_fields("g", member_id=joined.member_id))
        assert (await k.sync("g", again, {})).assignment == assignment("alpha", 2)

    run(program())
