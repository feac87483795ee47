"""The three requests of a bare reader, byte by byte: Metadata v4, ListOffsets v2 and Fetch v11.

Every Kafka from 2.3 to the newest understands these versions, so that nothing has to be negotiated. Fetch
needs version 10 at least for topics compressed with zstd.

    request   size int32 | api key int16 | version int16 | correlation id int32 | client id string | body
    response  size int32 | correlation id int32 | body

A string is an int16 length and UTF-8, an array an int32 count and its elements (-1: null).
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.log.batch import split

METADATA, LIST_OFFSETS, FETCH = 3, 2, 1
VERSIONS = {METADATA: 4, LIST_OFFSETS: 2, FETCH: 11}

EARLIEST, LATEST = -2, -1  # timestamps that ListOffsets understands as these positions
READ_COMMITTED = 1

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

_HEAD = struct.Struct(">hhih")
_CLIENT = b"headwater"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FETCH_HEAD = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqqi")
_OFFSET_ANSWER = struct.Struct(">ihqq")
_PARTITION_ANSWER = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")


class PartitionMetadata(NamedTuple):
    """Who leads a partition; ``leader`` is -1 while nobody does."""

    error: int
    leader: int


class TopicMetadata(NamedTuple):
    error: int
    partitions: dict[int, PartitionMetadata]


class Metadata(NamedTuple):
    """The brokers by their node ids, and the topics asked for."""

    brokers: dict[int, tuple[str, int]]
    topics: dict[str, TopicMetadata]


class Fetched(NamedTuple):
    """What one partition answered: whole batches, perhaps a torn one at the end, and where it stands."""

    error: int
    stable_end: int  # the offset behind the last record that a read_committed reader may see
    log_start: int
    aborted: tuple[tuple[int, int], ...]  # producer id and first offset of transactions that were rolled back
    records: memoryview
    throttled: bool = False  # by a quota: an empty answer then says nothing about the log


def request(api_key: int, correlation_id: int, body: bytes) -> bytes:
    """A whole request with its size in front."""
    head = _HEAD.pack(api_key, VERSIONS[api_key], correlation_id, len(_CLIENT)) + _CLIENT
    return _INT32.pack(len(head) + len(body)) + head + body


def metadata_body(topics: Iterable[str]) -> bytes:
    """Asks for the named topics, and creates none of them."""
    names = [_text(name) for name in topics]
    return _INT32.pack(len(names)) + b"".join(names) + b"\0"


def offsets_body(places: Iterable[Place], timestamp: int | Mapping[Place, int], committed: bool) -> bytes:
    """Asks for the first offset at or after a timestamp, of all places or each its own."""
    parts = [struct.pack(">ib", -1, READ_COMMITTED if committed else 0)]
    by_topic = _by_topic(places)
    parts.append(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        parts += (_text(topic), _INT32.pack(len(numbers)))
        for number in numbers:
            at = timestamp if isinstance(timestamp, int) else timestamp[topic, number]
            parts.append(struct.pack(">iq", number, at))
    return b"".join(parts)


def fetch_body(
    positions: Mapping[Place, int], *, wait_ms: int, min_bytes: int, max_bytes: int, partition_bytes: int
) -> bytes:
    """Asks for batches from the positions on, outside of any fetch session."""
    parts = [_FETCH_HEAD.pack(-1, wait_ms, min_bytes, max_bytes, READ_COMMITTED, 0, -1)]
    by_topic = _by_topic(positions)
    parts.append(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        parts += (_text(topic), _INT32.pack(len(numbers)))
        for number in numbers:
            parts.append(_FETCH_PARTITION.pack(number, -1, positions[topic, number], -1, partition_bytes))
    parts.append(_INT32.pack(0) + _INT16.pack(0))  # nothing forgotten, no rack
    return b"".join(parts)


def read_metadata(body: memoryview) -> Metadata:
    reader = _Reader(body, 4)  # behind the throttle time
    brokers = {}
    for _ in range(reader.count()):
        node = reader.int32()
        host = reader.text() or ""
        brokers[node] = (host, reader.int32())
        reader.text()  # rack
    reader.text()  # cluster id
    reader.int32()  # controller
    topics = {}
    for _ in range(reader.count()):
        error = reader.int16()
        name = reader.text() or ""
        reader.skip(1)  # internal
        partitions = {}
        for _ in range(reader.count()):
            fault = reader.int16()
            number = reader.int32()
            partitions[number] = PartitionMetadata(fault, reader.int32())
            reader.skip(4 * reader.count())  # replicas
            reader.skip(4 * reader.count())  # those in sync
        topics[name] = TopicMetadata(error, partitions)
    return Metadata(brokers, topics)


def read_offsets(body: memoryview) -> dict[Place, tuple[int, int]]:
    """Of each place its error and the offset found, -1 when there is none."""
    reader = _Reader(body, 4)
    found = {}
    for _ in range(reader.count()):
        topic = reader.text() or ""
        for _ in range(reader.count()):
            number, error, _, offset = reader.struct(_OFFSET_ANSWER)
            found[topic, number] = (error, offset)
    return found


def read_fetch(body: memoryview) -> tuple[int, dict[Place, Fetched]]:
    """The error of the answer as a whole, and what each partition answered. Records stay where they are."""
    reader = _Reader(body, 0)
    throttled = reader.int32() > 0
    error = reader.int16()
    reader.int32()  # session
    found = {}
    for _ in range(reader.count()):
        topic = reader.text() or ""
        for _ in range(reader.count()):
            number, fault, _, stable, start, aborted_count = reader.struct(_PARTITION_ANSWER)
            pairs = [reader.struct(_ABORTED) for _ in range(aborted_count)]
            aborted = tuple((producer, first) for producer, first in pairs)
            reader.int32()  # preferred replica
            found[topic, number] = Fetched(fault, stable, start, aborted, reader.block(), throttled)
    return error, found


def next_offset(fetched: Fetched, start: int) -> int:
    """The offset behind the last whole batch of an answer; ``start`` when it has none."""
    for _, header in split(fetched.records):
        start = max(start, header.next_offset)
    return start


class _Reader:
    """A position in a response."""

    __slots__ = ("body", "position")

    def __init__(self, body: memoryview, position: int) -> None:
        self.body = body
        self.position = position

    def struct(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack_from(self.body, self.position)
        self.position += form.size
        return values

    def int16(self) -> int:
        return self.struct(_INT16)[0]

    def int32(self) -> int:
        return self.struct(_INT32)[0]

    def count(self) -> int:
        return max(self.int32(), 0)

    def skip(self, size: int) -> None:
        self.position += size

    def text(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        self.position += size
        return str(self.body[self.position - size : self.position], "utf-8")

    def block(self) -> memoryview:
        size = self.count()
        self.position += size
        return self.body[self.position - size : self.position]


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in places:
        by_topic.setdefault(topic, []).append(number)
    return by_topic
