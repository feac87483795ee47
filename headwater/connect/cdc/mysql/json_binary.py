"""MySQL's binary JSON, as rows of its log have it, to text. Pure. MariaDB's JSON is text already.

A value is a type byte and a body. Objects and arrays begin with their count and size (two bytes each, or four in the
large form), then a table of entries that point into the body; small scalars are in the entries themselves.
"""

import struct
from decimal import Decimal

from headwater.connect.cdc.mysql.values import base64, decimal_number, decimal_size, quoted

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = 4, 5, 6, 7, 8, 9, 10, 11, 12
_OPAQUE = 15
_LITERALS = {0: b"null", 1: b"true", 2: b"false"}
_SCALARS = {_INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q", _INT16: "<h", _UINT16: "<H"}


class MalformedJson(ValueError):
    """Bytes that are not MySQL's binary JSON."""


def json_text(data: bytes) -> bytes:
    """A column's value as a JSON string that holds the JSON, as Debezium has it."""
    if not data:  # an update of a part may leave an empty value, which stands for null
        return quoted("null")
    return quoted(plain_json(data).decode())


def plain_json(data: bytes) -> bytes:
    """The JSON itself, compact."""
    return _value(data[0], data, 1)


def _value(kind: int, data: bytes, at: int) -> bytes:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        return _object(data, at, kind == _LARGE_OBJECT)
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return b"[%b]" % b",".join(_elements(data, at, kind == _LARGE_ARRAY))
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _SCALARS:
        return b"%d" % struct.unpack_from(_SCALARS[kind], data, at)[0]
    if kind == _DOUBLE:
        return repr(struct.unpack_from("<d", data, at)[0]).encode()
    if kind == _STRING:
        size, at = _variable(data, at)
        return quoted(data[at : at + size].decode("utf-8", "replace"))
    if kind == _OPAQUE:
        size, start = _variable(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise MalformedJson(f"JSON has a value of type {kind}")


def _variable(data: bytes, at: int) -> tuple[int, int]:
    """A length in groups of seven bits, the lowest first; the high bit says that more follow."""
    size = shift = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return size, at
        shift += 7


def _entry(data: bytes, at: int, start: int, large: bool) -> bytes:
    """A value of an object or array: in the entry when it is small, else where the entry points to."""
    kind = data[at]
    inlined = kind in (_LITERAL, _INT16, _UINT16) or (large and kind in (_INT32, _UINT32))
    if inlined:
        return _value(kind, data, at + 1)
    (offset,) = struct.unpack_from("<I" if large else "<H", data, at + 1)
    return _value(kind, data, start + offset)


def _elements(data: bytes, start: int, large: bool) -> list[bytes]:
    size = 4 if large else 2
    (count,) = struct.unpack_from("<I" if large else "<H", data, start)
    at = start + 2 * size
    return [_entry(data, at + n * (1 + size), start, large) for n in range(count)]


def _object(data: bytes, start: int, large: bool) -> bytes:
    size, number = (4, "<I") if large else (2, "<H")
    (count,) = struct.unpack_from(number, data, start)
    keys = start + 2 * size
    entries = keys + count * (size + 2)
    parts = []
    for n in range(count):
        (offset,) = struct.unpack_from(number, data, keys + n * (size + 2))
        (length,) = struct.unpack_from("<H", data, keys + n * (size + 2) + size)
        key = data[start + offset : start + offset + length].decode("utf-8", "replace")
        parts.append(quoted(key) + b":" + _entry(data, entries + n * (1 + size), start, large))
    return b"{%b}" % b",".join(parts)


def _opaque(kind: int, raw: bytes) -> bytes:
    """A value of SQL inside JSON: decimals as numbers, times as texts, bytes in base64."""
    if kind == 246:
        return _decimal(raw)
    if kind in (7, 10, 12):
        return _moment(kind, int.from_bytes(raw, "little"))
    if kind == 11:
        return _time(int.from_bytes(raw, "little", signed=True))
    return base64(raw)


def _decimal(raw: bytes) -> bytes:
    precision, scale = raw[0], raw[1]
    number = decimal_number(raw[2 : 2 + decimal_size(precision, scale)], precision, scale)
    return f"{Decimal(number).scaleb(-scale):f}".encode()


def _moment(kind: int, packed: int) -> bytes:
    """DATETIME, DATE and TIMESTAMP in JSON: year * 13 + month, day, hour, minute, second and microseconds."""
    micro, whole = packed & 0xFFFFFF, packed >> 24
    clock, day = whole & 0x1FFFF, whole >> 17
    months = day >> 5
    text = f"{months // 13:04}-{months % 13:02}-{day & 31:02}"
    if kind != 10:
        text += f" {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{micro:06}"
    return quoted(text)


def _time(packed: int) -> bytes:
    negative, packed = packed < 0, abs(packed)
    micro, clock = packed & 0xFFFFFF, packed >> 24
    text = f"{clock >> 12 & 0x3FF:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{micro:06}"
    return quoted("-" + text if negative else text)
