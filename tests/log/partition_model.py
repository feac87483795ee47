"""A partition in memory that is cleaned as a broker would, and a simple model of what must be left of it.

The model knows every record by what was asked for, not by what is in the batches: who wrote it, how its
transaction ended, when a round first covered it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.log.batch import BatchHeader, fault_at, place, read_header
from headwater.log.compaction import (
    CleanedTransactions,
    Cleaner,
    CleaningStatistics,
    LastRecord,
    OffsetMap,
    map_dirty,
)
from headwater.log.records import (
    ABORT,
    COMMIT,
    NewRecord,
    Record,
    build_batch,
    control_batch,
    read_control,
    read_records,
)

RETENTION = 1000
WRITERS = 4  # the first writes without transactions


class AbortedRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


@dataclass
class Writer:
    """A producer, as the broker remembers it."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    last_data_offset: int | None = None  # in this epoch
    open_since: int | None = None  # first offset of its open transaction
    known: bool = True


@dataclass
class Written:
    """A record by what was asked for."""

    record: Record
    transaction: tuple[int, int] | None  # producer and first offset
    covered_at: int | None = None  # when a round first covered it

    def is_committed(self, ends: dict[tuple[int, int], bool]) -> bool:
        return self.transaction is None or ends.get(self.transaction, False)


@dataclass
class Partition:
    """The log, the broker's knowledge of its producers, and the model beside it."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[AbortedRange] = field(default_factory=list)
    writers: dict[int, Writer] = field(default_factory=dict)
    end_offset: int = 0
    first_dirty: int = 0
    now: int = 1_000_000

    history: list[Written] = field(default_factory=list)  # all that was ever written
    left: list[Written] = field(default_factory=list)  # what cleaning has to leave of it
    ends: dict[tuple[int, int], bool] = field(default_factory=dict)  # (producer, first offset) -> committed
    headers: dict[int, BatchHeader] = field(default_factory=dict)  # as written, by last offset
    markers: dict[int, tuple[int, int]] = field(default_factory=dict)  # offset -> its transaction

    # -- writing ----------------------------------------------------------------------------------

    def write(
        self,
        records: Sequence[NewRecord],
        *,
        writer: Writer | None = None,
        transactional: bool = False,
        codec: int = 0,
        append_time: int | None = None,
    ) -> None:
        base = self.end_offset
        if writer is None:
            batch = build_batch(records, codec=codec, base_offset=base, append_time=append_time)
        else:
            batch = build_batch(
                records,
                codec=codec,
                base_offset=base,
                append_time=append_time,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
                base_sequence=writer.next_sequence,
                transactional=transactional,
            )
            writer.known = True
            writer.next_sequence += len(records)
            writer.last_data_offset = base + len(records) - 1
            if transactional and writer.open_since is None:
                writer.open_since = base
        transaction = None
        if transactional and writer is not None and writer.open_since is not None:
            transaction = (writer.producer_id, writer.open_since)
        for index, (key, value, headers, timestamp) in enumerate(records):
            stamp = timestamp if append_time is None else append_time
            written = Written(Record(base + index, stamp, key, value, tuple(headers)), transaction)
            self.history.append(written)
            self.left.append(written)
        self._append(batch)

    def end(self, writer: Writer, committed: bool) -> None:
        """End the writer's transaction. One that wrote nothing here gets a marker all the same."""
        offset = self.end_offset
        kind = COMMIT if committed else ABORT
        batch = bytearray(control_batch(kind, writer.producer_id, writer.epoch, 3, self.now))
        place(batch, offset, 0)
        if not writer.known:
            writer.known, writer.last_data_offset = True, None
        if writer.open_since is not None:
            transaction = (writer.producer_id, writer.open_since)
            self.ends[transaction] = committed
            self.markers[offset] = transaction
            if not committed:
                self.aborted.append(AbortedRange(*transaction, offset))
            writer.open_since = None
        self._append(bytes(batch))

    def fence(self, writer: Writer) -> None:
        """A new epoch: what is open is aborted with it, sequences start again."""
        writer.epoch += 1
        writer.next_sequence = 0
        writer.last_data_offset = None
        if writer.open_since is not None:
            self.end(writer, committed=False)

    def _append(self, batch: bytes) -> None:
        header = read_header(batch)
        assert header.base_offset == self.end_offset
        self.batches.append(batch)
        self.headers[header.last_offset] = header
        self.end_offset = header.next_offset

    @property
    def stable_offset(self) -> int:
        open_since = [each.open_since for each in self.writers.values() if each.open_since is not None]
        return min(open_since, default=self.end_offset)

    # -- cleaning ---------------------------------------------------------------------------------

    def last_records(self) -> dict[int, LastRecord]:
        return {
            each.producer_id: LastRecord(each.last_data_offset, each.epoch)
            for each in self.writers.values()
            if each.known
        }

    def clean(
        self,
        first_uncleanable: int | None = None,
        capacity: int = 1000,
        beyond: int = 0,
        chunk: int = 3,
    ) -> CleaningStatistics:
        """One round. ``beyond`` batches past the end of the map are cleaned with it, as the rest of a segment
        would be."""
        if first_uncleanable is None:
            first_uncleanable = self.stable_offset
        statistics = CleaningStatistics()
        offset_map = OffsetMap(capacity)
        dirty = [batch for batch in self.batches if self.first_dirty <= read_header(batch).last_offset]
        transactions = CleanedTransactions[AbortedRange]()
        for start in range(0, len(dirty), chunk):
            part = dirty[start : start + chunk]
            transactions.add_aborted(self._aborted_over(part))
            map_dirty(
                part,
                offset_map,
                transactions,
                start_offset=self.first_dirty,
                end_offset=first_uncleanable,
                statistics=statistics,
            )
        if not offset_map.full:
            offset_map.cover(first_uncleanable)
        end = max(offset_map.latest_offset + 1, self.first_dirty)

        inside = [batch for batch in self.batches if read_header(batch).base_offset < end]
        outside = self.batches[len(inside) :]
        inside += outside[:beyond]
        outside = outside[beyond:]
        cleaner = Cleaner(
            offset_map,
            CleanedTransactions[AbortedRange](),
            now_ms=self.now,
            delete_retention_ms=RETENTION,
            last_records=self.last_records(),
            first_uncleanable_offset=first_uncleanable,
            statistics=statistics,
        )
        kept: list[bytes] = []
        for start in range(0, len(inside), chunk):
            part = inside[start : start + chunk]
            cleaner.transactions.add_aborted(self._aborted_over(part))
            kept += [bytes(batch) for batch in cleaner.clean_all(part)]
        cleaned_to = read_header(inside[-1]).next_offset if inside else 0
        self.batches = kept + outside
        self.aborted = cleaner.transactions.take_retained() + [
            each for each in self.aborted if each.last_offset >= cleaned_to
        ]
        for written in self.left:
            if written.record.offset < end and written.covered_at is None:
                written.covered_at = self.now
        self.first_dirty = end
        self.left = self._what_is_left(end, cleaned_to)
        assert statistics.bytes_kept == sum(map(len, kept))
        assert statistics.bytes_read == sum(map(len, inside))
        return statistics

    def _aborted_over(self, batches: Sequence[bytes]) -> list[AbortedRange]:
        first, last = read_header(batches[0]).base_offset, read_header(batches[-1]).last_offset
        return [each for each in self.aborted if each.first_offset <= last and each.last_offset >= first]

    def _what_is_left(self, end: int, cleaned_to: int) -> list[Written]:
        """What the round has to leave of every record."""
        latest = {
            written.record.key: written.record.offset
            for written in self.left
            if written.record.offset < end and written.is_committed(self.ends)
        }
        left = []
        for written in self.left:
            record = written.record
            is_aborted = written.transaction is not None and self.ends.get(written.transaction) is False
            if record.offset < cleaned_to and is_aborted:
                continue
            if record.offset < end:
                if record.key is None or latest[record.key] != record.offset:
                    continue
                covered_at = written.covered_at
                assert covered_at is not None
                if record.value is None and self.now >= covered_at + RETENTION:
                    continue
            left.append(written)
        return left

    # -- what is there ----------------------------------------------------------------------------

    def records(self) -> list[Record]:
        return [
            record
            for batch in self.batches
            if not read_header(batch).is_control
            for record in read_records(batch)
        ]

    def check(self) -> None:
        """Every promise of compaction."""
        assert self.records() == [written.record for written in self.left]
        stable = self.stable_offset
        assert state(committed_records(self.batches, self.aborted, stable)) == state(
            written.record
            for written in self.history
            if written.is_committed(self.ends) and written.record.offset < stable
        )
        self._check_batches()
        self._check_producers()
        self._check_markers()

    def _check_batches(self) -> None:
        next_offset = 0
        for batch in self.batches:
            assert fault_at(batch) is None
            header = read_header(batch)
            assert header.base_offset >= next_offset
            next_offset = header.next_offset
            records = list(read_records(batch))
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))
            assert all(header.base_offset <= offset <= header.last_offset for offset in offsets)
            before = self.headers[header.last_offset]
            kept = {"length": 0, "crc": 0, "record_count": 0, "attributes": 0}
            kept |= {"base_timestamp": 0, "max_timestamp": 0}
            assert header._replace(**kept) == before._replace(**kept)
            assert (header.attributes ^ before.attributes) & ~0x40 == 0 or not records
            assert (header.attributes ^ before.attributes) & ~0x47 == 0
            if header.uses_append_time:
                assert header.max_timestamp == before.max_timestamp
            elif records:
                assert header.max_timestamp == max(record.timestamp for record in records)
            else:
                assert header.max_timestamp <= before.max_timestamp

    def _check_producers(self) -> None:
        """A broker that has only the log finds the last sequence of every producer it has to know."""
        for writer in self.writers.values():
            if not writer.known or writer.last_data_offset is None:
                continue
            (header,) = [
                header
                for batch in self.batches
                if (header := read_header(batch)).last_offset == writer.last_data_offset
            ]
            assert (header.producer_id, header.producer_epoch) == (writer.producer_id, writer.epoch)
            assert header.last_sequence == writer.next_sequence - 1

    def _check_markers(self) -> None:
        """No batch of an ended transaction is there without its marker, and none that is aborted without an
        entry that tells readers."""
        markers = {
            read_header(batch).base_offset
            for batch in self.batches
            if read_header(batch).is_control and read_control(batch) is not None
        }
        told = {(each.producer_id, each.first_offset) for each in self.aborted}
        marker_of = {transaction: offset for offset, transaction in self.markers.items()}
        for batch in self.batches:
            header = read_header(batch)
            if header.is_control or not header.is_transactional:
                continue
            transaction = max(
                (
                    each
                    for each in self.ends
                    if each[0] == header.producer_id and each[1] <= header.base_offset
                ),
                key=lambda each: each[1],
                default=None,
            )
            if transaction is None or marker_of[transaction] < header.base_offset:
                continue  # still open
            assert marker_of[transaction] in markers
            assert self.ends[transaction] or transaction in told
        for each in self.aborted:
            assert each.last_offset in markers


def new_partition() -> Partition:
    return Partition(writers={slot: Writer(producer_id=100 + slot) for slot in range(WRITERS)})


def state(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """What a reader that starts at the beginning ends with: the last value of each key."""
    values = {record.key: record.value for record in records if record.key is not None}
    return {key: value for key, value in values.items() if value is not None}


def committed_records(
    batches: Iterable[bytes], aborted: Iterable[AbortedRange], stable_offset: int
) -> list[Record]:
    """What a consumer with read_committed makes of the batches and the aborted transactions it is told of:
    records of such a producer are dropped from the transaction's first offset until an abort marker."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    dropping: set[int] = set()
    records = []
    for batch in batches:
        header = read_header(batch)
        if header.base_offset >= stable_offset:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            dropping.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_control(batch)
            if marker is not None and marker.kind == ABORT:
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            records += read_records(batch)
    return records
