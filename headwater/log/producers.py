"""What a partition knows of its producers: sequences for idempotence, epochs for fencing, open transactions.

The state is derived from the batches of the log, in their order. A snapshot, named by the offset it stands
for, saves reading them again. Kafka's snapshot format holds one batch a producer; we write one entry for each
remembered batch, oldest first, which Kafka's tools read as well, so that a restart forgets none of the five.
"""

import struct
import time
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headwater.errors import InvalidTransaction, OutOfOrderSequence, StaleProducerEpoch
from headwater.log.batch import NO_SEQUENCE, BatchHeader
from headwater.log.index import AbortedTransaction
from headwater.log.producer_ids import LARGEST_BELIEVED

REMEMBERED_BATCHES = 5
REMEMBERED_REFUSALS = 1000
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
    seen: tuple[int, int] | None = None  # its last offset when `forget_idle` first saw it so, and that time
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    """All producers of one partition."""

    __slots__ = ("_completing", "_known", "_open", "_refused", "aborted", "subject")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._known: dict[int, Producer] = {}
        self._open: list[tuple[int, int]] = []  # (first offset, producer id) of open transactions, ordered
        self._completing: deque[tuple[int, int]] = deque()  # (first offset, marker) until that is durable
        self._refused: dict[int, tuple[int, int]] = {}  # producer id -> epoch and sequence that had no room
        self.aborted: list[AbortedTransaction] = []  # ordered by last offset

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> list[Producer]:
        return list(self._known.values())

    @property
    def largest_id(self) -> int:
        """The largest producer id that is known here; -1 when there is none.

        >>> Producers("orders-0").largest_id
        -1
        """
        return max((each for each in self._known if each <= LARGEST_BELIEVED), default=-1)

    def get(self, producer_id: int) -> Producer | None:
        return self._known.get(producer_id)

    def has_later_epoch(self, header: BatchHeader) -> bool:
        """Whether the partition knows the batch's producer by a later epoch."""
        producer = self._known.get(header.producer_id)
        return producer is not None and header.producer_epoch < producer.epoch

    # -- checks before an append ------------------------------------------------------------------

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether a client's batch may be appended; the batch already written if this is a repetition."""
        producer = self._known.get(header.producer_id)
        if producer is None:
            if self._refused:
                self._check_refused(header)
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

    def refused(self, header: BatchHeader) -> None:
        """There was no room for the first batch of a producer. Later ones, which may be under way already and
        may find room, must not go before it: any sequence is taken of a producer that is not known."""
        if header.producer_id not in self._known:
            if len(self._refused) >= REMEMBERED_REFUSALS:
                del self._refused[next(iter(self._refused))]
            self._refused.setdefault(header.producer_id, (header.producer_epoch, header.base_sequence))

    def take_refusals(self, before: "Producers") -> None:
        """Remember what ``before`` knew of producers that are not known any more, as refused."""
        self._refused = dict(before._refused)
        for producer in before.all():
            if producer.producer_id not in self._known and producer.batches:
                self._refused[producer.producer_id] = (producer.epoch, producer.batches[0].first_sequence)

    def _check_refused(self, header: BatchHeader) -> None:
        epoch, sequence = self._refused.get(header.producer_id, (None, 0))
        if epoch == header.producer_epoch and header.base_sequence > sequence:
            raise self._out_of_order(header, f"{sequence}, for which there was no room, would be next")

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
            self._refused.pop(header.producer_id, None)
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
        aborted = None
        if not committed:
            others = [first for first, producer_id in self._open[:2] if producer_id != header.producer_id]
            stable = min(others, default=offset + 1)
            aborted = AbortedTransaction(header.producer_id, start, offset, stable)
            self.aborted.append(aborted)
        # In this order: a reader in another thread must at no time take the transaction for stable.
        self._completing.append((start, offset))
        self._open.remove((start, header.producer_id))
        return aborted

    # -- the last stable offset -------------------------------------------------------------------

    def first_unstable(self, durable_offset: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not durable yet. Any thread."""
        unstable = [first for first, _ in self._open[:1]]
        unstable += [first for first, marker in tuple(self._completing) if marker >= durable_offset]
        return min(unstable, default=None)

    def became_durable(self, offset: int) -> None:
        """Markers before ``offset`` are on the disk."""
        while self._completing and self._completing[0][1] < offset:
            self._completing.popleft()

    @property
    def has_transactions(self) -> bool:
        return bool(self._open or self._completing)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of open transactions, oldest first."""
        return list(self._open)

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [first, end). Any thread."""
        aborted = self.aborted
        found = []
        for number in range(bisect_left(aborted, first, key=_last_offset), len(aborted)):
            transaction = aborted[number]
            if transaction.first_offset < end:
                found.append(transaction)
            if transaction.last_stable_offset >= end:
                break  # what was aborted later began later
        return found

    # -- housekeeping -----------------------------------------------------------------------------

    def forget_idle(self, before: int, now: int | None = None) -> int:
        """Drop producers whose records are all older than ``before``, and which have not been seen to write
        for as long, and have no open transaction.

        The timestamps alone will not do: a producer may be busy writing old records.
        """
        now = time.time_ns() // 1_000_000 if now is None else now
        idle = []
        for producer in self.all():
            last = producer.batches[-1].last_offset if producer.batches else NO_OFFSET
            if producer.seen is None or producer.seen[0] != last:
                producer.seen = (last, now)
            is_open = producer.transaction_start != NO_OFFSET
            if producer.timestamp < before and producer.seen[1] <= before and not is_open:
                idle.append(producer.producer_id)
        for producer_id in idle:
            del self._known[producer_id]
        return len(idle)

    def start_moved(self, log_start: int) -> None:
        """The log now starts at ``log_start``: aborted ranges before it are of no use to a reader."""
        self.aborted = [a for a in self.aborted if a.last_offset >= log_start]

    def cleaned(self, left: list[AbortedTransaction], end_offset: int, log_start: int) -> None:
        """Compaction up to ``end_offset`` has left records of these aborted transactions only.

        A reader must not be told of others: it would drop the records of their producers up to a marker that
        may be gone.
        """
        kept = [a for a in left if a.last_offset >= log_start]
        self.aborted = kept + [a for a in self.aborted if a.last_offset >= end_offset]

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


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset
