"""Compaction of a partition's files, on the filter of headwater.log.compaction.

Cleaned segments are written in a folder of their own, synced, and renamed to ``.swap`` in the partition's
directory: from then on a crash completes the swap (headwater.log.recovery) instead of undoing it. Readers see
the old segments until the new ones are in the list, and finish their reads on the files they have open.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import CorruptData
from headwater.log.batch import read_header
from headwater.log.compaction import CleanedTransactions, Cleaner, LastRecord, OffsetMap, map_dirty
from headwater.log.files import sync_directory
from headwater.log.index import AbortedTransaction
from headwater.log.partition import PartitionLog
from headwater.log.recovery import SEGMENT_SUFFIXES
from headwater.log.scan import Damage, scan
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, Segment

MAP_CAPACITY = 1_000_000  # keys a round; some 200 bytes each
WORK_FOLDER = "cleaning"


def cleanable_end(log: PartitionLog, now_ms: int) -> int:
    """The first offset that may not be compacted: active, in an open transaction, or too young."""
    end = min(log.active.base_offset, log.last_stable_offset)
    lag = log.config.min_compaction_lag_ms
    if lag:
        for segment in log.segments[:-1]:
            if segment.largest_timestamp() > now_ms - lag:
                end = min(end, segment.base_offset)
                break
    return end


def is_cleanable(log: PartitionLog, now_ms: int) -> bool:
    """Whether enough has gathered since the last round."""
    end = cleanable_end(log, now_ms)
    clean = dirty = 0
    oldest_dirty = None
    for segment in log.segments[:-1]:
        if segment.base_offset >= end:
            break
        if segment.base_offset < log.cleaned_offset:
            clean += segment.size
        else:
            dirty += segment.size
            oldest_dirty = segment if oldest_dirty is None else oldest_dirty
    if not dirty or oldest_dirty is None:
        return False
    if dirty / (clean + dirty) >= log.config.dirty_ratio:
        return True
    first = oldest_dirty.first_timestamp()
    return first is not None and first >= 0 and now_ms - first > log.config.max_compaction_lag_ms


@dataclass(slots=True)
class _Group:
    """Old segments and what becomes of them."""

    old: list[Segment]
    new: Segment | None
    end_offset: int  # of the old segments
    aborted: list[AbortedTransaction]  # of those with markers in the old segments, those that still matter


@dataclass(slots=True)
class Swap:
    """The result of a round, to be put in place by the partition's own thread."""

    groups: list[_Group]
    cleaned_offset: int
    removed: list[Path] = field(default_factory=list)

    def put_in_place(self, log: PartitionLog) -> None:
        """Make the cleaned segments part of the log."""
        for group in self.groups:
            if not set(group.old) <= set(log.segments):
                self._discard(log, group)  # retention was quicker
                continue
            for segment in group.old:
                segment.retired = True
                for suffix in SEGMENT_SUFFIXES:
                    path = segment.path(suffix)
                    log.files.forget(path)
                    if os.path.exists(path):
                        os.replace(path, path + ".deleted")
                        self.removed.append(Path(path + ".deleted"))
            placed = [] if group.new is None else [_place(log, group.new)]
            # A reader that is told of an aborted transaction waits for its marker: one whose marker is gone
            # would make it drop what the same producer committed later.
            start, end = group.old[0].base_offset, group.end_offset
            others = [a for a in log.producers.aborted if not start <= a.last_offset < end]
            log.producers.aborted = sorted([*others, *group.aborted], key=lambda a: a.last_offset)
            first = log.segments.index(group.old[0])
            log.set_segments((*log.segments[:first], *placed, *log.segments[first + len(group.old) :]))
        log.cleaned_offset = max(log.cleaned_offset, self.cleaned_offset)
        sync_directory(log.directory)
        for removed in self.removed:
            removed.unlink(missing_ok=True)

    def _discard(self, log: PartitionLog, group: _Group) -> None:
        if group.new is not None:
            for suffix in SEGMENT_SUFFIXES:
                Path(_swap_path(log, group.new, suffix)).unlink(missing_ok=True)


def clean_partition(log: PartitionLog, now_ms: int) -> Swap | None:
    """Write the compacted segments of ``log``. Runs in any thread; the log is changed by the swap only."""
    segments = log.segments
    end = cleanable_end(log, now_ms)
    dirty_start = max(log.cleaned_offset, segments[0].base_offset)
    aborted = [a for a in log.producers.aborted if a.first_offset < end]
    offset_map = OffsetMap(MAP_CAPACITY)
    transactions: CleanedTransactions[AbortedTransaction] = CleanedTransactions(aborted)
    for segment in segments[:-1]:
        if offset_map.full or segment.base_offset >= end:
            break
        if _end_of(segments, segment) > dirty_start:
            map_dirty(_batches(segment), offset_map, transactions, start_offset=dirty_start, end_offset=end)
    if not offset_map.full:
        offset_map.cover(end)
    map_end = min(offset_map.latest_offset + 1, end)
    if map_end <= dirty_start:
        return None
    transactions = CleanedTransactions(aborted)
    cleaner = Cleaner(
        offset_map,
        transactions,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        last_records=_last_records(log),
        first_uncleanable_offset=end,
    )
    work = log.directory / WORK_FOLDER
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        groups = [
            _clean_group(log, work, group, cleaner, transactions)
            for group in _groups(log, [s for s in segments[:-1] if s.base_offset < map_end])
        ]
        for group in groups:
            if group.new is not None:
                _rename_to_swap(log, group.new)
        sync_directory(log.directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Swap(groups, map_end)


def _end_of(segments: tuple[Segment, ...], segment: Segment) -> int:
    return segments[segments.index(segment) + 1].base_offset


def _batches(segment: Segment) -> Iterator[memoryview]:
    for item in scan(segment.file(), 0, segment.size):
        if isinstance(item, Damage):
            raise CorruptData("compact", f"{segment.log_path} at byte {item.position}", item.reason)
        yield item.batch


def _last_records(log: PartitionLog) -> dict[int, LastRecord]:
    return {
        producer.producer_id: LastRecord(
            producer.batches[-1].last_offset if producer.batches else None, producer.epoch
        )
        for producer in log.producers.all()
    }


def _groups(log: PartitionLog, segments: list[Segment]) -> Iterator[list[Segment]]:
    """Neighbours that fit into one segment."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        last = _end_of(log.segments, segment) - 1
        fits = (
            size + segment.size <= log.config.segment_bytes
            and bool(group)
            and last - group[0].base_offset <= LARGEST_RELATIVE_OFFSET
        )
        if group and not fits:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


def _clean_group(
    log: PartitionLog,
    work: Path,
    group: list[Segment],
    cleaner: Cleaner,
    transactions: CleanedTransactions[AbortedTransaction],
) -> _Group:
    new = Segment(log.files, work, group[0].base_offset, created_ms=group[-1].created_ms)
    new.create()
    for old in group:
        for batch in cleaner.clean_all(_batches(old)):
            header = read_header(batch)
            new.append((batch,), len(batch), header.last_offset, header.max_timestamp)
    retained = transactions.take_retained()
    for aborted in retained:
        new.add_aborted(aborted)
    new.seal()
    for suffix in SEGMENT_SUFFIXES:
        path = new.path(suffix)
        if os.path.exists(path):
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
    return _Group(group, new if new.size else None, _end_of(log.segments, group[-1]), retained)


def _swap_path(log: PartitionLog, segment: Segment, suffix: str) -> str:
    return os.path.join(log.directory, f"{segment.base_offset:020d}{suffix}.swap")


def _rename_to_swap(log: PartitionLog, segment: Segment) -> None:
    """The log file is renamed last: it is what makes the swap happen."""
    for suffix in reversed(SEGMENT_SUFFIXES):
        path = segment.path(suffix)
        log.files.forget(path)
        if os.path.exists(path):
            os.replace(path, _swap_path(log, segment, suffix))


def _place(log: PartitionLog, cleaned: Segment) -> Segment:
    sizes = {}
    for suffix in reversed(SEGMENT_SUFFIXES):
        swap = _swap_path(log, cleaned, suffix)
        if os.path.exists(swap):
            final = swap.removesuffix(".swap")
            sizes[suffix] = os.path.getsize(swap)
            os.replace(swap, final)
    segment = Segment(
        log.files,
        log.directory,
        cleaned.base_offset,
        size=sizes[".log"],
        index_size=sizes.get(".index", 0),
        time_index_size=sizes.get(".timeindex", 0),
        created_ms=cleaned.created_ms,
    )
    segment.max_timestamp = cleaned.max_timestamp
    segment.max_timestamp_offset = cleaned.max_timestamp_offset
    return segment
