"""JSON rows as Arrow columns whose types stay the same from file to file. No I/O.

JSON does not say more than number, text, truth and nothing. A column is a whole number, a number, a text or a truth by
what it has held so far; what is nested is JSON text; a column that has held things of two kinds is text from then on
(whole numbers among numbers excepted: those are all doubles then), as is one of whole numbers beyond 64 bits. A column
that has held nothing but null has no type yet, and is left out until it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.connect.sinks.identity import as_text

_BY_TYPE = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_TEXT = pa.string()
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class Columns:
    """The types of the columns of one table, as far as they are known."""

    def __init__(self, known: Mapping[str, pa.DataType] | None = None) -> None:
        self.types: dict[str, pa.DataType] = dict(known or {})

    def learn(self, types: Mapping[str, pa.DataType]) -> None:
        """What another file says.

        >>> columns = Columns({"a": pa.int64()})
        >>> columns.learn({"a": pa.float64(), "b": pa.bool_()}); columns.types
        {'a': DataType(double), 'b': DataType(bool)}
        """
        for name, kind in types.items():
            self.types[name] = _joined(self.types.get(name), kind)

    def arrays(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, pa.Array]:
        """The columns of these rows, and of all known before; None is a row without values.

        >>> {name: array.to_pylist() for name, array in Columns().arrays([{"a": 1, "b": [2]}, None, {"a": 3}]).items()}
        {'a': [1, None, 3], 'b': ['[2]', None, None]}
        """
        names = dict.fromkeys(self.types)
        for row in rows:
            if row is not None:
                names.update(dict.fromkeys(row))
        arrays = {}
        for name in names:
            values = [None if row is None else row.get(name) for row in rows]
            kind = _joined(self.types.get(name), _kind(values))
            if kind is not None:
                self.types[name] = kind
                arrays[name] = _array(values, kind)
        return arrays


def _kind(values: Iterable[Any]) -> pa.DataType | None:
    values = list(values)
    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return None
    if types == {int}:
        numbers = [value for value in values if value is not None]
        return pa.int64() if min(numbers) >= _SMALLEST and max(numbers) <= _LARGEST else _TEXT
    if types == {int, float}:
        return pa.float64()
    return _BY_TYPE.get(types.pop(), _TEXT) if len(types) == 1 else _TEXT


def _joined(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None or one == other:
        return one if other is None else other
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else _TEXT


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == _TEXT:
        return pa.array([None if value is None else as_text(value) for value in values], _TEXT)
    if kind == pa.float64():
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)
