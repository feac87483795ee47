"""Requests about offsets: who may commit, fetch and delete them, and what they find."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic import ClassicProtocol
from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.limits import check_texts
from headwater.broker.groups.offsets import CommittedOffset, TopicPartition, tombstones
from headwater.broker.groups.records import OffsetKey, OffsetValue, Record
from headwater.broker.groups.refusals import Refusal
from headwater.broker.groups.registry import Registry
from headwater.broker.groups.subscriptions import CONSUMER

FIRST_WITH_EPOCH = 9  # the first OffsetCommit version that members of the new protocol may use


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: the fields that OffsetCommit and TxnOffsetCommit share."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int  # or the member epoch; negative for consumers outside of group management


class Commits:
    """Commits, fetches and deletions of offsets."""

    def __init__(self, registry: Registry, classic: ClassicProtocol) -> None:
        self._registry = registry
        self._classic = classic
        # Transactional commits that the journal does not have yet, by producer and group.
        self._in_flight: Counter[tuple[int, str]] = Counter()

    # -- committing --------------------------------------------------------------------------------

    async def commit(
        self, committer: Committer, version: int, offsets: Mapping[TopicPartition, OffsetValue]
    ) -> None:
        """Commit, for a consumer; refuses all or takes all."""
        self._validate(committer, version)
        group = self._registry.groups.get(committer.group_id)
        if isinstance(group, ClassicGroup):
            self._classic.committed(group, committer.member_id)
        await self._write(committer.group_id, offsets, None)

    async def commit_transactional(
        self, committer: Committer, producer: tuple[int, int], offsets: Mapping[TopicPartition, OffsetValue]
    ) -> None:
        """Commit as part of a producer's transaction: the offsets count when it is committed."""
        if not committer.group_id:
            raise Refusal(ErrorCode.invalid_group_id)
        self._validate(committer, None)
        await self._write(committer.group_id, offsets, producer)

    async def _write(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetValue],
        producer: tuple[int, int] | None,
    ) -> None:
        if not offsets:
            return
        store = self._registry.offsets
        stamped = {partition: store.stamp(value) for partition, value in offsets.items()}
        records: list[Record] = [
            (OffsetKey(group_id, topic, partition), value) for (topic, partition), value in offsets.items()
        ]

        def effect() -> None:
            self._registry.ensure(group_id)
            for partition, offset in stamped.items():
                store.put(group_id, partition, offset, producer[0] if producer is not None else None)

        task = self._registry.ledger.submit(group_id, records, effect, producer)
        if producer is not None:
            flight = (producer[0], group_id)
            self._in_flight[flight] += 1
            task.add_done_callback(lambda _: self._landed(flight))
        await asyncio.shield(task)

    def _landed(self, flight: tuple[int, str]) -> None:
        self._in_flight[flight] -= 1
        if not self._in_flight[flight]:
            del self._in_flight[flight]

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        """The producer's transaction has ended, and the journal has its marker."""
        in_flight = {group_id for producer, group_id in self._in_flight if producer == producer_id}
        for group_id in self._registry.offsets.pending_groups(producer_id) | in_flight:
            # A commit that is durable and has not taken effect yet is older than the marker.
            self._registry.ledger.after(group_id, partial(self._complete, producer_id, group_id, committed))

    def _complete(self, producer_id: int, group_id: str, committed: bool) -> None:
        self._registry.offsets.complete_group(producer_id, group_id, committed)
        self._registry.drop_if_void(group_id)

    # -- who may commit ----------------------------------------------------------------------------

    def _validate(self, committer: Committer, version: int | None) -> None:
        """Refuse those who may not commit; ``version`` is OffsetCommit's, None in a transaction."""
        check_texts(committer.group_id)
        group = self._registry.groups.get(committer.group_id)
        knows_epochs = version is not None and version >= FIRST_WITH_EPOCH
        if group is None:
            if committer.generation >= 0:
                unknown = ErrorCode.group_id_not_found if knows_epochs else ErrorCode.illegal_generation
                raise Refusal(unknown)
        elif isinstance(group, ClassicGroup):
            self._validate_classic(group, committer, in_transaction=version is None)
        else:
            stale = ErrorCode.stale_member_epoch if knows_epochs else ErrorCode.illegal_generation
            self._validate_consumer(group, committer, version, stale)

    def _validate_classic(self, group: ClassicGroup, committer: Committer, in_transaction: bool) -> None:
        if group.state is ClassicState.DEAD:
            raise Refusal(ErrorCode.coordinator_not_available)
        if committer.generation < 0 and group.is_empty:
            return
        if committer.generation >= 0 or committer.member_id or committer.instance_id is not None:
            group.validate_member(committer.member_id, committer.instance_id)
            if committer.generation != group.generation:
                raise Refusal(ErrorCode.illegal_generation)
        elif not in_transaction:
            raise Refusal(ErrorCode.unknown_member_id)  # old transactional commits do not say who they are
        if not in_transaction and group.state is ClassicState.COMPLETING:
            # The member has its new generation, and not yet its assignment: what it commits may be another's.
            raise Refusal(ErrorCode.rebalance_in_progress)

    def _validate_consumer(
        self, group: ConsumerGroup, committer: Committer, version: int | None, stale: ErrorCode
    ) -> None:
        if committer.generation < 0:
            if group.is_empty:
                return
            if version is None and not committer.member_id and committer.instance_id is None:
                return
        member = group.members.get(committer.member_id)
        if member is None:
            raise Refusal(ErrorCode.unknown_member_id)
        if version is not None and version < FIRST_WITH_EPOCH and not member.is_classic:
            raise Refusal(ErrorCode.unsupported_version)
        if committer.generation != member.epoch:
            raise Refusal(ErrorCode.illegal_generation if member.is_classic else stale)

    # -- fetching ----------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        partitions: Sequence[TopicPartition] | None,
        require_stable: bool,
    ) -> dict[TopicPartition, CommittedOffset | ErrorCode | None]:
        """Committed offsets, of the partitions asked for or (None) of all; None where there is none."""
        group = self._registry.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and (member_id is not None or member_epoch >= 0):
            member = group.members.get(member_id or "")
            if member is None:
                raise Refusal(ErrorCode.unknown_member_id)
            if member_epoch != member.epoch:
                classic = member.is_classic
                raise Refusal(ErrorCode.illegal_generation if classic else ErrorCode.stale_member_epoch)
        committed = self._registry.offsets.committed(group_id)
        found: dict[TopicPartition, CommittedOffset | ErrorCode | None] = {}
        for partition in sorted(committed) if partitions is None else partitions:
            if require_stable and self._registry.offsets.is_unstable(group_id, partition):
                found[partition] = ErrorCode.unstable_offset_commit
            else:
                found[partition] = committed.get(partition)
        return found

    # -- deleting ----------------------------------------------------------------------------------

    async def delete(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete: take back offsets of topics that the group does not read."""
        group = self._registry.groups.get(group_id)
        if not group_id:
            raise Refusal(ErrorCode.invalid_group_id)
        if group is None:
            raise Refusal(ErrorCode.group_id_not_found)
        if isinstance(group, ClassicGroup) and not group.is_empty and group.protocol_type != CONSUMER:
            raise Refusal(ErrorCode.non_empty_group)
        answers = {}
        for partition in partitions:
            read = group.reads(partition[0])
            answers[partition] = ErrorCode.group_subscribed_to_topic if read else ErrorCode.none
        known = set(self._registry.offsets.partitions(group_id))
        await self.forget(
            group_id, [p for p, code in answers.items() if code is ErrorCode.none and p in known]
        )
        return answers

    async def forget(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        """Delete offsets, from the journal and then from memory."""
        if partitions:
            records = tombstones(group_id, partitions)
            await self._registry.ledger.write(group_id, records, self.forgetting(group_id, partitions))

    def forgetting(self, group_id: str, partitions: Sequence[TopicPartition]) -> Callable[[], None]:
        """The effect of tombstones for these offsets."""

        def effect() -> None:
            for partition in partitions:
                self._registry.offsets.remove(group_id, partition)
            self._registry.drop_if_void(group_id)

        return effect
