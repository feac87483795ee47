"""The two servers under the writers: tables, and triggers that keep a record of every change in its own transaction.

============ ==================================================== ===========================
table        columns                                              key
============ ==================================================== ===========================
items        id, version, body, and more that come and go         id
pairs        a, b, version                                        b, a
scratch      id, version                                          id; it is truncated
bag          a, b, and more that come and go                      none
marks        id                                                   id; its last row is the end
audit        n, tbl, op, k, version                               not captured
============ ==================================================== ===========================
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import psycopg
import pymysql

from tests.support.mariadb import MariaDB
from tests.support.postgres import USER, Postgres
from tests.support.servers import HOST

TABLES = ("items", "pairs", "scratch", "bag", "marks")
# table -> how its key is written in the audit; {r} is NEW or OLD
KEYS = {"items": "{r}.id", "pairs": "concat({r}.b, '/', {r}.a)"}
LOST = (psycopg.OperationalError, pymysql.err.OperationalError, pymysql.err.InterfaceError)

_CREATE = (
    "create table items (id int primary key, version bigint not null, body text)",
    "create table pairs (a int not null, b varchar(10) not null, version bigint not null, primary key (b, a))",
    "create table scratch (id int primary key, version bigint not null)",
    "create table bag (a int not null, b int not null)",
    "create table marks (id int primary key)",
)


class Session(Protocol):
    """A connection; statements in transactions."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement; its rows if it has any."""

    def commit(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """A server with the tables above, which can be killed."""

    kind: str
    upsert: str  # what an insert says about a key that is there

    @property
    def url(self) -> str: ...

    def open(self) -> Session: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def rows_read(self, table: str) -> int:
        """How many rows of a table the server has read for anybody since it was started."""


class _Session:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(statement, tuple(values) or None)
            return list(cursor.fetchall()) if cursor.description else []

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


class PostgresDatabase:
    """PostgreSQL."""

    kind = "postgres"
    upsert = "on conflict ({key}) do update set version = excluded.version"

    def __init__(self) -> None:
        self._server = Postgres({"max_wal_size": "256MB"})
        self.start()
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute("create database shop")
        session = self.open()
        for statement in (*_CREATE, "alter table bag replica identity full"):
            session.run(statement)
        session.run("create table audit (n bigserial primary key, tbl text, op text, k text, version bigint)")
        for table, key in KEYS.items():
            session.run(_postgres_audit(table, key.format(r="new"), key.format(r="old")))
            session.run(
                f"create trigger audit after insert or update or delete on {table}"
                f" for each row execute function audit_{table}()"
            )
        session.commit()
        session.close()

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self._server.port}/shop"

    def open(self) -> Session:
        return _Session(psycopg.connect(self.url, connect_timeout=5))

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.__exit__(None, None, None)

    def rows_read(self, table: str) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(
                "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables"
                " where relname = %s",
                (table,),
            ).fetchone()
            return int(found[0]) if found else 0


def _postgres_audit(table: str, new: str, old: str) -> str:
    def keep(op: str, key: str, version: str) -> str:
        return f"insert into audit (tbl, op, k, version) values ('{table}', '{op}', {key}::text, {version});"

    return f"""
        create function audit_{table}() returns trigger language plpgsql as $$ begin
            if tg_op = 'INSERT' then {keep("c", new, "new.version")}
            elsif tg_op = 'DELETE' then {keep("d", old, "null")}
            elsif {new} = {old} then {keep("u", new, "new.version")}
            else {keep("d", old, "null")} {keep("c", new, "new.version")}
            end if;
            return null;
        end $$"""


class MariaDatabase:
    """MariaDB."""

    kind = "mariadb"
    upsert = "on duplicate key update version = values(version)"

    def __init__(self) -> None:
        self._server = MariaDB({"userstat": "1"})
        self.start()
        session = self.open()
        for statement in _CREATE:
            session.run(statement)
        session.run(
            "create table audit (n bigint auto_increment primary key, tbl text, op text, k text, version bigint)"
        )
        for table, key in KEYS.items():
            for statement in _maria_audit(table, key.format(r="new"), key.format(r="old")):
                session.run(statement)
        session.close()

    @property
    def url(self) -> str:
        return self._server.url("shop")

    def open(self) -> Session:
        return _Session(self._server.connect("shop", autocommit=False, connect_timeout=5))

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.__exit__(None, None, None)

    def rows_read(self, table: str) -> int:
        found = self._server.run(
            f"select rows_read from information_schema.table_statistics where table_name = '{table}'"
        )
        return int(found[0][0]) if found else 0


def _maria_audit(table: str, new: str, old: str) -> Iterator[str]:
    def keep(op: str, key: str, version: str) -> str:
        return f"insert into audit (tbl, op, k, version) values ('{table}', '{op}', {key}, {version});"

    head = f"create trigger audit_{table}"
    yield f"{head}_c after insert on {table} for each row {keep('c', new, 'new.version')}"
    yield f"{head}_d after delete on {table} for each row {keep('d', old, 'null')}"
    yield f"""{head}_u after update on {table} for each row begin
        if {new} = {old} then {keep("u", new, "new.version")}
        else {keep("d", old, "null")} {keep("c", new, "new.version")}
        end if; end"""


@contextlib.contextmanager
def database(kind: str) -> Iterator[Database]:
    """A server of a kind, with the tables."""
    made = PostgresDatabase() if kind == "postgres" else MariaDatabase()
    try:
        yield made
    finally:
        made.close()
