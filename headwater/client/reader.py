"""Reading partitions from a position, to the end as of now or following what comes."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.client.admin import Admin
from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.errors import OffsetOutOfRange, UnknownTopic, Unreachable

Isolation = Literal["read_committed", "read_uncommitted"]
PartitionId = tuple[str, int]

BATCH = 5_000
IDLE_SECONDS = 0.25
OUTAGE_SECONDS = 20.0  # a bounded read gives up after so long without a broker
LOOK_SECONDS = 5.0
GONE = "it is not there any more"


@dataclass(frozen=True)
class Start:
    """Where reading begins, in every partition read.

    >>> Start.at_offset(7)
    Start(kind='offset', value=7)
    """

    kind: Literal["beginning", "end", "offset", "time", "last"]
    value: int = 0

    @classmethod
    def at_offset(cls, offset: int) -> "Start":
        return cls("offset", offset)

    @classmethod
    def at_time(cls, milliseconds: int) -> "Start":
        """At the first record with this or a later timestamp; at the end when there is none."""
        return cls("time", milliseconds)

    @classmethod
    def before_end(cls, count: int) -> "Start":
        """So many offsets before the end; at the beginning when there are fewer."""
        return cls("last", count)


BEGINNING = Start("beginning")
END = Start("end")

READ_OPTIONS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
    # Once its queue is full, librdkafka looks again only after this time; its 1000 stall quick readers.
    "fetch.queue.backoff.ms": 20,
}


class Stream:
    """What all readers share: batches as they come, and patience with a broker that is away."""

    def __init__(
        self,
        connection: Connection,
        options: Mapping[str, Any],
        *,
        isolation: Isolation,
        to_end: bool,
        on_outage: Callable[[bool], None] | None,
    ) -> None:
        self.connection = connection
        self.to_end = to_end
        self._on_outage = on_outage
        self._suspect = False  # librdkafka said that it has no broker
        self._away_since: float | None = None  # and a look at the address said so as well
        forced = {
            **options,
            "isolation.level": isolation,
            "enable.partition.eof": to_end,
            "error_cb": self._on_error,
        }
        self.consumer: Consumer = open_client(Consumer, connection.options(READ_OPTIONS, forced))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.consumer.close()

    def batches(self, idle: float = IDLE_SECONDS) -> Iterator[list[Message]]:
        """Records as they come. An empty list says that none came for ``idle`` seconds.

        With ``to_end`` the iteration ends when every partition has been read up to where it ended when the
        reader was made; what was written later is not part of it.
        """
        while not (self.to_end and self._is_finished()):
            # consume() waits for the whole number: so wait for one, then take what is there.
            messages = self.consumer.consume(1, timeout=idle)
            if messages:
                messages += self.consumer.consume(BATCH, timeout=0)
                self._suspect = False
                self._set_away(False)
            elif self._suspect:
                self._look_for_broker()
            records = [message for message in messages if message.error() is None]
            yield self._within_bounds(records) if self.to_end else records
            # Ends and errors come after the records that came before them.
            if len(records) < len(messages):
                for message in messages:
                    if (error := message.error()) is not None:
                        self._handle(error, message)

    def _handle(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._reached(message.topic() or "", message.partition() or 0, message.offset() or 0)
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
            raise UnknownTopic("read", message.topic() or "the topic", GONE)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            subject = f"{message.topic()}-{message.partition()}"
            cause = f"offset {message.offset()} is not in the log (any more)"
            raise OffsetOutOfRange("read", subject, cause)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            pass  # the caller was slow, the group went on without us, and this call joins it again
        elif not error.retriable():
            raise in_words(error, "read", message.topic() or f"from {self.connection.bootstrap}")

    # -- the end -----------------------------------------------------------------------------------

    def _is_finished(self) -> bool:
        raise NotImplementedError

    def _reached(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError

    def _within_bounds(self, records: list[Message]) -> list[Message]:
        raise NotImplementedError

    # -- outages -----------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._suspect = True
        elif error.fatal() or error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            raise in_words(error, "read from", self.connection.bootstrap)

    def _look_for_broker(self) -> None:
        """An idle connection that was closed looks like an outage to librdkafka: see for ourselves."""
        try:
            self.connection.require_listener(1.0)
        except Unreachable:
            self._set_away(True)
            if self.to_end and time.monotonic() - (self._away_since or 0.0) > OUTAGE_SECONDS:
                raise
        else:
            self._suspect = False
            self._set_away(False)

    def _set_away(self, away: bool) -> None:
        if away == (self._away_since is not None):
            return
        self._away_since = time.monotonic() if away else None
        if self._on_outage is not None:
            self._on_outage(away)


class Reader(Stream):
    """Reads partitions from a position, without a group: nothing is committed, everybody gets everything.

    ``partitions`` limits it to those of every topic named. While it follows all partitions it picks up those
    that are added, from their beginning.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        start: Start = BEGINNING,
        partitions: Iterable[int] | None = None,
        to_end: bool = False,
        isolation: Isolation = "read_committed",
        on_outage: Callable[[bool], None] | None = None,
        admin: Admin | None = None,
    ) -> None:
        admin = admin or Admin(connection)
        self._topics = list(dict.fromkeys(topics))
        self._all_partitions = partitions is None
        chosen = self._choose(admin, None if partitions is None else sorted(set(partitions)))
        positions = _positions(admin, chosen, start, committed=isolation == "read_committed")
        self._remaining: dict[PartitionId, int] = {}
        if to_end:
            self._remaining = self._unread(admin, positions, isolation)
        options = {"group.id": "headwater-reader", "auto.offset.reset": "error"}
        super().__init__(connection, options, isolation=isolation, to_end=to_end, on_outage=on_outage)
        self._assigned = set(positions)
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._missing: dict[str, int] = {}  # how often in a row a topic was not there
        self.consumer.assign([TopicPartition(*partition, offset) for partition, offset in positions.items()])

    def _choose(self, admin: Admin, partitions: list[int] | None) -> list[PartitionId]:
        chosen: list[PartitionId] = []
        for topic in self._topics:
            existing = admin.partitions(topic)
            for number in existing if partitions is None else partitions:
                if number not in existing:
                    cause = f"the topic has partitions 0 to {len(existing) - 1}"
                    raise UnknownTopic("read", f"{topic}-{number}", cause, "Choose one of them.")
                chosen.append((topic, number))
        return chosen

    @staticmethod
    def _unread(
        admin: Admin, positions: Mapping[PartitionId, int], isolation: Isolation
    ) -> dict[PartitionId, int]:
        ends = admin.latest(positions, committed=isolation == "read_committed")
        firsts = admin.earliest(positions)
        return {
            partition: ends[partition]
            for partition, offset in positions.items()
            if max(offset, firsts[partition]) < ends[partition]
        }

    def batches(self, idle: float = IDLE_SECONDS) -> Iterator[list[Message]]:
        for batch in super().batches(idle):
            yield batch
            if time.monotonic() >= self._next_look:
                self._look_at_topics()

    def _look_at_topics(self) -> None:
        """librdkafka does not say that an assigned topic was deleted, nor that it has more partitions now."""
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            known = self.consumer.list_topics(timeout=1.0).topics
        except KafkaException:
            return  # the broker is away; later then
        for topic in self._topics:
            self._missing[topic] = 0 if topic in known else self._missing.get(topic, 0) + 1
            if self._missing[topic] > 1:
                raise UnknownTopic("read", topic, GONE)
        if not self._all_partitions or self.to_end:
            return
        found = {
            (topic, number)
            for topic in self._topics
            for number in (known[topic].partitions if topic in known else ())
        }
        if new := sorted(found - self._assigned):
            self._assigned |= found
            self.consumer.incremental_assign(
                [TopicPartition(*partition, OFFSET_BEGINNING) for partition in new]
            )

    def _is_finished(self) -> bool:
        return not self._remaining

    def _reached(self, topic: str, partition: int, offset: int) -> None:
        # Markers and compacted records have offsets but are never delivered: this tells that they were read.
        if offset >= self._remaining.get((topic, partition), offset + 1):
            del self._remaining[topic, partition]

    def _within_bounds(self, records: list[Message]) -> list[Message]:
        kept = []
        remaining = self._remaining
        for record in records:
            partition = (record.topic() or "", record.partition() or 0)
            end = remaining.get(partition)
            offset = record.offset() or 0
            if end is None:
                continue
            if offset < end:
                kept.append(record)
            if offset >= end - 1:
                del remaining[partition]
        return kept


def _positions(
    admin: Admin, partitions: Sequence[PartitionId], start: Start, *, committed: bool
) -> dict[PartitionId, int]:
    if start.kind == "beginning":
        return dict.fromkeys(partitions, OFFSET_BEGINNING)
    ends = admin.latest(partitions, committed=committed)
    if start.kind == "end":
        return ends
    if start.kind == "time":
        found = admin.at_time(partitions, start.value)
        return {
            partition: ends[partition] if offset is None else offset for partition, offset in found.items()
        }
    firsts = admin.earliest(partitions)
    if start.kind == "last":
        return {partition: max(firsts[partition], ends[partition] - start.value) for partition in partitions}
    for partition in partitions:
        if not firsts[partition] <= start.value <= ends[partition]:
            cause = f"offset {start.value} is not in its range, {firsts[partition]} to {ends[partition]}"
            raise OffsetOutOfRange(
                "read", f"{partition[0]}-{partition[1]}", cause, "Choose one in the range."
            )
    return dict.fromkeys(partitions, start.value)
