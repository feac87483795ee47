"""Offsets of many partitions: what a batch takes of them, and how it is cut into tasks. Pure.

Everything here follows from its arguments alone. A batch that is run again must give every task the same
records in the same order, since writing exactly once rests on that.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headwater.streams.sources.topic_read import Offsets

Place = tuple[str, int]
Places = Mapping[Place, int]

# A range of one partition longer than this becomes several tasks, so that a topic of one partition with a
# backlog uses all cores. Smaller pieces would cost more to start than to read.
PIECE = 100_000
# Ranges are put into one task until it has this many offsets: to start another takes as long as to read as many.
TASK = 10_000


class Range(NamedTuple):
    """Offsets of one partition, the last one not included.

    ``is_new`` says that nothing of the partition was read before: what it lost earlier was never missed.
    """

    topic: str
    partition: int
    start: int
    end: int
    is_new: bool = False


def flat(offsets: Offsets) -> dict[Place, int]:
    """Offsets by topic and number.

    >>> flat({"clicks": {"0": 7}})
    {('clicks', 0): 7}
    """
    return {
        (topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
    }


def nested(places: Places) -> Offsets:
    """Offsets as they are written down, in order.

    >>> nested({("clicks", 1): 3, ("clicks", 0): 7})
    {'clicks': {'0': 7, '1': 3}}
    """
    offsets: Offsets = {}
    for (topic, number), offset in sorted(places.items()):
        offsets.setdefault(topic, {})[str(number)] = offset
    return offsets


def not_before(positions: Places, latest: Places, outside: Collection[Place]) -> dict[Place, int]:
    """The ends of partitions, none of them before what was read, but for those that do not hold their position.

    A Kafka node that comes back after a crash may say for a moment that its log ends where it was last sure that
    others had it, which can be the beginning. A batch that ended there would be followed by one with all of it again.

    >>> not_before({("t", 0): 7, ("t", 1): 7, ("t", 2): 7}, {("t", 0): 0, ("t", 1): 9, ("t", 2): 0}, [("t", 2)])
    {('t', 0): 7, ('t', 1): 9, ('t', 2): 0}
    """
    return {
        place: end if place in outside else max(end, positions.get(place, end))
        for place, end in latest.items()
    }


def admitted(start: Places, first: Places, latest: Places, limit: int | None) -> dict[Place, int]:
    """Where a batch of at most ``limit`` offsets ends. Each partition gets a share by what it has waiting.

    >>> admitted({("t", 0): 0, ("t", 1): 0}, {}, {("t", 0): 300, ("t", 1): 100}, 40)
    {('t', 0): 30, ('t', 1): 10}
    """
    begin = {place: start.get(place, first.get(place, 0)) for place in latest}
    waiting = {place: max(0, latest[place] - begin[place]) for place in latest}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(latest)
    end = {place: begin[place] + waiting[place] * limit // total for place in latest}
    left = limit - sum(end[place] - begin[place] for place in latest)
    for place in sorted(latest):  # what rounding left over, so that a limit of one gets on as well
        if left and end[place] < latest[place]:
            end[place] += 1
            left -= 1
    return end


def ranges(start: Places, end: Places, piece: int = PIECE) -> list[Range]:
    """What a batch reads, by partition and offset.

    A partition that is not in ``start`` is new, and is read from its beginning. So is one that ends before it
    started: its topic was deleted and made again.

    >>> [each[1:] for each in ranges({("t", 0): 5}, {("t", 0): 9, ("t", 1): 2})]
    [(0, 5, 9, False), (1, 0, 2, True)]
    >>> [each[2:4] for each in ranges({("t", 0): 0}, {("t", 0): 25}, piece=10)]
    [(0, 8), (8, 16), (16, 25)]
    """
    found = []
    for (topic, number), stop in sorted(end.items()):
        begin = start.get((topic, number), -1)
        is_new = begin < 0 or begin > stop
        begin = 0 if is_new else begin
        count = -(-(stop - begin) // piece)
        bounds = [begin + (stop - begin) * index // count for index in range(count)] + [stop]
        found += [Range(topic, number, first, last, is_new) for first, last in pairwise(bounds)]
    return found


def tasks(wanted: Iterable[Range], least: int = TASK) -> list[tuple[Range, ...]]:
    """The ranges that each task reads, one after the other.

    >>> small = ranges({}, {("t", 0): 40, ("t", 1): 70, ("t", 2): 10})
    >>> [[each.partition for each in task] for task in tasks(small, least=100)]
    [[0, 1], [2]]
    """
    found: list[tuple[Range, ...]] = []
    size = least
    for each in wanted:
        if size >= least:
            found.append(())
            size = 0
        found[-1] += (each,)
        size += each.end - each.start
    return found
