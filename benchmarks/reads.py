"""Reads of single rows over HTTP from one process, beside bare servers and Datasette over the same rows.

``make bench-serve``: a view of 100,000 rows in SQLite, wrk with 32 connections asking for random keys. The peers
read a table with the same rows: an endpoint of bare Starlette (which reads on the event loop, as ours) and one of
FastAPI (which reads in threads, as it does with plain functions), both on uvicorn with uvloop and httptools, as
ours, and Datasette. What a peer
answers is the row and nothing else; ours has the view's version, batch, offsets and last change in its headers,
of the same moment. wrk shares the machine with the server.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import machine
from benchmarks.page import keep_section
from benchmarks.peers.environments import CannotInstall, Environment
from benchmarks.processes import resident, usage
from benchmarks.table import markdown
from headwater.views import Batch, Column, ViewSchema, open_store
from tests.support.packages import require
from tests.support.servers import free_port

SECTION = "Reads of views (`make bench-serve`)"
DATASETTE = Environment("datasette", ("datasette==0.65.5",))
CONNECTIONS = 32
_MEGABYTE = 1 << 20

APPLICATION = """
import headwater as hw

app = hw.App("bench")
clicks = app.stream("clicks", "page string")


@app.view(key="page")
def pages(clicks):
    return clicks.groupBy("page").count()
"""

# Random keys; the figures as one line of JSON.
SCRIPT = """
local rows = {rows}
function init(args) math.randomseed(os.time()) end
function request() return wrk.format("GET", string.format("{path}", math.random(0, rows - 1))) end
function done(summary, latency, requests)
  local bad = summary.errors.status + summary.errors.connect + summary.errors.read
  io.write(string.format('{{"requests":%d,"us":%d,"p50":%d,"p99":%d,"max":%d,"bad":%d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    bad + summary.errors.write + summary.errors.timeout))
end
"""


@dataclass(frozen=True)
class Figures:
    """What wrk and /proc have seen of one server."""

    reads: float  # a second
    p50: float  # milliseconds
    p99: float
    slowest: float
    cpu: float  # seconds of the server's processor time a second
    memory: int


@dataclass(frozen=True)
class Side:
    """A server to ask: its name in the table, how it is started, and the path of a row by its number."""

    name: str
    command: Sequence[str | Path]
    path: str


def fill(directory: Path, rows: int) -> None:
    """The view, and the same rows in a table of a file of its own."""
    names = [f"page-{number}" for number in range(rows)]
    columns = (Column("page", "string"), Column("count", "bigint"))
    with open_store(f"sqlite:///{directory}/data/views.db") as store:
        store.define(ViewSchema("pages", 1, columns, ("page",)), "benchmark")
        table = pa.table({"page": names, "count": pa.array(range(rows), pa.int64())})
        store.apply("pages", 1, Batch(0, table, offsets={"clicks": {"0": rows}}))
    with sqlite3.connect(directory / "plain.db") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE pages (page TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID")
        database.executemany("INSERT INTO pages VALUES (?, ?)", zip(names, range(rows), strict=True))
    database.close()
    (directory / "bench.py").write_text(APPLICATION)


def sides(directory: Path, port: int) -> Iterator[Side]:
    """Ours, and the peers that can be had here."""
    headwater = Path(sys.executable).with_name("headwater")
    where: list[str | Path] = [
        "--data",
        directory / "data",
        "--port",
        str(port),
        "--bootstrap",
        "127.0.0.1:1",
    ]
    yield Side("Headwater", [headwater, "serve", directory / "bench.py", *where], "/views/pages/page-%d")
    plain = ["--database", str(directory / "plain.db"), "--port", str(port)]
    for name in ("Starlette", "FastAPI"):
        command = [sys.executable, "-m", "benchmarks.peers.bare_rows", name.lower(), *plain]
        yield Side(f"bare {name}", command, "/pages/page-%d")
    try:
        DATASETTE.make()
    except CannotInstall as error:
        print(f"Datasette does not install here: {error}")
        return
    serve: list[str | Path] = [
        DATASETTE.python.with_name("datasette"),
        "serve",
        directory / "plain.db",
        "--port",
        str(port),
    ]
    yield Side(
        f"Datasette {DATASETTE.version}",
        [*serve, "--setting", "num_sql_threads", "3"],
        "/plain/pages/page-%d.json?_shape=array",
    )


@contextmanager
def started(side: Side, port: int, log: Path) -> Iterator[int]:
    """The server as a process, once it answers; its process id."""
    with log.open("wb") as output:
        process = subprocess.Popen(list(map(str, side.command)), stdout=output, stderr=output)
    try:
        url = f"http://127.0.0.1:{port}{side.path % 7}"
        deadline = time.monotonic() + 60
        while True:
            try:
                body = urllib.request.urlopen(url, timeout=5).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{side.name} did not start: {log.read_text()[-3000:]}") from None
                time.sleep(0.05)
        found = json.loads(body)
        row = found[0] if isinstance(found, list) else found
        assert row["count"] == 7, body
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def ask(side: Side, port: int, rows: int, seconds: int, directory: Path) -> dict[str, Any]:
    """What wrk says after so long."""
    script = directory / "ask.lua"
    script.write_text(SCRIPT.format(rows=rows, path=side.path.replace("%d", "%d")))
    command = [
        require("wrk"),
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "--timeout",
        "10s",
        "-s",
        str(script),
    ]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(side: Side, port: int, rows: int, seconds: int, directory: Path) -> Figures:
    """A short warm-up, then what counts."""
    with started(side, port, directory / "server.log") as pid:
        ask(side, port, rows, 2, directory)
        before = usage(pid)
        found = ask(side, port, rows, seconds, directory)
        used = usage(pid).since(before)
        assert found["bad"] == 0, f"{side.name}: {found['bad']} requests failed"
        took = found["us"] / 1e6
        return Figures(
            found["requests"] / took,
            found["p50"] / 1000,
            found["p99"] / 1000,
            found["max"] / 1000,
            used.total / took,
            resident(pid),
        )


def table(figures: dict[str, list[Figures]]) -> str:
    """Of each server the run with the median of reads."""
    header = ["server", "reads/s", "p50, ms", "p99, ms", "slowest, ms", "cores of the server", "memory, MB"]
    rows = [header]
    for name, runs in figures.items():
        middle = sorted(runs, key=lambda run: run.reads)[len(runs) // 2]
        rows.append(
            [
                name,
                f"{middle.reads:,.0f}",
                f"{middle.p50:.1f}",
                f"{middle.p99:.1f}",
                f"{middle.slowest:.1f}",
                f"{middle.cpu:.2f}",
                f"{middle.memory / _MEGABYTE:,.0f}",
            ]
        )
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--runs", type=int, default=3, help="of each server, in turn")
    parser.add_argument("--only", help="the servers whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one run of three seconds")
    parser.add_argument("--write", type=Path, help="keep the table in this file")
    options = parser.parse_args()
    seconds, runs = (3, 1) if options.quick else (options.seconds, options.runs)
    with tempfile.TemporaryDirectory(prefix="bench-reads-") as name:
        directory = Path(name)
        lines = [f"- {line}" for line in machine.description(directory)]
        lines.append(f"- load of the machine before the run: {machine.load_average():.1f}")
        lines.append(
            f"- {options.rows:,} rows in SQLite, wrk with {CONNECTIONS} connections, random keys; {seconds} s a run, "
            f"the run with the median of reads out of {runs}; one process each"
        )
        fill(directory, options.rows)
        figures: dict[str, list[Figures]] = {}
        for _ in range(runs):
            port = free_port()
            for side in sides(directory, port):
                if options.only and options.only.lower() not in side.name.lower():
                    continue
                found = measure(side, port, options.rows, seconds, directory)
                print(f"{side.name}: {found.reads:,.0f} reads/s, p99 {found.p99:.1f} ms", flush=True)
                figures.setdefault(side.name, []).append(found)
    text = "\n".join([*lines, "", table(figures)])
    print(text)
    if options.write:
        keep_section(options.write, SECTION, text)


if __name__ == "__main__":
    main()
