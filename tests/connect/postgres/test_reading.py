"""Snapshots: in pieces, gone on with, beside changes, with transactions that are committed and not yet visible."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from headwater.connect.source import Signal
from tests.connect.postgres.following import Following, MemoryLog

Follow = Callable[..., Following]
Db = psycopg.Connection[Any]


def keys(following: Following, topic: str) -> set[Any]:
    return {next(iter(row.values())) for row in following.log.table(topic).values()}


def reads(log: MemoryLog, topic: str) -> list[Any]:
    return [event for event in log.events(topic) if event.value and event.value["op"] == "r"]


def test_a_read_goes_on_where_it_was(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("INSERT INTO t SELECT generate_series(1, 1000)")
    following = follow(chunk_rows=100)
    while len(following.log.events("shop.t")) < 450:
        following.step()
        following.commit()
    before = len(following.log.events("shop.t"))
    assert following.log.position is not None
    assert following.log.position["snapshot"]["public.t"]["after"] == [str(before)]
    following.crash()
    db.execute("DELETE FROM t WHERE id % 2 = 0")
    following.catch_up()
    assert keys(following, "shop.t") == set(range(1, 1001, 2))
    assert [event.key["id"] for event in reads(following.log, "shop.t")][:before] == list(
        range(1, before + 1)
    )
    assert len(reads(following.log, "shop.t")) == before + (1000 - before) // 2
    markers = [event.value["source"]["snapshot"] for event in reads(following.log, "shop.t")]
    assert (markers[0], markers[1], markers[-2], markers[-1]) == ("first", "true", "true", "last")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 0.3)


@pytest.mark.parametrize(
    "columns, key, rows",
    [
        ("a int, b text, c uuid", "b, a", "SELECT g, 'k' || g % 3 FROM generate_series(1, 50) g"),
        ("k text COLLATE \"C\"", "k", "SELECT unnest(ARRAY['a', 'B', 'ä', '\\', '''', 'a b', '', 'z\n'])"),
        ("k text COLLATE ci", "k", "SELECT unnest(ARRAY['a', 'B', 'ä', 'Z', '_', 'c'])"),
        ("k numeric", "k", "SELECT unnest(ARRAY['NaN', '-Infinity', '1.10', '1e20', '-5']::numeric[])"),
        ("k float8", "k", "SELECT unnest(ARRAY['NaN', '-Infinity', 0.1, 1e-300, 0.30000000000000004]::float8[])"),
        ("k bytea", "k", "SELECT decode(md5(g::text), 'hex') FROM generate_series(1, 20) g"),
        ("k timestamptz", "k", "SELECT now() + g * interval '1 microsecond' FROM generate_series(1, 20) g"),
        ("k int[]", "k", "SELECT ARRAY[g, g % 3] FROM generate_series(1, 20) g"),
        ("k mood, d date", "d, k", "SELECT 'b'::mood, '0044-01-01 BC'::date + g FROM generate_series(1, 20) g"),
        ("k interval", "k", "SELECT g * interval '1 hour' FROM generate_series(-10, 10) g"),
        ("k int4range", "k", "SELECT int4range(g, g + 2) FROM generate_series(1, 20) g"),
    ],
)  # fmt: skip
def test_keys_of_any_type(db: Db, follow: Follow, columns: str, key: str, rows: str) -> None:
    db.execute("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    db.execute("CREATE TYPE mood AS ENUM ('z', 'b', 'a')")
    db.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}))")
    db.execute(f"INSERT INTO t {rows}")
    following = follow(chunk_rows=3)
    following.catch_up()
    [[count]] = db.execute("SELECT count(*) FROM t").fetchall()
    assert len(reads(following.log, "shop.t")) == len(following.log.table("shop.t")) == count


def test_a_transaction_that_is_in_the_log_and_not_visible_is_waited_for(
    db: Db, url: str, follow: Follow
) -> None:
    """With synchronous replication a commit is streamed while others do not see it: a read would be older."""
    db.execute("CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t VALUES (1, 'old')")
    following = follow()
    following.catch_up()
    try:
        db.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        db.execute("SELECT pg_reload_conf()")
        time.sleep(0.2)
        waiting = threading.Thread(target=_update, args=[url])
        waiting.start()
        following.until(lambda: following.log.table("shop.t")[b'{"id":1}']["x"] == "new")
        assert db.execute("SELECT x FROM t").fetchall() == [("old",)]
        following.source.signal(Signal("snapshot"))
        for _ in range(10):
            following.step()
            following.commit()
        following.crash()  # another life knows nothing of what this one has seen
        for _ in range(10):
            following.step()
            following.commit()
        assert following.log.table("shop.t")[b'{"id":1}']["x"] == "new"
        assert following.log.position is not None and "snapshot" in following.log.position
    finally:
        db.execute("ALTER SYSTEM RESET synchronous_standby_names")
        db.execute("SELECT pg_reload_conf()")
        waiting.join()
    following.catch_up()
    assert following.log.table("shop.t")[b'{"id":1}']["x"] == "new"
    assert len(reads(following.log, "shop.t")) == 2


def _update(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE t SET x = 'new'")


def test_a_table_that_is_added_while_others_write_to_it_is_complete(db: Db, url: str, follow: Follow) -> None:
    """A transaction that began before the table was published is told only in part by the stream."""
    db.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    following = follow(tables=("a",))
    following.catch_up()
    following.close()
    with psycopg.connect(url) as other:
        other.execute("INSERT INTO b VALUES (1)")
        following = follow(tables=("a", "b"), log=following.log)
        for _ in range(5):
            following.step()
            following.commit()
        other.execute("INSERT INTO b VALUES (2)")
        for _ in range(3):
            following.step()
            following.commit()
        following.until(lambda: any("have to end" in note for note in following.source.status().notes))
        other.commit()
    following.catch_up()
    assert keys(following, "shop.b") == {1, 2}


def test_a_table_without_a_key_that_is_cut_off_is_read_again_from_its_beginning(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.reading.BAG_ROWS", 100)
    monkeypatch.setattr("headwater.connect.cdc.postgres.session.STEP_RECORDS", 100)
    db.execute("CREATE TABLE bag (x int); ALTER TABLE bag REPLICA IDENTITY FULL")
    db.execute("INSERT INTO bag SELECT g % 10 FROM generate_series(1, 1000) g")
    following = follow()
    while len(following.log.events("shop.bag")) < 500:
        following.step()
        following.commit()
    following.crash()
    db.execute("DELETE FROM bag WHERE x = 3")
    db.execute("UPDATE bag SET x = 50 WHERE x = 4")
    following.catch_up()
    assert following.log.bag("shop.bag") == sorted(
        f'{{"x": {x}}}' for [x] in db.execute("SELECT x FROM bag").fetchall()
    )
    assert [event.value["op"] for event in following.log.events("shop.bag")].count("t") == 1
    assert following.source.topic_needs("shop.bag").configs["cleanup.policy"] == "delete"
    assert following.source.topic_needs("shop.other").configs["cleanup.policy"] == "compact"


def test_signals(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a SELECT generate_series(1, 100)")
    db.execute("CREATE TABLE b (id int PRIMARY KEY); INSERT INTO b SELECT generate_series(1, 100)")
    following = follow(chunk_rows=10)
    following.catch_up()
    following.source.signal(Signal("snapshot", ("a",), "id > 95"))
    following.catch_up()
    again = [
        event
        for event in reads(following.log, "shop.a")
        if event.value["source"]["snapshot"] == "incremental"
    ]
    assert [event.key["id"] for event in again] == [96, 97, 98, 99, 100]
    assert len(reads(following.log, "shop.b")) == 100
    following.source.signal(Signal("snapshot", ("a",), "no such column"))
    following.until(lambda: any("was not read again" in note for note in following.source.status().notes))
    # What the topic has and the table has not goes when all of the table is read again.
    following.log.records.append(("shop.a", b'{"id":7777}', b'{"op":"c","after":{"id":7777}}', None))
    following.source.signal(Signal("pause"))
    following.source.signal(Signal("snapshot", ("public.a", "shop.b")))
    for _ in range(5):
        following.step()
        following.commit()
    following.crash()
    db.execute("INSERT INTO a VALUES (500)")
    following.until(lambda: 500 in keys(following, "shop.a"))
    assert len(reads(following.log, "shop.a")) == 105
    assert following.log.position is not None and following.log.position["paused"]
    following.source.signal(Signal("stop-snapshot", ("b",)))
    following.source.signal(Signal("resume"))
    following.catch_up()
    assert keys(following, "shop.a") == {*range(1, 101), 500}
    assert len(reads(following.log, "shop.b")) == 100 and len(reads(following.log, "shop.a")) == 206
    assert b'{"id":7777}' not in following.log.table("shop.a")


def test_a_signal_that_is_yet_to_be_followed_survives_a_kill(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.session.STEP_RECORDS", 10)
    db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (0)")
    following = follow()
    following.catch_up()
    db.execute("INSERT INTO t SELECT generate_series(1, 100)")
    while not following.step().records:
        pass
    following.source.signal(Signal("snapshot"))
    assert following.step().records  # of the stream; the log notes now that the signal was taken
    following.commit()
    following.crash()
    assert following.log.position is not None and following.log.position["asked"] == [{"kind": "snapshot"}]
    following.catch_up()
    assert len(reads(following.log, "shop.t")) == 1 + 101
    assert "asked" not in following.log.position


def test_a_part_that_is_asked_for_does_not_take_the_place_of_all(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)")
    following = follow(chunk_rows=10)
    following.until(lambda: len(following.log.events("shop.t")) >= 20)
    following.source.signal(Signal("snapshot", ("t",), "id > 95"))
    following.catch_up()
    assert keys(following, "shop.t") == set(range(1, 101))
    following.until(
        lambda: any("all of it is read again" in note for note in following.source.status().notes)
    )


def test_partitions_are_one_table(db: Db, follow: Follow, impatient: None) -> None:
    db.execute("CREATE TABLE m (id int, at date, x text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)")
    db.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')")
    db.execute("CREATE TABLE m2 PARTITION OF m FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')")
    db.execute("INSERT INTO m SELECT g, '2024-06-01'::date + g, 'x' FROM generate_series(1, 300) g")
    following = follow(chunk_rows=50)
    following.catch_up()
    db.execute("UPDATE m SET at = '2025-12-01' WHERE id = 1")
    db.execute(
        "CREATE TABLE m3 PARTITION OF m FOR VALUES FROM ('2026-01-01') TO ('2027-01-01'); "
        "INSERT INTO m VALUES (1000, '2026-02-02', 'y')"
    )
    following.until(
        lambda: any(event.value["after"]["id"] == 1000 for event in reads(following.log, "shop.m"))
    )
    assert {
        event.topic for event in following.log.events() if not event.topic.endswith(("message", "schema"))
    } == {"shop.m"}
    assert sorted(row["id"] for row in following.log.table("shop.m").values()) == [*range(1, 301), 1000]
    assert {"id": 1, "at": 20423, "x": "x"} in following.log.table("shop.m").values()
    # The rows of a part that comes or goes are in no change.
    db.execute(
        "CREATE TABLE m4 (id int, at date, x text, PRIMARY KEY (id, at)); "
        "INSERT INTO m4 VALUES (5000, '2027-02-02', 'z')"
    )
    db.execute("ALTER TABLE m ATTACH PARTITION m4 FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')")
    db.execute("DROP TABLE m3")
    following.until(
        lambda: sorted(row["id"] for row in following.log.table("shop.m").values()) == [*range(1, 301), 5000]
    )


def test_children_that_inherit_are_tables_of_their_own(db: Db, follow: Follow) -> None:
    db.execute(
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)"
    )
    db.execute("INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2)")
    following = follow()
    following.catch_up()
    db.execute("INSERT INTO child VALUES (3)")
    following.catch_up()
    assert keys(following, "shop.parent") == {1} and keys(following, "shop.child") == {2, 3}
