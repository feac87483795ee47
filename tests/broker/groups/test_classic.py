"""The classic protocol where Apache Kafka cannot be made to show it: failing journals, limits, restarts."""

import asyncio
import time

from headwater.broker.messages import duration
from headwater.errors import DiskFull
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script, assignment
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World

FULL = DiskFull("append to", "__consumer_offsets-0", "no space left on device")


def speaking(world: World) -> Script:
    return Script(world.call, world.topics.ids, "")


def test_an_assignment_that_was_not_written_is_not_given_out() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        world.journal.failure = FULL
        assert codes(await k.sync("g", joined, {joined.member_id: b"x"})) == "not_coordinator"
        # The group rebalances: the member is to join again, and then all is well.
        assert codes(await k.heartbeat("g", joined)) == "rebalance_in_progress"
        world.journal.failure = None
        again = await k("JoinGroup", 9, **k.join_fields("g", member_id=joined.member_id))
        assert (await k.sync("g", again, {joined.member_id: b"x"})).assignment == b"x"

    run(program())


def test_no_member_has_its_assignment_before_the_journal_has_it() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        first_join = k.begin("JoinGroup", 3, **k.join_fields("g"))
        second_join = k.begin("JoinGroup", 3, **k.join_fields("g"))
        first, second = await first_join, await second_join
        world.journal.delay = 1
        given = {first.member_id: b"1", second.member_id: b"2"}
        follower = asyncio.create_task(k.sync("g", second, {}, protocol_type="consumer"))
        leader = asyncio.create_task(k.sync("g", first, given, protocol_type="consumer"))
        await asyncio.sleep(0.5)
        assert not follower.done() and not leader.done()
        assert [group.state for group in world.groups.overview()] == ["CompletingRebalance"]
        await asyncio.sleep(1)
        assert (leader.result().assignment, follower.result().assignment) == (b"1", b"2")

    run(program())


def test_a_member_that_comes_while_the_assignment_is_written_makes_it_void() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        first = await k.join("g", 3)
        world.journal.delay = 1
        sync = asyncio.create_task(k.sync("g", first, {first.member_id: b"x"}, protocol_type="consumer"))
        await asyncio.sleep(0.5)
        newcomer = k.begin("JoinGroup", 3, **k.join_fields("g"))
        assert codes(await sync) == "rebalance_in_progress"
        await asyncio.sleep(1)
        assert [group.state for group in world.groups.overview()] == ["PreparingRebalance"]
        again = await k("JoinGroup", 3, **k.join_fields("g", member_id=first.member_id))
        assert again.generation_id == (await newcomer).generation_id == first.generation_id + 1

    run(program())


def test_a_leader_that_sends_its_sync_again_gets_one_answer_for_both() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        world.journal.delay = 1
        first = asyncio.create_task(k.sync("g", joined, {joined.member_id: b"x"}))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(k.sync("g", joined, {joined.member_id: b"x"}))
        await asyncio.sleep(0.1)
        first.cancel()  # its connection is gone
        assert (await second).assignment == b"x"

    run(program())


def test_a_join_sent_again_on_another_connection_lets_go_of_the_first() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        first = await k.join("g", 3)
        newcomer = k.begin("JoinGroup", 3, **k.join_fields("g"))
        other = k.begin("JoinGroup", 3, **k.join_fields("g"))
        await asyncio.sleep(0.1)
        held = world.groups.registry.classic("g")
        assert held is not None
        member = next(m for m in held.members if m != first.member_id)
        again = k.begin("JoinGroup", 3, **k.join_fields("g", member_id=member))
        await asyncio.sleep(0.1)
        assert sorted(codes(task.result()) for task in (newcomer, other) if task.done()) == [
            "rebalance_in_progress"
        ]
        await k("JoinGroup", 3, **k.join_fields("g", member_id=first.member_id))
        assert (await again).member_id == member

    run(program())


def test_a_static_member_is_only_back_when_the_journal_says_so() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        one = {"group_instance_id": "one"}
        first = await k.join("g", **one)
        await k.sync("g", first, {first.member_id: b"x"}, **one)
        world.journal.failure = FULL
        assert codes(await k("JoinGroup", 9, **k.join_fields("g", **one))) == "not_coordinator"
        world.journal.failure = None
        back = await k("JoinGroup", 9, **k.join_fields("g", **one))
        assert back.generation_id == first.generation_id
        assert (await k.sync("g", back, {}, **one)).assignment == b"x"
        await world.restart()
        k = speaking(world)
        assert codes(await k.heartbeat("g", back, **one)) == "none"
        assert codes(await k.heartbeat("g", first, **one)) == "fenced_instance_id"

    run(program())


def test_static_members_are_waited_for_until_their_sessions_end() -> None:
    """A rebalance that nobody joins ends nothing: static members are expected to come back."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        one, two = {"group_instance_id": "one"}, {"group_instance_id": "two"}
        first_join = k.begin("JoinGroup", 9, **k.join_fields("g", **one))
        second_join = k.begin("JoinGroup", 9, **k.join_fields("g", **two))
        first, second = await first_join, await second_join
        await asyncio.gather(
            k.sync("g", first, {first.member_id: b"1", second.member_id: b"2"}, **one),
            k.sync("g", second, {}, **two),
        )
        passing = k.begin("JoinGroup", 3, **k.join_fields("g"))
        await asyncio.sleep(0.1)
        group = world.groups.registry.classic("g")
        assert group is not None
        newcomer = next(m for m in group.members if m not in (first.member_id, second.member_id))
        await k("LeaveGroup", 5, group_id="g", members=[{"member_id": newcomer}])
        assert codes(await passing) == "unknown_member_id"
        for _ in range(3):
            await asyncio.sleep(3.1)  # the rebalance time-out
            assert codes(await k.heartbeat("g", first, **one)) == "rebalance_in_progress"
            assert set(group.members) >= {first.member_id}
        again = await k("JoinGroup", 9, **k.join_fields("g", member_id=first.member_id, **one))
        assert again.generation_id == first.generation_id + 1
        assert [member.member_id for member in again.members] == [first.member_id], "two gave no sign of life"

    run(program())


def test_members_from_the_journal_have_a_session_to_come_back() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        stays, goes = (
            k.begin("JoinGroup", 3, **k.join_fields("g")),
            k.begin("JoinGroup", 3, **k.join_fields("g")),
        )
        first, second = await stays, await goes
        await asyncio.gather(
            k.sync("g", first, {first.member_id: b"1", second.member_id: b"2"}, protocol_type="consumer"),
            k.sync("g", second, {}, protocol_type="consumer"),
        )
        await asyncio.sleep(9)
        await world.restart()
        k = speaking(world)
        for _ in range(3):
            await asyncio.sleep(3)
            assert codes(await k.heartbeat("g", first)) == "none", "nobody's session is over yet"
        await asyncio.sleep(2)
        assert codes(await k.heartbeat("g", first)) == "rebalance_in_progress", "the other is out"
        again = await k("JoinGroup", 3, **k.join_fields("g", member_id=first.member_id))
        assert again.generation_id == first.generation_id + 1 and len(again.members) == 1

    run(program())


def test_a_restart_between_join_and_sync_makes_members_join_again() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        await world.restart()
        k = speaking(world)
        assert codes(await k.sync("g", joined, {joined.member_id: b"x"})) == "unknown_member_id"
        assert codes(await k.join("g")) == "none"

    run(program())


def test_held_requests_are_answered_when_the_broker_stops() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g", 3)
        await k.sync("g", joined, {joined.member_id: b"x"}, protocol_type="consumer")
        held = k.begin("JoinGroup", 3, **k.join_fields("g"))
        await asyncio.sleep(0.1)
        await world.groups.stop()
        assert codes(await held) == "not_coordinator"

    run(program())


def test_a_full_group_takes_nobody() -> None:
    async def program() -> None:
        world = World.started(max_size=2)
        k = speaking(world)
        joins = [k.begin("JoinGroup", 3, **k.join_fields("g")) for _ in range(3)]
        answers = sorted([codes(await join) for join in joins])
        assert answers == ["group_max_size_reached", "none", "none"]
        assert codes(await k("JoinGroup", 9, **k.join_fields("g"))) == "group_max_size_reached"
        # Ids that nobody uses are bounded as well.
        asked = [codes(await k("JoinGroup", 9, **k.join_fields("other"))) for _ in range(3)]
        assert asked == ["member_id_required", "member_id_required", "group_max_size_reached"]

    run(program())


def test_groups_that_nobody_joined_vanish() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        for number in range(100):
            await k("JoinGroup", 9, **k.join_fields(f"made-up-{number}"))
            await k("JoinGroup", 9, **k.join_fields(f"refused-{number}", protocols=[]))
            await k("JoinGroup", 9, **k.join_fields(f"unknown-{number}", member_id="x"))
            await k.heartbeat(f"unknown-{number}", _Joined)
        assert len(world.groups.overview()) == 100
        await asyncio.sleep(11)
        assert world.groups.overview() == []
        assert len(world.groups.registry.timers) == 1, "only the one that looks for expired offsets"
        assert world.journal.entries == []

    run(program())


class _Joined:
    generation_id = 1
    member_id = "x"


def test_a_new_member_that_nobody_waits_for_is_dropped_in_the_end() -> None:
    """Its join is held by a member that neither dies nor joins again."""

    async def program() -> None:
        world = World.started(new_member_join_timeout_ms=20_000)
        k = speaking(world)
        patient = {"rebalance_timeout": duration(600_000), "session_timeout": duration(600_000)}
        first = await k.join("g", 3, **patient)
        await k.sync("g", first, {first.member_id: b""}, protocol_type="consumer")
        newcomer = k.begin("JoinGroup", 3, **k.join_fields("g", **patient))
        await asyncio.sleep(21)
        assert newcomer.done() and codes(newcomer.result()) == "unknown_member_id"
        group = world.groups.registry.classic("g")
        assert group is not None and list(group.members) == [first.member_id]

    run(program())


def test_commits_keep_a_member_alive() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.join("g")
        await k.sync("g", joined, {joined.member_id: assignment("alpha", 0)})
        for _ in range(5):
            await asyncio.sleep(8)
            assert codes(await k.commit("g", 9, joined.generation_id, joined.member_id)) == "none"
        await asyncio.sleep(11)
        assert codes(await k.commit("g", 9, joined.generation_id, joined.member_id)) == "unknown_member_id"

    run(program())


def test_a_heartbeat_costs_the_same_in_a_large_group() -> None:
    async def program() -> None:
        world = World.started(max_size=20_000)
        k = speaking(world)

        async def cost_of_a_heartbeat(group: str, members: int) -> float:
            joins = [k.begin("JoinGroup", 3, **k.join_fields(group)) for _ in range(members)]
            joined = [await join for join in joins]
            leader = next(answer for answer in joined if answer.members)
            assert len(leader.members) == members
            parts = {answer.member_id: b"x" for answer in joined}
            await k.sync(group, leader, parts, protocol_type="consumer")
            costs = []
            for _ in range(5):  # the least disturbed one counts
                begun = time.process_time()
                for answer in joined:
                    world.groups.classic.heartbeat(group, answer.generation_id, answer.member_id, None)
                costs.append(time.process_time() - begun)
            return min(costs) / members

        small, large = await cost_of_a_heartbeat("small", 200), await cost_of_a_heartbeat("large", 10_000)
        assert large < 15 * small, "a walk over the members would cost fifty times as much"

    run(program())
