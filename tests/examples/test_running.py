"""The examples as they are started by a person: `headwater up`, with events from a Kafka client.

word_count is run by the README's session.
"""

import importlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.streams.engine.status import StatusFile
from headwater.views.store import ViewStore, open_store
from tests.support.application import Application

EXAMPLES = Path(__file__).parents[2] / "examples"
START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def trades() -> list[dict[str, Any]]:
    """Twelve symbols, of which each rises by as many percent as its number says."""
    return [
        {"symbol": f"S{number:02d}", "price": price, "at": (START + timedelta(seconds=second)).isoformat()}
        for second, share in ((0, 0), (3, 7), (8, 1), (15, 1))
        for number in range(12)
        for price in [100.0 + number * share]
    ]


def gainers_are_there(store: ViewStore) -> bool:
    best = [(row["rank"], row["symbol"], row["percent"]) for row in store.rows("top_gainers")]
    if best != [(rank, f"S{12 - rank:02d}", 12.0 - rank) for rank in range(1, 11)]:
        return False
    windows = {
        (row["window"]["start"].second, row["symbol"]): (row["low"], row["high"])
        for row in store.rows("ten_seconds")
    }
    assert len(windows) == 24
    assert windows[0, "S05"] == (100.0, 135.0) and windows[10, "S05"] == (105.0, 105.0)
    return True


def readings() -> list[dict[str, Any]]:
    """Measured a moment before they were sent, by a clock that is years behind."""
    sent = datetime(2011, 1, 1, tzinfo=UTC)
    return [
        {
            "site": f"s{number % 2}",
            "sensor": f"r{number % 10}",
            "celsius": float(number),
            "at": (sent - timedelta(milliseconds=number)).isoformat(),
            "sent": sent.isoformat(),
        }
        for number in range(100)
    ]


def hours_are_there(store: ViewStore) -> bool:
    # An hour may end while the readings are sent.
    found = store.rows("hours")
    by_site = {
        site: sum(row["readings"] for row in found if row["site"] == site)
        for site in {row["site"] for row in found}
    }
    if by_site != {"s0": 50, "s1": 50}:
        return False
    assert {row["sensors"] for row in found} == {5}
    now = datetime.now(UTC)
    assert all(now - timedelta(hours=2) < row["hour"] <= now for row in found)
    return True


def late_reading_is_counted(running: Application) -> None:
    """An hour old when it was sent, and counted though its time is one that the function computes."""
    # A batch drops what is older than the watermark of the batch before it: one must have run with a watermark.
    running.wait_for(lambda: (minutes_status(running)["watermark"] or "") > "2020")
    sent = datetime(2011, 1, 1, tzinfo=UTC)
    old = (sent - timedelta(hours=1)).isoformat()
    running.produce(
        "readings", [{"site": "s0", "sensor": "x", "celsius": 1.0, "at": old, "sent": sent.isoformat()}]
    )
    running.wait_for(lambda: minutes_status(running)["late"])
    assert minutes_status(running)["late"] == 1


def minutes_status(running: Application) -> dict[str, Any]:
    document = StatusFile(running.data, "sensors").read()
    assert document is not None
    return next(dict(each) for each in document["outputs"] if each["name"] == "minutes")


@pytest.mark.wide  # the README's session runs an application, and the demo another
@pytest.mark.parametrize(
    ("name", "topic", "events", "is_done"),
    [
        pytest.param("stock_statistics", "trades", trades(), gainers_are_there, id="stock_statistics"),
        pytest.param("sensors", "readings", readings(), hours_are_there, id="sensors"),
    ],
)
def test_an_example_runs_from_events_to_views(
    name: str, topic: str, events: list[dict[str, Any]], is_done: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Application("up", str(EXAMPLES / f"{name}.py"), "--port", "0", "--no-serve", data=data) as running:
        running.produce(topic, events)
        with open_store(f"sqlite:///{data / 'views.db'}") as store:
            running.wait_for(lambda: is_done(store))
            views = {info.name for info in store.views()}
        if name == "sensors":
            late_reading_is_counted(running)
        # Each view has its changelog, whose newest values are its rows.
        app = importlib.import_module(f"examples.{name}").app
        assert views == {node.name for node in app.nodes if node.kind == "view"}
        view = min(views)
        running.wait_for(lambda: changelog(running.bootstrap, f"{app.name}.{view}"))
        assert running.stop() == 0, running.err()
    assert f"stopping {app.name}\n" in running.err()
    assert "Traceback" not in running.err() and "cannot" not in running.err()


def changelog(bootstrap: str, topic: str) -> dict[str, Any]:
    with Reader(Connection(bootstrap, {"log_level": "0"}), [topic], to_end=True) as reader:
        return {
            message.key().decode(): json.loads(message.value())
            for messages in reader.batches()
            for message in messages
        }
