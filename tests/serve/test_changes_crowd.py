"""Many clients on one view: cut off, slow, and over a server that is killed. Each ends with the view's content.

The large version, with times, is ``make bench-subscriptions``.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa

from headwater.views import Batch, Column, ViewSchema, ViewStore, open_store
from tests.serve.following import PATIENCE, Follower, raw_events
from tests.support.servers import free_port

CLIENTS, SLOW, KEYS, BATCHES = 50, 4, 60, 60
SCHEMA = ViewSchema(
    "words", 1, (Column("word", "string"), Column("n", "bigint"), Column("text", "string")), ("word",)
)


@contextmanager
def _server(url: str, port: int, data: Path) -> Iterator["subprocess.Popen[bytes]"]:
    arguments = [sys.executable, "-m", "benchmarks.subscriptions_server", url, str(port), str(data)]
    process = subprocess.Popen(arguments)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def _apply(store: ViewStore, number: int, chance: random.Random) -> None:
    chosen = chance.sample(range(KEYS), 20)
    gone, there = chosen[:3], chosen[3:]
    table = pa.table(
        {
            "word": [f"w{n}" for n in there],
            "n": pa.array([number] * len(there), pa.int64()),
            "text": ["x" * 300 for _ in there],
        }
    )
    store.apply("words", 1, Batch(number, table, pa.table({"word": [f"w{n}" for n in gone]})))
    store.trim_changes("words", keep=400)


async def _follow(port: int, follower: Follower, cuts: random.Random | None, slow: bool) -> None:
    """Follow until the last batch, whatever happens to the connection."""
    while follower.batch != BATCHES:
        left = cuts.randrange(1, 400) if cuts else 1 << 60
        follower.connected()
        try:
            async for event in raw_events(
                port, "/views/words/changes", follower.headers, 0.01 if slow else 0.0, 2048 if slow else None
            ):
                follower.apply(*event)
                left -= 1
                if follower.batch == BATCHES or left == 0:
                    break
        except OSError:
            await asyncio.sleep(0.05)


def test_every_client_ends_with_the_content(tmp_path: Path) -> None:
    url, port, chance = f"sqlite:///{tmp_path}/views.db", free_port(), random.Random(6)
    followers = [Follower() for _ in range(CLIENTS + SLOW)]

    async def crowd(store: ViewStore) -> None:
        clients = [
            _follow(port, one, random.Random(n) if n % 3 == 0 else None, n >= CLIENTS)
            for n, one in enumerate(followers)
        ]
        async with asyncio.timeout(PATIENCE * 3):
            await asyncio.gather(*clients, write(store))

    async def write(store: ViewStore) -> None:
        for first, kill in ((1, True), (21, False), (41, None)):
            with _server(url, port, tmp_path) as server:
                for number in range(first, first + 20):
                    await asyncio.to_thread(_apply, store, number, chance)
                    await asyncio.sleep(0.02)
                if kill is None:
                    while any(one.batch != BATCHES for one in followers):
                        await asyncio.sleep(0.05)
                elif not kill:
                    server.terminate()
                    assert await asyncio.to_thread(server.wait, PATIENCE) is not None

    with open_store(url) as store:
        store.define(SCHEMA, "f")
        asyncio.run(crowd(store))
        content = {row["word"]: row for row in store.rows("words")}
    assert len(content) > KEYS // 2
    for follower in followers:
        assert follower.rows == content
    assert sum(one.kinds["snapshot-end"] for one in followers) < 3 * len(followers), (
        "most go on where they were"
    )
