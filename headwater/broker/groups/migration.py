"""Groups on the way from one protocol to the other, while their members go on working.

When a member of the new protocol joins a classic group of consumers, the group becomes one of the new
protocol and its classic members stay in it: the coordinator computes their assignment too, and tells it to
them in the words of the classic protocol. When the last member of the new protocol leaves such a group it
becomes classic again.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic import ClassicProtocol
from headwater.broker.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from headwater.broker.groups.classic_messages import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from headwater.broker.groups.consumer import ConsumerProtocol, new_member_id
from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember, Draft, metadata_hash
from headwater.broker.groups.heartbeats import known_member, known_static, not_found
from headwater.broker.groups.ledger import Plan
from headwater.broker.groups.records import (
    STABLE,
    UNRELEASED,
    UNREVOKED,
    Assignment,
    ClassicMetadata,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    Record,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from headwater.broker.groups.refusals import Refusal
from headwater.broker.groups.registry import Registry
from headwater.broker.groups.subscriptions import (
    CONSUMER,
    read_assignment,
    read_subscription,
    write_assignment,
)


class Migration:
    """Classic members in groups of the new protocol."""

    def __init__(self, registry: Registry, classic: ClassicProtocol, consumer: ConsumerProtocol) -> None:
        self._registry = registry
        self._classic = classic
        self._consumer = consumer
        self._timers = registry.timers

    # -- to the new protocol -----------------------------------------------------------------------

    def upgraded(self, group: ClassicGroup) -> Draft:
        """A classic group as one of the new protocol; refuses groups of which that cannot be made."""

        def impossible(reason: str) -> Refusal:
            start = f"Cannot upgrade classic group {group.group_id} to consumer group because"
            return not_found(f"{start} {reason}.")

        if group.protocol_type != CONSUMER:
            raise impossible("the group does not use the consumer embedded protocol")
        if len(group.members) > self._registry.settings.consumer_max_size:
            raise impossible("the group size exceeds the consumer group maximum size")
        draft = Draft(ConsumerGroup(group.group_id))
        draft.records.append((GroupKey(group.group_id), None))
        assigned: dict[str, Assignment] = {}
        for member in group.members.values():
            owned = member.assignment if member.still_owned is None else member.still_owned
            told, has = self._told_by(member), read_assignment(owned)
            if told is None or has is None:
                raise impossible("the embedded consumer protocol is malformed")
            draft.write(MemberKey(group.group_id, member.member_id), told)
            assigned[member.member_id] = self._with_ids(has)
        hashed = metadata_hash(self._registry.topics, draft.group.subscribed_topics())
        if group.state is not ClassicState.STABLE or not self._has_all(draft.group, assigned.values()):
            # The assignment is of members that were. The one that joins now may ask for no new one, a static member
            # that is back; topics that seem to have changed do.
            hashed = 0
        draft.write(EpochKey(group.group_id), EpochValue(group.generation, hashed))
        for member_id, partitions in assigned.items():
            draft.write(TargetKey(group.group_id, member_id), TargetValue(partitions))
        draft.write(TargetEpochKey(group.group_id), TargetEpochValue(group.generation))
        for member_id, partitions in assigned.items():
            current = CurrentValue(group.generation, group.generation, STABLE, partitions, {})
            draft.write(CurrentKey(group.group_id, member_id), current)
        return draft

    def _has_all(self, group: ConsumerGroup, assigned: Iterable[Assignment]) -> bool:
        """Whether every partition that is read belongs to somebody."""
        taken = {
            (topic, number) for each in assigned for topic, numbers in each.items() for number in numbers
        }
        topics = self._registry.topics
        ids = [(topics.topic_id(name), topics.partition_count(name)) for name in group.subscribed_topics()]
        return all((topic, number) in taken for topic, count in ids for number in range(count or 0))

    def let_go(self, group: ClassicGroup) -> None:
        """The effect of an upgrade on requests that the classic group holds: their members join again."""
        for member in list(group.members.values()):
            group.answer_join(member, JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))
            member.answer_sync(SyncAnswer(ErrorCode.rebalance_in_progress))

    def _told_by(self, member: ClassicMember) -> MemberValue | None:
        return _told(
            member.instance_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
            ClassicMetadata(member.session_timeout_ms, member.protocols),
        )  # fmt: skip

    # -- back to the classic protocol --------------------------------------------------------------

    def downgrade(
        self, group: ConsumerGroup, after: ConsumerGroup, is_complete: bool = False
    ) -> tuple[Sequence[Record], Callable[[], None]] | None:
        """The change to a classic group, when ``after`` has classic members only; else None.

        It rebalances at once, unless it ``is_complete``: all partitions belong to a member.
        """
        members = after.members.values()
        if not members or not all(member.is_classic for member in members):
            return None
        if len(after.members) > self._registry.settings.max_size:
            return None
        classic = ClassicGroup(group.group_id, generation=after.epoch, in_journal=True)
        for member in members:
            classic.add(self._classic_member(member, after.target(member.member_id)))
            assert member.told.classic is not None
            owned = self._in_classic_words(member.told.classic, _all_owned(member.current))
            classic.members[member.member_id].still_owned = owned
        classic.protocol_name = classic.select_protocol()
        classic.become(ClassicState.STABLE, self._registry.now_ms())
        classic.note_subscriptions()
        key, value = classic.record()
        if not is_complete:
            # A broker that finds this record at its start does not know that members must join again. They
            # learn it from a generation that none of them has; the rebalance that follows here makes it true.
            assert isinstance(value, GroupValue)
            value = dataclasses.replace(value, generation=value.generation + 1)

        def effect() -> None:
            self._registry.drop(group.group_id)
            self._registry.groups[group.group_id] = classic
            self._classic.resume(classic)
            if not is_complete:
                self._classic.prepare(classic)

        return [*group.tombstones(), (key, value)], effect

    def _classic_member(self, member: ConsumerMember, target: Assignment) -> ClassicMember:
        told = member.told
        assert told.classic is not None
        return ClassicMember(
            member.member_id, told.instance_id, told.client_id, told.client_host,
            told.rebalance_timeout_ms, told.classic.session_timeout_ms, CONSUMER, told.classic.protocols,
            self._in_classic_words(told.classic, target),
        )  # fmt: skip

    # -- requests of classic members ---------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """JoinGroup in a group of the new protocol: answered at once, without a leader."""
        return await self._registry.ledger.change(request.group_id, partial(self._plan_join, request))

    def _plan_join(self, request: JoinRequest) -> Plan[JoinAnswer]:
        group = self._registry.consumer(request.group_id)
        if group is None or group.is_empty:
            raise Refusal(ErrorCode.rebalance_in_progress)  # it has changed again: join anew
        if len(group.members) >= self._registry.settings.consumer_max_size and (
            request.member_id not in group.members
        ):
            return Plan(JoinAnswer(ErrorCode.group_max_size_reached))
        if not _supports(group, request):
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        metadata = ClassicMetadata(request.session_timeout_ms, request.protocols)
        told = _told(
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            metadata,
        )
        if told is None:
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if not request.member_id and request.needs_known_id and request.instance_id is None:
            return Plan(JoinAnswer(ErrorCode.member_id_required, new_member_id()))
        return self._plan_admission(group, request, told)

    def _plan_admission(
        self, group: ConsumerGroup, request: JoinRequest, told: MemberValue
    ) -> Plan[JoinAnswer]:
        member_id = request.member_id or new_member_id()
        draft = Draft(group)
        if request.instance_id is not None:
            current = group.static_members.get(request.instance_id)
            if request.member_id:
                known_static(group, request.instance_id, request.member_id)
            elif current is not None:
                self._consumer.replace_static(draft, group.members[current], member_id)
        known = draft.group.members.get(member_id)
        if known is None or known.told != told:
            draft.write(MemberKey(request.group_id, member_id), told)
        asked = known.told.topics if known is not None else ()
        self._consumer.update_epoch(draft, bump=told.topics != asked)
        self._consumer.update_target(draft)
        subscription = read_subscription(request.protocols[0][1])
        owned = self._with_ids(subscription.owned) if subscription is not None else {}
        self._consumer.reconcile(draft, member_id, owned)
        member = draft.group.members[member_id]
        answer = JoinAnswer(
            member_id=member_id,
            generation=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0][0],
        )

        if not all(old.is_classic for old in group.members.values()):
            downgrade = self.downgrade(group, draft.group, is_complete=True)
            if downgrade is not None:
                return Plan(
                    answer, *downgrade
                )  # the last member of the new protocol came back as a classic one

        def effect() -> None:
            if draft.records:
                self._consumer.install(draft.group)
            self._consumer.keep_alive(draft.group, member)
            self._timers.cancel(("rejoin", request.group_id, member_id))
            self._timers.cancel(("resync", request.group_id, member_id))
            self._consumer.expect(request.group_id, member, "resync")

        return Plan(answer, draft.records, effect)

    def sync(self, request: SyncRequest) -> SyncAnswer:
        """SyncGroup: the assignment that the coordinator has computed."""
        group, member = self._classic_speaker(
            request.group_id, request.member_id, request.instance_id, request.generation
        )
        assert member.told.classic is not None
        if request.protocol_type is not None and request.protocol_type != CONSUMER:
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if request.protocol_name not in (None, member.told.classic.protocols[0][0]):
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if group.epoch > member.epoch and member.current.state != UNREVOKED:
            self._consumer.expect(request.group_id, member, "rejoin")
            raise Refusal(ErrorCode.rebalance_in_progress)
        self._timers.cancel(("resync", request.group_id, request.member_id))
        self._consumer.keep_alive(group, member)
        return SyncAnswer(
            protocol_type=CONSUMER,
            protocol_name=member.told.classic.protocols[0][0],
            assignment=self._in_classic_words(member.told.classic, member.current.assigned),
        )

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat: refuses with REBALANCE_IN_PROGRESS when the member should join to learn of a change."""
        group, member = self._classic_speaker(group_id, member_id, instance_id, generation)
        self._consumer.keep_alive(group, member)
        state = member.current.state
        if (
            member.epoch < group.epoch
            or state == UNREVOKED
            or (state == UNRELEASED and not _waits_for_others(group, member))
        ):
            self._consumer.expect(group_id, member, "rejoin")
            raise Refusal(ErrorCode.rebalance_in_progress)

    def _classic_speaker(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerGroup, ConsumerMember]:
        group = self._registry.consumer(group_id)
        if group is None:
            raise Refusal(ErrorCode.unknown_member_id)
        if instance_id is not None:
            known_static(group, instance_id, member_id)
        member = known_member(group, member_id)
        if not member.is_classic:
            raise Refusal(ErrorCode.unknown_member_id)
        if generation != member.epoch:
            raise Refusal(ErrorCode.illegal_generation)
        return group, member

    # -- words -------------------------------------------------------------------------------------

    def _with_ids(self, partitions: Mapping[str, tuple[int, ...]]) -> dict[uuid.UUID, tuple[int, ...]]:
        """By topic id; topics that are gone are left out."""
        named = ((self._registry.topics.topic_id(name), listed) for name, listed in partitions.items())
        return {
            topic_id: tuple(sorted(listed)) for topic_id, listed in named if topic_id is not None and listed
        }

    def _in_classic_words(self, metadata: ClassicMetadata, assignment: Assignment) -> bytes:
        subscription = read_subscription(metadata.protocols[0][1]) if metadata.protocols else None
        version = subscription.version if subscription is not None else 0
        named = {}
        for topic_id, partitions in assignment.items():
            name = self._registry.topics.topic_name(topic_id)
            if name is not None:
                named[name] = partitions
        return write_assignment(min(version, 3), named)


def _all_owned(current: CurrentValue) -> Assignment:
    """What a member has, or has not given up yet."""
    topics = current.assigned.keys() | current.revoking.keys()
    return {
        topic_id: (*current.assigned.get(topic_id, ()), *current.revoking.get(topic_id, ()))
        for topic_id in topics
    }


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether all classic members support one of the protocols."""
    if request.protocol_type != CONSUMER or not request.protocols:
        return False
    others = [
        {name for name, _ in member.told.classic.protocols}
        for member in group.members.values()
        if member.told.classic is not None and member.member_id != request.member_id
    ]
    return any(all(name in other for other in others) for name, _ in request.protocols)


def _told(
    instance_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    metadata: ClassicMetadata,
) -> MemberValue | None:
    """What a classic member asks for, in the words of the new protocol."""
    subscription = read_subscription(metadata.protocols[0][1]) if metadata.protocols else None
    if subscription is None:
        return None
    topics = tuple(sorted(set(subscription.topics)))
    return MemberValue(
        instance_id, None, client_id, client_host, topics, "", rebalance_timeout_ms, None, metadata
    )


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether somebody else still has a partition that the member is to get."""
    return any(
        not group.is_free(topic_id, partition)
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in set(partitions) - set(member.current.assigned.get(topic_id, ()))
    )
