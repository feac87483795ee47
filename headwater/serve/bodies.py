"""The body of a request as events, each as the bytes that it was sent as. Pure.

A JSON object is one event, a JSON array one event an item, and of ``application/x-ndjson`` every line that is not
blank is one. The bytes are kept as they came, so that numbers keep their digits. A body may be sent with gzip.
"""

import json
import re
import zlib
from typing import Literal

from headwater.errors import BadInput

Shape = Literal["json", "lines"]

SHAPES: dict[str, Shape] = {
    "application/json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
}

ENCODINGS = ("", "identity", "gzip", "x-gzip")  # of bodies, as Content-Encoding says them

_GZIP = 16 + zlib.MAX_WBITS
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=str)  # which reads numbers of any length; only the end is asked for
_LEAST = {"": "it is empty", "[]": "it holds no events"}


def shape_of(content_type: str) -> Shape | None:
    """How a body of this type holds events; None when it is no JSON.

    >>> shape_of("application/json; charset=utf-8"), shape_of("text/plain")
    ('json', None)
    """
    return SHAPES.get(content_type.partition(";")[0].strip().lower())


class Unpacked:
    """A body as it was before it was encoded, part by part, and never more of it than is asked for.

    >>> import gzip
    >>> body = Unpacked("gzip", "t")
    >>> packed = gzip.compress(b'{"n": 1}') + gzip.compress(b" ")
    >>> body.take(packed[:9], 100) + body.take(packed[9:], 100), body.end()
    (b'{"n": 1} ', None)
    """

    def __init__(self, encoding: str, topic: str) -> None:
        self._topic = topic
        self._gzip = zlib.decompressobj(_GZIP) if encoding.endswith("gzip") else None
        self._has_begun = False  # the member of gzip that is being read; there may be several

    def take(self, part: bytes, most: int) -> bytes:
        """What a part stands for; when that is more than ``most`` bytes, some more than these."""
        if self._gzip is None:
            return part
        found: list[bytes] = []
        size = 0
        while part and size <= most:
            if self._gzip.eof:
                self._gzip = zlib.decompressobj(_GZIP)
            self._has_begun = True
            try:
                found.append(self._gzip.decompress(part, most + 1 - size))
            except zlib.error:
                raise _bad(self._topic, "it is not the gzip that Content-Encoding says") from None
            size += len(found[-1])
            part = self._gzip.unused_data or self._gzip.unconsumed_tail
        return b"".join(found)

    def end(self) -> None:
        """Refuses what was cut off."""
        if self._gzip is not None and self._has_begun and not self._gzip.eof:
            raise _bad(self._topic, "its gzip is cut off")


def events_of(body: bytes, shape: Shape, topic: str) -> list[bytes]:
    """The events of a body; BadInput when it is not JSON, or holds none.

    >>> events_of(b'[{"n": 1.10}, {"n": 2}]', "json", "t")
    [b'{"n": 1.10}', b'{"n": 2}']
    >>> events_of(b'{"n": 1}' + bytes([10, 10]) + b'{"n":', "lines", "t")
    [b'{"n": 1}', b'{"n":']
    """
    if shape == "lines":
        events = [line for each in body.split(b"\n") if (line := each.strip())]
    else:
        try:
            events = _json(body.decode(), topic)
        except UnicodeDecodeError as error:
            raise _bad(topic, f"its byte {error.start + 1} is not UTF-8") from None
        except RecursionError:
            raise _bad(topic, "it is nested too deeply") from None
        except ValueError as error:
            raise _bad(topic, f"it is not JSON: {_shown(error)}") from None
    if not events:
        raise _bad(topic, _LEAST["[]"])
    return events


def _json(text: str, topic: str) -> list[bytes]:
    position = _skip(text, 0)
    if position == len(text):
        raise _bad(topic, _LEAST[""])
    if text[position] != "[":
        _, end = _DECODER.raw_decode(text, position)
        _require_end(text, end)
        return [text[position:end].encode()]
    events: list[bytes] = []
    position = _skip(text, position + 1)
    if text[position : position + 1] == "]":
        _require_end(text, position + 1)
        return events
    while True:
        _, end = _DECODER.raw_decode(text, position)
        events.append(text[position:end].encode())
        position = _skip(text, end)
        closing = text[position : position + 1]
        if closing == "]":
            _require_end(text, position + 1)
            return events
        if closing != ",":
            raise json.JSONDecodeError("a comma or ] should be there", text, position)
        position = _skip(text, position + 1)


def _require_end(text: str, position: int) -> None:
    position = _skip(text, position)
    if position < len(text):
        raise json.JSONDecodeError("something follows the first value", text, position)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _shown(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]}, at character {error.pos + 1}"
    return str(error)


def _bad(topic: str, cause: str) -> BadInput:
    return BadInput(
        "write to",
        topic,
        f"the body is wrong: {cause}",
        "Send a JSON object, an array of them, or lines of them as application/x-ndjson.",
    )
