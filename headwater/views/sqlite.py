"""Views in a SQLite file.

The file is in WAL mode: readers see the last commit and never wait for the writer, nor it for them. There is
one writer at a time; threads of this process queue for it, other processes are waited for.

``synchronous`` is FULL: a commit has reached the disk when it returns, so that it survives a power cut as
well as a kill of the process. NORMAL would survive the kill, too, but a power cut could take back the last
batches that the query's checkpoint already counts as done, and nobody would ever repeat those. The price is
one wait for the disk a batch. (A disk that lies about having written can still lose commits.) The file may
not lie on a network file system: WAL needs shared memory.

Numbers are kept as SQLite's, booleans as 0 and 1, NaN as the text ``NaN``. Times, dates and decimals are
texts: times in ISO 8601 and UTC, which SQLite's own date functions read.
"""

import base64
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import orjson
import pyarrow as pa

from headwater.errors import StoreFailed
from headwater.views.database import Connection, Database, Operand, Result, Watch
from headwater.views.texts import json_texts, plain_texts
from headwater.views.types import is_nested
from headwater.views.values import Decoder, json_decoder, single, utc

BUSY = 60.0  # seconds to wait for a writer in another process
_WAL_PAGES = 4096  # 16 MB: smaller logs are copied back so often that large batches stall
_WAL_LIMIT = 64 << 20  # bytes that the log keeps on disk after a burst


class SqliteDatabase(Database):
    """Connections to one file: one that writes, and as many readers as read at once."""

    mark = "?"
    lock = ""  # a writer has the database for itself
    temporary = ""
    upserts_well = True
    keeps_texts = True
    keeps_nul = True
    reads_at_once = True
    table_options = " WITHOUT ROWID"

    def __init__(self, path: str) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []  # idle ones
        self._closed = False
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailed("open", path, str(error), "Choose a directory that can be written.") from error

    def read(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._open(operation, subject, "PRAGMA query_only = 1")
        try:
            connection.execute("BEGIN")
            try:
                return work(cast(Connection, connection))
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise _failed(operation, subject, error) from error
        finally:
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)

    def write(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        with self._writing:
            if self._writer is None or self._closed:
                self._writer = self._open(
                    operation,
                    subject,
                    "PRAGMA journal_mode = WAL",
                    "PRAGMA synchronous = FULL",
                    "PRAGMA temp_store = MEMORY",
                    "PRAGMA cache_size = -65536",  # kB
                    f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}",
                    f"PRAGMA journal_size_limit = {_WAL_LIMIT}",
                )
            connection = self._writer
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(cast(Connection, connection))
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise _failed(operation, subject, error) from error
            return result

    def has_table(self, connection: Connection, name: str) -> bool:
        sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return connection.execute(sql, (name,)).fetchone() is not None

    def prepare(self, connection: Connection) -> None:
        pass  # opening the file made it

    def load(self, connection: Connection, table: str, columns: Mapping[str, pa.Array]) -> None:
        names = ", ".join(self.quote(name) for name in columns)
        marks = ", ".join("?" * len(columns))
        rows = zip(*map(_stored, columns.values()), strict=True)
        cast(sqlite3.Connection, connection).executemany(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", rows
        )

    def stream(
        self, connection: Connection, sql: str, rows: int, values: Sequence[Any] = ()
    ) -> Iterator[list[Any]]:
        cursor = cast(sqlite3.Connection, connection).execute(sql, values)
        while found := cursor.fetchmany(rows):
            yield found

    def column_type(self, kind: pa.DataType) -> str:
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        return "BLOB" if pa.types.is_binary(kind) else "TEXT"

    def operand(self, column: str, path: tuple[str, ...], kind: pa.DataType) -> Operand:
        sql = self.quote(column)
        if not path:
            collation = " COLLATE headwater_decimal" if pa.types.is_decimal(kind) else ""
            return Operand(sql + collation, (), _json_text if is_nested(kind) else _first)
        place = ("$" + "".join(f'."{name}"' for name in path),)
        names = (json.dumps(path),)
        if pa.types.is_binary(kind):  # base64 sorts otherwise than what it stands for
            return Operand(f"headwater_bytes({sql}, ?)", names, _first)
        if pa.types.is_string(kind):  # SQLite ends a text at its NUL
            return Operand(f"headwater_member({sql}, ?)", names, _first)
        if pa.types.is_decimal(kind):  # SQLite reads JSON's numbers as floats
            return Operand(f"headwater_decimal({sql}, ?) COLLATE headwater_decimal", names, _first)
        found = f"json_extract({sql}, ?)"
        if not is_nested(kind) and any(json.dumps(name) != f'"{name}"' for name in path):
            found, place = f"headwater_member({sql}, ?)", names  # SQLite finds no names with escapes
        if pa.types.is_floating(kind):  # and infinities as texts
            size = "single" if pa.types.is_float32(kind) else "double"
            return Operand(f"headwater_{size}({found})", place, _first)
        return Operand(found, place, _json_text if is_nested(kind) else _first)

    def decoder(self, kind: pa.DataType) -> Decoder | None:
        if is_nested(kind):
            return json_decoder(kind)
        if pa.types.is_boolean(kind):
            return bool
        if pa.types.is_floating(kind):
            return float
        if pa.types.is_timestamp(kind):
            return utc if kind.tz else datetime.fromisoformat
        if pa.types.is_date(kind):
            return date.fromisoformat
        return Decimal if pa.types.is_decimal(kind) else None

    def differ(self, left: str, right: str) -> str:
        return f"{left} IS NOT {right}"

    def watch(self) -> Watch:
        return _SqliteWatch(self._open("watch", self._path, "PRAGMA query_only = 1"))

    def close(self) -> None:
        self._closed = True
        with self._writing:
            if self._writer is not None:
                self._writer.close()
        while self._readers:
            self._readers.pop().close()

    def _open(self, operation: str, subject: str, *settings: str) -> sqlite3.Connection:
        if self._closed:
            raise StoreFailed(operation, subject, "the store was closed", "Open it again.")
        try:
            connection = sqlite3.connect(
                self._path, timeout=BUSY, isolation_level=None, check_same_thread=False, cached_statements=512
            )
            connection.create_collation("headwater_decimal", _compare_decimals)
            connection.create_function("headwater_decimal", 2, _decimal_member, deterministic=True)
            connection.create_function("headwater_member", 2, _member, deterministic=True)
            connection.create_function("headwater_bytes", 2, _bytes_member, deterministic=True)
            connection.create_function("headwater_single", 1, _single_member, deterministic=True)
            connection.create_function("headwater_double", 1, _double_member, deterministic=True)
            for setting in settings:
                connection.execute(setting)
        except sqlite3.Error as error:
            raise _failed(operation, subject, error) from error
        return connection


class _SqliteWatch(Watch):
    """SQLite counts, for each connection, the commits of all others."""

    pause = 0.01

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen: int | None = None

    def changed(self) -> bool:
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise _failed("watch", "the view store", error) from error
        changed = bool(version != self._seen)
        self._seen = version
        return changed

    def close(self) -> None:
        self._connection.close()


def _stored(values: pa.Array) -> list[Any]:
    """A column as SQLite keeps it."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return _listed(values.cast(pa.int8()))
    if pa.types.is_floating(kind):
        # SQLite takes NaN for null.
        return ["NaN" if value != value else value for value in _listed(values)]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return _listed(plain_texts(values))
    return _listed(values)


def _first(value: pa.Array) -> Any:
    return _stored(value)[0]


def _json_text(value: pa.Array) -> Any:
    return None if value.null_count else json_texts(value)[0].as_py()


def _listed(values: pa.Array) -> list[Any]:
    if values.null_count == 0 and pa.types.is_primitive(values.type):
        return cast(list[Any], values.to_numpy(zero_copy_only=False).tolist())
    return cast(list[Any], values.to_pylist())


def _compare_decimals(left: str, right: str) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


def _decimal_member(value: str | None, path: str) -> str | None:
    """The digits of a decimal in a nested value.

    >>> _decimal_member('{"price":12345678901234567890.50}', '["price"]')
    '12345678901234567890.50'
    """
    found: Any = None if value is None else json.loads(value, parse_float=str, parse_int=str)
    for name in json.loads(path):
        if found is None:
            return None
        found = found[name]
    return cast(str | None, found)


def _member(value: str | None, path: str) -> Any:
    found = None if value is None else orjson.loads(value)
    for name in orjson.loads(path):
        if found is None:
            return None
        found = found[name]
    return found


def _bytes_member(value: str | None, path: str) -> bytes | None:
    """
    >>> _bytes_member('{"raw":"/w=="}', '["raw"]')
    b'\\xff'
    """
    found = _member(value, path)
    return None if found is None else base64.b64decode(found)


def _single_member(value: float | str | None) -> float | str | None:
    return single(float(value)) if isinstance(value, int | float) else _double_member(value)


def _double_member(value: float | str | None) -> float | str | None:
    """A number of JSON as SQLite keeps one in a column.

    >>> _double_member("-Infinity"), _double_member("NaN"), _double_member(1)
    (-inf, 'NaN', 1.0)
    """
    return value if value is None or value == "NaN" else float(value)


def _failed(operation: str, subject: str, error: sqlite3.Error) -> StoreFailed:
    step = None
    if "locked" in str(error):
        step = (
            f"Another process has written for over {BUSY:g} seconds; look which one. The batch is repeated."
        )
    elif "full" in str(error):
        step = "Free space; the batch is repeated."
    return StoreFailed(operation, subject, str(error), step)
