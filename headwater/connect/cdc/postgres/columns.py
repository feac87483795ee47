"""The columns of a PostgreSQL table, by the types that read them out of its change events."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.postgres.catalog import (
    TableInfo,
    all_tables,
    ask,
    connect,
    look_up_types,
    lost,
    named_tables,
)
from headwater.connect.cdc.postgres.tables import split_name, topic_of
from headwater.connect.cdc.postgres.types import NOT_ARRAYS, TypeRow, Types, is_built_in, precision_and_scale
from headwater.connect.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    MOMENT,
    POINT,
    STRING,
    Column,
    Reading,
    decimal,
    local_timestamp,
)

_SIMPLE = {
    "bool": BOOLEAN,
    "int2": BIGINT,
    "int4": BIGINT,
    "int8": BIGINT,
    "oid": BIGINT,
    "float4": DOUBLE,
    "float8": DOUBLE,
    "bytea": BINARY,
    "money": Reading("decimal(19,2)"),
    "date": DATE,
    "time": BIGINT,
    "timestamptz": MOMENT,
    "point": POINT,
}
# Inside a composite value nothing says what a number or a text means: it is read as what JSON has there.
_AS_JSON_HAS_IT = {"date": BIGINT, "timestamp_ntz": BIGINT, "timestamp": STRING}

_declared = re.compile(r"(\w+)(?:\((\d+)(?:,(-?\d+))?\))?(\[\])?\Z").match
_plain_name = re.compile(r"\w+\Z").match


def reading(types: Types, oid: int, modifier: int, dimensions: int = 1) -> Reading:
    """How values of a type are read; what is not known here is a string, as in the events.

    >>> types = Types(lambda oids: [TypeRow(1700, "numeric", "b"), TypeRow(1231, "_numeric", "b", element=1700)])
    >>> reading(types, 1700, (10 << 16 | 2) + 4).type, reading(types, 1231, (8 << 16 | 3) + 4).type
    ('decimal(10,2)', 'array<decimal(8,3)>')
    >>> reading(types, 1700, -1)
    Reading(type='string', unit=None, scale='any')
    """
    row = types.row(oid)
    if row.kind == "d":
        return reading(types, row.base, row.modifier if modifier < 0 else modifier, dimensions)
    if row.kind == "c":
        return _composite(types, row)
    if row.element and row.name not in NOT_ARRAYS:
        bits = types.row(row.element).name in ("bit", "varbit")
        element = STRING if bits else reading(types, row.element, modifier)
        depth = max(1, dimensions)
        return element._replace(type="array<" * depth + element.type + ">" * depth)
    if row.kind != "b" or not is_built_in(row.oid):
        return STRING
    if row.name == "numeric":
        return Reading("string", scale="any") if modifier < 0 else decimal(*precision_and_scale(modifier))
    if row.name == "timestamp":
        return local_timestamp(6 if modifier < 0 else modifier)
    if row.name == "bit":
        return BOOLEAN if modifier == 1 else BINARY
    return _SIMPLE.get(row.name, STRING)


def _composite(types: Types, row: TypeRow) -> Reading:
    names = [name for name, _, _ in row.fields]
    if not names or not all(map(_plain_name, names)) or len({name.lower() for name in names}) < len(names):
        return STRING  # of the whole object
    members = [f"{name}:{_as_json(reading(types, oid, modifier)).type}" for name, oid, modifier in row.fields]
    return Reading(f"struct<{','.join(members)}>")


def _as_json(inside: Reading) -> Reading:
    if inside.type.startswith(("decimal", "array")):
        return STRING
    return _AS_JSON_HAS_IT.get(inside.type, inside)


def reading_of(declared: str, values: Collection[Any]) -> Reading | None:
    """By the type of a column in a schema event, and its values; None for types that are not PostgreSQL's own.

    >>> reading_of("numeric(8,3)[]", []).type, reading_of("timestamp(3)", []).unit, reading_of("public.mood", [])
    ('array<decimal(8,3)>', 'millis', None)
    """
    found = _declared(declared)
    if found is None:
        return None
    name, first, second, array = found.groups()
    modifier = -1 if first is None else int(first)
    if name == "numeric" and first is not None:
        modifier = (int(first) << 16 | int(second or 0) & 0x7FF) + 4
    depths = {_depth(value) for value in values if value} if array else {1}
    if len(depths) > 1:
        return STRING  # which has the text of any array
    types = Types(lambda oids: [TypeRow(1, name, "b"), TypeRow(2, f"_{name}", "b", element=1)])
    return reading(types, 2 if array else 1, modifier, max(depths, default=1))


def _depth(value: Any) -> int:
    """How many dimensions an array has; PostgreSQL does not hold a column to those that it declares.

    >>> _depth([[1, 2], [3, 4]]), _depth([7])
    (2, 1)
    """
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def read_columns(options: CdcOptions, topic: str) -> Sequence[Column] | None:
    """The columns of the table that becomes a topic; None when there is no such table."""
    with connect(options.url) as connection, lost("ask", options.shown_url):
        if options.tables is None:
            tables = all_tables(connection)
        else:
            tables = named_tables(connection, [split_name(name) for name in options.tables])
        table = next((each for each in tables if _topic(options, each) == topic), None)
        if table is None:
            return None
        dimensions = dict(
            ask(connection, "SELECT attname::text, attndims FROM pg_attribute WHERE attrelid = %s", table.oid)
        )
        types = Types(lambda oids: look_up_types(connection, oids))
        return [
            Column(each.name, reading(types, each.type_oid, each.modifier, dimensions.get(each.name, 1)))
            for each in table.columns
        ]


def _topic(options: CdcOptions, table: TableInfo) -> str:
    return topic_of(options, table.schema, table.name)
