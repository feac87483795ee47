"""What happens to a database while it is captured, and while nobody looks."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite import run, turns
from headwater.connect.cdc.sqlite.doctor import examine
from headwater.connect.cdc.sqlite.source import remove
from headwater.connect.source import Signal
from headwater.errors import ApplicationInvalid, CaptureImpossible, ChangesMissed, ConnectionLost
from tests.connect.sqlite.capturing import Capture, check

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)"


def capture(path: Path, **options: object) -> Capture:
    return Capture(f"sqlite:///{path}", **options)


def fill(writer: sqlite3.Connection, table: str, count: int, start: int = 0) -> None:
    writer.execute("BEGIN")
    writer.executemany(
        f"INSERT INTO {table} VALUES (?, ?)", ((n, f"name {n}") for n in range(start, start + count))
    )
    writer.execute("COMMIT")


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name)",
        "CREATE TABLE t (id TEXT PRIMARY KEY, name)",
        "CREATE TABLE t (id, name, PRIMARY KEY (name, id)) WITHOUT ROWID",
        "CREATE TABLE t (id, name)",
    ],
    ids=["integer key", "text key", "without rowid", "no key"],
)
def test_an_interrupted_snapshot_goes_on_while_rows_change(
    path: Path, writer: sqlite3.Connection, table: str
) -> None:
    writer.execute(table)
    fill(writer, "t", 1000)
    taking = capture(path, chunk_rows=90)
    for number in range(1, 1000):
        step = taking.step()
        writer.execute("DELETE FROM t WHERE id = ?", (number * 7 % 1000,))
        writer.execute("UPDATE t SET name = name || '!' WHERE id % 50 = ?", (number % 50,))
        writer.execute("INSERT OR REPLACE INTO t VALUES (?, 'new')", (2000 + number,))
        writer.execute(
            "UPDATE OR REPLACE t SET id = ? WHERE id = ?", (number * 31 % 1000, number * 17 % 1000)
        )
        if number % 3 == 0:
            taking.stop()
        if number > 5 and not step.position["jobs"]:
            break
    taking.catch_up()
    check(path, taking.log, "t")
    read = [each for each in taking.log.values("shop.t") if each and each["op"] == "r"]
    assert 500 < len(read) <= 1400  # each chunk once: it did not begin anew
    assert read[0]["source"]["snapshot"] == "first" and read[1]["source"]["snapshot"] == "true"


def test_a_vacuum_in_the_middle_of_a_snapshot(path: Path, writer: sqlite3.Connection) -> None:
    """It numbers rows anew that have no INTEGER PRIMARY KEY."""
    for table in ("CREATE TABLE bag (id, name)", "CREATE TABLE t (id TEXT PRIMARY KEY, name)"):
        writer.execute(table)
    for table in ("bag", "t"):
        fill(writer, table, 500)
        writer.execute(f"DELETE FROM {table} WHERE id % 3 = 0")
    taking = capture(path, chunk_rows=50)
    for turn in range(12):
        taking.step()
        if turn in (4, 8):
            taking.stop()
            writer.execute("DELETE FROM bag WHERE rowid IN (SELECT rowid FROM bag LIMIT 20)")
            writer.execute("VACUUM")
    taking.catch_up()
    check(path, taking.log, "bag", "t")
    assert "t" in {op for op, _, _ in taking.log.events("shop.bag")}


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "offline"])
def test_changed_tables(path: Path, writer: sqlite3.Connection, stopped: bool) -> None:
    writer.execute(USERS)
    writer.execute("CREATE TABLE bag (a, b)")
    fill(writer, "users", 20)
    fill(writer, "bag", 20)
    taking = capture(path)

    def change(*statements: str) -> None:
        taking.catch_up()
        if stopped:
            taking.stop()
        for statement in statements:
            writer.execute(statement)
        taking.catch_up()
        present = [
            row[0] for row in writer.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")
        ]
        check(path, taking.log, *(name for name in present if not name.startswith(("sqlite_", "_headwater"))))

    change(
        "ALTER TABLE users ADD COLUMN age",
        "UPDATE users SET age = 3 WHERE id = 3",
        "DELETE FROM users WHERE id=1",
    )
    read = len([each for each in taking.log.events("shop.users") if each[0] == "r"])
    assert read == 20  # a column without a value is no reason to read all rows again
    change("INSERT INTO users VALUES (100, 'n', 5)", "ALTER TABLE users ADD COLUMN vip DEFAULT 0")
    assert taking.log.values("shop.users")[-1]["after"]["vip"] == 0
    change("ALTER TABLE users RENAME COLUMN name TO title", "UPDATE users SET title = 'x' WHERE id = 5")
    change("ALTER TABLE bag ADD COLUMN c", "UPDATE bag SET c = 1 WHERE a < 5", "DELETE FROM bag WHERE a > 15")
    change("CREATE TABLE later (id PRIMARY KEY, v)", "INSERT INTO later VALUES (1, 2)")
    change("DROP TABLE later", "CREATE TABLE later (id PRIMARY KEY, w)", "INSERT INTO later VALUES (7, 8)")
    change(  # how a table is changed where ALTER TABLE cannot
        "BEGIN",
        "CREATE TABLE new_users (id INTEGER PRIMARY KEY, title TEXT)",
        "INSERT INTO new_users SELECT id, title FROM users WHERE id % 2",
        "DROP TABLE users",
        "ALTER TABLE new_users RENAME TO users",
        "INSERT INTO users VALUES (500, 'in the same transaction')",
        "COMMIT",
        "DELETE FROM users WHERE id = 7",
    )
    change("ALTER TABLE later RENAME TO much_later", "INSERT INTO much_later VALUES (9, 9)")
    schemas = taking.log.values("shop.schema")
    assert [each["table"] for each in schemas][:2] == ["bag", "users"]
    assert [column["name"] for column in schemas[2]["columns"]] == ["id", "name", "age"]
    assert schemas[1]["columns"][0]["key"] and "CREATE TABLE users" in schemas[1]["ddl"]
    assert any(each["table"] == "later" and each["columns"] is None for each in schemas)


def test_a_table_of_another_width_after_it(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    taking = capture(path)
    taking.catch_up()
    writer.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(f'c{n}' for n in range(300))})")
    taking.catch_up()
    writer.execute("INSERT INTO wide (id, c0, c299) VALUES (1, 'a', 'z')")
    writer.execute("UPDATE wide SET c150 = 7")
    writer.execute("INSERT INTO users VALUES (1, 'narrow')")
    taking.catch_up()
    check(path, taking.log, "wide", "users")


def test_changes_are_dropped_when_they_are_in_the_log(
    path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PRUNE_SECONDS", 0.0)
    writer.execute(USERS)
    taking = capture(path)
    taking.catch_up()
    for start in range(0, 3000, 1000):
        fill(writer, "users", 1000, start)
        taking.catch_up()
    assert writer.execute("SELECT count(*) FROM _headwater_changes").fetchone()[0] < 10
    taking.stop()
    fill(writer, "users", 5, 5000)
    taking.catch_up()
    check(path, taking.log, "users")


@pytest.mark.parametrize("how", ["by an option", "by a signal"])
def test_a_replaced_file_is_noticed(path: Path, writer: sqlite3.Connection, tmp_path: Path, how: str) -> None:
    writer.execute(USERS)
    fill(writer, "users", 10)
    taking = capture(path)
    taking.catch_up()
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute(USERS)
        connection.execute("INSERT INTO users VALUES (3, 'of the other')")
    connection.close()
    writer.close()
    for leftover in (Path(f"{path}-wal"), Path(f"{path}-shm")):
        leftover.unlink(missing_ok=True)
    other.replace(path)
    with pytest.raises(ConnectionLost, match="replaced"):
        taking.catch_up()
    taking.stop()
    with pytest.raises(ChangesMissed, match="no changelog"):
        taking.catch_up()
    taking.stop()
    if how == "by an option":
        taking.options = CdcOptions(f"sqlite:///{path}", on_gap="snapshot")
    else:
        with pytest.raises(ChangesMissed, match="no changelog"):
            taking.begin(Signal("snapshot", ("users",)))  # one table does not close the gap
            taking.step()
        taking.stop()
        taking.begin(Signal("snapshot"), Signal("pause"), Signal("stop-snapshot"))
        assert taking.step().position["paused"]
        assert taking.source is not None
        taking.source.signal(Signal("resume"))
    taking.catch_up()
    check(path, taking.log, "users")


@pytest.mark.parametrize("more", [0, 50], ids=["shorter", "written to since"])
def test_a_copy_from_earlier_is_noticed(
    path: Path, writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(run, "PRUNE_SECONDS", 0.0)
    writer.execute("PRAGMA journal_mode = delete")
    writer.execute(USERS)
    writer.execute("CREATE TABLE bag (id, name)")
    taking = capture(path, on_gap="snapshot")
    taking.catch_up()
    fill(writer, "users", 10)
    fill(writer, "bag", 10)
    taking.catch_up()
    shutil.copy(path, tmp_path / "copy.db")
    fill(writer, "users", 10, 10)
    fill(writer, "bag", 10, 10)
    taking.catch_up()
    taking.stop()
    shutil.copy(tmp_path / "copy.db", path)
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO users VALUES (?, 'x')", [(n,) for n in range(100, 100 + more)])
    connection.close()
    taking.catch_up()
    check(path, taking.log, "users", "bag")
    assert taking.source is not None and "from earlier" in str(taking.source.status().notes)


def test_signals(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    writer.execute("CREATE TABLE bag (id, name)")
    fill(writer, "users", 300)
    fill(writer, "bag", 30)
    taking = capture(path, chunk_rows=100)
    taking.catch_up()
    source = taking.source
    assert source is not None

    def reads(table: str) -> int:
        return len([each for each in taking.log.events(f"shop.{table}") if each[0] == "r"])

    source.signal(Signal("snapshot", ("users",), "id < 50"))
    taking.catch_up()
    assert (reads("users"), reads("bag")) == (350, 30)
    source.signal(Signal("pause"))
    source.signal(Signal("snapshot", ("users",)))
    for _ in range(5):
        taking.step()
    writer.execute("INSERT INTO users VALUES (1000, 'while paused')")
    for _ in range(5):
        taking.step()
    assert reads("users") == 350 and taking.log.events("shop.users")[-1][2]["id"] == 1000
    taking.stop()
    taking.begin(Signal("snapshot", ("bag",)))  # what comes before the first step is in its position
    assert [job["table"] for job in taking.step().position["jobs"]] == ["users", "bag"]
    taking.stop()  # what is paused stays so
    taking.step()
    assert taking.source is not None and "reading of tables is paused" in taking.source.status().notes
    taking.source.signal(Signal("resume"))
    taking.catch_up()
    assert (reads("users"), reads("bag")) == (651, 60)
    taking.source.signal(Signal("snapshot"))
    taking.source.signal(Signal("stop-snapshot", ("users",)))
    taking.source.signal(Signal("snapshot", ("bag",), "id < 3"))
    taking.catch_up()
    assert (reads("users"), reads("bag")) == (651, 90)
    taking.source.signal(Signal("snapshot", ("elsewhere",)))
    assert "no captured table is called elsewhere" in taking.source.status().notes
    taking.source.signal(Signal("snapshot", ("users",), "no such thing"))
    taking.source.signal(Signal("snapshot", ("bag",)))
    taking.catch_up()
    assert reads("bag") == 120 and "was not read again" in str(taking.source.status().notes)
    check(path, taking.log, "users", "bag")


def test_rows_that_vanished_unseen_are_swept_from_the_topic(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    fill(writer, "users", 20)
    taking = capture(path)
    taking.catch_up()
    for (name,) in writer.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        writer.execute(f"DROP TRIGGER {name}")
    writer.execute("DELETE FROM users WHERE id < 10")
    taking.catch_up()
    check(path, taking.log, "users")


def test_a_part_that_is_asked_for_does_not_take_the_place_of_all(
    path: Path, writer: sqlite3.Connection
) -> None:
    writer.execute(USERS)
    fill(writer, "users", 300)
    taking = capture(path, chunk_rows=100)
    while "shop.users" not in taking.log.records:
        taking.step()
    assert taking.source is not None
    taking.source.signal(Signal("snapshot", ("users",), "id < 5"))
    assert "all of it is read again" in str(taking.source.status().notes)
    taking.catch_up()
    check(path, taking.log, "users")


def test_a_signal_that_comes_while_a_topic_is_swept(
    path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SWEPT_AT_ONCE", 5)
    writer.execute(USERS)
    fill(writer, "users", 40)
    taking = capture(path)
    taking.catch_up()
    for (name,) in writer.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        writer.execute(f"DROP TRIGGER {name}")
    writer.execute("DELETE FROM users WHERE id < 30")

    def count(op: str) -> int:
        return [event[0] for event in taking.log.events("shop.users")].count(op)

    while not count("d"):
        taking.step()
    assert (count("r"), count("d")) == (50, 5)
    assert taking.source is not None
    taking.source.signal(Signal("snapshot", ("users",)))
    taking.catch_up()
    assert (count("r"), count("d")) == (60, 30)


def test_the_outbox_is_not_read_again_after_a_gap(path: Path, writer: sqlite3.Connection) -> None:
    columns = "id INTEGER PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload"
    writer.execute(f"CREATE TABLE outbox ({columns})")
    writer.execute("INSERT INTO outbox VALUES (1, 'order', '42', 'Made', '{}')")
    taking = capture(path, outbox="outbox", on_gap="snapshot")

    def begin_anew() -> list[bytes | None]:
        taking.stop()
        remove(taking.options)
        taking.catch_up()
        writer.execute("INSERT INTO outbox SELECT max(id) + 1, 'order', '42', 'Made', '{}' FROM outbox")
        taking.catch_up()
        return [dict(record.headers or ())["id"] for record in taking.log.records["outbox.event.order"]]

    taking.step()
    assert begin_anew() == [b"1", b"2"]  # it was not read before
    assert begin_anew() == [b"1", b"2", b"3"]
    assert taking.source is not None and "outbox is not read again" in str(taking.source.status().notes)


def test_without_a_first_snapshot(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    fill(writer, "users", 20)
    taking = capture(path, snapshot="never")
    taking.catch_up()
    writer.execute("UPDATE users SET name = 'x' WHERE id = 3")
    writer.execute("CREATE TABLE later (id INTEGER PRIMARY KEY)")
    writer.execute("INSERT INTO later VALUES (1)")
    taking.catch_up()
    assert [each[0] for each in taking.log.events("shop.users")] == ["u"]
    check(path, taking.log, "later")


def test_two_captures_of_one_database(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    writer.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, name)")
    one, two = capture(path, tables=("users",)), capture(path, name="second", tables=("users", "other"))
    one.catch_up()
    two.catch_up()
    two.stop()
    fill(writer, "users", 100)
    fill(writer, "other", 100)
    one.catch_up()
    time.sleep(0.01)
    one.catch_up()
    two.catch_up()
    assert len(one.log.records["shop.users"]) == len(two.log.records["second.users"]) == 100
    assert len(two.log.records["second.other"]) == 100 and "shop.other" not in one.log.records
    two.stop()
    one.stop()
    assert remove(two.options) and not remove(two.options)
    assert writer.execute("SELECT count(*) FROM sqlite_schema WHERE tbl_name = 'other'").fetchone() == (1,)
    assert remove(one.options)
    left = {name for (name,) in writer.execute("SELECT name FROM sqlite_schema")}
    assert left == {"users", "other", "sqlite_sequence"}


def test_a_busy_database_with_a_rollback_journal(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA journal_mode = delete")
    writer.execute(USERS)
    taking = capture(path)
    stopping = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        own = sqlite3.connect(path, timeout=10)
        try:
            number = 0
            while not stopping.is_set():
                with own:
                    own.execute("INSERT INTO users VALUES (?, 'x')", (number,))
                    own.execute("DELETE FROM users WHERE id = ?", (number - 10,))
                number += 1
        except BaseException as error:
            failures.append(error)
        finally:
            own.close()

    thread = threading.Thread(target=write)
    thread.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        taking.step()
    stopping.set()
    thread.join()
    taking.catch_up()
    assert not failures
    check(path, taking.log, "users")


def test_large_rows_come_in_steps_of_bounded_size(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute(USERS)
    writer.executemany("INSERT INTO users VALUES (?, ?)", ((n, "x" * 1_000_000) for n in range(30)))
    taking = capture(path)
    sizes: list[int] = []

    def note() -> bool:
        sizes.append(sum(len(record[2] or b"") for record in taking.step().records))
        return True

    taking.catch_up(note)
    writer.executemany("INSERT INTO users VALUES (?, ?)", ((n, "x" * 1_000_000) for n in range(30, 60)))
    steps = 0
    while len(taking.log.records["shop.users"]) < 60:
        size = sum(len(record[2] or b"") for record in taking.step().records)
        steps += bool(size)
        assert size < turns.STEP_BYTES + 2_000_000
    assert steps >= 6
    check(path, taking.log, "users")


def test_a_file_that_is_not_there_is_waited_for(path: Path) -> None:
    with pytest.raises(ConnectionLost, match="no such file"):
        capture(path).step()


def test_what_cannot_be(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to say so" * 100)
    with pytest.raises(CaptureImpossible, match="not a database"):
        capture(path).step()
    with pytest.raises(CaptureImpossible, match="transactions"):
        capture(path, transactions=True).step()
    with pytest.raises(ApplicationInvalid, match="no option slot"):
        capture(path, settings={"slot": "x"}).step()


def test_the_doctor(path: Path, writer: sqlite3.Connection, unique: Callable[[str], str]) -> None:
    writer.execute(USERS)
    writer.execute("CREATE TABLE loose (a TEXT PRIMARY KEY, b)")
    writer.execute("CREATE TABLE bag (a)")
    writer.execute("CREATE TABLE expr (a INTEGER PRIMARY KEY, b)")
    writer.execute("CREATE UNIQUE INDEX lower_b ON expr (lower(b))")
    writer.execute("CREATE TABLE 'two parts' (a INTEGER PRIMARY KEY)")
    writer.execute("CREATE TABLE two_parts (a INTEGER PRIMARY KEY)")
    found = {check.what: check for check in examine(CdcOptions(f"sqlite:///{path}"))}
    assert {what: each.verdict for what, each in found.items()} == {
        "library": "fine", "file": "fine", "permissions": "fine", "journal": "fine", "changelog": "fine",
        "table users": "fine", "table loose": "warning", "table bag": "warning", "table expr": "warning",
        "table two parts": "fine", "table two_parts": "warning",
    }  # fmt: skip
    assert all(each.mend for each in found.values() if each.verdict != "fine")
    assert found["table two_parts"].found == "left out: its topic would be that of two parts"
    capture(path, name="mine").catch_up()
    assert "capture mine" in {each.what for each in examine(CdcOptions(f"sqlite:///{path}"))}
    assert [each.what for each in examine(CdcOptions("sqlite:///nowhere.db")) if each.stands_in_the_way] == [
        "file"
    ]


def test_tables_that_would_share_a_topic(path: Path, writer: sqlite3.Connection) -> None:
    writer.execute('CREATE TABLE "über" (id INTEGER PRIMARY KEY)')
    writer.execute('CREATE TABLE "schema" (id INTEGER PRIMARY KEY)')
    follower = capture(path)
    follower.catch_up()
    writer.execute('CREATE TABLE "äber" (id INTEGER PRIMARY KEY)')
    follower.catch_up()
    for statement in ('"äber" VALUES (1)', '"über" VALUES (2)', '"schema" VALUES (3)'):
        writer.execute(f"INSERT INTO {statement}")
    follower.catch_up()
    assert [after for _, _, after in follower.log.events("shop._ber")] == [{"id": 2}]
    assert [after for _, _, after in follower.log.events("shop.main.schema")] == [{"id": 3}]
    assert follower.source is not None
    assert any("äber is left out" in note for note in follower.source.status().notes)
    follower.stop()
