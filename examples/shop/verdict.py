"""Whether the shop's views are what the log says, once they have read all of it."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from examples.shop import recompute
from examples.shop.database import Shop
from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.views.store import ViewStore

CAPTURE_SECONDS = 30.0
COVER_SECONDS = 90.0
SETTLE_SECONDS = 30.0  # for views over views, closed windows, and what was too late to be set aside

TOPICS = {
    "sales_per_minute": "shop.order_lines",
    "product_sales": "shop.order_lines",
    "top_products": "shop.order_lines",
    "stock_left": "shop.products",
    "products": "shop.products",
    "active_sessions": "clicks",
    "visits": "clicks",
    "temperatures": "readings",
}  # what each view reads


@dataclass
class Verdict:
    """Of every part: how much it holds, and what is wrong with it."""

    rows: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    late: int = 0

    @property
    def is_right(self) -> bool:
        return not any(self.problems.values())

    def lines(self) -> list[str]:
        """For the terminal."""
        shown = []
        for name, count in self.rows.items():
            wrong = self.problems.get(name, [])
            shown.append(f"{name:<17} {count:>6,} rows   {'equal' if not wrong else f'DIFFERS: {wrong[0]}'}")
            shown += [f"{'':<17} {'':>6}        {each}" for each in wrong[1:4]]
        if self.late:
            shown.append(f"{self.late:,} events came too late for a window; they are in the topics *.late")
        return shown


def judge(store: ViewStore, bootstrap: str, database: Path) -> Verdict:
    """Waits until everything written is in the views, then compares. Nobody may write meanwhile."""
    log = recompute.Log(bootstrap)
    verdict = Verdict()
    verdict.problems["the log"] = _await_capture(log, database, verdict)
    behind = _await_covered(store, bootstrap)
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        _compare(store, log, verdict)
        if verdict.is_right or time.monotonic() > end:
            break
        time.sleep(1.0)
    for view, cause in behind.items():
        verdict.problems.setdefault(view, []).append(cause)
    return verdict


def _compare(store: ViewStore, log: recompute.Log, verdict: Verdict) -> None:
    keys = {info.name: info.versions[-1].schema.key for info in store.views()}
    for view, wanted in recompute.expected(log).items():
        rows = store.rows(view) if view in keys else []
        verdict.rows[view] = len(rows)
        verdict.problems[view] = (
            recompute.differences(wanted, rows, keys[view]) if view in keys else ["there is no such view"]
        )
    found = sorted(
        (value["alert"], value["about"], value["value"]) for _, _, value, _ in log.records("alerts")
    )
    wanted_alerts = recompute.alerts(log)
    verdict.rows["alerts"] = len(found)
    verdict.problems["alerts"] = (
        [] if _alike(found, wanted_alerts) else [f"there are {len(found)} and should be {len(wanted_alerts)}"]
    )
    verdict.late = sum(
        len(log.records(f"{output}.late")) for output in ("active_sessions", "visits", "temperatures")
    )


def _await_capture(log: recompute.Log, database: Path, verdict: Verdict) -> list[str]:
    """The log has what the database has."""
    shop = Shop(database)
    try:
        lines = sorted(int(str(row["id"])) for row in shop.rows("order_lines"))
        products = {json.dumps(row, sort_keys=True) for row in shop.rows("products")}
    finally:
        shop.close()
    verdict.rows["the log"] = len(lines) + len(products)
    end = time.monotonic() + CAPTURE_SECONDS
    while True:
        captured = sorted(row["id"] for row in log.lines())
        held = {json.dumps(row, sort_keys=True) for row in log.products()}
        if captured == lines and held == products:
            return []
        if time.monotonic() > end:
            return [f"it has {len(captured)} order lines, and the database {len(lines)}"]
        time.sleep(0.5)


def _await_covered(store: ViewStore, bootstrap: str) -> dict[str, str]:
    """Views that have not read all of their topic, and how far they are."""
    admin = Admin(Connection(bootstrap, {"log_level": "0"}))
    places = [(topic, number) for topic in set(TOPICS.values()) for number in admin.partitions(topic)]
    ends = admin.latest(places, committed=True)
    until = time.monotonic() + COVER_SECONDS
    while True:
        behind: dict[str, str] = {}
        known = {info.name for info in store.views()}
        for view, topic in TOPICS.items():
            covered = store.progress(view).offsets.get(topic, {}) if view in known else {}
            for (name, number), end in ends.items():
                at = int(covered.get(str(number), covered.get(number, 0)))
                if name == topic and at < end:
                    behind[view] = f"it has read {topic}-{number} up to {at}, of {end}"
        if not behind or time.monotonic() > until:
            return behind
        time.sleep(0.5)


def _alike(found: list[tuple[str, str, float]], wanted: list[tuple[str, str, float]]) -> bool:
    """Whether alerts say the same. A mean that lies between two tenths may be rounded to either of them.

    Which one depends on the order in which Spark adds the readings up.

    >>> _alike([("too warm", "fridge", 11.1)], [("too warm", "fridge", 11.2)])
    True
    >>> _alike([("low stock", "peas", 8.0)], [("low stock", "peas", 7.0)])
    False
    """
    return len(found) == len(wanted) and all(
        one[:2] == other[:2] and abs(one[2] - other[2]) < 0.11
        for one, other in zip(found, wanted, strict=True)
    )
