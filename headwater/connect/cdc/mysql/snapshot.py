"""Reading tables in chunks by their keys, each chunk in a short transaction whose place in the log is known.

A chunk begins with ``START TRANSACTION WITH CONSISTENT SNAPSHOT``, for which MariaDB says at which place of its log it
is. The stream is read up to exactly there, and then the chunk's rows follow: they are what the table holds after the
changes before, and before those after. So nothing has to be merged, and no row is held in memory.

MySQL does not say the place: it is asked for after the snapshot has begun, so it may be a little later. Rows whose keys
the stream changed since the chunk began are left out there: what the stream had is as new or newer.

A server writes a commit into its log, where the stream reads it, a moment before others see its rows; with
semi-synchronous replication as long before as a standby takes. A snapshot of that moment is older than what the stream
has brought already, and its rows would undo it. So it is told by its place, ended, and begun again. Where the log is
rotated in that moment, MariaDB says the new file's beginning already. So only a place where a group ends proves that
those before can be seen; else time does.

A table that has no transactions (MyISAM, Aria) is locked against writers for the length of a chunk. A table without a
key is read in one go; when that is interrupted, the next try begins with an event that empties the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headwater.connect.cdc.mysql.binlog import length_encoded
from headwater.connect.cdc.mysql.charsets import is_as_in_python
from headwater.connect.cdc.mysql.connection import Database, StatementFailed
from headwater.connect.cdc.mysql.gtid import MySQLGtids
from headwater.connect.cdc.mysql.schema import CODECS, Column, Table, parse_type
from headwater.connect.cdc.mysql.state import LogState, Place, before
from headwater.connect.cdc.mysql.types import select_expression

# The table changed since the snapshot began; it is read again from a new one. (1054, 1146: it changed after.)
CHANGED = {1412, 1054, 1146}
NO_SUCH_TABLE = 1146
_FILE_START = 4  # offset of the first event

_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"}
_LABELLED = {"enum", "set"}


@dataclass
class Job:
    """A table that is being read, or waits for it; part of the position."""

    database: str
    table: str
    where: str | None = None
    after: list[str] | None = None  # the key of the last row that is out, as SQL
    rows: int = 0
    total: int | None = None
    begun: bool = False  # rows without a key are out, or may be
    replaces: bool = False  # what the topic holds and the table does not is to be deleted in the end
    ends: dict[str, int] | None = None  # where the topic ended when the reading began
    deleting: bool = False  # all rows are out, deletes follow
    gone: list[Any] | None = None  # the table as it was, when it is no more

    @property
    def name(self) -> tuple[str, str]:
        return self.database, self.table

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value not in (None, False, 0)}

    @classmethod
    def from_json(cls, parts: dict[str, Any]) -> "Job":
        return cls(**parts)


def quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(column: Column, raw: bytes) -> str:
    """A key's value as SQL, in the character set of its column: so that the comparison uses the index."""
    base = parse_type(column.type).base
    if base in _NUMBERS or base in _LABELLED:
        return raw.decode()
    if base == "bit":
        return str(int.from_bytes(raw, "big"))
    if base in ("date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"):
        return f"'{raw.decode()}'"
    if column.charset is None:
        return f"x'{raw.hex()}'"
    if not is_as_in_python(column.charset):
        return f"_utf8mb4 x'{raw.hex()}'"
    try:
        return f"_{column.charset} x'{raw.decode().encode(CODECS[column.charset]).hex()}'"
    except (KeyError, UnicodeError):
        return f"_utf8mb4 x'{raw.hex()}'"


def _comparable(column: Column) -> str:
    """How a key is compared with a literal; labels are ordered by their numbers, as their index is."""
    name = quoted_name(column.name)
    return f"{name}+0" if parse_type(column.type).base in _LABELLED else name


def after_condition(columns: list[Column], values: list[str]) -> str:
    """The rows after a key.

    >>> after_condition([Column("a", "int"), Column("b", "int")], ["1", "2"])
    '(`a` > 1 or (`a` = 1 and (`b` > 2)))'
    """
    name, value = _comparable(columns[0]), values[0]
    if len(columns) == 1:
        return f"({name} > {value})"
    return f"({name} > {value} or ({name} = {value} and {after_condition(columns[1:], values[1:])}))"


class ChunkQuery:
    """The statement for rows of a table, and the keys in its result."""

    def __init__(self, table: Table) -> None:
        self.table = table
        by_name = {column.name: column for column in table.columns}
        self.key = [by_name[name] for name in table.key]
        self._columns = table.visible
        self._places = [[c.name for c in self._columns].index(name) for name in table.key]
        # A label's number is asked for besides: it is what the next chunk begins after.
        self._extra = [n for n, column in enumerate(self.key) if parse_type(column.type).base in _LABELLED]

    def text(self, job: Job, limit: int | None) -> str:
        asked = [select_expression(column, quoted_name(column.name)) for column in self._columns]
        asked += [_comparable(self.key[n]) for n in self._extra]
        conditions = [f"({job.where})"] if job.where else []
        if job.after is not None:
            conditions.append(after_condition(self.key, job.after))
        parts = [f"select {', '.join(asked)} from {quoted_name(job.database)}.{quoted_name(job.table)}"]
        if conditions:
            parts.append("where " + " and ".join(conditions))
        if self.key:
            parts.append("order by " + ", ".join(quoted_name(column.name) for column in self.key))
        if limit is not None:
            parts.append(f"limit {limit}")
        return " ".join(parts)

    def key_of(self, data: bytes, at: int) -> list[str]:
        """The key of the row in a packet, as SQL."""
        values: list[bytes] = []
        for _ in range(len(self._columns) + len(self._extra)):
            if data[at] == 251:
                values.append(b"")
                at += 1
                continue
            size, at = length_encoded(data, at)
            values.append(data[at : at + size])
            at += size
        raw = [values[place] for place in self._places]
        for nth, n in enumerate(self._extra):
            raw[n] = values[len(self._columns) + nth]
        return [literal(column, value) for column, value in zip(self.key, raw, strict=True)]


class ChunkReader:
    """Connections for reading chunks: one reads; where a lock is needed, another one holds it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database = Database(url)
        self._database.query("set session transaction isolation level repeatable read")
        self._locker: Database | None = None
        self._locks_while_reading = self._waited_for_writers = False
        self._committed = MySQLGtids()  # what all could see before the snapshot began

    @property
    def says_place(self) -> bool:
        """Whether the server says at which place of its log a snapshot is."""
        return self._database.is_mariadb

    def begin(self, table: Table) -> Place | MySQLGtids:
        """Begins a chunk: where the stream has to be when it is read."""
        database = self._database
        self._locks_while_reading = not table.is_transactional
        self._waited_for_writers = self._locks_while_reading or not (table.key or self.says_place)
        if self._locks_while_reading:
            database.query(f"lock tables {_full_name(table)} read")
            return log_end(database)
        if self.says_place:
            database.query("start transaction with consistent snapshot, read only")
            return snapshot_place(database)
        self._committed = executed_gtids(database)
        if not table.key:  # without keys nothing can be left out: nobody may write while the snapshot begins
            self._locker = self._locker or Database(self._url)
            self._locker.query(f"lock tables {_full_name(table)} read")
        try:
            database.query("start transaction with consistent snapshot, read only")
            return log_end(database)
        finally:
            if not table.key and self._locker is not None:
                self._locker.query("unlock tables")

    def shows(self, place: Place | MySQLGtids, state: LogState, groups_end: Place | None) -> bool:
        """Whether the snapshot at a place has all that the stream has brought: up to a state.

        No group that it brought ends behind `groups_end`, when that is known. The state itself is also moved by what
        is no change: behind a snapshot that lacks nothing.
        """
        if self._waited_for_writers:
            return True  # a lock is given when all changes of the table can be seen
        if isinstance(place, MySQLGtids):
            return isinstance(state.gtids, MySQLGtids) and state.gtids <= self._committed
        if not self.says_place:
            return True  # MySQL without GTIDs: nobody can say
        if groups_end is not None:
            return not before(place, groups_end)
        here = state.file, state.place
        return not before(place, here) or self._is_same(place, here)

    def is_proven(self, place: Place | MySQLGtids, groups_end: Place | None) -> bool:
        """Whether a snapshot at a place, where the stream is now, has all groups before.

        A commit that can be seen moves the place to its end. A rotation and a checkpoint move it as well, and may pass
        commits that cannot be seen yet.
        """
        if self._waited_for_writers or isinstance(place, MySQLGtids) or not self.says_place:
            return True
        return groups_end is None or groups_end == place

    def _is_same(self, place: Place, other: Place) -> bool:
        """Whether no transaction is between two places."""
        ask = "select binlog_gtid_pos(%s, %s)"
        there = self._database.value(ask, *place)
        return there is not None and there == self._database.value(ask, *other)

    def rows(self, statement: str) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
        """The packets of the rows of a statement."""
        return self._database.rows(statement)

    def end(self) -> None:
        """Ends the chunk's transaction, or lock."""
        self._database.query("unlock tables" if self._locks_while_reading else "commit")

    def estimate(self, table: tuple[str, str]) -> int | None:
        """How many rows the server thinks that a table has."""
        found = self._database.value(
            "select table_rows from information_schema.tables where table_schema = %s and table_name = %s",
            *table,
        )
        return int(found) if found is not None else None

    def close(self) -> None:
        self._database.close()
        if self._locker is not None:
            self._locker.close()


def _full_name(table: Table) -> str:
    return f"{quoted_name(table.database)}.{quoted_name(table.name)}"


def log_end(database: Database) -> Place | MySQLGtids:
    """Where the server's log ends now."""
    if not database.is_mariadb and str(database.value("select @@global.gtid_mode")).startswith("ON"):
        return executed_gtids(database)
    row = log_status(database)
    return str(row[0]), int(row[1])


def snapshot_place(database: Database) -> Place:
    """The place in a MariaDB's log of the consistent snapshot that is open.

    When the log was rotated while a commit waited for a standby, the server may say the new file with the offset of
    the old one, until somebody commits again. So far no transaction of the new file can be seen.
    """
    status = dict(database.query("show status like 'binlog\\_snapshot\\_%'"))
    place = str(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"])
    file, end = log_status(database)[:2]
    return (place[0], _FILE_START) if before((str(file), int(end)), place) else place


def executed_gtids(database: Database) -> MySQLGtids:
    """The transactions of a MySQL whose changes all can see."""
    return MySQLGtids.parse(database.value("select @@global.gtid_executed") or "")


def log_status(database: Database) -> tuple[Any, ...]:
    """File and position, by the name that the statement has in this server."""
    for statement in ("show master status", "show binary log status"):
        try:
            rows = database.query(statement)
        except StatementFailed:
            continue
        if rows:
            return rows[0]
    return ("", 0)
