"""TABLE_MAP events: which table the rows events after it are of, and how its columns are written. Pure.

Always there: the types of the columns and what is needed to find a value's end. With ``binlog_row_metadata=FULL``
also names, signs, character sets, labels and the primary key; with MINIMAL signs and character sets.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headwater.connect.cdc.mysql.binlog import MalformedEvent, length_encoded

# Types of columns in the log. ENUM, SET and the long strings hide behind STRING: see `_metadata`.
DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24 = range(10)
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = range(10, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR, JSON, NEWDECIMAL, ENUM, SET = 140, 141, 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255

_NUMERIC = {DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, YEAR, NEWDECIMAL}
_CHARACTER = {
    STRING, VAR_STRING, VARCHAR, BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED
}  # fmt: skip
_LABELLED = {ENUM, SET}
_TWO_BYTES = {VARCHAR, VAR_STRING, BIT, VARCHAR_COMPRESSED}
_ONE_BYTE = {
    FLOAT, DOUBLE, BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED, GEOMETRY, JSON, VECTOR, TIMESTAMP2,
    DATETIME2, TIME2,
}  # fmt: skip


class WrittenColumn(NamedTuple):
    """How the log writes a column, and what it says of it."""

    type: int
    metadata: int  # length, size of the length, digits of a second, or precision << 8 | scale
    name: str | None = None
    unsigned: bool | None = None
    collation: int | None = None
    labels: tuple[bytes, ...] | None = None


class TableMap(NamedTuple):
    """The table of the rows events that follow."""

    number: int
    database: str
    table: str
    columns: tuple[WrittenColumn, ...]
    key: tuple[int, ...] | None  # places of the primary key's columns

    @property
    def has_names(self) -> bool:
        return bool(self.columns) and all(column.name is not None for column in self.columns)

    @classmethod
    def of(cls, body: bytes, is_mariadb: bool = True) -> "TableMap":
        number = int.from_bytes(body[:6], "little")
        at = 8
        database = body[at + 1 : at + 1 + body[at]].decode("utf-8", "replace")
        at += body[at] + 2
        table = body[at + 1 : at + 1 + body[at]].decode("utf-8", "replace")
        at += body[at] + 2
        count, at = length_encoded(body, at)
        types = body[at : at + count]
        size, at = length_encoded(body, at + count)
        columns = list(_metadata(types, body[at : at + size]))
        at += size + (count + 7) // 8
        key = _optional(body, at, columns, is_mariadb)
        return cls(number, database, table, tuple(columns), key)


def _metadata(types: bytes, metadata: bytes) -> Iterator[WrittenColumn]:
    at = 0
    for kind in types:
        value = 0
        if kind in _ONE_BYTE:
            value = metadata[at]
            at += 1
        elif kind in _TWO_BYTES:
            value = int.from_bytes(metadata[at : at + 2], "little")
            at += 2
        elif kind == NEWDECIMAL:
            value = metadata[at] << 8 | metadata[at + 1]
            at += 2
        elif kind in (STRING, ENUM, SET):
            # The first byte is the real type, but its bits 4 and 5 turned are bits 8 and 9 of a CHAR's length.
            first, value = metadata[at], metadata[at + 1]
            at += 2
            if first & 0x30 != 0x30:
                value |= (first & 0x30 ^ 0x30) << 4
                first |= 0x30
            kind = first
        yield WrittenColumn(kind, value)


def _optional(body: bytes, at: int, columns: list[WrittenColumn], is_mariadb: bool) -> tuple[int, ...] | None:
    """Fills what optional fields say into the columns; the primary key when there is one."""
    key: tuple[int, ...] | None = None
    # MariaDB counts spatial columns among those that have a character set.
    textual = _CHARACTER | {GEOMETRY} if is_mariadb else _CHARACTER
    while at < len(body):
        field = body[at]
        size, at = length_encoded(body, at + 1)
        value = body[at : at + size]
        at += size
        if field == 1:
            places = [n for n, column in enumerate(columns) if column.type in _NUMERIC]
            for nth, place in enumerate(places):
                unsigned = bool(value[nth // 8] & 0x80 >> nth % 8)
                columns[place] = columns[place]._replace(unsigned=unsigned)
        elif field in (2, 10):
            places = [n for n, c in enumerate(columns) if c.type in (_LABELLED if field == 10 else textual)]
            default, *exceptions = _numbers(value)
            others = dict(zip(exceptions[::2], exceptions[1::2], strict=True))
            for nth, place in enumerate(places):
                columns[place] = columns[place]._replace(collation=others.get(nth, default))
        elif field in (3, 11):
            places = [n for n, c in enumerate(columns) if c.type in (_LABELLED if field == 11 else textual)]
            for place, collation in zip(places, _numbers(value), strict=True):
                columns[place] = columns[place]._replace(collation=collation)
        elif field == 4:
            for place, name in enumerate(_strings(value)):
                columns[place] = columns[place]._replace(name=name.decode("utf-8", "replace"))
        elif field in (5, 6):
            kind = SET if field == 5 else ENUM
            places = [n for n, column in enumerate(columns) if column.type == kind]
            for place, labels in zip(places, _label_lists(value), strict=True):
                columns[place] = columns[place]._replace(labels=labels)
        elif field == 8:
            key = tuple(_numbers(value))
        elif field == 9:
            key = tuple(_numbers(value)[::2])  # each with the length of a prefix
    return key


def _numbers(value: bytes) -> list[int]:
    at, numbers = 0, []
    while at < len(value):
        number, at = length_encoded(value, at)
        numbers.append(number)
    return numbers


def _strings(value: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        size, at = length_encoded(value, at)
        yield value[at : at + size]
        at += size


def _label_lists(value: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(value):
        count, at = length_encoded(value, at)
        labels = []
        for _ in range(count):
            size, at = length_encoded(value, at)
            labels.append(value[at : at + size])
            at += size
        yield tuple(labels)
    if at != len(value):
        raise MalformedEvent("labels end before they should")
