"""Changes of SQLite's tables as events: every kind of table, statement and value."""

import sqlite3
from pathlib import Path

import pytest

from headwater.connect.source import Record
from tests.connect.sqlite.capturing import Capture, check


def capture(path: Path, **options: object) -> Capture:
    return Capture(f"sqlite:///{path}", **options)


def test_insert_update_delete_and_the_envelope(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    writer.execute("INSERT INTO users VALUES (1, 'Ada')")
    taking = capture(path)
    taking.catch_up()
    writer.execute("INSERT INTO users VALUES (2, 'Grace')")
    writer.execute("UPDATE users SET name = 'Grace H.' WHERE id = 2")
    writer.execute("DELETE FROM users WHERE id = 1")
    log = taking.catch_up()
    ada, grace, hopper = ({"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}, {"id": 2, "name": "Grace H."})
    assert log.events("shop.users") == [
        ("r", None, ada),
        ("c", None, grace),
        ("u", grace, hopper),
        ("d", ada, None),
    ]
    assert [record.key for record in log.records["shop.users"]] == [
        b'{"id":1}', b'{"id":2}', b'{"id":2}', b'{"id":1}', b'{"id":1}'
    ]  # fmt: skip
    read, created = log.values("shop.users")[:2]
    assert list(created) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert list(created["source"]) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "table", "change"
    ]  # fmt: skip
    assert read["source"]["snapshot"] == "last" and created["source"]["snapshot"] == "false"
    assert (created["source"]["change"], created["source"]["sequence"]) == (1, '[null,"1"]')
    assert abs(created["ts_ms"] - created["source"]["ts_ms"]) < 5000


def test_a_changed_key_is_a_delete_and_a_create(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    taking = capture(path)
    taking.catch_up()
    writer.execute("INSERT INTO users VALUES (1, 'Ada')")
    writer.execute("UPDATE users SET id = 7")
    log = taking.catch_up()
    assert [each[0] for each in log.events("shop.users")] == ["c", "d", "c"]
    first, gone, tombstone, new = log.records["shop.users"]
    assert isinstance(first, Record) and tombstone.value is None
    assert gone.headers == tombstone.headers == [("__debezium.newkey", b'{"id":7}')]
    assert new.headers == [("__debezium.oldkey", b'{"id":1}')]


KINDS = {
    "rowid": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b, UNIQUE (b))",
    "text key": "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT UNIQUE, b UNIQUE)",
    "without rowid": "CREATE TABLE t (id, a TEXT UNIQUE, b, PRIMARY KEY (id)) WITHOUT ROWID",
    "unique index": "CREATE TABLE t (id NOT NULL UNIQUE, a TEXT UNIQUE, b UNIQUE)",
    "no key": "CREATE TABLE t (id, a TEXT UNIQUE, b UNIQUE)",
    "other collation": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE, b UNIQUE)",
    "replaces by itself": "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE ON CONFLICT REPLACE, b UNIQUE)",
    "oddly named": 'CREATE TABLE t ("rowid" INTEGER PRIMARY KEY, "a %d\'""x" TEXT UNIQUE, "new" UNIQUE)',
}
STATEMENTS = [
    "INSERT OR REPLACE INTO t VALUES (1, 'x', 10), (2, 'y', 20), (3, 'z', 30), (4, 'w', NULL)",
    "INSERT OR IGNORE INTO t VALUES (1, 'q', 50), (5, 'x', 51), (6, 'v', 10)",  # all in the way of others
    "INSERT OR REPLACE INTO t VALUES (1, 'x2', 11)",  # the same key
    "INSERT OR REPLACE INTO t VALUES (9, 'y', 99)",  # another key, the same a: row 2 goes
    "INSERT OR REPLACE INTO t VALUES (3, 'w', 99)",  # three rows go
    "INSERT OR REPLACE INTO t VALUES (NULL, 'n', 12)",
    "INSERT INTO t VALUES (20, 'k', 70) ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES (20, 'kk', 71) ON CONFLICT DO UPDATE SET {b} = 72",
    "INSERT INTO t VALUES (21, 'k', 73) ON CONFLICT DO UPDATE SET {b} = {b} + 1",
    "UPDATE OR REPLACE t SET {a} = 'k' WHERE {b} = 99",
    "UPDATE OR REPLACE t SET {a} = 'K'",
    "INSERT OR REPLACE INTO t VALUES (30, 'l', 1), (31, 'm', 2), (30, 'm', 3)",
    "UPDATE OR REPLACE t SET {id} = 40 WHERE {b} = 3",
    "INSERT OR FAIL INTO t VALUES (50, 'p', 80), (51, 'p', 81)",
    "UPDATE OR IGNORE t SET {a} = 'p'",
    "DELETE FROM t WHERE {b} = 80",
    "INSERT OR REPLACE INTO t VALUES (50, 'p', 82)",
    "DELETE FROM t",
]


@pytest.mark.parametrize("recursive", [False, True], ids=["", "recursive"])
@pytest.mark.parametrize("kind", KINDS)
def test_replace_upsert_and_conflicts(
    path: Path, writer: sqlite3.Connection, kind: str, recursive: bool
) -> None:
    """REPLACE deletes rows without firing triggers, unless the writer has recursive_triggers on."""
    writer.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
    writer.execute(KINDS[kind])
    names = [f'"{row[1]}"'.replace("a %d'\"x", 'a %d\'""x') for row in writer.execute("PRAGMA table_info(t)")]
    taking = capture(path)
    taking.catch_up()
    for statement in STATEMENTS:
        try:
            writer.execute(statement.format(**dict(zip(("id", "a", "b"), names, strict=True))))
        except sqlite3.IntegrityError:
            pass  # a conflict that nothing resolves, or NULL in a key
        taking.catch_up()
        check(path, taking.log, "t")


def test_every_value_comes_as_it_is(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    values = [
        None, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, 1e300, 5e-324, float("inf"), float("-inf"), "", "ü\x00'\"",
        b"", b"\x00\xff", "1", "null", 123456789.123456789,
    ]  # fmt: skip
    for number, value in enumerate(values[:9]):
        writer.execute("INSERT INTO t VALUES (?, ?)", (number, value))
    taking = capture(path)
    taking.catch_up()
    for number, value in enumerate(values[9:]):
        writer.execute("INSERT INTO t VALUES (?, ?)", (100 + number, value))
    writer.execute("INSERT INTO t VALUES (200, CAST(x'ff41' AS TEXT)), (201, 'after it')")
    log = taking.catch_up()
    check(path, log, "t")
    found = {after["id"]: after["v"] for _, _, after in log.events("shop.t")}
    assert found[3] == 2**53 + 1 and found[100] == "Infinity" and found[200] == "/0E=" and found[6] == 0.1


def test_cascades_and_the_users_own_triggers(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA foreign_keys = on")
    writer.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    writer.execute(
        "CREATE TABLE b (id INTEGER PRIMARY KEY, a REFERENCES a ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    writer.execute(
        "CREATE TABLE c (id INTEGER PRIMARY KEY, a REFERENCES a ON DELETE SET NULL ON UPDATE CASCADE)"
    )
    writer.execute(
        "CREATE TRIGGER copy AFTER INSERT ON b BEGIN INSERT INTO c VALUES (new.id + 100, new.a); END"
    )
    taking = capture(path)
    taking.catch_up()
    writer.execute("INSERT INTO a VALUES (1), (2)")
    writer.execute("INSERT INTO b VALUES (1, 1), (2, 2)")
    assert writer.execute("SELECT last_insert_rowid()").fetchone() == (2,)
    taking.catch_up()
    check(path, taking.log, "a", "b", "c")
    writer.execute("UPDATE a SET id = 5 WHERE id = 2")
    writer.execute("DELETE FROM a WHERE id = 1")
    taking.catch_up()
    check(path, taking.log, "a", "b", "c")


def test_only_the_tables_asked_for(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    writer.execute("CREATE TABLE b (id INTEGER PRIMARY KEY)")
    writer.execute("CREATE VIEW v AS SELECT * FROM a")
    taking = capture(path, tables=("a", "missing"))
    taking.catch_up()
    writer.execute("INSERT INTO a VALUES (1)")
    writer.execute("INSERT INTO b VALUES (1)")
    log = taking.catch_up()
    assert set(log.records) == {"shop.a", "shop.schema"}
    assert taking.source is not None and "there is no table missing" in taking.source.status().notes


def test_the_outbox(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload)"
    )
    writer.execute("INSERT INTO outbox VALUES (1, 'order', '42', 'Made', '{}')")
    taking = capture(path, outbox="outbox")
    taking.catch_up()
    writer.execute("BEGIN")
    writer.execute("INSERT INTO outbox VALUES (2, 'order', '42', 'Paid', '{\"a\":1}')")
    writer.execute("DELETE FROM outbox")
    writer.execute("COMMIT")
    log = taking.catch_up()
    assert [(record.key, record.value) for record in log.records["outbox.event.order"]] == [
        (b"42", b"{}"),
        (b"42", b'{"a":1}'),
    ]
    assert log.records["outbox.event.order"][1].headers == [("id", b"2"), ("type", b"Paid")]
