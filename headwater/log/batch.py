"""Record batches of message format v2: the unit in which the log is written, read and checked.

A batch on the wire and on disk is a 61-byte header and its records, compressed or not::

    base offset            int64    0   rewritten by the broker
    batch length           int32    8   bytes that follow this field
    partition leader epoch int32   12   rewritten by the broker
    magic                  int8    16   2
    crc                    uint32  17   CRC-32C of everything from `attributes` on
    attributes             int16   21   codec (0-2), timestamp type (3), transactional (4), control (5),
                                        delete horizon (6: base timestamp is a delete horizon)
    last offset delta      int32   23
    base timestamp         int64   27
    max timestamp          int64   35
    producer id            int64   43
    producer epoch         int16   51
    base sequence          int32   53
    record count           int32   57
    records                        61

The checksum leaves out what the broker rewrites, so that a batch stays opaque: giving it its offsets needs
neither a new checksum nor a look inside.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61
LOG_OVERHEAD = 12  # base offset and length, in front of what `length` counts
SMALLEST_LENGTH = HEADER_SIZE - LOG_OVERHEAD
CRC_START = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_CRC = struct.Struct(">I")
_PLACE = struct.Struct(">qii")  # base offset, length, leader epoch


class BatchHeader(NamedTuple):
    """The fixed part of a record batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap at 2^31.

        >>> header = BatchHeader(0, 49, 0, 2, 0, 0, 3, 0, 0, 7, 0, 2**31 - 2, 4)
        >>> header.last_sequence
        1
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def uses_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers of this batch may go, once a cleaning has set it (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``, unchecked; the buffer must hold 61 bytes from there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def crc_is_right(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether the batch at ``position`` of ``buffer``, all of it there, matches its checksum."""
    end = position + header.length + LOG_OVERHEAD
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc)


def fault_at(buffer: Buffer, position: int = 0) -> str | None:
    """What is wrong with the batch at ``position``, or None when it is whole and right.

    >>> fault_at(b"\\0" * 30)
    'cut short: 30 of 61 header bytes'
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        return f"cut short: {available} of {HEADER_SIZE} header bytes"
    header = read_header(buffer, position)
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if header.length < SMALLEST_LENGTH:
        return f"length {header.length} is below the smallest, {SMALLEST_LENGTH}"
    if available < header.size:
        return f"cut short: {available} of {header.size} bytes"
    if not crc_is_right(buffer, header, position):
        return "checksum does not match"
    return None


def split(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches in ``buffer``, unchecked, up to the first that is not whole."""
    position, end = 0, len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.length < SMALLEST_LENGTH or position + header.size > end:
            return
        yield position, header
        position += header.size


def place(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Give the batch at ``position`` its offset and epoch, in place. The checksum does not cover them."""
    length = struct.unpack_from(">i", buffer, position + 8)[0]
    _PLACE.pack_into(buffer, position, base_offset, length, leader_epoch)


def placed_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch with its offset and epoch; the rest of it is written as it came."""
    return _PLACE.pack(base_offset, header.length, leader_epoch)


def seal(buffer: bytearray, position: int = 0) -> None:
    """Set the checksum of the batch at ``position`` after its header or records were changed."""
    length = struct.unpack_from(">i", buffer, position + 8)[0]
    end = position + length + LOG_OVERHEAD
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    _CRC.pack_into(buffer, position + 17, crc)


def with_append_time(batch: Buffer, now_ms: int) -> bytearray:
    """A copy of the batch stamped with the broker's time (message.timestamp.type=LogAppendTime)."""
    copy = bytearray(batch)
    attributes = struct.unpack_from(">h", copy, 21)[0] | LOG_APPEND_TIME
    struct.pack_into(">h", copy, 21, attributes)
    struct.pack_into(">q", copy, 35, now_ms)
    seal(copy)
    return copy


def with_create_time(batch: Buffer) -> bytearray:
    """A copy of the batch that says that its timestamps are the client's."""
    copy = bytearray(batch)
    attributes = struct.unpack_from(">h", copy, 21)[0] & ~LOG_APPEND_TIME
    struct.pack_into(">h", copy, 21, attributes)
    seal(copy)
    return copy


def assemble(
    records: Buffer,
    *,
    record_count: int,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = 0,
    attributes: int = 0,
    base_timestamp: int = NO_TIMESTAMP,
    max_timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch around ``records`` (as they stand in it: compressed when ``attributes`` say so)."""
    if last_offset_delta is None:
        last_offset_delta = record_count - 1
    header = HEADER.pack(
        base_offset, SMALLEST_LENGTH + len(records), leader_epoch, MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    batch = bytearray(header)
    batch += records
    seal(batch)
    return bytes(batch)
