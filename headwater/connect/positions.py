"""Where sources are: the compacted topic headwater.positions, a record a source.

The record's key is the source's name and its value JSON::

    {"position": {...}, "signals": {"0": 17}, "worker": "6f1c...", "ts_ms": 1700000000000}

`position` is the source's own, `signals` the next offset of each partition of headwater.signals, `worker` who wrote
it. It is written in the transaction that carries the source's records, and read back after the transactional.id has
been taken over, when nobody else can move it any more. Before that a record without a value is written behind it, with
the source's name and a zero byte as its key: whoever sees it has seen all of the source's.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.connect.source import Position
from headwater.errors import Unreachable

POSITIONS = "headwater.positions"
PARTITIONS = 16
CONFIGS = {
    "cleanup.policy": "compact",
    # Every transaction adds a record: small segments and an eager cleaner keep the topic quick to read.
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}

_OPEN_SECONDS = 120.0  # how long transactions of others, killed in the middle, may hold the reading up
_WRITE_SECONDS = 20.0
_BEHIND = "\0"  # ends the key of a record that says nothing but where the partition ends
_WINDOW = 2000  # offsets that are looked at first: the newest position is nearly always among them


@dataclass(frozen=True)
class Standing:
    """What a source has in the log: its position, and which signals it has taken."""

    position: Position | None = None
    signals: Mapping[str, int] = field(default_factory=dict)
    worker: str = ""
    ts_ms: int = 0

    def encoded(self) -> bytes:
        """The value of its record."""
        return orjson.dumps(
            {
                "position": self.position,
                "signals": self.signals,
                "worker": self.worker,
                "ts_ms": self.ts_ms or time.time_ns() // 1_000_000,
            },
            option=orjson.OPT_NON_STR_KEYS,
        )

    @classmethod
    def decoded(cls, value: bytes | None) -> "Standing":
        """The reverse of `encoded`.

        >>> Standing.decoded(Standing({"lsn": "0/16B3748"}, {"0": 4}, "w", 5).encoded())
        Standing(position={'lsn': '0/16B3748'}, signals={'0': 4}, worker='w', ts_ms=5)
        """
        if value is None:
            return cls()
        document: dict[str, Any] = orjson.loads(value)
        return cls(
            document.get("position"),
            document.get("signals") or {},
            document.get("worker") or "",
            document.get("ts_ms") or 0,
        )


def prepare_positions(admin: Admin) -> int:
    """Makes the topic when it is not there; the number of its partitions."""
    admin.create_topic(POSITIONS, PARTITIONS, configs=CONFIGS, exist_ok=True)
    return len(admin.partitions(POSITIONS))


def partition_of(name: str, partitions: int) -> int:
    """Where a source's positions are; partitions that are added to the topic later change nothing.

    >>> partition_of("shop", 16), partition_of("shop", 64)
    (2, 2)
    """
    return zlib.crc32(name.encode()) % min(PARTITIONS, partitions)


def read_standing(
    connection: Connection, admin: Admin, name: str, give_up: Callable[[], bool] = lambda: False
) -> Standing:
    """The last committed standing of a source.

    All of its own transactions must have ended (its transactional.id was taken over). Those of others in the
    partition may be open: what lies behind them is not readable yet, so this waits until they have ended, which a
    killed one does at its time-out.
    """
    partition = partition_of(name, len(admin.partitions(POSITIONS)))
    behind = _write_behind(connection, partition, name)
    found = _last(connection, admin, partition, name.encode(), behind + 1, give_up)
    return Standing.decoded(found.value()) if found is not None else Standing()


def all_standings(connection: Connection, admin: Admin) -> dict[str, Standing]:
    """The standing of every source, as far as it is readable at this moment."""
    newest: dict[str, Standing] = {}
    for partition in admin.partitions(POSITIONS):
        place = (POSITIONS, partition)
        first, end = admin.earliest([place])[place], admin.latest([place], committed=True)[place]
        for message in _between(connection, partition, first, end):
            name = (message.key() or b"").decode(errors="replace")
            if name.endswith(_BEHIND):
                continue
            standing = Standing.decoded(message.value())
            if name not in newest or standing.ts_ms >= newest[name].ts_ms:
                newest[name] = standing
    return newest


def _write_behind(connection: Connection, partition: int, name: str) -> int:
    """Writes a record behind all that a source has written, and gives its offset.

    What a broker says of the end of a partition is not enough: a Kafka node that comes back after a crash may for a
    moment know of less than it has, and a position that is read then is an old one.
    """
    places: list[int] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        failures.append(error) if error is not None else places.append(int(message.offset() or 0))

    forced = {"acks": "all", "linger.ms": 0, "message.timeout.ms": round(_WRITE_SECONDS * 1000)}
    producer: Producer = open_client(Producer, connection.options(forced=forced))
    try:
        key = (name + _BEHIND).encode()
        producer.produce(POSITIONS, None, key, partition, on_delivery=delivered)
        producer.flush(_WRITE_SECONDS + 1)
    except KafkaException as error:
        raise in_words(error, "write to", POSITIONS) from error
    if failures:
        raise in_words(failures[0], "write to", POSITIONS)
    if not places:
        raise Unreachable("write to", POSITIONS, "the broker acknowledges nothing", "It is tried again.")
    return places[0]


def _last(
    connection: Connection,
    admin: Admin,
    partition: int,
    key: bytes,
    at_least: int,
    give_up: Callable[[], bool],
) -> Message | None:
    place = (POSITIONS, partition)
    end = max(admin.latest([place])[place], at_least)
    deadline = time.monotonic() + _OPEN_SECONDS
    while admin.latest([place], committed=True)[place] < end:
        if time.monotonic() > deadline or give_up():
            cause = "a transaction of another source stays open"
            raise Unreachable("read the position of", key.decode(), cause, "It is tried again.")
        time.sleep(0.05)
    first = admin.earliest([place])[place]
    window = _WINDOW
    begin = end
    while begin > first:
        stop, begin = begin, max(first, begin - window)
        found = None
        for message in _between(connection, partition, begin, stop):
            if message.key() == key:
                found = message
        if found is not None:
            return found
        window *= 10
    return None


def _between(connection: Connection, partition: int, begin: int, end: int) -> Iterator[Message]:
    """The committed records of offsets begin to end - 1."""
    if begin >= end:
        return
    forced = {
        "group.id": "headwater-positions",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,  # the end of the partition is told after an empty answer
    }
    consumer: Consumer = open_client(Consumer, connection.options(forced=forced))
    place = TopicPartition(POSITIONS, partition, begin)
    deadline = time.monotonic() + _OPEN_SECONDS
    try:
        consumer.assign([place])
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.02):
                error = message.error()
                # Markers have offsets and are never delivered: the end of the partition tells that they were read.
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None and not error.retriable():
                    raise in_words(error, "read", POSITIONS)
                if error is None:
                    if (message.offset() or 0) >= end:
                        return
                    yield message
        raise Unreachable("read", POSITIONS, "the broker sends nothing", "It is tried again.")
    except KafkaException as error:
        raise in_words(error, "read", POSITIONS) from error
    finally:
        consumer.close()
