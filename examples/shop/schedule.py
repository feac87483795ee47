"""What happens in the shop, and when: the same for the same seed. Pure.

Every happening has the second at which it is `due` to be written, from the start on, and events the second `at` which
they happened: these differ, because networks are slow, phones lose contact and gateways collect.
"""

import heapq
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from examples.shop.database import CUSTOMERS, PRODUCTS

PAGES = ("/", "/search", "/offers", "/product", "/product", "/product", "/basket", "/checkout")
SENSORS = {"fridge-1": 4.0, "fridge-2": 5.0, "freezer": -18.0, "door": 12.0}  # what they should show

GATEWAY_SECONDS = 2.0  # the gateway sends what it has collected
OPEN_DOOR = (8.0, 24.0, 45.0)  # the second fridge stands open from, to, of so many seconds
SILENCE = (3.0, 17.0, 40.0)  # the sensor at the door has no contact from, to, of so many seconds


class Event(NamedTuple):
    """A click or a reading."""

    due: float
    at: float
    content: dict[str, Any]


class Deed(NamedTuple):
    """Something done to the database."""

    due: float
    what: str
    customer: int = 0
    wanted: tuple[tuple[int, int], ...] = ()


def clicks(seed: int, rate: float = 1.0) -> Iterator[Event]:
    """Visitors come, look at pages, and go. Some are on the train; a few pages have a bug.

    >>> first = [next(clicks(7)) for _ in range(2)]
    >>> first[0] == first[1]
    True
    """
    chance = random.Random(f"clicks {seed}")
    waiting: list[tuple[float, int, Event]] = []
    begin, number = 0.0, 0
    while True:
        while waiting and waiting[0][0] <= begin:  # what later visitors do is due later
            yield heapq.heappop(waiting)[2]
        session, at = f"s{seed}-{number}", begin
        for _ in range(chance.randint(2, 16)):
            content: dict[str, Any] = {"session": session, "page": chance.choice(PAGES)}
            if content["page"] == "/product":
                content["product"] = chance.randint(1, len(PRODUCTS))
                if chance.random() < 0.05:
                    content["product"] = "banana"  # does not fit the schema: a dead letter
            slow = chance.uniform(4, 8) if chance.random() < 0.03 else chance.expovariate(1 / 0.2)
            due = at + min(slow, 8.0)
            heapq.heappush(waiting, (due, number, Event(due, at, content)))
            number += 1
            at += chance.expovariate(1 / 1.5)
        begin += chance.expovariate(1.6 * rate)


def readings(seed: int) -> Iterator[Event]:
    """A reading a second of each sensor, in disorder, and some long after."""
    chance = random.Random(f"readings {seed}")
    drift = dict.fromkeys(SENSORS, 0.0)
    batch: list[Event] = []
    held: list[Event] = []
    second = 0
    while True:
        at = float(second)
        for sensor, should in SENSORS.items():
            drift[sensor] = 0.8 * drift[sensor] + chance.uniform(-0.4, 0.4)
            celsius = should + drift[sensor]
            if sensor == "fridge-2" and _is_within(at, OPEN_DOOR):
                celsius += 6.0
            happened = at + chance.uniform(0, 0.9)
            content = {"sensor": sensor, "celsius": round(celsius, 2)}
            if sensor == "door" and _is_within(at, SILENCE):
                held.append(Event(0.0, happened, content))
            else:
                batch.append(Event(0.0, happened, content))
        second += 1
        if held and not _is_within(float(second), SILENCE):
            batch, held = batch + held, []
        if second % GATEWAY_SECONDS == 0:
            chance.shuffle(batch)
            for event in batch:
                yield event._replace(due=float(second))
            batch = []


def deeds(seed: int, rate: float = 1.0) -> Iterator[Deed]:
    """Customers order, the shop ships, the supplier delivers."""
    chance = random.Random(f"orders {seed}")
    popular = [1 / (1 + number) for number in range(len(PRODUCTS))]
    numbers = list(range(1, len(PRODUCTS) + 1))
    chance.shuffle(numbers)
    at = 0.5
    while True:
        last, at = at, at + chance.expovariate(2.0 * rate)
        others = [Deed(when, "ship") for when in _steps(last, at, 5.0)]
        others += [Deed(when, "deliver") for when in _steps(last, at, 7.0)]
        yield from sorted(others)
        chosen = chance.choices(numbers, popular, k=chance.randint(1, 4))
        wanted = tuple((product, chance.randint(1, 4)) for product in dict.fromkeys(chosen))
        yield Deed(at, "order", chance.randint(1, CUSTOMERS), wanted)


def _is_within(at: float, period: tuple[float, float, float]) -> bool:
    begin, end, length = period
    return begin <= at % length < end


def _steps(last: float, now: float, every: float) -> Iterator[float]:
    """The multiples of a step after one moment, up to another."""
    step = int(last // every) + 1
    while step * every <= now:
        yield step * every
        step += 1
