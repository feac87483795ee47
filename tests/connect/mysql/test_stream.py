"""What the stream of a real MariaDB gives: kinds of changes, groups, DDL, versions, and going on inside of it."""

import contextlib
import time
from collections.abc import Iterator

import orjson
import pytest

from headwater.errors import ChangesMissed
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB


@pytest.fixture
def captures() -> Iterator[list[Capture]]:
    """Captures to be closed in the end."""
    opened: list[Capture] = []
    yield opened
    for each in opened:
        each.close()


def start(captures: list[Capture], server: MariaDB, *tables: str, **options: object) -> tuple[str, Capture]:
    database = fresh_database(server, *tables)
    capture = Capture(server, database, **{"snapshot": "never"} | options)
    captures.append(capture)
    capture.take()
    return database, capture


def ops(capture: Capture, table: str) -> list[str]:
    return ["tombstone" if event is None else event["op"] for event in capture.events(table)]


def test_changes_of_keys_and_deletes(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key, v int)")
    mariadb.run(
        "insert into t values (1, 1), (2, 2)",
        "update t set v = 5 where id = 1",
        "update t set id = 9 where id = 2",
        "delete from t where id = 1",
        database=database,
    )
    capture.until_caught_up(mariadb)
    assert ops(capture, "t") == ["c", "c", "u", "d", "tombstone", "c", "d", "tombstone"]
    records = capture.log.of(f"{database}.t")
    assert [records[n][3] for n in (3, 4, 5)] == [
        [("__debezium.newkey", b'{"id":9}')],
        [("__debezium.newkey", b'{"id":9}')],
        [("__debezium.oldkey", b'{"id":2}')],
    ]
    events = capture.events("t")
    assert (events[2]["before"], events[2]["after"]) == ({"id": 1, "v": 1}, {"id": 1, "v": 5})
    assert [events[n]["source"]["row"] for n in (0, 1)] == [0, 1]
    assert list(events[0]) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert capture.rows("t") == {b'{"id":9}': {"id": 9, "v": 2}}


def test_transactions_as_debezium_tells_them(mariadb: MariaDB, captures: list[Capture]) -> None:
    tables = ("create table a (id int primary key)", "create table b (id int primary key)")
    database, capture = start(captures, mariadb, *tables, transactions=True)
    mariadb.run(
        "begin", "insert into a values (1), (2)", "insert into b values (1)", "commit", database=database
    )
    capture.until_caught_up(mariadb)
    begin, end = capture.events("transaction")
    gtid = capture.events("a")[0]["source"]["gtid"]
    assert (begin["status"], begin["id"], begin["event_count"]) == ("BEGIN", gtid, None)
    assert (end["status"], end["event_count"]) == ("END", 3)
    assert end["data_collections"] == [
        {"data_collection": f"{database}.a", "event_count": 2},
        {"data_collection": f"{database}.b", "event_count": 1},
    ]
    assert capture.events("b")[0]["transaction"] == {"id": gtid, "total_order": 3, "data_collection_order": 1}


def test_a_transaction_goes_on_where_it_was(mariadb: MariaDB, captures: list[Capture]) -> None:
    """A transaction larger than a step: killed in its middle, no change is lost or twice."""
    database, capture = start(
        captures, mariadb, "create table t (id int primary key, v varchar(200))", transactions=True
    )
    mariadb.run("insert into t select seq, repeat('x', 200) from seq_1_to_20000", database=database)
    inside = 0
    for _ in range(200):
        capture.take()
        if capture.position is not None and "group" in capture.position:
            inside += 1
            capture.take(commits=False)
            capture.kill()
        if len(capture.log.of(f"{database}.t")) >= 20_000:
            break
    capture.until_caught_up(mariadb)
    events = capture.events("t")
    assert inside >= 3
    assert [event["after"]["id"] for event in events] == list(range(1, 20_001))
    assert [event["transaction"]["total_order"] for event in events] == list(range(1, 20_001))
    assert [event["status"] for event in capture.events("transaction")] == ["BEGIN", "END"]


def test_xa_transactions_count_when_they_are_committed(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key)")
    one, two = mariadb.connect(database), mariadb.connect(database)
    with contextlib.closing(one), contextlib.closing(two), one.cursor() as first, two.cursor() as second:
        for statement in ("xa start 'a'", "insert into t values (1)", "xa end 'a'", "xa prepare 'a'"):
            first.execute(statement)
        for statement in ("xa start 'b'", "insert into t values (2)", "xa end 'b'", "xa prepare 'b'"):
            second.execute(statement)
        mariadb.run("insert into t values (3)", "flush binary logs", database=database)
        capture.until_caught_up(mariadb)
        assert [event["after"]["id"] for event in capture.events("t")] == [3]
        capture.kill()  # what is prepared is remembered in the position
        first.execute("xa commit 'a'")
        second.execute("xa rollback 'b'")
    capture.until_caught_up(mariadb)
    assert [event["after"]["id"] for event in capture.events("t")] == [3, 1]


def test_what_was_rolled_back_is_left_out(mariadb: MariaDB, captures: list[Capture]) -> None:
    """A transaction with a non-transactional table has its undone parts in the log."""
    database, capture = start(
        captures,
        mariadb,
        "create table kept (id int primary key) engine=MyISAM",
        "create table undone (id int primary key) engine=InnoDB",
    )
    mariadb.run(
        "begin",
        "insert into undone values (1)",
        "savepoint a",
        "insert into kept values (2)",
        "insert into undone values (3)",
        "rollback to a",
        "insert into undone values (4)",
        "commit",
        "begin",
        "insert into undone values (5)",
        "insert into kept values (6)",
        "rollback",
        database=database,
    )
    capture.until_caught_up(mariadb)
    assert sorted(row["id"] for row in capture.rows("undone").values()) == [1, 4]
    assert sorted(row["id"] for row in capture.rows("kept").values()) == [2, 6]


def test_a_large_group_with_undone_parts_is_read_twice(
    mariadb: MariaDB, captures: list[Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.mysql.held.HELD_BYTES", 1000)
    monkeypatch.setattr("headwater.connect.cdc.mysql.held.HeldGroup.__init__.__defaults__", (1000,))
    database, capture = start(
        captures,
        mariadb,
        "create table kept (id int primary key) engine=MyISAM",
        "create table undone (id int primary key) engine=InnoDB",
    )
    mariadb.run(
        "begin",
        "insert into undone select seq from seq_1_to_3000",
        "savepoint a",
        "insert into kept values (1)",
        "insert into undone select seq from seq_4001_to_7000",
        "rollback to a",
        "insert into undone values (9000)",
        "commit",
        database=database,
    )
    capture.until_caught_up(mariadb)
    found = sorted(row["id"] for row in capture.rows("undone").values())
    assert found == [*range(1, 3001), 9000]


def test_system_versioning(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key, v int) with system versioning",
        "create table own (id int, v int, a timestamp(6) generated always as row start,"
        " b timestamp(6) generated always as row end, primary key (id, b), period for system_time (a, b))"
        " with system versioning",
    )
    for table in ("t", "own"):
        mariadb.run(
            f"insert into {table} (id, v) values (1, 1), (2, 2)",
            f"update {table} set v = 3 where id = 1",
            f"delete from {table} where id = 2",
            database=database,
        )
    capture.until_caught_up(mariadb)
    assert ops(capture, "t") == ["c", "c", "u", "d", "tombstone"]
    assert capture.rows("t") == {b'{"id":1}': {"id": 1, "v": 3}}
    assert [(key, row["v"]) for key, row in capture.rows("own").items()] == [(b'{"id":1}', 3)]
    snapshot = Capture(mariadb, database)
    captures.append(snapshot)
    snapshot.until_caught_up(mariadb)
    assert snapshot.rows("t") == capture.rows("t")
    assert snapshot.rows("own") == capture.rows("own")


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_ddl_while_nobody_reads(mariadb: MariaDB, captures: list[Capture], metadata: str) -> None:
    """Rows before and after each statement have the columns of their time."""
    mariadb.run(f"set global binlog_row_metadata = {metadata}")
    try:
        database, capture = start(
            captures, mariadb, "create table t (id int primary key, a int unsigned, e enum('x','y'))"
        )
        capture.kill()
        mariadb.run(
            "insert into t values (1, 4000000000, 'y')",
            "alter table t add column b varchar(10) character set latin1 default 'é' after id, drop column a",
            "insert into t values (2, 'ö', 'x')",
            "alter table t modify e enum('z','x','y') first, rename column b to c",
            "insert into t values ('z', 3, 'ü')",
            "alter table t drop c, add column d bigint unsigned, add key (d)",
            "insert into t values ('y', 4, 18446744073709551615)",
            "create table later like t",
            "insert into later values ('x', 1, 1)",
            "create table copied as select id, d from t",
            "drop table later",
            database=database,
        )
        capture.until_caught_up(mariadb)
    finally:
        mariadb.run("set global binlog_row_metadata = FULL")
    assert [event["after"] for event in capture.events("t")] == [
        {"id": 1, "a": 4000000000, "e": "y"},
        {"id": 2, "b": "ö", "e": "x"},
        {"e": "z", "id": 3, "c": "ü"},
        {"e": "y", "id": 4, "d": 18446744073709551615},
    ]
    assert capture.events("later")[0]["after"] == {"e": "x", "id": 1, "d": 1}
    assert capture.rows("later") == {}  # it was dropped
    assert len(capture.events("copied")) == 4
    first, second, *changes = capture.events("schema")  # two as they were found, the second at the restart
    assert [each["table"].partition(".")[2] for each in (first, second)] == ["t", "copied"]
    assert (first["ddl"], second["ddl"]) == (None, None)
    assert [column["name"] for column in first["columns"]] == ["id", "a", "e"]
    assert [change["table"].partition(".")[2] for change in changes] == [
        "t",
        "t",
        "t",
        "later",
        "copied",
        "later",
    ]
    assert changes[1]["ddl"].startswith("alter table t modify")
    assert [column["name"] for column in changes[1]["columns"]] == ["e", "id", "c"]
    assert changes[-1]["columns"] is None


def test_truncate_and_rename_empty_the_topic(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key)",
        "create table bag (n int)",
        "create table swapped (id int primary key)",
        snapshot="initial",
    )
    mariadb.run("insert into t values (1), (2)", "insert into bag values (1)", database=database)
    mariadb.run("insert into swapped values (7)", database=database)
    capture.until_caught_up(mariadb)
    mariadb.run("truncate table t", "truncate bag", "insert into t values (3)", database=database)
    capture.until_caught_up(mariadb)
    assert capture.rows("t") == {b'{"id":3}': {"id": 3}}
    assert not capture.bag("bag")
    deletes = [event for event in capture.events("t") if event is not None and event["op"] == "d"]
    assert [event["before"] for event in deletes] == [{"id": 1}, {"id": 2}]
    mariadb.run("rename table t to aside, swapped to t, aside to swapped", database=database)
    capture.until_caught_up(mariadb)
    assert capture.rows("t") == {b'{"id":7}': {"id": 7}}
    assert capture.rows("swapped") == {b'{"id":3}': {"id": 3}}


def test_sequences_are_no_tables(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key)", "create sequence s")
    mariadb.run("insert into t values (nextval(s))", database=database)
    capture.until_caught_up(mariadb)
    topics = {record[0] for record in capture.log.records}
    assert topics == {capture.options.topic("t"), capture.options.topic("schema")}


def test_compressed_events(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key, v text)")
    mariadb.run("set global log_bin_compress = 1", "set global log_bin_compress_min_len = 10")
    try:
        mariadb.run(
            "insert into t values (1, repeat('a', 5000))",
            "update t set v = repeat('b', 5000)",
            "insert into t values (2, repeat('c', 300))",
            "delete from t where id = 2",
            f"alter table t add column {'x' * 60} int",
            database=database,
        )
    finally:
        mariadb.run("set global log_bin_compress = 0")
    capture.until_caught_up(mariadb)
    assert ops(capture, "t") == ["c", "u", "c", "d", "tombstone"]
    assert capture.events("t")[1]["after"]["v"] == "b" * 5000
    assert [event["columns"][-1]["name"] for event in capture.events("schema")] == ["v", "x" * 60]


def test_values_larger_than_a_packet(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key, v longtext)")
    size = (1 << 24) + 1000
    mariadb.run(
        f"insert into t values (1, repeat('a', {size}))", "insert into t values (2, 'b')", database=database
    )
    capture.until_caught_up(mariadb)
    assert [len(event["after"]["v"]) for event in capture.events("t")] == [size, 1]
    snapshot = Capture(mariadb, database)
    captures.append(snapshot)
    snapshot.until_caught_up(mariadb)
    assert [len(row["v"]) for row in snapshot.rows("t").values()] == [size, 1]


def test_a_partial_row_image_is_told(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key, v int, w int)")
    mariadb.run("insert into t values (1, 1, 1), (2, 2, 2)", database=database)
    mariadb.run("set binlog_row_image = MINIMAL", "delete from t where id = 2", database=database)
    capture.until_caught_up(mariadb)
    assert capture.events("t")[-2]["before"] == {"id": 2, "v": None, "w": None}
    mariadb.run("set binlog_row_image = MINIMAL", "update t set v = 5", database=database)
    with pytest.raises(ChangesMissed, match="binlog_row_image"):
        capture.until_caught_up(mariadb)


def test_statements_about_tables_that_nobody_captures(mariadb: MariaDB, captures: list[Capture]) -> None:
    database = fresh_database(mariadb, "create table t (id int primary key)", "create table audit (n int)")
    capture = Capture(mariadb, database, tables=("t",))
    captures.append(capture)
    capture.until_caught_up(mariadb)
    mariadb.run(
        "set binlog_format = statement", "insert into audit values (1), (1)", "delete from audit limit 1",
        database=database,
    )  # fmt: skip
    mariadb.run("insert into t values (1)", database=database)
    capture.until_caught_up(mariadb)
    assert list(capture.rows("t")) == [b'{"id":1}']
    mariadb.run("set binlog_format = statement", "insert into`t`values (2)", database=database)
    with pytest.raises(ChangesMissed, match="as a statement"):
        capture.until_caught_up(mariadb)


def test_the_outbox(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table outbox (id char(3) primary key, aggregatetype varchar(20), aggregateid varchar(20),"
        " type varchar(20), payload json)",
        outbox="outbox",
        snapshot="initial",
    )
    mariadb.run(
        "begin",
        """insert into outbox values ('e1', 'order', '42', 'Paid', '{"sum": 5}')""",
        "delete from outbox",
        "commit",
        database=database,
    )
    capture.until_caught_up(mariadb)
    assert [tuple(record) for record in capture.log.records] == [
        ("outbox.event.order", b"42", b'{"sum": 5}', [("id", b"e1"), ("type", b"Paid")])
    ]


def test_status_tells_where_it_is(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key)")
    mariadb.run("insert into t values (1)", database=database)
    capture.until_caught_up(mariadb)
    end = time.monotonic() + 5
    while capture.source.status().lag_bytes != 0 and time.monotonic() < end:
        capture.take()
    status = capture.source.status()
    file, place = mariadb.run("show master status")[0][:2]
    assert status.lag_bytes == 0 and status.lag_seconds == 0
    assert f"{file}:{place}" in status.position


def test_positions_are_small(mariadb: MariaDB, captures: list[Capture]) -> None:
    columns = ", ".join(f"column_number_{n} varchar(40)" for n in range(40))
    tables = [f"create table t{n} (id int primary key, {columns})" for n in range(20)]
    _, capture = start(captures, mariadb, *tables)
    assert len(orjson.dumps(capture.position)) < 4000
