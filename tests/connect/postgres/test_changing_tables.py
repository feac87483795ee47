"""DDL while a source runs and while it does not; changes that were missed."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from headwater.connect.source import Signal
from headwater.errors import ChangesMissed
from tests.connect.postgres.following import Following

Follow = Callable[..., Following]
Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 0.2)


def rows(following: Following, topic: str = "shop.t") -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in following.log.table(topic).values()}


def forms(following: Following) -> list[list[str]]:
    found = [
        event.value for event in following.log.events("shop.schema") if event.value["table"] == "public.t"
    ]
    return [[f"{column['name']} {column['type']}" for column in each["columns"]] for each in found]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("touched", [True, False])
def test_columns_come_and_go(db: Db, follow: Follow, running: bool, touched: bool) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, x text, y int); INSERT INTO t VALUES (1, 'a', 5), (2, 'b', 6)"
    )
    following = follow()
    following.catch_up()

    def change(statement: str, expected: dict[int, dict[str, Any]]) -> None:
        if not running:
            following.close()
        db.execute(statement)
        if touched:
            db.execute("UPDATE t SET id = id WHERE id = 1")
        following.until(lambda: rows(following) == expected)

    change(
        "ALTER TABLE t ADD COLUMN z int DEFAULT 7",
        {1: {"id": 1, "x": "a", "y": 5, "z": 7}, 2: {"id": 2, "x": "b", "y": 6, "z": 7}},
    )
    change(
        "ALTER TABLE t RENAME COLUMN x TO xx",
        {1: {"id": 1, "xx": "a", "y": 5, "z": 7}, 2: {"id": 2, "xx": "b", "y": 6, "z": 7}},
    )
    change(
        "ALTER TABLE t ALTER COLUMN y TYPE text USING 'y' || y",
        {1: {"id": 1, "xx": "a", "y": "y5", "z": 7}, 2: {"id": 2, "xx": "b", "y": "y6", "z": 7}},
    )
    assert forms(following) == [
        ["id int4", "x text", "y int4"],
        ["id int4", "x text", "y int4", "z int4"],
        ["id int4", "xx text", "y int4", "z int4"],
        ["id int4", "xx text", "y text", "z int4"],
    ]
    before = len(following.log.events("shop.t"))
    db.execute("ALTER TABLE t DROP COLUMN z; ALTER TABLE t ADD COLUMN w varchar(5)")
    following.until(lambda: len(forms(following)) == 5)
    following.catch_up()
    db.execute("ALTER TABLE t ADD COLUMN v numeric(10,2)")
    following.until(lambda: len(forms(following)) == 6)
    assert forms(following)[-1] == ["id int4", "xx text", "y text", "w varchar(5)", "v numeric(10,2)"]
    following.catch_up()
    # The first may have been a renamed column, so the table was read; a column without a default changes no row.
    assert len(following.log.events("shop.t")) == before + 2


def test_another_key_takes_the_old_keys_out(db: Db, follow: Follow) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL); INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    following = follow()
    following.catch_up()
    db.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (code)")
    following.until(lambda: set(following.log.table("shop.t")) == {b'{"code":"a"}', b'{"code":"b"}'})


def test_tables_that_are_made_and_dropped(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    following = follow()
    following.catch_up()
    db.execute("CREATE TABLE more (id int PRIMARY KEY); INSERT INTO more VALUES (1)")
    following.until(lambda: set(rows(following, "shop.more")) == {1})
    db.execute("INSERT INTO more VALUES (2)")
    db.execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (2), (3)")
    following.until(lambda: set(rows(following)) == {2, 3} and set(rows(following, "shop.more")) == {1, 2})
    db.execute("DROP TABLE t")
    following.until(lambda: any("public.t is not there" in note for note in following.source.status().notes))


def test_a_table_is_altered_while_it_is_read(db: Db, follow: Follow) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t SELECT g, g FROM generate_series(1, 500) g"
    )
    following = follow(chunk_rows=50)
    for _ in range(6):
        following.step()
        following.commit()
    db.execute("ALTER TABLE t ADD COLUMN y text NOT NULL DEFAULT 'new'")
    for _ in range(3):
        following.step()
        following.commit()
    db.execute("ALTER TABLE t ALTER COLUMN x TYPE bigint")
    db.execute("DELETE FROM t WHERE id % 2 = 0")
    following.until(lambda: rows(following) == {g: {"id": g, "x": g, "y": "new"} for g in range(1, 501, 2)})


@pytest.mark.parametrize("how", ["dropped", "moved", "another server"])
def test_changes_that_were_missed(db: Db, follow: Follow, how: str) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t SELECT g, 'a' FROM generate_series(1, 5) g"
    )
    db.execute(
        "CREATE TABLE bag (x int); ALTER TABLE bag REPLICA IDENTITY FULL; INSERT INTO bag VALUES (1), (2)"
    )
    following = follow()
    following.catch_up()
    following.close()
    db.execute(
        "DELETE FROM t WHERE id <= 2; UPDATE t SET x = 'b' WHERE id = 3; INSERT INTO t VALUES (6, 'c')"
    )
    db.execute("DELETE FROM bag WHERE x = 1; INSERT INTO bag VALUES (3)")
    if how == "dropped":
        following.drop_slot()
    elif how == "moved":
        db.execute("SELECT pg_replication_slot_advance('headwater_shop', pg_current_wal_lsn())")
    else:
        assert following.log.position is not None
        following.log.position = {**following.log.position, "system": "1"}
    with pytest.raises(ChangesMissed, match="on_gap='snapshot'"):
        following.step()
    following.close()
    if how == "moved":
        following.source.signal(Signal("snapshot", ("t",)))
        with pytest.raises(ChangesMissed):  # one table does not close the gap
            following.step()
        following.close()
        following.source.signal(Signal("stop-snapshot"))  # of reads before
        following.source.signal(Signal("snapshot"))  # a person says so
    else:
        following = follow(log=following.log, on_gap="snapshot")
    following.catch_up()
    assert rows(following) == {
        3: {"id": 3, "x": "b"}, 4: {"id": 4, "x": "a"}, 5: {"id": 5, "x": "a"}, 6: {"id": 6, "x": "c"},
    }  # fmt: skip
    assert following.log.bag("shop.bag") == ['{"x": 2}', '{"x": 3}']
    deleted = [
        event.key["id"]
        for event in following.log.events("shop.t")
        if event.value and event.value["op"] == "d"
    ]
    assert deleted == [1, 2]
    db.execute("DELETE FROM t WHERE id = 3")
    following.catch_up()
    assert set(rows(following)) == {4, 5, 6}
    assert any("changes were missed" in note for note in following.source.status().notes)
