"""A broker's worth of groups in memory: topics, a journal and a coordinator, in virtual time."""

import asyncio
import dataclasses
import uuid
from collections.abc import Iterable
from typing import Any

from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.messages import duration
from tests.broker.groups.calling import InProcess, MemoryJournal
from tests.broker.groups.virtual_time import VirtualLoop

# Kafka's defaults for members of the new protocol are the same but for their length.
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=300,  # so that members of one scenario meet on a busy machine too
    min_session_timeout_ms=1000,
    consumer_session_timeout_ms=5000,
    consumer_heartbeat_interval_ms=1000,
    consumer_max_size=50,
    max_size=50,
)


class MemoryTopics:
    """Topics by name, with ids."""

    def __init__(self, **sizes: int) -> None:
        self.sizes: dict[str, int] = {}
        self.ids: dict[str, uuid.UUID] = {}
        for name, size in sizes.items():
            self.create(name, size)

    def create(self, name: str, size: int) -> None:
        self.sizes[name], self.ids[name] = size, uuid.uuid4()

    def delete(self, name: str) -> None:
        del self.sizes[name], self.ids[name]

    def names(self) -> Iterable[str]:
        return list(self.sizes)

    def partition_count(self, topic: str) -> int | None:
        return self.sizes.get(topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.ids.get(topic)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)

    def is_internal(self, topic: str) -> bool:
        return topic.startswith("__")


class World:
    """A running coordinator over the topics alpha (3 partitions), beta (2) and gamma (1)."""

    def __init__(self, **settings: Any) -> None:
        self.topics = MemoryTopics(alpha=3, beta=2, gamma=1)
        self.journal = MemoryJournal()
        self.settings = dataclasses.replace(SETTINGS, **settings)
        self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.groups = GroupCoordinator(self.journal, self.topics, self.settings, loop.now_ms)
        self.call = InProcess(self.groups)

    @classmethod
    def started(cls, **settings: Any) -> "World":
        world = cls(**settings)
        world.groups.start()
        return world

    async def restart(self) -> None:
        """Stop, forget everything, and come back from the journal."""
        await self.groups.stop()
        self.rebuild()
        self.groups.start()

    def rebuild(self) -> None:
        """A coordinator from the journal; a key of -1 is a transaction's marker."""
        self._begin()
        for key, value, producer in self.journal.entries:
            if key in (b"commit", b"abort"):
                assert producer is not None
                self.groups.replay_marker(producer[0], key == b"commit")
            else:
                self.groups.replay(key, value, producer)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What the transaction coordinator does: write the marker, then say so."""
        self.journal.entries.append((b"commit" if committed else b"abort", None, (producer_id, 0)))
        self.groups.complete_transaction(producer_id, committed)


def offsets(topic: str, *positions: tuple[int, int], **fields: Any) -> list[dict[str, Any]]:
    """The topics of a commit: (partition, offset) pairs."""
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                    **fields,
                }
                for partition, offset in positions
            ],
        }
    ]


def ms(value: int) -> Any:
    return duration(value)
