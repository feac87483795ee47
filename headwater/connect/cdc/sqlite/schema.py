"""What a SQLite database says of its tables."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater.errors import CaptureImpossible

OURS = "_headwater_"
_ALIASES = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True)
class Column:
    """A column as declared. SQLite keeps values of any type in it, unless the table is STRICT."""

    name: str
    type: str
    nullable: bool
    default: str | None  # an SQL expression
    generated: bool


# Columns that no two rows share, each with the collation by which they are compared.
Unique = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table: its columns, what identifies a row, and what may conflict."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]  # the primary key, else the columns of a unique index without NULLs, else nothing
    rowid: str | None  # by which name the rowid can be asked for; None for a table WITHOUT ROWID
    has_stable_rowid: bool  # an INTEGER PRIMARY KEY; VACUUM numbers other rows anew
    uniques: tuple["Unique", ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def identity(self) -> tuple[str, ...]:
        """By which a row is found again at any moment: the rowid, or the primary key where there is none."""
        return (self.rowid,) if self.rowid is not None else self.key

    def as_json(self) -> dict[str, Any]:
        """Plain data, to be kept in the database."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Table":
        """The reverse of `as_json`.

        >>> table = Table("t", (Column("a", "TEXT", True, None, False),), ("a",), "rowid", False, ((("a", "BINARY"),),))
        >>> Table.from_json(table.as_json()) == table
        True
        """
        return cls(
            name=document["name"],
            columns=tuple(Column(**column) for column in document["columns"]),
            key=tuple(document["key"]),
            rowid=document["rowid"],
            has_stable_rowid=document["has_stable_rowid"],
            uniques=tuple(tuple((name, rule) for name, rule in each) for each in document["uniques"]),
        )


def quoted(name: str) -> str:
    """A name as SQL writes it.

    >>> quoted('the "best"')
    '"the ""best\"\"\"'
    """
    return '"' + name.replace('"', '""') + '"'


def table_names(connection: sqlite3.Connection) -> list[str]:
    """The tables that can be captured: no views, no virtual tables and what they keep, none of SQLite's or ours."""
    rows = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'").fetchall()
    return sorted(
        name
        for name, kind in rows
        if kind == "table" and not name.startswith("sqlite_") and not name.startswith(OURS)
    )


def describe(connection: sqlite3.Connection, name: str) -> Table:
    """One table."""
    columns, primary = [], []
    for _, column, kind, required, default, place, hidden in connection.execute(
        "SELECT * FROM pragma_table_xinfo(?)", (name,)
    ).fetchall():
        if hidden == 1:
            continue  # of a virtual table
        columns.append(Column(column, kind, not required, default, hidden in (2, 3)))
        if place:
            primary.append((place, column, kind.upper()))
    key = tuple(column for _, column, _ in sorted(primary))
    (without_rowid,) = connection.execute(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,)
    ).fetchone()
    uniques = tuple(dict.fromkeys(_uniques(connection, name)))
    used = {column.name.lower() for column in columns}
    alias = next((each for each in _ALIASES if each not in used), None)
    if not without_rowid and alias is None:
        cause = "its columns are called rowid, _rowid_ and oid, so that its rows cannot be told apart"
        raise CaptureImpossible("capture", f"the table {name}", cause, "Rename one of them.")
    required_columns = {column.name for column in columns if not column.nullable}
    return Table(
        name=name,
        columns=tuple(columns),
        key=key or next((each for each in map(_names, uniques) if required_columns.issuperset(each)), ()),
        rowid=None if without_rowid else alias,
        # Only this very word makes the rowid of a single column.
        has_stable_rowid=not without_rowid and len(primary) == 1 and primary[0][2] == "INTEGER",
        uniques=uniques,
    )


def _names(unique: Unique) -> tuple[str, ...]:
    return tuple(name for name, _ in unique)


def _uniques(connection: sqlite3.Connection, table: str) -> Iterator[Unique]:
    """What unique indexes compare, the primary key's too unless it is the rowid.

    What is unique only for some rows counts: it may conflict. The columns of an index over expressions are not
    known: such an index is left out, and doctor says so.
    """
    indexes = connection.execute(
        'SELECT name, "unique", partial FROM pragma_index_list(?) ORDER BY partial, name', (table,)
    ).fetchall()
    for name, unique, _ in indexes:
        columns = connection.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", (name,)
        ).fetchall()
        if unique and all(column is not None for column, _ in columns):
            yield tuple((column, rule) for column, rule in columns)


def only_adds_nulls(before: Table, after: Table) -> bool:
    """Whether rows that nobody touched look as before: nothing but columns without a default was added."""
    added = after.columns[len(before.columns) :]
    return (
        after.columns[: len(before.columns)] == before.columns
        and (after.key, after.rowid) == (before.key, before.rowid)
        and all(column.default is None and not column.generated for column in added)
        and (bool(after.key) or not added)
    )
