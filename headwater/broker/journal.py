"""A topic as the broker's own notebook: coordinators write what they must not forget, and read it at start.

Records are appended as any others: groups and transactions are as durable as the log, are compacted like any
topic, and Kafka's tools can read them.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import HeadwaterError
from headwater.log.batch import read_header, split
from headwater.log.partition import PartitionLog, now_ms
from headwater.log.records import COMMIT, build_batch, read_control, read_records
from headwater.log.segment import Unreadable

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
# Compaction leaves the active segment alone, and a start reads all of it: at this size, in a tenth of a second.
_SEGMENT_BYTES = str(1 << 20)
_FORMER_SEGMENT_BYTES = str(100 << 20)  # of journals that an earlier version has made
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": _SEGMENT_BYTES, "compression.type": "producer"}


class Entry(NamedTuple):
    """One record of a journal."""

    key: bytes
    value: bytes | None
    producer: tuple[int, int] | None  # id and epoch, when it is part of a transaction


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


class Journal:
    """A journal in the first partition of an internal topic, which is made when first written to."""

    def __init__(self, broker: "Broker", topic: str) -> None:
        self._broker = broker
        self.topic = topic
        self._making = asyncio.Lock()

    @property
    def log(self) -> PartitionLog | None:
        topic = self._broker.directory.topics.get(self.topic)
        return topic.partitions[0] if topic is not None else None

    async def open(self) -> PartitionLog:
        """The journal's partition, made when missing."""
        if self.log is None:
            async with self._making:
                if self.log is None:
                    await self._broker.change_catalog(
                        self._broker.directory.create_topic, self.topic, 1, _CONFIG
                    )
        assert self.log is not None
        return self.log

    def settle(self) -> None:
        """Give a journal of an earlier version the settings of today."""
        topic = self._broker.directory.topics.get(self.topic)
        if topic is not None and topic.overrides.get("segment.bytes") == _FORMER_SEGMENT_BYTES:
            try:
                settings = {**topic.overrides, "segment.bytes": _SEGMENT_BYTES}
                self._broker.directory.set_config(self.topic, settings)
            except HeadwaterError as error:  # the next start tries again
                logger.warning("%s", error)

    async def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Write the records as one batch and wait until they are durable."""
        log = self.log or await self.open()
        await self.write(log, records, producer)

    def write(
        self,
        log: PartitionLog,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> "asyncio.Future[None]":
        """Write the records now; the future is done when they are durable."""
        now = now_ms()
        producer_id, epoch = producer or (-1, -1)
        batch = build_batch(
            [(key, value, (), now) for key, value in records],
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        log.append(batch, read_header(batch), now)
        return self._broker.durable(log)

    def read(self) -> Iterator[Entry | Marker]:
        """Everything in the journal, in its order, but for what is damaged: that is better than no broker."""
        log = self.log
        if log is None:
            return
        offset = log.start_offset
        while True:
            try:
                chunk = log.read(offset, 1 << 20, log.durable_offset)
            except Unreadable as damage:
                logger.error("%s", damage)
                if damage.next_offset is None or damage.next_offset <= offset:
                    return
                offset = damage.next_offset
                continue
            if chunk is None:
                return
            data = memoryview(chunk.data)
            for position, header in split(data):
                batch = data[position : position + header.size]
                if header.is_control:
                    control = read_control(batch)
                    if control is not None:
                        yield Marker(header.producer_id, control.kind == COMMIT)
                    continue
                producer = None
                if header.is_transactional:
                    producer = (header.producer_id, header.producer_epoch)
                for record in read_records(batch):
                    if record.key is not None:
                        yield Entry(record.key, record.value, producer)
            offset = chunk.next_offset
