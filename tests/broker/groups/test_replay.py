"""A coordinator that comes back from the journal is the one that wrote it."""

import asyncio
import random
import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.coordinator import GroupCoordinator
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script, assignment, committed, subscription
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World


def durable(groups: GroupCoordinator) -> dict[str, Any]:
    """What must survive: groups of the new protocol, classic ones that do not rebalance, offsets."""
    state: dict[str, Any] = {}
    for group_id, group in groups.registry.groups.items():
        known = {p: (o.offset, o.metadata) for p, o in groups.committed(group_id).items()}
        if isinstance(group, ClassicGroup) and group.state.value not in ("Stable", "Empty"):
            continue
        if isinstance(group, ClassicGroup):
            state[group_id] = (
                "classic",
                group.protocol_type,
                group.generation,
                group.protocol_name,
                group.leader,
                {
                    m.member_id: (m.instance_id, m.session_timeout_ms, m.assignment)
                    for m in group.members.values()
                },
                known,
            )
        else:
            fields = ("epoch", "metadata_hash", "target_epoch", "members", "static_members", "targets")
            values = {name: getattr(group, name) for name in (*fields, "owners", "patterns")}
            state[group_id] = ("consumer", values, known)
    return state


class Client:
    """Does what comes to its mind, within the protocols, to a few groups."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.k = Script(world.call, world.topics.ids, "")
        self.epochs: dict[tuple[str, str], int] = {}

    async def act(self) -> None:
        group = self.chance.choice(["one", "two"])
        action = self.chance.choice([self.beat, self.beat, self.beat, self.commit, self.classic, self.other])
        await action(group)

    async def beat(self, group: str) -> None:
        member = self.chance.choice(["a", "b", "c"])
        epoch = self.epochs.get((group, member), 0)
        changes: dict[str, Any] = {"topic_partitions": ()}
        if member == "c":
            changes["instance_id"] = "instance"
        if epoch and self.chance.random() < 0.3:
            epoch = self.chance.choice([-1, -2 if member == "c" else -1])
        elif self.chance.random() < 0.3:
            names = self.chance.sample(["alpha", "beta", "gamma", "missing"], self.chance.randint(0, 3))
            changes["subscribed_topic_names"] = tuple(names)
        elif self.chance.random() < 0.2:
            changes["subscribed_topic_regex"] = self.chance.choice(["", "al.*", ".*"])
        response = await self.k.beat(group, member, epoch, **changes)
        if codes(response) == "none" and response.member_epoch > 0:
            self.epochs[group, member] = response.member_epoch
        else:
            self.epochs.pop((group, member), None)

    async def commit(self, group: str) -> None:
        offset, partition = self.chance.randrange(100), self.chance.randrange(3)
        fields = {"generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [committed("alpha", partition, offset)]
        await self.k("OffsetCommit", 9, group_id=group, topics=topics, **fields)

    async def classic(self, group: str) -> None:
        """Join, sync and perhaps leave; in a group of the new protocol if it is one."""
        static = {"group_instance_id": "classic"} if self.chance.random() < 0.5 else {}
        protocols = [{"name": "range", "metadata": subscription(self.chance.choice(["alpha", "beta"]))}]
        join = asyncio.create_task(self.k.join(group, protocols=protocols, **static))
        await asyncio.wait([join], timeout=8)
        if not join.done() or codes(join.result()) != "none":
            join.cancel()
            return
        joined = join.result()
        given = {m.member_id: assignment("alpha", number) for number, m in enumerate(joined.members)}
        sync = asyncio.create_task(self.k.sync(group, joined, given, **static))
        await asyncio.wait([sync], timeout=8)
        sync.cancel()
        if self.chance.random() < 0.5:
            await self.k("LeaveGroup", 5, group_id=group, members=[{"member_id": joined.member_id}])

    async def other(self, group: str) -> None:
        match self.chance.randrange(4):
            case 0:
                await self.k("DeleteGroups", 2, groups_names=(group,))
            case 1:
                await asyncio.sleep(self.chance.choice([1, 6, 15]))
            case 2:
                name = self.chance.choice(["alpha", "beta", "extra"])
                size = self.world.topics.sizes.get(name)
                if size is None:
                    self.world.topics.create(name, 1)
                else:
                    self.world.topics.sizes[name] = size % 5 + 1
            case 3:
                topics = [{"name": "alpha", "partitions": [{"partition_index": 1}]}]
                await self.k("OffsetDelete", 0, group_id=group, topics=topics)


@settings(max_examples=150, deadline=None)
@given(st.integers())
def test_the_journal_holds_all_that_matters(seed: int) -> None:
    async def program() -> None:
        world = World.started()
        client = Client(world, random.Random(seed))
        for _ in range(6):
            for _ in range(6):
                await client.act()
            await world.groups.registry.ledger.settled()
            before = durable(world.groups)
            assert replayed(world, world.journal.entries, before) == before
            assert replayed(world, compacted(world.journal.entries), before) == before

    run(program())


def replayed(world: World, entries: list[Any], like: dict[str, Any]) -> dict[str, Any]:
    """What a coordinator that reads these entries knows of the groups in ``like``."""
    groups = GroupCoordinator(world.journal, world.topics, world.settings)
    for key, value, producer in entries:
        groups.replay(key, value, producer)
    for group_id in groups.registry.offsets.groups():
        groups.registry.ensure(group_id)
    return {group_id: state for group_id, state in durable(groups).items() if group_id in like}


def compacted(entries: list[Any]) -> list[Any]:
    """What compaction leaves in the end: the last record of each key, and no tombstones."""
    last: dict[bytes, Any] = {}
    for entry in entries:
        last.pop(entry[0], None)
        last[entry[0]] = entry
    return [entry for entry in last.values() if entry[1] is not None]


def test_a_member_whose_record_is_younger_than_its_partitions_keeps_them() -> None:
    """After compaction; it happens when a member changes what does not matter to the assignment."""

    async def program() -> None:
        world = World.started()
        k = Script(world.call, world.topics.ids, "")
        await k.beat("g", "a", 0)
        await k.beat("g", "a", 1, rack_id="r")
        before = durable(world.groups)
        kept = compacted(world.journal.entries)
        kinds = [entry[0][1] for entry in kept]
        assert kinds.index(8) < kinds.index(5), "partitions first, then the member"
        assert replayed(world, kept, before) == before

    run(program())


def test_a_record_that_is_not_understood_is_passed_over() -> None:
    async def program() -> None:
        world = World.started()
        await Script(world.call, world.topics.ids, "").commit("g", 9, -1, "")
        world.journal.entries.insert(0, (b"\0\1\0", b"", None))
        world.journal.entries.append((b"", None, None))
        world.journal.entries.append((b"\0\2\0\1h", b"\0\3\0", None))
        await world.restart()
        assert [group.group_id for group in world.groups.overview()] == ["g"]

    run(program())


def test_a_classic_group_is_back_with_its_assignments() -> None:
    async def program() -> None:
        world = World.started()
        k = Script(world.call, world.topics.ids, "")
        joined = await k.join("g")
        await k.sync("g", joined, {joined.member_id: b"given"})
        await world.restart()
        k = Script(world.call, world.topics.ids, "")
        described = (await k("DescribeGroups", 6, groups=("g",))).groups[0]
        assert described.group_state == "Stable"
        assert [m.member_assignment for m in described.members] == [b"given"]
        assert (await k.sync("g", joined, {})).assignment == b"given"
        assert codes(await k.heartbeat("g", joined)) == "none"

    run(program())


def test_topic_ids_of_commits_survive() -> None:
    async def program() -> None:
        world = World.started()
        position = committed("", 0, 5)["partitions"]
        await world.call(
            "OffsetCommit",
            10,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"topic_id": world.topics.ids["alpha"], "partitions": position}],
        )
        await world.restart()
        found = world.groups.committed("g")["alpha", 0]
        assert isinstance(found.topic_id, uuid.UUID) and found.topic_id == world.topics.ids["alpha"]

    run(program())
