"""The views of the shop once more, from the log alone and in plain Python, to be compared with what Spark made.

Read is what the topics hold, less what an output left out as too late, which is in its topic `<output>.late`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.client.connection import Connection
from headwater.client.reader import Reader

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]

MINUTE, TEN, FIVE = timedelta(minutes=1), timedelta(seconds=10), timedelta(seconds=5)
CLICKS_LATENESS, READINGS_LATENESS = TEN, FIVE
TOO_WARM = 8.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Log:
    """The topics as they are now."""

    def __init__(self, bootstrap: str) -> None:
        self._connection = Connection(bootstrap, {"log_level": "0"})

    def records(self, topic: str) -> list[tuple[int, int, Any, dict[str, bytes]]]:
        """Partition, offset, value and headers of each."""
        with Reader(self._connection, [topic], to_end=True) as reader:
            return [
                (
                    message.partition() or 0,
                    message.offset() or 0,
                    json.loads(value),
                    dict(message.headers() or []),  # type: ignore[arg-type]
                )
                for messages in reader.batches()
                for message in messages
                if (value := message.value()) is not None
            ]

    def events(self, topic: str, output: str) -> list[Row]:
        """The events of a topic that came in time for an output."""
        late = {
            (int(headers["headwater.partition"]), int(headers["headwater.offset"]))
            for _, _, _, headers in self.records(f"{output}.late")
        }
        return [
            {**value, "at": datetime.fromisoformat(value["at"])}
            for partition, offset, value, _ in self.records(topic)
            if (partition, offset) not in late
        ]

    def newest(self, topic: str) -> datetime | None:
        """The highest time of a topic's events."""
        return max(
            (datetime.fromisoformat(value["at"]) for _, _, value, _ in self.records(topic)), default=None
        )

    def lines(self) -> list[Row]:
        """The order lines that were sold."""
        return [
            {**value["after"], "sold_at": datetime.fromisoformat(value["after"]["sold_at"])}
            for _, _, value, _ in self.records("shop.order_lines")
            if value["op"] in ("c", "r")
        ]

    def products(self) -> list[Row]:
        """The products as their last changes left them."""
        rows: dict[int, Row] = {}
        for _, _, value, _ in self.records("shop.products"):
            if value["after"] is not None:
                rows[value["after"]["id"]] = value["after"]
        return list(rows.values())


def expected(log: Log) -> dict[str, Rows]:
    """What each view should hold, by key."""
    sales = product_sales(log.lines())
    return {
        "sales_per_minute": sales_per_minute(log.lines()),
        "product_sales": sales,
        "top_products": top_products(sales.values()),
        "stock_left": {
            (row["name"],): {
                "product": row["name"],
                "category": row["category"],
                "stock": row["stock"],
                "is_low": row["stock"] < row["reorder_at"],
            }
            for row in log.products()
        },
        "active_sessions": active_sessions(log.events("clicks", "active_sessions")),
        "visits": visits(log.events("clicks", "visits"), log.newest("clicks")),
        "temperatures": temperatures(log.events("readings", "temperatures")),
    }


def sales_per_minute(lines: Iterable[Row]) -> Rows:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        for window in hopping(line["sold_at"], MINUTE, TEN):
            found = sums[window, line["category"]]
            found[0] += line["quantity"]
            found[1] += line["quantity"] * line["cents"]
    return {
        key: {"window": _shown(key[0]), "category": key[1], "pieces": pieces, "cents": cents}
        for key, (pieces, cents) in sums.items()
    }


def product_sales(lines: Iterable[Row]) -> Rows:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        sums[line["product"]][0] += line["quantity"]
        sums[line["product"]][1] += line["quantity"] * line["cents"]
    return {
        (product,): {"product": product, "pieces": pieces, "cents": cents}
        for product, (pieces, cents) in sums.items()
    }


def top_products(sales: Iterable[Row]) -> Rows:
    best = sorted(sales, key=lambda row: (-row["pieces"], row["product"]))[:5]
    return {(rank,): {**row, "rank": rank} for rank, row in enumerate(best, 1)}


def active_sessions(clicks: Iterable[Row]) -> Rows:
    windows: dict[Any, list[str]] = defaultdict(list)
    for click in clicks:
        for window in hopping(click["at"], TEN, TEN):
            windows[window].append(click["session"])
    return {
        (window,): {"window": _shown(window), "sessions": len(set(found)), "clicks": len(found)}
        for window, found in windows.items()
    }


def visits(clicks: Iterable[Row], newest: datetime | None) -> Rows:
    """Those that are over: ten seconds without a click, and no click that is still in time can change it."""
    if newest is None:
        return {}
    watermark = newest - CLICKS_LATENESS
    by_session: dict[str, list[Row]] = defaultdict(list)
    for click in clicks:
        by_session[click["session"]].append(click)
    rows: Rows = {}
    for session, found in by_session.items():
        found.sort(key=lambda click: click["at"])
        for visit in _apart(found, TEN):
            window = (visit[0]["at"], visit[-1]["at"] + TEN)
            if window[1] <= watermark:
                rows[window, session] = {
                    "window": _shown(window),
                    "session": session,
                    "clicks": len(visit),
                    "bought": any(click["page"] == "/checkout" for click in visit),
                }
    return rows


def temperatures(readings: Iterable[Row]) -> Rows:
    return {
        key: {
            "window": _shown(key[0]),
            "sensor": key[1],
            "celsius": sum(found) / len(found),
            "warmest": max(found),
            "readings": len(found),
        }
        for key, found in _by_sensor(readings).items()
    }


def alerts(log: Log) -> list[tuple[str, str, float]]:
    """The alerts that should be in their topic: kind, about what, and the value."""
    newest = log.newest("readings")
    warm = [
        ("too warm", sensor, round(sum(found) / len(found), 1))
        for (window, sensor), found in _by_sensor(log.events("readings", "too_warm")).items()
        if sensor.startswith("fridge") and sum(found) / len(found) > TOO_WARM
        if newest is not None and window[1] <= newest - READINGS_LATENESS
    ]
    low = [
        ("low stock", value["after"]["name"], float(value["after"]["stock"]))
        for _, _, value, _ in log.records("shop.products")
        if value["op"] == "u"
        and value["after"]["stock"] < value["after"]["reorder_at"]
        and value["before"]["stock"] >= value["before"]["reorder_at"]
    ]
    return sorted(warm + low)


def _by_sensor(readings: Iterable[Row]) -> dict[tuple[Any, str], list[float]]:
    windows: dict[tuple[Any, str], list[float]] = defaultdict(list)
    for reading in readings:
        for window in hopping(reading["at"], FIVE, FIVE):
            windows[window, reading["sensor"]].append(reading["celsius"])
    return windows


def hopping(at: datetime, size: timedelta, every: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The windows that a moment is in, which begin at multiples of their step.

    >>> [str(start.time()) for start, _ in hopping(datetime(2026, 1, 5, 10, 0, 25, tzinfo=UTC), MINUTE / 2, TEN)]
    ['10:00:20', '10:00:10', '10:00:00']
    """
    start = EPOCH + (at - EPOCH) // every * every
    while start + size > at:
        yield start, start + size
        start -= every


def _apart(found: list[Row], gap: timedelta) -> Iterator[list[Row]]:
    """Runs of clicks with no more than the gap between one and the next."""
    visit = [found[0]]
    for click in found[1:]:
        if click["at"] > visit[-1]["at"] + gap:
            yield visit
            visit = []
        visit.append(click)
    yield visit


def _shown(window: tuple[datetime, datetime]) -> Row:
    return {"start": window[0], "end": window[1]}


def differences(wanted: Rows, rows: Iterable[Row], key: Iterable[str]) -> list[str]:
    """What is wrong with a view, in words; nothing when it is as it should be.

    >>> differences({(1,): {"rank": 1, "n": 2}}, [{"rank": 1, "n": 3}], ["rank"])
    ['1: n is 3 and should be 2']
    """
    names = list(key)
    found = {tuple(_plain(row[name]) for name in names): row for row in rows}
    problems = []
    for each in sorted(wanted.keys() | found.keys(), key=str):
        shown = ", ".join(_text(part) for part in each)
        if each not in found:
            problems.append(f"{shown}: it is missing")
        elif each not in wanted:
            problems.append(f"{shown}: it should not be there")
        else:
            for column, value in wanted[each].items():
                if not _is_equal(value, found[each].get(column)):
                    problems.append(f"{shown}: {column} is {found[each].get(column)} and should be {value}")
    return problems


def _plain(value: Any) -> Any:
    return (value["start"], value["end"]) if isinstance(value, Mapping) else value


def _text(part: Any) -> str:
    return f"{part[0]:%H:%M:%S}" if isinstance(part, tuple) else str(part)


def _is_equal(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return abs(wanted - found) <= 1e-9 * max(1.0, abs(wanted))  # sums in another order
    return bool(wanted == found)
