"""Snapshots of a real MariaDB: resumed, asked for, interrupted, and while tables change."""

from collections import Counter

import pytest

from headwater.connect.source import Signal
from headwater.errors import CaptureImpossible
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB


def test_a_snapshot_goes_on_with_the_next_chunk(mariadb: MariaDB) -> None:
    database = fresh_database(mariadb, "create table t (a varchar(5), b int, primary key (a, b))")
    mariadb.run("insert into t select char(97 + seq % 3), seq from seq_1_to_1000", database=database)
    capture = Capture(mariadb, database, chunk_rows=100)
    kills = 0
    while len(capture.log.records) < 900:
        before = len(capture.log.records)
        capture.until(lambda before=before: len(capture.log.records) > before)  # type: ignore[misc]
        capture.take(commits=False)
        capture.kill()
        kills += 1
    capture.until_caught_up(mariadb)
    events = capture.events("t")
    assert kills >= 5 and len(events) == 1000  # no row twice
    assert [(e["after"]["a"], e["after"]["b"]) for e in events] == sorted(
        (chr(97 + n % 3), n) for n in range(1, 1001)
    )
    marks = Counter(event["source"]["snapshot"] for event in events)
    assert marks == {"first": 1, "true": 998, "last": 1}
    capture.close()


@pytest.mark.parametrize(
    "key",
    [
        "k bigint unsigned", "k decimal(20,5)", "k double", "k float", "k varchar(20) collate utf8mb4_general_ci",
        "k varchar(20) character set latin1", "k varbinary(20)", "k binary(6)", "k datetime(6)", "k time(3)",
        "k timestamp(3)", "k date", "k year", "k uuid", "k inet6", "k bit(20)", "k enum('c','b','a')",
    ],
)  # fmt: skip
def test_keys_of_every_type_are_read_in_chunks(mariadb: MariaDB, key: str) -> None:
    database = fresh_database(mariadb, f"create table t ({key}, n int, primary key (k, n))")
    made = {
        "varchar": "concat('é', seq)", "varbinary": "concat(x'00ff', seq)", "binary": "concat(x'00', seq)",
        "datetime": "'2024-01-01' + interval seq minute", "time": "sec_to_time(seq) - interval 10 second",
        "timestamp": "'2024-01-01' + interval seq * 100 millisecond",
        "date": "'1500-01-01' + interval seq day", "year": "2000 + seq",
        "uuid": "concat('12345678-9abc-4ef0-8234-', lpad(seq * 7919, 12, '0'))",
        "inet6": "concat('::', hex(seq * 919))", "enum('c','b','a')": "1 + seq % 3", "double": "seq / 7",
        "float": "seq / 7", "decimal": "seq / 7",
    }  # fmt: skip
    kind = key.split()[1].split("(")[0] if "enum" not in key else key.split()[1]
    if kind == "timestamp":
        made[kind] = "'2024-01-01' + interval seq second"
    mariadb.run(f"insert into t select {made.get(kind, 'seq')}, seq from seq_1_to_50", database=database)
    capture = Capture(mariadb, database, chunk_rows=7)
    capture.until_caught_up(mariadb)
    capture.close()
    assert sorted(event["after"]["n"] for event in capture.events("t")) == list(range(1, 51))


def test_a_table_without_a_key_begins_again(mariadb: MariaDB) -> None:
    database = fresh_database(mariadb, "create table bag (n int, v varchar(100))")
    mariadb.run("insert into bag select seq % 10, repeat('x', 100) from seq_1_to_9000", database=database)
    capture = Capture(mariadb, database)
    capture.until(lambda: len(capture.events("bag")) > 0)
    assert len(capture.events("bag")) < 9000  # in the middle of it
    capture.kill()
    mariadb.run("delete from bag where n = 3", database=database)
    capture.until_caught_up(mariadb)
    assert sum(capture.bag("bag").values()) == 8100
    assert [e["op"] for e in capture.events("bag") if e is not None].count("t") == 1
    assert capture.source.topic_needs(f"{database}.bag").configs["cleanup.policy"] == "delete"
    capture.close()


def test_tables_change_while_they_are_read(mariadb: MariaDB) -> None:
    """TRUNCATE and ALTER between the chunks, and a table that goes away, stop nothing."""
    database = fresh_database(
        mariadb,
        "create table a (id int primary key, v int)",
        "create table b (id int primary key)",
        "create table c (id int primary key)",
    )
    for table in "abc":
        mariadb.run(f"insert into {table} (id) select seq from seq_1_to_500", database=database)
    capture = Capture(mariadb, database, chunk_rows=50)
    capture.until(lambda: len(capture.log.records) >= 100)
    mariadb.run(
        "alter table a add column w int default 7 first, drop column v",
        "truncate table b",
        "insert into b values (1), (1000)",
        "drop table c",
        "delete from a where id < 60",
        "update a set w = 8 where id = 300",
        database=database,
    )
    capture.until_caught_up(mariadb)
    capture.close()
    assert sorted(row["id"] for row in capture.rows("a").values()) == list(range(60, 501))
    assert capture.rows("a")[b'{"id":300}'] == {"w": 8, "id": 300}
    assert capture.rows("a")[b'{"id":400}'] == {"w": 7, "id": 400}
    assert sorted(row["id"] for row in capture.rows("b").values()) == [1, 1000]
    assert capture.rows("c") == {}


def test_signals(mariadb: MariaDB) -> None:
    database = fresh_database(mariadb, "create table t (id int primary key, v int)")
    mariadb.run("insert into t select seq, 0 from seq_1_to_100", database=database)
    capture = Capture(mariadb, database, snapshot="never", chunk_rows=10)
    capture.take()
    mariadb.run("insert into t values (500, 1)", database=database)
    capture.until_caught_up(mariadb)
    assert list(capture.rows("t")) == [b'{"id":500}']
    capture.kill()
    # It was waiting when the source began: it comes before the first step.
    capture.source.signal(Signal("snapshot", ("t",), "id <= 30"))
    capture.take()
    capture.kill()  # it is in the position
    capture.until_caught_up(mariadb)
    assert sorted(row["id"] for row in capture.rows("t").values()) == [*range(1, 31), 500]
    capture.source.signal(Signal("pause"))
    capture.source.signal(Signal("snapshot"))
    for _ in range(5):
        capture.take()
    assert len(capture.rows("t")) == 31
    assert capture.source.status().snapshot[0].rows == 0
    capture.kill()
    capture.take()
    capture.source.signal(Signal("resume"))
    capture.until(lambda: len(capture.rows("t")) > 60)
    assert capture.source.status().snapshot[0].total is not None
    capture.source.signal(Signal("stop-snapshot"))
    capture.until_caught_up(mariadb)
    assert len(capture.rows("t")) < 101
    capture.source.signal(Signal("snapshot", ("t",)))
    capture.until(lambda: len(capture.rows("t")) == 101)
    capture.until_caught_up(mariadb)
    capture.close()


def test_a_signal_that_comes_while_a_topic_is_emptied_survives_a_kill(mariadb: MariaDB) -> None:
    database = fresh_database(
        mariadb,
        "create table t (id int primary key)",
        "create table u (id int primary key)",
        "insert into t select seq from seq_1_to_5000",
        "insert into u values (1)",
    )
    capture = Capture(mariadb, database)
    capture.until_caught_up(mariadb)
    mariadb.run("truncate table t", database=database)
    capture.until(lambda: None in capture.events("t"))
    assert capture.rows("t")
    capture.source.signal(Signal("snapshot", ("u",)))
    capture.take()  # the worker notes with this step that the signal was taken
    assert capture.rows("t")
    capture.kill()
    capture.until_caught_up(mariadb)
    capture.close()
    assert [event["op"] for event in capture.events("u")] == ["r", "r"]
    assert capture.rows("t") == {}


def test_a_pause_lasts_over_kills_and_gaps() -> None:
    """Also one that comes while nothing is read."""
    with MariaDB() as server:
        database = fresh_database(server, "create table t (id int primary key)", "insert into t values (1)")
        capture = Capture(server, database, on_gap="snapshot")
        capture.until_caught_up(server)
        capture.source.signal(Signal("pause"))
        for signals in ((), (Signal("snapshot"),)):
            capture.take()
            capture.kill()
            capture.take()
            for signal in signals:
                capture.source.signal(signal)
            for _ in range(5):
                capture.take()
            assert len(capture.events("t")) == 1
        capture.kill()
        server.run("reset master")
        for _ in range(5):
            capture.take()
        assert any("all tables are read again" in note for note in capture.source.status().notes)
        assert len(capture.events("t")) == 1
        capture.source.signal(Signal("resume"))
        capture.until_caught_up(server)
        capture.close()
        assert len(capture.events("t")) == 2


def test_signals_that_cannot_be_followed_stop_nothing(mariadb: MariaDB) -> None:
    database = fresh_database(
        mariadb,
        "create table t (id int primary key, v int)",
        "create table bag (v int)",
        "insert into bag values (1)",
    )
    capture = Capture(mariadb, database)
    capture.until_caught_up(mariadb)
    events = len(capture.events("bag"))

    def notes(signal: Signal) -> str:
        capture.source.signal(signal)
        mariadb.run("insert into t select coalesce(max(id), 0) + 1, 0 from t", database=database)
        capture.take()
        capture.until_caught_up(mariadb)
        return " ".join(capture.source.status().notes)

    assert "no captured table is called" in notes(Signal("snapshot", ("elsewhere",)))
    assert "bag has no key" in notes(Signal("snapshot", ("bag",), "v = 1"))
    assert "does not hold water: You have an error in your SQL" in notes(
        Signal("snapshot", ("t",), "id >> > 1")
    )
    assert "does not hold water: Unknown column" in notes(Signal("snapshot", ("t",), "w = 1"))
    assert "does not hold" not in notes(Signal("snapshot", ("t",), "id = 1"))
    assert "paused" in notes(Signal("pause"))
    assert len(capture.rows("t")) == 6 and len(capture.events("bag")) == events
    capture.close()


def test_a_snapshot_deletes_what_the_topic_has_too_much(mariadb: MariaDB) -> None:
    database = fresh_database(mariadb, "create table t (id int primary key)")
    mariadb.run("insert into t values (1), (2), (3)", database=database)
    capture = Capture(mariadb, database)
    capture.until_caught_up(mariadb)
    mariadb.run(
        "set sql_log_bin = 0", "delete from t where id = 2", "insert into t values (4)", database=database
    )
    capture.source.signal(Signal("snapshot", ("t",)))
    capture.take()
    capture.until_caught_up(mariadb)
    capture.close()
    assert sorted(row["id"] for row in capture.rows("t").values()) == [1, 3, 4]


def test_tables_that_are_asked_for_later(mariadb: MariaDB) -> None:
    database = fresh_database(
        mariadb, "create table a (id int primary key)", "create table b (id int primary key)"
    )
    mariadb.run("insert into a values (1)", "insert into b values (1)", database=database)
    capture = Capture(mariadb, database, tables=("a",))
    capture.until_caught_up(mariadb)
    position = capture.position
    capture.close()
    more = Capture(mariadb, database)
    more.position = position
    mariadb.run(
        "insert into b values (2)", "create table c (id int)", "insert into c values (1)", database=database
    )
    more.until_caught_up(mariadb)
    more.close()
    assert not more.events("a")
    assert sorted(row["id"] for row in more.rows("b").values()) == [1, 2]
    assert sum(more.bag("c").values()) == 1
    with pytest.raises(CaptureImpossible, match="no table"):
        Capture(mariadb, database, tables=("nothing",)).take()
