"""Compaction of a partition's files, on the filter of headwater.log.compaction.

Old segments are read, what stays of them is written to new ones, and headwater.log.swap puts these in place.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.errors import CorruptData
from headwater.log.batch import read_header
from headwater.log.compaction import CleanedTransactions, Cleaner, LastRecord, OffsetMap, map_dirty
from headwater.log.files import OpenFiles
from headwater.log.index import AbortedTransaction
from headwater.log.partition import PartitionLog
from headwater.log.scan import Damage
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, SEGMENT_SUFFIXES, Retired, Segment
from headwater.log.swap import WORKING, Replacement, Swap, forget_swap

MAP_CAPACITY = 1_000_000  # keys a round; some 200 bytes each


def cleanable_end(log: PartitionLog, now_ms: int) -> int:
    """The first offset that may not be compacted: active, in an open transaction, or too young."""
    end = min(log.active.base_offset, log.last_stable_offset)
    lag = log.config.min_compaction_lag_ms
    if lag:
        for segment in log.segments[:-1]:
            is_dirty = segment.bounds.end_offset > log.cleaned_offset
            if is_dirty and segment.largest_timestamp() > now_ms - lag:
                end = min(end, segment.base_offset)
                break
    return end


def is_cleanable(log: PartitionLog, now_ms: int) -> bool:
    """Whether enough has gathered since the last round."""
    if log.uncleanable is not None or log.failure is not None:
        return False
    end = cleanable_end(log, now_ms)
    clean = dirty = 0
    oldest_dirty = None
    for segment in log.segments[:-1]:
        if segment.base_offset >= end:
            break
        if min(segment.bounds.end_offset, end) <= log.cleaned_offset:
            clean += segment.size
        else:  # also one in the middle of which the map of keys was full
            dirty += segment.size
            oldest_dirty = segment if oldest_dirty is None else oldest_dirty
    if not dirty or oldest_dirty is None:
        return False
    if dirty / (clean + dirty) >= log.config.dirty_ratio:
        return True
    first = oldest_dirty.first_timestamp()
    return first is not None and first >= 0 and now_ms - first > log.config.max_compaction_lag_ms


def clean_partition(log: PartitionLog, now_ms: int) -> Swap | None:
    """Write the compacted segments of ``log``. Runs in any thread; the log is changed by the swap only.

    None when there is nothing to do, or when retention took a segment in the meantime. CorruptData where a
    segment is damaged: nothing is cleaned over it, and the partition is left alone until a restart.
    """
    try:
        return _clean(log, now_ms)
    except Retired:
        return None
    except CorruptData as error:
        log.uncleanable = str(error)
        raise


def _clean(log: PartitionLog, now_ms: int) -> Swap | None:
    durable = log.durable_offset
    # What is not durable may yet be cut off: a segment that holds some of it stays as it is.
    segments = [segment for segment in log.segments[:-1] if segment.bounds.end_offset <= durable]
    if not segments:
        return None
    end = min(cleanable_end(log, now_ms), segments[-1].bounds.end_offset)
    dirty_start = max(log.cleaned_offset, segments[0].base_offset)
    # Also those that began past the end: the last segment may reach further than what is cleaned of it.
    aborted = [a for a in log.producers.aborted if a.last_offset < durable]
    offset_map = OffsetMap(MAP_CAPACITY)
    mapped = CleanedTransactions(aborted)
    for segment in segments:
        if offset_map.full or segment.base_offset >= end:
            break
        if segment.bounds.end_offset > dirty_start:
            map_dirty(_batches(segment), offset_map, mapped, start_offset=dirty_start, end_offset=end)
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
    forget_swap(log.directory)
    work = log.directory / WORKING
    work.mkdir()
    retained: list[AbortedTransaction] = []
    try:
        replacements = []
        for old in _groups(log, [s for s in segments if s.base_offset < map_end]):
            new = _clean_group(work, old, cleaner)
            found = transactions.take_retained()
            retained += found
            replacements.append(Replacement(old, _finish(new, found), old[-1].bounds.end_offset))
        swap = Swap(log.directory, replacements, map_end, retained)
        swap.commit()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return swap


def _batches(segment: Segment) -> Iterator[memoryview]:
    for item in segment.scan():
        if isinstance(item, Damage):
            raise CorruptData("compact", f"{segment.log_path} at byte {item.position}", item.reason)
        yield item.batch


def _last_records(log: PartitionLog) -> dict[int, LastRecord]:
    last = {}
    for producer in log.producers.all():
        batches = tuple(producer.batches)
        last[producer.producer_id] = LastRecord(batches[-1].last_offset if batches else None, producer.epoch)
    return last


def _groups(log: PartitionLog, segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Neighbours that fit into one segment."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and (
            size + segment.size > log.config.segment_bytes
            or segment.bounds.end_offset - group[0].base_offset > LARGEST_RELATIVE_OFFSET
        ):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


def _clean_group(work: Path, group: list[Segment], cleaner: Cleaner) -> Segment:
    files = OpenFiles(8)  # of its own: the same names come back in the next round
    new = Segment(files, work, group[0].base_offset, created_ms=group[-1].created_ms)
    new.create()
    for old in group:
        for batch in cleaner.clean_all(_batches(old)):
            header = read_header(batch)
            new.append((batch,), len(batch), header.last_offset, header.max_timestamp)
    return new


def _finish(new: Segment, aborted: list[AbortedTransaction]) -> Segment | None:
    """The new segment, synced; None if nothing is in it."""
    if not new.size:
        for suffix in SEGMENT_SUFFIXES:
            Path(new.path(suffix)).unlink(missing_ok=True)
        return None
    for transaction in aborted:
        new.add_aborted(transaction)
    new.seal()
    for path in (new.log_path, *new.index_paths()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return new
