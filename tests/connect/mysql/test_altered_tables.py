"""DDL that gives rows other values, takes them or brings them: of that a real MariaDB's log has nothing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.connect.cdc.mysql.doctor import examine
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Record
from tests.connect.mysql.harness import Capture, fresh_database
from tests.support.mariadb import MariaDB


@pytest.fixture
def captures() -> Iterator[list[Capture]]:
    opened: list[Capture] = []
    yield opened
    for each in opened:
        each.close()


def start(
    captures: list[Capture], server: MariaDB, *statements: str, **options: object
) -> tuple[str, Capture]:
    database = fresh_database(server, *statements)
    captures.append(Capture(server, database, **options))
    captures[-1].until_caught_up(server)
    return database, captures[-1]


def values(capture: Capture, table: str = "t") -> list[dict[str, object]]:
    return sorted(capture.rows(table).values(), key=lambda row: int(row["id"]))


def test_columns_that_show_a_value_in_rows_from_before(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key, v varchar(10))",
        "insert into t values (1, '7'), (2, '8')",
    )

    def after(statement: str) -> list[dict[str, object]]:
        mariadb.run(statement, database=database)
        capture.until_caught_up(mariadb)
        return values(capture)

    assert after("alter table t add column w int default 5") == [
        {"id": 1, "v": "7", "w": 5}, {"id": 2, "v": "8", "w": 5},
    ]  # fmt: skip
    assert after("alter table t drop column w, change v x varchar(10)") == [
        {"id": 1, "x": "7"}, {"id": 2, "x": "8"},
    ]  # fmt: skip
    assert after("alter table t modify x decimal(4,1)") == [{"id": 1, "x": "Rg=="}, {"id": 2, "x": "UA=="}]
    assert after("alter table t add column y int as (id * 2) stored") == [
        {"id": 1, "x": "Rg==", "y": 2}, {"id": 2, "x": "UA==", "y": 4},
    ]  # fmt: skip
    assert after("alter table t add column z int, modify y bigint as (id * 3) stored") == [
        {"id": 1, "x": "Rg==", "y": 3, "z": None}, {"id": 2, "x": "UA==", "y": 6, "z": None},
    ]  # fmt: skip
    events = len(capture.events("t"))
    after("alter table t add column free varchar(20), modify id bigint, add index (x), comment 'quick'")
    after("alter table t modify free text, add column more json default null")
    assert after("alter table t drop column z, drop column y, drop column more, drop column free") != []
    assert len(capture.events("t")) == events  # of these no row looks otherwise
    assert after("alter table t add column y int") == [
        {"id": 1, "x": "Rg==", "y": None}, {"id": 2, "x": "UA==", "y": None},
    ]  # fmt: skip


def test_partitions_come_and_go(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key, v int) partition by range (id) (partition low values less than (10), "
        "partition middle values less than (20), partition high values less than maxvalue)",
        "insert into t values (1, 1), (11, 11), (21, 21)",
        "create table other (id int primary key, v int)",
        "insert into other values (25, 25)",
    )

    def after(statement: str) -> tuple[list[object], list[object]]:
        mariadb.run(statement, database=database)
        capture.until_caught_up(mariadb)
        return [row["id"] for row in values(capture)], [row["id"] for row in values(capture, "other")]

    assert after("alter table t truncate partition low") == ([11, 21], [25])
    assert after("alter table t drop partition middle") == ([21], [25])
    assert after("alter table t exchange partition high with table other") == ([25], [21])
    assert after("alter table t convert partition high to table third") == ([], [21])
    assert [row["id"] for row in values(capture, "third")] == [25]


def test_indexes_come_and_go(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(captures, mariadb, "create table t (id int primary key, v int)")
    mariadb.run(
        "create index quick on t (v)",
        "drop index quick on t",
        "insert into t values (1, 1)",
        database=database,
    )
    capture.until_caught_up(mariadb)
    assert values(capture) == [{"id": 1, "v": 1}]


@pytest.mark.parametrize(
    ("before", "value", "change", "shown"),
    [
        ("int", "300", "modify v tinyint", 127),
        ("bigint", "-1", "modify v bigint unsigned", 0),
        ("int unsigned", "4000000000", "modify v int", 2147483647),
        ("decimal(5,2)", "-1", "modify v decimal(5,2) unsigned", "AA=="),
        ("varchar(10)", "300", "modify v varchar(2)", "30"),
        ("text", "300", "modify v varchar(2)", "30"),
        ("varchar(10)", "'数'", "convert to character set latin1", "?"),
    ],
)
def test_values_that_do_not_fit_any_more(
    mariadb: MariaDB, captures: list[Capture], before: str, value: str, change: str, shown: object
) -> None:
    """Without strict mode a server makes them fit."""
    database, capture = start(
        captures,
        mariadb,
        f"create table t (id int primary key, v {before}) character set utf8mb4",
        f"insert into t values (1, {value})",
    )
    mariadb.run("set sql_mode = ''", f"alter table t {change}", database=database)
    capture.until_caught_up(mariadb)
    assert values(capture) == [{"id": 1, "v": shown}]


def test_rows_that_alter_ignore_leaves_out(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key, v int)",
        "insert into t values (1, 1), (2, 1), (3, 3)",
    )
    mariadb.run("alter ignore table t add unique (v)", database=database)
    capture.until_caught_up(mariadb)
    assert values(capture) == [{"id": 1, "v": 1}, {"id": 3, "v": 3}]


def test_a_tablespace_that_is_imported(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table t (id int primary key)",
        "insert into t values (1)",
        "create table other (id int primary key)",
        "insert into other values (2)",
    )
    directory = Path(mariadb.run("select @@datadir")[0][0]) / database
    mariadb.run("alter table t discard tablespace", database=database)
    with mariadb.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("flush tables other for export")
        for suffix in ("ibd", "cfg"):
            owner = (directory / "t.frm").stat()
            copied = shutil.copy(directory / f"other.{suffix}", directory / f"t.{suffix}")
            os.chown(copied, owner.st_uid, owner.st_gid)
        cursor.execute("unlock tables")
        cursor.execute("alter table t import tablespace")
    capture.until_caught_up(mariadb)
    assert values(capture) == [{"id": 2}]


@pytest.mark.parametrize(
    ("key", "change", "twice"),
    [
        ("constraint one unique (id)", "drop constraint one", "1"),
        ("unique (id)", "modify id int", "null"),
        ("unique (id)", "change id id int null", "null"),
        ("primary key (id)", "drop constraint `PRIMARY`", "1"),
    ],
)
def test_rows_that_have_no_key_any_more(
    mariadb: MariaDB, captures: list[Capture], key: str, change: str, twice: str
) -> None:
    """Under the key that was, the second would take the place of the first."""
    database, capture = start(captures, mariadb, f"create table t (id int not null, v int, {key})")
    mariadb.run(
        f"alter table t {change}", f"insert into t values ({twice}, 1), ({twice}, 2)", database=database
    )
    capture.until_caught_up(mariadb)
    assert {record.key for record in map(Record._make, capture.log.of(capture.options.topic("t")))} == {None}
    assert capture.bag("t").total() == 2


def test_changes_between_indexes_and_columns_are_told_as_they_were(
    mariadb: MariaDB, captures: list[Capture]
) -> None:
    """Columns that the server has now came after rows that are yet to be read: an index says nothing of them."""
    database, capture = start(
        captures, mariadb, "create table t (id int primary key, v int, w int not null, unique (w))"
    )
    capture.kill()
    mariadb.run("set global binlog_row_metadata = NO_LOG")  # else the log has the columns' names
    try:
        mariadb.run(
            "alter table t add column x int not null default 5",
            "insert into t values (1, 1, 1, 1)",
            "create index quick on t (v)",
            "insert into t values (2, 2, 2, 2)",
            "alter table t rename column v to renamed, drop index quick",
            "insert into t values (3, 3, 3, 3)",
            "alter table t add column y int not null default 6",
            "insert into t values (4, 4, 4, 4, 4)",
            "alter table t drop primary key",
            "insert into t values (5, 5, 5, 5, 5)",
            "alter table t drop column x",
            database=database,
        )
    finally:
        mariadb.run("set global binlog_row_metadata = FULL")
    capture.until_caught_up(mariadb)
    told = [event["after"] for event in capture.events("t") if event is not None and event["op"] == "c"]
    assert told == [
        {"id": 1, "v": 1, "w": 1, "x": 1},
        {"id": 2, "v": 2, "w": 2, "x": 2},
        {"id": 3, "renamed": 3, "w": 3, "x": 3},
        {"id": 4, "renamed": 4, "w": 4, "x": 4, "y": 4},
        {"id": 5, "renamed": 5, "w": 5, "x": 5, "y": 5},
    ]
    assert values(capture) == [
        {"id": number, "renamed": number, "w": number, "y": 6 if number < 4 else number}
        for number in range(1, 6)
    ]


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL"])
def test_columns_have_the_character_set_of_their_table(
    mariadb: MariaDB, captures: list[Capture], metadata: str
) -> None:
    """Neither the database's, nor what another statement said of it meanwhile."""
    mariadb.run(f"set global binlog_row_metadata = {metadata}")
    try:
        database, capture = start(
            captures,
            mariadb,
            "create table t (id int primary key, v varchar(5)) character set utf8mb4",
            "create table u (id int primary key, v varchar(5)) character set latin1",
        )
        mariadb.run(f"alter database {database} character set cp1251", database=database)
        capture.kill()  # of the database's it is asked once in a life
        for table in "tu":
            mariadb.run(
                f'alter table {table} add w varchar(5), add e enum("x", "é") after v, modify v varchar(6)',
                f"insert into {table} values (1, 'é', 'é', 'é')",
                f"delete from {table}",
                f"alter table {table} convert to character set default",
                f"insert into {table} values (2, 'д', 'x', 'д')",
                database=database,
            )
        capture.until_caught_up(mariadb)
    finally:
        mariadb.run("set global binlog_row_metadata = FULL")
    for table in "tu":
        told = [event["after"] for event in capture.events(table) if event is not None and event["op"] == "c"]
        assert told == [
            {"id": 1, "v": "é", "e": "é", "w": "é"},
            {"id": 2, "v": "д", "e": "x", "w": "д"},
        ]


def test_tables_that_would_share_a_topic(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures, mariadb, "create table `über` (id int primary key)", "insert into `über` values (1)"
    )
    mariadb.run(
        "create table `äber` (id int primary key)",
        "insert into `äber` values (2)",
        "insert into `über` values (3)",
        "create table `schema` (id int primary key)",
        "insert into `schema` values (4)",
        database=database,
    )
    for _ in range(2):
        capture.until_caught_up(mariadb)
        assert [row["id"] for row in values(capture, "_ber")] == [1, 3]
        assert [row["id"] for row in values(capture, f"{database}.schema")] == [4]
        assert any(f"{database}.äber is left out" in note for note in capture.source.status().notes)
        capture.kill()
        mariadb.run("delete from `äber`", "delete from `über` where id = 9", database=database)
    for tables, verdict in ((None, "warning"), (("über", "äber"), "wrong")):
        checks = examine(CdcOptions(mariadb.url(database), tables=tables))
        said = {check.what: check for check in checks}
        assert said["topics"].verdict == verdict and "its topic would be that of" in said["topics"].found
        assert said["tables"].verdict == "fine"


def test_tables_made_of_a_select(mariadb: MariaDB, captures: list[Capture]) -> None:
    database, capture = start(
        captures,
        mariadb,
        "create table source (id int primary key, v int)",
        "insert into source values (1, 1), (2, 2)",
    )
    made = "table t (primary key (id)) as select id, v + 1 as w from source"
    mariadb.run(f"create {made}", f"create or replace {made} where id = 1", database=database)
    capture.until_caught_up(mariadb)
    assert values(capture) == [{"id": 1, "w": 2}]
