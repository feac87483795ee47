"""Commits that are in the log, where the stream reads them, before other sessions see their rows."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headwater.connect.cdc.mysql import jobs, unproven
from headwater.connect.cdc.mysql.gtid import MariaGtids, MySQLGtids
from headwater.connect.cdc.mysql.schema import Column, Table
from headwater.connect.cdc.mysql.snapshot import ChunkReader, snapshot_place
from headwater.connect.cdc.mysql.state import LogState
from headwater.connect.cdc.mysql.unproven import Unproven
from headwater.connect.source import Signal
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB

WAIT = 1.5  # seconds that a commit waits for a standby that is not there
WAITING = "Waiting for semi-sync ACK from slave"
TABLES = ("create table t (id int primary key, v int)", "create table bag (n int)")


@pytest.fixture(scope="module")
def waiting() -> Iterator[MariaDB]:
    with MariaDB({"rpl-semi-sync-master-wait-point": "AFTER_SYNC"}) as server:
        yield server


@contextlib.contextmanager
def committing(server: MariaDB, database: str, statement: str, seconds: float = WAIT) -> Iterator[None]:
    """A statement whose commit is in the log, and whose rows nobody else sees for some seconds."""
    server.run(
        "set global rpl_semi_sync_master_enabled = 0",
        f"set global rpl_semi_sync_master_timeout = {int(seconds * 1000)}",
        "set global rpl_semi_sync_master_enabled = 1",
    )
    thread = threading.Thread(target=server.run, args=(statement,), kwargs={"database": database})
    thread.start()
    wait_for(server, WAITING)
    try:
        yield
    finally:
        thread.join()


def is_in_state(server: MariaDB, text: str) -> bool:
    return any(text in str(row) for row in server.run("show full processlist"))


def wait_for(server: MariaDB, text: str) -> None:
    end = time.monotonic() + 10
    while not is_in_state(server, text):
        assert time.monotonic() < end, text
        time.sleep(0.01)


def snapshot_file(server: MariaDB) -> str:
    return str(server.run("show status like 'binlog_snapshot_file'")[0][1])


@contextlib.contextmanager
def rotating(server: MariaDB) -> Iterator[None]:
    """The log goes on in a new file; the statement itself ends behind the commits that wait."""
    before = snapshot_file(server)
    thread = threading.Thread(target=server.run, args=("flush binary logs",))
    thread.start()
    end = time.monotonic() + 10
    while snapshot_file(server) == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    try:
        yield
    finally:
        thread.join()


def caught_up(server: MariaDB, *statements: str) -> tuple[str, Capture]:
    database = fresh_database(server, *TABLES, *statements)
    capture = Capture(server, database)
    capture.until_caught_up(server)
    return database, capture


def values(capture: Capture) -> dict[int, int]:
    return {row["id"]: row["v"] for row in capture.rows("t").values()}


CHANGES = [
    ("t", "update t set v = 1 where id = 2"),
    ("t", "delete from t where id = 2"),
    ("bag", "insert into bag values (7)"),
]


@pytest.mark.parametrize(("table", "change"), CHANGES)
def test_a_snapshot_does_not_undo_what_nobody_sees_yet(waiting: MariaDB, table: str, change: str) -> None:
    database, capture = caught_up(
        waiting, "insert into t values (1, 0), (2, 0), (3, 0)", "insert into bag values (5)"
    )
    with committing(waiting, database, change):
        capture.until_caught_up(waiting)  # the stream has brought it
        capture.source.signal(Signal("snapshot", (table,)))
        for _ in range(5):
            capture.take()
        assert is_in_state(waiting, WAITING)
    capture.until_caught_up(waiting)
    capture.close()
    assert values(capture) == dict(waiting.run("select id, v from t", database=database))
    assert sorted(capture.bag("bag").elements()) == [
        b'{"n":%d}' % n for (n,) in waiting.run("select n from bag order by n", database=database)
    ]


def test_a_life_that_begins_meanwhile_knows_it_as_well(waiting: MariaDB) -> None:
    database, capture = caught_up(waiting, "insert into t values (1, 0)")
    with committing(waiting, database, "update t set v = 1"):
        capture.until_caught_up(waiting)
        capture.kill()
        capture.take()
        capture.source.signal(Signal("snapshot", ("t",)))
        for _ in range(5):
            capture.take()
        assert is_in_state(waiting, WAITING)
    capture.until_caught_up(waiting)
    capture.close()
    assert values(capture) == {1: 1}


def test_what_is_not_brought_yet_comes_after_the_rows(waiting: MariaDB) -> None:
    """Also from a first start in that moment on."""
    database = fresh_database(waiting, *TABLES, "insert into t values (1, 0)")
    capture = Capture(waiting, database)
    with committing(waiting, database, "update t set v = 1"):
        capture.until(lambda: bool(capture.events("t")))
    capture.until_caught_up(waiting)
    capture.close()
    assert [event["after"]["v"] for event in capture.events("t")] == [0, 1]


@pytest.mark.parametrize("is_brought", [True, False])
def test_a_log_that_is_rotated_meanwhile(waiting: MariaDB, is_brought: bool) -> None:
    """MariaDB says then that the snapshot is at the beginning of the new file."""
    database, capture = caught_up(waiting, "insert into t values (1, 0)")
    with committing(waiting, database, "update t set v = 1"):
        if is_brought:
            capture.until_caught_up(waiting)
        with rotating(waiting):
            capture.source.signal(Signal("snapshot", ("t",)))
            for _ in range(5):
                capture.take()
            assert all(event["op"] != "r" for event in capture.events("t")[1:])
            waiting.run("insert into t values (2, 2)", database=database)  # behind the commit that waits
    capture.until_caught_up(waiting)
    capture.close()
    assert values(capture) == {1: 1, 2: 2}
    assert [event["after"] for event in capture.events("t") if event["op"] == "r"][1:]


def test_a_log_that_is_rotated_in_a_life_that_has_read_nothing_yet(
    waiting: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unproven, "SECONDS", 0.5)
    database, capture = caught_up(waiting, "insert into t values (1, 0)")
    with committing(waiting, database, "update t set v = 1", seconds=3):
        capture.until_caught_up(waiting)
        capture.kill()
        capture.take()
        with rotating(waiting):
            capture.source.signal(Signal("snapshot", ("t",)))
            for _ in range(5):
                capture.take()
    capture.until_caught_up(waiting)
    capture.close()
    assert [event["op"] for event in capture.events("t")] == ["r", "u", "r"]
    assert values(capture) == {1: 1}


def test_a_log_that_was_rotated_meanwhile_and_is_still(
    waiting: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB says the new file with the offset of the old one, until somebody commits or it notes a checkpoint."""
    monkeypatch.setattr(unproven, "SECONDS", 0.5)
    database, capture = caught_up(waiting, "insert into t values (1, 0)")
    with committing(waiting, database, "update t set v = 1"):
        rotation = rotating(waiting)
        rotation.__enter__()
    rotation.__exit__(None, None, None)
    first = Capture(waiting, database)
    for each in capture, first:
        each.take()
        each.source.signal(Signal("snapshot", ("t",)))
        each.until_caught_up(waiting)
        each.until(lambda each=each: each.events("t")[-1]["op"] == "r")  # type: ignore[misc]
        assert values(each) == {1: 1}
        each.close()
    assert {event["op"] for event in first.events("t")} == {"r"}  # it did not read the log from its beginning


def test_a_pause_ends_the_waiting(waiting: MariaDB) -> None:
    database, capture = caught_up(waiting, "insert into t values (1, 0)")
    with committing(waiting, database, "update t set v = 1"):
        capture.until_caught_up(waiting)
        capture.source.signal(Signal("snapshot", ("t",)))
        for _ in range(5):
            capture.take()
        capture.source.signal(Signal("pause"))
        assert is_in_state(waiting, WAITING)
    for _ in range(3):
        capture.take()
    assert len(capture.events("t")) == 2
    capture.source.signal(Signal("resume"))
    capture.until_caught_up(waiting)
    capture.close()
    assert [event["op"] for event in capture.events("t")] == ["r", "u", "r"]
    assert values(capture) == {1: 1}


def test_commits_that_all_wait_do_not_keep_a_snapshot_away(
    waiting: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each for longer than the stream stands still at first."""
    monkeypatch.setattr(jobs, "_VISIBLE_SECONDS", 0.1)
    monkeypatch.setattr(jobs, "_BETWEEN_SECONDS", 0.1)
    database, capture = caught_up(waiting, "insert into t select seq, 0 from seq_1_to_20")
    capture.kill()
    capture.options = replace(capture.options, chunk_rows=10)
    capture.kill()
    stopping = threading.Event()

    def write() -> None:
        while not stopping.is_set():
            with committing(waiting, database, "update t set v = v + 1", seconds=0.5):
                pass

    capture.take()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        capture.until(lambda: values(capture)[1] > 0)
        capture.source.signal(Signal("snapshot", ("t",)))
        capture.until(lambda: [event["op"] for event in capture.events("t")].count("r") == 40)
    finally:
        stopping.set()
        writer.join()
    capture.until_caught_up(waiting)
    capture.close()
    assert values(capture) == dict(waiting.run("select id, v from t", database=database))


def test_what_a_snapshot_shows(mariadb: MariaDB) -> None:
    """By its place, the stream's groups and, in the beginning of a life, the transactions between two places."""
    database = fresh_database(mariadb, *TABLES, "create table m (id int primary key) engine=Aria")
    table = Table(database, "t", (Column("id", "int"),), ("id",))
    reader = ChunkReader(mariadb.url(database))
    mariadb.run("flush binary logs", "insert into t values (1, 1)", database=database)
    place = reader.begin(table)
    assert isinstance(place, tuple)
    file, offset = place
    new = f"{file.rpartition('.')[0]}.{int(file.rpartition('.')[2]) + 1:06}"

    def state(*at: Any) -> LogState:
        return LogState(True, MariaGtids(), file=at[0], place=at[1])

    old, here, ahead = state(file, offset - 1), state(*place), state(new, 400)
    for known in (place, (file, offset - 1), ("binlog.000000", offset + 9)):
        assert all(reader.shows(place, each, known) for each in (old, here, ahead))
    for known in ((file, offset + 1), (new, 4)):
        assert not any(reader.shows(place, each, known) for each in (old, here, ahead))
    assert reader.shows(place, old, None) and reader.shows(place, here, None)
    assert not reader.shows(place, ahead, None)  # a place that the server does not know
    mariadb.run("flush binary logs")
    assert reader.shows(place, state(new, 256), None)  # moved by what is no change
    mariadb.run("insert into t values (2, 2)", database=database)
    end = mariadb.run("show master status")[0][1]
    assert not reader.shows(place, state(new, end), None)
    assert reader.is_proven(place, place) and reader.is_proven(place, None)
    assert not reader.is_proven((new, 256), place)
    assert not reader.is_proven((file, offset + 40), place)  # after a checkpoint, which moves it as well
    reader.end()
    locked = reader.begin(Table(database, "m", (Column("id", "int"),), ("id",), engine="Aria"))
    assert reader.shows(locked, state("binlog.999999", 4), ("binlog.999999", 4))
    assert reader.is_proven(locked, ("binlog.000000", 4))
    reader.end()
    reader.close()


def test_transactions_that_mysql_has_not_shown_yet() -> None:
    """Of a server with GTIDs; where there are none, nobody can say."""
    reader = ChunkReader.__new__(ChunkReader)
    reader._database = Answers("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")  # type: ignore[assignment]
    table = Table("shop", "t", (Column("id", "int"),), ("id",))
    place = reader.begin(table)
    assert isinstance(place, MySQLGtids)
    for numbers, is_shown in (("1-7", True), ("2-3", True), ("1-8", False), ("9", False)):
        brought = MySQLGtids.parse(f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{numbers}")
        assert reader.shows(place, LogState(False, brought), ("binlog.000009", 4)) == is_shown
    assert reader.is_proven(place, ("binlog.000009", 4))
    assert reader.shows(("binlog.000001", 4), LogState(False, MySQLGtids(), False), ("binlog.000009", 4))


class Answers:
    """A MySQL's answers, as its documentation has them."""

    is_mariadb = False

    def __init__(self, executed: str) -> None:
        self._values = {"select @@global.gtid_executed": executed, "select @@global.gtid_mode": "ON"}

    def value(self, statement: str) -> str:
        return self._values[statement]

    def query(self, statement: str) -> None:
        assert statement.startswith("start transaction with consistent snapshot")


@pytest.mark.parametrize(("offset", "place"), [("400", 400), ("580", 580), ("581", 4), ("90000", 4)])
def test_a_place_behind_the_end_of_the_log(offset: str, place: int) -> None:
    """The new file with the offset of the old one: which transactions are not in the snapshot is known."""
    assert snapshot_place(Places(offset)) == ("binlog.000002", place)  # type: ignore[arg-type]


class Places:
    """What a MariaDB says of its log right after a rotation."""

    def __init__(self, offset: str) -> None:
        self._offset = offset

    def query(self, statement: str) -> list[tuple[str, ...]]:
        if statement == "show master status":
            return [("binlog.000002", "580", "", "")]
        return [("Binlog_snapshot_file", "binlog.000002"), ("Binlog_snapshot_position", self._offset)]


def test_a_log_of_a_group_a_file_has_snapshots_too() -> None:
    doubted = Unproven()
    ends = [(f"binlog.{number:06}", 700) for number in range(20)]
    accepted = [doubted.is_over(end, began=time, now=time + 0.1) for time, end in enumerate(ends)]
    assert not any(accepted[:7]) and all(accepted[7:])
    doubted.forget()
    assert not doubted.is_over(ends[-1], 30.0, 30.1)
