"""Whether a value has a place in a column, and null where it has none. Pure.

A database may keep what no type of Spark can: PostgreSQL an infinite timestamp, or an array of two dimensions in a
column of arrays; SQLite a text among numbers. In a table whose types were found, and not declared, such a value is
null where it stands, so that its row is not lost with it.
"""

import base64
import binascii
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headwater.views.types import arrow_type

Place = Callable[[Any], Any]

_MOMENT = re.compile(r"(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z?\Z").match
_DAY = re.compile(r"(?!0000)\d{4}-\d\d-\d\d\Z").match
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def place_for(kind: str) -> Place | None:
    """What gives a value back if it fits the type, and None if not; no function where everything fits.

    >>> place_for("bigint")(7), place_for("bigint")("seven"), place_for("string")
    (7, None, None)
    >>> place_for("timestamp")("infinity"), place_for("array<bigint>")([1, [2, 3]])
    (None, [1, None])
    """
    return _place(arrow_type(kind))


def _place(kind: pa.DataType) -> Place | None:
    if pa.types.is_string(kind):
        return None
    if pa.types.is_list(kind):
        return _array(_place(kind.value_type))
    if pa.types.is_struct(kind):
        return _struct({field.name: place for field in kind if (place := _place(field.type))})
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision - kind.scale)
    fits = _FITS.get(kind)
    return None if fits is None else lambda value: value if fits(value) else None


def _array(element: Place | None) -> Place:
    def place(value: Any) -> Any:
        if not isinstance(value, list):
            return None
        return value if element is None else [None if each is None else element(each) for each in value]

    return place


def _struct(members: dict[str, Place]) -> Place:
    def place(value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        return value | {
            name: member(value[name]) for name, member in members.items() if value.get(name) is not None
        }

    return place


def _decimal(whole_digits: int) -> Place:
    def place(value: Any) -> Any:
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            return None
        fits = number.is_finite() and (not number or number.adjusted() < whole_digits)
        return value if fits and not isinstance(value, bool) else None

    return place


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_double(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or value in _NOT_FINITE


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except binascii.Error:
        return False


def _is_moment(value: Any) -> bool:
    return isinstance(value, str) and _MOMENT(value) is not None


_FITS: dict[pa.DataType, Callable[[Any], bool]] = {
    pa.int64(): _is_long,
    pa.float64(): _is_double,
    pa.bool_(): lambda value: isinstance(value, bool),
    pa.binary(): _is_base64,
    pa.timestamp("us", "UTC"): _is_moment,
    pa.timestamp("us"): _is_moment,
    pa.date32(): lambda value: isinstance(value, str) and _DAY(value) is not None,
}
