"""Groups that change their protocol at the worst moments."""

import asyncio
from typing import Any

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


async def _static_with_another(k: Script) -> tuple[Any, Any]:
    """A static member that reads partition 0 of alpha, and another that reads the rest."""
    static = await k.join("g", group_instance_id="s")
    other = asyncio.create_task(k.join("g"))
    await asyncio.sleep(0.1)
    static = await k.join("g", group_instance_id="s", member_id=static.member_id)
    joined = await other
    given = {static.member_id: assignment("alpha", 0), joined.member_id: assignment("alpha", 1, 2)}
    await asyncio.gather(
        k.sync("g", static, given if static.leader == static.member_id else {}, group_instance_id="s"),
        k.sync("g", joined, given if static.leader == joined.member_id else {}),
    )
    return static, joined


def test_a_static_member_that_comes_back_with_the_new_protocol_keeps_what_it_had() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        static, _ = await _static_with_another(k)
        back = await k.beat("g", "new", 0, instance_id="s")
        assert back.member_epoch == static.generation_id, "nothing has changed: the group does not rebalance"
        assert [each.partitions for each in back.assignment.topic_partitions] == [(0,)]

    run(program())


def test_what_a_member_has_left_is_read_when_a_static_one_comes_back_with_the_new_protocol() -> None:
    """The group is between two assignments, and of the one it had a part belongs to nobody."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        _, other = await _static_with_another(k)
        left = await k("LeaveGroup", 5, group_id="g", members=[{"member_id": other.member_id}])
        assert codes(left) == ["none", "none"]
        back = await k.beat("g", "new", 0, instance_id="s")
        assert [each.partitions for each in back.assignment.topic_partitions] == [(0, 1, 2)]

    run(program())


def test_partitions_that_a_classic_leader_gave_to_nobody_are_read_after_an_upgrade() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        static = await k.join("g", group_instance_id="s")
        await k.sync("g", static, {static.member_id: assignment("alpha", 1)}, group_instance_id="s")
        back = await k.beat("g", "new", 0, instance_id="s")
        assert [each.partitions for each in back.assignment.topic_partitions] == [(0, 1, 2)]

    run(program())
