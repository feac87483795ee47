"""A thousand clients that follow one view, a third of them coming and going at random.

``make bench-subscriptions``: a writer applies batches to a view in SQLite, the server sends every change to every
client, and each client keeps a copy. What is measured: whether every copy is the view in the end, the time from
the return of the store's commit to the arrival at the client, and the server's memory over the run. Server, writer
and clients share the machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from benchmarks import machine
from benchmarks.page import keep_section
from benchmarks.processes import resident, usage
from benchmarks.table import markdown
from headwater.views import Batch, Column, ViewSchema, ViewStore, open_store
from headwater.views.values import to_json
from tests.support.servers import free_port

SECTION = "Subscriptions (`make bench-subscriptions`)"
KEPT = 10_000  # changes in the outbox behind the newest, as the engine keeps them
_MEGABYTE = 1 << 20
_COLUMNS = (
    Column("word", "string"),
    Column("batch", "bigint"),
    Column("n", "bigint"),
    Column("text", "string"),
)


class Writer:
    """Applies batches at a pace; some changes are deletes."""

    def __init__(self, store: ViewStore, keys: int) -> None:
        self._store, self._keys = store, keys
        self.committed: dict[int, float] = {}
        self.late = 0  # batches that the store did not take in time

    def fill(self) -> None:
        """Every key once."""
        self._store.define(ViewSchema("words", 1, _COLUMNS, ("word",)), "benchmark")
        self._apply(0, range(self._keys), ())

    def run(self, seconds: float, rate: int, batches: int) -> int:
        """Writes ``rate`` changes a second in so many batches a second; the number of the last batch."""
        each = rate // batches
        number = at = 0
        began = time.monotonic()
        while (due := began + number / batches) < began + seconds:
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            else:
                self.late += 1
            number += 1
            chosen = [(at + n) * 7 % self._keys for n in range(each)]
            at += each
            # Every tenth change takes a row away; it comes back when its turn comes again.
            self._apply(number, chosen[each // 10 :], chosen[: each // 10])
            if number % (10 * batches) == 0:
                self._store.trim_changes("words", keep=KEPT)
        return number

    def _apply(self, number: int, chosen: Any, gone: Any) -> None:
        table = pa.table(
            {
                "word": [f"word-{one:05d}" for one in chosen],
                "batch": pa.array([number] * len(chosen), pa.int64()),
                "n": pa.array([one * number for one in chosen], pa.int64()),
                "text": [f"some text that a row of a view may have, of batch {number}" for _ in chosen],
            }
        )
        keys = pa.table({"word": [f"word-{one:05d}" for one in gone]}) if len(gone) else None
        self._store.apply("words", 1, Batch(number, table, keys))
        self.committed[number] = time.monotonic()


class Memory:
    """The resident memory of a process over time."""

    def __init__(self, pid: int) -> None:
        self._pid, self.start, self.peak = pid, resident(pid), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self.peak = max(self.peak, self.now)

    @property
    def now(self) -> int:
        return resident(self._pid)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    url, port = f"sqlite:///{directory}/views.db", free_port()
    last = round(options.seconds * options.batches)
    with open_store(url) as store, (directory / "log").open("wb") as log:
        writer = Writer(store, options.keys)
        writer.fill()
        server = _child(["benchmarks.subscriptions_server", url, port, directory / "data"], log)
        clients = None
        try:
            _until_ready(port, server, directory)
            memory = Memory(server.pid)
            clients = _child(
                ["benchmarks.subscriptions_clients", "--port", port, "--clients", options.clients, "--slow",
                 options.slow, "--last-batch", last, "--mean", options.mean, "--dawdle", options.dawdle], log,
            )  # fmt: skip
            _line(clients, directory)
            connected = memory.now
            cpu, began = usage(server.pid), time.monotonic()
            assert writer.run(options.seconds, options.rate, options.batches) == last
            took, cpu = time.monotonic() - began, usage(server.pid).since(cpu)
            written = memory.now
            _tell(clients, "written")
            content = directory / "content.json"
            content.write_bytes(orjson.dumps([orjson.loads(to_json(row)) for row in store.rows("words")]))
            _tell(clients, json.dumps({"content": str(content), "committed": writer.committed}))
            found = _line(clients, directory)
            clients.wait(60)
            time.sleep(1.0)
            memory.end()
            return {
                **found,
                "server_cpu": cpu.total / took,
                "clients_cpu": found["cpu"] / took,
                "late": writer.late,
                "seconds": took,
                "memory": [memory.start, connected, memory.peak, written, memory.now],
            }
        finally:
            for process in (clients, server):
                if process is not None and process.poll() is None:
                    process.terminate()
            for process in (clients, server):
                if process is not None:
                    process.wait(30)


def _child(arguments: list[Any], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
    )  # fmt: skip


def _until_ready(port: int, server: "subprocess.Popen[bytes]", directory: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start: {_log(directory)}") from None
            time.sleep(0.05)


def _line(process: "subprocess.Popen[bytes]", directory: Path) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the clients ended: {_log(directory)}")
    found: dict[str, Any] = json.loads(line)
    return found


def _tell(process: "subprocess.Popen[bytes]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()


def _log(directory: Path) -> str:
    return (directory / "log").read_text()[-3000:]


def table(options: argparse.Namespace, found: dict[str, Any]) -> str:
    times = found["milliseconds"]
    start, connected, peak, written, end = (f"{size / _MEGABYTE:.0f}" for size in found["memory"])
    rows = [
        [
            f"{options.clients:,} clients, {options.rate} changes/s for {options.seconds:.0f} s",
            "value",
            "asked",
        ],
        ["clients whose copy is not the view in the end", str(found["wrong"]), "0"],
        ["commit to client, ms: median", str(times["0.5"]), ""],
        ["commit to client, ms: p99", str(times["0.99"]), "200"],
        ["commit to client, ms: p99.9", str(times["0.999"]), ""],
        ["commit to client, ms: longest", str(times["1.0"]), ""],
        ["reconnects", str(found["reconnects"]), ""],
        ["resets (slow clients)", str(found["resets"]), ""],
        ["server's memory, MB: before the clients", start, ""],
        ["server's memory, MB: all connected", connected, ""],
        ["server's memory, MB: peak", peak, ""],
        ["server's memory, MB: at the last change", written, ""],
        ["server's memory, MB: after the clients", end, ""],
        ["server's processor, cores", f"{found['server_cpu']:.2f}", ""],
        ["clients' processor, cores", f"{found['clients_cpu']:.2f}", ""],
        ["sent, MB/s", f"{found['bytes'] / found['seconds'] / 1e6:.1f}", ""],
        ["sent, pieces/s", f"{found['pieces'] / found['seconds']:,.0f}", ""],
    ]
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=20, help="clients besides, which hardly read")
    parser.add_argument("--rate", type=int, default=500, help="changes a second")
    parser.add_argument("--batches", type=int, default=20, help="batches a second")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mean", type=float, default=5.0, help="seconds until a client that leaves does so")
    parser.add_argument(
        "--dawdle", type=float, default=30.0, help="seconds between two reads of a slow client"
    )
    parser.add_argument("--write", type=Path, help="the page to keep the table in")
    options = parser.parse_args()
    load = machine.load_average()
    with tempfile.TemporaryDirectory(prefix="subscriptions-") as made:
        directory = Path(made)
        found = measure(options, directory)
        lines = [f"- {line}" for line in machine.description(directory)]
    shown = table(options, found)
    print(shown)
    print(json.dumps(found))
    if options.write:
        text = (
            f"{chr(10).join(lines)}\n- load of the machine before the run: {load:.1f}; server, writer and clients "
            f"share its cores\n- the view has {options.keys:,} rows; {options.batches} commits a second; a third of "
            f"the clients cut their connection every {options.mean:.0f} s and come back within 1.5 s; "
            f"{options.slow} more clients read for a moment every {options.dawdle:.0f} s\n\n{shown}"
        )
        keep_section(options.write, SECTION, text)
    if found["wrong"] or not found["finished"]:
        raise SystemExit("a client does not have the view")


if __name__ == "__main__":
    main()
