"""What looks as before and is not: tables under other tables' names, columns made anew, emptied parts, changed types;
and a publication that somebody has changed."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from headwater.connect.cdc.factory import examine
from headwater.connect.source import Signal
from headwater.errors import CaptureImpossible, ChangesMissed, ConnectionLost
from tests.connect.postgres.following import Following

Follow = Callable[..., Following]
Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 0.1)


def rows(following: Following, topic: str = "shop.t") -> dict[Any, Any]:
    return {row["id"]: row.get("v") for row in following.log.table(topic).values()}


@pytest.mark.parametrize("running", [True, False])
def test_tables_that_look_as_before(db: Db, follow: Follow, running: bool) -> None:
    db.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, v int);
        INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE TABLE other (id int PRIMARY KEY, v int);
        INSERT INTO other VALUES (2, 20), (3, 30);
        CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10);
        CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20);
        INSERT INTO parted VALUES (1, 1), (11, 11);
        """
    )
    following = follow()
    following.catch_up()

    def change(statement: str, expected: dict[str, dict[int, int | None]]) -> None:
        if not running:
            following.close()
        db.execute(statement)
        following.until(lambda: all(rows(following, topic) == there for topic, there in expected.items()))

    change(
        "ALTER TABLE t RENAME TO was; ALTER TABLE other RENAME TO t; ALTER TABLE was RENAME TO other",
        {"shop.t": {2: 20, 3: 30}, "shop.other": {1: 1, 2: 2}},
    )
    change("ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v int", {"shop.t": {2: None, 3: None}})
    change("ALTER TABLE t ALTER COLUMN v TYPE bigint; UPDATE t SET v = 5", {"shop.t": {2: 5, 3: 5}})
    forms = len(following.log.events("shop.schema"))
    db.execute("ALTER TABLE t DROP COLUMN v")
    following.until(lambda: len(following.log.events("shop.schema")) > forms)
    change("ALTER TABLE t ADD COLUMN v int", {"shop.t": {2: None, 3: None}})
    change("TRUNCATE low", {"shop.parted": {11: 11}})
    change(
        "CREATE TABLE more (id int PRIMARY KEY, v int); INSERT INTO more VALUES (21, 21);"
        "ALTER TABLE parted ATTACH PARTITION more FOR VALUES FROM (20) TO (30)",
        {"shop.parted": {11: 11, 21: 21}},
    )
    change("ALTER TABLE parted DETACH PARTITION high", {"shop.parted": {21: 21}})


def test_values_that_are_computed_anew_within_their_type(db: Db, follow: Follow, impatient: None) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(6,2))")
    db.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    following = follow()
    following.catch_up()
    db.execute("ALTER TABLE t ALTER v TYPE text USING v || '!'")
    following.until(lambda: [row["v"] for row in following.log.table("shop.t").values()] == ["a!", "b!"])
    following.close()
    db.execute("ALTER TABLE t ALTER v TYPE varchar USING upper(v)")
    following.until(lambda: [row["v"] for row in following.log.table("shop.t").values()] == ["A!", "B!"])
    following.catch_up()
    events = len(following.log.events("shop.t"))
    following.close()
    db.execute("VACUUM FULL t")  # the rows are in another file, and the same
    following.catch_up()
    assert len(following.log.events("shop.t")) == events


def test_a_part_that_comes_is_read_alone(db: Db, follow: Follow) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10); INSERT INTO t VALUES (1, 1), (2, 2);"
        'CREATE TABLE "The ""rest""" (v int, id int PRIMARY KEY); INSERT INTO "The ""rest""" VALUES (30, 13), (40, 14)'
    )
    following = follow(chunk_rows=1)
    following.catch_up()
    before = len(following.log.events("shop.t"))
    db.execute('ALTER TABLE t ATTACH PARTITION "The ""rest""" DEFAULT')
    following.until(lambda: rows(following) == {1: 1, 2: 2, 13: 30, 14: 40})
    following.catch_up()
    assert len(following.log.events("shop.t")) == before + 2


def test_generated_columns_come_and_have_the_type_of_the_column(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a numeric); INSERT INTO t VALUES (1, 1.11)")
    following = follow()
    following.catch_up()
    db.execute(
        "ALTER TABLE t ADD COLUMN n numeric(10, 2) GENERATED ALWAYS AS (a * 1.5) STORED,"
        " ADD COLUMN i int GENERATED ALWAYS AS (a * 10) STORED"
    )

    def found() -> dict[int, tuple[Any, Any]]:
        return {row["id"]: (row.get("n"), row.get("i")) for row in following.log.table("shop.t").values()}

    following.until(lambda: found() == {1: ("AKc=", 11)})  # 1.67
    db.execute("INSERT INTO t VALUES (2, 1.11)")
    following.until(lambda: found() == {1: ("AKc=", 11), 2: ("AKc=", 11)})


def test_types_that_change_beneath_their_columns(db: Db, follow: Follow) -> None:
    db.execute(
        """
        CREATE TYPE pair AS (x int, y text);
        CREATE TYPE mood AS ENUM ('fine', 'sad');
        CREATE TABLE t (id int PRIMARY KEY, v pair, moods mood[]);
        INSERT INTO t VALUES (1, (1, 'a'), '{fine}');
        """
    )
    following = follow()
    following.catch_up()
    db.execute("INSERT INTO t VALUES (2, (2, 'b'), NULL)")
    following.catch_up()
    db.execute("ALTER TYPE pair ADD ATTRIBUTE z int; INSERT INTO t VALUES (3, (3, 'c', 9), NULL)")
    one, two, three = ({"x": n, "y": y, "z": z} for n, y, z in ((1, "a", None), (2, "b", None), (3, "c", 9)))
    following.until(lambda: rows(following) == {1: one, 2: two, 3: three})
    db.execute("ALTER TYPE pair DROP ATTRIBUTE y")
    following.until(lambda: rows(following)[1] == {"x": 1, "z": None})
    before = len(following.log.events("shop.t"))
    db.execute("ALTER TYPE mood ADD VALUE 'angry' BEFORE 'sad'")
    db.execute("UPDATE t SET moods = '{angry}' WHERE id = 2")
    following.catch_up()
    assert len(following.log.events("shop.t")) == before + 1  # nobody else's row has changed
    db.execute("ALTER TYPE mood RENAME VALUE 'fine' TO 'good'")
    following.until(
        lambda: (
            [row["moods"] for row in following.log.table("shop.t").values()] == [["good"], ["angry"], None]
        )
    )


def test_a_publication_that_somebody_changes_is_mended(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int); INSERT INTO t VALUES (1, 1), (2, 2)")
    following = follow()
    following.catch_up()
    db.execute("ALTER PUBLICATION headwater_shop SET (publish = 'insert')")
    db.execute("UPDATE t SET v = 10 WHERE id = 1; DELETE FROM t WHERE id = 2")
    following.until(lambda: rows(following) == {1: 10})
    following.catch_up()
    db.execute("ALTER PUBLICATION headwater_shop SET TABLE t (id, v) WHERE (id > 5)")
    db.execute("INSERT INTO t VALUES (3, 3, 3), (7, 7, 7)")

    def found() -> dict[int, Any]:
        return {row["id"]: row.get("w") for row in following.log.table("shop.t").values()}

    following.until(lambda: found() == {1: None, 3: 3, 7: 7})


def test_what_was_on_its_way_when_another_table_took_the_name_is_deleted(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    db.execute("CREATE TABLE other (id int PRIMARY KEY, v int); INSERT INTO other VALUES (2, 20)")
    following = follow(tables=("t",))
    following.catch_up()
    db.execute("INSERT INTO t VALUES (5, 5)")
    while not following.step().records:
        pass
    db.execute("ALTER TABLE t RENAME TO was; ALTER TABLE other RENAME TO t")
    while "snapshot" not in following.step().position:
        pass
    assert 5 not in rows(following)  # the log does not have it yet
    following.until(lambda: rows(following) == {2: 20})


def test_a_table_that_the_stream_has_described_before_it_is_captured(
    db: Db, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connect.cdc.postgres.run.LOOK_SECONDS", 1000.0)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    following = follow()
    following.catch_up()
    db.execute("CREATE TABLE late (id int PRIMARY KEY, v int)")
    db.execute("ALTER PUBLICATION headwater_shop ADD TABLE late")
    db.execute("INSERT INTO late VALUES (1, 1)")
    following.catch_up()
    assert not rows(following, "shop.late")
    run = following.source._run
    assert run is not None
    run._look_after = 0.0
    following.until(lambda: rows(following, "shop.late") == {1: 1})
    db.execute("INSERT INTO late VALUES (2, 2); UPDATE late SET v = 10 WHERE id = 1")
    following.catch_up()
    assert rows(following, "shop.late") == {1: 10, 2: 2}


@pytest.mark.parametrize("how", ["by an option", "by a signal"])
@pytest.mark.parametrize("again", [True, False])
def test_a_publication_that_was_dropped_is_a_gap(db: Db, follow: Follow, again: bool, how: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
    following = follow()
    following.catch_up()
    db.execute("DROP PUBLICATION headwater_shop; DELETE FROM t WHERE id = 1")
    if again:
        db.execute("CREATE PUBLICATION headwater_shop FOR ALL TABLES")

    def live() -> None:
        for _ in range(100):
            following.step()
            following.commit()

    with pytest.raises(ConnectionLost, match="publication"):
        live()
    following.crash()
    with pytest.raises(ChangesMissed, match="publication was dropped"):
        live()
    following.crash()
    if how == "by an option":
        following = follow(log=following.log, on_gap="snapshot")
    else:
        following = follow(log=following.log)
        following.source.signal(Signal("snapshot"))
    if again:  # what the life before has learned is learned again
        with pytest.raises(ConnectionLost, match="publication"):
            live()
        following.crash()
    following.catch_up()
    assert rows(following) == {2: 2}


def test_tables_that_would_share_a_topic(db: Db, follow: Follow) -> None:
    db.execute('CREATE TABLE "über" (id int PRIMARY KEY); INSERT INTO "über" VALUES (1)')
    db.execute("CREATE TABLE message (id int PRIMARY KEY); INSERT INTO message VALUES (5)")
    following = follow()
    following.catch_up()
    assert set(rows(following, "shop.public.message")) == {5}
    db.execute('CREATE TABLE "aber" (id int PRIMARY KEY); CREATE TABLE "äber" (id int PRIMARY KEY)')
    db.execute('INSERT INTO "äber" VALUES (2); INSERT INTO "über" VALUES (3)')
    following.until(lambda: set(rows(following, "shop._ber")) == {1, 3})
    following.until(
        lambda: any("public.äber is left out" in each for each in following.source.status().notes)
    )
    with pytest.raises(CaptureImpossible, match=r"its topic would be that of public\.über"):
        follow(name="two", tables=("über", "äber")).step()


def test_a_key_that_is_checked_at_the_end_of_the_transaction_is_none(db: Db, follow: Follow) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
    following = follow()
    following.catch_up()
    db.execute("UPDATE t SET v = 3")  # would fail, were it published
    assert any("REPLICA IDENTITY FULL" in note for note in following.source.status().notes)
    db.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    db.execute("UPDATE t SET id = 3 - id")
    expected = ['{"id": 1, "v": 3}', '{"id": 2, "v": 3}']
    following.until(lambda: following.log.bag("shop.t") == expected)
    db.execute("UPDATE t SET id = 3 - id")
    following.catch_up()
    assert following.log.bag("shop.t") == expected


def test_rows_that_a_policy_hides_are_not_left_out_without_a_word(db: Db, follow: Follow, url: str) -> None:
    db.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, v int);
        INSERT INTO t VALUES (1, 1), (2, 2);
        ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        ALTER TABLE t FORCE ROW LEVEL SECURITY;
        CREATE POLICY one ON t USING (id = 1);
        DROP ROLE IF EXISTS follower;
        CREATE ROLE follower LOGIN REPLICATION;
        ALTER TABLE t OWNER TO follower;
        GRANT ALL ON SCHEMA public TO follower;
        """
    )
    db.execute(f"GRANT CREATE ON DATABASE {db.info.dbname} TO follower")
    following = follow(url=url.replace("headwater@", "follower@"))
    try:
        wrong = [check for check in examine(following.options) if check.verdict == "wrong"]
        assert [check.what for check in wrong] == ["table public.t"]
        with pytest.raises(CaptureImpossible, match="row-level security"):
            following.catch_up()
        following.crash()
        db.execute(wrong[0].mend.rstrip("."))
        following.catch_up()
        assert rows(following) == {1: 1, 2: 2}
    finally:
        following.remove()
        db.execute("REASSIGN OWNED BY follower TO CURRENT_USER; DROP OWNED BY follower; DROP ROLE follower")
