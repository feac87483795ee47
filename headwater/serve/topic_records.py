"""The records of a topic as server-sent events, and places in a topic as texts. Pure.

The id of an event is the place behind its record in all partitions, ``0:16,2:7``: who comes back with it gets
what follows, of every partition.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa

from headwater.client.columns import Columns
from headwater.errors import BadInput
from headwater.serve.sse import event

Offsets = dict[int, int]  # the next offset of each partition

LONGEST_ID = 32_000  # characters; servers refuse larger headers
_ON_ONE_LINE = bytes.maketrans(b"\n\r", b"  ")  # in JSON line breaks stand between tokens only
_ID = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")


def offsets_text(offsets: Mapping[int, int]) -> str:
    """A place in a topic.

    >>> offsets_text({2: 7, 0: 16})
    '0:16,2:7'
    """
    return ",".join([f"{partition}:{offsets[partition]}" for partition in sorted(offsets)])


def parse_offsets(text: str, subject: str) -> Offsets:
    """The reverse of ``offsets_text``.

    >>> parse_offsets("0:16,2:7", "the topic orders")
    {0: 16, 2: 7}
    """
    if len(text) > LONGEST_ID or _ID.fullmatch(text) is None:
        step = "Give the id of the last event you got, such as 0:16,1:7, or nothing."
        raise BadInput("follow", subject, f"{text[:100]!r} is no place in a topic", step)
    return {
        int(partition): int(offset) for partition, offset in (pair.split(":") for pair in text.split(","))
    }


@dataclass(frozen=True)
class From:
    """Where a client wants to begin, in every partition."""

    kind: Literal["beginning", "end", "offset", "last", "time", "offsets"]
    value: int = 0  # an offset, a number of records, or milliseconds since 1970
    offsets: tuple[tuple[int, int], ...] = ()


def parse_from(text: str, subject: str) -> From:
    """What ``?from=`` says.

    >>> parse_from("-20", "the topic orders")
    From(kind='last', value=20, offsets=())
    >>> parse_from("2026-01-02T00:00:00Z", "the topic orders").value
    1767312000000
    """
    if text in ("beginning", "end"):
        return From("beginning" if text == "beginning" else "end")
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return From("offset", int(text)) if text[0] != "-" else From("last", -int(text))
    if _ID.fullmatch(text) is not None:
        return From("offsets", offsets=tuple(parse_offsets(text, subject).items()))
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        milliseconds = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        cause = f"from={text[:100]!r} is no place in a topic"
        step = "Give beginning, end, an offset, -N for the last N records, or a time in ISO 8601."
        raise BadInput("follow", subject, cause, step) from None
    return From("time", max(0, milliseconds))


def record_events(partition: int, columns: Columns, offsets: Offsets) -> list[bytes]:
    """The records of one partition; ``offsets`` is the place before them, and then the one behind."""
    found: list[bytes] = []
    before = "".join([f"{other}:{offsets[other]}," for other in sorted(offsets) if other < partition])
    after = "".join([f",{other}:{offsets[other]}" for other in sorted(offsets) if other > partition])
    times = np.datetime_as_string(columns.timestamps.astype("datetime64[ms]"))
    rows = zip(
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        times.tolist(),
        columns.keys().to_pylist(),
        columns.values().to_pylist(),
        _headers(columns.headers()),
        strict=True,
    )
    for offset, milliseconds, time, key, value, headers in rows:
        fields: dict[str, Any] = {
            "partition": partition,
            "offset": offset,
            "timestamp": None if milliseconds < 0 else f"{time}Z",
        }
        fields["key"], encoding = _text(key)
        if encoding == "base64":
            fields["key_encoding"] = encoding
        fields["value"], encoding = _value(value)
        if encoding is not None:
            fields["value_encoding"] = encoding
        fields["headers"] = headers
        found.append(event("record", fields, f"{before}{partition}:{offset + 1}{after}"))
    if found:
        offsets[partition] = columns.offsets[-1].item() + 1
    return found


def progress_event(offsets: Mapping[int, int]) -> bytes:
    """Everything before this place was sent. It has an id: markers and aborted records take offsets as well."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data = {"offsets": {str(partition): offset for partition, offset in sorted(offsets.items())}, "at": now}
    return event("progress", data, offsets_text(offsets))


def last_id(data: bytes, otherwise: str) -> str:
    """The id of the last event in some bytes that were sent.

    >>> last_id(b"id: 0:1\\nevent: record\\ndata: {}\\n\\n: hi\\n\\n", "")
    '0:1'
    """
    at = data.rfind(b"\nid: ") + 1
    if at == 0 and not data.startswith(b"id: "):
        return otherwise
    return data[at + 4 : data.index(b"\n", at)].decode()


def _headers(column: pa.ListArray) -> Sequence[list[dict[str, Any]]]:
    if column.null_count == len(column):
        return [[]] * len(column)
    rows = []
    for pairs in column.to_pylist():
        shown: list[dict[str, Any]] = []
        for pair in pairs or ():
            text, encoding = _text(pair["value"])
            one = {"key": pair["key"], "value": text}
            shown.append(one | ({"encoding": encoding} if encoding == "base64" else {}))
        rows.append(shown)
    return rows


def _text(content: bytes | None) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def _value(content: bytes | None) -> tuple[Any, str | None]:
    """A value that is JSON as it is, others as text or base64, and then which of these."""
    if content is None:
        return None, None
    try:
        orjson.loads(
            content
        )  # only to know whether it is JSON: to write it anew would cost numbers their digits
    except orjson.JSONDecodeError:
        return _text(content)
    return orjson.Fragment(content.translate(_ON_ONE_LINE)), None
