"""The new protocol where Apache Kafka is slow or cannot be made to show it."""

import asyncio
import uuid

import pytest

from headwater.broker.messages import duration
from headwater.errors import DiskFull
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World

FULL = DiskFull("append to", "__consumer_offsets-0", "no space left on device")


def speaking(world: World) -> Script:
    return Script(world.call, world.topics.ids, "")


def assigned(world: World, response: object) -> dict[str, tuple[int, ...]] | None:
    assignment = response.assignment  # type: ignore[attr-defined]
    if assignment is None:
        return None
    names = {topic_id: name for name, topic_id in world.topics.ids.items()}
    return {names.get(t.topic_id, "?"): t.partitions for t in assignment.topic_partitions}


def test_a_heartbeat_that_was_not_written_changes_nothing() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        world.journal.failure = FULL
        response = await k.beat("g", "a", 0)
        assert codes(response) == "not_coordinator" and response.error_message
        assert world.groups.overview() == []
        world.journal.failure = None
        assert (await k.beat("g", "a", 0)).member_epoch == 1
        world.journal.failure = FULL
        assert codes(await k.beat("g", "b", 0)) == "not_coordinator"
        world.journal.failure = None
        assert (await k.beat("g", "a", 1)).member_epoch == 1, "b never was there"

    run(program())


def test_nobody_sees_an_assignment_before_the_journal_has_it() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        world.journal.delay = 1
        join = asyncio.create_task(k.beat("g", "a", 0))
        other = asyncio.create_task(k.beat("g", "b", 0))
        await asyncio.sleep(0.5)
        assert world.groups.overview() == []
        await asyncio.sleep(0.7)
        assert join.done() and not other.done()
        assert assigned(world, join.result()) == {"alpha": (0, 1, 2)}
        assert assigned(world, await other) == {}

    run(program())


def test_a_cancelled_join_counts_if_the_journal_has_it() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        world.journal.delay = 1
        join = asyncio.create_task(k.beat("g", "a", 0))
        await asyncio.sleep(0.5)
        join.cancel()
        second = await k.beat("g", "b", 0)
        assert second.member_epoch == 2 and assigned(world, second) == {}

    run(program())


def test_a_session_ends_though_the_journal_fails_for_a_while() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        world.journal.failure = FULL
        await asyncio.sleep(8)
        assert codes(await k.beat("g", "a", 1)) == "none", "it is back before it could be taken out"
        await asyncio.sleep(8)
        world.journal.failure = None
        await asyncio.sleep(1)
        assert codes(await k.beat("g", "a", 1)) == "unknown_member_id"

    run(program())


def test_a_heartbeat_that_waits_for_the_journal_keeps_its_member_alive() -> None:
    """The session ends while the heartbeat is held up by another member's write."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        await asyncio.sleep(4.5)
        world.journal.delay = 2
        other = asyncio.create_task(k.beat("g", "b", 0))
        await asyncio.sleep(0.2)
        beat = asyncio.create_task(k.beat("g", "a", 1))
        await asyncio.sleep(1)  # the session would be over
        world.journal.delay = 0
        assert (codes(await other), codes(await beat)) == ("none", "none")
        await asyncio.sleep(1)
        assert codes(await k.beat("g", "a", 1)) == "none"

    run(program())


def test_new_partitions_reach_the_members() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        world.topics.sizes["alpha"] = 5
        assert assigned(world, await k.beat("g", "a", 1)) is None, "it looks once a second"
        world.groups.topics_changed()
        response = await k.beat("g", "a", 1)
        assert (response.member_epoch, assigned(world, response)) == (2, {"alpha": (0, 1, 2, 3, 4)})
        world.topics.sizes["alpha"] = 6
        await asyncio.sleep(1)
        assert assigned(world, await k.beat("g", "a", 2)) == {"alpha": (0, 1, 2, 3, 4, 5)}

    run(program())


def test_a_topic_that_comes_later_is_assigned_then_and_taken_back_when_it_goes() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        joined = await k.beat("g", "a", 0, subscribed_topic_names=("later",))
        assert assigned(world, joined) == {}
        world.topics.create("later", 2)
        await asyncio.sleep(1)
        assert assigned(world, await k.beat("g", "a", 1)) == {"later": (0, 1)}
        was = world.topics.ids["later"]
        world.topics.delete("later")
        await world.groups.topic_deleted("later")
        response = await k.beat("g", "a", 2)
        assert (response.member_epoch, assigned(world, response)) == (2, {}), (
            "it is to give up the partitions"
        )
        gone = await k.beat("g", "a", 2, topic_partitions=())
        assert gone.member_epoch == 3
        world.topics.create("later", 1)
        assert world.topics.ids["later"] != was
        world.groups.topics_changed()
        assert assigned(world, await k.beat("g", "a", 3)) == {"later": (0,)}

    run(program())


def test_a_pattern_stands_for_the_topics_that_match_it() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "(alp|bet).*"}
        joined = await k.beat("g", "a", 0, **pattern)
        assert assigned(world, joined) == {"alpha": (0, 1, 2), "beta": (0, 1)}
        world.topics.create("alpaca", 1)
        world.groups.topics_changed()
        response = await k.beat("g", "a", 1)
        assert assigned(world, response) == {"alpaca": (0,), "alpha": (0, 1, 2), "beta": (0, 1)}
        # A second member with a list of names shares what both read.
        await k.beat("g", "b", 0, subscribed_topic_names=("alpha", "gamma"))
        await world.restart()
        k = speaking(world)
        described = (await k("ConsumerGroupDescribe", 1, group_ids=("g",))).groups[0]
        assert {m.member_id: m.subscribed_topic_regex for m in described.members} == {
            "a": "(alp|bet).*",
            "b": "",
        }
        topics = [{"name": "alpaca", "partitions": [{"partition_index": 0}]}]
        subscribed = await k("OffsetDelete", 0, group_id="g", topics=topics)
        assert codes(subscribed) == ["none", "group_subscribed_to_topic"]
        # Another pattern takes the place of the first, in the journal too.
        changed = await k.beat("g", "a", 2, subscribed_topic_regex="gam.*", topic_partitions=k.owned())
        assert codes(changed) == "none"
        group = world.groups.registry.consumer("g")
        assert group is not None and list(group.patterns) == ["gam.*"]
        await k.beat("g", "a", -1)
        group = world.groups.registry.consumer("g")
        assert group is not None and not group.patterns

    run(program())


def test_the_assignor_is_the_one_most_members_ask_for() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        both = {"subscribed_topic_names": ("alpha", "beta")}
        await k.beat("g", "a", 0, server_assignor="range", **both)
        await k.beat("g", "b", 0, server_assignor="range", **both)
        group = world.groups.registry.consumer("g")
        assert group is not None
        alpha, beta = world.topics.ids["alpha"], world.topics.ids["beta"]
        assert group.targets == {"a": {alpha: (0, 1), beta: (0,)}, "b": {alpha: (2,), beta: (1,)}}

    run(program())


def test_members_from_the_journal_go_on_where_they_were() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        await k.beat("g", "b", 0)
        await k.beat("g", "a", 1, topic_partitions=k.owned(alpha=(0, 1, 2)))  # told to give up 2
        await world.restart()
        k = speaking(world)
        assert assigned(world, await k.beat("g", "b", 2)) is None, "a has not given it up yet"
        await asyncio.sleep(2)
        assert (await k.beat("g", "a", 1, topic_partitions=k.owned(alpha=(0, 1)))).member_epoch == 2
        assert assigned(world, await k.beat("g", "b", 2)) == {"alpha": (2,)}
        await world.restart()
        k = speaking(world)
        await asyncio.sleep(4)
        assert codes(await k.beat("g", "a", 2)) == "none"
        await asyncio.sleep(2)
        assert assigned(world, await k.beat("g", "a", 2)) == {"alpha": (0, 1, 2)}, "b did not come back"

    run(program())


def test_a_member_that_was_revoking_before_a_restart_still_has_to_be_done_in_time() -> None:
    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        await k.beat("g", "b", 0)
        await k.beat("g", "a", 1)
        await world.restart()
        k = speaking(world)
        await asyncio.sleep(2.9)
        assert codes(await k.beat("g", "a", 1)) == "none"
        await asyncio.sleep(0.2)
        assert codes(await k.beat("g", "a", 1)) == "unknown_member_id"

    run(program())


def test_a_full_group_takes_nobody() -> None:
    async def program() -> None:
        world = World.started(consumer_max_size=2)
        k = speaking(world)
        answers = [codes(await k.beat("g", name, 0)) for name in "abc"]
        assert answers == ["none", "none", "group_max_size_reached"]
        assert codes(await k.join("g", 3)) == "group_max_size_reached"

    run(program())


@pytest.mark.parametrize("owned", [None, uuid.UUID(int=5)])
def test_a_member_that_owns_topics_nobody_knows_is_not_believed(owned: uuid.UUID | None) -> None:
    """A topic id of zeros reads as none; both are the client's mistakes."""

    async def program() -> None:
        world = World.started()
        k = speaking(world)
        await k.beat("g", "a", 0)
        await k.beat("g", "b", 0)
        await k.beat("g", "a", 1)
        strange = [{"topic_id": owned, "partitions": (2,)}]
        response = await k.beat("g", "a", 1, topic_partitions=strange)
        assert response.member_epoch == 2, "it does not own what it was to give up"

    run(program())


def test_heartbeats_of_a_thousand_members_write_nothing() -> None:
    async def program() -> None:
        world = World.started(consumer_max_size=20_000)
        k = speaking(world)
        subscription = {"subscribed_topic_names": ("alpha",), "rebalance_timeout": duration(60_000)}
        for number in range(1000):
            await k.beat("g", f"m{number}", 0, **subscription)
        for number in range(1000):
            await k.beat("g", f"m{number}", number + 1, topic_partitions=())
        group = world.groups.registry.consumer("g")
        assert group is not None
        beats = [(m.member_id, m.epoch) for m in group.members.values()]
        k = speaking(world)
        appends = world.journal.appends
        for member_id, epoch in beats:
            assert codes(await k.beat("g", member_id, epoch)) == "none"
        assert world.journal.appends - appends < 5, "heartbeats that change nothing write nothing"

    run(program())
