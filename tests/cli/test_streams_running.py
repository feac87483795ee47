"""A running application as the command shows it to others: views, status, metrics, replay, and its end."""

import json
import os
import pty
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.streams.engine.status import StatusFile
from tests.cli.conftest import PROGRAM, Result, environment, run
from tests.support import java
from tests.support.application import Application
from tests.support.servers import free_port

SHOP = """
from pyspark.sql import functions as F
import headwater as hw

app = hw.App("shop")
app.stream("sales", "product string, price decimal(8,2), at timestamp", time="at", lateness="10 seconds")


@app.view(key=["window", "product"])
def per_minute(sales):
    return sales.groupBy(hw.tumbling("at", "1 minute"), "product").count()


@app.view(key="product")
def totals(sales):
    return sales.groupBy("product").agg(F.count("*").alias("sold"), F.sum("price").alias("revenue"))


@app.view(key="product")
def best(totals):
    return totals.orderBy(F.desc("revenue")).limit(1)


@app.topic("expensive", key="product")
def expensive(sales):
    return sales.where("price >= 100")
"""


def sale(product: str, price: float, time: str) -> dict[str, Any]:
    return {"product": product, "price": price, "at": f"2026-01-05T{time}Z"}


class Shop(Application):
    """The application, and the command beside it."""

    def command(self, *arguments: str, code: int = 0) -> Result:
        result = run(*arguments, "--data", str(self.data))
        assert result.code == code, result.err
        return result

    def status(self, output: str) -> dict[str, Any]:
        """What `headwater status` shows, without starting it."""
        document = StatusFile(self.data, "shop").read()
        outputs = document["outputs"] if document is not None else []
        return next((each for each in outputs if each["name"] == output), {"offsets": {}})

    def covers(self, records: int) -> bool:
        """Whether all outputs have taken so many records."""
        names = ("per_minute", "totals", "expensive")
        return all(self.status(name)["offsets"].get("sales") == {"0": records} for name in names)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with seven sales, of which one came too late, and a value that is none."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    port = free_port()
    arguments = ("up", str(folder / "shop.py"), "--port", "0", "--no-serve", "--metrics-port", str(port))
    with Shop(*arguments, data=folder / "data") as running:
        running.metrics = f"http://127.0.0.1:{port}/metrics"  # type: ignore[attr-defined]
        first = [sale("pear", 2.5, "10:00:00"), sale("pear", 3.25, "10:01:00"), sale("boat", 400, "10:01:30")]
        running.produce("sales", [*first, b"not a sale", sale("plum", 1, "10:05:00")])
        running.wait_for(lambda: running.covers(5))
        running.produce("sales", [sale("plum", 1, "10:05:01")])
        running.wait_for(lambda: running.covers(6))
        running.produce("sales", [sale("late", 1, "10:00:00"), sale("plum", 1, "10:05:02")])
        running.wait_for(lambda: running.covers(8) and running.status("per_minute")["late"] == 1)
        running.wait_for(lambda: running.status("totals")["dead"] == 1)
        yield running


def test_the_list_of_views(shop: Shop) -> None:
    rows = shop.command("views").rows
    assert [row[:5] for row in rows] == [
        ["best", "view", "1", "serving", "1"],
        ["per_minute", "view", "1", "serving", "4"],
        ["totals", "view", "1", "serving", "4"],
    ]
    listed = {each["view"]: each for each in shop.command("views", "--json").objects}
    assert listed["totals"]["offsets"] == {"sales": {"0": 8}}


def test_the_rows_of_a_view(shop: Shop) -> None:
    rows = shop.command("views", "totals", "--order", "-sold", "--order", "product").rows
    assert rows == [
        ["plum", "3", "3.00"],
        ["pear", "2", "5.75"],
        ["boat", "1", "400.00"],
        ["late", "1", "1.00"],
    ]
    assert shop.command("views", "totals", "-o", "-sold", "-n", "1").rows == [["plum", "3", "3.00"]]
    lines = shop.command("views", "totals", "--json").lines
    assert [json.loads(line, parse_float=Decimal)["revenue"] for line in lines] == [
        Decimal(text) for text in ("400.00", "1.00", "5.75", "3.00")
    ]
    assert shop.command("views", "best").rows == [["boat", "1", "400.00"]]
    windows = shop.command("views", "per_minute").rows
    assert windows[0] == ["2026-01-05 10:00:00 to 2026-01-05 10:01:00", "pear", "1"]
    first = shop.command("views", "per_minute", "--json").objects[0]
    assert first["window"]["start"] == "2026-01-05T10:00:00.000000Z"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("views", "total"), "cannot "),
        (("views", "totals", "--order", "price"), "price"),
        (("replay", "total"), "cannot replay total: the views of the store are: best, per_minute, totals."),
        (("replay", "totals", "--from", "yesterday"), "--from"),
    ],
)
def test_what_does_not_exist_is_one_line(shop: Shop, arguments: tuple[str, ...], complaint: str) -> None:
    result = shop.command(*arguments, code=1)
    assert (result.out, len(result.err.splitlines())) == ("", 1)
    assert complaint in result.err and "internal error" not in result.err


def test_the_status_of_the_outputs(shop: Shop) -> None:
    rows = {row[1]: row[2:] for row in shop.command("status").rows}
    assert set(rows) == {"per_minute", "totals", "best", "expensive"}
    objects = shop.command("status", "--json").objects
    assert [each["name"] for each in objects] == list(rows) and all(each["running"] for each in objects)
    # kind, state, batches, rows/s, lag, ms, watermark, late, dead, state rows, guarantee
    assert rows["per_minute"][:2] == ["view", "running"]
    assert rows["per_minute"][6:9] == ["2026-01-05T10:04:52.000Z", "1", "1"]
    assert rows["totals"][7] == "0"  # it has no window, so that nothing is late
    assert {row[-1] for row in rows.values()} == {"exactly once"}
    assert [value["value"] for value in consumed(shop, "per_minute.late")] == [
        json.dumps(sale("late", 1, "10:00:00"))
    ]
    assert [value["value"] for value in consumed(shop, "sales.dead")] == ["not a sale"]
    assert [json.loads(value["value"])["product"] for value in consumed(shop, "expensive")] == ["boat"]


def consumed(shop: Shop, topic: str) -> list[dict[str, Any]]:
    return run("consume", topic, "--from-beginning", "--exit", "--json", "-b", shop.bootstrap).objects


def test_the_metrics_for_prometheus(shop: Shop) -> None:
    with urllib.request.urlopen(shop.metrics, timeout=10) as answer:  # type: ignore[attr-defined]
        text = answer.read().decode()
    values = dict(
        re.findall(r'^headwater_(\w+)\{application="shop",output="per_minute"\} (\S+)$', text, re.M)
    )
    wanted = {"up": "1.0", "rows_in_total": "8.0", "late_total": "1.0", "dead_total": "1.0", "lag": "0.0"}
    assert {name: values.get(name) for name in wanted} == wanted
    assert float(values["batches_total"]) >= 3 and float(values["state_rows"]) > 0


def test_a_replay_builds_the_view_again_beside_the_old_one(shop: Shop) -> None:
    before = shop.command("views", "totals").out
    said = shop.command("replay", "totals")
    assert said.out == "totals will be built anew from the beginning\n"

    def builds() -> list[list[str]]:
        return [row[2:4] for row in shop.command("views").rows if row[0] == "totals"]

    shop.wait_for(lambda: builds() == [["2", "serving"]])
    assert shop.command("views", "totals").out == before


def test_ctrl_c_ends_it_with_all_its_processes_and_it_goes_on_later(shop: Shop) -> None:
    assert shop._process is not None
    family = psutil.Process(shop._process.pid).children(recursive=True)
    assert any("java" in process.name() for process in family)
    assert any("broker" in process.cmdline() for process in family)
    assert shop.stop(signal.SIGINT) == 0, shop.err()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert "Traceback" not in shop.err()
    assert run("status", "--data", str(shop.data)).rows[0][3] == "stopped"

    told = in_a_terminal(
        "up", str(shop.data.parent / "shop.py"), "--port", "0", "--no-serve", "--data", str(shop.data)
    )
    for word in ("per_minute", "watermark", "state rows", "running"):
        assert word in told
    # The view that was replayed goes on; the one that shared its query needs a new one.
    assert re.findall(r"the view (\w+) is built anew: ([\w ]+)", told) == [
        ("per_minute", "shared query changed")
    ]
    assert "cannot" not in told
    assert shop.command("views", "totals", "--order", "-sold", "-n", "1").rows == [["plum", "3", "3.00"]]


def in_a_terminal(*arguments: str) -> str:
    """What the command shows on a terminal until it ends by itself, some seconds after it is ready."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                shown.append(piece)
        except OSError:  # the other end is closed
            pass

    with subprocess.Popen(
        [PROGRAM, *arguments, "--seconds", "4"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=environment(COLUMNS="200", TERM="xterm", **java.QUICK),
    ) as process:
        os.close(theirs)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            code = process.wait(180)
        finally:
            process.terminate()
    reader.join(10)
    os.close(ours)
    text = b"".join(shown).decode()
    assert code == 0, text
    return text


def test_the_data_directory_holds_everything(shop: Shop) -> None:
    names = {path.name for path in Path(shop.data).iterdir()}
    assert {"log", "checkpoints", "views.db", "status", "logs"} <= names
