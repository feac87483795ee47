"""`headwater connect` and `headwater graph` with sinks, as real processes: from a database to Redis and files."""

import json
import re
import signal
import sqlite3
import subprocess
import urllib.request
from pathlib import Path

import pytest

from headwater.connect.sinks.factory import redis as declare
from headwater.errors import ApplicationInvalid
from headwater.streams.app import App
from tests.cli.conftest import PROGRAM, environment, run
from tests.connect.sinks.following import until
from tests.support.redis import Redis
from tests.support.servers import Headwater, free_port


@pytest.fixture
def shop(tmp_path: Path, redis: Redis) -> Path:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name)")
        database.executemany("INSERT INTO users VALUES (?, ?)", [(n, f"n{n}") for n in range(10)])
    database.close()
    app = tmp_path / "shop.py"
    app.write_text(
        "import headwater as hw\n"
        "app = hw.App('shop')\n"
        f"app.source(hw.cdc('sqlite:///{tmp_path}/shop.db', name='sinkshop'))\n"
        f"app.sink(hw.redis('{redis.url}', topic='sinkshop.users', key='sinkshop/{{id}}'))\n"
        f"app.sink(hw.parquet('{tmp_path}/warehouse', topic='sinkshop.users', seconds=0.2))\n"
    )
    return app


def test_a_database_is_followed_through_the_log(
    headwater: Headwater, redis: Redis, shop: Path, tmp_path: Path
) -> None:
    graph = run("graph", str(shop)).lines
    assert [line.split()[0] for line in graph[1:]] == ["source", "sink", "sink"]
    assert graph[2].endswith(f"{redis.url}, sinkshop/{{id}}   <- topic sinkshop.users")
    svg = run("graph", str(shop), "--svg", "-").out
    assert svg.count(">sink</text>") == 2 and svg.count("marker-end") == 2
    port = free_port()
    command = [PROGRAM, "connect", str(shop), "--bootstrap", headwater.bootstrap, "--metrics-port", str(port)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = {process.stdout.readline().split(" ready")[0] for _ in range(3)}
        assert ready == {
            "headwater source sinkshop",
            "headwater sink sinkshop.users.redis",
            "headwater sink sinkshop.users.parquet",
        }
        until(lambda: len(redis.rows("sinkshop/*")) == 10)
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("DELETE FROM users WHERE id = 3")
            database.execute("UPDATE users SET id = 40 WHERE id = 4")
        database.close()
        rows = {*range(10), 40} - {3, 4}
        until(lambda: redis.rows("sinkshop/*").keys() == {f"sinkshop/{id}" for id in rows})
        until(lambda: len(list((tmp_path / "warehouse/sinkshop.users").glob("*.parquet"))) >= 2)
        until(lambda: _status(shop)["sinkshop.users.redis"]["lag_records"] == 0)
        found = _status(shop)["sinkshop.users.redis"]
        assert (found["topic"], found["counts"]["records"], found["state"]) == (
            "sinkshop.users",
            15,
            "running",
        )
        shown = run("connect", "status", str(shop)).out
        assert re.search(r"sinkshop\.users\.redis\s+running\s+sinkshop\.users\s", shown)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        labels = '{application="shop",sink="sinkshop.users.redis",topic="sinkshop.users"}'
        assert f"headwater_sink_records_total{labels} 15.0" in metrics
        assert f"headwater_sink_up{labels} 1.0" in metrics
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert _status(shop)["sinkshop.users.redis"]["state"] == "stopped"


def _status(shop: Path) -> dict[str, dict[str, object]]:
    lines = run("connect", "status", str(shop), "--json").lines
    return {document["name"]: document for document in map(json.loads, lines)}  # type: ignore[misc]


def test_names_of_sources_and_sinks_differ() -> None:
    app = App("shop")
    app.sink(declare("redis://h", topic="users"))
    with pytest.raises(ApplicationInvalid, match=r"sink named 'users\.redis'"):
        app.sink(declare("redis://other", topic="users"))
    with pytest.raises(ApplicationInvalid, match="it is none"):
        app.sink("redis://h")  # type: ignore[arg-type]
    assert [each.name for each in app.connectors] == ["users.redis"]
