"""A piece of a table, read in a database snapshot of its own and held until the stream has passed it. No I/O.

The rows of a chunk may be written as soon as the stream has passed the position that the log had after the
snapshot was taken: then every transaction that the snapshot shows has gone by. What the snapshot does not show is
newer than the chunk: a row that such a transaction touched meanwhile is dropped, its change was written already.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.postgres.literals import Converter, string
from headwater.connect.cdc.postgres.lsn import Visibility
from headwater.connect.cdc.postgres.plan import Plan
from headwater.connect.cdc.postgres.types import is_as_it_is
from headwater.connect.source import Record

_must_escape = re.compile(rb'["\\\x00-\x1f]').search
_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@dataclass
class Held:
    """A chunk that waits. `rows` are objects in JSON by their key, in the order of the key."""

    plan: Plan
    seen: Visibility
    mark: int  # the stream has to come here first
    rows: dict[bytes, bytes]
    after: list[str]  # the key of the last row, as text: where the next chunk begins
    count: int
    more: bool  # whether there are rows behind it
    nanoseconds: int

    def changed(self, oid: int, key: bytes | None) -> None:
        """A transaction that the chunk does not show has touched a row."""
        if oid == self.plan.oid and key is not None:
            self.rows.pop(key, None)

    def truncated(self, oid: int) -> None:
        if oid == self.plan.oid:
            self.rows.clear()

    def release(
        self, source: Callable[[str], bytes], first: str | None, last: str | None, tail: bytes
    ) -> list[Record]:
        """The records of what is left. `source` makes the source block for a marker such as ``true``."""
        topic = self.plan.topic
        end = b',"source":%b,"transaction":null,"op":"r",%b' % (source("true"), tail)
        records: list[Record] = [
            (topic, key, b'{"before":null,"after":%b%b' % (row, end), None)  # type: ignore[misc]
            for key, row in self.rows.items()
        ]
        for marker, place in ((last, -1), (first, 0)):
            if marker is not None and records:
                key = records[place][1]
                assert key is not None
                other = b',"source":%b,"transaction":null,"op":"r",%b' % (source(marker), tail)
                records[place] = Record(
                    topic, key, b'{"before":null,"after":%b%b' % (self.rows[key], other), None
                )
        return records


def copied_rows(lines: Iterable[bytes]) -> list[list[bytes | None]]:
    """The rows of ``COPY ... TO STDOUT`` in text format.

    >>> copied_rows([b"1\\tAda\\n", b"2\\t\\\\N\\n", b"3\\ta\\\\tb\\\\\\\\\\n"])
    [[b'1', b'Ada'], [b'2', None], [b'3', b'a\\tb\\\\']]
    """
    return [
        line[:-1].split(b"\t")
        if b"\\" not in line
        else [_unescaped(value) for value in line[:-1].split(b"\t")]  # type: ignore[misc]
        for line in lines
    ]


def _unescaped(value: bytes) -> bytes | None:
    if b"\\" not in value:
        return value
    if value == b"\\N":
        return None
    parts = value.split(b"\\")
    out = [parts[0]]
    place = 1
    while place < len(parts):
        part = parts[place]
        if part:
            out.append(_ESCAPES.get(part[:1], part[:1]) + part[1:])
        else:  # a backslash that stands for itself; what follows is plain
            out.append(b"\\")
            place += 1
            if place < len(parts):
                out.append(parts[place])
        place += 1
    return b"".join(out)


def _strings(column: Sequence[bytes]) -> list[bytes]:
    """Strings in JSON. Hardly any needs to be escaped: if none does, they are quoted all at once."""
    joined = b'"\0"'.join(column)
    if _must_escape(joined.replace(b'"\0"', b"")) is None and _is_utf8(joined):
        return (b'"%b"' % joined).split(b"\0")
    return [string(value) for value in column]


def _is_utf8(text: bytes) -> bool:
    """Text of the server always is, but of a database of encoding SQL_ASCII."""
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


def in_json(
    rows: Sequence[Sequence[bytes | None]], converters: Sequence[Converter]
) -> list[tuple[bytes, ...]]:
    """Rows of text to rows of JSON, column by column, which is quicker than row by row.

    >>> in_json([[b"1", b"t"], [b"2", None]], [bytes, lambda text: b"true"])
    [(b'1', b'true'), (b'2', b'null')]
    """
    columns: list[Sequence[bytes]] = []
    for convert, column in zip(converters, zip(*rows, strict=True), strict=True):
        if None in column:
            columns.append([NULL if value is None else convert(value) for value in column])
        elif is_as_it_is(convert):
            columns.append(column)
        elif convert is string:
            columns.append(_strings(column))
        else:
            columns.append([convert(value) for value in column])
    return list(zip(*columns, strict=True))
