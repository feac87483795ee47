"""What a switch of versions changes in a view's content, as entries of the outbox."""

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.views.database import Connection, Database
from headwater.views.model import ViewSchema
from headwater.views.texts import json_objects
from headwater.views.types import arrow_type
from headwater.views.writer import KEY, outbox_name, table_name

_PIECE = 10_000  # rows turned into JSON at a time


def record_difference(
    database: Database,
    connection: Connection,
    old: ViewSchema | None,
    new: ViewSchema | None,
    batch: int | None,
    last_change: int,
) -> int:
    """Record deletes of what only ``old`` has and upserts of what is new or other in ``new``.

    Returns the last number given. Rows of different columns count as changed. The contents themselves are
    not touched.
    """
    if old is not None:
        last_change = _record_deletes(database, connection, old, new, batch, last_change)
    if new is not None:
        last_change = _record_upserts(database, connection, old, new, batch, last_change)
    return last_change


def _record_deletes(
    database: Database,
    connection: Connection,
    old: ViewSchema,
    new: ViewSchema | None,
    batch: int | None,
    last_change: int,
) -> int:
    quote = database.quote
    source = f"{quote(table_name(old.name, old.version))} o"
    if new is not None:
        source += f" LEFT JOIN {quote(table_name(new.name, new.version))} n ON n.{KEY} = o.{KEY}"
        source += f" WHERE n.{KEY} IS NULL"
    deleted = connection.execute(
        f"INSERT INTO {quote(outbox_name(old.name))} (number, batch, op, key) "
        f"SELECT {last_change} + row_number() OVER (ORDER BY o.{KEY}), {database.mark}, 'delete', o.{KEY} "
        f"FROM {source}",
        (batch,),
    )
    return last_change + deleted.rowcount


def _record_upserts(
    database: Database,
    connection: Connection,
    old: ViewSchema | None,
    new: ViewSchema,
    batch: int | None,
    last_change: int,
) -> int:
    quote = database.quote
    columns = [quote(column.name) for column in new.columns]
    source = f"{quote(table_name(new.name, new.version))} n"
    if old is not None and old.columns == new.columns:
        left, right = (f"({', '.join(f'{side}.{name}' for name in columns)})" for side in "no")
        source += f" LEFT JOIN {quote(table_name(old.name, old.version))} o ON o.{KEY} = n.{KEY}"
        source += f" WHERE o.{KEY} IS NULL OR {database.differ(left, right)}"
    chosen = ", ".join(f"n.{name}" for name in [KEY, *columns])
    outbox = quote(outbox_name(new.name))
    for rows in database.stream(connection, f"SELECT {chosen} FROM {source} ORDER BY n.{KEY}", _PIECE):
        keys, *values = zip(*rows, strict=True)
        arrays = {
            column.name: stored_array(database, stored, arrow_type(column.type))
            for column, stored in zip(new.columns, values, strict=True)
        }
        entries = {
            "number": pa.array(np.arange(len(rows)) + last_change + 1),
            "batch": pa.array([batch] * len(rows), pa.int64()),
            "op": pa.array(["upsert"] * len(rows), pa.string()),
            "key": pa.array(keys, pa.string()),
            "value": json_objects(arrays),
        }
        database.load(connection, outbox, entries)
        last_change += len(rows)
    return last_change


def stored_array(database: Database, stored: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    """A column as it was read from the database."""
    decode = database.decoder(kind)
    if decode is None:
        return pa.array(stored, kind)
    values = [None if value is None else decode(value) for value in stored]
    return pa.array([pairs(value, kind) for value in values], kind)


def pairs(value: Any, kind: pa.DataType) -> Any:
    """Maps as Arrow takes them."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, pairs(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind):
        return {member.name: pairs(value[member.name], member.type) for member in kind}
    if pa.types.is_list(kind):
        return [pairs(element, kind.value_type) for element in value]
    return value
