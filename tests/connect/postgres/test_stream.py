"""Changes: keys, replica identities, values stored apart, truncated tables, messages, transactions, the outbox."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.connect.source import Signal
from headwater.errors import CaptureImpossible
from tests.connect.postgres.following import Following

Follow = Callable[..., Following]
Db = psycopg.Connection[Any]


def test_a_key_change_is_a_delete_a_tombstone_and_an_insert(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, x text)")
    following = follow()
    following.catch_up()
    db.execute("INSERT INTO t VALUES (1, 'a')")
    db.execute("UPDATE t SET id = 2, x = 'b'")
    following.catch_up()
    _, deleted, tombstone, created = following.log.events("shop.t")
    assert (deleted.key, deleted.value["op"], deleted.value["before"]) == (
        {"id": 1},
        "d",
        {"id": 1, "x": None},
    )
    assert deleted.headers == tombstone.headers == {"__debezium.newkey": b'{"id":2}'}
    assert tombstone.value is None and tombstone.key == {"id": 1}
    assert (created.key, created.value["op"], created.value["after"]) == ({"id": 2}, "c", {"id": 2, "x": "b"})
    assert created.headers == {"__debezium.oldkey": b'{"id":1}'}
    assert deleted.value["source"]["lsn"] == created.value["source"]["lsn"]


def test_replica_identities(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE whole (id int PRIMARY KEY, x text); ALTER TABLE whole REPLICA IDENTITY FULL")
    db.execute("CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, x text)")
    db.execute("ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key")
    db.execute("CREATE TABLE unique_only (b int NOT NULL, a int NOT NULL, x text, UNIQUE (a, b))")
    db.execute("ALTER TABLE unique_only REPLICA IDENTITY FULL")
    following = follow()
    following.catch_up()
    db.execute("INSERT INTO whole VALUES (1, 'a'); UPDATE whole SET x = 'b'; DELETE FROM whole")
    db.execute(
        "INSERT INTO by_index VALUES (1, 'c', 'a'); UPDATE by_index SET id = 2; UPDATE by_index SET code = 'd'"
    )
    db.execute("DELETE FROM by_index")
    db.execute("INSERT INTO unique_only VALUES (1, 2, 'a'); UPDATE unique_only SET b = 3")
    following.catch_up()
    _, updated, deleted, _ = following.log.events("shop.whole")
    assert (updated.value["before"], updated.value["after"]) == ({"id": 1, "x": "a"}, {"id": 1, "x": "b"})
    assert deleted.value["before"] == {"id": 1, "x": "b"}
    assert [event.key for event in following.log.events("shop.by_index")] == [
        {"code": key} for key in ("c", "c", "c", "c", "d", "d", "d")
    ]
    keys = [event.raw_key for event in following.log.events("shop.unique_only")]
    assert keys == [b'{"a":2,"b":1}'] * 3 + [b'{"a":2,"b":3}']


def test_a_table_whose_updates_would_fail_is_refused_or_left_out(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE good (id int PRIMARY KEY); CREATE TABLE bad (x int)")
    with pytest.raises(CaptureImpossible, match="REPLICA IDENTITY FULL"):
        follow(tables=("bad",)).step()
    assert db.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    following = follow(name="all")
    following.catch_up()
    db.execute("INSERT INTO bad VALUES (1); UPDATE bad SET x = 2; INSERT INTO good VALUES (1)")
    following.catch_up()
    assert not following.log.events("all.bad") and len(following.log.events("all.good")) == 1
    following.until(lambda: any("public.bad is left out" in note for note in following.source.status().notes))
    with pytest.raises(CaptureImpossible, match="no such table"):
        follow(tables=("nowhere",), name="other").step()


LARGE = "SELECT string_agg(md5(g::text || %s), '') FROM generate_series(1, 300) g"


@pytest.mark.parametrize("cached", [True, False])
def test_values_stored_apart_are_filled_in(db: Db, follow: Follow, cached: bool) -> None:
    db.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text, more jsonb, list bigint[])")
    more = "(SELECT jsonb_object_agg(g, md5(g::text)) FROM generate_series(1, 400) g)"
    db.execute(
        f"INSERT INTO docs SELECT 1, 0, ({LARGE}), {more}, array_agg(g * 1000000007::bigint) "
        "FROM generate_series(1, 900) g",
        ["a"],
    )
    following = follow()
    following.catch_up()
    if not cached:
        following.close()
        for file in (following.source.directory / "values").iterdir():
            file.unlink()
    db.execute("UPDATE docs SET n = 1")
    following.catch_up()
    db.execute("UPDATE docs SET id = 2")
    if cached:
        following.catch_up()
        # The value changes in the same moment: only who has kept it knows what it was.
        with db.transaction():
            db.execute("UPDATE docs SET n = 2")
            db.execute(f"UPDATE docs SET body = ({LARGE})", ["b"])
            db.execute("UPDATE docs SET n = 3")
    following.catch_up()
    events = [
        event.value for event in following.log.events("shop.docs") if event.value and event.value["after"]
    ]
    first = events[0]["after"]
    assert len(first["body"]) == 9600 and len(first["list"]) == 900
    for event in events[1:3]:
        assert {**event["after"], "id": 1, "n": 0} == first
    if cached:
        bodies = [event["after"]["body"] for event in events]
        assert bodies[3] == first["body"] and bodies[4] == bodies[5] != first["body"]
    assert following.log.table("shop.docs").keys() == {b'{"id":2}'}


@pytest.mark.parametrize("cached", [True, False])
def test_keys_stored_apart(db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch, cached: bool) -> None:
    """Then an update that leaves them as they are has an old key, and none in the row."""
    monkeypatch.setattr("headwater.connect.cdc.postgres.session.STEP_RECORDS", 5)
    db.execute("CREATE TABLE docs (key text PRIMARY KEY, n int, body text)")
    db.execute("ALTER TABLE docs ALTER key SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL")
    db.execute(
        "INSERT INTO docs SELECT repeat(md5(g::text), 80), 0, repeat('b', 3000) FROM generate_series(1, 20) g"
    )
    following = follow(transactions=True)
    following.catch_up()
    before = following.log.table("shop.docs")
    if not cached:
        following.close()
        for file in (following.source.directory / "values").iterdir():
            file.unlink()
    db.execute("UPDATE docs SET n = 1")
    while sum(record[0] == "shop.docs" for step in following._pending for record in step.records) < 12:
        following.step()
    following.commit()
    following.crash()  # in the middle of the transaction: what was written is counted again, and not written
    following.catch_up()
    assert following.log.table("shop.docs") == {key: {**row, "n": 1} for key, row in before.items()}
    updates = [event.value for event in following.log.events("shop.docs")[20:]]
    assert [each["op"] for each in updates] == ["u"] * 20
    assert [each["transaction"]["total_order"] for each in updates] == list(range(1, 21))


def test_a_value_stored_apart_is_that_of_its_time_after_a_crash(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)")
    following = follow()
    following.catch_up()
    db.execute(f"INSERT INTO docs SELECT 1, 0, ({LARGE})", ["a"])
    following.catch_up()
    db.execute("UPDATE docs SET n = 1")
    db.execute(f"UPDATE docs SET body = ({LARGE})", ["b"])
    db.execute("UPDATE docs SET n = 2")
    while sum(len(step.records) for step in following._pending) < 3:
        following.step()
    following.crash()
    following.catch_up()
    bodies = [event.value["after"]["body"] for event in following.log.events("shop.docs")]
    assert bodies[0] == bodies[1] != bodies[2] == bodies[3]


def test_a_truncated_table_is_empty_for_one_who_reads_the_topic_later(db: Db, follow: Follow) -> None:
    db.execute(
        "CREATE TABLE a (id int PRIMARY KEY, x text); CREATE TABLE b (id int PRIMARY KEY REFERENCES a)"
    )
    db.execute("CREATE TABLE bag (x int); ALTER TABLE bag REPLICA IDENTITY FULL")
    db.execute("INSERT INTO a SELECT g, 'x' FROM generate_series(1, 50) g; INSERT INTO b VALUES (1)")
    db.execute("INSERT INTO bag VALUES (1), (1)")
    following = follow()
    following.catch_up()
    with db.transaction():
        db.execute("INSERT INTO a VALUES (100)")
        db.execute("TRUNCATE a, bag CASCADE")
        db.execute("INSERT INTO a VALUES (7, 'after')")
        db.execute("INSERT INTO bag VALUES (3)")
    following.catch_up()
    assert following.log.table("shop.a") == {b'{"id":7}': {"id": 7, "x": "after"}}
    assert following.log.table("shop.b") == {}
    assert following.log.bag("shop.bag") == ['{"x": 3}']
    events = following.log.events("shop.a")
    [truncate] = [event for event in events if event.value and event.value["op"] == "t"]
    assert truncate.raw_key == b"null" and truncate.value["before"] is truncate.value["after"] is None
    deletes = [event for event in events if event.value and event.value["op"] == "d"]
    assert len(deletes) == 51 and deletes[0].value["before"] == {"id": 1, "x": None}


def test_messages_are_written_once_in_and_outside_of_transactions(db: Db, follow: Follow) -> None:
    following = follow()
    following.catch_up()
    db.execute("SELECT pg_logical_emit_message(false, 'loose', 'one')")
    with db.transaction():
        db.execute("SELECT pg_logical_emit_message(true, 'bound', '\\x00ff'::bytea)")
    for _ in range(3):
        following.catch_up()
        following.crash()
    events = [event for event in following.log.events("shop.message") if event.key["prefix"] != "marker"]
    assert [(event.key["prefix"], event.value["message"]["content"]) for event in events] == [
        ("loose", "b25l"),
        ("bound", "AP8="),
    ]
    assert events[0].value["source"]["txId"] is None and events[1].value["source"]["txId"] > 0
    assert events[0].value["op"] == "m"


def test_transactions_have_a_beginning_an_end_and_numbers(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    following = follow(transactions=True)
    following.catch_up()
    with db.transaction():
        db.execute("INSERT INTO a VALUES (1), (2)")
        db.execute("INSERT INTO b VALUES (1)")
    following.catch_up()
    orders = [
        event.value["transaction"] for topic in ("shop.a", "shop.b") for event in following.log.events(topic)
    ]
    assert [(each["total_order"], each["data_collection_order"]) for each in orders] == [
        (1, 1),
        (2, 2),
        (3, 1),
    ]
    found = [
        event.value
        for event in following.log.events("shop.transaction")
        if event.value["id"] == orders[0]["id"]
    ]
    assert [each["status"] for each in found] == ["BEGIN", "END"]
    assert found[1]["event_count"] == 3
    assert found[1]["data_collections"] == [
        {"data_collection": "public.a", "event_count": 2},
        {"data_collection": "public.b", "event_count": 1},
    ]


def test_a_large_transaction_is_cut_into_steps_and_gone_on_with(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.session.STEP_RECORDS", 500)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, x text)")
    following = follow(transactions=True)
    following.catch_up()
    db.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g")
    written = 0
    while written < 20000:
        while (pending := sum(len(step.records) for step in following._pending)) < 2000:
            if written + pending >= 20000:
                break
            following.step()
        following.commit(max(1, len(following._pending) - 2) if written + pending < 20000 else None)
        following.crash()
        written = sum(record[0] == "shop.t" for record in following.log.records)
    following.catch_up()
    events = following.log.events("shop.t")
    assert [event.key["id"] for event in events] == list(range(1, 20001))
    assert [event.value["transaction"]["total_order"] for event in events] == list(range(1, 20001))
    assert following.lives > 5


def test_the_outbox(db: Db, follow: Follow, tmp_path: Path) -> None:
    db.execute(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, "
        "type text, payload jsonb)"
    )
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    event = "INSERT INTO outbox VALUES (DEFAULT, %s, %s, %s, %s) RETURNING id::text"
    [[left]] = db.execute(event, ["order", "1", "Left", '{"n": 0}']).fetchall()
    following = follow(outbox="outbox", tables=("t",))
    following.catch_up()
    with db.transaction():
        [[first]] = db.execute(event, ["order", "42", "Paid", '{"n": 1}']).fetchall()
        db.execute("DELETE FROM outbox WHERE id = %s", [first])
    db.execute(event, ["a b", "7", None, None])
    following.catch_up()
    found = following.log.events("outbox.event.order")
    assert [(each.raw_key, each.value, each.headers) for each in found] == [
        (b"1", {"n": 0}, {"id": left.encode(), "type": b"Left"}),
        (b"42", {"n": 1}, {"id": first.encode(), "type": b"Paid"}),
    ]
    [other] = following.log.events("outbox.event.a_b")
    assert other.value is None and other.raw_key == b"7" and "type" not in other.headers
    assert not following.log.events("shop.outbox")
    assert following.source.topic_needs("outbox.event.order").configs["cleanup.policy"] == "delete"


def test_the_outbox_is_not_read_again(db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 0.1)
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.STATUS_SECONDS", 0.0)
    make = (
        "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb);"
        "INSERT INTO outbox VALUES ({}, 'order', '1', 'Made', '{{}}')"
    )
    db.execute(make.format(1))
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    following = follow(outbox="outbox", tables=("t",))

    def begin_anew() -> None:
        following.drop_slot()
        following.source.signal(Signal("snapshot"))
        following.catch_up()

    def events() -> list[bytes | None]:
        return [event.headers["id"] for event in following.log.events("outbox.event.order")]

    def says_why() -> bool:
        return any("outbox is not read again" in note for note in following.source.status().notes)

    following.step()
    following.commit()
    assert not events()
    begin_anew()  # before it was read at all
    assert events() == [b"1"]
    following.source.signal(Signal("snapshot"))
    following.until(says_why)
    following.catch_up()
    begin_anew()
    following.until(says_why)
    assert events() == [b"1"]
    following.close()
    following.step()  # notes are of one life
    # Rows of another table of the name are events that nobody has seen.
    db.execute("DROP TABLE outbox;" + make.format(2))
    following.until(lambda: events() == [b"1", b"2"])
    following.until(lambda: "snapshot" not in (following.log.position or {}))
    assert not says_why()


def test_an_outbox_that_was_made_anew_is_read_after_a_kill(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 0.1)
    make = (
        "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb);"
        "INSERT INTO outbox VALUES ({}, 'order', '1', 'Made', '{{}}')"
    )
    db.execute(make.format(1))
    following = follow(outbox="outbox")
    following.catch_up()
    following.until(lambda: "." in (following.log.position or {})["tables"]["public.outbox"])
    db.execute("DROP TABLE outbox;" + make.format(2))
    for _ in range(2):
        end = time.monotonic() + 10
        while "snapshot" not in following.step().position:
            assert time.monotonic() < end
            following.commit()
        following.crash()  # its publication and the file of what it was made of know the new one already
    following.until(lambda: len(following.log.events("outbox.event.order")) > 1)
    following.catch_up()
    ids = [event.headers["id"] for event in following.log.events("outbox.event.order")]
    assert ids == [b"1", b"2"]


def test_generated_columns_are_in_snapshot_and_stream(db: Db, follow: Follow) -> None:
    db.execute("CREATE FUNCTION twice(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n * 2'")
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int, double int GENERATED ALWAYS AS (twice(n)) STORED, "
        "name text, loud text GENERATED ALWAYS AS (upper(name)) STORED)"
    )
    db.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    db.execute("INSERT INTO t VALUES (1, 5, DEFAULT, 'ada')")
    following = follow()
    following.until(lambda: len(following.log.events("shop.t")) == 1)
    db.execute("UPDATE t SET n = 6")
    db.execute("INSERT INTO t VALUES (2, NULL, DEFAULT, 'grace')")
    following.catch_up()
    read, updated, inserted = (event.value for event in following.log.events("shop.t"))
    assert read["after"] == {"id": 1, "n": 5, "double": 10, "name": "ada", "loud": "ADA"}
    assert list(updated["after"].items()) == list({**read["after"], "n": 6, "double": 12}.items())
    assert updated["before"] == read["after"]
    assert inserted["after"] == {"id": 2, "n": None, "double": None, "name": "grace", "loud": "GRACE"}


def test_an_idle_source_lets_the_server_forget(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.IDLE_SECONDS", 0.2)
    db.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY, x text)")
    following = follow(tables=("t",))
    following.catch_up()
    db.execute("INSERT INTO other SELECT g, repeat('x', 500) FROM generate_series(1, 20000) g")

    def held_back() -> int:
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8 FROM pg_replication_slots"
        [[size]] = db.execute(query + " WHERE database = current_database()").fetchall()
        return int(size)

    assert held_back() > 5_000_000
    following.until(lambda: held_back() < 20_000)
    assert not following.log.events("shop.other")
    assert json.dumps(following.log.position)
