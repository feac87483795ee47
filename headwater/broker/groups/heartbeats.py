"""Heartbeats of the new protocol: what they say, and whether their sender is who it should be."""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from headwater.broker.groups.records import Assignment, MemberValue
from headwater.broker.groups.refusals import Refusal

UNCHANGED = -1  # a rebalance time-out that is not sent


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a ConsumerGroupHeartbeat request says; None is what did not change since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    pattern: str | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Sent when joining and after errors: the member wants to know all."""
        says_topics = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != UNCHANGED and says_topics and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The content of a ConsumerGroupHeartbeat response."""

    member_id: str
    member_epoch: int
    interval_ms: int = 0
    assignment: Assignment | None = None  # None: as before


def not_found(message: str) -> Refusal:
    return Refusal(ErrorCode.group_id_not_found, message)


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    message = f"Member {member_id} is not a member of group {group.group_id}."
    return Refusal(ErrorCode.unknown_member_id, message)


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """The member; refuses when there is none."""
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    return member


def known_static(group: ConsumerGroup, instance_id: str, member_id: str | None) -> ConsumerMember:
    """The member of an instance id; refuses when there is none or when another process has taken it."""
    current = group.static_members.get(instance_id)
    if current is None:
        raise Refusal(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member_id is not None and current != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {current}."
        raise Refusal(ErrorCode.fenced_instance_id, message)
    return group.members[current]


def check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    """Refuse a member that is not where the group believes it to be.

    One that did not get the last answer comes with its previous epoch; that is all right as long as it owns
    nothing that it was not given.
    """
    if beat.member_epoch > member.epoch:
        size = "greater"
    elif beat.member_epoch < member.epoch and not (
        beat.member_epoch == member.current.previous_epoch and _is_subset(beat.owned, member.current.assigned)
    ):
        size = "smaller"
    else:
        return
    raise Refusal(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {size} member epoch ({beat.member_epoch}) than the one known by the"
        f" group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(set(partitions) <= set(assigned.get(topic, ())) for topic, partitions in owned.items())


def merged(known: MemberValue | None, beat: Heartbeat) -> MemberValue:
    """What a member asks for, after a heartbeat that only says what changed."""

    def choose(new: str | None, old: str | None) -> str | None:
        return new if new is not None else old

    if known is None:
        known = MemberValue(None, None, "", "", (), None, UNCHANGED, None)
    sent_timeout = beat.rebalance_timeout_ms != UNCHANGED
    return MemberValue(
        choose(beat.instance_id, known.instance_id),
        choose(beat.rack_id, known.rack_id),
        beat.client_id,
        beat.client_host,
        tuple(sorted(set(beat.topics))) if beat.topics is not None else known.topics,
        choose(beat.pattern, known.pattern) or "",
        beat.rebalance_timeout_ms if sent_timeout else known.rebalance_timeout_ms,
        choose(beat.assignor, known.assignor),
    )
