"""What a partition knows of its producers: sequences for idempotence, epochs for fencing, open transactions.

The state is derived from the batches of the log, in their order. A snapshot, named by the offset it stands
for, saves reading them again. Kafka's snapshot format holds one batch a producer; we write one entry for each
remembered batch, oldest first, which Kafka's tools read as well, so that a restart forgets none of the five.
"""

import struct
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headwater.errors import InvalidTransaction, OutOfOrderSequence, StaleProducerEpoch
from headwater.log.batch import NO_SEQUENCE, BatchHeader
from headwater.log.index import AbortedTransaction

REMEMBERED_BATCHES = 5
NO_OFFSET = -1

_SNAPSHOT_HEAD = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class WrittenBatch(NamedTuple):
    """A batch that an idempotent producer has in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """One producer id in one partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    timestamp: int = -1
    transaction_start: int = NO_OFFSET
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    """All producers of one partition."""

    __slots__ = ("_completing", "_known", "_open", "aborted", "subject")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._known: dict[int, Producer] = {}
        self._open: list[tuple[int, int]] = []  # (first offset, producer id) of open transactions, ordered
        self._completing: deque[tuple[int, int]] = (
            deque()
        )  # (first offset, marker offset), marker not durable
        self.aborted: list[AbortedTransaction] = []  # ordered by last offset

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> list[Producer]:
        return list(self._known.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._known.get(producer_id)

    # -- checks before an append ------------------------------------------------------------------

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether a client's batch may be appended; the batch already written if this is a repetition."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < producer.epoch:
            raise StaleProducerEpoch(
                "append to",
                self.subject,
                f"producer {header.producer_id} has epoch {epoch}, the current one is {producer.epoch}",
            )
        if epoch > producer.epoch:
            if first not in (0, NO_SEQUENCE):
                raise self._out_of_order(header, "a new epoch starts at sequence 0")
            return None
        if first == NO_SEQUENCE:
            return None  # written by the broker itself: offsets that a transaction commits
        last = header.last_sequence
        for batch in producer.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        expected = producer.last_sequence
        if first != (expected + 1) & 0x7FFFFFFF:  # 0 where the epoch has only a marker so far
            raise self._out_of_order(header, f"the last one in the log is {expected}")
        if producer.transaction_start != NO_OFFSET and not header.is_transactional:
            cause = f"producer {header.producer_id} has a transaction open here, and the batch is none of it"
            raise InvalidTransaction("append to", self.subject, cause)
        return None

    def _out_of_order(self, header: BatchHeader, why: str) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            "append to",
            self.subject,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, but {why}",
        )

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Whether a transaction marker of that epoch may be written."""
        producer = self._known.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise StaleProducerEpoch(
                "write a transaction marker to",
                self.subject,
                f"producer {producer_id} has epoch {epoch}, the current one is {producer.epoch}",
            )

    # -- what an append changes -------------------------------------------------------------------

    def written(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch of a producer is in the log, at ``base_offset``."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            producer = self._known[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.timestamp = header.max_timestamp
        if header.base_sequence != NO_SEQUENCE:
            producer.batches.append(
                WrittenBatch(
                    header.last_sequence,
                    base_offset + header.last_offset_delta,
                    header.last_offset_delta,
                    header.max_timestamp,
                )
            )
        if header.is_transactional and producer.transaction_start == NO_OFFSET:
            producer.transaction_start = base_offset
            insort(self._open, (base_offset, header.producer_id))

    def ended(
        self, header: BatchHeader, offset: int, committed: bool, coordinator_epoch: int
    ) -> AbortedTransaction | None:
        """A marker is in the log at ``offset``; returns what it aborted, if it aborted any records."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            producer = self._known[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp = header.max_timestamp
        start = producer.transaction_start
        if start == NO_OFFSET:
            return None
        producer.transaction_start = NO_OFFSET
        self._open.remove((start, header.producer_id))
        self._completing.append((start, offset))
        if committed:
            return None
        stable = min([offset + 1, *(first for first, _ in self._open[:1])])
        aborted = AbortedTransaction(header.producer_id, start, offset, stable)
        self.aborted.append(aborted)
        return aborted

    # -- the last stable offset -------------------------------------------------------------------

    def first_unstable(self, durable_offset: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not durable yet."""
        while self._completing and self._completing[0][1] < durable_offset:
            self._completing.popleft()
        first = self._open[0][0] if self._open else None
        for start, _ in self._completing:
            first = start if first is None else min(first, start)
        return first

    @property
    def has_transactions(self) -> bool:
        return bool(self._open or self._completing)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of open transactions, oldest first."""
        return list(self._open)

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [first, end)."""
        return [a for a in self.aborted if a.last_offset >= first and a.first_offset < end]

    # -- housekeeping -----------------------------------------------------------------------------

    def forget_idle(self, before: int) -> int:
        """Drop producers that wrote nothing since ``before`` and have no open transaction."""
        idle = [
            p.producer_id for p in self.all() if p.timestamp < before and p.transaction_start == NO_OFFSET
        ]
        for producer_id in idle:
            del self._known[producer_id]
        return len(idle)

    def start_moved(self, log_start: int) -> None:
        """The log now starts at ``log_start``: aborted ranges before it are of no use to a reader."""
        self.aborted = [a for a in self.aborted if a.last_offset >= log_start]

    # -- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The state in Kafka's snapshot format."""
        entries = bytearray()
        count = 0
        for producer in self._known.values():
            batches = list(producer.batches) or [WrittenBatch(NO_SEQUENCE, NO_OFFSET, 0, producer.timestamp)]
            for batch in batches:
                entries += _SNAPSHOT_ENTRY.pack(
                    producer.producer_id,
                    producer.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.offset_delta,
                    batch.timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_start,
                )
                count += 1
        body = _SNAPSHOT_COUNT.pack(count) + entries
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, content: bytes) -> bool:
        """Take the state of a snapshot; False when it is damaged and says nothing."""
        if len(content) < _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size:
            return False
        version, crc = _SNAPSHOT_HEAD.unpack_from(content)
        body = content[_SNAPSHOT_HEAD.size :]
        if version != _SNAPSHOT_VERSION or crc32c(body) != crc:
            return False
        (count,) = _SNAPSHOT_COUNT.unpack_from(body)
        if len(body) != _SNAPSHOT_COUNT.size + count * _SNAPSHOT_ENTRY.size:
            return False
        self._known.clear()
        self._open.clear()
        for number in range(count):
            fields = _SNAPSHOT_ENTRY.unpack_from(body, _SNAPSHOT_COUNT.size + number * _SNAPSHOT_ENTRY.size)
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = fields
            producer = self._known.get(producer_id)
            if producer is None:
                producer = Producer(producer_id, epoch, coordinator_epoch, timestamp, start)
                self._known[producer_id] = producer
                if start != NO_OFFSET:
                    insort(self._open, (start, producer_id))
            producer.timestamp = max(producer.timestamp, timestamp)
            if sequence != NO_SEQUENCE:
                producer.batches.append(WrittenBatch(sequence, offset, delta, timestamp))
        return True
