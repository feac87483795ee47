"""Values between people, Python and the store. Pure."""

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson
import pyarrow as pa

from headwater.views.types import is_nested

Decoder = Callable[[Any], Any]


def utc(text: str) -> datetime:
    """An ISO 8601 time; one without an offset is in UTC.

    >>> utc("2026-01-02T03:04:05.000000Z")
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def single(value: float) -> float:
    """The single that was meant by its shortest text.

    >>> single(0.1)
    0.10000000149011612
    """
    nearest: float = struct.unpack("f", struct.pack("f", value))[0]
    return nearest


def json_decoder(kind: pa.DataType) -> Decoder:
    """What turns a nested value's JSON text into Python's types.

    >>> from headwater.views.types import arrow_type
    >>> json_decoder(arrow_type("map<int,decimal(5,2)>"))('{"1":2.50}')
    {1: Decimal('2.50')}
    """
    if _has_decimal(kind):  # a float would not hold them
        return lambda text: revive(json.loads(text, parse_float=Decimal), kind)
    return lambda text: revive(orjson.loads(text), kind)


def revive(value: Any, kind: pa.DataType) -> Any:
    """A value in JSON's types as one in Python's, by its type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {member.name: revive(value.get(member.name), member.type) for member in kind}
    if pa.types.is_map(kind):
        return {_revive_key(name, kind.key_type): revive(v, kind.item_type) for name, v in value.items()}
    if pa.types.is_list(kind):
        return [revive(element, kind.value_type) for element in value]
    if pa.types.is_timestamp(kind):
        return utc(value) if kind.tz else datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_float32(kind):
        return single(float(value))
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    return value


def _revive_key(name: str, kind: pa.DataType) -> Any:
    if is_nested(kind):
        return name  # Python's dicts cannot have a struct for a key
    if pa.types.is_integer(kind):
        return int(name)
    if pa.types.is_boolean(kind):
        return name == "true"
    return revive(name, kind)


def _has_decimal(kind: pa.DataType) -> bool:
    if is_nested(kind):
        return any(_has_decimal(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def one_value(value: Any, kind: pa.DataType) -> pa.Array:
    """A value somebody gave, as an array of one of the column's type; ValueError when it does not fit.

    Texts are read as people type them, since that is what a command line or an address has.

    >>> from headwater.views.types import arrow_type
    >>> one_value("12", arrow_type("bigint"))[0].as_py()
    12
    >>> one_value("noon", arrow_type("timestamp"))
    Traceback (most recent call last):
    ValueError: 'noon' is not a timestamp[us, tz=UTC]
    """
    try:
        return pa.array([_fitting(value, kind)], kind)
    except (ValueError, TypeError, InvalidOperation, pa.ArrowException, OverflowError):
        raise ValueError(f"{value!r} is not a {kind}") from None


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if is_nested(kind):
        return _fitting_nested(orjson.loads(value) if isinstance(value, str) else value, kind)
    if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz is None:
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_boolean(kind):
        if value.lower() not in ("true", "false"):
            raise ValueError(value)
        return value.lower() == "true"
    return revive(value, kind)


def _fitting_nested(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if isinstance(value, Mapping):
            value = [value.get(member.name) for member in kind]
        if not isinstance(value, Sequence) or len(value) != kind.num_fields:
            raise ValueError(value)
        return {m.name: _fitting(v, m.type) for m, v in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [
            (_fitting(name, kind.key_type), _fitting(v, kind.item_type)) for name, v in dict(value).items()
        ]
    return [_fitting(element, kind.value_type) for element in value]


def to_json(row: Mapping[str, Any]) -> str:
    """A row that the store returned as one line of JSON, as a changelog has it but for the order of digits.

    >>> to_json({"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("2.50"), "raw": b"x"})
    '{"at":"2026-01-02T00:00:00.000000Z","price":2.50,"raw":"eA=="}'
    """
    return _dumped(dict(row))


def _dumped(value: Any) -> str:
    if isinstance(value, dict):
        members = [f"{orjson.dumps(_name(name)).decode()}:{_dumped(v)}" for name, v in value.items()]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if value != value else ('"Infinity"' if value > 0 else '"-Infinity"')
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f'"{text}Z"' if value.tzinfo else f'"{text}"'
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    return orjson.dumps(value).decode()


def _name(name: Any) -> str:
    return name if isinstance(name, str) else _dumped(name).strip('"')
