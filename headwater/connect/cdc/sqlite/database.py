"""The database file: opening it, our tables and triggers in it, reading the changelog and shortening it."""

import random
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from headwater.connect.cdc.sqlite import triggers as sql
from headwater.connect.cdc.sqlite.schema import OURS, Table, describe, only_adds_nulls, quoted, table_names
from headwater.connect.cdc.sqlite.values import decode_text
from headwater.errors import CaptureImpossible, ConnectionLost, HeadwaterError

BUSY_SECONDS = 10.0
PRUNED_AT_ONCE = 20_000  # changes; the database is locked for other writers meanwhile


@dataclass(frozen=True)
class Shape:
    """A table as it was from one change of its definition to the next; changes name the shape they have."""

    id: int
    table: Table
    since: int  # the last change before it
    again: bool  # whether all rows have to be read because of it


def file_of(url: str) -> Path:
    """The file of ``sqlite:///shop.db``, or with four slashes of an absolute path.

    >>> file_of("sqlite:////srv/shop.db"), file_of("sqlite:///shop.db")
    (PosixPath('/srv/shop.db'), PosixPath('shop.db'))
    """
    return Path(unquote(urlsplit(url).path)[1:])


class Database:
    """A connection of our own to the file. One thread at a time may use it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self.explained("open"):
            if not path.exists():
                raise ConnectionLost("open", str(path), "there is no such file", "It is waited for.")
            mode = "ro" if read_only else "rw"
            self.connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=BUSY_SECONDS,
                cached_statements=64,
                check_same_thread=False,
            )
            self.file = self._file()
            self.connection.execute("SELECT 1 FROM sqlite_schema").fetchone()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def explained(self, operation: str) -> Iterator[None]:
        """SQLite's errors in the words of the catalogue: what may pass, and what does not."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_words(operation, error) from error
        except OSError as error:
            raise ConnectionLost(operation, str(self.path), str(error)) from error

    def _in_words(self, operation: str, error: sqlite3.Error) -> HeadwaterError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith("SQLITE_READONLY") and "DBMOVED" not in name:
            step = "Give this user the right to write to the file and its directory."
            return CaptureImpossible(operation, str(self.path), "the file may not be written to", step)
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            step = "Restore the file; `PRAGMA integrity_check` says more."
            return CaptureImpossible(operation, str(self.path), str(error), step)
        step = "It is tried again; writers that hold the database for long have to end."
        return ConnectionLost(operation, str(self.path), str(error), step)

    def _file(self) -> tuple[int, int]:
        state = self.path.stat()
        return state.st_dev, state.st_ino

    def is_replaced(self) -> bool:
        """Whether another file has the name by now."""
        try:
            return self._file() != self.file
        except OSError:
            return True

    # -- transactions ------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the database."""
        with self.explained("read"):
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self.connection.execute("ROLLBACK")

    @contextmanager
    def writing(self, operation: str) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer is beside."""
        with self.explained(operation):
            self._lock()
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def _lock(self) -> None:
        """SQLite itself waits ever longer, and never finds the moment between two of a writer that goes on and on."""
        deadline = time.monotonic() + BUSY_SECONDS
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                time.sleep(random.uniform(0.0, 0.002))
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")

    def tolerate(self) -> None:
        """From now on text need not be UTF-8; that takes longer."""
        self.connection.text_factory = decode_text

    def number(self, statement: str, *parameters: Any) -> int:
        """The one number that a query gives, 0 for NULL."""
        row = self.connection.execute(statement, parameters).fetchone()
        return int(row[0] or 0) if row is not None else 0

    def version(self) -> int:
        """Changes with every change of the schema, and with VACUUM."""
        return self.number("PRAGMA schema_version")

    def last_sequence(self) -> int:
        """The number of the last change there ever was."""
        return self.number("SELECT seq FROM sqlite_sequence WHERE name = ?", sql.CHANGES)

    def is_wal(self) -> bool:
        """Whether readers and writers do not wait for each other."""
        (mode,) = self.connection.execute("PRAGMA journal_mode").fetchone()
        return str(mode).lower() == "wal"

    # -- captures ----------------------------------------------------------------------------------

    def has_changelog(self) -> bool:
        """Whether our tables are there."""
        found = self.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (sql.CAPTURES,))
        return found.fetchone() is not None

    def prepare(self) -> None:
        """Makes our tables; inside of a transaction."""
        for statement in sql.TABLES:
            self.connection.execute(statement)

    def token(self, name: str) -> str | None:
        """By which a capture knows that it is still the same database; None where there is no such capture."""
        row = self.connection.execute(f"SELECT token FROM {sql.CAPTURES} WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def acknowledged(self, name: str) -> int:
        """Up to which change a capture needs nothing any more."""
        return self.number(f"SELECT acknowledged FROM {sql.CAPTURES} WHERE name = ?", name)

    def enrol(self, name: str, tables: Sequence[str] | None, acknowledged: int) -> str:
        """Notes a capture that begins, or begins anew; its token."""
        token = uuid.uuid4().hex
        self.connection.execute(
            f"INSERT OR REPLACE INTO {sql.CAPTURES} VALUES (?, ?, ?, ?)",
            (name, token, acknowledged, orjson.dumps(tables).decode()),
        )
        return token

    def want(self, name: str, tables: Sequence[str] | None) -> None:
        """Notes which tables a capture is about."""
        wanted = orjson.dumps(tables).decode()
        self.connection.execute(
            f"UPDATE {sql.CAPTURES} SET tables = ?1 WHERE name = ?2 AND tables IS NOT ?1", (wanted, name)
        )

    def prune(self, name: str, acknowledged: int, token: str) -> int:
        """Notes that a capture has everything up to a change, and drops what no capture needs, or a part of it.

        Gives the change up to which that is done for this capture.
        """
        with self.writing("shorten the changelog of") as connection:
            connection.execute(
                f"UPDATE {sql.CAPTURES} SET acknowledged = ?, token = ? WHERE name = ?",
                (acknowledged, token, name),
            )
            least = self.number(f"SELECT min(acknowledged) FROM {sql.CAPTURES}")
            first = self.number(f"SELECT min(sequence) FROM {sql.CHANGES}")
            end = min(least, first + PRUNED_AT_ONCE)
            connection.execute(f"DELETE FROM {sql.CHANGES} WHERE sequence <= ?", (end,))
        return acknowledged if end >= least else min(acknowledged, end)

    def remove(self, name: str) -> bool:
        """Forgets a capture; with the last one go all triggers and tables of ours. False when there was none."""
        with self.writing("remove capture from") as connection:
            if not self.has_changelog():
                return False
            there = connection.execute(f"DELETE FROM {sql.CAPTURES} WHERE name = ?", (name,)).rowcount > 0
            if not self.number(f"SELECT count(*) FROM {sql.CAPTURES}"):
                self._drop_triggers(keep=set())
                for table in (sql.CHANGES, sql.REPLACED, sql.SHAPES, sql.CAPTURES):
                    connection.execute(f"DROP TABLE {table}")
            else:
                self.synchronise()
            return there

    # -- triggers ----------------------------------------------------------------------------------

    def synchronise(self) -> dict[str, Shape]:
        """Makes the triggers of all captured tables fit the tables; inside of a writing transaction.

        A table whose triggers were not in place, or that has changed otherwise than by columns without a value, has
        to be read again: changes may have passed unseen.
        """
        present = table_names(self.connection)
        known = self.shapes()
        found: dict[str, Shape] = {}
        for name in self._wanted(present):
            table = describe(self.connection, name)
            last = known.get(name)
            if last is not None and last.table == table and self._in_place(last):
                found[name] = last
            else:
                found[name] = self._reshape(table, last)
        self._drop_triggers(keep={shape.id for shape in found.values()})
        return found

    def shapes(self) -> dict[str, Shape]:
        """The last shape of every table."""
        rows = self.connection.execute(
            f"SELECT id, description, since, again FROM {sql.SHAPES} "
            f"WHERE id IN (SELECT max(id) FROM {sql.SHAPES} GROUP BY name)"
        ).fetchall()
        shapes = [
            Shape(number, Table.from_json(orjson.loads(text)), since, bool(again))
            for number, text, since, again in rows
        ]
        return {shape.table.name: shape for shape in shapes}

    def shape(self, number: int) -> Shape:
        """One shape, also of a table that is gone."""
        text, since, again = self.connection.execute(
            f"SELECT description, since, again FROM {sql.SHAPES} WHERE id = ?", (number,)
        ).fetchone()
        return Shape(number, Table.from_json(orjson.loads(text)), since, bool(again))

    def reads_again_after(self, table: str, number: int) -> bool:
        """Whether a shape of the table behind this one asks for all rows to be read."""
        return bool(
            self.number(f"SELECT max(again) FROM {sql.SHAPES} WHERE name = ? AND id > ?", table, number)
        )

    def _wanted(self, present: Sequence[str]) -> list[str]:
        wanted: set[str] = set()
        for (text,) in self.connection.execute(f"SELECT tables FROM {sql.CAPTURES}").fetchall():
            named = orjson.loads(text)
            wanted |= set(present) if named is None else set(named)
        return [name for name in present if name in wanted]

    def _in_place(self, shape: Shape) -> bool:
        rows = self.connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND name GLOB ?",
            (shape.table.name, f"{OURS}*"),
        ).fetchall()
        return dict(rows) == sql.triggers(shape.table, shape.id)

    def _reshape(self, table: Table, last: Shape | None) -> Shape:
        gentle = last is not None and only_adds_nulls(last.table, table) and self._in_place(last)
        since = self.last_sequence()
        cursor = self.connection.execute(
            f"INSERT INTO {sql.SHAPES} (name, description, since, again) VALUES (?, ?, ?, ?)",
            (table.name, orjson.dumps(table.as_json()).decode(), since, not gentle),
        )
        shape = Shape(int(cursor.lastrowid or 0), table, since, not gentle)
        self._widen(sql.CHANGES, len(sql.HEAD), 2 * len(table.columns))
        self._widen(sql.REPLACED, 2, len(table.columns))
        if last is not None:
            self._drop_triggers(only=last.id)
        for statement in sql.triggers(table, shape.id).values():
            self.connection.execute(statement)
        if gentle and last is not None and len(table.columns) > len(last.table.columns):
            self.connection.execute(sql.refresh(last.table, table, last.id, shape.id))
        return shape

    def _widen(self, table: str, head: int, needed: int) -> None:
        present = self.number("SELECT count(*) FROM pragma_table_info(?)", table) - head
        for statement in sql.wider(table, present, needed):
            self.connection.execute(statement)

    def _drop_triggers(self, keep: set[int] | None = None, only: int | None = None) -> None:
        rows = self.connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB ?", (f"{OURS}*",)
        ).fetchall()
        for (name,) in rows:
            number = name.removeprefix(OURS).partition("_")[0]
            if not number.isdigit():
                continue
            if (only is not None and int(number) == only) or (keep is not None and int(number) not in keep):
                self.connection.execute(f"DROP TRIGGER {quoted(name)}")
