"""Records as lines of output: what `headwater consume` prints."""

import base64
import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING, Any, cast

import orjson

from headwater.cli.lines import unescape
from headwater.cli.moments import iso
from headwater.errors import BadInput

if TYPE_CHECKING:
    from confluent_kafka import Message

Render = Callable[["Message"], bytes]


def as_value(message: "Message") -> bytes:
    """The value and a line break; a tombstone is an empty line."""
    return (message.value() or b"") + b"\n"


def as_json(message: "Message") -> bytes:
    """One JSON object a line. Bytes that are not UTF-8 are in base64, and a field beside them says so."""
    kind, timestamp = message.timestamp()
    fields: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
    }
    for name, content in (("key", message.key()), ("value", message.value())):
        fields[name], encoding = _text(content)
        if encoding:
            fields[f"{name}_encoding"] = encoding
    headers = []
    for name, content in _pairs(message):
        text, encoding = _text(content)
        headers.append({"key": name, "value": text} | ({"encoding": encoding} if encoding else {}))
    fields["headers"] = headers
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _pairs(message: "Message") -> list[tuple[str, bytes | None]]:
    # confluent-kafka's types allow for what may be sent; what is received is always a list of these.
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _text(content: bytes | None) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def _headers(message: "Message") -> bytes:
    return b",".join([name.encode() + b"=" + (content or b"") for name, content in _pairs(message)])


_FIELDS: dict[str, Render] = {
    "topic": lambda message: (message.topic() or "").encode(),
    "partition": lambda message: b"%d" % (message.partition() or 0),
    "offset": lambda message: b"%d" % (message.offset() or 0),
    "timestamp": lambda message: b"%d" % message.timestamp()[1],
    "time": lambda message: iso(message.timestamp()[1]).encode(),
    "key": lambda message: message.key() or b"",
    "value": lambda message: message.value() or b"",
    "headers": _headers,
}
FIELD_NAMES = ", ".join("{" + name + "}" for name in _FIELDS)


def as_template(template: str) -> Render:
    """Text with ``{topic}``, ``{partition}``, ``{offset}``, ``{timestamp}`` (milliseconds), ``{time}`` (UTC),
    ``{key}``, ``{value}`` and ``{headers}`` in it; ``{{`` and ``}}`` stand for braces, ``\\t`` and ``\\n``
    for what they stand for elsewhere. A line break follows.

    >>> from confluent_kafka import Message
    >>> as_template("{partition}:{offset} {key}={value}")(Message("orders", 2, 7, b"a", b"1"))
    b'2:7 a=1\\n'
    """
    parts: list[bytes | Render] = []
    for piece in re.findall(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]", template):
        if piece in ("{{", "}}"):
            parts.append(piece[:1].encode())
        elif piece[0] == "{" and piece[-1] == "}" and piece[1:-1] in _FIELDS:
            parts.append(_FIELDS[piece[1:-1]])
        elif piece[0] in "{}":
            raise BadInput("read", f"--format {template}", f"there is no {piece}", f"Use {FIELD_NAMES}.")
        else:
            parts.append(unescape(piece))
    parts.append(b"\n")
    return lambda message: b"".join([part if isinstance(part, bytes) else part(message) for part in parts])


def key_filter(pattern: str) -> Callable[["Message"], bool]:
    """Whether a record's key is ``pattern``, or matches it where it has ``*``, ``?`` or ``[...]`` in it."""
    if not any(sign in pattern for sign in "*?["):
        exact = pattern.encode("utf-8", "surrogateescape")
        return lambda message: message.key() == exact
    matches = re.compile(translate(pattern)).match
    return lambda message: (
        (key := message.key()) is not None and matches(key.decode("utf-8", "surrogateescape")) is not None
    )


def value_filter(text: str) -> Callable[["Message"], bool]:
    """Whether a record's value has ``text`` in it."""
    wanted = text.encode("utf-8", "surrogateescape")
    return lambda message: wanted in (message.value() or b"")


def keep(messages: Sequence["Message"], filters: Sequence[Callable[["Message"], bool]]) -> list["Message"]:
    """The messages that pass all filters."""
    return [message for message in messages if all(passes(message) for passes in filters)]
