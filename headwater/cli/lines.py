"""Lines of input as records: what `headwater produce` reads."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from headwater.cli.moments import LARGEST_MILLISECONDS

Header = tuple[str, bytes | None]

FIELDS = {"key", "value", "headers", "partition", "timestamp", "key_encoding", "value_encoding"}
IGNORED = {"topic", "offset"}  # in the output of `headwater consume --json`, and decided anew here


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


class InvalidLine(ValueError):
    """Why a line is not a record."""


Parse = Callable[[bytes], Record]


def plain_lines(
    *,
    key: bytes | None = None,
    separator: bytes | None = None,
    tombstones: bool = False,
    headers: Sequence[Header] = (),
    partition: int | None = None,
) -> Parse:
    """Each line is a value, with a key in front of ``separator`` when there is one.

    >>> plain_lines(separator=b":")(b"a:1:2")
    Record(value=b'1:2', key=b'a', headers=(), partition=None, timestamp=None)
    """
    fixed_headers = tuple(headers)

    def parse(line: bytes) -> Record:
        value: bytes | None = line
        line_key = key
        if separator is not None:
            line_key, found, value = line.partition(separator)
            if not found:
                raise InvalidLine(f"there is no {_shown(separator)} after a key")
        if tombstones and not value:
            if line_key is None:
                raise InvalidLine("an empty value stands for a tombstone, which needs a key")
            value = None
        return Record(value, line_key, fixed_headers, partition)

    return parse


def json_lines(*, headers: Sequence[Header] = (), partition: int | None = None) -> Parse:
    """Each line is an object with ``value`` and, if wanted, key, headers, partition and timestamp.

    A value or key that is not a string is written as JSON; null is a tombstone. What `headwater consume
    --json` prints is understood, base64 included.

    >>> parse = json_lines()
    >>> parse(b'{"key": "a", "value": {"n": 1}, "headers": {"source": "web"}}')
    Record(value=b'{"n":1}', key=b'a', headers=(('source', b'web'),), partition=None, timestamp=None)
    """
    fixed_headers = tuple(headers)

    def parse(line: bytes) -> Record:
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InvalidLine(f"it is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise InvalidLine("it is not a JSON object")
        if unknown := fields.keys() - FIELDS - IGNORED:
            raise InvalidLine(f"there is no field {sorted(unknown)[0]!r} in a record")
        if "value" not in fields:
            raise InvalidLine("it has no value (null stands for a tombstone)")
        return Record(
            value=_bytes(fields, "value"),
            key=_bytes(fields, "key"),
            headers=_headers(fields.get("headers")) + fixed_headers,
            partition=_number(fields, "partition", smallest=0)
            if fields.get("partition") is not None
            else partition,
            timestamp=_timestamp(fields),
        )

    return parse


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    return _encoded(fields.get(name), fields.get(f"{name}_encoding"), name)


def _encoded(value: Any, encoding: Any, name: str) -> bytes | None:
    if value is None:
        return None
    if encoding not in (None, "base64"):
        raise InvalidLine(f"the encoding of {name} is {encoding!r}; only base64 is known")
    if not isinstance(value, str):
        if encoding:
            raise InvalidLine(f"{name} is not a base64 string")
        return orjson.dumps(value)
    if encoding is None:
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidLine(f"{name} is not base64") from error


def _headers(value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, _encoded(item, None, f"header {name!r}")) for name, item in value.items())
    if not isinstance(value, list):
        raise InvalidLine("headers is neither an object nor a list")
    headers: list[Header] = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise InvalidLine('a header is not of the form {"key": ..., "value": ...}')
        name = item["key"]
        headers.append((name, _encoded(item.get("value"), item.get("encoding"), f"header {name!r}")))
    return tuple(headers)


def _number(fields: dict[str, Any], name: str, smallest: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        raise InvalidLine(f"{name} is not a number from {smallest} on")
    return value


def _timestamp(fields: dict[str, Any]) -> int | None:
    value = fields.get("timestamp")
    if value is None:
        return None
    if isinstance(value, str):
        from datetime import datetime

        try:
            fields = {"timestamp": round(datetime.fromisoformat(value).timestamp() * 1000)}
        except (ValueError, OverflowError) as error:
            raise InvalidLine("timestamp is neither milliseconds nor an ISO 8601 time") from error
    # librdkafka takes 0 for "now", so that the epoch itself cannot be sent.
    milliseconds = _number(fields, "timestamp", smallest=1)
    if milliseconds > LARGEST_MILLISECONDS:
        raise InvalidLine("timestamp is too large")
    return milliseconds


def unescape(text: str) -> bytes:
    """What ``\\t`` and the like stand for in an argument.

    >>> unescape("\\\\t")
    b'\\t'
    """
    escapes = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
    result, position = "", 0
    while position < len(text):
        pair = text[position : position + 2]
        result += escapes.get(pair, text[position])
        position += 2 if pair in escapes else 1
    return result.encode("utf-8", "surrogateescape")


def _shown(separator: bytes) -> str:
    return repr(separator.decode("utf-8", "replace"))
