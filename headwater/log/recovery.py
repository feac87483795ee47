"""Opening a partition: what a clean shutdown left, or what a crash did.

After a clean shutdown nothing is read. After a crash the log is walked from the newest producer snapshot on
(it is written only when log and indexes before it are synced), every checksum checked: indexes and producer
state are made again from the batches, and a torn tail (a batch that was being written) is cut off. Damage
that has right batches behind it is no torn tail: it stays where it is, is reported with file and position, is
never served, and what follows it remains readable.
"""

import contextlib
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from headwater.log.batch import HEADER_SIZE, read_header
from headwater.log.config import TopicConfig
from headwater.log.files import OpenFiles, sync_directory
from headwater.log.index import pack_aborted
from headwater.log.partition import PartitionLog
from headwater.log.records import COMMIT, read_control
from headwater.log.scan import Damage, Found, scan
from headwater.log.segment import Segment

logger = logging.getLogger("headwater.log")

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the data directory remembers of a partition."""

    start_offset: int = 0
    cleaned_offset: int = 0
    clean_end: int = -1  # next offset at a clean shutdown
    clean_size: int = -1  # bytes of the last segment then


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
    existed = directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    segments = _load_segments(files, directory) if existed else []
    if not segments:
        segments = [Segment(files, directory, checkpoint.start_offset, created_ms=_now_ms())]
        segments[0].create()
    log.set_segments(tuple(segments))
    log.start_offset = max(checkpoint.start_offset, segments[0].base_offset)
    log.cleaned_offset = max(checkpoint.cleaned_offset, log.start_offset)
    for segment in segments:
        log.producers.aborted.extend(segment.aborted())
    if not _trust(log, checkpoint):
        _recover(log)
    log.durable_offset = log.next_offset
    log.start_offset = min(log.start_offset, log.next_offset)
    return log


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- what lies in the directory ------------------------------------------------------------------------


def _load_segments(files: OpenFiles, directory: Path) -> list[Segment]:
    _finish_swaps(files, directory)
    sizes: dict[int, dict[str, os.stat_result]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            stem, suffix = os.path.splitext(entry.name)
            if entry.is_dir():
                shutil.rmtree(entry.path, ignore_errors=True)  # of a compaction that did not finish
            elif suffix in (".deleted", ".cleaned", ".swap", ".tmp"):
                os.unlink(entry.path)
            elif suffix in SEGMENT_SUFFIXES and stem.isdigit():
                sizes.setdefault(int(stem), {})[suffix] = entry.stat()
    segments = []
    for base_offset in sorted(sizes):
        found = sizes[base_offset]
        if ".log" not in found:
            for suffix in found:
                os.unlink(directory / f"{base_offset:020d}{suffix}")
            continue
        segments.append(
            Segment(
                files,
                directory,
                base_offset,
                size=found[".log"].st_size,
                index_size=found[".index"].st_size if ".index" in found else 0,
                time_index_size=found[".timeindex"].st_size if ".timeindex" in found else 0,
                created_ms=int(found[".log"].st_mtime * 1000),
            )
        )
    return segments


def _finish_swaps(files: OpenFiles, directory: Path) -> None:
    """Complete compactions that had put their result in place (`.log.swap`) when the broker died."""
    for swap in sorted(directory.glob("*.log.swap")):
        base_offset = int(swap.name.split(".")[0])
        end_offset = base_offset
        with open(swap, "rb", buffering=0) as file:
            for item in scan(file, 0, swap.stat().st_size):
                if isinstance(item, Found):
                    end_offset = item.header.next_offset
        for path in directory.glob("*.log"):
            old = int(path.stem)
            if base_offset <= old < max(end_offset, base_offset + 1):
                for suffix in SEGMENT_SUFFIXES:
                    path.with_suffix(suffix).unlink(missing_ok=True)
        for suffix in (".index", ".timeindex", ".txnindex"):
            part = directory / f"{base_offset:020d}{suffix}.swap"
            if part.exists():
                os.replace(part, part.with_suffix(""))
        os.replace(swap, swap.with_suffix(""))
        sync_directory(directory)


# -- clean or not --------------------------------------------------------------------------------------


def _trust(log: PartitionLog, checkpoint: Checkpoint) -> bool:
    """Whether the directory is as a clean shutdown left it."""
    if checkpoint.clean_end < 0 or checkpoint.clean_size != log.active.size:
        return False
    snapshot = log.snapshot_path(checkpoint.clean_end)
    if checkpoint.clean_end > log.segments[0].base_offset:
        try:
            if not log.producers.restore(snapshot.read_bytes()):
                return False
        except FileNotFoundError:
            return False
    log.next_offset = log.recovery_offset = checkpoint.clean_end
    log.active.largest_timestamp()
    return True


def _recover(log: PartitionLog) -> None:
    start = _restore_snapshot(log)
    log.producers.aborted = [a for a in log.producers.aborted if a.last_offset < start]
    first = _segment_of(log, start)
    expected = max(start, log.segments[first].base_offset)
    for number, segment in enumerate(log.segments[first:], first):
        is_last = number == len(log.segments) - 1
        expected = max(expected, segment.base_offset)
        position = _recover_from(segment, expected) if segment.base_offset <= start else 0
        expected = _recover_segment(log, segment, position, expected, is_last)
    log.next_offset = expected
    log.recovery_offset = start
    log.needs_sync = True


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
    """Whether a batch ends just before ``offset``: not so when somebody cut the log behind our back."""
    segment = log.segments[_segment_of(log, offset)]
    if offset <= segment.base_offset:
        return offset == segment.base_offset
    try:
        position = segment.locate(offset - 1)
        raw = os.pread(segment.file().fileno(), HEADER_SIZE, position)
    except OSError:
        return False
    if len(raw) < HEADER_SIZE:
        return False
    header = read_header(raw)
    return header.next_offset == offset and position + header.size <= segment.size


def _recover_from(segment: Segment, offset: int) -> int:
    """The position of ``offset``, if the index can be believed, else the start."""
    if offset <= segment.base_offset:
        return 0
    try:
        position = segment.locate(offset)
    except OSError:
        return 0
    return position if position <= segment.size else 0


def _recover_segment(log: PartitionLog, segment: Segment, position: int, expected: int, is_last: bool) -> int:
    size = os.fstat(segment.file().fileno()).st_size
    try:
        segment.reset_indexes(keep_before=position)
    except OSError:
        position = 0
        segment.offset_index.cut(0)
        segment.time_index.cut(0)
    segment.size = position
    _rewrite_aborted(segment, expected)
    for item in scan(segment.file(), position, size, expected):
        if isinstance(item, Found):
            segment.index_batch(item.position, item.header)
            _apply(log, segment, item)
            expected = item.header.next_offset
        elif item.is_tail and is_last:
            _cut_tail(log, segment, item, size)
        else:
            segment.damage.append(item)
            segment.size = item.end
            logger.error(
                "%s: %d damaged bytes at byte %d (%s); records from offset %d on are unreadable there, "
                "what follows is kept",
                segment.log_path, item.end - item.position, item.position, item.reason, expected,
            )  # fmt: skip
    if is_last:
        segment.write_indexes()
    else:
        segment.seal()
    return expected


def _rewrite_aborted(segment: Segment, before: int) -> None:
    path = Path(segment.path(".txnindex"))
    if path.exists():
        kept = [aborted for aborted in segment.aborted() if aborted.last_offset < before]
        path.write_bytes(b"".join(pack_aborted(aborted) for aborted in kept))


def _apply(log: PartitionLog, segment: Segment, item: Found) -> None:
    header = item.header
    if header.producer_id < 0:
        return
    if header.is_control:
        marker = read_control(item.batch)
        if marker is None:
            return
        aborted = log.producers.ended(
            header, header.base_offset, marker.kind == COMMIT, marker.coordinator_epoch
        )
        if aborted is not None:
            segment.add_aborted(aborted)
    else:
        log.producers.written(header, header.base_offset)


def _cut_tail(log: PartitionLog, segment: Segment, tail: Damage, size: int) -> None:
    length = size - tail.position
    if length > HEADER_SIZE and 0 < tail.declared_size <= length:
        # Not merely cut short: keep what is there for a person to look at.
        aside = Path(segment.path(f".log.damaged-{tail.position}"))
        with contextlib.suppress(OSError):
            aside.write_bytes(os.pread(segment.file().fileno(), length, tail.position))
        logger.error(
            "%s: the last %d bytes, from byte %d on, are damaged (%s); kept aside in %s",
            segment.log_path, length, tail.position, tail.reason, aside.name,
        )  # fmt: skip
    else:
        logger.warning(
            "%s: cut off a torn tail of %d bytes at byte %d (%s)",
            segment.log_path, length, tail.position, tail.reason,
        )  # fmt: skip
    segment.truncate(tail.position)
