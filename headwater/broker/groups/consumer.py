"""The new group protocol (KIP-848): one heartbeat that joins, reports, leaves and learns the assignment.

Each change of a group is worked out under the group's lock, written to the journal, and then takes effect.
"""

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from kio.schema.errors import ErrorCode

from headwater.broker.groups.assignors import ASSIGNORS, MemberSpec
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer_group import (
    LEFT,
    LEFT_STATIC,
    ConsumerGroup,
    ConsumerMember,
    Draft,
    metadata_hash,
)
from headwater.broker.groups.heartbeats import (
    Heartbeat,
    HeartbeatAnswer,
    check_epoch,
    known_member,
    known_static,
    merged,
    not_found,
    unknown_member,
)
from headwater.broker.groups.ledger import Plan
from headwater.broker.groups.patterns import InvalidPattern, TopicPattern
from headwater.broker.groups.reconciliation import reconcile
from headwater.broker.groups.records import (
    STABLE,
    UNREVOKED,
    Assignment,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    GroupKey,
    MemberKey,
    Record,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from headwater.broker.groups.refusals import Refusal
from headwater.broker.groups.registry import Registry

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5  # after the journal refused to take the end of a session


Change: TypeAlias = tuple[Sequence[Record], Callable[[], None]]  # what is written, and its effect


class _Busy(Exception):
    """The classic group that is to be converted is being written."""


class Conversions(Protocol):
    """How groups of one protocol become groups of the other."""

    def upgraded(self, group: ClassicGroup) -> Draft: ...

    def let_go(self, group: ClassicGroup) -> None: ...

    def downgrade(self, group: ConsumerGroup, after: ConsumerGroup) -> Change | None: ...


class ConsumerProtocol:
    """Drives groups of the new protocol."""

    conversions: Conversions  # set by the coordinator, which knows both protocols

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._settings = registry.settings
        self._timers = registry.timers
        self._compiled: dict[str, TopicPattern] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.topics_version = 0  # rises when somebody says that topics changed

    # -- requests ----------------------------------------------------------------------------------

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Join, report or leave, by the member epoch."""
        if beat.pattern:
            self._compile(beat.pattern)
        plan = partial(self._plan_leave if beat.member_epoch < 0 else self._plan_heartbeat, beat)
        while True:
            try:
                return await self._registry.ledger.change(beat.group_id, plan)
            except _Busy:
                await self._registry.ledger.caught_up(beat.group_id)

    def _plan_heartbeat(self, beat: Heartbeat) -> Plan[HeartbeatAnswer]:
        group, records = self._group_to_join(beat)
        member_id = beat.member_id or new_member_id()
        if len(group.members) >= self._settings.consumer_max_size and member_id not in group.members:
            limit = self._settings.consumer_max_size
            raise Refusal(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )
        draft = Draft(group)
        self.update_epoch(draft, bump=self._subscribe(draft, beat, member_id))
        self.update_target(draft)
        before_step = draft.group.members[member_id].current
        self.reconcile(draft, member_id, beat.owned)
        member = draft.group.members[member_id]
        changed = before_step.assigned != member.current.assigned
        answer = HeartbeatAnswer(
            member_id,
            member.epoch,
            self._registry.own_settings.heartbeat_interval_ms(beat.group_id),
            member.current.assigned if beat.member_epoch == 0 or beat.is_full or changed else None,
        )
        records += draft.records

        def effect() -> None:
            if records:
                self.install(draft.group)
            self.keep_alive(draft.group, member)

        classic = self._registry.classic(beat.group_id)
        if classic is None or classic.is_empty:
            return Plan(answer, records, effect)
        classic.is_frozen = True
        return Plan(answer, records, effect, undo=partial(setattr, classic, "is_frozen", False))

    def _group_to_join(self, beat: Heartbeat) -> tuple[ConsumerGroup, list[Record]]:
        """The group, and what must be written before anything else: an empty classic group makes room."""
        group = self._registry.groups.get(beat.group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if beat.member_epoch != 0:
            if group is None:
                raise not_found(f"Consumer group {beat.group_id} not found.")
            raise not_found(f"Group {beat.group_id} is not a consumer group.")
        if group is None:
            return ConsumerGroup(beat.group_id), []
        if group.is_empty:
            return ConsumerGroup(beat.group_id), [(GroupKey(beat.group_id), None)] if group.in_journal else []
        if self._registry.ledger.is_writing(beat.group_id):
            raise _Busy
        upgraded = self.conversions.upgraded(group)
        return upgraded.group, upgraded.records

    def _plan_leave(self, beat: Heartbeat) -> Plan[HeartbeatAnswer]:
        group = self._registry.groups.get(beat.group_id)
        if group is None:
            raise not_found(f"Group {beat.group_id} not found.")
        if isinstance(group, ClassicGroup):
            raise not_found(f"Group {beat.group_id} is not a consumer group.")
        if beat.instance_id is None:
            member = known_member(group, beat.member_id)
        else:
            member = known_static(group, beat.instance_id, beat.member_id)
        if beat.instance_id is None or beat.member_epoch != LEFT_STATIC:
            return Plan(HeartbeatAnswer(beat.member_id, LEFT), *self._removal(group, [member.member_id]))
        # It keeps its partitions until it is back or its session is over.
        draft, was = Draft(group), member.current
        gone = CurrentValue(LEFT_STATIC, was.previous_epoch, STABLE, was.assigned, {})
        draft.write(CurrentKey(beat.group_id, member.member_id), gone)
        answer = HeartbeatAnswer(beat.member_id, LEFT_STATIC)
        return Plan(answer, draft.records, partial(self.install, draft.group))

    def plan_making_room(self, group_id: str) -> Plan[None]:
        """Delete an empty group of this protocol, for a classic one of its name; its offsets stay."""
        group = self._registry.consumer(group_id)
        if group is None or not group.is_empty:
            return Plan(None)
        return Plan(None, group.tombstones(), partial(self._registry.drop, group_id))

    # -- steps of a heartbeat ----------------------------------------------------------------------

    def _subscribe(self, draft: Draft, beat: Heartbeat, member_id: str) -> bool:
        """Note what the member asks for; true when it asks for other topics than before."""
        group = draft.group
        if beat.instance_id is not None and beat.member_epoch == 0:
            current = group.static_members.get(beat.instance_id)
            if current is not None:
                self._return_static(draft, group.members[current], member_id)
        elif beat.instance_id is not None:
            check_epoch(known_static(group, beat.instance_id, member_id), beat)
        known = draft.group.members.get(member_id)
        if known is None:
            if beat.member_epoch != 0:
                raise unknown_member(group, member_id)
        elif beat.instance_id is None:
            check_epoch(known, beat)
        told = merged(known.told if known is not None else None, beat)
        if known is None or told != known.told:
            draft.write(MemberKey(beat.group_id, member_id), told)
        asked = (known.told.topics, known.told.pattern or "") if known is not None else ((), "")
        return (told.topics, told.pattern) != asked

    def _return_static(self, draft: Draft, old: ConsumerMember, member_id: str) -> None:
        """A static member that left for a while takes its place again, under its new id."""
        if old.epoch != LEFT_STATIC and not old.is_classic:
            raise Refusal(
                ErrorCode.unreleased_instance_id,
                f"Static member {member_id} with instance id {old.told.instance_id} cannot join the group"
                f" because the instance id is owned by {old.member_id} member.",
            )
        self.replace_static(draft, old, member_id)

    def replace_static(self, draft: Draft, old: ConsumerMember, member_id: str) -> None:
        """Give the place, the partitions and the target of a static member to its new process."""
        group_id, target = draft.group.group_id, draft.group.target(old.member_id)
        draft.write(CurrentKey(group_id, old.member_id), None)
        draft.write(TargetKey(group_id, old.member_id), None)
        draft.write(MemberKey(group_id, old.member_id), None)
        draft.write(MemberKey(group_id, member_id), old.told)
        draft.write(TargetKey(group_id, member_id), TargetValue(target))
        draft.write(CurrentKey(group_id, member_id), CurrentValue(0, 0, STABLE, old.current.assigned, {}))

    def update_epoch(self, draft: Draft, bump: bool) -> None:
        """Raise the group epoch: for a reason that the caller has, or because the topics have changed."""
        bump |= draft.group.epoch == 0
        now = asyncio.get_running_loop().time()
        version, checked = draft.group.topics_checked
        is_due = now - checked >= self._settings.topic_check_interval_ms / 1000
        if bump or is_due or version != self.topics_version:
            draft.group.topics_checked = (self.topics_version, now)
            bump |= self._resolve_patterns(draft)
            self.raise_epoch(draft, only_if_topics_changed=not bump)

    def raise_epoch(self, draft: Draft, only_if_topics_changed: bool = False) -> None:
        group = draft.group
        hashed = metadata_hash(self._registry.topics, group.subscribed_topics())
        if not only_if_topics_changed or hashed != group.metadata_hash:
            draft.write(EpochKey(group.group_id), EpochValue(group.epoch + 1, hashed))

    def _resolve_patterns(self, draft: Draft) -> bool:
        """Find the topics of the members' patterns anew; true when they changed."""
        group, in_use = draft.group, draft.group.patterns_in_use()
        changed = False
        for pattern in sorted(group.patterns.keys() - in_use):
            draft.write(RegexKey(group.group_id, pattern), None)
            changed = True
        for pattern in sorted(in_use):
            compiled = self._compile(pattern)
            topics = tuple(sorted(name for name in self._registry.topics.names() if compiled.matches(name)))
            known = draft.group.patterns.get(pattern)
            if known is None or known.topics != topics:
                value = RegexValue(topics, self.topics_version, self._registry.now_ms())
                draft.write(RegexKey(group.group_id, pattern), value)
                changed = True
        return changed

    def _compile(self, pattern: str) -> TopicPattern:
        compiled = self._compiled.get(pattern)
        if compiled is None:
            try:
                compiled = TopicPattern(pattern)
            except InvalidPattern as error:
                raise Refusal(
                    ErrorCode.invalid_regular_expression,
                    f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
                ) from error
            if len(self._compiled) >= 1000:
                self._compiled.clear()
            self._compiled[pattern] = compiled
        return compiled

    def update_target(self, draft: Draft) -> None:
        """Compute the target assignment anew when the group epoch has passed it."""
        group, topics = draft.group, self._registry.topics
        if group.epoch <= group.target_epoch:
            return
        ids: dict[str, uuid.UUID] = {}
        sizes: dict[uuid.UUID, int] = {}
        for name in group.subscribed_topics():
            topic_id, size = topics.topic_id(name), topics.partition_count(name)
            if topic_id is not None and size is not None:
                ids[name], sizes[topic_id] = topic_id, size
        specs = {
            member_id: MemberSpec(
                frozenset(ids[name] for name in group.topics_of(member.told) if name in ids),
                group.target(member_id),
                member.told.instance_id,
            )
            for member_id, member in group.members.items()
        }
        assignor = ASSIGNORS[group.preferred_assignor(self._settings.consumer_assignors)]
        for member_id, assignment in assignor(specs, sizes).items():
            if member_id not in group.targets or assignment != group.targets[member_id]:
                draft.write(TargetKey(group.group_id, member_id), TargetValue(assignment))
        draft.write(TargetEpochKey(group.group_id), TargetEpochValue(group.epoch))

    def reconcile(self, draft: Draft, member_id: str, owned: Assignment | None) -> None:
        group = draft.group
        current = group.members[member_id].current
        step = reconcile(current, group.target_epoch, group.target(member_id), owned, group.is_free)
        if step != current:
            draft.write(CurrentKey(group.group_id, member_id), step)

    # -- members that go ---------------------------------------------------------------------------

    def _removal(self, group: ConsumerGroup, member_ids: Sequence[str]) -> Change:
        """Take members out; the others learn at their next heartbeat what that gives them."""
        draft, group_id = Draft(group), group.group_id
        for member_id in member_ids:
            draft.write(CurrentKey(group_id, member_id), None)
            draft.write(TargetKey(group_id, member_id), None)
            draft.write(MemberKey(group_id, member_id), None)
        downgrade = self.conversions.downgrade(group, draft.group)
        if downgrade is not None:
            return downgrade
        for pattern in sorted(draft.group.patterns.keys() - draft.group.patterns_in_use()):
            draft.write(RegexKey(group_id, pattern), None)
        self.raise_epoch(draft)
        return draft.records, partial(self.install, draft.group)

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, ErrorCode]]:
        """LeaveGroup: of members that speak the classic protocol, and of any by an administrator."""
        return await self._registry.ledger.change(group_id, partial(self._plan_removal, group_id, members))

    def _plan_removal(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> Plan[list[tuple[str, str | None, ErrorCode]]]:
        group = self._registry.consumer(group_id)
        answers, leaving = [], []
        for member_id, instance_id in members:
            try:
                if group is None:
                    raise Refusal(ErrorCode.unknown_member_id)
                if instance_id is None:
                    member = known_member(group, member_id)
                else:
                    member = known_static(group, instance_id, member_id or None)
                leaving.append(member.member_id)
                answers.append((member_id, instance_id, ErrorCode.none))
            except Refusal as refusal:
                answers.append((member_id, instance_id, refusal.code))
        if group is None or not leaving:
            return Plan(answers)
        return Plan(answers, *self._removal(group, list(dict.fromkeys(leaving))))

    # -- time --------------------------------------------------------------------------------------

    def install(self, group: ConsumerGroup) -> None:
        """Let a draft that the journal has take the place of the group."""
        old = self._registry.groups.get(group.group_id)
        if isinstance(old, ClassicGroup):
            self.conversions.let_go(old)
            self._registry.drop(group.group_id)
        elif old is not None:
            for member_id in old.members.keys() - group.members.keys():
                self._registry.cancel_timers(group.group_id, member_id)
        self._registry.groups[group.group_id] = group
        if isinstance(old, ClassicGroup):
            self.resume(group)

    def resume(self, group: ConsumerGroup) -> None:
        """Give all members a whole session to show that they live."""
        for member in group.members.values():
            self.keep_alive(group, member)

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member showed that it lives: its session begins anew."""
        group_id, member_id = group.group_id, member.member_id
        timeout = self._registry.own_settings.session_timeout_ms(group_id)
        if member.told.classic is not None:
            timeout = member.told.classic.session_timeout_ms
        session = partial(self._begin, self._session_over, group_id, member_id)
        self._timers.schedule(("session", group_id, member_id), timeout / 1000, session)
        if member.current.state != UNREVOKED or member.is_classic:
            self._timers.cancel(("rebalance", group_id, member_id))
        elif ("rebalance", group_id, member_id) not in self._timers:
            over = partial(self._begin, self._rebalance_over, group_id, member_id, member.epoch)
            timeout = member.told.rebalance_timeout_ms
            self._timers.schedule(("rebalance", group_id, member_id), timeout / 1000, over)

    def expect(self, group_id: str, member: ConsumerMember, what: str) -> None:
        """Take a classic member out that does not "rejoin" or "resync" within its rebalance time-out."""
        name = (what, group_id, member.member_id)
        if name not in self._timers:
            over = partial(self._begin, self._too_late, group_id, member.member_id, what)
            self._timers.schedule(name, member.told.rebalance_timeout_ms / 1000, over)

    def _begin(self, operation: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        task = asyncio.create_task(operation(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _session_over(self, group_id: str, member_id: str) -> None:
        def is_due(member: ConsumerMember) -> bool:
            return ("session", group_id, member_id) not in self._timers  # else it came back meanwhile

        await self._fence(group_id, member_id, is_due, "gave no sign of life")

    async def _rebalance_over(self, group_id: str, member_id: str, epoch: int) -> None:
        def is_due(member: ConsumerMember) -> bool:
            return member.epoch == epoch and member.current.state == UNREVOKED

        await self._fence(group_id, member_id, is_due, "did not give up its partitions in time")

    async def _too_late(self, group_id: str, member_id: str, what: str) -> None:
        def is_due(member: ConsumerMember) -> bool:
            return member.is_classic

        await self._fence(group_id, member_id, is_due, f"did not {what} in time")

    async def _fence(
        self, group_id: str, member_id: str, is_due: Callable[[ConsumerMember], bool], reason: str
    ) -> None:
        def plan() -> Plan[None]:
            group = self._registry.consumer(group_id)
            member = group.members.get(member_id) if group is not None else None
            if group is None or member is None or not is_due(member):
                return Plan(None)
            log.info("group %s: member %s %s and is out", group_id, member_id, reason)
            return Plan(None, *self._removal(group, [member_id]))

        try:
            await self._registry.ledger.change(group_id, plan)
        except Exception as error:
            log.warning("group %s: member %s could not be taken out: %s", group_id, member_id, error)
            again = partial(self._begin, self._fence, group_id, member_id, is_due, reason)
            self._timers.schedule(("fence", group_id, member_id), _RETRY_SECONDS, again)


def new_member_id() -> str:
    """As Kafka writes its UUIDs: in URL-safe base 64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
