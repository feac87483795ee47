"""Tables that change: the events that say so, and whether their rows have to be read again. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from headwater.connect.cdc.postgres.catalog import TableInfo
from headwater.connect.cdc.postgres.plan import Field, Names
from headwater.connect.cdc.postgres.types import Types, keeps_text
from headwater.connect.source import Record

Form = Mapping[str, Any]  # {"columns": [[name, type, modifier], ...], "key": [...]}


def described(fields: Sequence[Field], key: Sequence[str]) -> Form:
    """What is remembered of a table, to be compared with what it becomes."""
    columns = [[field.name, field.type_oid, field.modifier] for field in fields if field.expression is None]
    return {"columns": columns, "key": list(key)}


def schema_event(
    topic: str,
    names: Names,
    schema: str,
    table: str,
    fields: Sequence[Field],
    key: Sequence[str],
    types: Types,
    lsn: int,
    nanoseconds: int,
) -> Record:
    """The event of a table's (new) form."""
    value = {
        "source": {
            "version": names.version,
            "connector": "postgresql",
            "name": names.logical,
            "ts_ms": nanoseconds // 1_000_000,
            "db": names.database,
            "schema": schema,
            "table": table,
            "lsn": lsn,
        },
        "table": f"{schema}.{table}",
        "columns": [
            {
                "name": field.name,
                "type": types.name(field.type_oid, field.modifier),
                "key": field.name in key,
                "generated": field.expression is not None,
            }
            for field in fields
        ],
        "ddl": None,  # PostgreSQL does not log it
        "ts_ms": nanoseconds // 1_000_000,
    }
    return Record(topic, orjson.dumps({"table": f"{schema}.{table}"}), orjson.dumps(value), None)


def must_read_again(before: Form | None, after: Form, info: TableInfo | None, types: Types) -> bool:
    """Whether rows that nobody touched look otherwise now: of that the stream says nothing.

    A column that was added without a default is null in all of them, as one that is missing; a dropped one is
    of no interest. A column with another name or type, a default, another key: all rows are other rows.
    """
    if before is None:
        return True
    if list(before["key"]) != list(after["key"]):
        return True
    old = {name: (oid, modifier) for name, oid, modifier in before["columns"]}
    new = {name: (oid, modifier) for name, oid, modifier in after["columns"]}
    for name in old.keys() & new.keys():
        if old[name] != new[name] and not keeps_text(types.row(old[name][0]), types.row(new[name][0])):
            return True
    added = new.keys() - old.keys()
    if not added:
        return False
    if old.keys() - new.keys() or info is None:
        return True  # it may have been renamed
    now = {column.name: column for column in info.columns}
    return any(
        name not in now or now[name].default is not None or now[name].identity or now[name].filled_in
        for name in added
    )
