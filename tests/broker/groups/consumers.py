"""Consumers of both protocols, as far as group membership goes, for simulations in virtual time.

Each lives in a task, beats once a second, and believes to own partitions as a real client would: what it is
told to give up it stops using first, and says so at its next heartbeat.
"""

import asyncio
import struct
from typing import Any

from headwater.broker.groups.subscriptions import read_assignment, read_subscription
from headwater.broker.messages import duration
from tests.broker.groups.calling import codes
from tests.broker.groups.script import assignment, subscription
from tests.broker.groups.world import World

HEARTBEAT = 1.0
Partition = tuple[str, int]


class Consumer:
    """A consumer of the group "g"; ``owned`` is what it would read from at this moment."""

    def __init__(self, world: World, name: str, topics: tuple[str, ...], instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.instance_id = instance_id
        self.owned: set[Partition] = set()
        self.task = asyncio.create_task(self._live())

    async def _live(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        """Stop, and say so."""
        self.kill()

    def kill(self) -> None:
        """Stop at once: a dead process owns nothing, though the group does not know yet."""
        self.task.cancel()
        self.owned = set()

    async def _call(self, api: str, version: int, **fields: Any) -> Any:
        return await self.world.call(api, version, group_id="g", **fields)


class NewConsumer(Consumer):
    """Speaks the new protocol."""

    epoch = 0

    async def _live(self) -> None:
        while True:
            response = await self._beat()
            code = codes(response)
            if code in ("fenced_member_epoch", "unknown_member_id", "group_id_not_found"):
                self.owned, self.epoch = set(), 0
            elif code == "none":
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    before, self.owned = self.owned, self._named(response.assignment)
                    if before - self.owned:
                        continue  # acknowledge a revocation at once
            await asyncio.sleep(HEARTBEAT)

    async def _beat(self, epoch: int | None = None) -> Any:
        joining = self.epoch == 0
        ids = self.world.topics.ids
        owned: dict[Any, list[int]] = {}
        for topic, partition in sorted(self.owned):
            if topic in ids:
                owned.setdefault(ids[topic], []).append(partition)
        return await self._call(
            "ConsumerGroupHeartbeat",
            1,
            member_id=self.name,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout=duration(3_000 if joining else -1),
            subscribed_topic_names=self.topics if joining else None,
            topic_partitions=[{"topic_id": i, "partitions": tuple(p)} for i, p in owned.items()],
        )

    def _named(self, given: Any) -> set[Partition]:
        names = {topic_id: name for name, topic_id in self.world.topics.ids.items()}
        return {(names.get(t.topic_id, "?"), p) for t in given.topic_partitions for p in t.partitions}

    async def leave(self) -> None:
        self.kill()
        await self._beat(-1 if self.instance_id is None else -2)


class ClassicConsumer(Consumer):
    """Speaks the classic protocol, and gives up everything before it joins again."""

    member_id = ""
    generation = -1
    assigned_sizes: dict[str, int] | None = None  # of the topics, when it assigned them as leader

    async def _live(self) -> None:
        while True:
            if not await self._join():
                await asyncio.sleep(0.1)
                continue
            while True:
                await asyncio.sleep(HEARTBEAT)
                code = await self._heartbeat()
                if self.assigned_sizes not in (None, self.world.topics.sizes):
                    self.owned = set()  # a leader that sees new partitions asks for a rebalance
                    break
                if code != "none":
                    self.owned = set()
                    if code in ("unknown_member_id", "illegal_generation", "fenced_instance_id"):
                        self.member_id = self.member_id if code == "illegal_generation" else ""
                    break

    async def _join(self) -> bool:
        """Join and sync; false when it has to be tried again."""
        joined = await self._call(
            "JoinGroup",
            9,
            session_timeout=duration(5_000),
            rebalance_timeout=duration(4_000),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription(*self.topics)}],
        )
        code = codes(joined)
        self.member_id = "" if code == "unknown_member_id" else joined.member_id
        if code != "none":
            return False
        self.generation = joined.generation_id
        is_leader = joined.leader == self.member_id
        self.assigned_sizes = dict(self.world.topics.sizes) if is_leader else None
        synced = await self._call(
            "SyncGroup",
            5,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(joined),
        )
        if codes(synced) != "none":
            if codes(synced) == "unknown_member_id":
                self.member_id = ""
            return False
        given = read_assignment(synced.assignment) or {}
        self.owned = {(topic, partition) for topic, listed in given.items() for partition in listed}
        return True

    def _assign(self, joined: Any) -> list[dict[str, Any]]:
        """What a leader does: deal out each topic to its readers."""
        if not joined.members or joined.skip_assignment:
            return []
        given: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in joined.members}
        readers: dict[str, list[str]] = {}
        for member in joined.members:
            told = read_subscription(member.metadata)
            assert told is not None
            for topic in told.topics:
                readers.setdefault(topic, []).append(member.member_id)
        for topic, who in readers.items():
            for partition in range(self.world.topics.sizes.get(topic, 0)):
                given[who[partition % len(who)]].setdefault(topic, []).append(partition)
        return [{"member_id": m, "assignment": _assignment(listed)} for m, listed in given.items()]

    async def _heartbeat(self) -> str:
        response = await self._call(
            "Heartbeat",
            4,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return str(codes(response))

    async def leave(self) -> None:
        self.kill()
        if self.instance_id is None:
            await self._call("LeaveGroup", 5, members=[{"member_id": self.member_id}])


def _assignment(topics: dict[str, list[int]]) -> bytes:
    """An assignment in several topics."""
    each = [assignment(topic, *partitions)[6:-4] for topic, partitions in sorted(topics.items())]
    return struct.pack(">hi", 1, len(each)) + b"".join(each) + struct.pack(">i", -1)
