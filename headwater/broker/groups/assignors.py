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
    numbers = _Numbering(members, topics)
    owned = _kept(members, numbers)
    if len({spec.subscribed for spec in members.values()}) == 1:
        _level_same(numbers, owned)
    else:
        _level_different(members, numbers, owned)
    return {member_id: numbers.assignment(partitions) for member_id, partitions in owned.items()}


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


class _Numbering:
    """All partitions of subscribed topics, as numbers from 0: cheaper to handle than pairs."""

    def __init__(self, members: Members, topics: TopicSizes) -> None:
        subscribed = frozenset[uuid.UUID]().union(*(spec.subscribed for spec in members.values()))
        self.sizes = {topic: size for topic, size in sorted(topics.items()) if topic in subscribed}
        self.starts: dict[uuid.UUID, int] = {}
        self._topics: list[uuid.UUID] = []
        for topic, size in self.sizes.items():
            self.starts[topic] = len(self._topics)
            self._topics += [topic] * size

    def __len__(self) -> int:
        return len(self._topics)

    def topic(self, number: int) -> uuid.UUID:
        return self._topics[number]

    def assignment(self, numbers: list[int]) -> Assignment:
        by_topic: dict[uuid.UUID, list[int]] = {}
        last, listed = None, []
        for number in sorted(numbers):
            topic = self._topics[number]
            if topic is not last:
                last, listed = topic, by_topic.setdefault(topic, [])
            listed.append(number - self.starts[topic])
        return {topic: tuple(partitions) for topic, partitions in by_topic.items()}


def _kept(members: Members, numbers: _Numbering) -> dict[str, list[int]]:
    """What each member has and may keep; a partition claimed twice stays with the first."""
    claimed = bytearray(len(numbers))
    owned: dict[str, list[int]] = {}
    for member_id in sorted(members):
        spec = members[member_id]
        kept = owned[member_id] = []
        for topic, partitions in spec.assigned.items():
            size = numbers.sizes.get(topic, 0)
            if not size or topic not in spec.subscribed:
                continue
            start = numbers.starts[topic]
            for partition in partitions:
                if 0 <= partition < size and not claimed[start + partition]:
                    claimed[start + partition] = True
                    kept.append(start + partition)
        kept.sort()
    return owned


def _unassigned(numbers: _Numbering, owned: Mapping[str, list[int]]) -> list[int]:
    free = bytearray(b"\1") * len(numbers)
    for partitions in owned.values():
        for number in partitions:
            free[number] = False
    return [number for number, is_free in enumerate(free) if is_free]


def _level_same(numbers: _Numbering, owned: dict[str, list[int]]) -> None:
    """All subscribe to the same topics: everybody gets the quota, and some one more."""
    quota, extra = divmod(len(numbers), len(owned))
    # Those who have more than the quota keep the extra ones, as far as they go.
    limits: dict[str, int] = {}
    for member_id in sorted(owned, key=lambda m: (-len(owned[m]), m)):
        gets_extra = extra > 0
        limits[member_id] = quota + gets_extra
        extra -= gets_extra
    for member_id, limit in limits.items():
        del owned[member_id][limit:]
    free = iter(_unassigned(numbers, owned))
    # Round by round, so that the partitions of one topic spread over members.
    wanting = sorted(member_id for member_id in owned if len(owned[member_id]) < limits[member_id])
    while wanting:
        for member_id in wanting:
            owned[member_id].append(next(free))
        wanting = [member_id for member_id in wanting if len(owned[member_id]) < limits[member_id]]


def _level_different(members: Members, numbers: _Numbering, owned: dict[str, list[int]]) -> None:
    """Subscriptions differ: fill the least loaded first, then move single partitions while that evens out.

    The result cannot be improved by moving one partition; a chain of moves could improve it in rare cases.
    """
    subscribers: dict[uuid.UUID, list[str]] = {topic: [] for topic in numbers.sizes}
    for member_id in sorted(members):
        for topic in members[member_id].subscribed:
            if topic in subscribers:
                subscribers[topic].append(member_id)
    by_topic: dict[uuid.UUID, list[int]] = {}
    for number in _unassigned(numbers, owned):
        by_topic.setdefault(numbers.topic(number), []).append(number)
    # Topics with few readers first: those with many can make up for them.
    for topic, partitions in sorted(by_topic.items(), key=lambda item: (len(subscribers[item[0]]), item[0])):
        loads = [(len(owned[member_id]), member_id) for member_id in subscribers[topic]]
        heapq.heapify(loads)
        for number in partitions:
            load, member_id = loads[0]
            owned[member_id].append(number)
            heapq.heapreplace(loads, (load + 1, member_id))
    # Each move lowers the sum of squares of the loads, so that this ends.
    moved = True
    while moved:
        moved = False
        for topic, candidates in subscribers.items():
            start = numbers.starts[topic]
            moved |= _even_out(range(start, start + numbers.sizes[topic]), candidates, owned)


def _even_out(of_topic: range, candidates: list[str], owned: dict[str, list[int]]) -> bool:
    """Move partitions of a topic from its most to its least loaded subscriber while they differ by two."""
    if len(candidates) < 2:
        return False
    movable = {m: [number for number in owned[m] if number in of_topic] for m in candidates}
    moved = False
    while True:
        givers = [member_id for member_id in candidates if movable[member_id]]
        if not givers:
            return moved
        giver = max(givers, key=lambda m: (len(owned[m]), m))
        taker = min(candidates, key=lambda m: (len(owned[m]), m))
        if len(owned[giver]) - len(owned[taker]) < 2:
            return moved
        number = movable[giver].pop()
        owned[giver].remove(number)
        owned[taker].append(number)
        movable[taker].append(number)
        moved = True
