"""Server-side assignors of the new group protocol (KIP-848): who is to own which partition. Pure functions.

Both give every partition of a subscribed topic to exactly one member that subscribes to it, and the same
answer for the same input. ``uniform`` spreads partitions evenly and moves as few as it can. ``range`` gives
each member the same slice of every topic, so that equal keys of topics with equally many partitions meet in
one member; it moves what that takes.
"""

import heapq
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headwater.broker.groups.records import Assignment

Partition: TypeAlias = tuple[uuid.UUID, int]


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member."""

    subscribed: frozenset[uuid.UUID]
    assigned: Assignment  # its target so far, which stickiness keeps to
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSpec]
TopicSizes: TypeAlias = Mapping[uuid.UUID, int]
Assignor: TypeAlias = Callable[[Members, TopicSizes], dict[str, Assignment]]


def uniform(members: Members, topics: TopicSizes) -> dict[str, Assignment]:
    """As even as the subscriptions allow, moving as little as evenness needs.

    >>> t = uuid.UUID(int=1)
    >>> before = {"a": MemberSpec(frozenset([t]), {t: (0, 1, 2)}), "b": MemberSpec(frozenset([t]), {})}
    >>> [list(owned.values()) for owned in uniform(before, {t: 3}).values()]
    [[(0, 1)], [(2,)]]
    """
    if not members:
        return {}
    owned = _kept(members, topics)
    if len({spec.subscribed for spec in members.values()}) == 1:
        _level_same(members, topics, owned)
    else:
        _level_different(members, topics, owned)
    return {member_id: _as_assignment(partitions) for member_id, partitions in owned.items()}


def range_(members: Members, topics: TopicSizes) -> dict[str, Assignment]:
    """A slice of every topic for each of its subscribers; the first get one more if it does not divide.

    Static members come first, by instance id, so that a restart does not change the order.

    >>> t = uuid.UUID(int=1)
    >>> both = {"a": MemberSpec(frozenset([t]), {}), "b": MemberSpec(frozenset([t]), {})}
    >>> [list(owned.values()) for owned in range_(both, {t: 3}).values()]
    [[(0, 1)], [(2,)]]
    """
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    owned: dict[str, dict[uuid.UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic, size in sorted(topics.items()):
        subscribers = [member_id for member_id in order if topic in members[member_id].subscribed]
        if not subscribers:
            continue
        quota, extra = divmod(size, len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + quota + (position < extra)
            if end > start:
                owned[member_id][topic] = tuple(range(start, end))
            start = end
    return dict(owned)


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}


def _as_assignment(partitions: list[Partition]) -> dict[uuid.UUID, tuple[int, ...]]:
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return {topic: tuple(listed) for topic, listed in by_topic.items()}


def _kept(members: Members, topics: TopicSizes) -> dict[str, list[Partition]]:
    """What each member has and may keep; a partition claimed twice stays with the first."""
    claimed: set[Partition] = set()
    owned: dict[str, list[Partition]] = {}
    for member_id in sorted(members):
        spec = members[member_id]
        kept = owned[member_id] = []
        for topic, partitions in sorted(spec.assigned.items()):
            if topic not in spec.subscribed:
                continue
            size = topics.get(topic, 0)
            for partition in sorted(partitions):
                if 0 <= partition < size and (topic, partition) not in claimed:
                    claimed.add((topic, partition))
                    kept.append((topic, partition))
    return owned


def _unassigned(
    members: Members, topics: TopicSizes, owned: Mapping[str, list[Partition]]
) -> list[Partition]:
    taken = {partition for partitions in owned.values() for partition in partitions}
    subscribed = frozenset[uuid.UUID]().union(*(spec.subscribed for spec in members.values()))
    return [
        (topic, partition)
        for topic, size in sorted(topics.items())
        if topic in subscribed
        for partition in range(size)
        if (topic, partition) not in taken
    ]


def _level_same(members: Members, topics: TopicSizes, owned: dict[str, list[Partition]]) -> None:
    """All subscribe to the same topics: everybody gets the quota, and some one more."""
    subscribed = next(iter(members.values())).subscribed
    total = sum(size for topic, size in topics.items() if topic in subscribed)
    quota, extra = divmod(total, len(owned))
    # Those who have more than the quota keep the extra ones, as far as they go.
    limits: dict[str, int] = {}
    for member_id in sorted(owned, key=lambda m: (-len(owned[m]), m)):
        gets_extra = extra > 0
        limits[member_id] = quota + gets_extra
        extra -= gets_extra
    for member_id, limit in limits.items():
        del owned[member_id][limit:]
    free = iter(_unassigned(members, topics, owned))
    # Round by round, so that the partitions of one topic spread over members.
    wanting = sorted(member_id for member_id in owned if len(owned[member_id]) < limits[member_id])
    while wanting:
        for member_id in wanting:
            owned[member_id].append(next(free))
        wanting = [member_id for member_id in wanting if len(owned[member_id]) < limits[member_id]]


def _level_different(members: Members, topics: TopicSizes, owned: dict[str, list[Partition]]) -> None:
    """Subscriptions differ: fill the least loaded first, then move single partitions while that evens out.

    The result cannot be improved by moving one partition; a chain of moves could improve it in rare cases.
    """
    subscribers: dict[uuid.UUID, list[str]] = {topic: [] for topic in topics}
    for member_id in sorted(members):
        for topic in members[member_id].subscribed:
            if topic in subscribers:
                subscribers[topic].append(member_id)
    free = _unassigned(members, topics, owned)
    free.sort(key=lambda partition: (len(subscribers[partition[0]]), partition))
    by_topic: dict[uuid.UUID, list[Partition]] = {}
    for partition in free:
        by_topic.setdefault(partition[0], []).append(partition)
    for topic, partitions in by_topic.items():
        loads = [(len(owned[member_id]), member_id) for member_id in subscribers[topic]]
        heapq.heapify(loads)
        for partition in partitions:
            load, member_id = loads[0]
            owned[member_id].append(partition)
            heapq.heapreplace(loads, (load + 1, member_id))
    # Each move lowers the sum of squares of the loads, so that this ends.
    moved = True
    while moved:
        moved = False
        for topic, candidates in subscribers.items():
            moved |= _even_out(topic, candidates, owned)


def _even_out(topic: uuid.UUID, candidates: list[str], owned: dict[str, list[Partition]]) -> bool:
    """Move partitions of ``topic`` from its most to its least loaded subscriber while they differ by two."""
    if len(candidates) < 2:
        return False
    of_topic = {m: [partition for partition in owned[m] if partition[0] == topic] for m in candidates}
    moved = False
    while True:
        givers = [member_id for member_id in candidates if of_topic[member_id]]
        if not givers:
            return moved
        giver = max(givers, key=lambda m: (len(owned[m]), m))
        taker = min(candidates, key=lambda m: (len(owned[m]), m))
        if len(owned[giver]) - len(owned[taker]) < 2:
            return moved
        partition = of_topic[giver].pop()
        owned[giver].remove(partition)
        owned[taker].append(partition)
        of_topic[taker].append(partition)
        moved = True
