"""What waits to be set aside, joined while it waits."""

import threading
from datetime import UTC, datetime

from headwater.streams.aside import DeadValues, LateEvents
from headwater.streams.backlog import Backlog
from headwater.streams.declarations import Format, Stream
from headwater.streams.engine.checkpoint import BatchRecord

STREAM = Stream("clicks", "clicks", "id long", Format("json"))


def dead(start: dict[int, int], end: dict[int, int], count: int) -> DeadValues:
    return DeadValues(STREAM, start, end, count)


def test_ranges_in_a_row_become_one() -> None:
    joined = dead({0: 5}, {0: 9, 1: 4}, 0).joined(dead({0: 9, 1: 4}, {0: 12, 1: 4, 2: 3}, 2))
    assert joined == dead({0: 5}, {0: 12, 1: 4, 2: 3}, 2)


def test_a_range_that_nobody_has_counted_is_to_be_looked_at() -> None:
    assert dead({0: 5}, {0: 9}, 0).joined(dead({0: 9}, {0: 12}, 0)).count == 0
    assert dead({0: 5}, {0: 9}, 0).joined(dead({0: 10}, {0: 12}, 0)).count == 1
    assert dead({0: 5}, {0: 9}, 0).joined(dead({0: 9, 1: 7}, {0: 12, 1: 8}, 0)).count == 1


def test_a_range_that_comes_again_takes_nothing_back() -> None:
    assert dead({0: 5}, {0: 9}, 1).joined(dead({0: 5}, {0: 7}, 1)).end == {0: 9}


def late(*batches: int) -> LateEvents:
    records = [BatchRecord(number, {"clicks": {0: number * 10}}, datetime.now(UTC)) for number in range(9)]
    steps = tuple((records[number - 1], records[number]) for number in batches)
    return LateEvents("hits", "shop.hits.1", [STREAM], [], steps)


def test_batches_are_looked_at_once_each() -> None:
    joined = late(1, 2).joined(late(2, 5))
    assert [now.id for _, now in joined.steps] == [1, 2, 5]


def test_what_comes_while_something_waits_is_taken_with_it() -> None:
    backlog: Backlog[DeadValues] = Backlog()
    backlog.put("a", dead({0: 0}, {0: 1}, 1))
    backlog.put("b", dead({0: 0}, {0: 5}, 1))
    backlog.put("a", dead({0: 1}, {0: 2}, 1))
    taken = [backlog.take()]
    backlog.put("a", dead({0: 2}, {0: 3}, 1))
    backlog.end()
    taken += [backlog.take(), backlog.take(), backlog.take()]
    ends = [(one.end, one.count) for one in taken if one is not None]
    assert ends == [({0: 2}, 2), ({0: 5}, 1), ({0: 3}, 1)] and taken[-1] is None


def test_who_takes_waits_for_work() -> None:
    backlog: Backlog[DeadValues] = Backlog()
    taken: list[DeadValues | None] = []
    taker = threading.Thread(target=lambda: taken.extend([backlog.take(), backlog.take()]))
    taker.start()
    backlog.put("a", dead({}, {0: 1}, 1))
    backlog.end()
    taker.join(10)
    assert not taker.is_alive() and [one.end if one else None for one in taken] == [{0: 1}, None]
