"""The demo as a newcomer runs it, for a short time; and its parts."""

import doctest
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.shop import recompute, schedule, verdict
from examples.shop.database import DELIVERY, FIRST_STOCK, Shop
from tests.support import java

ROOT = Path(__file__).parents[2]
SECONDS = 8
PATIENCE = 600.0  # a busy machine may take as long
AT = datetime(2026, 1, 5, 10, 0, 3, tzinfo=UTC)


@pytest.mark.timeout(700)
def test_the_demo_ends_by_itself_with_views_that_equal_the_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [
        sys.executable,
        "-m",
        "examples.shop",
        "--seconds",
        str(SECONDS),
        "--port",
        "0",
        "--data",
        str(data),
    ]
    demo = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | java.QUICK,
    )
    try:
        shown = demo.communicate(timeout=PATIENCE)[0]
    finally:
        demo.terminate()
        demo.wait()
    assert demo.returncode == 0, shown
    assert re.search(r"the dashboard is at http://127\.0\.0\.1:\d+ ", shown), shown
    verdicts = dict(re.findall(r"^  (\w[\w ]*?) +([\d,]+) rows   equal$", shown, re.MULTILINE))
    views = {"sales_per_minute", "product_sales", "top_products", "stock_left"}
    views |= {"active_sessions", "visits", "temperatures"}
    assert verdicts.keys() == views | {"the log", "alerts"}, shown
    for view in views - {"visits"}:  # visits that are over may not be there yet
        assert int(verdicts[view].replace(",", "")) > 0, shown
    assert "every view equals its recompute from the log" in shown
    assert "everything has stopped" in shown
    assert left_running(str(data)) == []


def left_running(part: str) -> list[str]:
    """The commands of processes that name a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if part in command and "pytest" not in command:
            found.append(command)
    return found


@pytest.mark.timeout(700)
def test_ctrl_c_while_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "examples.shop", "--port", "0", "--data", str(data)]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + PATIENCE
        while not (data / "log").is_dir():  # the broker is there, and Spark is about to start
            assert demo.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE) == 130, demo.stderr.read() if demo.stderr else ""
    finally:
        demo.kill()
        demo.wait()
    assert left_running(str(data)) == []


# -- its parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("happenings", [schedule.clicks, schedule.readings, schedule.deeds])
def test_the_same_seed_gives_the_same_traffic_in_the_order_in_which_it_is_due(
    happenings: Callable[[int], Any],
) -> None:
    def first_minute(seed: int) -> list[Any]:
        return list(itertools.takewhile(lambda each: each.due < 60, happenings(seed)))

    minute = first_minute(7)
    assert minute == first_minute(7) != first_minute(8)
    assert [each.due for each in minute] == sorted(each.due for each in minute)
    assert 50 < len(minute) < 2000


def test_traffic_is_in_disorder_and_some_of_it_late_or_wrong() -> None:
    clicks = list(itertools.takewhile(lambda each: each.due < 120, schedule.clicks(1)))
    assert [each.at for each in clicks] != sorted(each.at for each in clicks)
    assert max(each.due - each.at for each in clicks) > 4
    assert any(each.content.get("product") == "banana" for each in clicks)
    readings = list(itertools.takewhile(lambda each: each.due < 60, schedule.readings(1)))
    assert max(each.due - each.at for each in readings) > 10  # than which lateness and window are less
    assert any(each.content["celsius"] > 8 for each in readings if each.content["sensor"] == "fridge-2")


def test_an_order_takes_no_more_than_there_is(tmp_path: Path) -> None:
    shop = Shop.open_anew(tmp_path / "shop.db")
    assert shop.order(1, [(1, FIRST_STOCK + 5), (2, 3)]) == 2
    assert shop.order(1, [(1, 1)]) == 0
    stocks = {row["id"]: row["stock"] for row in shop.rows("products")}
    assert stocks[1] == 0 and stocks[2] == FIRST_STOCK - 3
    assert [row["quantity"] for row in shop.rows("order_lines")] == [FIRST_STOCK, 3]
    (order,) = shop.rows("orders")
    assert order["cents"] == FIRST_STOCK * 349 + 3 * 199 and order["status"] == "paid"
    shop.deliver()
    shop.ship()
    assert {row["stock"] for row in shop.rows("products") if row["id"] == 1} == {DELIVERY}
    assert [row["status"] for row in shop.rows("orders")] == ["shipped"]
    shop.close()


def click(session: str, second: float, page: str = "/") -> dict[str, Any]:
    return {"session": session, "page": page, "at": AT + timedelta(seconds=second)}


def test_visits_end_after_ten_seconds_of_silence_and_show_when_no_click_can_change_them() -> None:
    clicks = [click("a", 10, "/checkout"), click("a", 0), click("a", 20.001), click("b", 25)]
    rows = recompute.visits(clicks, AT + timedelta(seconds=40.001))
    assert [(row["clicks"], row["bought"]) for row in rows.values()] == [(2, True), (1, False)]
    assert len(recompute.visits(clicks, AT + timedelta(seconds=40))) == 1


def test_a_difference_is_found_whatever_it_is() -> None:
    wanted = recompute.temperatures(
        [{"sensor": "door", "celsius": celsius, "at": AT} for celsius in (1.0, 2.5)]
    )
    (row,) = wanted.values()
    key = ["window", "sensor"]
    assert recompute.differences(wanted, [dict(row)], key) == []
    assert recompute.differences(wanted, [row | {"celsius": 1.7500001}], key) == [
        "10:00:00, door: celsius is 1.7500001 and should be 1.75"
    ]
    assert recompute.differences(wanted, [], key) == ["10:00:00, door: it is missing"]
    other = row | {"sensor": "window"}
    assert "10:00:00, window: it should not be there" in recompute.differences(wanted, [row, other], key)


@pytest.mark.parametrize("module", [recompute, verdict])
def test_what_its_functions_say_of_themselves(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
