"""The group coordinator: all groups of the broker, from the journal and back into it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic import ClassicProtocol
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.classic_messages import JoinAnswer, SyncAnswer
from headwater.broker.groups.commits import Commits
from headwater.broker.groups.consumer import ConsumerProtocol
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.migration import Migration
from headwater.broker.groups.offsets import CommittedOffset, TopicPartition
from headwater.broker.groups.own_settings import OwnSettings
from headwater.broker.groups.ports import Journal, Topics
from headwater.broker.groups.records import (
    EpochKey,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    OffsetValue,
    Value,
    decode,
)
from headwater.broker.groups.registry import Registry, wall_clock_ms
from headwater.broker.groups.retention import Retention
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.subscriptions import CONSUMER
from headwater.broker.groups.wire import Malformed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A line of the list of groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCoordinator:
    """Groups and their offsets.

    At start-up ``replay`` and ``replay_marker`` are called for the journal's records, in its order; then
    ``start`` gives the members found a whole session to come back.
    """

    def __init__(
        self,
        journal: Journal,
        topics: Topics,
        settings: GroupSettings | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        own_settings: Path | None = None,
    ) -> None:
        self.settings = settings if settings is not None else GroupSettings()
        self.own_settings = OwnSettings(self.settings, own_settings)
        self.registry = Registry(journal, topics, self.settings, self.own_settings, now_ms)
        self.topics = topics
        self.classic = ClassicProtocol(self.registry)
        self.consumer = ConsumerProtocol(self.registry)
        self.migration = Migration(self.registry, self.classic, self.consumer)
        self.consumer.conversions = self.migration
        self.commits = Commits(self.registry, self.classic)
        self.retention = Retention(self.registry, self.commits)

    # -- life --------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer: tuple[int, int] | None = None) -> None:
        """Take a record of the journal; one that is not understood is passed over."""
        try:
            record = decode(key, value)
        except Malformed as error:
            log.error("a record of the groups' journal is passed over, its key %s: %s", key.hex(), error)
            return
        if record is None:
            return
        match record:
            case OffsetKey() as offset_key, offset:
                self._replay_offset(offset_key, offset, producer)
            case GroupKey(group_id), GroupValue() as group:
                self.registry.groups[group_id] = ClassicGroup.replayed(group_id, group)
            case GroupKey(group_id), _:
                if self.registry.classic(group_id) is not None:
                    del self.registry.groups[group_id]
            case consumer_key, consumer_value:
                self._replay_consumer(consumer_key, consumer_value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Take the end of a producer's transaction, as the journal has it."""
        self.registry.offsets.complete(producer_id, committed)

    def _replay_offset(self, key: OffsetKey, value: Value | None, producer: tuple[int, int] | None) -> None:
        store, partition = self.registry.offsets, (key.topic, key.partition)
        if isinstance(value, OffsetValue):
            producer_id = producer[0] if producer is not None else None
            store.put(key.group_id, partition, store.stamp(value), producer_id)
        else:
            store.remove(key.group_id, partition)

    def _replay_consumer(self, key: Key, value: Value | None) -> None:
        group = self.registry.consumer(key.group_id)
        if isinstance(key, EpochKey) and value is None:
            if group is not None:
                del self.registry.groups[key.group_id]
            return
        if group is None:
            if value is None:
                return
            group = self.registry.groups[key.group_id] = ConsumerGroup(key.group_id)
        group.apply(key, value)

    def start(self) -> None:
        """Begin to measure time; call it when all of the journal has been replayed."""
        for group_id in self.registry.offsets.groups():
            self.registry.ensure(group_id)
        for group in self.registry.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.resume(group)
            else:
                self.consumer.resume(group)
        self.retention.start()

    def release(self) -> None:
        """Let go of held requests, so that their connections can be closed."""
        for group in self.registry.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    group.answer_join(member, JoinAnswer(ErrorCode.not_coordinator, member.member_id))
                    member.answer_sync(SyncAnswer(ErrorCode.not_coordinator))

    async def stop(self) -> None:
        """Let go of held requests and wait for writes that are under way."""
        self.registry.timers.close()
        self.release()
        await self.registry.ledger.settled()

    # -- what others tell --------------------------------------------------------------------------

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        """A producer's transaction has ended and its marker is durable: its offsets count, or vanish."""
        self.commits.complete_transaction(producer_id, committed)

    async def topic_deleted(self, name: str) -> None:
        """A topic is gone: so are the offsets in it."""
        self.topics_changed()
        await self.retention.topic_deleted(name)

    def topics_changed(self) -> None:
        """Topics or partitions came or went; groups of the new protocol look at their next heartbeat.

        Without this call they look once a second.
        """
        self.consumer.topics_version += 1

    # -- what others ask ---------------------------------------------------------------------------

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's committed offsets by (topic, partition); a live view."""
        return self.registry.offsets.committed(group_id)

    def overview(self) -> list[GroupOverview]:
        """All groups."""
        return [
            GroupOverview(group.group_id, group.protocol_type or "", group.state.value, "classic")
            if isinstance(group, ClassicGroup)
            else GroupOverview(group.group_id, CONSUMER, group.state, "consumer")
            for group in self.registry.groups.values()
        ]
