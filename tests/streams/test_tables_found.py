"""Tables that declare no columns: found in the database or the topic, kept over restarts, compared with SQL."""

import json
import logging
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.client.admin import Admin
from headwater.errors import ApplicationInvalid, ViewChanged
from headwater.streams.aside import dead_topic
from headwater.streams.declarations import Table
from headwater.streams.engine.engine import Engine
from headwater.streams.engine.finding import with_found_columns
from headwater.streams.tables import row_schema
from tests.cli.conftest import run
from tests.streams.conftest import Bench, settle, wait_for
from tests.streams.test_tables_captured import capturing
from tests.support.mariadb import MariaDB
from tests.support.postgres import Postgres

Rows = list[tuple[Any, ...]]


def shop(url: str) -> hw.App:
    """An application with a table as the database has it."""
    app = hw.App("bench")
    app.source(hw.cdc(url, name="shop"))
    app.table("shop.items", key="id")
    return app


def shown(engine: Engine, table: str = "items") -> Rows:
    settle(engine)
    return [tuple(row.values()) for row in engine.store.rows(table)]


def types(engine: Engine, table: str = "items") -> dict[str, str]:
    (info,) = [info for info in engine.store.views() if info.name == table]
    return dict(info.versions[-1].schema.types)


def told_by_the_topic(bench: Bench) -> dict[str, str]:
    """The types that an application finds which does not know the database."""
    graph = of_topic(name="copied").graph()
    (table,) = with_found_columns(graph, bench.settings.store, bench.connection).nodes.values()
    assert isinstance(table, Table)
    return {field.name: field.dataType.simpleString() for field in row_schema(table).fields}


# -- SQLite ----------------------------------------------------------------------------------------


def test_a_table_of_sqlite_is_found_with_its_loose_types(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.db"
    database = sqlite3.connect(path)
    database.executescript(
        """
        create table items (id integer primary key, name text, n int, mixed integer, ratio real, price decimal(10,2),
            day date, flag boolean, raw blob, note varchar(10), bare, "odd name" text,
            twice int generated always as (n * 2) virtual);
        insert into items values (1, 'Ada', 9223372036854775807, 5, 0.5, 12.5, '2026-01-01', 1, x'00ff', 'x', 'y', 'z');
        insert into items values (2, 'Bob', -1, 'five', 9e999, 3, 20454, 0, null, 7, 1.5, null);
        insert into items (id) values (3);
        """
    )
    url = f"sqlite:///{path}"

    def expected() -> Rows:
        """Texts read whatever there is; a blob is base64."""
        found = database.execute("select * from items order by id").fetchall()
        named = [dict(zip(names, row, strict=False)) for row in found]
        for row in named:
            for name in ("mixed", "day", "bare"):
                row[name] = None if row[name] is None else str(row[name])
            row["raw"] = None if row["raw"] is None else b64encode(row["raw"]).decode()
        return [tuple(row.values()) for row in named]

    with capturing(bench, url):
        with bench.running(shop(url)) as engine:
            names = list(types(engine))
            assert types(engine) == {
                "id": "bigint",
                "name": "string",
                "n": "bigint",
                "mixed": "string",
                "ratio": "double",
                "price": "double",
                "day": "string",
                "flag": "bigint",
                "raw": "string",
                "note": "string",
                "bare": "string",
                "odd name": "string",
                "twice": "double",  # 2**64 is not among the whole numbers
            }
            wait_for(lambda: shown(engine) == expected(), lambda: f"{shown(engine)}\n{expected()}")
            with database:
                database.execute("update items set n = n + 7, raw = x'' where id = 2")
                database.execute("update items set id = 30 where id = 3")
                database.execute("delete from items where id = 1")
            wait_for(lambda: shown(engine) == expected(), lambda: f"{shown(engine)}\n{expected()}")
        # What has no place in its column is null, and a new column waits for a new version.
        before = expected()
        with database:
            database.execute("insert into items (id, n, ratio, name) values (99, 'nine', 'much', 7)")
            database.execute("alter table items add column added text")
        with caplog.at_level(logging.WARNING, "headwater.streams"), bench.running(shop(url)) as engine:
            wait_for(lambda: shown(engine)[:-1] == before and shown(engine)[-1][0] == 99)
            assert shown(engine)[-1] == (99, "7", *[None] * 10, 0.0)
            assert list(types(engine)) == names
            assert told_by_the_topic(bench) == {
                **types(engine),
                "n": "string",
                "ratio": "string",
                "added": "string",
            }
            assert engine.status["items"].dead == 0 and not bench.messages(dead_topic("items"))
            wait_for(lambda: "lacks columns that the source shop has by now: added" in caplog.text)
    database.close()


# -- PostgreSQL ------------------------------------------------------------------------------------

ITEMS = """
create type mood as enum ('good', 'bad');
create type pair as (a int, b text, c date, d numeric);
create domain price as numeric(12,2);
create table items (
    id bigint primary key, small smallint, n int, o oid, flag boolean, single real, ratio double precision,
    cost price, wide numeric(50,10), free numeric, money money, name varchar(20), code char(4), mood mood,
    uuid uuid, doc json, docb jsonb, raw bytea, bit bit, bits bit(10), vary bit varying(10),
    day date, clock time, clock3 time(3), clockz timetz, made timestamp, made3 timestamp(3), seen timestamptz,
    seen0 timestamptz(0), span interval, address inet, range int4range, place point, pair pair,
    words text[], amounts numeric(8,3)[], frees numeric[], days date[], moments timestamptz[], stamps timestamp(3)[],
    grid int[][], flat int[], moods mood[], double_cost numeric(14,2) generated always as (cost * 2) stored);
"""
USUAL = """
insert into items select n, n, n * 1000, n, n % 2 = 0, n / 8.0, n / 3.0, n * 1.01 - 50, n * 1e30, n / 8.0, n * 1.5,
    'n' || n, 'c', 'good', gen_random_uuid(), '{"a": [1, null]}', '{"b": 2}', decode(lpad(to_hex(n), 8, '0'), 'hex'),
    '1', '1010101010', '0101', date '1960-01-01' + n * 97, time '13:14:15.123456', '13:14:15.123', '10:00+02',
    timestamp '1970-01-01 00:00:01.000001' + n * interval '7 days',
    timestamp '1970-01-01 00:00:01.5' + n * interval '1 h',
    timestamptz '2024-02-29 13:14:15.12+02' + n * interval '1 hour', '2024-02-29 13:14:15+02', '1 year 2 days',
    '10.0.0.1', '[1,5)', '(1,2.5)', row(n, 'x', '2026-01-01', 1.5)::pair, array['a', null, 'ü' || n],
    array[n * 0.125, null], array[n / 8.0, null], array[date '1969-12-31', null],
    array[timestamptz '2024-01-01 00:00Z', null], array[timestamp '1970-01-01 00:00:00.001', null],
    array[[1, 2], [3, n]], array[1, null], array['good', null]::mood[]
from generate_series(FIRST, LAST) n;
"""
EXTREMES = """
insert into items (id, ratio, cost, free, day, made, made3, seen, days, moments, stamps, grid, flat, place) values
    (901, 'NaN', 'NaN', 'NaN', 'infinity', 'infinity', '-infinity', 'infinity', array[date 'infinity', '2026-01-01'],
     array['infinity', timestamptz '2024-01-01 00:00Z'], array['infinity', timestamp '2024-01-01'], array[1, 2],
     array[[1, 2], [3, 4]], '(NaN,Infinity)'),
    (902, 'Infinity', 1, 1e40, '0044-03-15 BC', '0044-03-15 BC', '20000-01-01', '20000-01-01 00:00Z', '{}', '{}', '{}',
     '{}', '{}', null);
insert into items (id) values (900);
"""
# The table as it is read: what change events have as numbers and texts, and Spark as types of its own.
EXPECTED = """
select id, small, n, o::int8, flag, single::text::float8, ratio, cost::numeric, wide::text, trim_scale(free)::text,
    money::numeric, name, code, mood::text, uuid::text, doc::text, docb::text, raw, bit = '1', null, vary::text,
    day, null, null, null, made, made3, seen, seen0, null, host(address), range::text, null, null, words, amounts, null,
    days, moments, stamps, grid, flat, moods::text[], double_cost
from items where id < 900 order by id
"""


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("create database tables_found")
        yield postgres.url().rsplit("/", 1)[0] + "/tables_found"
        slots = "pg_replication_slots where database = 'tables_found'"
        wait_for(lambda: not connection.execute(f"select 1 from {slots} and active").fetchall())
        connection.execute(f"select pg_drop_replication_slot(slot_name) from {slots}")
        connection.execute("drop database tables_found with (force)")


def usual_rows(first: int, last: int) -> str:
    return USUAL.replace("FIRST", str(first)).replace("LAST", str(last))


# Places of columns whose values are compared by hand, below.
BY_HAND = {"bits", "clock", "clock3", "clockz", "span", "place", "pair", "frees"}


def test_a_table_of_postgresql_is_found_with_its_types(bench: Bench, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("set timezone = 'UTC'; set lc_monetary = 'C'")
        db.execute(ITEMS)
        db.execute(usual_rows(1, 200))
        with capturing(bench, database), bench.running(shop(database)) as engine:
            names = list(types(engine))

            def expected() -> Rows:
                return [tuple(map(_in_utc, row)) for row in db.execute(EXPECTED).fetchall()]

            def usual() -> Rows:
                places = [place for place, name in enumerate(names) if name in BY_HAND]
                rows = [list(row) for row in shown(engine) if row[0] < 900]
                for row in rows:
                    for place in places:
                        row[place] = None
                return [tuple(row) for row in rows]

            def difference() -> str:
                pairs = zip(usual(), expected(), strict=False)
                return str(
                    [(n, a, b) for x, y in pairs for n, a, b in zip(names, x, y, strict=True) if a != b][:9]
                )

            wait_for(lambda: usual() == expected(), difference)
            db.execute(EXTREMES)
            db.execute("update items set id = id + 300, made = made + interval '1 day' where id % 7 = 0")
            db.execute("delete from items where id % 5 = 0 and id < 900")
            db.execute(usual_rows(600, 610))
            wait_for(lambda: usual() == expected() and len(shown(engine)) == len(expected()) + 3, difference)
            rows = {row[0]: dict(zip(names, row, strict=True)) for row in shown(engine)}
            # Of types that users made the database alone knows more; arrays of any dimensions are texts.
            texts = dict.fromkeys(("cost", "pair", "grid", "flat"), "string")
            assert told_by_the_topic(bench) == {**types(engine), **texts}
            assert engine.status["items"].dead == 0 and not bench.messages(dead_topic("items"))

    point = {"x": 1.0, "y": 2.5, "srid": None}
    usual_row = rows[600]
    assert {name: value for name, value in usual_row["place"].items() if name != "wkb"} == point
    assert usual_row["bits"] == b"\xaa\x02" and usual_row["clock"] == 47_655_123_456
    assert usual_row["clock3"] == 47_655_123 and usual_row["clockz"] == "08:00:00Z"
    assert usual_row["span"] == "P1Y0M2DT0H0M0S" and usual_row["frees"] == ["75", None]
    assert {**usual_row["pair"], "d": None} == {"a": 600, "b": "x", "c": 20454, "d": None}
    strange = {name: value for name, value in rows[901].items() if value is not None}
    assert str(strange.pop("ratio")) == "nan" and str(strange["place"]["x"]) == "nan"
    assert strange == {
        "id": 901,
        "free": "NaN",
        "days": [None, date(2026, 1, 1)],
        "moments": [None, datetime(2024, 1, 1, tzinfo=UTC)],
        "stamps": [None, datetime(2024, 1, 1)],
        "grid": [None, None],
        "flat": [None, None],
        "place": strange["place"],
    }
    distant = {name: value for name, value in rows[902].items() if value not in (None, [])}
    assert distant == {
        "id": 902,
        "ratio": float("inf"),
        "cost": Decimal("1.00"),
        "free": f"1{'0' * 40}",
        "double_cost": Decimal("2.00"),
    }
    assert set(rows[900].values()) == {900, None}


def _in_utc(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_utc(element) for element in value]
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


# -- MariaDB ---------------------------------------------------------------------------------------


def test_a_table_of_mariadb_is_found_with_its_types(bench: Bench, mariadb: MariaDB) -> None:
    mariadb.run("create database tables_found", database=None)
    run_there = mariadb.run
    run_there(
        "create table items (id int unsigned primary key, tiny tinyint, big bigint, huge bigint unsigned, "
        "price decimal(10,2), wide decimal(50,10), single float, ratio double, year year, day date, made datetime, "
        "made6 datetime(6), seen timestamp(6) null, flag bit(1), name varchar(20), latin varchar(20) charset latin1, "
        "bytes varbinary(20), fixed binary(4), doc json, mood enum('good', 'bad'), tags set('a', 'b'), uuid uuid, "
        "body text, raw blob, bits bit(10), clock time(3), place point, shape geometry)",
        "insert into items values (1, -5, -9223372036854775808, 18446744073709551615, 12.34, 1.5, 1.1, 0.1, 2026, "
        "'2024-02-29', '1970-01-01 00:00:01', '1970-01-01 00:00:01.000001', '2024-02-29 12:00:00.5', b'1', 'ü', 'ü', "
        "x'00ff', x'01', '{\"a\": 1}', 'good', 'a,b', '123e4567-e89b-12d3-a456-426655440000', 'text', x'ff', "
        "b'1010101010', '-10:00:00.5', point(1, 2), linestring(point(0, 0), point(1, 1)))",
        "set sql_mode = ''",
        "insert into items (id, day, made) values (2, '0000-00-00', '0000-01-01 00:00:00')",
        database="tables_found",
    )
    url = mariadb.url("tables_found")
    chosen = (
        "id, tiny, big, huge, price, cast(wide as char), cast(concat(single) as double), ratio, year, day, made, "
        "made6, seen, cast(flag as int) = 1, name, latin, bytes, fixed, doc, mood, tags, cast(uuid as char), body, raw"
    )

    def expected() -> Rows:
        rows = run_there(
            "set time_zone = '+00:00'", f"select {chosen} from items order by id", database="tables_found"
        )
        return [_of_mariadb(row) for row in rows]

    app = shop(url)

    @app.view(key="year")
    def by_year(items: DataFrame) -> DataFrame:
        return items.groupBy("year").agg(F.sum("price").alias("price"), F.max("made6").alias("last"))

    with capturing(bench, url), bench.running(app) as engine:

        def same() -> bool:
            return [row[:24] for row in shown(engine)] == expected()

        def difference() -> str:
            return "\n".join(f"{a}\n{b}" for a, b in zip(shown(engine), expected(), strict=False))

        wait_for(same, difference)
        run_there(
            "update items set id = 7, price = 1 where id = 1",
            "insert into items (id, made6) values (3, '9999-12-31 23:59:59.999999')",
            database="tables_found",
        )
        wait_for(same, difference)
        last = datetime(9999, 12, 31, 23, 59, 59, 999999)
        at = datetime(1970, 1, 1, 0, 0, 1, 1)
        wait_for(lambda: shown(engine, "by_year") == [(None, None, last), (2026, Decimal("1.00"), at)])
        row = dict(zip(types(engine), shown(engine)[-1], strict=True))
        assert (row["bits"], row["clock"]) == (b"\xaa\x02", -36_000_500_000)
        assert (row["place"]["x"], row["place"]["y"], row["shape"]["x"]) == (1.0, 2.0, None)
        assert engine.status["items"].dead == 0 and not bench.messages(dead_topic("items"))
    mariadb.run("drop database tables_found", database=None)


def _of_mariadb(row: tuple[Any, ...]) -> tuple[Any, ...]:
    values = [
        value.replace(tzinfo=UTC) if place == 12 and value else value for place, value in enumerate(row)
    ]
    # No day and a year before 1 are null: PyMySQL gives texts for what Python has no date for.
    return tuple(
        None if place in (9, 10) and isinstance(value, str) else value for place, value in enumerate(values)
    )


# -- topics ----------------------------------------------------------------------------------------


def of_topic(**more: Any) -> hw.App:
    app = hw.App("bench")
    app.table("shop.items", key="id", **more)
    return app


def test_a_table_is_found_in_its_topic_and_anew_with_a_new_version(bench: Bench) -> None:
    rows = [
        {
            "name": "Ada",
            "n": 1,
            "x": 1,
            "flag": True,
            "tags": ["a", "b"],
            "doc": {"a": [1]},
            "odd": 5,
            "no": None,
        },
        {
            "name": None,
            "n": 2**62,
            "x": 2.5,
            "flag": False,
            "tags": [],
            "doc": {"b": 2},
            "odd": "five",
            "no": None,
        },
    ]
    for number, row in enumerate(rows):
        bench.send("shop.items", [row], key=json.dumps({"id": number}).encode())
    with bench.running(of_topic()) as engine:
        assert shown(engine) == [
            (0, "Ada", 1, 1.0, True, ["a", "b"], '{"a":[1]}', "5", None),
            (1, None, 2**62, 2.5, False, [], '{"b":2}', "five", None),
        ]
        found = types(engine)
        assert engine.status["items"].dead == 0
    bench.send("shop.items", [{"name": "Eve", "n": 3, "later": 1}], key=b'{"id":2}')
    with bench.running(of_topic()) as engine:
        wait_for(lambda: len(shown(engine)) == 3)
        assert types(engine) == found
    with (
        pytest.raises(ViewChanged, match="version=2"),
        bench.running(of_topic(schema="id long, name string")),
    ):
        pass
    with bench.running(of_topic(version=2)) as engine:
        wait_for(lambda: len(shown(engine)) == 3)
        assert types(engine) == {**found, "later": "bigint"}


@pytest.mark.wide  # what is kept with a build is tried without Spark as well
def test_a_schema_that_is_declared_no_more_is_kept(bench: Bench) -> None:
    bench.send("shop.items", [{"id": 1, "name": "Ada"}])
    with bench.running(of_topic(schema="id int, name string")) as engine:
        assert shown(engine) == [(1, "Ada")]
    with bench.running(of_topic()) as engine:
        bench.send("shop.items", [{"id": 2, "name": "Bob"}])
        assert types(engine) == {"id": "int", "name": "string"}
        wait_for(lambda: shown(engine) == [(1, "Ada"), (2, "Bob")])


def test_columns_that_nobody_tells_are_asked_for_before_anything_starts(bench: Bench, tmp_path: Path) -> None:
    captured = shop(f"sqlite:///{tmp_path}/none.db")
    words = "cannot find the columns of the table items: "
    for app, cause in (
        (
            of_topic(),
            "no source of the application fills the topic shop.items, and the topic is not there. Declare",
        ),
        (captured, "the source shop cannot be asked: there is no such file. Declare the schema"),
    ):
        with pytest.raises(ApplicationInvalid, match=words + cause), bench.running(app):
            pass
    with sqlite3.connect(tmp_path / "none.db") as database:
        database.execute("create table others (id integer primary key)")
    with (
        pytest.raises(ApplicationInvalid, match=r"has no table for the topic shop\.items"),
        bench.running(captured),
    ):
        pass
    with sqlite3.connect(tmp_path / "none.db") as database:
        database.execute("create table items (name text, n int)")
    with pytest.raises(ApplicationInvalid, match="key is 'id', and the source shop has the columns name, n"):
        bench.running(captured).__enter__()
    assert not [topic.name for topic in Admin(bench.connection).topics()]
    Admin(bench.connection).create_topic("shop.items", 1)
    with pytest.raises(ApplicationInvalid, match=r"the topic has no row\. .*first row is there"):
        bench.running(of_topic()).__enter__()


def test_such_a_table_is_drawn_and_its_functions_are_tested_on_rows(tmp_path: Path) -> None:
    from headwater import testing

    app = hw.App("bench")
    app.table("shop.items", key="id")

    @app.view(key="name")
    def by_name(items: DataFrame) -> DataFrame:
        return items.groupBy("name").count()

    assert testing.run(by_name, items=[{"id": 1, "name": "Ada"}]) == [{"name": "Ada", "count": 1}]
    file = tmp_path / "shop.py"
    file.write_text('import headwater as hw\napp = hw.App("shop")\napp.table("shop.users", key="id")\n')
    assert "topic shop.users, key id" in run("graph", str(file)).out
