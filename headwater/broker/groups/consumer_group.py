"""A group of the new protocol (KIP-848), as its records in the journal tell it.

The state changes by records only: a request works out records on a draft of the group, and when the journal
has them the draft takes the group's place. Replaying the journal makes the same group.

Epochs: the *group* epoch rises when members or topics change; the *target* epoch is the group epoch for which
the target assignment was computed; a *member's* epoch is the target that it has reached or is on the way to.
"""

import copy
import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.broker.groups.ports import Topics
from headwater.broker.groups.records import (
    STABLE,
    Assignment,
    CurrentKey,
    CurrentValue,
    EpochKey,
    EpochValue,
    Key,
    MemberKey,
    MemberValue,
    PartitionMetadataKey,
    Record,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    Value,
)

LEFT = -1  # a member epoch: the member is leaving
LEFT_STATIC = -2  # a member epoch: the static member is leaving and will be back
NOTHING = CurrentValue(0, -1, STABLE, {}, {})
_UNKNOWN = MemberValue(None, None, "", "", (), None, -1, None)


@dataclass(slots=True, frozen=True)
class ConsumerMember:
    """What a member asked for and what it has."""

    member_id: str
    told: MemberValue
    current: CurrentValue = NOTHING

    @property
    def epoch(self) -> int:
        return self.current.member_epoch

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol, in a group that is being moved to the new one or back."""
        return self.told.classic is not None


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """All that is known of a group, except its offsets."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    targets: dict[str, Assignment] = field(default_factory=dict)
    owners: dict[tuple[uuid.UUID, int], str] = field(default_factory=dict)  # who has or gives up a partition
    patterns: dict[str, RegexValue] = field(default_factory=dict)  # the topics that patterns stand for
    topics_checked: tuple[int, float] = (-1, 0.0)  # not a record: when new topics were last looked for

    # -- questions ---------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(self.is_reconciled(member) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_reconciled(self, member: ConsumerMember) -> bool:
        return member.current.state == STABLE and member.epoch == self.target_epoch

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, {})

    def is_free(self, topic_id: uuid.UUID, partition: int) -> bool:
        return (topic_id, partition) not in self.owners

    def topics_of(self, member: MemberValue) -> frozenset[str]:
        """The names that a member subscribes to, its pattern's included; they need not exist."""
        resolved = self.patterns.get(member.pattern) if member.pattern else None
        return frozenset(member.topics) | frozenset(resolved.topics if resolved is not None else ())

    def subscribed_topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in self.topics_of(member.told)}

    def reads(self, topic: str) -> bool:
        return any(topic in self.topics_of(member.told) for member in self.members.values())

    def patterns_in_use(self) -> set[str]:
        return {member.told.pattern for member in self.members.values() if member.told.pattern}

    def preferred_assignor(self, available: tuple[str, ...]) -> str:
        """The assignor that most members ask for, among those that there are; else the default."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.told.assignor in available:
                votes[member.told.assignor] = votes.get(member.told.assignor, 0) + 1
        return max(votes, key=lambda name: votes[name], default=available[0])

    # -- changes -----------------------------------------------------------------------------------

    def apply(self, key: Key, value: Value | None) -> None:
        """Let a record take effect."""
        match key, value:
            case EpochKey(), EpochValue(epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case TargetEpochKey(), TargetEpochValue(epoch):
                self.target_epoch = epoch
            case MemberKey(_, member_id), MemberValue():
                self._set_member(member_id, value)
            case MemberKey(_, member_id), None:
                self._remove_member(member_id)
            case CurrentKey(_, member_id), _:
                self._set_current(member_id, value if isinstance(value, CurrentValue) else NOTHING)
            case TargetKey(_, member_id), TargetValue(assignment):
                self.targets[member_id] = assignment
            case TargetKey(_, member_id), None:
                self.targets.pop(member_id, None)
            case RegexKey(_, pattern), RegexValue():
                self.patterns[pattern] = value
            case RegexKey(_, pattern), None:
                self.patterns.pop(pattern, None)

    def _set_member(self, member_id: str, told: MemberValue) -> None:
        known = self.members.get(member_id)
        if known is not None:
            self._unlink_instance(known)
        self.members[member_id] = ConsumerMember(
            member_id, told, known.current if known is not None else NOTHING
        )
        if told.instance_id is not None:
            self.static_members[told.instance_id] = member_id

    def _remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._unlink_instance(member)
            self._release(member_id, member.current)

    def _set_current(self, member_id: str, current: CurrentValue) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current is NOTHING:
                return  # the tombstone of a member that is gone
            # After compaction a member's own record may come later than this one.
            member = ConsumerMember(member_id, _UNKNOWN)
        self._release(member_id, member.current)
        self.members[member_id] = ConsumerMember(member_id, member.told, current)
        for partition in _partitions(current):
            self.owners[partition] = member_id

    def _release(self, member_id: str, current: CurrentValue) -> None:
        for partition in _partitions(current):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]

    def _unlink_instance(self, member: ConsumerMember) -> None:
        instance_id = member.told.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    # -- the journal -------------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        keys: list[Key] = [CurrentKey(self.group_id, member_id) for member_id in self.members]
        keys += [TargetKey(self.group_id, member_id) for member_id in self.targets]
        keys.append(TargetEpochKey(self.group_id))
        keys += [MemberKey(self.group_id, member_id) for member_id in self.members]
        keys += [RegexKey(self.group_id, pattern) for pattern in self.patterns]
        keys += [PartitionMetadataKey(self.group_id), EpochKey(self.group_id)]
        return [(key, None) for key in keys]

    def copy(self) -> "ConsumerGroup":
        """An independent group that is equal now; members and assignments are never changed in place."""
        other = copy.copy(self)
        for name in ("members", "static_members", "targets", "owners", "patterns"):
            setattr(other, name, dict(getattr(self, name)))
        return other


class Draft:
    """A group with changes that are not in the journal yet. The group itself stays as it is."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[Record] = []
        self._original = group

    def write(self, key: Key, value: Value | None) -> None:
        if self.group is self._original:
            self.group = self._original.copy()
        self.group.apply(key, value)
        self.records.append((key, value))


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number that differs when one of the topics is another one or has other partitions; 0 for no topics.

    It need not be Kafka's: a group that finds another number rebalances once.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id, partitions = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and partitions is not None:
            found = True
            digest.update(f"{name}\0{topic_id}\0{partitions}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def _partitions(current: CurrentValue) -> list[tuple[uuid.UUID, int]]:
    return [
        (topic_id, partition)
        for assignment in (current.assigned, current.revoking)
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]
