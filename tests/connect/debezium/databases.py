"""The two servers, as a workload sees them: statements in transactions, and how many rows there are."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import psycopg
from psycopg import sql

from tests.connect.debezium.workload import Workload
from tests.support.mariadb import MariaDB
from tests.support.postgres import USER, Postgres
from tests.support.servers import HOST

NAME = "shop"


class Database(Protocol):
    """A database of the name above, on a server of its own."""

    kind: str
    url: str
    port: int

    def run(self, transaction: Sequence[str]) -> None:
        """Run statements in one transaction."""

    def rows(self) -> int:
        """How many rows all tables have together."""


class PostgresDatabase:
    """PostgreSQL."""

    kind = "postgres"

    def __init__(self, server: Postgres, name: str = NAME) -> None:
        self.port = server.port
        self.url = f"postgresql://{USER}@{HOST}:{server.port}/{name}"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))

    def run(self, transaction: Sequence[str]) -> None:
        with psycopg.connect(self.url) as connection:
            for statement in transaction:
                connection.execute(statement.encode())

    def rows(self) -> int:
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables"
                " where schemaname not in ('pg_catalog', 'information_schema')"
            ).fetchall()
            counts = [
                connection.execute(f"select count(*) from {name}".encode()).fetchone() for (name,) in found
            ]
            return sum(count[0] for count in counts if count)


class MariaDatabase:
    """MariaDB."""

    kind = "mariadb"

    def __init__(self, server: MariaDB, name: str = NAME) -> None:
        self.port = server.port
        self.url = server.url(name)
        self._server, self._name = server, name
        server.run(f"create database if not exists {name}", database=None)
        server.run(f"alter database {name} character set utf8mb4", database=name)

    def run(self, transaction: Sequence[str]) -> None:
        with contextlib.closing(
            self._server.connect(self._name, autocommit=False, sql_mode="")
        ) as connection:
            with connection.cursor() as cursor:
                for statement in transaction:
                    cursor.execute(statement)
            connection.commit()

    def rows(self) -> int:
        found = self._server.run(
            f"select table_name from information_schema.tables where table_schema = '{NAME}'"
            " and table_type like '%TABLE%' or table_schema = 'shop' and table_type = 'SYSTEM VERSIONED'"
        )
        return sum(self._server.run(f"select count(*) from `{name}`")[0][0] for (name,) in set(found))


@contextmanager
def database(kind: str, workload: Workload) -> Iterator[Database]:
    """A server with the database of a workload as it is before capture begins."""
    with contextlib.ExitStack() as stack:
        made: Database
        if kind == "postgres":
            made = PostgresDatabase(stack.enter_context(Postgres()))
        else:
            made = MariaDatabase(stack.enter_context(MariaDB()))
        for statement in workload.setup:
            made.run([statement])
        yield made
