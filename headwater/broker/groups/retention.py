"""What becomes of groups and offsets that nobody uses any more, and of those that somebody deletes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.broker.groups.commits import Commits
from headwater.broker.groups.ledger import Plan
from headwater.broker.groups.offsets import CommittedOffset, TopicPartition, tombstones
from headwater.broker.groups.records import GroupKey, Record
from headwater.broker.groups.refusals import Refusal, code_of
from headwater.broker.groups.registry import Group, Registry

log = logging.getLogger(__name__)


class Retention:
    """Deletes groups and offsets: on request, when their time is over, and when their topic is gone."""

    def __init__(self, registry: Registry, commits: Commits) -> None:
        self._registry = registry
        self._commits = commits
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for what may go, now and then."""
        interval = self._registry.settings.offsets_retention_check_interval_ms / 1000
        self._registry.timers.schedule(("retention",), interval, self._sweep_soon)

    def _sweep_soon(self) -> None:
        self._sweeping = asyncio.create_task(self.sweep())
        self.start()

    # -- on request --------------------------------------------------------------------------------

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: an empty group and its offsets."""
        try:
            await self._registry.ledger.change(group_id, partial(self._plan_deletion, group_id))
        except Exception as error:
            return code_of(error)
        return ErrorCode.none

    def _plan_deletion(self, group_id: str) -> Plan[None]:
        group = self._registry.groups.get(group_id)
        if group is None:
            raise Refusal(ErrorCode.group_id_not_found)
        if not group.is_empty:
            raise Refusal(ErrorCode.non_empty_group)
        partitions = list(self._registry.offsets.partitions(group_id))
        records = tombstones(group_id, partitions) + _group_tombstones(group)
        return Plan(None, records, self._dropping(group_id, partitions))

    def _dropping(self, group_id: str, partitions: Sequence[TopicPartition]) -> Callable[[], None]:
        def effect() -> None:
            for partition in partitions:
                self._registry.offsets.remove(group_id, partition)
            self._registry.drop(group_id)
            if not self._registry.offsets.is_empty(group_id):
                self._registry.ensure(group_id)  # a commit was on its way to the journal

        return effect

    async def topic_deleted(self, topic: str) -> None:
        """Forget the offsets of a topic that is gone: one of the same name starts anew."""
        for group_id in dict.fromkeys(self._registry.offsets.groups()):
            partitions = [p for p in self._registry.offsets.partitions(group_id) if p[0] == topic]
            try:
                await self._commits.forget(group_id, partitions)
            except Exception as error:
                log.warning("group %s keeps offsets of the deleted topic %s: %s", group_id, topic, error)

    # -- by and by ---------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Delete what has expired, and groups that nothing is left of."""
        for group_id in list(self._registry.groups):
            if self._registry.ledger.lock(group_id).locked():
                continue  # it is in use
            try:
                await self._registry.ledger.change(group_id, partial(self._plan_expiry, group_id))
            except Exception as error:
                log.warning("what expired of group %s could not be deleted: %s", group_id, error)

    def _plan_expiry(self, group_id: str) -> Plan[None]:
        group = self._registry.groups.get(group_id)
        if group is None:
            return Plan(None)
        store = self._registry.offsets
        committed = store.committed(group_id)
        expired = [
            partition
            for partition, offset in committed.items()
            if not store.is_unstable(group_id, partition)
            and (self._has_expired(group, partition[0], offset) or self._is_orphan(partition[0]))
        ]
        nothing_left = set(store.partitions(group_id)) <= set(expired)
        if nothing_left and group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_joins):
            records = tombstones(group_id, expired) + _group_tombstones(group)
            return Plan(None, records, self._dropping(group_id, expired))
        return Plan(None, tombstones(group_id, expired), self._commits.forgetting(group_id, expired))

    def _has_expired(self, group: Group, topic: str, offset: CommittedOffset) -> bool:
        if group.reads(topic):
            return False
        base_ms = offset.commit_ms
        if isinstance(group, ClassicGroup) and not group.is_simple:
            if group.is_empty:
                base_ms = group.state_ms if group.state_ms != -1 else base_ms
            elif group.state is not ClassicState.STABLE or group.subscribed_topics is None:
                return False  # its members may read the topic
        retention_ms = self._registry.settings.offsets_retention_ms
        return offset.is_expired(base_ms, retention_ms, self._registry.now_ms())

    def _is_orphan(self, topic: str) -> bool:
        """Whether the topic is gone: commits are only taken for topics that are there."""
        return self._registry.topics.partition_count(topic) is None


def _group_tombstones(group: Group) -> list[Record]:
    if isinstance(group, ClassicGroup):
        return [(GroupKey(group.group_id), None)]
    return group.tombstones()
