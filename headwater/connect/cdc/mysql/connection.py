"""Connections to MariaDB and MySQL, by PyMySQL; its errors in words; the log's events as packets."""

import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import COMMAND

from headwater.connect.cdc.mysql.gtid import MySQLGtids
from headwater.connect.cdc.mysql.packets import Packets
from headwater.errors import CaptureImpossible, ChangesMissed, ConnectionLost, HeadwaterError

CONNECT_SECONDS = 10
ANSWER_SECONDS = 120  # to a question; a scan of a large file of the log takes its time
ROWS_SECONDS = 600  # to the first row of a chunk, which a server may have to sort
LOCK_SECONDS = 30  # behind DDL, before it is tried again
HEARTBEAT_SECONDS = 1.0  # an idle server says so, and where it is
SILENT_SECONDS = 15.0  # without even a heartbeat: the connection is dead
PORT = 3306

_REFUSED = {1044, 1045, 1049, 1102, 1130, 1142, 1143, 1227, 1251, 1275, 1370, 1524, 1698, 2059}
_DUMP_REFUSED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG: a hundred causes, told apart by their words
_THROUGH_GTID = 4


class StatementFailed(Exception):
    """The server refused a statement; `code` says why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


class Database:
    """One connection, in UTC and UTF-8, each statement its own transaction unless begun otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.subject = f"{parts.hostname or 'localhost'}:{parts.port or PORT}"
        options: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or PORT,
            "user": unquote(parts.username or "root"),
            "password": unquote(parts.password or ""),
        } | _tls(dict(parse_qsl(parts.query)))
        with self._in_words("connect to"):
            self._connection = pymysql.connect(
                **options,
                charset="utf8mb4",
                connect_timeout=CONNECT_SECONDS,
                read_timeout=ANSWER_SECONDS,
                write_timeout=ANSWER_SECONDS,
                autocommit=True,
                conv={},
                use_unicode=True,
            )
        self.query(
            "set session time_zone = '+00:00', sql_mode = '', wait_timeout = 28800, "
            f"lock_wait_timeout = {LOCK_SECONDS}"
        )
        version = str(self.value("select version()"))
        self.version = version
        self.is_mariadb = "mariadb" in version.lower()

    def query(self, statement: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement, every value a text or None."""
        with self._in_words("ask"), self._connection.cursor() as cursor:
            cursor.execute(statement, [str(value) for value in values] or None)
            return [tuple(row) for row in cursor.fetchall()]

    def value(self, statement: str, *values: object) -> str | None:
        """The first value of the first row."""
        rows = self.query(statement, *values)
        return rows[0][0] if rows else None

    def variable(self, name: str) -> str | None:
        """A global variable of the server; None when it has none of this name."""
        rows = self.query("show global variables like %s", name.replace("_", "\\_"))
        return rows[0][1] if rows else None

    def rows(self, statement: str) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
        """The packets of a result set's rows, in the text protocol, as they come."""
        with self._in_words("read from"):
            self._connection._execute_command(COMMAND.COM_QUERY, statement)
            packets = Packets(self._connection._sock)
            columns_left, in_rows = -1, False
            while True:
                data, spans = packets.receive(ROWS_SECONDS)
                if packets.is_quiet:
                    raise TimeoutError("the server sends nothing")
                first = 0
                for number, (start, end) in enumerate(spans):
                    if in_rows and data[start] != 0xFE and data[start] != 0xFF:
                        continue
                    if data[start] == 0xFF:
                        raise _refused(data[start:end])
                    if in_rows:
                        if end - start < 9:  # EOF
                            if number > first:
                                yield data, spans[first:number]
                            return
                    elif columns_left < 0:
                        columns_left, first = data[start], number + 1
                    elif data[start] == 0xFE and end - start < 9:
                        in_rows, first = True, number + 1
                    else:
                        first = number + 1
                if in_rows and first < len(spans):
                    yield data, spans[first:]

    def dump_from_gtids(self, position: str, slave_id: int | None = None) -> Packets:
        """Asks for the log from a GTID position on; the connection is of no other use from then on."""
        server = slave_id or random.randrange(1 << 30, 1 << 32)
        if self.is_mariadb:
            self._prepare_dump()
            self.query("set @slave_connect_state = %s, @slave_gtid_strict_mode = 0", position)
            return self._dump(COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, server))
        gtids = MySQLGtids.parse(position)
        if gtids.has_tags:
            cause = "its transactions have tagged ids (uuid:tag:number)"
            raise CaptureImpossible("read the log of", self.subject, cause, "Use GTIDs without tags.")
        self._prepare_dump()
        data = gtids.encoded()
        body = struct.pack("<HIIQI", _THROUGH_GTID, server, 0, 4, len(data)) + data
        return self._dump(COMMAND.COM_BINLOG_DUMP_GTID, body)

    def dump_from_place(self, file: str, position: int) -> Packets:
        """Asks for the log from a place in a file on."""
        self._prepare_dump()
        server = random.randrange(1 << 30, 1 << 32)
        body = struct.pack("<IHI", position, 0, server) + file.encode()
        return self._dump(COMMAND.COM_BINLOG_DUMP, body)

    def _prepare_dump(self) -> None:
        period = int(HEARTBEAT_SECONDS * 1e9)
        self.query(f"set @master_heartbeat_period = {period}, @source_heartbeat_period = {period}")
        self.query("set @master_binlog_checksum = @@global.binlog_checksum")
        self.query("set @source_binlog_checksum = @@global.binlog_checksum")
        if self.is_mariadb:
            self.query("set @mariadb_slave_capability = 4")

    def _dump(self, command: int, body: bytes) -> Packets:
        with self._in_words("read the log of"):
            self._connection._execute_command(command, body)
        return Packets(self._connection._sock)

    def close(self) -> None:
        """Without a farewell: the server may be gone."""
        self._connection._force_close()

    @contextmanager
    def _in_words(self, operation: str) -> Iterator[None]:
        try:
            yield
        except pymysql.err.MySQLError as error:
            raise in_words(error, operation, self.subject) from error
        except OSError as error:  # also time-outs
            raise ConnectionLost(operation, self.subject, str(error) or type(error).__name__) from error


def _tls(parameters: dict[str, str]) -> dict[str, Any]:
    """TLS from the URL: ``?ssl_ca=FILE&ssl_cert=FILE&ssl_key=FILE``, ``?ssl=true`` without a check of names."""
    names = ("ssl_ca", "ssl_cert", "ssl_key")
    options: dict[str, Any] = {name: parameters[name] for name in names if name in parameters}
    if "ssl_ca" in options:
        options |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    if not options and parameters.get("ssl", "").lower() in ("1", "true", "required"):
        return {"ssl": {"check_hostname": False}}
    return options


def _refused(packet: bytes) -> StatementFailed:
    code = struct.unpack_from("<H", packet, 1)[0]
    text = packet[9:] if packet[3:4] == b"#" else packet[3:]
    return StatementFailed(code, text.decode("utf-8", "replace"))


def in_words(error: pymysql.err.MySQLError, operation: str, subject: str) -> Exception:
    """An error of PyMySQL as one of ours; StatementFailed for what a caller may expect."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if code in _REFUSED:
        return CaptureImpossible(operation, subject, f"{text} ({code})")
    if isinstance(error, pymysql.err.InterfaceError) or 2000 <= code < 3000 or code in _PASSING:
        return ConnectionLost(operation, subject, f"{text} ({code})" if code else str(error))
    if isinstance(error, RuntimeError):
        return CaptureImpossible(operation, subject, text)
    return StatementFailed(code, text)


# Too many connections, shutdown, killed, lock wait, deadlock, killed connection: the next try may succeed.
_PASSING = {1040, 1053, 1080, 1152, 1153, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927, 3024}


def dump_failed(packet: bytes, subject: str) -> HeadwaterError:
    """The server ended the stream of events with an error packet, or with an end."""
    if packet[0] != 0xFF:
        return ConnectionLost("read the log of", subject, "the server ended the stream")
    failure = _refused(packet)
    text = str(failure)
    lost = (
        "purged",
        "find GTID state",
        "not in the master's binlog",
        "Could not find first log file",
        "missing",
    )
    if failure.code == _DUMP_REFUSED:
        if any(words in text for words in lost):
            return ChangesMissed("read the log of", subject, text)
        if "same server_uuid/server_id" in text:
            return ConnectionLost("read the log of", subject, text)
        return CaptureImpossible("read the log of", subject, text)
    if failure.code in _REFUSED:
        return CaptureImpossible("read the log of", subject, text)
    return ConnectionLost("read the log of", subject, text)
