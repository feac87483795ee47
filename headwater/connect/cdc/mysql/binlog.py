"""The events of the binary log, byte by byte; pure. Rows are in rows.py.

Every event begins with 19 bytes: time (seconds, u32), type (u8), server id (u32), length (u32), position after the
event in its file (u32, so that it wraps in files over 4 GB) and flags (u16), all little-endian. When checksums
are on, it ends with a CRC-32 of all before.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import cramjam

HEADER = struct.Struct("<IBIIIH")
HEADER_SIZE = HEADER.size
CHECKSUM_SIZE = 4

QUERY, STOP, ROTATE, FORMAT_DESCRIPTION, XID = 2, 3, 4, 15, 16
TABLE_MAP = 19
INCIDENT, HEARTBEAT, ROWS_QUERY = 26, 27, 29
MYSQL_GTID, MYSQL_ANONYMOUS, MYSQL_PREVIOUS_GTIDS = 33, 34, 35
XA_PREPARE, PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_2, MYSQL_GTID_TAGGED = 38, 39, 40, 41, 42
ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID, MARIA_GTID_LIST = 160, 161, 162, 163
QUERY_COMPRESSED = 165

ARTIFICIAL = 0x20  # a flag of the header: made for us, not in the file


class RowsKind(NamedTuple):
    """What a type of rows event means."""

    operation: str  # c, u, d
    has_extra: bool  # version 2: the header has a part of variable length
    compressed: bool  # MariaDB's log_bin_compress
    partial: bool = False  # MySQL's changes of parts of JSON values


ROWS = {
    23: RowsKind("c", False, False),
    24: RowsKind("u", False, False),
    25: RowsKind("d", False, False),
    30: RowsKind("c", True, False),
    31: RowsKind("u", True, False),
    32: RowsKind("d", True, False),
    PARTIAL_UPDATE_ROWS: RowsKind("u", True, False, True),
    166: RowsKind("c", False, True),
    167: RowsKind("u", False, True),
    168: RowsKind("d", False, True),
    169: RowsKind("c", True, True),
    170: RowsKind("u", True, True),
    171: RowsKind("d", True, True),
}

# Flags of a MariaDB GTID event.
STANDALONE, GROUP_COMMIT_ID, TRANSACTIONAL, DDL, PREPARED_XA, COMPLETED_XA = 1, 2, 4, 32, 64, 128


class MalformedEvent(ValueError):
    """Bytes that are not what the format says."""


def length_encoded(data: bytes, at: int) -> tuple[int, int]:
    """An integer of one to nine bytes, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise MalformedEvent(f"a length begins with {first}")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


class FormatDescription(NamedTuple):
    """How the events of a file are written."""

    server_version: str
    checksummed: bool

    @classmethod
    def of(cls, body: bytes) -> "FormatDescription":
        """From the body, which always ends with the checksum's algorithm and four bytes for a checksum."""
        version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
        return cls(version, body[-CHECKSUM_SIZE - 1] == 1)


class Rotate(NamedTuple):
    """The file that follows, or which an artificial one says we are in."""

    file: str
    position: int

    @classmethod
    def of(cls, body: bytes) -> "Rotate":
        return cls(body[8:].decode(), int.from_bytes(body[:8], "little"))


class MariaGtid(NamedTuple):
    """The begin of a group of events in MariaDB."""

    sequence: int
    domain: int
    flags: int
    xid: bytes  # of an XA transaction: format, lengths and both parts, as they are in the event

    @classmethod
    def of(cls, body: bytes) -> "MariaGtid":
        sequence, domain, flags = struct.unpack_from("<QIB", body)
        at = 13 + (8 if flags & GROUP_COMMIT_ID else 0)
        if not flags & (PREPARED_XA | COMPLETED_XA):
            return cls(sequence, domain, flags, b"")
        size = 6 + body[at + 4] + body[at + 5]
        return cls(sequence, domain, flags, body[at : at + size])


class MySQLGtid(NamedTuple):
    """The begin of a group of events in MySQL."""

    source: str
    number: int

    @classmethod
    def of(cls, body: bytes) -> "MySQLGtid":
        h = body[1:17].hex()
        return cls(f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}", int.from_bytes(body[17:25], "little"))


def previous_gtids(body: bytes) -> str:
    """The set of a PREVIOUS_GTIDS event (or of COM_BINLOG_DUMP_GTID) as text."""
    (sources,) = struct.unpack_from("<Q", body)
    at, parts = 8, []
    for _ in range(sources):
        h = body[at : at + 16].hex()
        (count,) = struct.unpack_from("<Q", body, at + 16)
        at += 24
        ranges = []
        for _ in range(count):
            first, end = struct.unpack_from("<QQ", body, at)
            at += 16
            ranges.append(f"{first}-{end - 1}")
        parts.append(":".join([f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}", *ranges]))
    return ",".join(parts)


class Query(NamedTuple):
    """A statement: DDL, or what begins, ends and divides transactions."""

    thread: int
    database: str
    text: str
    error: int

    @classmethod
    def of(cls, body: bytes, compressed: bool = False) -> "Query":
        thread, _, database_size, error, status_size = struct.unpack_from("<IIBHH", body)
        at = 13 + status_size
        database = body[at : at + database_size].decode("utf-8", "replace")
        text = body[at + database_size + 1 :]
        if compressed:
            text = decompressed(text)
        return cls(thread, database, _statement_text(text, body[13:at]), error)


def _statement_text(text: bytes, status: bytes) -> str:
    """Statements are in the client's character set, which a status variable names by a collation."""
    at = 0
    while at < len(status):
        code = status[at]
        at += 1
        if code == 4:  # client, connection, server: two bytes each
            collation = int.from_bytes(status[at : at + 2], "little")
            return text.decode(
                "cp1252" if collation in (5, 8, 15, 31, 47, 48, 49, 94) else "utf-8", "replace"
            )
        if code in (0, 3):
            at += 4
        elif code == 1:
            at += 8
        elif code in (5, 6):
            at += 1 + status[at]
        else:
            break  # what follows in no order we know
    return text.decode("utf-8", "replace")


def decompressed(data: bytes) -> bytes:
    """MariaDB's compressed part of an event: a byte with algorithm and size of the length, the length, zlib."""
    head = data[0]
    if not head & 0x80 or head & 0x70:
        raise MalformedEvent(f"a compressed event begins with {head:#x}")
    size = head & 0x07
    plain = zlib.decompress(data[1 + size :])
    if len(plain) != int.from_bytes(data[1 : 1 + size], "big"):
        raise MalformedEvent("a compressed event has another length than it says")
    return plain


class XaPrepare(NamedTuple):
    """The end of the first half of an XA transaction."""

    one_phase: bool  # committed with it
    xid: bytes  # in the form of MariaGtid.xid

    @classmethod
    def of(cls, body: bytes) -> "XaPrepare":
        one_phase, form, first, second = struct.unpack_from("<BIII", body)
        xid = struct.pack("<IBB", form, first, second) + body[13 : 13 + first + second]
        return cls(bool(one_phase), xid)


def xid_of_statement(text: str) -> bytes | None:
    """The id in ``XA COMMIT X'7831',X'',1``, in the form of MariaGtid.xid.

    >>> xid_of_statement("XA COMMIT X'7831',X'',1")
    b'\\x01\\x00\\x00\\x00\\x02\\x00x1'
    """
    words = text.split(None, 2)
    if len(words) < 3:
        return None
    parts = [part.strip() for part in words[2].split(",")]
    if len(parts) != 3 or not all(part[:2].upper() == "X'" and part[-1] == "'" for part in parts[:2]):
        return None
    first, second = bytes.fromhex(parts[0][2:-1]), bytes.fromhex(parts[1][2:-1])
    return struct.pack("<IBB", int(parts[2].split()[0]), len(first), len(second)) + first + second


def payload_events(body: bytes) -> Iterator[bytes]:
    """The events inside MySQL's TRANSACTION_PAYLOAD, each with its header and without a checksum."""
    at, size, compression, plain_size = 0, 0, 255, 0
    while True:
        field, at = length_encoded(body, at)
        if field == 0:
            break
        length, at = length_encoded(body, at)
        value, _ = length_encoded(body, at)
        if field == 1:
            size = value
        elif field == 2:
            compression = value
        elif field == 3:
            plain_size = value
        at += length
    payload = body[at : at + size]
    if compression == 0:
        payload = bytes(cramjam.zstd.decompress(payload, output_len=plain_size or None))
    elif compression != 255:
        raise MalformedEvent(f"a transaction is compressed by an unknown algorithm ({compression})")
    at = 0
    while at < len(payload):
        (length,) = struct.unpack_from("<I", payload, at + 9)
        if length < HEADER_SIZE:
            raise MalformedEvent("an event in a compressed transaction has no length")
        yield payload[at : at + length]
        at += length


def heartbeat_position(body: bytes, second_version: bool) -> tuple[str, int | None]:
    """Which file a heartbeat speaks of; version 2 has the position inside, version 1 in the event's header."""
    if not second_version:
        return body.decode("utf-8", "replace"), None
    at, file, position = 0, "", None
    while at < len(body):
        field, at = length_encoded(body, at)
        if field == 0:
            break
        length, at = length_encoded(body, at)
        if field == 1:
            file = body[at : at + length].decode()
        elif field == 2:
            position, _ = length_encoded(body, at)
        at += length
    return file, position
