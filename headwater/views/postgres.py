"""Views in PostgreSQL.

Everything lies in one schema of the database. Rows arrive by COPY into a temporary table and go from there to
the view in one statement. Commits are durable as the server is set; where it has ``synchronous_commit = off``
we turn it on, since a batch that the query's checkpoint counts as done must not be lost.

A connection that was lost is replaced at the next call. When it is lost during COMMIT nobody knows whether
the batch was applied; repeating it is safe, because its id tells.

What PostgreSQL cannot keep: a NUL character inside a text, which becomes the symbol for it (U+2400), and keys
whose text is longer than about 2,600 bytes, which it refuses.
"""

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from psycopg.conninfo import conninfo_to_dict

from headwater.errors import BadInput, StoreFailed
from headwater.views.database import Connection, Cursor, Database, Operand, Result, Watch
from headwater.views.texts import json_texts, plain_texts
from headwater.views.types import is_nested
from headwater.views.values import Decoder, json_decoder, single

# A server that vanished without a word is noticed after about these times.
_CONNECT = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "15"}  # s, ms, s
# What COPY sends is UTF-8, whatever the database is in, which a connection would take for its own.
_FORCED = {"client_encoding": "UTF8"}
_FEW = 1000  # staged rows up to which looking each up beats reading the view's table
# A pattern and what takes its place: the NUL that a text in JSON has, unless its backslash is itself escaped.
_NUL = r"'(?<!\\)((?:\\\\)*)\\u0000', '\1␀'"
_CSV = pa.csv.WriteOptions(include_header=False)


class _Session:
    """A connection whose SQL always takes the path on which ``%%`` stands for ``%``."""

    def __init__(self, raw: "psycopg.Connection[Any]") -> None:
        self.raw = raw

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor:
        return self.raw.execute(sql, values)


class PostgresDatabase(Database):
    """As many connections as are in use at once; idle ones are kept."""

    mark = "%s"
    lock = " FOR UPDATE"
    temporary = " ON COMMIT DELETE ROWS"
    upserts_well = False
    keeps_texts = False
    keeps_nul = False
    reads_at_once = False
    table_options = " WITH (fillfactor = 75)"  # room to change a row where it is, without touching the index

    def __init__(self, url: str) -> None:
        self._settings, self._schema = _settings(url)
        self._idle: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._closed = False

    def read(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        return self._run(operation, subject, work, read_only=True)

    def write(self, operation: str, subject: str, work: Callable[[Connection], Result]) -> Result:
        return self._run(operation, subject, work, read_only=False)

    def has_table(self, connection: Connection, name: str) -> bool:
        path = f"{Database.quote(self, self._schema)}.{Database.quote(self, name)}"
        (there,) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (path,)).fetchone()
        return bool(there)

    def prepare(self, connection: Connection) -> None:
        # Two that create a schema or table of one name at a time get an error in spite of IF NOT EXISTS.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('headwater'))")
        (there,) = connection.execute(
            "SELECT to_regnamespace(%s) IS NOT NULL", (super().quote(self._schema),)
        ).fetchone()
        if not there:
            connection.execute(f"CREATE SCHEMA {self.quote(self._schema)}")

    def load(self, connection: Connection, table: str, columns: Mapping[str, pa.Array]) -> None:
        assert isinstance(connection, _Session)
        names = ", ".join(
            Database.quote(self, name) for name in columns
        )  # COPY binds nothing: % stands for itself
        lines = io.BytesIO()
        pa.csv.write_csv(pa.table({name: _copied(array) for name, array in columns.items()}), lines, _CSV)
        sql = f"COPY {table} ({names}) FROM STDIN (FORMAT csv)"
        with connection.raw.cursor() as cursor, cursor.copy(sql) as copy:
            copy.write(lines.getbuffer())
        # The planner knows nothing of a temporary table that was just filled.
        few = "off" if len(next(iter(columns.values()))) <= _FEW else "on"
        connection.execute(
            "SELECT set_config('enable_hashjoin', %s, true), set_config('enable_mergejoin', %s, true)",
            (few, few),
        )

    def stream(
        self, connection: Connection, sql: str, rows: int, values: Sequence[Any] = ()
    ) -> Iterator[list[Any]]:
        assert isinstance(connection, _Session)
        with connection.raw.cursor("headwater") as cursor:
            cursor.execute(sql, values)
            while found := cursor.fetchmany(rows):
                yield found

    def column_type(self, kind: pa.DataType) -> str:
        if pa.types.is_decimal(kind):
            return f"numeric({kind.precision},{kind.scale})"
        if pa.types.is_timestamp(kind):
            return "timestamptz" if kind.tz else "timestamp"
        return _TYPES.get(kind, 'text COLLATE "C"')  # sorted by code points, as Spark and SQLite do

    def operand(self, column: str, path: tuple[str, ...], kind: pa.DataType) -> Operand:
        sql = self.quote(column)
        if not path:
            return Operand(sql, (), _bound)
        # PostgreSQL reads nothing at all of JSON that has a NUL in it anywhere.
        json = (
            f"CASE WHEN strpos({sql}, '\\u0000') = 0 THEN {sql} ELSE regexp_replace({sql}, {_NUL}, 'g') END"
        )
        sql = f"(({json})::json #>> %s::text[])"
        typed = (
            f"decode({sql}, 'base64')" if pa.types.is_binary(kind) else f"({sql}::{self.column_type(kind)})"
        )
        return Operand(typed, (list(path),), _bound)

    def decoder(self, kind: pa.DataType) -> Decoder | None:
        if is_nested(kind):
            return json_decoder(kind)
        if pa.types.is_timestamp(kind) and kind.tz:
            return _in_utc
        return single if pa.types.is_float32(kind) else None

    def differ(self, left: str, right: str) -> str:
        return f"{left} IS DISTINCT FROM {right}"

    def quote(self, name: str) -> str:
        return super().quote(name).replace("%", "%%")

    def watch(self) -> Watch:
        return _PostgresWatch(self)

    def close(self) -> None:
        self._closed = True
        self._forget_idle()

    # -- connections -------------------------------------------------------------------------------

    def _run(
        self, operation: str, subject: str, work: Callable[[Connection], Result], *, read_only: bool
    ) -> Result:
        for last_try in (False, True):
            connection, kept = self._take(operation, subject, read_only)
            committing = False
            try:
                result = work(_Session(connection))
                committing = True
                connection.commit()
            except psycopg.Error as error:
                lost = connection.closed
                self._give_back(connection)
                if lost:
                    self._forget_idle()
                # A connection that lay idle may have been lost long ago; a table may have been dropped
                # between the look at the catalog and its own; of two that wait for each other one is told.
                passing = isinstance(error, psycopg.errors.UndefinedTable) and read_only
                passing = passing or isinstance(error, psycopg.errors.DeadlockDetected)
                again = passing or (lost and kept and (read_only or not committing))
                if again and not last_try:
                    continue
                raise StoreFailed(
                    operation, subject, str(error).strip() or "the connection was lost"
                ) from error
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
            return result
        raise AssertionError("the last try returns or raises")

    def _take(self, operation: str, subject: str, read_only: bool) -> "tuple[psycopg.Connection[Any], bool]":
        """A connection, and whether it was used before."""
        if self._closed:
            raise StoreFailed(operation, subject, "the store was closed", "Open it again.")
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        kept = connection is not None
        if connection is None:
            try:
                connection = self._connect()
            except psycopg.Error as error:
                raise StoreFailed(operation, subject, str(error).strip()) from error
        level = psycopg.IsolationLevel
        connection.read_only = read_only
        connection.isolation_level = level.REPEATABLE_READ if read_only else level.READ_COMMITTED
        return connection, kept

    def _give_back(self, connection: "psycopg.Connection[Any]") -> None:
        try:
            connection.rollback()  # nothing after a commit
        except psycopg.Error:
            connection.close()
        if connection.closed:
            return
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> "psycopg.Connection[Any]":
        connection = psycopg.connect(**self._settings)
        connection.execute("SET timezone = 'UTC'")
        connection.execute("SET datestyle = 'ISO'")
        connection.execute("SELECT set_config('search_path', %s, false)", (super().quote(self._schema),))
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()
        return connection

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _PostgresWatch(Watch):
    """Looks at the few rows that every commit of a view that serves changes."""

    pause = 0.04
    _LOOK = (
        "SELECT v.name, v.serving, v.last_change, s.batch, s.committed FROM headwater_views v "
        "LEFT JOIN headwater_versions s ON s.view = v.name AND s.version = v.serving ORDER BY v.name"
    )

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._seen: list[Any] | None = None

    def changed(self) -> bool:
        found = self._database.read("watch", "the view store", lambda c: c.execute(self._LOOK).fetchall())
        changed = found != self._seen
        self._seen = found
        return changed

    def close(self) -> None:
        pass  # the connection is one of the store's


_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.binary(): "bytea",
}


def _settings(url: str) -> tuple[dict[str, Any], str]:
    """What libpq is told, and the schema.

    >>> settings, schema = _settings("postgresql://me@db:5433/shop?schema=views&connect_timeout=3")
    >>> settings["host"], settings["dbname"], settings["connect_timeout"], schema
    ('db', 'shop', '3', 'views')
    >>> _settings("postgresql://[db/shop")
    Traceback (most recent call last):
    headwater.errors.BadInput: cannot open the view store: Invalid IPv6 URL. Correct HEADWATER_STORE.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema") or "headwater"
        rest = urlencode([(name, value) for name, value in query if name != "schema"])
        given = conninfo_to_dict(urlunsplit(parts._replace(query=rest)))
    except (psycopg.Error, ValueError) as error:
        raise BadInput("open", "the view store", str(error).strip(), "Correct HEADWATER_STORE.") from error
    return {**_CONNECT, "application_name": "headwater", **given, **_FORCED}, schema


def _copied(values: pa.Array) -> pa.Array:
    """A column as COPY reads it from CSV: nulls are empty, texts are quoted."""
    kind = values.type
    if pa.types.is_string(kind):
        return pc.replace_substring(values, "\0", "\u2400")
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else "\\x" + v.hex() for v in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return plain_texts(values)
    return values


def _bound(value: pa.Array) -> Any:
    if is_nested(value.type):
        return None if value.null_count else json_texts(value)[0].as_py()
    if pa.types.is_timestamp(value.type) or pa.types.is_string(value.type):
        return _copied(value)[0].as_py()
    return value[0].as_py()


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
