"""`headwater serve`, and the server of `headwater up`, as real processes."""

import re
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from headwater.views import open_store
from tests.cli.conftest import PROGRAM, environment, run
from tests.serve.served import WORDS, fill
from tests.serve.test_security import TOKEN, certificate
from tests.support.servers import free_port

PATIENCE = 60.0
APPLICATION = """
import headwater as hw

app = hw.App("shop")
app.stream("lines", "line string")


@app.view(key="word")
def words(lines):
    return lines
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """An application whose view has rows in a store of its own."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    with open_store(f"sqlite:///{tmp_path}/.headwater/views.db") as store:
        fill(store)
    return tmp_path / "shop.py"


@contextmanager
def started(*arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def address_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"headwater serve ready at (https?://\S+)\n", line)
    assert found is not None, line
    return found[1]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


def test_serve_says_where_it_is_and_ends_in_order_under_those_who_follow(shop: Path) -> None:
    with started("serve", str(shop), "--port", "0", "--no-ui") as process:
        url = address_of(process)
        assert httpx.get(f"{url}/views/words/w5").json() == {"word": "w5", "n": 5}
        with httpx.stream("GET", f"{url}/views/words/changes", timeout=PATIENCE) as followed:
            lines = followed.iter_lines()
            assert next(line for line in lines if line.startswith("event:"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        assert process.stderr is not None and process.stderr.read() == ""


def test_beyond_loopback_with_a_token_and_tls(shop: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    files = ("--tls-cert", str(cert), "--tls-key", str(key))
    with started(
        "serve", str(shop), "--port", "0", "--no-ui", "--listen", "0.0.0.0", *files, HEADWATER_TOKEN=TOKEN
    ) as process:
        url = address_of(process).replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        with httpx.Client(base_url=url, verify=ssl.create_default_context(cafile=str(cert))) as client:
            assert client.get("/views/words/w5").status_code == 401
            answer = client.get("/views/words/w5", headers={"authorization": f"Bearer {TOKEN}"})
            assert answer.json()["n"] == 5
            assert "Secure" in client.post("/login", data={"token": TOKEN}).headers["set-cookie"]
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http") + "/views")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_it_ends_with_who_holds_its_leash(shop: Path) -> None:
    with started("serve", str(shop), "--port", "0", "--no-ui", HEADWATER_SERVE_LEASH="1") as process:
        assert process.stderr is not None and process.stdin is not None
        assert re.fullmatch(r"shop is served at http://127.0.0.1:\d+\n", process.stderr.readline())
        process.stdin.close()
        process.stdin = None  # so that nobody flushes it again
        assert process.wait(PATIENCE) == 0


def test_it_ends_by_itself(shop: Path) -> None:
    result = run("serve", str(shop), "--port", "0", "--no-ui", "--seconds", "0.2")
    assert result.code == 0 and "ready at" in result.out


def test_what_it_refuses_to_start_with(shop: Path, tmp_path: Path) -> None:
    with started("serve", str(shop), "--port", "0", "--no-ui") as process:
        taken = address_of(process).rpartition(":")[2]
        for arguments, said in {
            ("serve", str(shop), "--port", taken): "address already in use. Choose another port",
            (
                "serve",
                str(shop),
                "--listen",
                "0.0.0.0",
            ): "there is no token and no TLS. Give --token-file FILE",
            ("serve", str(shop), "--listen", "no such host"): "cannot listen at no such host",
            ("up", str(shop), "--http", "99999"): "less than or equal to 65535",
            ("serve", str(tmp_path / "none.py")): "there is no such file",
        }.items():
            result = run(*arguments)
            assert result.code in (1, 2) and said in result.err, (arguments, result.err)
            assert len(result.err.splitlines()) == 1, result.err


def test_a_store_that_nobody_has_filled(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    with started("serve", str(tmp_path / "shop.py"), "--port", "0", "--no-ui") as process:
        url = address_of(process)
        assert httpx.get(f"{url}/views").json()["views"][0]["state"] == "waiting"
        assert httpx.get(f"{url}/views/words/w5").status_code == 503
        with open_store(f"sqlite:///{tmp_path}/.headwater/views.db") as store:
            store.define(WORDS, "f")
        assert httpx.get(f"{url}/views/words/w5").status_code == 404


def test_up_serves_starts_it_again_and_goes_on_without_it(tmp_path: Path) -> None:
    port = free_port()
    with up(tmp_path / "first", port) as (first, said):
        until(lambda: _health(port))
        assert f"shop is served at http://127.0.0.1:{port}\n" in said()
        _server_of(first.pid).kill()
        until(lambda: "the server ended with code -9; starting again" in said())
        until(lambda: _health(port))
        assert first.poll() is None
        with up(tmp_path / "second", port) as (second, complaints):
            until(lambda: "address already in use" in complaints())
            until(lambda: "source users ready" in complaints())
            assert second.poll() is None
        assert _health(port)
    assert not _health(port)


@contextmanager
def up(folder: Path, port: int) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[], str]]]:
    """`headwater up` for an application with a source and nothing to compute (Spark takes long)."""
    folder.mkdir()
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name)")
    database.close()
    (folder / "shop.py").write_text(
        "import headwater as hw\napp = hw.App('shop')\n"
        f"app.source(hw.cdc('sqlite:///{folder}/shop.db', name='users'))\n"
    )
    (folder / "headwater.toml").write_text("[serve]\ndashboard = false\n")
    command = [PROGRAM, "up", str(folder / "shop.py"), "--port", "0", "--http", str(port)]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment(), cwd=folder)
    try:
        yield process, (folder / "said").read_text
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, (folder / "said").read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _health(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).json()["application"] == "shop"
    except httpx.HTTPError:
        return False


def _server_of(pid: int) -> psutil.Process:
    for child in psutil.Process(pid).children(recursive=True):
        command = child.cmdline()
        if "serve" in command and sys.executable in command[0]:
            return child
    raise AssertionError("there is no server")
