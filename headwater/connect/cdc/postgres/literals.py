"""The text of arrays, composite values, hstore and points, taken apart. No I/O."""

import base64
import struct
from collections.abc import Callable, Iterator, Sequence

import orjson

NULL = b"null"
Converter = Callable[[bytes], bytes]  # PostgreSQL's text of a value that is not NULL -> JSON

_QUOTE, _BACKSLASH, _OPEN, _CLOSE = b'"\\{}'


def array(text: bytes, element: Converter, delimiter: bytes = b",") -> bytes:
    """An array as nested JSON lists; lower bounds other than 1 are not kept.

    >>> array(b'{1,NULL,3}', bytes)
    b'[1,null,3]'
    >>> array(b'[0:1][1:2]={{"a","b\\\\"c"},{NULL,"NULL"}}', string)
    b'[["a","b\\\\"c"],[null,"NULL"]]'
    """
    at = text.index(b"{") if text[:1] == b"[" else 0
    return _list(text, at, element, delimiter[0])[0]


def _list(text: bytes, at: int, element: Converter, delimiter: int) -> tuple[bytes, int]:
    """The list that begins at a brace, and the place behind it."""
    items: list[bytes] = []
    at += 1
    while text[at] != _CLOSE:
        if text[at] == delimiter:
            at += 1
        elif text[at] == _OPEN:
            item, at = _list(text, at, element, delimiter)
            items.append(item)
        elif text[at] == _QUOTE:
            value, at = _quoted(text, at)
            items.append(element(value))
        else:
            value, at, escaped = _plain(text, at, (delimiter, _CLOSE))
            items.append(NULL if value.upper() == b"NULL" and not escaped else element(value))
    return b"[%b]" % b",".join(items), at + 1


def _quoted(text: bytes, at: int) -> tuple[bytes, int]:
    """A quoted part: backslashes escape; inside composites a doubled quote is one."""
    value = bytearray()
    at += 1
    while True:
        byte = text[at]
        if byte == _BACKSLASH:
            value.append(text[at + 1])
            at += 2
        elif byte == _QUOTE:
            if text[at + 1 : at + 2] != b'"':
                return bytes(value), at + 1
            value.append(_QUOTE)
            at += 2
        else:
            value.append(byte)
            at += 1


def _plain(text: bytes, at: int, ends: tuple[int, int]) -> tuple[bytes, int, bool]:
    value = bytearray()
    escaped = False
    while text[at] not in ends:
        if text[at] == _BACKSLASH:
            escaped = True
            at += 1
        value.append(text[at])
        at += 1
    return bytes(value), at, escaped


def composite(text: bytes, fields: Sequence[tuple[str, Converter]]) -> bytes:
    """A value of a composite type as a JSON object.

    >>> composite(b'(5,"a ""b"" c",)', [("n", bytes), ("s", string), ("t", string)])
    b'{"n":5,"s":"a \\\\"b\\\\" c","t":null}'
    """
    parts: list[bytes] = []
    for (name, convert), value in zip(fields, _fields(text), strict=True):
        parts.append(b"%b:%b" % (orjson.dumps(name), NULL if value is None else convert(value)))
    return b"{%b}" % b",".join(parts)


def _fields(text: bytes) -> Iterator[bytes | None]:
    if text == b"()":
        return
    at = 1
    while True:
        value = bytearray()
        some = False
        while text[at] not in b",)":
            some = True
            if text[at] == _QUOTE:
                part, at = _quoted(text, at)
                value += part
            elif text[at] == _BACKSLASH:
                value.append(text[at + 1])
                at += 2
            else:
                value.append(text[at])
                at += 1
        yield bytes(value) if some else None
        if text[at] == ord(")"):
            return
        at += 1


def hstore(text: bytes) -> bytes:
    """An hstore as a JSON object inside a JSON string, as Debezium has it.

    >>> hstore(b'"a"=>"1", "b"=>NULL')
    b'"{\\\\"a\\\\":\\\\"1\\\\",\\\\"b\\\\":null}"'
    """
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        key, at = _quoted(text, at)
        at = text.index(b"=>", at) + 2
        if text[at] == _QUOTE:
            value, at = _quoted(text, at)
            pairs[decoded(key)] = decoded(value)
        else:
            pairs[decoded(key)] = None
            at += 4
        while text[at : at + 1] in (b",", b" "):
            at += 1
    return orjson.dumps(orjson.dumps(pairs).decode())


def point(text: bytes) -> bytes:
    """A point with its well-known binary, as Debezium has it.

    >>> point(b"(1,2.5)")
    b'{"x":1.0,"y":2.5,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAARA","srid":null}'
    """
    x, y = (float(part) for part in text[1:-1].split(b","))
    wkb = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y))
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_real(x), _real(y), wkb)


def _real(number: float) -> bytes:
    if number != number or number in (float("inf"), float("-inf")):
        return {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}[str(number)]
    return orjson.dumps(number)


def decoded(text: bytes) -> str:
    """Text of the server; a database of encoding SQL_ASCII may hold anything."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "backslashreplace")


def string(text: bytes) -> bytes:
    """
    >>> string('"ü"'.encode()).decode()
    '"\\\\"ü\\\\""'
    """
    try:
        return orjson.dumps(text.decode())
    except UnicodeDecodeError:
        return orjson.dumps(decoded(text))
