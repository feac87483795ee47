"""`headwater connect`, `headwater doctor`, and the sources of `headwater up`, as real processes."""

import json
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.errors import UnknownTopic
from tests.cli.conftest import PROGRAM, environment, run
from tests.support.servers import Headwater, free_port


@pytest.fixture
def shop(tmp_path: Path, unique: Callable[[str], str]) -> Path:
    """An application with a source of its own name, and its database beside it."""
    name = unique("shop")
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name)")
        database.executemany("INSERT INTO users VALUES (?, ?)", [(n, f"n{n}") for n in range(100)])
    database.close()
    app = tmp_path / "shop.py"
    app.write_text(
        "import headwater as hw\n"
        "app = hw.App('shop')\n"
        f"app.table('{name}.users', key='id', schema='id long')\n"
        f"app.source(hw.cdc('sqlite:///{tmp_path}/shop.db', name='{name}'))\n"
    )
    return app


def source_of(app: Path) -> str:
    found = re.search(r"name='([^']+)'", app.read_text())
    assert found is not None
    return found[1]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.05)


def count(server: Headwater, topic: str) -> int:
    try:
        with Reader(Connection(server.bootstrap), [topic], to_end=True) as reader:
            return sum(len(batch) for batch in reader.batches())
    except UnknownTopic:
        return 0


def status(app: Path) -> dict[str, object]:
    result = run("connect", "status", str(app), "--json")
    document: dict[str, object] = json.loads(result.out) if result.code == 0 else {}
    return document


def test_running_watching_signalling_and_stopping(headwater: Headwater, shop: Path) -> None:
    name, port = source_of(shop), free_port()
    where = ("--bootstrap", headwater.bootstrap)
    with started("connect", str(shop), *where, "--metrics-port", str(port)) as process:
        assert process.stdout is not None and "ready" in process.stdout.readline()
        until(lambda: count(headwater, f"{name}.users") == 100)
        until(lambda: status(shop).get("records", 0) == 101)  # and the table's definition
        rows = run("connect", "status", str(shop)).rows
        assert rows[0][:4] == ["source", name, "running", "change 0"]
        assert rows[1] == ["snapshot", name, "users", "100", "100", "done"]
        sent = run("connect", "signal", name, "snapshot", "--table", "users", "--where", "id < 10", *where)
        assert (sent.code, sent.out) == (0, f"sent snapshot to {name}\n")
        until(lambda: count(headwater, f"{name}.users") == 110)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        assert f'headwater_source_up{{application="shop",source="{name}"}} 1.0' in metrics
        assert (
            f'headwater_source_snapshot_share{{application="shop",source="{name}",table="users"}} 1.0'
            in metrics
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert status(shop)["state"] == "stopped"
    removed = run("connect", "remove", str(shop), "--yes")
    assert removed.out == f"removed {name}\n"
    with sqlite3.connect(shop.with_name("shop.db")) as database:
        assert {row[0] for row in database.execute("SELECT type FROM sqlite_schema")} == {"table"}
    database.close()
    again = run("connect", "run", str(shop), *where, "--seconds", "20")
    assert again.code == 1 and "changelog" in again.err and "signal" in again.err
    assert status(shop)["state"] == "failed"


def test_several_sources_in_a_process_each_and_killed_ones_come_back(
    headwater: Headwater, shop: Path
) -> None:
    name = source_of(shop)
    database = shop.with_name("shop.db")
    shop.write_text(shop.read_text() + f"app.source(hw.cdc('sqlite:///{database}', name='{name}.two'))\n")
    with started("connect", str(shop), "--bootstrap", headwater.bootstrap) as process:
        until(
            lambda: (
                len(_documents(shop)) == 2 and all(each["state"] == "running" for each in _documents(shop))
            )
        )
        pids = {str(each["name"]): int(str(each["pid"])) for each in _documents(shop)}
        assert len(set(pids.values())) == 2 and process.pid not in pids.values()
        subprocess.run(["kill", "-9", str(pids[name])], check=True)
        until(lambda: any(each["running"] and each["pid"] not in pids.values() for each in _documents(shop)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    until(lambda: all(not each["running"] for each in _documents(shop)))
    assert count(headwater, f"{name}.users") == count(headwater, f"{name}.two.users") == 100


def _documents(app: Path) -> list[dict[str, object]]:
    result = run("connect", "status", str(app), "--json")
    return result.objects if result.code == 0 else []


def test_up_runs_the_sources(shop: Path) -> None:
    name, port = source_of(shop), free_port()
    shown = run("graph", str(shop)).lines
    assert shown[1].startswith(f"  source  {name}") and shown[2].endswith(f"<- {name}")
    text = shop.read_text()
    shop.write_text(
        "".join(line for line in text.splitlines(True) if "app.table" not in line)
    )  # Spark takes long
    with started("up", str(shop), "--port", str(port), "--no-serve") as process:
        until(lambda: status(shop).get("records", 0) == 101)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert status(shop)["running"] is False


def test_what_is_asked_wrongly(headwater: Headwater, shop: Path, tmp_path: Path) -> None:
    where = ("--bootstrap", headwater.bootstrap)
    bare = tmp_path / "bare.py"
    bare.write_text("import headwater as hw\napp = hw.App('bare')\n")
    for arguments, said in {
        ("connect", str(bare)): "has none. Declare one: app.source(hw.cdc(...)),",
        ("connect", "run", str(shop), "--source", "nope"): "no such source",
        ("connect", "signal", "nope", "snapshot", *where): "no such source",
        (
            "connect",
            "signal",
            "nope",
            "explode",
            *where,
        ): "Use one of snapshot, stop-snapshot, pause, resume.",
        ("connect", "signal", "nope", "pause", "--where", "1", *where): "Add --table.",
        ("connect", "status", "--data", str(tmp_path / "none")): "no source and no sink has run",
        ("doctor", "oracle://db/shop"): "names no database that can be captured",
        ("doctor", "postgresql://me:secret@[db/shop"): "postgresql://...: invalid ipv6 url. Write",
        ("doctor", "mysql://me:secret@db:330x/shop"): "mysql://...: port could not be cast",
    }.items():
        result = run(*arguments)
        assert result.code == 1 and said in result.err and len(result.err.splitlines()) == 1, result.err


def test_doctor(shop: Path) -> None:
    url = f"sqlite:///{shop.with_name('shop.db')}"
    result = run("doctor", url)
    assert result.code == 0 and ["table users", "fine", "key id", "-"] in result.rows
    result = run("doctor", url, "--table", "orders", "--json")
    assert result.code == 0 and result.objects[-2]["verdict"] == "warning"
    result = run("doctor", "sqlite:////nowhere/shop.db")
    assert result.code == 1 and "1 of 2 checks stand in the way" in result.err
    result = run("doctor", f"sqlite://{shop.parent}", "--name", "folder")
    assert result.code == 1 and result.rows[1][:2] == ["file", "wrong"] and "there is no file" in result.out


def test_metrics_where_another_listens(headwater: Headwater, shop: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("connect", str(shop), "--bootstrap", headwater.bootstrap, "--metrics-port", str(port))
    said = f"cannot serve metrics at 127.0.0.1:{port}: address already in use. Choose another --metrics-port."
    assert result.code == 1 and result.err.splitlines() == [f"headwater: {said}"]


def test_running_for_longer_than_a_timer_can_wait(headwater: Headwater, shop: Path) -> None:
    with started("connect", str(shop), "--bootstrap", headwater.bootstrap, "--seconds", "inf") as process:
        assert process.stdout is not None and "ready on" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[1] == "" and process.returncode == 0


def test_a_duplicate_source_is_refused(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    twice = "app.source(hw.cdc('sqlite:///shop.db'))\n"
    app.write_text(f"import headwater as hw\napp = hw.App('a')\n{twice}{twice}")
    result = run("graph", str(app))
    assert result.code == 1 and "a source named 'shop' already" in result.err
