"""Requests and responses of every version, on kio's schemas.

A handler is written once for all versions of its API. It reads a request by attribute (a field that an older
version lacks is read with ``getattr(request, name, default)``) and returns plain nested dictionaries with the
field names of the newest version. ``shape`` turns those into the response of the version that was asked:
fields the version does not know are left out, fields the handler did not set take the protocol's zero.
"""

import dataclasses
import datetime
import importlib
import io
import os
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from headwater.broker.lean import without_hypothesis

with without_hypothesis():
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode as ErrorCode
    from kio.schema.index import schema_name_map
    from kio.serial import entity_reader, entity_writer

Fields = Mapping[str, Any]
NO_TIME = datetime.timedelta(0)
# Tests set this: it finds fields that a handler misspells, at the price of loading every version's schema.
CHECK_NAMES = os.environ.get("HEADWATER_CHECK_MESSAGES") == "1"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def milliseconds(duration: datetime.timedelta) -> int:
    """kio reads durations as timedeltas; the broker counts milliseconds.

    >>> milliseconds(datetime.timedelta(seconds=1.5))
    1500
    """
    return round(duration.total_seconds() * 1000)


def duration(ms: int) -> datetime.timedelta:
    """The timedelta that kio writes as ``ms``."""
    return datetime.timedelta(milliseconds=ms)


def error(code: int) -> ErrorCode:
    """The protocol's error of that number."""
    return ErrorCode(code)


def moment(ms: int) -> datetime.datetime:
    """The time that kio writes as ``ms`` since the epoch."""
    return EPOCH + datetime.timedelta(milliseconds=ms)


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """How one field of a response is filled."""

    name: str
    nested: type[Any] | None  # the entity in it, or in each element of it
    is_array: bool
    zero: Any


@cache
def _slots(entity: type[Any]) -> tuple[_Slot, ...]:
    hints = typing.get_type_hints(entity)
    return tuple(_slot(field, hints[field.name]) for field in dataclasses.fields(entity))


def _slot(field: "dataclasses.Field[Any]", hint: Any) -> _Slot:
    optional = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
        optional = len(choices) < len(typing.get_args(hint))
        hint = choices[0]
    is_array = typing.get_origin(hint) is tuple
    element = typing.get_args(hint)[0] if is_array else hint
    nested = element if dataclasses.is_dataclass(element) else None
    if field.default is not dataclasses.MISSING:
        zero: Any = field.default
    elif is_array:
        zero = ()
    elif optional:
        zero = None
    else:
        zero = _zero(element)
    return _Slot(field.name, typing.cast("type[Any] | None", nested), is_array, zero)


def _zero(primitive: Any) -> Any:
    if isinstance(primitive, type):
        if issubclass(primitive, ErrorCode):
            return ErrorCode.none
        if issubclass(primitive, datetime.timedelta):
            return NO_TIME
        if issubclass(primitive, datetime.datetime):
            return EPOCH
        if issubclass(primitive, uuid.UUID):
            return None
        if dataclasses.is_dataclass(primitive):
            return shape(primitive, {})
        for kind, zero in ((str, ""), (bool, False), (int, 0), (bytes, b""), (float, 0.0)):
            if issubclass(primitive, kind):
                return zero
    raise TypeError(f"no zero is known for {primitive!r}")


@cache
def _check_names(entity: Any, names: frozenset[str]) -> None:
    """Raise for a field that no version of the entity has: a slip of the pen would be left out silently."""
    api, _, kind = entity.__module__.removeprefix("kio.schema.").split(".")
    known: set[str] = set()
    for version in schema_name_map[api]:
        module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
        other = getattr(module, entity.__name__, None)
        if other is not None:
            known.update(field.name for field in dataclasses.fields(other))
    if names - known:
        raise TypeError(f"{api} has no {entity.__name__} with {', '.join(sorted(names - known))}")


def shape(entity: type[Any], fields: Fields) -> Any:
    """An ``entity`` of one version from fields named as in the newest version.

    >>> from kio.schema.heartbeat.v0.response import HeartbeatResponse
    >>> shape(HeartbeatResponse, {"error_code": error(27), "throttle_time": NO_TIME})
    HeartbeatResponse(error_code=<ErrorCode.rebalance_in_progress: 27>)
    """
    if CHECK_NAMES:
        _check_names(typing.cast("Any", entity), frozenset(fields))
    values: dict[str, Any] = {}
    for slot in _slots(typing.cast("Any", entity)):
        value = fields.get(slot.name, slot.zero)
        if value is not None:
            if slot.is_array:
                if slot.nested is not None:
                    value = tuple(
                        shape(slot.nested, item) if isinstance(item, Mapping) else item for item in value
                    )
                elif not isinstance(value, tuple):
                    value = tuple(value)
            elif slot.nested is not None and isinstance(value, Mapping):
                value = shape(slot.nested, value)
        values[slot.name] = value
    return entity(**values)


@cache
def request_type(api_key: int, version: int) -> type[Any]:
    return load_request_schema(api_key, version)


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    return load_response_schema(api_key, version)


@cache
def request_reader(api_key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    return typing.cast(
        "Callable[[bytes, int], tuple[Any, int]]", entity_reader(request_type(api_key, version))
    )


def encode_response(api_key: int, version: int, correlation_id: int, fields: Fields) -> bytes:
    """The response's bytes, header included, without the length in front of a frame."""
    body_type = response_type(api_key, version)
    header_type = body_type.__header_schema__
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header_type(correlation_id=correlation_id))
    entity_writer(body_type)(buffer, shape(body_type, fields))
    return buffer.getvalue()
