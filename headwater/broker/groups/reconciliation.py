"""How a member of the new protocol gets from what it owns to what it is to own. Pure.

A partition is revoked before it is assigned to somebody else::

    STABLE ----------> UNREVOKED    the member must give up partitions: it stays in its epoch until it has
      ^  \\                |
      |   \\               v  its heartbeat no longer names them
      |    +--------> UNRELEASED    others still have partitions it is to get; it has reached the new epoch
      |                   |
      +-------------------+  all partitions of its target are its own
"""

import uuid
from collections.abc import Callable, Mapping

from headwater.broker.groups.records import STABLE, UNRELEASED, UNREVOKED, Assignment, CurrentValue

IsFree = Callable[[uuid.UUID, int], bool]


def reconcile(
    current: CurrentValue,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
) -> CurrentValue:
    """The member's next step. ``owned`` is what its heartbeat says it owns; None when it does not say.

    >>> t = uuid.UUID(int=1)
    >>> has = CurrentValue(1, 0, STABLE, {t: (0, 1)}, {})
    >>> step = reconcile(has, 2, {t: (0,)}, {t: (0, 1)}, lambda topic, partition: True)
    >>> step.member_epoch, step.state == UNREVOKED, list(step.revoking.values())
    (1, True, [(1,)])
    >>> step = reconcile(step, 2, {t: (0,)}, {t: (0,)}, lambda topic, partition: True)
    >>> step.member_epoch, step.state == STABLE, list(step.assigned.values())
    (2, True, [(0,)])
    """
    if current.state == STABLE:
        if current.member_epoch == target_epoch:
            return current
        return _next(current.member_epoch, current, target_epoch, target, owned, is_free)
    if current.state == UNREVOKED:
        if _still_owns(owned, current.revoking):
            return current
        return _next(current.member_epoch + 1, current, target_epoch, target, owned, is_free)
    return _next(current.member_epoch, current, target_epoch, target, owned, is_free)


def _next(
    epoch: int,
    current: CurrentValue,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: IsFree,
) -> CurrentValue:
    kept: dict[uuid.UUID, list[int]] = {}
    revoking: dict[uuid.UUID, list[int]] = {}
    missing: dict[uuid.UUID, list[int]] = {}
    unreleased = False
    for topic in sorted({*current.assigned, *target}):
        has, wants = set(current.assigned.get(topic, ())), set(target.get(topic, ()))
        _put(kept, topic, has & wants)
        _put(revoking, topic, has - wants)
        free = {partition for partition in wants - has if is_free(topic, partition)}
        unreleased |= free != wants - has
        _put(missing, topic, free)
    if revoking and _still_owns(owned, revoking):
        return CurrentValue(epoch, current.member_epoch, UNREVOKED, _frozen(kept), _frozen(revoking))
    for topic, partitions in missing.items():
        kept.setdefault(topic, []).extend(partitions)
    state = UNRELEASED if unreleased else STABLE
    return CurrentValue(target_epoch, current.member_epoch, state, _frozen(kept), {})


def _still_owns(
    owned: Assignment | None, revoking: Mapping[uuid.UUID, "list[int] | tuple[int, ...]"]
) -> bool:
    """Whether the member has given up the partitions; one that does not say has not."""
    if owned is None:
        return True
    return any(not set(partitions).isdisjoint(owned.get(topic, ())) for topic, partitions in revoking.items())


def _put(assignment: dict[uuid.UUID, list[int]], topic: uuid.UUID, partitions: set[int]) -> None:
    if partitions:
        assignment[topic] = sorted(partitions)


def _frozen(assignment: dict[uuid.UUID, list[int]]) -> Assignment:
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(assignment.items())}
