"""The rows of a batch made ready for a store: checked, with the types of the schema, one row a key. Pure."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import BadInput, ViewChanged
from headwater.views.model import ViewSchema
from headwater.views.texts import joined_objects, json_objects, json_texts, valid_strings
from headwater.views.types import arrow_type, is_nested
from headwater.views.values import one_value
from headwater.views.years import with_known_years

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON, unless its backslash is itself escaped


class EncodedRows:
    """Columns of equal length, nested ones as JSON texts, and the canonical text of each row's key.

    ``known`` has the JSON texts of some columns: a window is part of the key, a column, and part of the row.
    """

    def __init__(self, keys: pa.Array, columns: dict[str, pa.Array], known: dict[str, pa.Array]) -> None:
        self.keys = keys
        self.columns = columns
        self._known = known

    def __len__(self) -> int:
        return len(self.keys)

    @functools.cached_property
    def texts(self) -> pa.Array:
        """Each row as a JSON object."""
        return joined_objects(
            {
                name: self._known[name] if name in self._known else json_texts(column)
                for name, column in self.columns.items()
            }
        )

    def pieces(self, size: int) -> "list[EncodedRows]":
        """The rows in pieces of at most ``size``, which bounds the memory that staging takes."""
        if len(self) <= size:
            return [self]
        return [self._slice(at, size) for at in range(0, len(self), size)]

    def sorted_by_key(self) -> "EncodedRows":
        """Of each key the last row, in the order of the keys: neighbours in a table are found together."""
        places = _last_of_each(self.keys)
        if places is None:
            places = pc.sort_indices(self.keys)
        else:
            places = places.take(pc.sort_indices(self.keys.take(places)))
        return self._changed(lambda array: array.take(places))

    def _slice(self, at: int, size: int) -> "EncodedRows":
        return self._changed(lambda array: array[at : at + size])

    def _changed(self, change: Callable[[pa.Array], pa.Array]) -> "EncodedRows":
        return EncodedRows(
            change(self.keys),
            {name: change(array) for name, array in self.columns.items()},
            {name: change(array) for name, array in self._known.items()},
        )


def encode_rows(schema: ViewSchema, table: pa.Table, *, keeps_nul: bool = True) -> EncodedRows:
    """The table's rows, of each key the last one, in the order of the keys.

    Where a database keeps no NUL, keys and changes have the symbol for it as well, so that they are the row's.

    >>> from headwater.views.model import Column
    >>> schema = ViewSchema("words", 1, (Column("word", "string"), Column("n", "bigint")), ("word",))
    >>> rows = encode_rows(schema, pa.table({"n": [1, 2, 3], "word": ["a", "b", "a"]}))
    >>> rows.keys.to_pylist(), rows.columns["n"].to_pylist()
    (['{"word":"a"}', '{"word":"b"}'], [3, 2])
    """
    wanted = [column.name for column in schema.columns]
    columns = _columns(schema, table, wanted, keeps_nul)
    known = {
        name: json_texts(column)
        for name, column in columns.items()
        if name in schema.key or is_nested(column.type)
    }
    for name, column in columns.items():
        if is_nested(column.type):
            columns[name] = pc.if_else(pc.is_valid(column), known[name], None)
    keys = joined_objects({name: known[name] for name in schema.key})
    return EncodedRows(keys, columns, known).sorted_by_key()


def encode_keys(
    schema: ViewSchema, table: pa.Table | None, besides: pa.Array, *, keeps_nul: bool = True
) -> pa.Array:
    """The keys' texts, each once, without those in ``besides``."""
    if table is None or len(table) == 0:
        return pa.array([], pa.string())
    keys = json_objects(_columns(schema, table, list(schema.key), keeps_nul)).unique()
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


def without_nul(schema: ViewSchema, key: str) -> str:
    """The text of a key as `encode_rows` gives it where a database keeps no NUL: inside structs it stays.

    >>> from headwater.views.model import Column
    >>> words = ViewSchema("words", 1, (Column("word", "string"),), ("word",))
    >>> without_nul(words, encode_key(words, ["a\\0"])) == encode_key(words, ["a\\u2400"])
    True
    """
    if "\\u0000" not in key or any(is_nested(arrow_type(schema.types[name])) for name in schema.key):
        return key
    return _NUL.sub("\\1\u2400", key)


def _columns(schema: ViewSchema, table: pa.Table, wanted: list[str], keeps_nul: bool) -> dict[str, pa.Array]:
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
        if not pa.types.is_string(kind):
            columns[name] = with_known_years(array)
        elif keeps_nul:
            columns[name] = valid_strings(array)
        else:
            columns[name] = pc.replace_substring(valid_strings(array), "\0", "\u2400")
    return columns


def _last_of_each(keys: pa.Array) -> pa.Array | None:
    """Where the last row of each key is; None when no key comes twice."""
    encoded = keys.dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return None
    last = np.empty(len(encoded.dictionary), np.int64)
    last[encoded.indices.to_numpy()] = np.arange(len(keys))  # of several values for one place the last stays
    return pa.array(last)
