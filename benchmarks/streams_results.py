"""Reading what a system has computed, in the way its users would: from its output topic.

A run at full speed is watched without reading: only the topic's end is looked at, with the time, and the
records are read when all is done. So the reader takes no processor time from what is measured.
"""

import abc
import bisect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.streams_events import PARTITIONS, Workload, row_name

Mark = Any  # how far a result was at some moment, as its class sees it
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
Values = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a result: how many events it counts, and the statistics of the windowed workload."""

    name: str
    count: int
    values: Values = ()  # minimum, maximum, average


Decode = Callable[[bytes, bytes], Row | None]  # from a record's key and value; None when it says nothing


class Result(abc.ABC):
    """Where a system shows what it computed."""

    @abc.abstractmethod
    def mark(self) -> Mark:
        """How far it is now, found out cheaply."""

    @abc.abstractmethod
    def rows(self) -> dict[str, Row]:
        """All rows as they are now."""

    @abc.abstractmethod
    def visible(self, marks: Sequence[Mark]) -> list[int]:
        """For each mark, the sum of the counts that could be seen then. Call it after ``rows``."""

    @abc.abstractmethod
    def follow(self, until: threading.Event) -> Iterator[tuple[int, Row]]:
        """Rows as they change, each with the moment it was seen, on the monotonic clock in nanoseconds."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what reading took."""


class TopicResult(Result):
    """An output topic in which a later record of a row replaces the earlier one."""

    def __init__(self, bootstrap: str, topic: str, decode: Decode) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.decode = decode
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._rows: dict[str, Row] = {}
        self._read = [0] * PARTITIONS  # the position in each partition
        # For each partition the offsets of the records that changed a count, and the sums after them.
        self._offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._sums: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def mark(self) -> tuple[int, ...]:
        """The last stable offsets: where a reader of committed records would stop."""
        latest = {TopicPartition(self.topic, number): _LATEST for number in range(PARTITIONS)}
        futures = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        found = {partition.partition: future.result(10).offset for partition, future in futures.items()}
        return tuple(found[number] for number in range(PARTITIONS))

    def rows(self) -> dict[str, Row]:
        end = self.mark()
        consumer = self._consumer({"enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(self.topic, number, at) for number, at in enumerate(self._read)])
            left = {number for number in range(PARTITIONS) if self._read[number] < end[number]}
            while left:
                for message in consumer.consume(20_000, 0.2):
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if message.error() is not None:  # the end of the partition, which transactions leave
                        left.discard(partition)  # behind the last record
                        continue
                    if offset >= end[partition]:
                        continue
                    self._take(partition, offset, message.key() or b"", message.value() or b"")
                for number in list(left):
                    if consumer.position([TopicPartition(self.topic, number)])[0].offset >= end[number]:
                        left.discard(number)
        finally:
            consumer.close()
        self._read = list(end)
        return self._rows

    def visible(self, marks: Sequence[Mark]) -> list[int]:
        def total(mark: Sequence[int]) -> int:
            result = 0
            for number, end in enumerate(mark):
                found = bisect.bisect_left(self._offsets[number], end)
                result += self._sums[number][found - 1] if found else 0
            return result

        return [total(mark) for mark in marks]

    def follow(self, until: threading.Event) -> Iterator[tuple[int, Row]]:
        consumer = self._consumer({"fetch.wait.max.ms": 100})
        try:
            consumer.assign(
                [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
            )
            while not until.is_set():
                messages = consumer.consume(1, 0.1)
                if messages:
                    messages += consumer.consume(5_000, 0)
                seen = time.monotonic_ns()
                for message in messages:
                    if message.error() is None:
                        row = self.decode(message.key() or b"", message.value() or b"")
                        if row is not None:
                            yield seen, row
        finally:
            consumer.close()

    def _take(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        row = self.decode(key, value)
        if row is None:
            return
        before = self._rows.get(row.name)
        self._rows[row.name] = row
        sums = self._sums[partition]
        self._offsets[partition].append(offset)
        sums.append((sums[-1] if sums else 0) + row.count - (before.count if before else 0))

    def _consumer(self, options: dict[str, Any]) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reads-{self.topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **options,
            }
        )


def decoder(workload: Workload) -> Decode:
    """For the rows that the programs beside this one write."""
    return {"words": _word, "ticks": _tick, "rows": _passed}[workload]


def _word(_: bytes, value: bytes) -> Row | None:
    """
    >>> _word(b"", b'{"word": "log", "n": 3}')
    Row(name='log', count=3, values=())
    """
    row = orjson.loads(value)
    return None if row.get("diff", 1) < 0 else Row(row["word"], row["n"])


def _passed(_: bytes, value: bytes) -> Row | None:
    """
    >>> _passed(b"", b'{"id": 7, "symbol": "S1", "price": 1.5}')
    Row(name='7', count=1, values=())
    """
    return Row(str(orjson.loads(value)["id"]), 1)


def _tick(key: bytes, value: bytes) -> Row | None:
    """
    >>> _tick(b"", b'{"symbol": "S1", "start_ms": 10000, "low": 1.5, "high": 2.5, "average": 2.0, "n": 2}')
    Row(name='S1@10000', count=2, values=(1.5, 2.5, 2.0))
    """
    row = orjson.loads(value)
    if row.get("diff", 1) < 0:  # Pathway takes an earlier row back
        return None
    start = row["start_ms"] if "start_ms" in row else row["start"]
    symbol = row["symbol"] if "symbol" in row else key.decode()  # Quix Streams has it as key alone
    return Row(row_name(symbol, start), row["n"], (row["low"], row["high"], row["average"]))
