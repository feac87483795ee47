"""The columns of a SQLite table, by the types that read them out of its change events.

SQLite keeps a value of any kind in any column, unless the table is STRICT. So the declared type is checked against
the rows that are there: a column that has texts where it declares numbers is read as texts, since a text reads every
value. What comes later and is of another kind than all that was there has no place in its column.
"""

from collections.abc import Collection, Sequence
from typing import Any

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite.database import Database, file_of
from headwater.connect.cdc.sqlite.schema import Table, describe, quoted, table_names
from headwater.connect.columns import BIGINT, BINARY, DOUBLE, STRING, Column, Reading

_INFINITE = ("Infinity", "-Infinity")  # as change events have them
LOOKED_AT = 10_000  # of the first rows, and of the last


def reading(declared: str, found: Collection[str] = (), *, strict: bool = False) -> Reading:
    """How a column is read, by its declared type and the kinds of values that SQLite says to be in it.

    Change events have blobs as base64, a text like any other: only where a table is STRICT it can be told from one.

    >>> [reading(kind).type for kind in ("INTEGER", "VARCHAR(20)", "DOUBLE", "DECIMAL(10,2)", "BLOB", "DATETIME", "")]
    ['bigint', 'string', 'double', 'double', 'string', 'string', 'string']
    >>> reading("BLOB", strict=True).type
    'binary'
    >>> reading("INTEGER", {"integer", "real"}).type, reading("INTEGER", {"integer", "text"}).type
    ('double', 'string')
    """
    name, kinds = declared.upper(), set(found) - {"null"}
    if strict and name == "BLOB":
        return BINARY
    wanted, fits = _by_affinity(name)
    if kinds <= fits:
        return wanted
    return DOUBLE if wanted == BIGINT and kinds <= {"integer", "real"} else STRING


def _by_affinity(name: str) -> tuple[Reading, set[str]]:
    """What a declared type means to SQLite, by its own rules, and which kinds of values that reads."""
    if "INT" in name:
        return BIGINT, {"integer"}
    if any(part in name for part in ("CHAR", "CLOB", "TEXT", "BLOB")):
        return STRING, {"text"}
    if any(part in name for part in ("REAL", "FLOA", "DOUB", "NUM", "DEC")):
        return DOUBLE, {"real", "integer"}
    if "BOOL" in name:  # 0 and 1: SQLite has no others
        return BIGINT, {"integer"}
    return STRING, {"text"}  # dates, JSON, UUIDs, or nothing: numbers or texts, as the writer likes


def reading_of(declared: str, values: Collection[Any]) -> Reading:
    """As `reading`, by values that were captured.

    >>> reading_of("INTEGER", [1, 2]).type, reading_of("INTEGER", [1, "two"]).type, reading_of("REAL", [1.5]).type
    ('bigint', 'string', 'double')
    """
    names: dict[type, str] = {int: "integer", float: "real"}
    return reading(declared, {names.get(type(value), "text") for value in values if value not in _INFINITE})


def read_columns(options: CdcOptions, topic: str) -> Sequence[Column] | None:
    """The columns of the table that becomes a topic; None when there is no such table."""
    database = Database(file_of(options.url), read_only=True)
    try:
        with database.reading() as connection:
            named = {options.table_topic("main", name): name for name in reversed(table_names(connection))}
            if topic not in named:
                return None
            table = describe(connection, named[topic])
            kinds = connection.execute(_kinds(table)).fetchall()
            (strict,) = connection.execute(
                "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table.name,)
            ).fetchone()
    finally:
        database.close()
    return [
        Column(column.name, reading(column.type, {row[place] for row in kinds}, strict=bool(strict)))
        for place, column in enumerate(table.columns)
    ]


def _kinds(table: Table) -> str:
    """Asks for the kinds of values in the first and the last rows."""
    names = ", ".join(quoted(name) for name in table.names)
    kinds = ", ".join(f"typeof({quoted(name)})" for name in table.names)
    # The rowid is no column: in quotes it could be taken for a text.
    identity = [table.rowid] if table.rowid is not None else [quoted(name) for name in table.key]

    def rows(direction: str) -> str:
        order = ", ".join(f"{name} {direction}" for name in identity)
        return f"SELECT * FROM (SELECT {names} FROM {quoted(table.name)} ORDER BY {order} LIMIT {LOOKED_AT})"

    return f"SELECT DISTINCT {kinds} FROM ({rows('ASC')} UNION ALL {rows('DESC')})"
