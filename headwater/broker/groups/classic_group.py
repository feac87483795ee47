"""A group of the classic protocol: its members, its state, and what of it goes into the journal.

The state machine (``classic.py`` drives it)::

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
               ^    |                    |                  |
               |    v (nobody came)      |                  |
               |  Empty                  |                  |
               +-------------------------+------------------+   a member joins, leaves, dies

In PreparingRebalance JoinGroup requests are held until all members have joined or the rebalance time-out is
over; in CompletingRebalance SyncGroup requests are held until the leader brings the assignment. Dead is a
group that was deleted while somebody still held it.
"""

import asyncio
import enum
import uuid
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from headwater.broker.groups.classic_messages import JoinAnswer, Protocols, SyncAnswer
from headwater.broker.groups.records import GroupKey, GroupMemberValue, GroupValue, Record
from headwater.broker.groups.refusals import Refusal
from headwater.broker.groups.subscriptions import CONSUMER, read_subscription


class ClassicState(enum.Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member. ``joining`` and ``syncing`` are its held requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    # What it may still use though its assignment is another: until the group's next generation.
    still_owned: bytes | None = None
    is_new: bool = False  # has never completed a join, and so cannot send heartbeats yet
    joining: "asyncio.Future[JoinAnswer] | None" = None
    syncing: "asyncio.Future[SyncAnswer] | None" = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def must_prove_life(self) -> bool:
        """Whether a session without a heartbeat means death: not while the broker holds its request."""
        return self.is_new or (self.joining is None and self.syncing is None)

    def answer_sync(self, answer: SyncAnswer) -> bool:
        """Answer a held SyncGroup request, if there is one."""
        future, self.syncing = self.syncing, None
        if future is None:
            return False
        if not future.done():
            future.set_result(answer)
        return True


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """All that is known of a classic group, except its offsets."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    previous_state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    state_ms: int = -1  # when the group took its state
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending_joins: set[str] = field(default_factory=set)  # ids given out, for which no JoinGroup has come yet
    pending_syncs: set[str] = field(default_factory=set)  # members that have joined and not synced
    new_member_added: bool = False  # since the initial rebalance was last delayed
    subscribed_topics: frozenset[str] | None = None  # None: unknown
    in_journal: bool = False
    is_frozen: bool = False  # becoming a group of the new protocol: nothing may be written for it any more
    joining_count: int = 0
    protocol_votes: dict[str, int] = field(default_factory=dict)  # protocol -> members that support it

    # -- questions ---------------------------------------------------------------------------------

    def is_in(self, *states: ClassicState) -> bool:
        return self.state in states

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.joining_count == len(self.members) and not self.pending_joins

    @property
    def is_simple(self) -> bool:
        """Only offsets were ever committed, by consumers that manage their partitions themselves."""
        return self.protocol_type is None

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could live with the members that are there."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self.protocol_votes.get(name, 0) == len(self.members) for name, _ in protocols)

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Refuse members that are not of the group, and those that a newer process has replaced."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise Refusal(ErrorCode.unknown_member_id)
            if current != member_id:
                raise Refusal(ErrorCode.fenced_instance_id)
        if member_id not in self.members:
            raise Refusal(ErrorCode.unknown_member_id)

    def reads(self, topic: str) -> bool:
        return self.subscribed_topics is not None and topic in self.subscribed_topics

    def joined_members(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader is told of the members."""
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    # -- changes -----------------------------------------------------------------------------------

    def become(self, state: ClassicState, now_ms: int) -> None:
        self.previous_state, self.state, self.state_ms = self.state, state, now_ms

    def add(self, member: ClassicMember, joining: "asyncio.Future[JoinAnswer] | None" = None) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_votes(member.protocols, 1)
        if joining is not None:
            self.hold_join(member, joining)

    def remove(self, member_id: str) -> ClassicMember | None:
        member = self.members.pop(member_id, None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        if member is None:
            return None
        self._count_votes(member.protocols, -1)
        if member.joining is not None:
            self.joining_count -= 1
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count_votes(member.protocols, -1)
        self._count_votes(protocols, 1)
        member.protocols = protocols

    def hold_join(self, member: ClassicMember, future: "asyncio.Future[JoinAnswer]") -> None:
        """Hold a JoinGroup request until the rebalance ends; an older one of the member is let go."""
        if member.joining is None:
            self.joining_count += 1
        elif not member.joining.done():
            member.joining.set_result(JoinAnswer(ErrorCode.rebalance_in_progress, member.member_id))
        member.joining = future

    def answer_join(self, member: ClassicMember, answer: JoinAnswer) -> None:
        """Answer a held JoinGroup request, if there is one."""
        future, member.joining = member.joining, None
        if future is None:
            return
        if member.member_id in self.members:
            self.joining_count -= 1
        if not future.done():
            future.set_result(answer)

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """A static member is back as a new process: it takes the place and the assignment of the old one."""
        old = self.members[self.static_members[instance_id]]
        self.answer_join(old, JoinAnswer(ErrorCode.fenced_instance_id, old.member_id))
        old.answer_sync(SyncAnswer(ErrorCode.fenced_instance_id))
        was_leader, was_syncing = self.leader == old.member_id, old.member_id in self.pending_syncs
        self.pending_syncs.discard(old.member_id)
        # The position in the order of members is the old one's.
        self.members = {
            (new_id if member is old else member_id): member for member_id, member in self.members.items()
        }
        old.member_id = new_id
        self.static_members[instance_id] = new_id
        if was_leader:
            self.leader = new_id
        if was_syncing:
            self.pending_syncs.add(new_id)
        return old

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else take the first member that has; False when nobody has."""
        if self.leader is None:
            return False
        leader = self.members.get(self.leader)
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        for member in self.members.values():
            member.still_owned = None
        if self.members:
            self.protocol_name = self.select_protocol()
            self.become(ClassicState.COMPLETING, now_ms)
        else:
            self.protocol_name = None
            self.become(ClassicState.EMPTY, now_ms)
        self.note_subscriptions()

    def select_protocol(self) -> str | None:
        """The protocol that all support and most prefer."""
        common = {name for name, count in self.protocol_votes.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next((name for name, _ in member.protocols if name in common), None)
            if favourite is not None:
                votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name], default=None)

    def note_subscriptions(self) -> None:
        """Which topics the members read, as far as their metadata tells."""
        if not self.members:
            self.subscribed_topics = frozenset() if self.protocol_type == CONSUMER else None
            return
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER or self.protocol_name is None:
            return
        topics: set[str] = set()
        for member in self.members.values():
            subscription = read_subscription(member.metadata(self.protocol_name))
            if subscription is None:
                return
            topics.update(subscription.topics)
        self.subscribed_topics = frozenset(topics)

    def _count_votes(self, protocols: Protocols, by: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self.protocol_votes.get(name, 0) + by
            if count:
                self.protocol_votes[name] = count
            else:
                del self.protocol_votes[name]

    # -- the journal -------------------------------------------------------------------------------

    def record(self, assignments: dict[str, bytes] | None = None) -> Record:
        """The group as a journal record, with ``assignments`` instead of the members' own."""
        return GroupKey(self.group_id), GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader,
            self.state_ms,
            tuple(self._member_value(member, assignments) for member in self.members.values()),
        )

    def _member_value(self, member: ClassicMember, assignments: dict[str, bytes] | None) -> GroupMemberValue:
        assignment = member.assignment if assignments is None else assignments.get(member.member_id, b"")
        return GroupMemberValue(
            member.member_id, member.instance_id, member.client_id, member.client_host,
            member.rebalance_timeout_ms, member.session_timeout_ms,
            member.metadata(self.protocol_name), assignment,
        )  # fmt: skip

    @classmethod
    def replayed(cls, group_id: str, value: GroupValue) -> "ClassicGroup":
        """The group that a journal record tells of."""
        group = cls(group_id, in_journal=True)
        for member in value.members:
            protocols = ((value.protocol, member.subscription),) if value.protocol is not None else ()
            loaded = ClassicMember(
                member.member_id, member.instance_id, member.client_id, member.client_host,
                member.rebalance_timeout_ms, member.session_timeout_ms, value.protocol_type, protocols,
                member.assignment,
            )  # fmt: skip
            group.add(loaded)
        group.protocol_type = value.protocol_type or None
        group.generation, group.protocol_name, group.leader = value.generation, value.protocol, value.leader
        state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        group.state, group.previous_state, group.state_ms = state, state, value.state_ms
        group.note_subscriptions()
        return group


def new_member_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"
