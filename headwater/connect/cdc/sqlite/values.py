"""SQLite's values in JSON. Pure.

Integers are exact to 64 bits, blobs are base64, infinities the strings "Infinity" and "-Infinity" (NaN is NULL in
SQLite). Text that is not UTF-8, which SQLite takes, is base64 of its bytes as well.
"""

import base64
from collections.abc import Sequence
from typing import Any

import orjson

_INFINITY = float("inf")


class NotText(bytes):
    """What SQLite calls text and is not UTF-8."""


def decode_text(raw: bytes) -> str | NotText:
    """A text factory that takes what SQLite takes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return NotText(raw)


def json_object(names: Sequence[str], values: Sequence[Any]) -> bytes:
    """A row as a JSON object.

    >>> json_object(["a", "b", "c"], [2**62 + 1, b"\\x00\\xff", float("-inf")])
    b'{"a":4611686018427387905,"b":"AP8=","c":"-Infinity"}'
    """
    text = orjson.dumps(dict(zip(names, values)), default=_encode)  # noqa: B905 - they are as long as each other
    if b"null" in text and (_INFINITY in values or -_INFINITY in values):
        values = [_named(value) for value in values]
        text = orjson.dumps(dict(zip(names, values, strict=True)), default=_encode)
    return text


def _encode(value: Any) -> str:
    return base64.b64encode(value).decode()


def _named(value: Any) -> Any:
    if isinstance(value, float) and value in (_INFINITY, -_INFINITY):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def pack(values: Sequence[Any]) -> list[Any]:
    """Values of a key for a position, from which `unpack` gives back the same values.

    >>> unpack(pack([1, "a", b"\\xff", 2.5, float("inf")]))
    [1, 'a', b'\\xff', 2.5, inf]
    """
    packed: list[Any] = []
    for value in values:
        if isinstance(value, bytes):
            packed.append({"text" if isinstance(value, NotText) else "blob": _encode(value)})
        else:
            packed.append({"real": str(value)} if value in (_INFINITY, -_INFINITY) else value)
    return packed


def unpack(packed: Sequence[Any]) -> list[Any]:
    """The reverse of `pack`."""
    values: list[Any] = []
    for value in packed:
        if not isinstance(value, dict):
            values.append(value)
        elif "real" in value:
            values.append(float(value["real"]))
        else:
            raw = base64.b64decode(value.get("blob") or value.get("text") or "")
            values.append(NotText(raw) if "text" in value else raw)
    return values
