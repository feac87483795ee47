"""Requests that claim more elements than they have bytes, found before they are decoded.

kio's native reader makes room for an array by the count that stands before it. A count of billions makes that
allocation fail, which ends the process: one frame of twenty bytes would stop the broker. So the counts are
checked first, by a walk over the request that follows its schema and keeps nothing. An element takes at least
one byte; a count above what is left of the frame is wrong, whatever comes behind it.

Tagged fields are skipped by their size: no request that the broker serves has an array in one.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from headwater.broker.wire import BadRequest

# (frame, position) -> position after the field. Reading past the end raises IndexError.
Walk = Callable[[bytes, int], int]

# A compact count of 2^21 or more begins with three bytes that have their highest bit set. Below that, what an
# array may take for a moment is 16 MB: most frames need no walk.
_LARGE_COMPACT = re.compile(rb"[\x80-\xff]{3}")

_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float64": 8, "uuid": 16, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8, "error_code": 2,
}  # fmt: skip


def check_counts(schema: type[Any], frame: bytes, position: int) -> None:
    """Raise BadRequest when an array in the body at ``position`` claims more than the frame can hold.

    A frame that ends too early is left to the decoder, which says so.

    >>> from kio.schema.metadata.v12.request import MetadataRequest
    >>> check_counts(MetadataRequest, b"\\xff\\xff\\xff\\xff\\x0f", 0)
    Traceback (most recent call last):
    ...
    headwater.broker.wire.BadRequest: an array of 4294967294 elements in 0 bytes
    """
    if schema.__flexible__ and not _LARGE_COMPACT.search(frame, position):
        return
    try:
        walk_of(typing.cast("Any", schema))(frame, position)
    except IndexError:
        pass


@cache
def walk_of(entity: type[Any]) -> Walk:
    """The walk over an entity of a schema."""
    flexible = bool(entity.__flexible__)
    hints = typing.get_type_hints(entity)
    steps = [
        _field(hints[field.name], field.metadata.get("kafka_type", ""), flexible)
        for field in dataclasses.fields(entity)
        if "tag" not in field.metadata
    ]

    def walk(frame: bytes, position: int) -> int:
        for step in steps:
            position = step(frame, position)
        return _skip_tags(frame, position) if flexible else position

    return walk


def _field(hint: Any, kind: str, flexible: bool) -> Walk:
    nullable = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
        nullable, hint = True, choices[0]
    if typing.get_origin(hint) is tuple:
        return _array(_field(typing.get_args(hint)[0], kind, flexible), flexible)
    if dataclasses.is_dataclass(hint):
        inner = walk_of(typing.cast("Any", hint))
        return _optional(inner) if nullable else inner
    if kind in _SIZES:
        return _fixed(_SIZES[kind])
    if flexible:
        return _compact_bytes
    return _short_bytes if kind == "string" else _long_bytes


def _array(element: Walk, flexible: bool) -> Walk:
    def walk(frame: bytes, position: int) -> int:
        if flexible:
            count, position = _varint(frame, position)
            count -= 1
        else:
            count = int.from_bytes(_exactly(frame, position, 4), "big", signed=True)
            position += 4
        left = len(frame) - position
        if count > left:
            raise BadRequest(f"an array of {count} elements in {left} bytes")
        for _ in range(count):
            position = element(frame, position)
        return position

    return walk


def _optional(inner: Walk) -> Walk:
    """A structure that may be null: one byte says whether it follows."""

    def walk(frame: bytes, position: int) -> int:
        present = frame[position] < 0x80
        return inner(frame, position + 1) if present else position + 1

    return walk


def _fixed(size: int) -> Walk:
    def walk(frame: bytes, position: int) -> int:
        return _within(frame, position + size)

    return walk


def _compact_bytes(frame: bytes, position: int) -> int:
    size, position = _varint(frame, position)
    return _within(frame, position + max(0, size - 1))


def _short_bytes(frame: bytes, position: int) -> int:
    size = int.from_bytes(_exactly(frame, position, 2), "big", signed=True)
    return _within(frame, position + 2 + max(0, size))


def _long_bytes(frame: bytes, position: int) -> int:
    size = int.from_bytes(_exactly(frame, position, 4), "big", signed=True)
    return _within(frame, position + 4 + max(0, size))


def _skip_tags(frame: bytes, position: int) -> int:
    count, position = _varint(frame, position)
    for _ in range(count):
        _, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position = _within(frame, position + size)
    return position


def _varint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 35:
            raise BadRequest("a varint of more than five bytes")


def _exactly(frame: bytes, position: int, size: int) -> bytes:
    taken = frame[position : position + size]
    if len(taken) < size:
        raise IndexError
    return taken


def _within(frame: bytes, position: int) -> int:
    if position > len(frame):
        raise IndexError
    return position
