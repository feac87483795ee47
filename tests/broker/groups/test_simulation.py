"""Consumers come, go, die and change their protocol, and the broker restarts.

A partition never has two owners, and soon after things calm down it has one.
"""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.groups.consumers import ClassicConsumer, Consumer, NewConsumer
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World

SUBSCRIPTIONS = [("alpha",), ("alpha", "beta"), ("alpha", "beta", "gamma")]


class Simulation:
    """A world with up to six consumers of the given kinds, in one group."""

    def __init__(self, seed: int, kinds: tuple[type[Consumer], ...], mixed_topics: bool) -> None:
        self.chance = random.Random(seed)
        self.kinds = kinds
        self.world = World.started()
        self.consumers: dict[str, Consumer] = {}
        self.names = iter(range(10_000))
        self.subscriptions = SUBSCRIPTIONS if mixed_topics else SUBSCRIPTIONS[1:2]

    def check_owners(self) -> None:
        owners: dict[tuple[str, int], str] = {}
        for slot, consumer in self.consumers.items():
            for partition in consumer.owned:
                other = owners.setdefault(partition, slot)
                assert other == slot, f"{partition} belongs to {other} and {slot}"

    async def watch(self, seconds: float) -> None:
        """Let time pass, looking often."""
        for _ in range(round(seconds / 0.05)):
            await asyncio.sleep(0.05)
            self.check_owners()
            for consumer in self.consumers.values():
                if consumer.task.done():
                    consumer.task.result()

    async def disturb(self) -> None:
        slot = self.chance.choice(["a", "b", "c", "d", "static-1", "static-2"])
        consumer = self.consumers.get(slot)
        action = self.chance.choice(["start", "start", "leave", "kill", "restart", "grow"])
        if action == "grow":
            topic = self.chance.choice(["alpha", "beta", "gamma"])
            self.world.topics.sizes[topic] += 1
        elif action == "restart":
            await self.world.restart()
        elif consumer is None:
            await self.start(slot)
        elif action == "leave":
            del self.consumers[slot]
            await consumer.leave()
        elif action == "kill":
            del self.consumers[slot]
            consumer.kill()
        self.check_owners()

    async def start(self, slot: str) -> None:
        kind = self.chance.choice(self.kinds)
        instance_id = slot if slot.startswith("static") else None
        # A static member that is back is expected to want what it had; its group does not rebalance.
        topics = self.subscriptions[0] if instance_id else self.chance.choice(self.subscriptions)
        self.consumers[slot] = kind(self.world, f"{slot}-{next(self.names)}", topics, instance_id)

    async def run(self) -> None:
        for _ in range(12):
            await self.disturb()
            await self.watch(self.chance.choice([0.1, 0.4, 1, 3, 7]))
        if not self.consumers:
            await self.start("a")
        await self.watch(40)
        self.check_complete()
        for consumer in self.consumers.values():
            consumer.kill()

    def check_complete(self) -> None:
        """Every partition that somebody reads has an owner who reads it."""
        wanted = {
            (topic, partition)
            for consumer in self.consumers.values()
            for topic in consumer.topics
            for partition in range(self.world.topics.sizes[topic])
        }
        owned = {partition for consumer in self.consumers.values() for partition in consumer.owned}
        assert owned == wanted
        for consumer in self.consumers.values():
            assert {topic for topic, _ in consumer.owned} <= set(consumer.topics)
        if all(isinstance(c, NewConsumer) for c in self.consumers.values()) and len(self.subscriptions) == 1:
            loads = [len(consumer.owned) for consumer in self.consumers.values()]
            assert max(loads) - min(loads) <= 1


KINDS = {
    "new": (NewConsumer,),
    "classic": (ClassicConsumer,),
    "mixed": (NewConsumer, ClassicConsumer),
}


@pytest.mark.parametrize("kinds", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(), mixed_topics=st.booleans())
def test_a_partition_has_one_owner(kinds: str, seed: int, mixed_topics: bool) -> None:
    async def program() -> None:
        await Simulation(seed, KINDS[kinds], mixed_topics).run()

    run(program())
