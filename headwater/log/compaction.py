"""Log cleaning: of each key the latest record stays, as Apache Kafka's log cleaner defines it.

A round over a partition, whose files belong to the caller:

1. `map_dirty` reads the dirty part (what no round has cleaned, up to the first offset that may not be
   cleaned: that of the active segment, or the last stable offset) into an `OffsetMap`: key -> last offset.
2. A `Cleaner` filters everything from the start of the log to the end of the map, batch by batch, in order.
   The caller writes what comes out to new files, swaps them in, oldest first, and notes the end of the map as
   the start of the next round's dirty part.

What stays and what goes:

- A record stays if it is the latest of its key, or lies past the map. Records without a key go.
- A tombstone (no value) goes when its delete horizon is over. The first round that meets it sets the horizon,
  time of cleaning + delete.retention.ms: bit 6 of the attributes, and the horizon in place of the base
  timestamp, the timestamp deltas moved accordingly (KIP-534). A reader that gets from the start of the log to
  its tombstones within the retention sees every deletion; a slower one may keep what was deleted.
- Records of aborted transactions go at once. A marker stays as long as a batch of its transaction is there;
  then it gets a horizon like a tombstone. So no marker ever leaves before its data.
- A batch keeps its offsets, even if it loses records. An emptied batch stays as a bare header if it is its
  producer's last, which holds its sequence number or epoch, or the last of the round, which holds the log's
  end. A partly kept batch keeps codec, attributes and producer; its max timestamp is that of what is left.
- A batch whose records cannot be read although its checksum is right (a producer wrote nonsense) stays as it
  is, and is counted. One with a wrong checksum raises `CorruptData`: nothing is cleaned over it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headwater.errors import CorruptData, InvalidBatch
from headwater.log.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    crc_is_right,
    fault_at,
    read_header,
)
from headwater.log.compression import compress
from headwater.log.records import (
    ABORT,
    COMMIT,
    DECOMPRESSED_LIMIT,
    read_control,
    reassemble,
    spans,
    unpack,
    with_timestamps_moved,
)

# Keys up to this length are kept as they are, longer ones as a digest that is one byte longer: neither can be
# taken for the other, and an entry of the map takes no more than some 200 bytes.
_LONGEST_KEY = 40
_DIGEST_SIZE = _LONGEST_KEY + 1

_NO_MARKER = -1


class OffsetMap:
    """The last offset of each key in the dirty part of a log, for at most ``capacity`` keys.

    (A single batch with more keys than that is taken whole, so that every round gets on.)
    """

    __slots__ = ("capacity", "full", "latest_offset", "offsets")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.full = False
        self.latest_offset = -1  # everything of the dirty part up to here is in the map
        self.offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def last_offset(self, key: bytes) -> int:
        """The last offset of ``key``, -1 if it is not there."""
        return self.offsets.get(_map_key(key), -1)

    def cover(self, end_offset: int) -> None:
        """There is nothing left to map before ``end_offset``: offsets at the end may have gone with their
        batches. Not for a map that is full."""
        self.latest_offset = max(self.latest_offset, end_offset - 1)


def _map_key(key: bytes) -> bytes:
    return key if len(key) <= _LONGEST_KEY else _digest(key)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


class Aborted(Protocol):
    """An aborted transaction: whose, its first offset, the offset of its marker."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


AbortedT = TypeVar("AbortedT", bound=Aborted)


class CleanedTransactions(Generic[AbortedT]):
    """What is known of transactions while the batches of a log pass by in their order.

    Feed it all aborted transactions that overlap the batches to come, also those whose marker lies past the
    last of them; repeating one does no harm. Use one object for `map_dirty` and another for the `Cleaner`.
    """

    __slots__ = ("_aborted", "_awaited", "_committed", "_fed", "_observed", "_retained")

    def __init__(self, aborted: Iterable[AbortedT] = ()) -> None:
        self._awaited: list[tuple[int, int, AbortedT]] = []  # heap by first offset; the number breaks ties
        self._fed: set[tuple[int, int]] = set()
        self._aborted: dict[int, AbortedT] = {}  # by producer: the aborted transaction under way
        self._observed: set[int] = set()  # producers of those of which a batch is in the log
        self._committed: set[int] = set()  # producers with batches of a transaction that was not aborted
        self._retained: list[AbortedT] = []
        self.add_aborted(aborted)

    def add_aborted(self, transactions: Iterable[AbortedT]) -> None:
        """More aborted transactions that overlap the batches to come."""
        for transaction in transactions:
            identity = (transaction.producer_id, transaction.first_offset)
            if identity not in self._fed:
                self._fed.add(identity)
                heappush(self._awaited, (transaction.first_offset, len(self._fed), transaction))

    def take_retained(self) -> list[AbortedT]:
        """The aborted transactions, of the markers seen since the last call, of which batches were seen.

        They are the new transaction index of the segment that holds the markers. Others must not be kept: a
        consumer that is told of an aborted transaction drops all records of its producer up to the marker,
        and once the marker is gone that would be the records of later, committed transactions.
        """
        retained, self._retained = self._retained, []
        return retained

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a data batch; whether it belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        if self._aborted_at(header) is not None:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, kind: int | None) -> bool:
        """Note a marker (``kind`` None: emptied); whether no batch of its transaction was seen."""
        transaction = self._aborted_at(header)
        producer_id = header.producer_id
        if kind is None:
            return True
        if kind not in (ABORT, COMMIT):
            return False
        had_batches = producer_id in self._committed
        self._committed.discard(producer_id)
        if kind == ABORT and transaction is not None:
            del self._aborted[producer_id]
            if producer_id in self._observed:
                self._observed.remove(producer_id)
                self._retained.append(transaction)
                had_batches = True
        return not had_batches

    def _aborted_at(self, header: BatchHeader) -> AbortedT | None:
        """The aborted transaction of the batch's producer that is under way there."""
        while self._awaited and self._awaited[0][0] <= header.last_offset:
            _, _, begun = heappop(self._awaited)
            self._aborted[begun.producer_id] = begun
            self._observed.discard(begun.producer_id)
        transaction = self._aborted.get(header.producer_id)
        if transaction is None or transaction.last_offset < header.base_offset:
            return None
        return transaction


@dataclass(slots=True)
class CleaningStatistics:
    """What a round has done so far."""

    map_records_read: int = 0
    map_bytes_read: int = 0
    records_read: int = 0
    bytes_read: int = 0
    records_kept: int = 0
    bytes_kept: int = 0
    records_without_key: int = 0
    unreadable_batches: int = 0  # kept as they are


class LastRecord(NamedTuple):
    """Where a producer's state stands: its last data batch, or only a marker."""

    last_data_offset: int | None
    producer_epoch: int


def map_dirty(
    batches: Iterable[Buffer],
    offset_map: OffsetMap,
    transactions: CleanedTransactions[Any],
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    limit: int = DECOMPRESSED_LIMIT,
    statistics: CleaningStatistics | None = None,
) -> int:
    """Enter the keys of ``batches``, in their order, from ``start_offset`` on; the first offset not entered.

    May be called chunk after chunk. Stops, and says so in ``offset_map.full``, when the map has no room, and
    at ``end_offset``, the first that may not be cleaned: past it, in the same segment, may be records of an
    open transaction, and those must not outdate anything before it is known how it ends.

    >>> from headwater.log.records import build_batch
    >>> offset_map = OffsetMap(capacity=1000)
    >>> batch = build_batch([(b"a", b"1", (), 0), (b"b", b"2", (), 0), (b"a", b"3", (), 0)], base_offset=7)
    >>> map_dirty([batch], offset_map, CleanedTransactions())
    10
    >>> offset_map.last_offset(b"a"), offset_map.last_offset(b"b")
    (9, 8)
    """
    statistics = statistics or CleaningStatistics()
    offsets, longest = offset_map.offsets, _LONGEST_KEY
    for batch in batches:
        header = _verified(batch)
        if end_offset is not None and header.base_offset >= end_offset:
            break
        if offset_map.full or (offsets and len(offsets) + header.record_count > offset_map.capacity):
            offset_map.full = True
            break
        if header.is_control:
            transactions.is_marker_of_nothing(header, _marker_kind(batch))
        elif not transactions.is_aborted(header) and header.record_count:
            base = header.base_offset
            try:
                entries = {
                    key if len(key) <= longest else _digest(key): base + offset_delta
                    for _, _, offset_delta, _, key, _, _ in spans(header, unpack(header, batch, limit))
                    if key is not None and base + offset_delta >= start_offset
                }
            except InvalidBatch:
                statistics.unreadable_batches += 1  # its keys are not known, so it outdates nothing
            else:
                offsets.update(entries)
        statistics.map_records_read += header.record_count
        statistics.map_bytes_read += header.size
        offset_map.latest_offset = max(offset_map.latest_offset, header.last_offset)
    return offset_map.latest_offset + 1


class Cleaner:
    """One round's filter of batches.

    ``now_ms`` is the time of the round, the same for all its batches. ``last_records`` has the producers that
    the partition knows. ``first_uncleanable_offset`` is where the round's dirty part ended, mapped or not.

    >>> from headwater.log.records import build_batch, read_records
    >>> log = [
    ...     build_batch([(b"a", b"old", (), 0), (b"b", b"only", (), 0)]),
    ...     build_batch([(b"a", b"new", (), 0)], base_offset=2),
    ... ]
    >>> offset_map = OffsetMap(capacity=1000)
    >>> end = map_dirty(log, offset_map, CleanedTransactions())
    >>> cleaner = Cleaner(offset_map, CleanedTransactions(), now_ms=0, delete_retention_ms=0)
    >>> [(record.offset, record.value) for batch in cleaner.clean_all(log) for record in read_records(batch)]
    [(1, b'only'), (2, b'new')]
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions[Any],
        *,
        now_ms: int,
        delete_retention_ms: int,
        last_records: Mapping[int, LastRecord] | None = None,
        first_uncleanable_offset: int | None = None,
        limit: int = DECOMPRESSED_LIMIT,
        statistics: CleaningStatistics | None = None,
    ) -> None:
        self.transactions = transactions
        self.statistics = statistics or CleaningStatistics()
        self._offset_map = offset_map
        self._now_ms = now_ms
        self._new_horizon = now_ms + delete_retention_ms
        self._last_records = last_records or {}
        self._first_uncleanable_offset = first_uncleanable_offset
        self._limit = limit

    def clean_all(self, batches: Iterable[Buffer]) -> Iterator[Buffer]:
        """What stays of each batch, in their order."""
        for batch in batches:
            cleaned = self.clean(batch)
            if cleaned is not None:
                yield cleaned

    def clean(self, batch: Buffer) -> Buffer | None:
        """What stays of the batch: the same object if all of it, None if nothing."""
        header = _verified(batch)
        statistics = self.statistics
        statistics.records_read += header.record_count
        statistics.bytes_read += header.size
        cleaned: Buffer | None
        try:
            if header.is_control:
                cleaned, kept = self._clean_control(header, batch)
            elif self.transactions.is_aborted(header) or not header.record_count:
                cleaned, kept = self._emptied(header, batch), 0
            elif header.base_offset > self._offset_map.latest_offset:
                cleaned, kept = batch, header.record_count
            else:
                cleaned, kept = self._clean_data(header, batch)
        except InvalidBatch:
            statistics.unreadable_batches += 1
            cleaned, kept = batch, header.record_count
        if cleaned is not None:
            statistics.records_kept += kept
            statistics.bytes_kept += len(cleaned)
        return cleaned

    def _clean_control(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer | None, int]:
        of_nothing = self.transactions.is_marker_of_nothing(header, _marker_kind(batch))
        horizon = header.delete_horizon
        if not header.record_count or (of_nothing and horizon is not None and horizon <= self._now_ms):
            return self._emptied(header, batch), 0
        if not of_nothing or horizon is not None:
            return batch, header.record_count
        data = unpack(header, batch, self._limit)
        pieces = [(start, end) for start, end, *_ in spans(header, data)]
        return self._with_horizon(header, data, pieces), header.record_count

    def _clean_data(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer | None, int]:
        data = unpack(header, batch, self._limit)
        base, latest = header.base_offset, self._offset_map.latest_offset
        last_offset, longest = self._offset_map.offsets.get, _LONGEST_KEY
        horizon = header.delete_horizon
        tombstones_stay = horizon is None or self._now_ms < horizon

        pieces: list[tuple[int, int]] = []  # kept records
        max_delta = None
        needs_horizon = False
        without_key = 0
        for start, end, offset_delta, timestamp_delta, key, value_start, _ in spans(header, data):
            offset = base + offset_delta
            if offset <= latest:
                if key is None:
                    without_key += 1
                    continue
                if offset < last_offset(key if len(key) <= longest else _digest(key), -1):
                    continue
                if value_start < 0:
                    if not tombstones_stay:
                        continue
                    needs_horizon = True
            pieces.append((start, end))
            if max_delta is None or timestamp_delta > max_delta:
                max_delta = timestamp_delta
        self.statistics.records_without_key += without_key

        if max_delta is None:
            return self._emptied(header, batch), 0
        needs_horizon = needs_horizon and horizon is None
        kept = len(pieces)
        if kept == header.record_count and not needs_horizon:
            return batch, kept
        max_timestamp = header.base_timestamp + max_delta
        if header.uses_append_time:
            max_timestamp = header.max_timestamp
        header = header._replace(record_count=kept, max_timestamp=max_timestamp)
        if needs_horizon:
            return self._with_horizon(header, data, pieces), kept
        records = b"".join([data[start:end] for start, end in pieces])
        return reassemble(header, compress(header.codec, records)), kept

    def _with_horizon(self, header: BatchHeader, data: bytes, pieces: list[tuple[int, int]]) -> bytes:
        if header.uses_append_time:  # the deltas mean nothing
            records = b"".join([data[start:end] for start, end in pieces])
        else:
            records = with_timestamps_moved(data, pieces, header.base_timestamp - self._new_horizon)
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON, base_timestamp=self._new_horizon
        )
        return reassemble(header, compress(header.codec, records))

    def _emptied(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """The bare header of a batch that must stay even without its records."""
        if not self._must_stay(header):
            return None
        if not header.record_count:
            return batch
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
        bare = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
        return reassemble(bare, b"")

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._first_uncleanable_offset:
            return True
        last = None
        if header.producer_id != NO_PRODUCER:
            last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _verified(batch: Buffer) -> BatchHeader:
    """The header of a batch that is what was written: one that is rewritten gets a new checksum, and what
    was damaged before would be taken for right from then on."""
    if len(batch) >= HEADER_SIZE:
        header = read_header(batch)
        if header.magic == MAGIC and header.size == len(batch) and crc_is_right(batch, header):
            return header
    raise CorruptData("compact", "a batch", fault_at(batch) or "bytes follow it")


def _marker_kind(batch: Buffer) -> int | None:
    """``ABORT`` or ``COMMIT``, None for an emptied marker; what is none of these is never removed."""
    try:
        marker = read_control(batch)
    except InvalidBatch:
        return _NO_MARKER
    return None if marker is None else marker.kind
