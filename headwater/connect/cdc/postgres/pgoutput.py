"""The messages of PostgreSQL's output plug-in pgoutput, protocol version 1, from bytes. No I/O.

Every function takes the bytes and where in them the message begins: nothing is copied but the values.

A transaction is Begin, then Insert, Update, Delete, Truncate, Message (and Relation, Type, Origin before they are
needed), then Commit. Values come as text; the relation that they belong to was described before, and is described
again when it has changed.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

BEGIN, COMMIT, ORIGIN, RELATION, TYPE = b"BCORY"
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = b"IUDTM"

# Microseconds from 1970 to 2000, which is where PostgreSQL counts from.
EPOCH_MICROSECONDS = 946_684_800_000_000


class Unchanged:
    """A value that is stored apart (TOAST) and was not changed by an update: it is not in the stream."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Value = bytes | None | Unchanged
Values = list[Value]

_begin = Struct(">qqI").unpack_from
_commit = Struct(">Bqqq").unpack_from
_u32 = Struct(">I").unpack_from
_u16 = Struct(">H").unpack_from
_column = Struct(">Ii").unpack_from
_message = Struct(">Bq").unpack_from

_NULL, _UNCHANGED, _TEXT = b"nut"
_NEW, _KEY, _OLD = b"NKO"


class Begin(NamedTuple):
    commit_lsn: int  # where the commit record begins
    microseconds: int  # since 1970
    xid: int


class Commit(NamedTuple):
    commit_lsn: int
    end_lsn: int
    microseconds: int


class Column(NamedTuple):
    name: str
    type_oid: int
    modifier: int  # atttypmod, -1 for none
    identity: bool  # part of the replica identity


@dataclass(frozen=True)
class Relation:
    """A table as it was when the changes that follow were made; generated columns are left out."""

    oid: int
    schema: str
    table: str
    identity: str  # d(efault), n(othing), f(ull), i(ndex)
    columns: tuple[Column, ...]


class Update(NamedTuple):
    oid: int
    key: Values | None  # the old key, when it has changed; other columns are None
    old: Values | None  # the old row, with replica identity full
    new: Values


class Delete(NamedTuple):
    oid: int
    key: Values | None
    old: Values | None


class Truncate(NamedTuple):
    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class LogicalMessage(NamedTuple):
    transactional: bool
    lsn: int
    prefix: str
    content: bytes


def begin(data: bytes, at: int = 0) -> Begin:
    lsn, microseconds, xid = _begin(data, at + 1)
    return Begin(lsn, microseconds + EPOCH_MICROSECONDS, xid)


def commit(data: bytes, at: int = 0) -> Commit:
    _, lsn, end, microseconds = _commit(data, at + 1)
    return Commit(lsn, end, microseconds + EPOCH_MICROSECONDS)


def relation(data: bytes, start: int = 0) -> Relation:
    """
    >>> data = b"R" + bytes([0, 0, 64, 1]) + b"public\\0t\\0d" + bytes([0, 1, 1]) + b"id\\0" + bytes([0, 0, 0, 23])
    >>> relation(data + bytes([255] * 4)).columns
    (Column(name='id', type_oid=23, modifier=-1, identity=True),)
    """
    oid = _u32(data, start + 1)[0]
    schema, at = _string(data, start + 5)
    table, at = _string(data, at)
    identity = chr(data[at])
    count = _u16(data, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        name, at = _string(data, at + 1)
        type_oid, modifier = _column(data, at)
        at += 8
        columns.append(Column(name, type_oid, modifier, bool(flags & 1)))
    # pg_catalog is sent as an empty string
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def relation_oid(data: bytes, at: int = 0) -> int:
    """The relation of an Insert, Update or Delete."""
    oid: int = _u32(data, at + 1)[0]
    return oid


def insert_values(data: bytes, at: int = 0) -> Values:
    """The row of an Insert: relation, ``N``, tuple.

    >>> insert_values(b"I" + bytes(4) + b"N" + bytes([0, 3]) + b"t" + bytes([0, 0, 0, 2]) + b"42" + b"n" + b"u")
    [b'42', None, UNCHANGED]
    """
    return values(data, at + 6)[0]


def update(data: bytes, at: int = 0) -> Update:
    oid = _u32(data, at + 1)[0]
    kind = data[at + 5]
    key = old = None
    at += 6
    if kind == _KEY:
        key, at = values(data, at)
        at += 1
    elif kind == _OLD:
        old, at = values(data, at)
        at += 1
    return Update(oid, key, old, values(data, at)[0])


def delete(data: bytes, at: int = 0) -> Delete:
    oid = _u32(data, at + 1)[0]
    row = values(data, at + 6)[0]
    return Delete(oid, row, None) if data[at + 5] == _KEY else Delete(oid, None, row)


def truncate(data: bytes, at: int = 0) -> Truncate:
    count = _u32(data, at + 1)[0]
    flags = data[at + 5]
    oids = tuple(_u32(data, at + 6 + 4 * number)[0] for number in range(count))
    return Truncate(oids, bool(flags & 1), bool(flags & 2))


def message(data: bytes, at: int = 0) -> LogicalMessage:
    flags, lsn = _message(data, at + 1)
    prefix, at = _string(data, at + 10)
    size = _u32(data, at)[0]
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[at + 4 : at + 4 + size])


def values(data: bytes, at: int) -> tuple[Values, int]:
    """A tuple of values, and where it ends."""
    count = _u16(data, at)[0]
    at += 2
    row: Values = []
    add = row.append
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _u32(data, at + 1)[0]
            add(data[start:at])
        elif kind == _NULL:
            add(None)
            at += 1
        elif kind == _UNCHANGED:
            add(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"a value of an unknown kind: {chr(kind)!r}")
    return row, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode("utf-8", "backslashreplace"), end + 1
