"""Retention: segments that are too old, too many, or before the log's start leave the log.

A segment leaves the list first, then its files are deleted, or moved to the topic's archive directory.
Readers that hold one open finish their read.
"""

import logging
import os
import shutil
from pathlib import Path

from headwater.log.files import sync_directory
from headwater.log.partition import PartitionLog
from headwater.log.recovery import SEGMENT_SUFFIXES
from headwater.log.segment import Segment

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
    number = log.segments.index(segment) + 1
    end = log.segments[number].base_offset if number < len(log.segments) else log.next_offset
    return end <= log.last_stable_offset


def remove_segments(segments: tuple[Segment, ...], archive_dir: str) -> None:
    """Delete the files of segments that have left the log, or archive them. Runs in any thread."""
    for segment in segments:
        if archive_dir and segment.size:
            _archive(segment, Path(archive_dir) / segment.directory.name)
        else:
            for suffix in SEGMENT_SUFFIXES:
                Path(segment.path(suffix)).unlink(missing_ok=True)


def _archive(segment: Segment, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for suffix in (".txnindex", ".timeindex", ".index", ".log"):
        source = Path(segment.path(suffix))
        if not source.exists():
            continue
        try:
            os.replace(source, target / source.name)
        except OSError:  # another file system: copy, sync, then delete
            copy = target / f"{source.name}.tmp"
            shutil.copyfile(source, copy)
            with open(copy, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(copy, target / source.name)
            source.unlink()
    sync_directory(target)
    logger.info("archived %s to %s", segment.log_path, target)
