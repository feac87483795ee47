"""The two database servers: rows to be read, transactions to be followed, and what they can do alone."""

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.support import mariadb, postgres
from tests.support.debezium import mariadb_connector, postgres_connector
from tests.support.servers import HOST

_BINLOG_DUMP, _STOP_AT_THE_END, _SERVER_ID = 0x12, 1, 5999
_END, _ERROR = 0xFE, 0xFF

_TABLE = """create table {0} (id bigint primary key, customer int not null, amount numeric(10,2), status varchar(16),
    created {1} not null, note text, quantity int, paid boolean)"""
_VALUES = "{0}, {0} % 5000, ({0} % 100000) / 100.0, 'delivered', {1}, {2}, {0} % 7, {0} % 2 = 0"


class Server(Protocol):
    """A database `shop` with the tables `bought` and `streamed`."""

    name: str

    @property
    def url(self) -> str: ...

    def fill(self, rows: int) -> None:
        """Fill `bought`."""

    def transactions(self, first: int, count: int) -> None:
        """Insert rows into `streamed`, each in a transaction of its own, as quickly as the server can."""

    def open(self) -> Any:
        """A connection that commits each statement."""

    def debezium(self, broker: str) -> dict[str, str]:
        """The settings of Debezium's connector."""

    def read_alone(self) -> float:
        """Seconds of the server's own client for all rows of `bought`."""

    def stream_alone(self) -> float:
        """Seconds of the server's own client for the transactions."""


class PostgresServer:
    """PostgreSQL."""

    name = "PostgreSQL"

    def __init__(self) -> None:
        settings = {"shared_buffers": "256MB", "max_wal_size": "8GB", "synchronous_commit": "off"}
        self._server = postgres.Postgres(settings)
        self._server.start()
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute("create database shop")
        with self.open() as connection:
            for table in ("bought", "streamed"):
                connection.execute(_TABLE.format(table, "timestamptz"))
            values = _VALUES.format(
                "i", "'2024-02-29 13:14:15+00'::timestamptz + i * interval '1 second'", "'note ' || i"
            )
            connection.execute(
                "create procedure write(first int, count int) language plpgsql as $$ begin"
                f" for i in first .. first + count - 1 loop insert into streamed values ({values}); commit;"
                " end loop; end $$"
            )
            connection.execute("create publication ceiling for table streamed")
            connection.execute("select pg_create_logical_replication_slot('ceiling', 'pgoutput')")
        self._end = ""

    @property
    def url(self) -> str:
        return f"postgresql://{postgres.USER}@{HOST}:{self._server.port}/shop"

    def open(self) -> Any:
        # A commit that nobody waits for reaches the log, and so the stream, up to 200 ms later.
        return psycopg.connect(self.url, autocommit=True, options="-c synchronous_commit=on")

    def _hurry(self) -> Any:
        return psycopg.connect(self.url, autocommit=True)

    def fill(self, rows: int) -> None:
        values = _VALUES.format(
            "i", "'2024-02-29 13:14:15+00'::timestamptz + i * interval '1 second'", "'note ' || i"
        )
        with self._hurry() as connection:
            connection.execute(f"insert into bought select {values} from generate_series(1, {rows}) i")
            connection.execute("vacuum analyze bought")
            connection.execute("checkpoint")

    def transactions(self, first: int, count: int) -> None:
        with self._hurry() as connection:
            connection.execute(f"call write({first}, {count})")
            connection.execute("checkpoint")
            self._end = connection.execute("select pg_current_wal_lsn()").fetchone()[0]

    def debezium(self, broker: str) -> dict[str, str]:
        return postgres_connector(
            self._server.port,
            "shop",
            table__include__list="public.bought,public.streamed",
            publication__autocreate__mode="filtered",
        )

    def read_alone(self) -> float:
        return _seconds([postgres.program("psql"), self.url, "-qc", "copy bought to stdout"])

    def stream_alone(self) -> float:
        return _seconds(
            [
                *(
                    postgres.program("pg_recvlogical"),
                    "-d",
                    self.url,
                    "--slot",
                    "ceiling",
                    "--start",
                    "--no-loop",
                ),
                *(
                    "-o",
                    "proto_version=1",
                    "-o",
                    "publication_names=ceiling",
                    "--endpos",
                    self._end,
                    "-f",
                    "/dev/null",
                ),
            ]
        )

    def close(self) -> None:
        self._server.__exit__(None, None, None)


class MariaServer:
    """MariaDB."""

    name = "MariaDB"

    def __init__(self) -> None:
        self._server = mariadb.MariaDB(
            {
                "innodb-buffer-pool-size": "256M",
                "innodb-flush-log-at-trx-commit": "0",
                "max-binlog-size": "1G",
            }
        )
        self._server.start()
        self._server.run("alter database shop character set utf8mb4")
        for table in ("bought", "streamed"):
            self._server.run(_TABLE.format(table, "datetime(6)"))
        values = _VALUES.format("i", "'2024-02-29 13:14:15' + interval i second", "concat('note ', i)")
        self._server.run(
            "create procedure write_rows(first int, amount int) begin declare i int default first;"
            f" while i < first + amount do insert into streamed values ({values}); set i = i + 1; end while; end"
        )
        self._from = ("", 0)

    @property
    def url(self) -> str:
        return self._server.url("shop")

    def open(self) -> Any:
        return self._server.connect("shop")

    def fill(self, rows: int) -> None:
        values = _VALUES.format("seq", "'2024-02-29 13:14:15' + interval seq second", "concat('note ', seq)")
        self._server.run(f"insert into bought select {values} from seq_1_to_{rows}", "analyze table bought")

    def transactions(self, first: int, count: int) -> None:
        [(name, place, *_)] = self._server.run("show master status")
        self._from = (str(name), int(place))
        self._server.run(f"call write_rows({first}, {count})")

    def debezium(self, broker: str) -> dict[str, str]:
        return mariadb_connector(
            self._server.port, "shop", broker, table__include__list="shop.bought,shop.streamed"
        )

    def read_alone(self) -> float:
        return _seconds(
            [mariadb.program("mariadb"), *self._client(), "--quick", "-e", "select * from bought", "shop"]
        )

    def stream_alone(self) -> float:
        # mariadb-binlog is not part of the server's package; this does what it does with --raw, but for writing.
        name, place = self._from
        connection = self._server.connect(None)
        with connection.cursor() as cursor:
            cursor.execute("set @mariadb_slave_capability = 4, @master_binlog_checksum = 'NONE'")
        began = time.perf_counter()
        request = struct.pack("<IHI", place, _STOP_AT_THE_END, _SERVER_ID) + name.encode()
        connection._execute_command(_BINLOG_DUMP, request)
        _take_packets(connection._sock)
        return time.perf_counter() - began

    def _client(self) -> list[str]:
        account = [f"--user={mariadb.USER}", f"--password={mariadb.PASSWORD}"]
        return ["--no-defaults", "--protocol=tcp", f"--host={HOST}", f"--port={self._server.port}", *account]

    def close(self) -> None:
        self._server.__exit__(None, None, None)


def _take_packets(connection: socket.socket) -> None:
    """Read packets up to the one that says that there are no more."""
    data, at = b"", 0
    while True:
        while len(data) - at >= 5:
            size = int.from_bytes(data[at : at + 3], "little")
            if data[at + 4] == _END and size < 9:
                return
            assert data[at + 4] != _ERROR, data[at : at + 200]
            if len(data) - at < 4 + size:
                break
            at += 4 + size
        data, at = data[at:] + connection.recv(1 << 20), 0


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600, check=False
    )
    if done.returncode:
        raise AssertionError(f"{Path(command[0]).name} failed: {done.stderr.decode()[-1000:]}")
    return time.perf_counter() - began


@contextlib.contextmanager
def server(kind: str) -> Iterator[Server]:
    """A server of a kind."""
    made = PostgresServer() if kind == "postgres" else MariaServer()
    try:
        yield made
    finally:
        made.close()
