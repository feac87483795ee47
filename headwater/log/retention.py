"""Retention: segments that are too old, too many, or before the log's start leave the log.

A segment leaves the list first, then its files are deleted, or moved to the topic's archive directory.
Readers that hold one open finish their read. What cannot be archived stays where it is and is tried again.
"""

import contextlib
import filecmp
import logging
import os
import shutil
from pathlib import Path

from headwater.errors import StorageFailed
from headwater.log.files import sync_directory
from headwater.log.partition import PartitionLog
from headwater.log.segment import SEGMENT_SUFFIXES, Segment
from headwater.log.sync import finish_sync_work

logger = logging.getLogger("headwater.log")


def expired(log: PartitionLog, now_ms: int) -> int:
    """How many segments, from the oldest on, have to go. The active one is rolled first if it is to go."""
    count = _before_start(log)
    if log.config.delete:
        count = max(count, _too_old(log, now_ms), _too_large(log))
    if count == len(log.segments):
        log.roll(now_ms)
        count = min(count, len(log.segments) - 1)
    return count


def _before_start(log: PartitionLog) -> int:
    count = 0
    while count + 1 < len(log.segments) and log.segments[count + 1].base_offset <= log.start_offset:
        count += 1
    if count + 1 == len(log.segments) and log.active.size and log.start_offset >= log.next_offset > 0:
        count += 1
    return count


def _too_old(log: PartitionLog, now_ms: int) -> int:
    if log.config.retention_ms < 0:
        return 0
    count = 0
    for segment in log.segments:
        if not _is_settled(log, segment) or segment.size == 0:
            break
        timestamp = segment.largest_timestamp()
        age = now_ms - (timestamp if timestamp >= 0 else segment.created_ms)
        if age <= log.config.retention_ms:
            break
        count += 1
    return count


def _too_large(log: PartitionLog) -> int:
    if log.config.retention_bytes < 0:
        return 0
    excess = log.size - log.config.retention_bytes
    count = 0
    for segment in log.segments:
        if excess < segment.size or not _is_settled(log, segment) or segment.size == 0:
            break
        excess -= segment.size
        count += 1
    return count


def _is_settled(log: PartitionLog, segment: Segment) -> bool:
    """Whether every record of the segment is durable and part of no open transaction."""
    end = log.next_offset if segment is log.active else segment.bounds.end_offset
    return end <= log.last_stable_offset


def remove_departed(log: PartitionLog) -> None:
    """Delete the files of segments that have left the log, or archive them. Runs in any thread, when
    ``log.prepare_removal`` has said that they may go.

    Raises StorageFailed for the first that could not be archived; it and those behind it are tried again.
    """
    if log.before_removal is not None:
        # Without room for the snapshot they go nevertheless: that makes room.
        finish_sync_work(log.before_removal)
        log.before_removal = None
    # The segment that follows may be new: it has to be found again before the others are gone, or after a
    # crash the partition would have forgotten how far its offsets have come.
    with contextlib.suppress(FileNotFoundError):
        sync_directory(log.directory)
    archive = log.config.archive_dir
    failure: OSError | None = None
    for segment in list(log.departed):
        try:
            if archive and segment.size:
                _archive(log, segment, Path(archive) / segment.directory.name)
            else:
                _delete(log, segment)
            log.departed.remove(segment)
        except OSError as error:
            failure = error
            break  # the oldest go first, so that a crash leaves no gap
    if failure is not None and not log.deleted:
        reason = (failure.strerror or str(failure)).lower()
        step = "Make room there; it is tried again."
        raise StorageFailed("archive segments to", archive, reason, step) from failure


def _delete(log: PartitionLog, segment: Segment) -> None:
    for suffix in reversed(SEGMENT_SUFFIXES):
        if not log.deleted:  # else a new topic of this name may have a file of this name
            Path(segment.path(suffix)).unlink(missing_ok=True)


def _archive(log: PartitionLog, segment: Segment, target: Path) -> None:
    """Move the files, the log file last: while that is not in the archive, nothing is."""
    target = _free_place(Path(segment.log_path), target)
    target.mkdir(parents=True, exist_ok=True)
    for suffix in reversed(SEGMENT_SUFFIXES):
        source = Path(segment.path(suffix))
        if source.exists() and not log.deleted:
            _move(source, target / source.name)
    sync_directory(target)
    sync_directory(target.parent)
    logger.info("archived %s to %s", segment.log_path, target)


def _free_place(log: Path, target: Path) -> Path:
    """``target``, or a folder beside it if that has another segment of this name: of an earlier topic."""
    place = target
    number = 1
    while (place / log.name).exists() and not filecmp.cmp(log, place / log.name, shallow=False):
        place = target.with_name(f"{target.name}.{number}")
        number += 1
    return place


def _move(source: Path, target: Path) -> None:
    try:
        os.replace(source, target)
    except OSError:  # another file system: copy, sync, then delete
        copy = target.with_name(target.name + ".tmp")
        try:
            shutil.copyfile(source, copy)
            with open(copy, "rb+") as file:
                os.fsync(file.fileno())
        except OSError:
            copy.unlink(missing_ok=True)
            raise
        os.replace(copy, target)
        sync_directory(target.parent)  # it has to be found there before it is gone here
        sync_directory(target.parent.parent)
        source.unlink()
