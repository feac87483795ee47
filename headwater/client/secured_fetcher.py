"""The same as `fetcher`, on confluent-kafka: for clusters that ask for TLS or SASL, which librdkafka speaks.

A record costs a Python object here, so that it reads about five times slower. One thread at a time may use it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.bare_requests import EARLIEST, LATEST, Place
from headwater.client.columns import HEADERS, Columns, Integers
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.fetcher import PATIENCE_SECONDS
from headwater.client.reader import READ_OPTIONS
from headwater.errors import OffsetOutOfRange, Unreachable

BATCH = 10_000


def is_secured(connection: Connection) -> bool:
    """Whether the brokers ask for TLS or SASL.

    >>> is_secured(Connection("k:9092", {"security.protocol": "sasl_ssl"})), is_secured(Connection("k:9092"))
    (True, False)
    """
    return connection.properties.get("security.protocol", "plaintext").lower() != "plaintext"


@dataclass(frozen=True)
class MessageColumns:
    """Records of one partition that have been objects each."""

    messages: list[Message]

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def offsets(self) -> Integers:
        return np.array([message.offset() for message in self.messages], np.int64)

    @property
    def timestamps(self) -> Integers:
        return np.array([message.timestamp()[1] for message in self.messages], np.int64)

    @property
    def timestamp_types(self) -> npt.NDArray[np.int8]:
        kinds = [message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME for message in self.messages]
        return np.array(kinds, np.int8)

    def keys(self) -> pa.BinaryArray:
        return pa.array([message.key() for message in self.messages], pa.binary())

    def values(self) -> pa.BinaryArray:
        return pa.array([message.value() for message in self.messages], pa.binary())

    def headers(self) -> pa.ListArray:
        rows = [
            [{"key": pair[0], "value": pair[1]} for pair in message.headers() or ()] or None
            for message in self.messages
        ]
        return pa.array(rows, HEADERS)


class SecuredFetcher:
    """Reads partitions of topics through librdkafka."""

    def __init__(self, connection: Connection, *, patience: float = PATIENCE_SECONDS) -> None:
        self.connection = connection
        self.patience = patience
        self._admin: Admin | None = None
        self._reader: Consumer | None = None
        self._watcher: Consumer | None = None

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        for consumer in (self._reader, self._watcher):
            if consumer is not None:
                consumer.close()
        self._reader = self._watcher = self._admin = None

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.connection)
        return self._admin

    def _consumer(self, **more: Any) -> Consumer:
        forced = {
            "group.id": "headwater.fetcher",  # never joined, nothing is committed
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        consumer: Consumer = open_client(Consumer, self.connection.options(READ_OPTIONS, forced | more))
        return consumer

    def partitions(self, topics: Iterable[str]) -> list[Place]:
        """All partitions of the topics, in order. UnknownTopic when one of the topics is not there."""
        return [(name, number) for name in sorted(set(topics)) for number in self.admin.partitions(name)]

    def offsets(
        self, places: Iterable[Place], at: int = LATEST, *, committed: bool = True
    ) -> dict[Place, int]:
        """As the fetcher's: the first offset at or after a time, -1 when there is none."""
        if at == EARLIEST:
            return self.admin.earliest(places)
        if at == LATEST:
            return self.admin.latest(places, committed=committed)
        found = self.admin.at_time(places, at)
        return {place: -1 if offset is None else offset for place, offset in found.items()}

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """Of each place the first offset, and the one behind what a read_committed reader may see."""
        wanted = list(places)
        first, last = self.offsets(wanted, EARLIEST), self.offsets(wanted, LATEST)
        return {place: (first[place], last[place]) for place in wanted}

    def await_records(self, positions: Mapping[Place, int], seconds: float) -> dict[Place, int | None]:
        """As the fetcher's: where each partition ends, None where it does not hold the position."""
        ends = self.ends(positions)
        if not any(self._news(ends[place], position) for place, position in positions.items()):
            if self._watcher is None:
                # It is only to hear of a record; whoever reads it asks for it again.
                self._watcher = self._consumer(**{"queued.min.messages": 1, "fetch.message.max.bytes": 1})
            assigned = [TopicPartition(topic, number, at) for (topic, number), at in positions.items()]
            self._watcher.assign(assigned)
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0:
                message = self._watcher.poll(left)
                if message is not None and message.error() is None:
                    break
            self._watcher.unassign()
            ends = self.ends(positions)
        return {
            place: ends[place][1] if ends[place][0] <= position <= ends[place][1] else None
            for place, position in positions.items()
        }

    @staticmethod
    def _news(ends: tuple[int, int], position: int) -> bool:
        return position != ends[1] or position < ends[0]

    def columns(self, place: Place, start: int, end: int) -> Iterator[Columns]:
        """As the fetcher's: the committed records from one offset up to another."""
        if self._reader is None:
            self._reader = self._consumer()
        reader = self._reader
        reader.assign([TopicPartition(place[0], place[1], start)])
        heard = time.monotonic()
        try:
            while True:
                messages = reader.consume(1, timeout=0.5) or []
                messages += reader.consume(BATCH, timeout=0) if messages else []
                records = [message for message in messages if message.error() is None]
                wanted = [message for message in records if start <= (message.offset() or 0) < end]
                if wanted:
                    yield MessageColumns(wanted)
                if len(wanted) < len(records):
                    return
                ends = [at for message in messages if (at := self._end_told(message, place)) is not None]
                # A leader that was elected just now may for a moment not know how far the log goes.
                if any(at >= end for at in ends):
                    return
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.patience:
                    raise Unreachable("read", f"{place[0]}-{place[1]}", "no answer in time")
                if wanted and (wanted[-1].offset() or 0) + 1 >= end:
                    return
        finally:
            reader.unassign()

    @staticmethod
    def _end_told(message: Message, place: Place) -> int | None:
        """The offset at which the partition ends, if the message says so; raises the error that it is else."""
        error = message.error()
        if error is None:
            return None
        name = f"{place[0]}-{place[1]}"
        if error.code() == KafkaError._PARTITION_EOF:
            return message.offset()
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OffsetOutOfRange("read", name, "it does not hold the offset")
        if not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        ):
            raise in_words(error, "read", name)
        return None
