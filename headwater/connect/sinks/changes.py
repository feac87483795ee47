"""What a record of a topic says about a table: this row is so now, this row is gone, all rows are gone. No I/O.

Values are Debezium's envelope, with or without the schema that Kafka Connect puts around it, or rows as plain JSON
(the changelog of a view, any topic of objects); no value means that the key's row is gone. Keys are JSON objects of
the key's columns, or anything else, which is one column named ``key`` then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from headwater.connect.sinks.identity import Identity, Unreadable

Row = dict[str, Any]
Format = Literal["auto", "debezium", "json"]

_UPSERTS = ("c", "u", "r")


class Change(NamedTuple):
    """The state of one row after a record; `row` is None when it is gone."""

    id: str
    offset: int
    row: Row | None


class Envelope(NamedTuple):
    """One record's value, whatever its form. `op` is Debezium's, or None for a plain row."""

    op: str | None
    before: Row | None
    after: Row | None
    source_ms: int | None = None


@dataclass(frozen=True)
class ChangeReader:
    """Reads the records of a topic."""

    identity: Identity
    format: Format = "auto"

    def read(self, key: bytes | None, value: bytes | None, offset: int) -> list[Change] | None:
        """The changes of a record, in order; None when it empties the table. Unreadable when it cannot be used.

        >>> reader = ChangeReader(Identity("user:{id}"))
        >>> reader.read(b'{"id":1}', b'{"before":null,"after":{"id":1,"n":"x"},"source":{},"op":"c"}', 7)
        [Change(id='user:1', offset=7, row={'id': 1, 'n': 'x'})]
        >>> reader.read(b'{"id":1}', None, 8)
        [Change(id='user:1', offset=8, row=None)]
        """
        found = parse_value(value, self.format) if value is not None else Envelope("d", None, None)
        if found.op == "t":
            return None
        if found.op == "m" or (key is None and value is None):
            return []  # a message of the application; the tombstone of a table without a key
        if key is not None:
            return [Change(self.identity.of_key(parse_key(key)), offset, found.after)]
        return self._without_key(found, offset)

    def _without_key(self, found: Envelope, offset: int) -> list[Change]:
        """The columns of the template are looked up in the rows then."""
        changes = []
        old = self.identity.of_row(found.before) if found.before is not None else None
        new = self.identity.of_row(found.after) if found.after is not None else None
        if old is not None and old != new:
            changes.append(Change(old, offset, None))
        if new is not None:
            changes.append(Change(new, offset, found.after))
        return changes


def parse_key(key: bytes) -> Mapping[str, Any] | str:
    """The columns of a key, or its text when it is no object.

    >>> parse_key(b'{"id":1}'), parse_key(b'{"schema":{},"payload":{"id":1}}'), parse_key(b'"a"'), parse_key(b"a-1")
    ({'id': 1}, {'id': 1}, 'a', 'a-1')
    """
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        found = found["payload"]
        key = orjson.dumps(found)
    if isinstance(found, dict):
        return found
    if isinstance(found, str):
        return found
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


def parse_value(value: bytes, format: Format = "auto") -> Envelope:
    """A value in whichever form it came.

    >>> parse_value(b'{"id":1}')
    Envelope(op=None, before=None, after={'id': 1}, source_ms=None)
    >>> parse_value(b'{"schema":{},"payload":{"before":{"id":1},"after":null,"source":{"ts_ms":5},"op":"d"}}')
    Envelope(op='d', before={'id': 1}, after=None, source_ms=5)
    """
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"its value is not JSON: {error}") from error
    # Exact types: the parser gives no others, and this is done for every record.
    if (
        type(found) is dict
        and format != "json"
        and len(found) == 2
        and "payload" in found
        and "schema" in found
    ):
        found = found["payload"]
        if found is None:
            return Envelope("d", None, None)
    if type(found) is not dict:
        raise Unreadable("its value is not a JSON object")
    if format == "json" or (format == "auto" and not _is_envelope(found)):
        return Envelope(None, None, found)
    return _envelope(found)


def _is_envelope(found: Row) -> bool:
    return "op" in found and "source" in found and ("after" in found or "before" in found)


def _envelope(found: Row) -> Envelope:
    get = found.get
    op, before, after, source = get("op"), get("before"), get("after"), get("source")
    moment = source.get("ts_ms") if type(source) is dict else None
    if op in _UPSERTS:
        if type(after) is not dict:
            raise Unreadable(f"it is a change event {op!r} without the row after it")
    elif op == "d":
        after = None
    elif op not in ("t", "m"):
        raise Unreadable(f"it is no change event: its op is {op!r}")
    return Envelope(
        op, before if type(before) is dict else None, after, moment if type(moment) is int else None
    )
