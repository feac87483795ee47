"""The rows of a batch made ready for a store: checked, with the types of the schema, one row a key. Pure."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import BadInput, ViewChanged
from headwater.views.model import ViewSchema
from headwater.views.texts import json_objects, valid_strings
from headwater.views.types import arrow_type
from headwater.views.values import one_value


class EncodedRows:
    """Columns of equal length, and the canonical text of each row's key."""

    def __init__(self, keys: pa.Array, columns: dict[str, pa.Array]) -> None:
        self.keys = keys
        self.columns = columns

    def __len__(self) -> int:
        return len(self.keys)

    @functools.cached_property
    def texts(self) -> pa.Array:
        """Each row as a JSON object."""
        return json_objects(self.columns)

    def pieces(self, size: int) -> "list[EncodedRows]":
        """The rows in pieces of at most ``size``, which bounds the memory that staging takes."""
        if len(self) <= size:
            return [self]
        return [
            EncodedRows(self.keys[at : at + size], {n: c[at : at + size] for n, c in self.columns.items()})
            for at in range(0, len(self), size)
        ]


def encode_rows(schema: ViewSchema, table: pa.Table) -> EncodedRows:
    """The table's rows, of each key the last one.

    >>> from headwater.views.model import Column
    >>> schema = ViewSchema("words", 1, (Column("word", "string"), Column("n", "bigint")), ("word",))
    >>> rows = encode_rows(schema, pa.table({"n": [1, 2, 3], "word": ["a", "b", "a"]}))
    >>> rows.keys.to_pylist(), rows.columns["n"].to_pylist()
    (['{"word":"b"}', '{"word":"a"}'], [2, 3])
    """
    wanted = [column.name for column in schema.columns]
    columns = _columns(schema, table, wanted)
    keys = json_objects({name: columns[name] for name in schema.key})
    last = _last_of_each(keys)
    if last is not None:
        keys = keys.take(last)
        columns = {name: column.take(last) for name, column in columns.items()}
    return EncodedRows(keys, columns)


def encode_keys(schema: ViewSchema, table: pa.Table | None, besides: pa.Array) -> pa.Array:
    """The keys' texts, each once, without those in ``besides``."""
    if table is None or len(table) == 0:
        return pa.array([], pa.string())
    keys = json_objects(_columns(schema, table, list(schema.key))).unique()
    return keys.filter(pc.invert(pc.is_in(keys, value_set=besides)))


def encode_key(schema: ViewSchema, key: Sequence[Any]) -> str:
    """The text of one key that somebody asks for.

    >>> from headwater.views.model import Column
    >>> encode_key(ViewSchema("v", 1, (Column("user", "bigint"),), ("user",)), ["7"])
    '{"user":7}'
    """
    if isinstance(key, str | bytes) or len(key) != len(schema.key):
        cause = f"a key has {len(schema.key)} values ({', '.join(schema.key)}), not {key!r}"
        raise BadInput("look up a row of the view", schema.name, cause, "Give one value for each of them.")
    try:
        columns = {
            name: one_value(value, arrow_type(schema.types[name]))
            for name, value in zip(schema.key, key, strict=True)
        }
    except ValueError as error:
        step = "Give a value of that type."
        raise BadInput("look up a row of the view", schema.name, str(error), step) from None
    text: str = json_objects(columns)[0].as_py()
    return text


def _columns(schema: ViewSchema, table: pa.Table, wanted: list[str]) -> dict[str, pa.Array]:
    if sorted(table.column_names) != sorted(wanted):
        cause = f"the batch has the columns {', '.join(table.column_names)}, not {', '.join(wanted)}"
        raise ViewChanged("write rows of the view", f"{schema.name} version {schema.version}", cause)
    columns: dict[str, pa.Array] = {}
    for name in wanted:
        kind = arrow_type(schema.types[name])
        column = table.column(name)
        try:
            if column.type != kind:
                column = column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            cause = f"the column {name} holds {column.type}, not {schema.types[name]}: {error}"
            subject = f"{schema.name} version {schema.version}"
            raise ViewChanged("write rows of the view", subject, cause) from None
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # what older Arrow returns for no or many chunks
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], kind)
        columns[name] = valid_strings(array) if pa.types.is_string(kind) else array
    return columns


def _last_of_each(keys: pa.Array) -> pa.Array | None:
    """Where the last row of each key is, ascending; None when no key comes twice."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return None
    numbered = pa.table({"key": keys, "at": np.arange(len(keys))})
    last = numbered.group_by("key").aggregate([("at", "max")]).column("at_max").combine_chunks()
    return last.take(pc.sort_indices(last))
