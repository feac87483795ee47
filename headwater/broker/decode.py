"""Decoding requests of strangers: kio reads them, and this adds what kio leaves unchecked.

- An array's count. kio makes room for as many elements as a count claims, and a count of billions makes that
  allocation fail, which ends the process: one frame of twenty bytes would stop the broker. An element takes
  at least a byte, so a count above what is left of the frame is wrong, and is found by a walk over the frame
  that follows the schema and keeps nothing.
- Null in the place of an array that may not be null. kio passes it on; handlers expect arrays.
- Tagged fields that the schema does not know. kio refuses them; the protocol wants them ignored (KIP-482), so
  that clients newer than the broker are served. They are cut out, and what remains is read.

The walk looks into no tagged field: no request that the broker serves has an array in one.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from headwater.broker.messages import request_reader, request_type
from headwater.broker.wire import BadRequest

# (start, end, what to put there instead) of sections with unknown tags
Cuts = list[tuple[int, int, bytes]]
# (frame, position, where cuts are noted) -> position after the field. IndexError when the frame ends early.
Walk = Callable[[bytes, int, Cuts], int]

# A compact count of 2^21 or more begins with three bytes that have their highest bit set. Below that, what an
# array may take for a moment is 16 MB: most frames need no walk.
_LARGE_COMPACT = re.compile(rb"[\x80-\xff]{3}")

_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float64": 8, "uuid": 16, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8, "error_code": 2,
}  # fmt: skip


def decode_request(api_key: int, version: int, frame: bytes, position: int) -> Any:
    """The request whose body begins at ``position``; BadRequest when it is none.

    >>> decode_request(3, 0, b"\\x00\\x00\\x00\\x09abcd", 0)
    Traceback (most recent call last):
    ...
    headwater.broker.wire.BadRequest: MetadataRequest of version 0: an array of 9 elements in 4 bytes
    """
    schema: Any = request_type(api_key, version)
    reader = request_reader(api_key, version)
    try:
        check_counts(schema, frame, position)
        try:
            request, _ = reader(frame, position)
        except KeyError:  # an unknown tag
            request, _ = reader(without_unknown_tags(schema, frame, position), position)
        refuse_nulls(schema, request)
    except Exception as error:
        raise BadRequest(f"{schema.__name__} of version {version}: {error}") from None
    return request


def check_counts(schema: Any, frame: bytes, position: int) -> None:
    """Raise BadRequest when an array in the body at ``position`` claims more than the frame can hold.

    A frame that ends too early is left to the decoder, which says so.
    """
    if schema.__flexible__ and not _LARGE_COMPACT.search(frame, position):
        return
    try:
        walk_of(schema)(frame, position, [])
    except IndexError:
        pass


def without_unknown_tags(schema: Any, frame: bytes, position: int) -> bytes:
    """The frame with only those tagged fields in its body that the schema knows."""
    cuts: Cuts = []
    try:
        walk_of(schema)(frame, position, cuts)
    except IndexError:
        raise BadRequest("tagged fields that run past the end of the frame") from None
    pieces = []
    done = 0
    for start, end, instead in cuts:
        pieces += [frame[done:start], instead]
        done = end
    return b"".join([*pieces, frame[done:]])


def refuse_nulls(schema: Any, request: Any) -> None:
    """Raise BadRequest when an array that may not be null is.

    >>> from kio.schema.list_groups.v4.request import ListGroupsRequest
    >>> refuse_nulls(ListGroupsRequest, ListGroupsRequest(states_filter=None))
    Traceback (most recent call last):
    ...
    headwater.broker.wire.BadRequest: null in the place of states_filter
    """
    for name, nullable, element in _arrays(schema):
        value = getattr(request, name)
        if value is None:
            if not nullable:
                raise BadRequest(f"null in the place of {name}")
        elif element is not None:
            for item in value:
                refuse_nulls(element, item)


@cache
def _arrays(schema: Any) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether it may be null, and the entity to look into, of each array of an entity."""
    arrays = []
    for name, hint in typing.get_type_hints(schema).items():
        hint, nullable = _without_none(hint)
        if typing.get_origin(hint) is tuple:
            element = typing.get_args(hint)[0]
            look = dataclasses.is_dataclass(element) and _arrays(typing.cast("Any", element))
            arrays.append((name, nullable, element if look else None))
    return tuple(arrays)


@cache
def walk_of(entity: Any) -> Walk:
    """The walk over an entity of a schema."""
    flexible = bool(entity.__flexible__)
    hints = typing.get_type_hints(entity)
    steps: list[Walk] = []
    known = set()
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            known.add(field.metadata["tag"])
        else:
            steps.append(_field(hints[field.name], field.metadata.get("kafka_type", ""), flexible))

    def walk(frame: bytes, position: int, cuts: Cuts) -> int:
        for step in steps:
            position = step(frame, position, cuts)
        return _walk_tags(frame, position, cuts, known) if flexible else position

    return walk


def _field(hint: Any, kind: str, flexible: bool) -> Walk:
    hint, nullable = _without_none(hint)
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


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices = [choice for choice in typing.get_args(hint) if choice is not types.NoneType]
        return choices[0], True
    return hint, False


def _array(element: Walk, flexible: bool) -> Walk:
    def walk(frame: bytes, position: int, cuts: Cuts) -> int:
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
            position = element(frame, position, cuts)
        return position

    return walk


def _optional(inner: Walk) -> Walk:
    """A structure that may be null: one byte says whether it follows."""

    def walk(frame: bytes, position: int, cuts: Cuts) -> int:
        present = frame[position] < 0x80
        return inner(frame, position + 1, cuts) if present else position + 1

    return walk


def _fixed(size: int) -> Walk:
    def walk(frame: bytes, position: int, _: Cuts) -> int:
        return _within(frame, position + size)

    return walk


def _compact_bytes(frame: bytes, position: int, _: Cuts) -> int:
    size, position = _varint(frame, position)
    return _within(frame, position + max(0, size - 1))


def _short_bytes(frame: bytes, position: int, _: Cuts) -> int:
    size = int.from_bytes(_exactly(frame, position, 2), "big", signed=True)
    return _within(frame, position + 2 + max(0, size))


def _long_bytes(frame: bytes, position: int, _: Cuts) -> int:
    size = int.from_bytes(_exactly(frame, position, 4), "big", signed=True)
    return _within(frame, position + 4 + max(0, size))


def _walk_tags(frame: bytes, start: int, cuts: Cuts, known: set[int]) -> int:
    count, position = _varint(frame, start)
    kept = []
    for _ in range(count):
        begin = position
        tag, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position = _within(frame, position + size)
        if tag in known:
            kept.append(frame[begin:position])
    if len(kept) < count:
        cuts.append((start, position, bytes([len(kept)]) + b"".join(kept)))
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
        if shift > 28:
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
