"""The keys of rows in addresses. Pure.

In a path a key of one column is its value as text: ``/views/users/7``. Several columns stand with commas between
them, in the order of the view's key: ``/views/sales/2026-01-02,CH``. Each value is URL-encoded by itself, so that
a comma or a slash inside one is ``%2C`` or ``%2F``.

Texts are themselves, numbers and booleans as in JSON, times and dates in ISO 8601, binary in base64. A window (a
struct of start and end) is ``START..END``. Any other struct, list or map is its JSON, which does for windows, too.
Null cannot be said in a path.

``?key={"country":"CH","day":"2026-01-02"}``, a JSON object of the key's columns, says all keys; it is what a
change has as its key.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import pyarrow as pa

from headwater.errors import BadInput
from headwater.views.model import ViewSchema
from headwater.views.texts import json_texts
from headwater.views.types import arrow_type, is_nested
from headwater.views.values import one_value

LONGEST = 8000  # bytes of a key in an address
_WHOLE = re.compile(r"-?\d{1,19}\Z", re.ASCII)
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\Z", re.ASCII)
_BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}

ToText = Callable[[str], str]  # from what stands in a path to canonical JSON; ValueError when it is none


class _Fraction(str):
    """A number in JSON that is not whole, as it was written."""


class Keys:
    """Keys of addresses as the texts under which stores keep rows."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[ViewSchema, list[tuple[str, str, ToText]]]] = {}

    def of_path(self, schema: ViewSchema, raw: bytes) -> str:
        """The text of the key that is the last part of a path, as it was sent.

        >>> from headwater.views.model import Column
        >>> columns = (Column("day", "date"), Column("shop", "string"), Column("n", "bigint"))
        >>> Keys().of_path(ViewSchema("sales", 1, columns, ("day", "shop")), b"2026-01-02,a%2Cb")
        '{"day":"2026-01-02","shop":"a,b"}'
        """
        if len(raw) > LONGEST:
            raise _bad(schema, f"it is longer than {LONGEST} bytes")
        known = self._known.get(schema.name)
        if known is None or known[0] is not schema:
            known = self._known[schema.name] = (schema, _columns(schema))
        columns = known[1]
        parts = [raw] if len(columns) == 1 else raw.split(b",")
        if len(parts) == 1 < len(columns):  # encoded as a whole, as programs do that know nothing of keys
            parts = unquote_to_bytes(raw).replace(b"%", b"%25").split(b",")
        if len(parts) != len(columns):
            raise _bad(schema, f"it has {len(parts)} values instead of {len(columns)}")
        texts = []
        for part, (name, prefix, to_text) in zip(parts, columns, strict=True):
            try:
                texts.append(prefix + to_text(_decoded(part)))
            except (ValueError, TypeError):
                shown = part.decode("utf-8", "replace")
                raise _bad(schema, f"{shown!r} is not a value of {name}") from None
        return "{" + ",".join(texts) + "}"

    def of_json(self, schema: ViewSchema, text: str) -> str:
        """The text of a key that is given as a JSON object.

        >>> from headwater.views.model import Column
        >>> Keys().of_json(ViewSchema("users", 1, (Column("id", "bigint"),), ("id",)), '{"id": 7}')
        '{"id":7}'
        """
        if len(text) > LONGEST:
            raise _bad(schema, f"it is longer than {LONGEST} characters")
        try:
            given = json.loads(text, parse_float=_Fraction, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise _bad(schema, "it is not JSON") from None
        if not isinstance(given, dict) or set(given) != set(schema.key):
            raise _bad(schema, "it is not an object of just the columns of the key")
        texts = []
        for name in schema.key:
            try:
                value = _json_value(given[name], arrow_type(schema.types[name]))
            except (ValueError, TypeError):
                raise _bad(schema, f"{given[name]!r} is not a value of {name}") from None
            texts.append(f"{orjson.dumps(name).decode()}:{value}")
        return "{" + ",".join(texts) + "}"


def describe_key(schema: ViewSchema) -> str:
    """The columns of a key, for people.

    >>> from headwater.views.model import Column
    >>> describe_key(ViewSchema("users", 1, (Column("id", "bigint"),), ("id",)))
    'id (bigint)'
    """
    return ",".join(f"{name} ({schema.types[name]})" for name in schema.key)


def is_window(kind: pa.DataType) -> bool:
    """Whether a type is that of Spark's windows: a struct of a start and an end."""
    return bool(
        pa.types.is_struct(kind)
        and [member.name for member in kind] == ["start", "end"]
        and all(pa.types.is_timestamp(member.type) for member in kind)
    )


def _columns(schema: ViewSchema) -> list[tuple[str, str, ToText]]:
    return [
        (name, orjson.dumps(name).decode() + ":", _to_text(arrow_type(schema.types[name])))
        for name in schema.key
    ]


def _to_text(kind: pa.DataType) -> ToText:
    if pa.types.is_string(kind):
        return lambda text: orjson.dumps(text).decode()
    if pa.types.is_integer(kind):
        bound = 2 ** _BITS[kind]

        def whole(text: str) -> str:
            number = int(text) if _WHOLE.match(text) else bound
            if not -bound <= number < bound:
                raise ValueError(text)
            return str(number)

        return whole
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):

        def number(text: str) -> str:
            if not _NUMBER.match(text) and text not in ("NaN", "Infinity", "-Infinity"):
                raise ValueError(text)
            return _canonical(text, kind)

        return number
    if is_window(kind):

        def window(text: str) -> str:
            start, dots, end = text.partition("..")
            return _canonical([start, end] if dots and text[0] != "{" else text, kind)

        return window
    return lambda text: _canonical(text, kind)


def _canonical(value: Any, kind: pa.DataType) -> str:
    array = one_value(value, kind)
    if array.null_count:  # JSON's null for a struct
        raise ValueError(value)
    text: str = json_texts(array)[0].as_py()
    return text


def _json_value(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    number = isinstance(value, int | _Fraction) and not isinstance(value, bool)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if number and not numeric:
        raise ValueError(value)
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise ValueError(value)
    if isinstance(value, dict | list) and not is_nested(kind):
        raise ValueError(value)
    _check_members(value, kind)
    return _canonical(str(value) if number else value, kind)


def _check_members(value: Any, kind: pa.DataType) -> None:
    """Structs have all their members, and no others."""
    if pa.types.is_struct(kind) and value is not None:
        if not isinstance(value, dict) or set(value) != {member.name for member in kind}:
            raise ValueError(value)
        for member in kind:
            _check_members(value[member.name], member.type)


def _decoded(part: bytes) -> str:
    return (unquote_to_bytes(part) if b"%" in part else part).decode("utf-8")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _bad(schema: ViewSchema, cause: str) -> BadInput:
    plural: Sequence[str] = schema.key
    step = f"The key of {schema.name} is {describe_key(schema)}"
    step += ", with commas between them." if len(plural) > 1 else "."
    return BadInput("understand the key of a row of", schema.name, cause, step)
