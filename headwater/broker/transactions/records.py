"""The records of ``__transaction_state``, in Kafka's format: a transactional id and the state it is in."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from headwater.broker.groups.wire import Malformed, Reader, Writer

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
LONGEST_ID = 32767  # bytes of a transactional id, for which a key has room

_I64 = struct.Struct(">q")
_I16 = struct.Struct(">h")
_NONE = _I64.pack(NO_PRODUCER_ID)
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = range(3)  # tags


class Status(IntEnum):
    """Where a transaction stands; the numbers are those on disk."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """As Kafka's tools print it.

        >>> Status.PREPARE_COMMIT.label
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")

    @property
    def is_ending(self) -> bool:
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What is known of a transactional id. Every change is a new state, written before it is in force."""

    producer_id: int
    epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID  # whose epochs were used up before
    next_producer_id: int = NO_PRODUCER_ID  # takes over when the decided transaction is complete
    client_version: int = 0  # 2: the client's epoch rises with every transaction (KIP-890)
    last_epoch: int = NO_EPOCH  # the one before, if its producer may not have heard of this one; not stored


def encode_key(transactional_id: str) -> bytes:
    return Writer(flexible=False).i16(0).string(transactional_id).done()


def decode_key(key: bytes) -> str | None:
    """The transactional id of a key; None for a kind of key that is not known.

    >>> decode_key(encode_key("orders"))
    'orders'
    """
    reader = Reader(key)
    try:
        return reader.string() if reader.i16() == 0 else None
    except Malformed:
        return None


def encode_value(state: TransactionState) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(state.partitions):
        topics.setdefault(topic, []).append(partition)

    def write_topic(writer: Writer, item: tuple[str, list[int]]) -> None:
        writer.string(item[0]).array(item[1], Writer.i32).tags()

    tagged = []
    if state.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((_PREVIOUS_PRODUCER_ID, _I64.pack(state.previous_producer_id)))
    if state.next_producer_id != NO_PRODUCER_ID:
        tagged.append((_NEXT_PRODUCER_ID, _I64.pack(state.next_producer_id)))
    if state.client_version:
        tagged.append((_CLIENT_VERSION, _I16.pack(state.client_version)))
    writer = Writer(flexible=True).i16(1)
    writer.i64(state.producer_id).i16(state.epoch).i32(state.timeout_ms).i8(state.status)
    if state.status is Status.EMPTY:
        writer.varint(0)  # null, as Kafka has it
    else:
        writer.array(topics.items(), write_topic)
    return writer.i64(state.updated_ms).i64(state.started_ms).tags(tagged).done()


def decode_value(value: bytes) -> TransactionState:
    """The state in a value of version 0 or 1.

    >>> state = TransactionState(7, 1, 60000, Status.ONGOING, frozenset({("a", 0), ("a", 2)}), 5, 4)
    >>> decode_value(encode_value(state)) == state
    True
    """
    reader = Reader(value)
    version = reader.i16()
    reader.flexible = version >= 1
    producer_id, epoch, timeout_ms, status = reader.i64(), reader.i16(), reader.i32(), reader.i8()
    partitions: set[TopicPartition] = set()
    for _ in range(max(reader.length(), 0)):
        topic = reader.string()
        partitions.update((topic, number) for number in reader.array(Reader.i32))
        reader.tags()
    updated_ms, started_ms = reader.i64(), reader.i64()
    tagged = reader.tags()
    return TransactionState(
        producer_id,
        epoch,
        timeout_ms,
        Status(status),
        frozenset(partitions),
        updated_ms,
        started_ms,
        _I64.unpack(tagged.get(_PREVIOUS_PRODUCER_ID, _NONE))[0],
        _I64.unpack(tagged.get(_NEXT_PRODUCER_ID, _NONE))[0],
        _I16.unpack(tagged.get(_CLIENT_VERSION, b"\0\0"))[0],
    )
