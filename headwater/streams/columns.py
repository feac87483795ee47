"""The columns of a table that declares none: what was found, made part of its declaration, and kept with its build.

A table's definition is what its build was made with. So the columns that were found once are noted beside the build,
and are the table's until it gets another version.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.connect.columns import Column
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format, Table
from headwater.streams.engine.fingerprint import kind_of, rows_of, version_of
from headwater.streams.naming import quoted
from headwater.views.model import ViewInfo

FIND = "find the columns of"


@dataclass(frozen=True)
class Found:
    """Columns, and who told of them."""

    columns: tuple[Column, ...]
    where: str
    # Whether types are known, of a database or a schema, and not concluded from some rows. Then a value that has no
    # place in its type is one that the database may have as well; else it is one that nobody has seen before.
    is_typed: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def with_columns(table: Table, found: Found, reserved: Collection[str] = ()) -> Table:
    """The table as if its columns had been declared. `reserved` are names that no column of a table may have.

    >>> from headwater.connect.columns import BIGINT, STRING
    >>> found = Found((Column("id", BIGINT), Column("full name", STRING)), "a database")
    >>> with_columns(Table("users", "shop.users", ("id",)), found).schema
    '`id` bigint, `full name` string'
    """
    subject = f"the table {table.name}"
    columns = [column for column in found.columns if column.name not in reserved]
    listed = ", ".join(column.name for column in columns) or "none"
    for name in table.key:
        if name not in found.names:
            raise ApplicationInvalid(
                FIND,
                subject,
                f"its key is {name!r}, and {found.where} has the columns {listed}",
                "Name one of them as the key, or declare the schema.",
            )
    lower = [column.name.lower() for column in columns]
    if twice := [column.name for column in columns if lower.count(column.name.lower()) > 1]:
        raise ApplicationInvalid(
            FIND,
            subject,
            f"{found.where} has columns that differ in case alone: {', '.join(twice)}",
            "Declare the schema with one of them.",
        )
    schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    return _described(table, schema, _notes(columns, found.is_typed))


def kept_columns(table: Table, known: ViewInfo | None) -> Table | None:
    """The table with the columns of its newest build; None when its version has none yet."""
    if known is None or not known.versions:
        return None
    newest = known.versions[-1]
    if kind_of(newest.fingerprint) != "table" or version_of(newest.fingerprint) != table.version:
        return None
    rows = rows_of(newest.fingerprint)
    if rows is None:  # built before columns were noted
        columns = newest.schema.columns
        return replace(table, schema=", ".join(f"{quoted(each.name)} {each.type}" for each in columns))
    notes = rows.get("found")
    return _described(table, str(rows["schema"]), None if notes is None else _as_tuples(notes))


def noted(table: Table) -> dict[str, Any]:
    """What is kept with a build: see `kept_columns`."""
    notes = table.format.option("found")
    return {
        "schema": table.schema,
        "found": None if notes is None else {name: dict(value) for name, value in notes},
    }


def _notes(columns: Collection[Column], is_typed: bool) -> tuple[tuple[str, Any], ...]:
    readings = {column.name: column.reading for column in columns}
    units = {name: each.unit for name, each in readings.items() if each.unit is not None}
    digits = {
        name: None if each.scale == "any" else each.scale
        for name, each in readings.items()
        if each.scale is not None
    }
    return _as_tuples({"units": units, "digits": digits, "misfits": {"null": is_typed}})


def _as_tuples(notes: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The same notes always in the same order: they are part of the definition."""
    return tuple((name, tuple(sorted(notes[name].items()))) for name in ("units", "digits", "misfits"))


def _described(table: Table, schema: str, notes: tuple[tuple[str, Any], ...] | None) -> Table:
    options = table.format.options if notes is None else (*table.format.options, ("found", notes))
    return replace(table, schema=schema, format=Format(table.format.name, options))


def reading_notes(format: Format) -> dict[str, dict[str, Any]]:
    """What was found of how columns are read: units of timestamps, texts that are decimals, and misfits.

    >>> reading_notes(Format("auto"))
    {'units': {}, 'digits': {}, 'misfits': {}}
    """
    notes = dict(format.option("found") or ())
    return {name: dict(notes.get(name, ())) for name in ("units", "digits", "misfits")}
