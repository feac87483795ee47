"""Opening a partition: what a clean shutdown left, or what a crash did.

After a clean shutdown nothing is read but the ends of the indexes. After a crash the log is walked from the
newest producer snapshot on (it is written only when log and indexes before it are synced), every checksum
checked: indexes and producer state are made again from the batches, and a torn tail (a batch that was being
written) is cut off. Damage that has right batches behind it is no torn tail: it stays where it is, is
reported with file and position, is never served, and what follows it remains readable. A last batch that is
whole but wrong is no torn one either: it is kept aside, in a ``.log.damaged-*`` file.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headwater.errors import CorruptData
from headwater.log.aborted import aborted_checksum, fit_the_log, read_aborted
from headwater.log.config import TopicConfig
from headwater.log.files import OpenFiles, write_file
from headwater.log.index import AbortedTransaction, OffsetIndex, TimeIndex
from headwater.log.partition import BATCH_COST, PartitionLog
from headwater.log.producers import Producers
from headwater.log.records import COMMIT, read_control
from headwater.log.reindex import indexes_fit, rebuild_indexes
from headwater.log.scan import Damage, Found, is_torn, read_fully
from headwater.log.segment import SEGMENT_SUFFIXES, Segment
from headwater.log.swap import READY, WORKING, finish_swap

logger = logging.getLogger("headwater.log")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the data directory remembers of a partition."""

    start_offset: int = 0
    cleaned_offset: int = 0
    clean_end: int = -1  # next offset at a clean shutdown
    clean_base: int = -1  # first offset of the last segment then
    clean_size: int = -1  # bytes of it
    clean_aborted: int = (
        -1
    )  # checksum over what it knew of aborted transactions then; -1 where none was noted


def open_partition(
    files: OpenFiles,
    directory: Path,
    topic: str,
    partition: int,
    config: TopicConfig,
    checkpoint: Checkpoint | None = None,
) -> PartitionLog:
    """The partition in ``directory``, made when missing, recovered when it was not closed.

    The caller makes it durable: a new directory and its parent; what recovery found (``needs_sync``), which
    may be in memory only, before anybody reads it.
    """
    checkpoint = checkpoint or Checkpoint()
    log = PartitionLog(files, directory, topic, partition, config)
    found = _load_segments(files, directory) if directory.exists() else []
    segments = [each.segment for each in found]
    if not segments:
        directory.mkdir(parents=True, exist_ok=True)
        # Offsets that were given out are not given out again, even if their records are gone.
        first_offset = max(checkpoint.start_offset, checkpoint.clean_end)
        segments = [Segment(files, directory, first_offset, created_ms=_now_ms(), dense=True)]
        segments[0].create()
    # Compaction never touches the last segment. Of the others it is not known whether it did.
    segments[-1].bounds = segments[-1].bounds._replace(dense=True)
    log.set_segments(tuple(segments))
    log.start_offset = checkpoint.start_offset
    if config.delete:  # else compaction may have left nothing of the first segments: they were there, though
        log.start_offset = max(log.start_offset, segments[0].base_offset)
    log.cleaned_offset = max(checkpoint.cleaned_offset, log.start_offset)
    torn = {each.segment for each in found if each.is_torn}
    if not _is_as_closed(log, checkpoint):
        _recover(log, torn)
    elif (aborted := _aborted_as_closed(log, checkpoint)) is None:
        _forget_snapshots(log)
        _recover(log, torn)
    elif not _restore_clean(log, checkpoint.clean_end, aborted, torn):
        _recover(log, torn)
    log.durable_offset = log.next_offset
    log.durable_place = (log.active, log.active.size)
    log.start_offset = min(log.start_offset, log.next_offset)
    log.producers.became_durable(log.durable_offset)
    return log


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- what lies in the directory ------------------------------------------------------------------------


class _Loaded(NamedTuple):
    segment: Segment
    is_torn: bool  # an index file ends within an entry


def _load_segments(files: OpenFiles, directory: Path) -> list[_Loaded]:
    found: dict[int, dict[str, os.stat_result]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            stem, suffix = os.path.splitext(entry.name)
            if entry.name in (WORKING, READY):
                finish_swap(directory)
                return _load_segments(files, directory)
            if suffix in (".deleted", ".tmp"):
                os.unlink(entry.path)
            elif suffix in SEGMENT_SUFFIXES and stem.isdigit():
                found.setdefault(int(stem), {})[suffix] = entry.stat()
    loaded = []
    for base_offset in sorted(found):
        stats = found[base_offset]
        if ".log" not in stats:
            for suffix in stats:
                os.unlink(directory / f"{base_offset:020d}{suffix}")
            continue
        sizes = {suffix: stat.st_size for suffix, stat in stats.items()}
        segment = Segment(
            files,
            directory,
            base_offset,
            size=sizes[".log"],
            index_size=sizes.get(".index", 0),
            time_index_size=sizes.get(".timeindex", 0),
            aborted_size=sizes.get(".txnindex", 0),
            created_ms=int(stats[".log"].st_mtime * 1000),
        )
        is_torn = sizes.get(".index", 0) % OffsetIndex.entry.size or sizes.get(".timeindex", 0) % (
            TimeIndex.entry.size
        )
        loaded.append(_Loaded(segment, bool(is_torn)))
    return loaded


def _check_indexes(segments: Iterable[Segment], torn: set[Segment]) -> None:
    for segment in segments:
        if segment in torn or not indexes_fit(segment):
            rebuild_indexes(segment)


# -- after a clean shutdown ----------------------------------------------------------------------------


def _is_as_closed(log: PartitionLog, checkpoint: Checkpoint) -> bool:
    """Whether the partition ends as a clean shutdown left it."""
    end = (checkpoint.clean_base, checkpoint.clean_size)
    return checkpoint.clean_end >= 0 and end == (log.active.base_offset, log.active.size)


def _aborted_as_closed(log: PartitionLog, checkpoint: Checkpoint) -> list[AbortedTransaction] | None:
    aborted = read_aborted(log.segments)
    if aborted is None:
        return None
    told = aborted_checksum(aborted, checkpoint.start_offset)
    if checkpoint.clean_aborted not in (-1, told):
        logger.warning("%s: its .txnindex files are not as they were: made again from the log", log.name)
        return None
    return aborted


def _restore_clean(
    log: PartitionLog, end: int, aborted: list[AbortedTransaction], torn: set[Segment]
) -> bool:
    """Take the partition as it was closed; False if its snapshot is not as a clean shutdown left it."""
    if end > 0:
        try:
            if not log.producers.restore(log.snapshot_path(end).read_bytes()):
                return False
        except FileNotFoundError:
            return False
    _check_indexes(log.segments, torn)
    log.producers.aborted = aborted
    log.next_offset = log.recovery_offset = log.synced_snapshot = end
    log.active.largest_timestamp()
    return True


# -- after a crash -------------------------------------------------------------------------------------


def _recover(log: PartitionLog, torn: set[Segment]) -> None:
    start = _restore_snapshot(log)
    first = _segment_of(log, start)
    aborted = read_aborted(log.segments[: first + 1])
    if aborted is not None:
        # They are found again where the log has them. When the power failed, an entry may have outlived its marker.
        aborted = [each for each in aborted if not _ended_later(log.producers, each, start)]
    if aborted is None or not fit_the_log(log, aborted):
        log.producers = Producers(log.producers.subject)
        _forget_snapshots(log)
        start, first, aborted = log.segments[0].base_offset, 0, []
    log.producers.aborted = [each for each in aborted if each.last_offset < start]  # the rest is read again
    _check_indexes(log.segments[:first], torn)
    scanned = 0
    expected = start
    for number, segment in enumerate(log.segments[first:], first):
        expected = max(expected, segment.base_offset)
        is_last = not any(later.size for later in log.segments[number + 1 :])
        expected, size = _recover_segment(log, segment, expected, is_last)
        scanned += size
    log.next_offset = expected
    log.recovery_offset = start
    log.recovered(log.segments[first:], scanned)


def _ended_later(producers: Producers, entry: AbortedTransaction, start: int) -> bool:
    """Whether the entry is of a transaction that ended after the snapshot for ``start``. Its last offset alone
    may have become another one."""
    begun = (entry.first_offset, entry.producer_id)
    return entry.last_offset >= start and (
        entry.first_offset >= start or begun in producers.open_transactions()
    )


def _forget_snapshots(log: PartitionLog) -> None:
    """So that all of the log is read, and again if that is cut short: half of an index would be believed."""
    for _, path in log.snapshots():
        path.unlink(missing_ok=True)


def _segment_of(log: PartitionLog, offset: int) -> int:
    return max((number for number, s in enumerate(log.segments) if s.base_offset <= offset), default=0)


def _restore_snapshot(log: PartitionLog) -> int:
    """Take the newest snapshot that the log reaches; the offset from which to read."""
    for offset, path in reversed(log.snapshots()):
        if _is_reached(log, offset) and log.producers.restore(path.read_bytes()):
            return offset
        path.unlink(missing_ok=True)
    return log.segments[0].base_offset


def _is_reached(log: PartitionLog, offset: int) -> bool:
    """Whether the log has a batch that starts at ``offset``, or ends there: not so when somebody cut it."""
    segment = log.segments[_segment_of(log, offset)]
    if offset <= segment.base_offset:
        return offset == segment.base_offset
    try:
        header = segment.header_at(segment.locate(offset - 1))
    except (OSError, CorruptData):
        return False
    if header is None:  # compaction took it and all that followed, or it was never there
        return segment is not log.active
    return header.next_offset == offset or header.base_offset >= offset


def _position_of(segment: Segment, offset: int) -> int:
    """The position of ``offset``, if the index can be believed, else the start."""
    if offset <= segment.base_offset:
        return 0
    try:
        return segment.locate(offset)
    except (OSError, CorruptData):
        return 0


def _recover_segment(log: PartitionLog, segment: Segment, expected: int, is_last: bool) -> tuple[int, int]:
    """Read the segment from ``expected`` on; the offset that follows it, and how much was found there."""
    start = segment.reset_indexes(keep_before=_position_of(segment, expected))
    header = segment.header_at(start)
    first = segment.base_offset if start == 0 or header is None else header.base_offset
    segment.aborted.keep_before(expected)
    next_offset, cost = expected, 0
    for item in segment.scan(start, first):
        if isinstance(item, Found):
            segment.index_batch(item.position, item.header)
            if item.header.base_offset >= expected:
                cost += len(item.batch) + BATCH_COST
                _apply(log.producers, item, segment)
                next_offset = item.header.next_offset
        elif item.is_tail and is_last:
            cost += item.end - item.position
            _cut_tail(segment, item, next_offset)
        else:
            cost += item.end - item.position
            segment.size = item.end
            logger.error(
                "%s: %d damaged bytes at byte %d (%s); records there are unreadable, what follows is kept",
                segment.log_path, item.end - item.position, item.position, item.reason,
            )  # fmt: skip
    try:
        if segment is log.active:
            segment.write_indexes()
        else:
            segment.seal()
    except OSError as error:  # they wait in memory; the next snapshot needs them
        logger.warning("%s: no room for its indexes (%s)", segment.log_path, error.strerror)
    return next_offset, cost


def _apply(producers: Producers, item: Found, segment: Segment | None = None) -> None:
    """Let the producers know of a batch; ``segment`` is to note what was aborted."""
    header = item.header
    if header.producer_id < 0:
        return
    if not header.is_control:
        producers.written(header, header.base_offset)
        return
    marker = read_control(item.batch)
    if marker is None:
        return
    is_commit = marker.kind == COMMIT
    aborted = producers.ended(header, header.base_offset, is_commit, marker.coordinator_epoch)
    if aborted is not None and segment is not None:
        with contextlib.suppress(OSError):  # it waits in memory
            segment.add_aborted(aborted)


def _cut_tail(segment: Segment, tail: Damage, expected: int) -> None:
    length = tail.end - tail.position
    if is_torn(segment.file(), tail, expected):
        logger.warning(
            "%s: cut off a torn tail of %d bytes at byte %d (%s)",
            segment.log_path, length, tail.position, tail.reason,
        )  # fmt: skip
        segment.truncate(tail.position)
        return
    try:
        aside = _keep_aside(segment, tail)
    except OSError as error:
        segment.size = tail.end
        logger.error(
            "%s: %d bytes from byte %d on are damaged (%s), and cannot be kept aside (%s): they stay",
            segment.log_path, length, tail.position, tail.reason, error.strerror,
        )  # fmt: skip
        return
    logger.error(
        "%s: the last %d bytes, from byte %d on, are damaged (%s); kept aside in %s",
        segment.log_path, length, tail.position, tail.reason, aside.name,
    )  # fmt: skip
    segment.truncate(tail.position)


def _keep_aside(segment: Segment, tail: Damage) -> Path:
    content = read_fully(segment.file(), tail.position, tail.end - tail.position)
    number = 0
    while True:
        aside = Path(segment.path(f".log.damaged-{tail.position}{f'-{number}' if number else ''}"))
        if not aside.exists():
            write_file(aside, content)
            return aside
        number += 1


# -- after a sync that failed for want of room -----------------------------------------------------------


def cut_back(log: PartitionLog) -> bool:
    """Take back what is not durable and go on from there; False if even that fails.

    What was durable before the failed sync still is. What was not was acknowledged to nobody who asked for
    that, and shown to nobody; the system may have dropped any part of it.
    """
    durable = log.durable_offset
    last, size = log.durable_place or (log.active, log.active.size)
    if last not in log.segments:  # compacted or deleted since: then all of it was durable
        last = next(segment for segment in log.segments if segment.base_offset >= durable)
        size = 0
    number = log.segments.index(last)
    later = log.segments[number + 1 :]
    try:
        for segment in reversed(later):
            segment.retired = True
            for suffix in reversed(SEGMENT_SUFFIXES):
                path = Path(segment.path(suffix))
                path.unlink(missing_ok=True)
                log.files.forget(str(path))
        log.set_segments(log.segments[: number + 1])
        last.truncate(size)
        start = last.reset_indexes(keep_before=size)
        header = last.header_at(start)
        for item in last.scan(start, header.base_offset if header and start else last.base_offset):
            if isinstance(item, Found):
                last.index_batch(item.position, item.header)
        last.size = size
        last.aborted.keep_before(durable)
        producers = _producers_at(log, durable)
    except (OSError, CorruptData) as error:
        logger.error("%s cannot be cut back to what is durable of it: %s", log.name, error)
        return False
    producers.aborted = [each for each in log.producers.aborted if each.last_offset < durable]
    producers.take_refusals(log.producers)
    log.cut_back(producers)
    logger.warning("%s was cut back to offset %d, up to which it is durable", log.name, durable)
    return True


def _producers_at(log: PartitionLog, end: int) -> Producers:
    """What was known of the producers when the log ended at ``end``."""
    producers = Producers(log.producers.subject)
    start = log.segments[0].base_offset
    for offset, path in reversed(log.snapshots()):
        if offset <= end and producers.restore(path.read_bytes()):
            start = offset
            break
    for segment in log.segments[_segment_of(log, start) :]:
        position = _position_of(segment, start)
        header = segment.header_at(position)
        for item in segment.scan(position, header.base_offset if header and position else None):
            if isinstance(item, Found) and item.header.base_offset >= start:
                _apply(producers, item)
    producers.became_durable(end)
    return producers
