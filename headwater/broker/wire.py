"""The bytes of the hot path, by hand: frames, request headers, Produce and Fetch.

kio reads and writes every other message. Here a record batch is passed on as the bytes it came in: it is a
slice of the request's frame on the way in, and of what was read from disk on the way out.
"""

import struct
import uuid
from typing import NamedTuple

from headwater.log.index import AbortedTransaction

_HEADER = struct.Struct(">hhi")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_PRODUCE_FIXED = struct.Struct(">hi")
_PARTITION_AND_LENGTH = struct.Struct(">ii")
_PRODUCED_V3 = struct.Struct(">ihqq")
_PRODUCED = struct.Struct(">ihqqq")
_FETCHED_V4 = struct.Struct(">ihqq")
_FETCHED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")

NO_UUID = b"\0" * 16


class BadRequest(Exception):
    """Bytes that are no request; the connection is closed."""


class RequestHeader(NamedTuple):
    """The start of every request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int  # where the body starts, before a flexible header's tagged fields


def read_request_header(frame: bytes | memoryview) -> RequestHeader:
    """The header of the request in ``frame``.

    >>> read_request_header(bytes.fromhex("0012000300000007000474657374") + b"\\0")
    RequestHeader(api_key=18, version=3, correlation_id=7, client_id='test', body=14)
    """
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        (length,) = _I16.unpack_from(frame, 8)
    except struct.error:
        raise BadRequest(f"a frame of {len(frame)} bytes is too short for a header") from None
    if length < 0:
        return RequestHeader(api_key, version, correlation_id, None, 10)
    if 10 + length > len(frame):
        raise BadRequest(f"a client id of {length} bytes in a frame of {len(frame)}")
    try:
        client_id = str(frame[10 : 10 + length], "utf-8")
    except UnicodeDecodeError:
        raise BadRequest("a client id that is not UTF-8") from None
    return RequestHeader(api_key, version, correlation_id, client_id, 10 + length)


def read_uvarint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it."""
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise BadRequest("a varint of more than five bytes")


def uvarint(value: int) -> bytes:
    """An unsigned varint.

    >>> uvarint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(frame: bytes | memoryview, position: int) -> int:
    """The position after a section of tagged fields that nobody here reads."""
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise BadRequest("a tagged field goes past the end of the frame")
    return position


# -- Produce -------------------------------------------------------------------------------------------


class ProducePartition(NamedTuple):
    """A batch for one partition."""

    topic: str | uuid.UUID
    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A Produce request of any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


def read_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The Produce request whose body starts at ``position``; the records are slices of ``frame``."""
    try:
        return (
            _read_flexible_produce(frame, position, version)
            if version >= 9
            else _read_produce(frame, position)
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRequest(f"a malformed Produce request: {error}") from None


def _read_produce(frame: memoryview, position: int) -> ProduceRequest:
    transactional_id, position = _read_string(frame, position)
    acks, timeout_ms = _PRODUCE_FIXED.unpack_from(frame, position)
    (topics,) = _I32.unpack_from(frame, position + 6)
    position += 10
    partitions: list[ProducePartition] = []
    for _ in range(topics):
        topic, position = _read_string(frame, position)
        (count,) = _I32.unpack_from(frame, position)
        position += 4
        for _ in range(count):
            partition, length = _PARTITION_AND_LENGTH.unpack_from(frame, position)
            position += 8
            records = None
            if length >= 0:
                records = frame[position : position + length]
                if len(records) < length:
                    raise BadRequest(f"records of {length} bytes, {len(records)} are there")
                position += length
            partitions.append(ProducePartition(topic or "", partition, records))
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _read_flexible_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    position = skip_tags(frame, position)  # of the header
    transactional_id, position = _read_compact_string(frame, position)
    acks, timeout_ms = _PRODUCE_FIXED.unpack_from(frame, position)
    topics, position = read_uvarint(frame, position + 6)
    partitions: list[ProducePartition] = []
    for _ in range(topics - 1):
        topic: str | uuid.UUID
        if version >= 13:
            topic = (
                uuid.UUID(bytes=bytes(frame[position : position + 16])) if position + 16 <= len(frame) else ""
            )
            position += 16
        else:
            name, position = _read_compact_string(frame, position)
            topic = name or ""
        count, position = read_uvarint(frame, position)
        for _ in range(count - 1):
            (partition,) = _I32.unpack_from(frame, position)
            length, position = read_uvarint(frame, position + 4)
            records = None
            if length:
                length -= 1
                records = frame[position : position + length]
                if len(records) < length:
                    raise BadRequest(f"records of {length} bytes, {len(records)} are there")
                position += length
            position = skip_tags(frame, position)
            partitions.append(ProducePartition(topic, partition, records))
        position = skip_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _read_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (length,) = _I16.unpack_from(frame, position)
    position += 2
    if length < 0:
        return None, position
    if position + length > len(frame):
        raise BadRequest("a string goes past the end of the frame")
    return str(frame[position : position + length], "utf-8"), position + length


def _read_compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(frame, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(frame):
        raise BadRequest("a string goes past the end of the frame")
    return str(frame[position:end], "utf-8"), end


class Produced(NamedTuple):
    """What became of one partition's batch."""

    topic: str | uuid.UUID
    partition: int
    error: int
    base_offset: int
    append_time: int
    log_start: int
    message: str | None
    faults: tuple[tuple[int, str], ...] = ()  # numbers of the records that are at fault, and why


def write_produce_response(correlation_id: int, version: int, results: list[Produced]) -> bytes:
    """A Produce response, header included."""
    flexible = version >= 9
    out = bytearray(_I32.pack(correlation_id))
    if flexible:
        out += b"\0"
    topics = _by_topic(results)
    out += uvarint(len(topics) + 1) if flexible else _I32.pack(len(topics))
    for topic, partitions in topics:
        out += _topic_name(topic, flexible)
        out += uvarint(len(partitions) + 1) if flexible else _I32.pack(len(partitions))
        for _, partition, error, base_offset, append_time, log_start, message, faults in partitions:
            if version >= 5:
                out += _PRODUCED.pack(partition, error, base_offset, append_time, log_start)
            else:
                out += _PRODUCED_V3.pack(partition, error, base_offset, append_time)
            if flexible:
                out += uvarint(len(faults) + 1)
                for number, fault in faults:
                    out += _I32.pack(number) + _compact(fault) + b"\0"
                out += b"\0\0" if message is None else _compact(message) + b"\0"
            elif version == 8:
                out += _I32.pack(len(faults))
                for number, fault in faults:
                    out += _I32.pack(number) + _nullable(fault)
                out += _nullable(message)
        if flexible:
            out += b"\0"
    out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"  # throttle time, tagged fields
    return bytes(out)


def _by_topic(results: "list[Produced] | list[Fetched]") -> list[tuple[str | uuid.UUID, list]]:  # type: ignore[type-arg]
    """Results in the order of the request, grouped as it was."""
    topics: list[tuple[str | uuid.UUID, list]] = []  # type: ignore[type-arg]
    for result in results:
        if topics and topics[-1][0] == result.topic:
            topics[-1][1].append(result)
        else:
            topics.append((result.topic, [result]))
    return topics


def _topic_name(topic: str | uuid.UUID, flexible: bool) -> bytes:
    if isinstance(topic, uuid.UUID):
        return topic.bytes
    return _compact(topic) if flexible else _nullable(topic)


def _compact(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _nullable(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


# -- Fetch ---------------------------------------------------------------------------------------------


class Fetched(NamedTuple):
    """What is sent for one partition of a Fetch."""

    topic: str | uuid.UUID
    partition: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[AbortedTransaction] | None
    records: bytes | bytearray | memoryview


def write_fetch_response(
    correlation_id: int, version: int, error: int, session_id: int, results: list[Fetched]
) -> list[bytes | bytearray | memoryview]:
    """A Fetch response in pieces; the records are not copied."""
    flexible = version >= 12
    pieces: list[bytes | bytearray | memoryview] = []
    out = bytearray(_I32.pack(correlation_id))
    if flexible:
        out += b"\0"
    out += b"\0\0\0\0"  # throttle time
    if version >= 7:
        out += struct.pack(">hi", error, session_id)
    topics = _by_topic(results)
    out += uvarint(len(topics) + 1) if flexible else _I32.pack(len(topics))
    for topic, partitions in topics:
        out += _topic_name(topic, flexible)
        out += uvarint(len(partitions) + 1) if flexible else _I32.pack(len(partitions))
        for _, partition, code, high_watermark, last_stable, log_start, aborted, records in partitions:
            if version >= 5:
                out += _FETCHED.pack(partition, code, high_watermark, last_stable, log_start)
            else:
                out += _FETCHED_V4.pack(partition, code, high_watermark, last_stable)
            if flexible:
                out += _compact_aborted(aborted)
                out += b"\xff\xff\xff\xff"  # preferred read replica
                out += uvarint(len(records) + 1)
            else:
                out += _legacy_aborted(aborted)
                if version >= 11:
                    out += b"\xff\xff\xff\xff"
                out += _I32.pack(len(records))
            if len(records) > 4096:
                pieces += (out, records)
                out = bytearray()
            elif records:
                out += records
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    pieces.append(out)
    return pieces


def _compact_aborted(aborted: list[AbortedTransaction] | None) -> bytes:
    if aborted is None:
        return b"\0"
    entries = b"".join(_ABORTED.pack(a.producer_id, a.first_offset) + b"\0" for a in aborted)
    return uvarint(len(aborted) + 1) + entries


def _legacy_aborted(aborted: list[AbortedTransaction] | None) -> bytes:
    if aborted is None:
        return b"\xff\xff\xff\xff"
    entries = b"".join(_ABORTED.pack(a.producer_id, a.first_offset) for a in aborted)
    return _I32.pack(len(aborted)) + entries
