"""From a database to a view: captured into the log, kept as tables, computed from; against SQL on the database."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.connect.running import run_source
from headwater.streams.settings import load_stream_settings
from headwater.views.store import open_store
from tests.cli.conftest import run
from tests.streams.conftest import Bench, settle, wait_for
from tests.support.application import Application
from tests.support.postgres import Postgres
from tests.support.servers import free_port

SHOP = """
import headwater as hw
from pyspark.sql import functions as F

app = hw.App("shop")
app.source(hw.cdc("sqlite:///{database}", tables=["users", "orders"]))
app.table("shop.users", "id long, name string, country string", key="id")
app.table("shop.orders", "id long, user_id long, cents long, price decimal(10,2)", key="id")


@app.view(key="country")
def revenue(users, orders):
    joined = orders.join(users, orders.user_id == users.id)
    return joined.groupBy("country").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
"""
TABLES = """
create table users (id integer primary key, name text, country text);
create table orders (id integer primary key, user_id int, cents int, price numeric);
"""
REVENUE = """
select country, count(*), sum(cents) from orders join users on user_id = users.id group by country order by 1
"""


class Writer:
    """Random changes of the shop's database."""

    def __init__(self, database: sqlite3.Connection, seed: int) -> None:
        self.database, self.chance = database, random.Random(seed)

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            with self.database:
                for _ in range(self.chance.randrange(1, 6)):
                    self._change()

    def _change(self) -> None:
        chance, execute = self.chance, self.database.execute
        user, order = chance.randrange(40), chance.randrange(200)
        country = chance.choice(["GB", "US", "FR", None])
        match chance.randrange(8):
            case 0 | 1:
                execute("insert or replace into users values (?, ?, ?)", (user, f"u{user}", country))
            case 2:
                execute("update users set country = ? where id = ?", (country, user))
            case 3:
                execute("delete from users where id = ?", (user,))
            case 4:
                execute("update orders set id = id + 1000 where id = ?", (order,))
            case 5:
                execute("delete from orders where id = ?", (order,))
            case _:
                cents = chance.randrange(10_000)
                row = (order, user, cents, cents / 100)
                execute("insert or replace into orders values (?, ?, ?, ?)", row)


@pytest.mark.wide  # the demo has tables of SQLite as well
def test_a_view_over_tables_of_sqlite_equals_sql_on_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    writer = Writer(database, 3)
    writer.write(60)
    file, data = tmp_path / "shop.py", tmp_path / "data"
    file.write_text(SHOP.format(database=path))
    drawn = run("graph", str(file)).out
    assert "table   users" in drawn and "<- shop" in drawn and "view    revenue" in drawn
    store = load_stream_settings(data=data, environ={}, directory=tmp_path).store

    def equal() -> bool:
        with open_store(store) as views:
            names = {info.name for info in views.views()}
            if names != {"users", "orders", "revenue"}:
                return False
            rows = {name: [tuple(row.values()) for row in views.rows(name)] for name in names}
        tables = {
            name: database.execute(f"select * from {name} order by id").fetchall()
            for name in ("users", "orders")
        }
        priced = [(*row[:3], float(row[3])) for row in rows["orders"]]
        known = sorted(rows["revenue"], key=lambda row: row[0] or "")
        return (
            rows["users"] == tables["users"]
            and priced == tables["orders"]
            and known == (database.execute(REVENUE).fetchall())
        )

    with Application("up", str(file), "--port", str(free_port()), "--no-serve", data=data) as application:
        writer.write(60)
        application.wait_for(equal)
        writer.write(60)
        application.wait_for(equal)
        listed = run("views", "--data", str(data)).out
        assert [line.split()[:2] for line in listed.splitlines() if "serving" in line] == [
            ["orders", "table"],
            ["revenue", "view"],
            ["users", "table"],
        ]
    database.close()


@contextmanager
def capturing(bench: Bench, url: str) -> Iterator[None]:
    stopping = threading.Event()
    declaration = hw.cdc(url, name="shop")
    thread = threading.Thread(
        target=run_source, args=("bench", declaration, bench.connection, bench.data, stopping)
    )
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("create database tables_captured")
        yield postgres.url().rsplit("/", 1)[0] + "/tables_captured"
        wait_for(
            lambda: (
                not connection.execute(
                    "select 1 from pg_replication_slots where database = 'tables_captured' and active"
                ).fetchall()
            )
        )
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            "where database = 'tables_captured'"
        )
        connection.execute("drop database tables_captured with (force)")


def test_a_table_of_postgresql_has_its_values(bench: Bench, database: str) -> None:
    app = hw.App("bench")
    app.table(
        "shop.items",
        "id long, price decimal(12,2), day date, made timestamp_ntz, seen timestamp, raw binary, flag boolean, "
        "words array<string>, amounts array<decimal(8,3)>, days array<date>, free decimal(38,6), ratio double",
        key=["id"],
    )

    @app.view(key="day")
    def by_day(items: DataFrame) -> DataFrame:
        return items.groupBy("day").agg(F.sum("price").cast("decimal(12,2)").alias("price"))

    with psycopg.connect(database, autocommit=True) as db:
        db.execute("set timezone = 'UTC'")
        db.execute(
            "create table items (id bigint primary key, price numeric(12,2), day date, made timestamp, "
            "seen timestamptz, raw bytea, flag boolean, words text[], amounts numeric(8,3)[], days date[], "
            "free numeric, ratio double precision)"
        )
        insert = (
            "insert into items select n, n * 1.01 - 50, date '1960-01-01' + n * 97, "
            "timestamp '2024-02-29 13:14:15.123456' + n * interval '1 day 1 microsecond', "
            "timestamptz '2024-02-29 13:14:15.12+02' + n * interval '1 hour', decode(lpad(to_hex(n), 8, '0'), 'hex'), "
            "n % 2 = 0, array['a', null, 'ü' || n], array[n * 0.125, null, -1], array[date '1969-12-31', null], "
            "n / 8.0, n / 3.0::float8 from generate_series({}, {}) n"
        )
        db.execute(insert.format(1, 300))
        db.execute("insert into items (id) values (0)")
        with capturing(bench, database), bench.running(app) as engine:

            def rows(sql: str) -> list[tuple[Any, ...]]:
                return db.execute(sql).fetchall()

            def shown(view: str) -> list[tuple[Any, ...]]:
                settle(engine)
                return [tuple(row.values()) for row in engine.store.rows(view)]

            def same() -> bool:
                days = "select day, sum(price) from items group by day order by day nulls first"
                items = [
                    (*row[:4], row[4] and row[4].astimezone(UTC), *row[5:])
                    for row in rows("select * from items order by id")
                ]
                return shown("items") == items and shown("by_day") == rows(days)

            wait_for(same, lambda: f"{shown('items')[:3]} {rows('select * from items order by id')[:3]}")
            db.execute("update items set id = id + 5000, price = price * 2 where id % 7 = 0")
            db.execute("delete from items where id % 5 = 0")
            wait_for(same)
            db.execute("truncate items")
            db.execute(insert.format(1000, 1010))
            wait_for(same)
            assert len(shown("items")) == 11 and engine.status["items"].dead == 0
