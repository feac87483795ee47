"""Many clients that follow one view, in one process: cheap enough to share a machine with the server.

Each keeps a copy of the view by the rules of the events alone. Most clients get the same bytes, so what a piece
means is worked out once and then applied by ``dict.update``. A third of them cut their connections at random, in
the middle of whatever they are sent, and come back with the id of the last event they took in; some read slowly.

The process prints a line of JSON when all are connected, and one when all have seen the last batch.
"""

import argparse
import array
import asyncio
import contextlib
import gc
import json
import random
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

from headwater.serve.sse import Parser

KNOWN = 2000  # pieces whose meaning is remembered


@dataclass
class Meaning:
    """What a piece of a stream does to a copy."""

    steps: list[tuple[str, Any]] = field(default_factory=list)
    last: str | None = None  # None: says nothing of it
    batches: frozenset[int] = frozenset()  # whose changes are in it
    done: int = -1  # the batch of the last progress
    number: int = 0


def meaning(data: bytes) -> Meaning:
    found = Meaning()
    batches: set[int] = set()
    for kind, identity, content in Parser().feed(data):
        if identity is not None:
            found.last = identity
        value = orjson.loads(content)
        if kind in ("upsert", "delete"):
            if not found.steps or found.steps[-1][0] != "change":
                found.steps.append(("change", {}))
            found.steps[-1][1][value["word"]] = value if kind == "upsert" else None
            if kind == "upsert":
                batches.add(value["batch"])
        elif kind == "snapshot":
            found.steps.append((kind, {row["word"]: row for row in value}))
        elif kind in ("snapshot-end", "reset"):
            found.steps.append((kind, None))
        elif kind == "progress":
            found.done = value["batch"] if value["batch"] is not None else -1
        elif kind == "error":
            raise SystemExit(f"the server says: {value}")
    found.batches = frozenset(batches)
    return found


class Crowd:
    """All clients, and what they measured."""

    def __init__(self, port: int, last_batch: int) -> None:
        self.port, self.last_batch = port, last_batch
        self.known: dict[bytes, Meaning] = {}
        self.meanings: list[Meaning] = []
        self.clients: list[Client] = []
        self.times = array.array("d")
        self.numbers = array.array("i")
        self.connects = array.array("d")
        self.resets = self.reconnects = self.bytes = self.pieces = 0
        self.finished = 0
        self.all_done = asyncio.Event()

    def meaning(self, data: bytes) -> Meaning:
        found = self.known.get(data)
        if found is None:
            if len(self.known) > KNOWN:
                self.known.clear()
            found = self.known[data] = meaning(data)
            found.number = len(self.meanings)
            self.meanings.append(found)
        return found


class Client(asyncio.Protocol):
    """One client, over all of its connections."""

    def __init__(self, crowd: Crowd, slow: bool) -> None:
        self.crowd, self.slow = crowd, slow
        self.rows: dict[str, Any] = {}
        self.coming: dict[str, Any] = {}
        self.last = ""
        self.finished = False
        self.whole = False  # it has had a snapshot
        self.transport: asyncio.Transport | None = None
        self.connected = 0.0
        self._rest = b""
        self._headers = True

    async def connect(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        if self.slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.sock_connect(connection, ("127.0.0.1", self.crowd.port))
                break
            except OSError:
                await asyncio.sleep(0.1)
        self._rest, self._headers, self.coming = b"", True, {}
        await loop.create_connection(lambda: self, sock=connection)
        assert self.transport is not None
        self.connected = time.monotonic()
        seen = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        request = f"GET /views/words/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n{seen}\r\n"
        self.transport.write(request.encode())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return
        now = time.monotonic()
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at = 0
        if self._headers:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            if b" 200 " not in data[:20]:
                raise SystemExit(f"the server answers {data[:200]!r}")
            at, self._headers = end + 4, False
        while at < len(data):
            line = data.find(b"\r\n", at, at + 20)
            if line < 0:
                break
            size = int(data[at:line], 16)
            end = line + 2 + size
            if size == 0 or end + 2 > len(data):
                break
            self._take(data[line + 2 : end], now)
            at = end + 2
        self._rest = data[at:]

    def _take(self, data: bytes, now: float) -> None:
        crowd = self.crowd
        found = crowd.meaning(data)
        crowd.pieces += 1
        crowd.bytes += len(data)
        for kind, content in found.steps:
            if kind == "change":
                self.rows.update(content)
            elif kind == "snapshot":
                self.coming |= content
            elif kind == "snapshot-end":
                self.rows, self.coming, self.whole = self.coming, {}, True
            else:
                self.coming = {}
                crowd.resets += 1
        if found.last is not None:
            self.last = found.last
        if found.batches and not self.slow:
            crowd.times.append(now)
            crowd.numbers.append(found.number)
            crowd.connects.append(self.connected)
        if found.done == crowd.last_batch and not self.finished:
            self.finished = True
            crowd.finished += 1
            if crowd.finished == len(crowd.clients):
                crowd.all_done.set()

    # -- what makes life hard for the server -------------------------------------------------------

    async def come_and_go(self, mean: float, chance: random.Random) -> None:
        """Cut the connection now and then, and be away for a while."""
        while not self.finished:
            await asyncio.sleep(chance.expovariate(1 / mean))
            if self.finished:
                return
            self.cut()
            self.crowd.reconnects += 1
            await asyncio.sleep(chance.uniform(0, 1.5))
            await self.connect()

    async def dawdle(self, pause: float, until: asyncio.Event) -> None:
        """Read a little every now and then."""
        while not until.is_set():
            if self.transport is not None:
                self.transport.pause_reading()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), pause)
            if self.transport is not None:
                self.transport.resume_reading()
            await asyncio.sleep(0.05)


async def run(options: argparse.Namespace) -> None:
    crowd = Crowd(options.port, options.last_batch)
    chance = random.Random(options.seed)
    for number in range(options.clients + options.slow):
        crowd.clients.append(Client(crowd, number >= options.clients))
    for first in range(0, len(crowd.clients), 50):
        await asyncio.gather(*(client.connect() for client in crowd.clients[first : first + 50]))
    while not all(client.whole for client in crowd.clients):
        await asyncio.sleep(0.05)
    print(json.dumps({"connected": len(crowd.clients)}), flush=True)
    leaving = chance.sample(crowd.clients[: options.clients], round(options.clients * options.leaving))
    tasks = [asyncio.create_task(client.come_and_go(options.mean, chance)) for client in leaving]
    written = asyncio.Event()
    tasks += [asyncio.create_task(c.dawdle(options.dawdle, written)) for c in crowd.clients if c.slow]
    # The writer says that it is done, by a line on our standard input.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    written.set()
    finished = True
    try:
        await asyncio.wait_for(crowd.all_done.wait(), options.patience)
    except TimeoutError:
        finished = False
    for task in tasks:
        task.cancel()
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"finished": finished, **_report(crowd, json.loads(line))}), flush=True)


def _report(crowd: Crowd, told: dict[str, Any]) -> dict[str, Any]:
    content = {row["word"]: row for row in orjson.loads(Path(told["content"]).read_bytes())}
    committed: dict[int, float] = {int(number): at for number, at in told["committed"].items()}
    wrong = 0
    for client in crowd.clients:
        rows = {word: row for word, row in client.rows.items() if row is not None}
        wrong += rows != content
    latencies = array.array("d")
    for now, number, connected in zip(crowd.times, crowd.numbers, crowd.connects, strict=True):
        for one in crowd.meanings[number].batches:
            at = committed.get(one)
            # What was committed while the client was away is not what the server took.
            if at is not None and at > connected:
                latencies.append(now - at)
    ordered = sorted(latencies)
    return {
        "wrong": wrong,
        "samples": len(ordered),
        "milliseconds": {
            str(share): round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)
            for share in (0.5, 0.9, 0.99, 0.999, 1.0)
        }
        if ordered
        else {},
        "reconnects": crowd.reconnects,
        "resets": crowd.resets,
        "pieces": crowd.pieces,
        "bytes": crowd.bytes,
        "cpu": time.process_time(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("port", 0), ("clients", 1000), ("slow", 0), ("last-batch", 0), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, number in (("leaving", 1 / 3), ("mean", 5.0), ("dawdle", 15.0), ("patience", 60.0)):
        parser.add_argument(f"--{name}", type=float, default=number)
    gc.disable()  # a pause of ours would be taken for one of the server's
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
