"""Conditions on rows in Python, with the meaning that they have in the view store. Pure.

As there a comparison with null holds for no row, NaN is the largest number and equals itself, and texts compare
by code points. Values of nested types compare by their JSON.
"""

import json
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from headwater.errors import BadInput
from headwater.views.activation import pairs
from headwater.views.filters import OPERATORS, Every, Filter, Where
from headwater.views.model import ViewSchema
from headwater.views.texts import json_texts
from headwater.views.types import arrow_type, is_nested, member_type
from headwater.views.values import one_value, revive

Test = Callable[[Mapping[str, Any]], bool]
# What a row of other columns than the condition was made for can raise.
_OTHER_COLUMNS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matcher(schema: ViewSchema, where: Filter) -> Callable[[bytes], bool]:
    """Whether the condition holds for a row, given as the JSON that changes have.

    For a row of before the view had these columns it does not: a change to its row of now comes behind it.

    >>> from headwater.views.model import Column
    >>> schema = ViewSchema("words", 1, (Column("word", "string"), Column("n", "bigint")), ("word",))
    >>> matches = matcher(schema, Where("n", ">", 2))
    >>> matches(b'{"word":"a","n":3}'), matches(b'{"word":"b","n":2}'), matches(b'{"word":"c","n":null}')
    (True, False, False)
    """
    test = _test(schema, where)
    load: Callable[[bytes], Any] = orjson.loads
    if "decimal" in " ".join(schema.types.values()).lower():  # a float would not hold them
        load = partial(json.loads, parse_float=Decimal)

    def matches(row: bytes) -> bool:
        try:
            return test(load(row))
        except _OTHER_COLUMNS:
            return False

    return matches


def _test(schema: ViewSchema, where: Filter) -> Test:
    if isinstance(where, Where):
        return _comparison(schema, where)
    parts = [_test(schema, part) for part in where.parts]
    if isinstance(where, Every):
        return lambda row: all(part(row) for part in parts)
    return lambda row: any(part(row) for part in parts)


def _comparison(schema: ViewSchema, where: Where) -> Test:
    if where.operator not in OPERATORS:
        cause = f"there is no operator {where.operator!r}"
        raise BadInput("follow the view", schema.name, cause, f"Use one of {', '.join(sorted(OPERATORS))}.")
    find, kind = _operand(schema, where.column)
    if where.operator == "is null":
        return lambda row: find(row) is None
    if where.operator == "is not null":
        return lambda row: find(row) is not None
    many = where.operator == "in"
    try:
        arrays = [one_value(value, kind) for value in (where.value if many else [where.value])]
    except (ValueError, TypeError) as error:
        cause = f"{where.column}: {error}"
        raise BadInput("follow the view", schema.name, cause, "Correct the value.") from None
    values = [_comparable(array, kind) for array in arrays]
    key = _key(kind)
    if many:
        wanted = [value for value in values if value is not None]
        return lambda row: (found := find(row)) is not None and key(found) in wanted
    compare, value = _COMPARE[where.operator], values[0]
    if value is None:
        return lambda row: False
    return lambda row: (found := find(row)) is not None and compare(key(found), value)


def _operand(schema: ViewSchema, name: str) -> tuple[Callable[[Mapping[str, Any]], Any], pa.DataType]:
    if name in schema.types:
        return (lambda row: row[name]), arrow_type(schema.types[name])
    column, *path = name.split(".")
    kind = None
    if column in schema.types:
        kind = member_type(arrow_type(schema.types[column]), tuple(path))
    if kind is None:
        cause = f"there is no column {name!r}; there are {', '.join(schema.types)}"
        raise BadInput("follow the view", schema.name, cause, "Correct the name.")

    def member(row: Mapping[str, Any]) -> Any:
        found: Any = row[column]
        for part in path:
            if found is None:
                return None
            found = found[part]
        return found

    return member, kind


def _key(kind: pa.DataType) -> Callable[[Any], Any]:
    """What turns a value in JSON's types into one that compares as the store's do."""
    if is_nested(kind):
        return lambda value: json_texts(pa.array([pairs(revive(value, kind), kind)], kind))[0].as_py()
    if pa.types.is_floating(kind):
        return lambda value: _number(revive(value, kind))
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return lambda value: value
    return lambda value: revive(value, kind)


def _comparable(array: pa.Array, kind: pa.DataType) -> Any:
    value = array[0].as_py()
    if value is None:
        return None
    if is_nested(kind):
        return json_texts(array)[0].as_py()
    return _number(value) if pa.types.is_floating(kind) else value


def _number(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)
