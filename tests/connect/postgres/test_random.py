"""A random writer, lives of the source that end anywhere, and the table rebuilt from the topic."""

import json
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.connect.postgres.following import Following, MemoryLog

SEEDS = range(int(os.environ.get("HEADWATER_EXAMPLES", "2")))
LIVES = 8


class Writer(threading.Thread):
    """Inserts, updates, deletes, key changes, large values, rollbacks, savepoints, truncates, big transactions."""

    def __init__(self, url: str, seed: int, truncates: bool) -> None:
        super().__init__()
        self.url, self.chances, self.stopping = url, random.Random(seed), threading.Event()
        self.truncates = truncates
        self.error: BaseException | None = None
        self.transactions = 0

    def run(self) -> None:
        try:
            with psycopg.connect(self.url) as connection:
                while not self.stopping.is_set():
                    self._transaction(connection)
                    if self.chances.random() < 0.1:
                        connection.rollback()
                    else:
                        connection.commit()
                    self.transactions += 1
                    self.stopping.wait(0.002)
        except BaseException as error:
            self.error = error

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        chances = self.chances
        for _ in range(chances.choice((1, 1, 2, 5))):
            key, other = chances.randrange(1500), chances.randrange(1500)
            large = "x" * chances.choice((1, 10, 5000)) + str(chances.random())
            action = chances.random()
            if action < 0.3:
                connection.execute(
                    "INSERT INTO items VALUES (%s, %s, %s, %s) ON CONFLICT (a, b) DO UPDATE SET note = EXCLUDED.note",
                    [key, f"k{key % 7}", large, chances.random()],
                )
            elif action < 0.5:
                connection.execute("UPDATE items SET number = number + 1 WHERE a = %s", [key])
            elif action < 0.6:
                connection.execute("UPDATE items SET note = %s WHERE a = %s", [large, key])
            elif action < 0.7:
                connection.execute("DELETE FROM items WHERE a = %s", [key])
            elif action < 0.78:
                connection.execute(
                    "UPDATE items SET a = %s WHERE a = %s AND NOT EXISTS (SELECT FROM items WHERE a = %s)",
                    [other, key, other],
                )
            elif action < 0.88:
                connection.execute("INSERT INTO bag VALUES (%s, %s)", [key % 5, chances.choice(("x", large))])
            elif action < 0.93:
                connection.execute("UPDATE bag SET n = n + 1 WHERE ctid = (SELECT min(ctid) FROM bag)")
            elif action < 0.97:
                connection.execute("DELETE FROM bag WHERE ctid = (SELECT max(ctid) FROM bag)")
            elif action < 0.99:
                connection.execute("UPDATE items SET number = number - 1")
            elif self.truncates:
                connection.execute(chances.choice(("TRUNCATE items", "TRUNCATE bag", "TRUNCATE items, bag")))


def rows(db: psycopg.Connection[Any]) -> tuple[dict[Any, Any], list[Any]]:
    items = {(a, b): (note, number) for a, b, note, number in db.execute("SELECT * FROM items").fetchall()}
    return items, sorted(map(tuple, db.execute("SELECT * FROM bag").fetchall()))


@pytest.mark.parametrize("seed", SEEDS)
def test_lives_that_end_anywhere_leave_the_topics_equal_to_the_tables(
    seed: int, url: str, db: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    db.execute("CREATE TABLE items (a int, b text, note text, number float8, PRIMARY KEY (b, a))")
    db.execute("CREATE TABLE bag (n int, t text)")
    db.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    db.execute(
        "INSERT INTO items SELECT g, 'k' || g % 7, repeat('y', g % 4000), g FROM generate_series(1, 1500) g"
    )
    db.execute("INSERT INTO bag SELECT g % 5, 'first' FROM generate_series(1, 300) g")
    chances = random.Random(seed)
    log = MemoryLog()
    writer = Writer(url, seed, truncates=seed % 2 == 1)
    writer.start()
    try:
        for _ in range(LIVES):
            following = follow(log=log, chunk_rows=chances.choice((50, 200, 700)))
            following.random_life(chances, chances.randrange(1, 60))
    finally:
        writer.stopping.set()
        writer.join()
    assert writer.error is None
    following = follow(log=log, chunk_rows=500)
    following.catch_up()

    items, bag = rows(db)
    rebuilt = log.table("shop.items")
    assert {(row["a"], row["b"]): (row["note"], row["number"]) for row in rebuilt.values()} == items
    assert sorted((row["n"], row["t"]) for row in map(json.loads, log.bag("shop.bag"))) == bag
    check_order(log)


def check_order(log: MemoryLog) -> None:
    """Changes come in the order of their transactions, and none of them twice."""
    seen: set[tuple[Any, ...]] = set()
    last = 0
    for event in log.events():
        if event.topic not in ("shop.items", "shop.bag") or event.value is None or event.value["op"] == "r":
            continue
        source = event.value["source"]
        if source["snapshot"] != "false":
            continue
        before = int(json.loads(source["sequence"])[0] or 0)
        assert before >= last
        last = before
        place = (event.topic, source["lsn"], event.value["op"], event.raw_key)
        if event.raw_key is not None:
            assert place not in seen, place
            seen.add(place)
    assert len(seen) > 100
