"""The records inside a batch: reading, checking, building.

A record, in the decompressed rest of a batch behind its header::

    length           varint    bytes that follow
    attributes       int8      unused
    timestamp delta  varlong   from the batch's base timestamp
    offset delta     varint    from the batch's base offset; rises from record to record
    key              varint length (negative: null), bytes
    value            varint length (negative: null), bytes
    headers          varint count, then of each: key (varint length, UTF-8), value (as above)

Varints are zigzag encoded (0, -1, 1, -2, ...), seven bits a byte, lowest first. With LogAppendTime all
records have the batch's max timestamp, and their deltas mean nothing.

Whatever a client sends ends in records or in `InvalidBatch`. The checksum is not looked at here.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.errors import InvalidBatch, UnsupportedFormat
from headwater.log.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    SMALLEST_LENGTH,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    assemble,
    read_header,
)
from headwater.log.compression import compress, decompress

# What the records of one batch may come to when decompressed. A producer fills its batches by their
# uncompressed size, so that what is far above max.message.bytes is an attack or an accident.
DECOMPRESSED_LIMIT = 128 * 1024 * 1024

_LARGEST_TIME = 2**63 - 1  # that the protocol has room for

ABORT = 0
COMMIT = 1
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp."""

Span = tuple[int, int, int, int, bytes | None, int, int]
"""Where a record starts and ends, offset delta, timestamp delta, key, where its value starts (-1: null) and
its headers."""


class Record(NamedTuple):
    """One record with its place and time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ControlRecord(NamedTuple):
    """What a control batch says: how a transaction ended (``ABORT``, ``COMMIT``; Kafka has other kinds)."""

    kind: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @property
    def committed(self) -> bool:
        return self.kind == COMMIT


# -- reading ---------------------------------------------------------------------------------------


def open_batch(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> tuple[BatchHeader, bytes]:
    """The header of a whole batch, and its records decompressed."""
    header = checked_header(batch)
    return header, unpack(header, batch, limit)


def unpack(header: BatchHeader, batch: Buffer, limit: int) -> bytes:
    """The records of the batch of ``header``, decompressed."""
    return decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE : header.size], limit)


def checked_header(batch: Buffer) -> BatchHeader:
    """The header of a whole batch that can be one; its checksum is not looked at."""
    if len(batch) < HEADER_SIZE:
        raise InvalidBatch("read", "a batch", f"{len(batch)} bytes are less than a header")
    header = read_header(batch)
    if header.magic != MAGIC:
        raise UnsupportedFormat("read", "a batch", f"its magic is {header.magic}")
    if header.length < SMALLEST_LENGTH or header.size > len(batch):
        raise InvalidBatch("read", "a batch", f"it claims {header.size} bytes of {len(batch)}")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise InvalidBatch("read", "a batch", "its record count or last offset is negative")
    return header


def read_records(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
    """The records of a batch.

    >>> batch = build_batch([(b"k", b"v", [("trace", b"7")], 1000)], base_offset=5)
    >>> list(read_records(batch))
    [Record(offset=5, timestamp=1000, key=b'k', value=b'v', headers=(('trace', b'7'),))]
    """
    header, data = open_batch(batch, limit)
    base, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.uses_append_time else None
    for _, end, offset_delta, timestamp_delta, key, value_start, headers_start in spans(header, data):
        value = None if value_start < 0 else data[value_start:headers_start]
        headers = () if headers_start == end - 1 else tuple(_headers(data, headers_start))
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(base + offset_delta, timestamp, key, value, headers)


def spans(header: BatchHeader, data: bytes) -> Iterator[Span]:
    """Of each record what compaction needs, every field checked; ``data`` as `open_batch` gives it.

    >>> batch = build_batch([(b"k", None, (), 1000)])
    >>> list(spans(*open_batch(batch)))
    [(0, 8, 0, 0, b'k', -1, 7)]
    """
    # Compaction spends its time here. Varints of one and two bytes are read in place, the rest by _unsigned.
    size, position, last_delta = len(data), 0, -1
    zigzag = _ZIGZAG
    try:
        for _ in range(header.record_count):
            start = position
            number = data[position]
            position += 1
            if number > 127:
                high = data[position]
                position += 1
                if high > 127:
                    number, position = _unsigned(data, start, 5)
                else:
                    number = number & 127 | high << 7
            end = position + (number >> 1)
            if number & 1 or end > size:
                raise _broken(start, "its length leads out of the batch")

            position += 1  # attributes
            number = data[position]
            position += 1
            if number > 127:
                number, position = _unsigned(data, position - 1, 10)
                timestamp_delta = (number >> 1) ^ -(number & 1)
            else:
                timestamp_delta = zigzag[number]

            number = data[position]
            position += 1
            if number > 127:
                high = data[position]
                position += 1
                if high > 127:
                    number, position = _unsigned(data, position - 2, 5)
                else:
                    number = number & 127 | high << 7
            offset_delta = number >> 1
            if number & 1 or offset_delta <= last_delta:
                raise _broken(start, "its offset does not follow the one before")
            last_delta = offset_delta

            number = data[position]
            position += 1
            if number > 127:
                number, position = _unsigned(data, position - 1, 5)
            if number & 1:
                key = None
            else:
                key_end = position + (number >> 1)
                key = data[position:key_end]
                position = key_end

            number = data[position]
            position += 1
            if number > 127:
                high = data[position]
                position += 1
                if high > 127:
                    number, position = _unsigned(data, position - 2, 5)
                else:
                    number = number & 127 | high << 7
            if number & 1:
                value_start = -1
            else:
                value_start = position
                position += number >> 1

            # Every field but the headers moved the position on, so that checking the last checks them all.
            if position != end - 1 or data[position]:
                _check_headers(data, start, position, end)
            yield start, end, offset_delta, timestamp_delta, key, value_start, position
            position = end
    except IndexError:
        raise _broken(position, "it is cut short") from None
    if position != size:
        raise _broken(position, f"{size - position} bytes follow the last record")
    if last_delta > header.last_offset_delta:
        raise _broken(position, f"offset delta {last_delta} is past the last, {header.last_offset_delta}")


def check_keys(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> list[int]:
    """Indexes of the records without a key, which a compacted topic refuses. Checks the whole batch.

    >>> check_keys(build_batch([(b"a", b"1", (), 0), (None, b"2", (), 0)]))
    [1]
    """
    return [index for index, span in enumerate(spans(*open_batch(batch, limit))) if span[4] is None]


def find_by_timestamp(
    batch: Buffer, timestamp: int, start_offset: int = 0, limit: int = DECOMPRESSED_LIMIT
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record, not before ``start_offset``, at or after ``timestamp``.

    >>> batch = build_batch([(None, b"a", (), 10), (None, b"b", (), 30), (None, b"c", (), 20)])
    >>> find_by_timestamp(batch, 15), find_by_timestamp(batch, 31)
    ((1, 30), None)
    """
    header = checked_header(batch)
    if header.max_timestamp < timestamp or header.last_offset < start_offset or not header.record_count:
        return None
    if header.uses_append_time and header.record_count == header.last_offset_delta + 1:
        return max(header.base_offset, start_offset), header.max_timestamp
    for offset, stamp in _timestamps(batch, limit):
        if stamp >= timestamp and offset >= start_offset:
            return offset, stamp
    return None


def max_timestamp_record(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that holds the largest timestamp; None in an empty batch.

    >>> max_timestamp_record(build_batch([(None, b"a", (), 10), (None, b"b", (), 30), (None, b"c", (), 30)]))
    (1, 30)
    """
    header = checked_header(batch)
    if header.uses_append_time and header.record_count == header.last_offset_delta + 1:
        return header.base_offset, header.max_timestamp
    return max(_timestamps(batch, limit), key=lambda found: found[1], default=None)


def with_latest_timestamp(batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """A copy of the batch whose header has the latest timestamp of its records.

    >>> batch = bytearray(build_batch([(None, b"a", (), 10), (None, b"b", (), 30)]))
    >>> batch[35:43] = b"\\xff" * 8  # as clients leave it that do not know better
    >>> read_header(with_latest_timestamp(batch)).max_timestamp
    30
    """
    header = read_header(batch)
    latest = max((stamp for _, stamp in _timestamps(batch, limit)), default=header.max_timestamp)
    return reassemble(header._replace(max_timestamp=latest), memoryview(batch)[HEADER_SIZE:])


def _timestamps(batch: Buffer, limit: int) -> Iterator[tuple[int, int]]:
    header, data = open_batch(batch, limit)
    for _, _, offset_delta, timestamp_delta, _, _, _ in spans(header, data):
        stamp = header.max_timestamp if header.uses_append_time else header.base_timestamp + timestamp_delta
        _check_time(stamp)
        yield header.base_offset + offset_delta, stamp


def _check_time(number: int) -> None:
    """A delta that its producer made up may lead out of what the protocol has room for."""
    if not -_LARGEST_TIME - 1 <= number <= _LARGEST_TIME:
        raise InvalidBatch("read", "a batch", f"{number} is no timestamp")


def _headers(data: bytes, position: int) -> Iterator[tuple[str, bytes | None]]:
    count, position = _varint(data, position)
    for _ in range(count):
        length, position = _varint(data, position)
        # A name that is not UTF-8 stays what it is: build_batch writes the same bytes again.
        name = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = _varint(data, position)
        yield name, None if length < 0 else data[position : position + length]
        position += max(length, 0)


def _check_headers(data: bytes, start: int, position: int, end: int) -> None:
    if position >= end:
        raise _broken(start, "its key or value leads out of it")
    count, position = _varint(data, position)
    if count < 0:
        raise _broken(start, f"it claims {count} headers")
    for _ in range(count):
        length, position = _varint(data, position)
        if length < 0:
            raise _broken(start, "a header has no name")
        length, position = _varint(data, position + length)
        position += max(length, 0)
        if position > end:
            raise _broken(start, "a header leads out of it")
    if position != end:
        raise _broken(start, f"{end - position} bytes follow its headers")


_ZIGZAG = tuple((number >> 1) ^ -(number & 1) for number in range(128))


def _unsigned(data: bytes, position: int, longest: int) -> tuple[int, int]:
    """The varint at ``position``, zigzag not undone, and the position behind it."""
    number, shift, bits = 0, 0, 32 if longest == 5 else 64
    for place in range(position, position + longest):
        byte = data[place]
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> bits:
                break
            return number, place + 1
        shift += 7
    raise _broken(position, f"a number is longer than {bits} bits")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = data[position]
    if number < 128:
        return _ZIGZAG[number], position + 1
    number, position = _unsigned(data, position, 5)
    return (number >> 1) ^ -(number & 1), position


def _broken(position: int, cause: str) -> InvalidBatch:
    return InvalidBatch("read", f"the record at byte {position} of a batch", cause)


# -- building --------------------------------------------------------------------------------------


def build_batch(
    records: Sequence[NewRecord],
    *,
    codec: int = 0,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: int | None = None,
) -> bytes:
    """A batch of records with consecutive offsets; with ``append_time`` they all take that timestamp.

    >>> [record.value for record in read_records(build_batch([(b"k", b"v", (), 0)], codec=4))]
    [b'v']
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0][3]
    data = b"".join(
        encode_record(offset_delta, timestamp - base_timestamp, key, value, headers)
        for offset_delta, (key, value, headers, timestamp) in enumerate(records)
    )
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if append_time is not None:
        attributes |= LOG_APPEND_TIME
    return assemble(
        compress(codec, data, level),
        record_count=len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max(record[3] for record in records) if append_time is None else append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """One record as it stands in a batch."""
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    parts += _sized(key)
    parts += _sized(value)
    parts.append(encode_varint(len(headers)))
    for name, content in headers:
        parts += _sized(name.encode("utf-8", "surrogateescape"))
        parts += _sized(content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def encode_varint(number: int) -> bytes:
    """A zigzag varint of up to 64 bits.

    >>> encode_varint(-1), encode_varint(300)
    (b'\\x01', b'\\xd8\\x04')
    """
    left = (number << 1) ^ (number >> 63)
    if left < 128:
        return _ONE_BYTE[left]
    encoded = bytearray()
    while left > 127:
        encoded.append(left & 127 | 128)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


_ONE_BYTE = tuple(bytes([number]) for number in range(128))


def _sized(content: bytes | None) -> tuple[bytes, ...]:
    return (b"\x01",) if content is None else (encode_varint(len(content)), content)


def reassemble(header: BatchHeader, records: Buffer) -> bytes:
    """The batch of ``header`` around other ``records``, as they stand in it, with its length and checksum."""
    _check_time(header.max_timestamp)
    return assemble(
        records,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def with_timestamps_moved(data: bytes, pieces: Iterable[tuple[int, int]], by: int) -> bytes:
    """The records at ``pieces`` (start, end) of ``data`` with ``by`` added to their timestamp deltas.

    A new base timestamp wants this, so that the timestamps stay.
    """
    moved = []
    for start, end in pieces:
        _, position = _unsigned(data, start, 5)
        attributes = position
        number, position = _unsigned(data, position + 1, 10)
        delta = ((number >> 1) ^ -(number & 1)) + by
        _check_time(delta)
        body = data[attributes : attributes + 1] + encode_varint(delta) + data[position:end]
        moved.append(encode_varint(len(body)) + body)
    return b"".join(moved)


def recompress(batch: Buffer, codec: int, level: int | None = None, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """The batch in another codec, for a topic with a ``compression.type`` of its own; the rest stays.

    >>> batch = build_batch([(b"k", b"v" * 100, (), 0)])
    >>> len(recompress(batch, 4)) < len(batch)
    True
    """
    header, data = open_batch(batch, limit)
    if header.codec == codec:
        return bytes(batch)
    attributes = header.attributes & ~CODEC_MASK | codec
    return reassemble(header._replace(attributes=attributes), compress(codec, data, level))


# -- control batches -------------------------------------------------------------------------------


def control_batch(
    kind: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytes:
    """The marker that ends a producer's transaction: ``COMMIT`` or ``ABORT``.

    >>> read_control(control_batch(COMMIT, producer_id=9, producer_epoch=1, coordinator_epoch=0, timestamp=0))
    ControlRecord(kind=1, producer_id=9, producer_epoch=1, coordinator_epoch=0)
    """
    key, value = _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [(key, value, (), timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(batch: Buffer) -> ControlRecord | None:
    """What a control batch says; None when a cleaning has emptied it."""
    header = checked_header(batch)
    for record in read_records(batch):
        key, value = record.key or b"", record.value or b""
        if len(key) < _CONTROL_KEY.size:
            raise InvalidBatch("read", "a control batch", f"its key has {len(key)} bytes")
        _, kind = _CONTROL_KEY.unpack_from(key)
        epoch = -1
        if kind in (ABORT, COMMIT):
            if len(value) < _CONTROL_VALUE.size:
                raise InvalidBatch("read", "a control batch", f"its value has {len(value)} bytes")
            _, epoch = _CONTROL_VALUE.unpack_from(value)
        return ControlRecord(kind, header.producer_id, header.producer_epoch, epoch)
    return None
