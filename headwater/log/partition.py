"""A partition: an ordered sequence of segments, what is durable of it, and what its producers have written.

Offsets that matter, in rising order::

    start_offset          the first record that is still there
    last_stable_offset    read_committed readers see what lies before
    durable_offset        synced to disk; readers see what lies before (Kafka's high watermark)
    next_offset           the next batch gets this one

A record is shown to readers once it is durable, so that nothing a reader has seen can vanish in a crash. All
methods are called from one thread, except ``read``, which may also run in others.
"""

import io
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headwater.errors import HeadwaterError, InvalidBatch, OffsetOutOfRange, StorageFailed, UnknownTopic
from headwater.log.batch import BatchHeader, Buffer, placed_prefix, read_header
from headwater.log.config import TopicConfig
from headwater.log.files import OpenFiles, sync_directory
from headwater.log.producers import Producers
from headwater.log.records import COMMIT, find_by_timestamp, max_timestamp_record, read_control
from headwater.log.scan import Damage, scan
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, Chunk, Retired, Segment, storage_error

logger = logging.getLogger("headwater.log")

CHECKPOINT_BYTES = 64 << 20  # a crash makes recovery read at most about this much of a partition again
REMEMBERED_CURSORS = 64


class Appended(NamedTuple):
    """Where a batch is in the log."""

    base_offset: int
    last_offset: int
    duplicate: bool  # it was there already: an idempotent producer's repetition


@dataclass(slots=True)
class SyncWork:
    """What has to reach the disk before ``end_offset`` is durable. Done in another thread."""

    end_offset: int
    end_bytes: int  # of all that was ever written to the partition, in this process
    files: list[io.FileIO]
    directory: Path | None = None  # new files have to be found again
    snapshot: bytes | None = None  # with it, ``end_offset`` becomes the recovery point
    snapshot_path: Path | None = None
    index_files: list[io.FileIO] = field(default_factory=list)


class PartitionLog:
    """The log of one partition. Made by headwater.log.recovery.open_partition."""

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.segments: tuple[Segment, ...] = ()
        self._bases: list[int] = []
        self.start_offset = 0
        self.next_offset = 0
        self.durable_offset = 0
        self.recovery_offset = 0  # of the newest snapshot: a scan after a crash starts here
        self.cleaned_offset = 0  # compacted up to here
        self.producers = Producers(f"{topic}-{partition}")
        self.failure: HeadwaterError | None = None
        self.deleted = False
        self.needs_sync = False  # recovered from what a crash left, perhaps in the page cache only
        self.when_durable: Callable[[PartitionLog, int], None] | None = None  # told how many bytes came
        self._to_sync: list[io.FileIO] = []  # files of segments that were rolled since the last sync
        self._new_files = False
        self._since_checkpoint = 0
        self._written_bytes = 0
        self._durable_bytes = 0
        self._cursors: dict[int, tuple[Segment, int]] = {}

    def __repr__(self) -> str:
        return f"<PartitionLog {self.name} [{self.start_offset}, {self.next_offset})>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        if not self.producers.has_transactions:
            return self.durable_offset
        unstable = self.producers.first_unstable(self.durable_offset)
        return self.durable_offset if unstable is None else min(unstable, self.durable_offset)

    def set_segments(self, segments: tuple[Segment, ...]) -> None:
        """Swap the list of segments in one step: a reader sees the old or the new one."""
        self._bases = [segment.base_offset for segment in segments]
        self.segments = segments
        self._cursors.clear()

    # -- appending --------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: BatchHeader, now_ms: int) -> Appended:
        """Write a client's batch, already checked for form, unless its producer wrote it before."""
        if header.producer_id >= 0:
            written = self.producers.check(header)
            if written is not None:
                return Appended(written.base_offset, written.last_offset, True)
        base_offset = self._write(batch, header, now_ms)
        if header.producer_id >= 0:
            self.producers.written(header, base_offset)
        return Appended(base_offset, self.next_offset - 1, False)

    def append_marker(self, batch: Buffer, now_ms: int) -> Appended:
        """Write the control batch that ends a producer's transaction in this partition."""
        header = read_header(batch)
        marker = read_control(batch)
        if marker is None:
            raise InvalidBatch("append to", self.name, "a control batch without a marker")
        self.producers.check_marker(header.producer_id, header.producer_epoch)
        base_offset = self._write(batch, header, now_ms)
        aborted = self.producers.ended(header, base_offset, marker.kind == COMMIT, marker.coordinator_epoch)
        if aborted is not None:
            try:
                self.active.add_aborted(aborted)
            except OSError:  # recovery and readers take it from memory or from the log
                logger.warning("%s: no room for an entry of the transaction index", self.name)
        return Appended(base_offset, base_offset, False)

    def _write(self, batch: Buffer, header: BatchHeader, now_ms: int) -> int:
        if self.failure is not None:
            raise self.failure
        active = self.segments[-1]
        size = len(batch)
        base_offset = self.next_offset
        last_offset = base_offset + header.last_offset_delta
        if active.size and self._is_full(active, size, last_offset, header, now_ms):
            active = self.roll(now_ms)
        prefix = placed_prefix(header, base_offset, 0)
        active.append((prefix, memoryview(batch)[16:]), size, last_offset, header.max_timestamp)
        self.next_offset = last_offset + 1
        self._since_checkpoint += size
        self._written_bytes += size
        return base_offset

    def _is_full(
        self, active: Segment, size: int, last_offset: int, header: BatchHeader, now_ms: int
    ) -> bool:
        config = self.config
        if active.size + size > config.segment_bytes:
            return True
        if last_offset - active.base_offset > LARGEST_RELATIVE_OFFSET:
            return True
        if len(active.offset_index) * 8 >= config.segment_index_bytes - 8:
            return True
        return self._is_old(active, header.max_timestamp, now_ms)

    def _is_old(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        first = active.first_timestamp()
        if first is None or first < 0 or timestamp < 0:
            return bool(active.created_ms) and now_ms - active.created_ms > self.config.segment_ms
        return timestamp - first > self.config.segment_ms

    def roll(self, now_ms: int) -> Segment:
        """Close the active segment and start the next one."""
        old = self.active
        if old.size == 0:
            return old
        try:
            old.seal()
            self._to_sync.append(old.file())
            self._to_sync.append(self.files.get(old.offset_index.path))
            self._to_sync.append(self.files.get(old.time_index.path))
            new = Segment(self.files, self.directory, self.next_offset, created_ms=now_ms)
            new.create()
        except OSError as error:
            raise storage_error("start a segment of", self.name, error) from error
        self.set_segments((*self.segments, new))
        self._new_files = True
        self._since_checkpoint += CHECKPOINT_BYTES
        return new

    # -- durability -------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        return self.next_offset > self.durable_offset and self.failure is None

    def sync_work(self) -> SyncWork:
        """What to sync so that all that is written now is durable."""
        active = self.active
        work = SyncWork(self.next_offset, self._written_bytes, [*self._to_sync, active.file()])
        self._to_sync.clear()
        if self._new_files:
            work.directory = self.directory
            self._new_files = False
        if self._since_checkpoint >= CHECKPOINT_BYTES:
            self._since_checkpoint = 0
            self._add_checkpoint(work)
        return work

    def _add_checkpoint(self, work: SyncWork) -> None:
        active = self.active
        try:
            active.write_indexes()
        except OSError:
            return  # no room: the recovery point stays where it is
        work.index_files = [self.files.get(active.offset_index.path), self.files.get(active.time_index.path)]
        work.snapshot = self.producers.snapshot()
        work.snapshot_path = self.snapshot_path(self.next_offset)
        work.directory = self.directory

    def synced(self, work: SyncWork) -> None:
        """``work`` was done: readers may see what it covers."""
        if work.snapshot_path is not None:
            self.recovery_offset = work.end_offset
            self._drop_old_snapshots()
        if work.end_offset > self.durable_offset:
            self.durable_offset = work.end_offset
            new_bytes = work.end_bytes - self._durable_bytes
            self._durable_bytes = work.end_bytes
            if self.when_durable is not None:
                self.when_durable(self, new_bytes)

    def sync_failed(self, error: OSError) -> None:
        """The disk may or may not have what was written: take no more until recovery has looked."""
        reason = (error.strerror or str(error)).lower()
        self.failure = StorageFailed("sync", str(self.directory), reason)
        logger.error("%s", self.failure)

    def sync(self) -> None:
        """Make everything durable now, in this thread."""
        work = self.sync_work()
        do_sync_work(work)
        self.synced(work)

    def snapshot_path(self, offset: int) -> Path:
        return self.directory / f"{offset:020d}.snapshot"

    def snapshots(self) -> list[tuple[int, Path]]:
        """Offsets and files of the producer snapshots, oldest first."""
        paths = self.directory.glob("*.snapshot")
        return sorted((int(path.stem), path) for path in paths if path.stem.isdigit())

    def _drop_old_snapshots(self) -> None:
        """Two stay: were the newest unreadable, recovery would start from the one before."""
        for _, path in self.snapshots()[:-2]:
            path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Take no more; the caller removes the directory."""
        self.deleted = True
        self.failure = UnknownTopic("use", self.name, "it was deleted")
        for segment in self.segments:
            segment.retired = True
            for suffix in (".log", ".index", ".timeindex"):
                self.files.forget(segment.path(suffix))

    def closing_work(self) -> SyncWork | None:
        """Finish the indexes; what to bring to the disk so that the next open reads nothing, if anything."""
        if self.failure is not None:
            return None
        self.active.seal()
        if self.next_offset != self.recovery_offset or not self.snapshot_path(self.next_offset).exists():
            self._since_checkpoint = CHECKPOINT_BYTES
            return self.sync_work()
        return self.sync_work() if self.is_dirty else None

    def close(self) -> None:
        """Bring everything to the disk, with a snapshot, so that the next open reads nothing."""
        work = self.closing_work()
        if work is not None:
            do_sync_work(work)
            self.synced(work)

    # -- reading ----------------------------------------------------------------------------------

    def end_for(self, committed: bool) -> int:
        """Where reading ends, for read_committed or read_uncommitted."""
        return self.last_stable_offset if committed else self.durable_offset

    def check_readable(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(
                "read", self.name, f"offset {offset} is not in [{self.start_offset}, {self.next_offset}]"
            )

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> Chunk | None:
        """Whole batches from the one that holds ``offset`` up to ``end_offset``; None when there are none."""
        while True:
            try:
                return self._read(offset, max_bytes, end_offset, at_least_one, may_block)
            except (Retired, FileNotFoundError):
                if self.deleted:
                    raise UnknownTopic("read", self.name, "it was deleted") from None

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, may_block: bool
    ) -> Chunk | None:
        if offset >= end_offset:
            return None
        cursor = self._cursors.pop(offset, None)
        segments, bases = self.segments, self._bases
        if cursor is not None:
            segment, position = cursor
            number = bisect_right(bases, segment.base_offset) - 1
        else:
            number = max(bisect_right(bases, offset) - 1, 0)
            segment = segments[number]
            position = segment.locate(offset)
        while True:
            if position < segment.size:
                chunk = segment.read(position, max_bytes, end_offset, at_least_one, may_block)
                if chunk.data:
                    self._remember(chunk.next_offset, segment, chunk.end_position)
                    return chunk
                return None
            number += 1
            if number >= len(segments) or segments[number].base_offset >= end_offset:
                return None
            segment, position = segments[number], 0

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """The next read of a consumer starts where this one ended: no index is searched then."""
        cursors = self._cursors
        if len(cursors) >= REMEMBERED_CURSORS:
            try:
                cursors.pop(next(iter(cursors)), None)
            except (StopIteration, RuntimeError):  # another thread was here first
                pass
        cursors[offset] = (segment, position)

    # -- forgetting ------------------------------------------------------------------------------

    def move_start(self, offset: int) -> None:
        """Let the partition start at ``offset``; what lies before is not served any more."""
        if offset > self.start_offset:
            self.start_offset = min(offset, self.durable_offset)
            self.cleaned_offset = max(self.cleaned_offset, self.start_offset)
            self.producers.start_moved(self.start_offset)

    def drop_segments(self, count: int) -> tuple[Segment, ...]:
        """Take the first ``count`` segments out; their files are the caller's to remove."""
        dropped = self.segments[:count]
        self.set_segments(self.segments[count:])
        self.move_start(self.segments[0].base_offset)
        for segment in dropped:
            segment.retired = True
            for suffix in (".log", ".index", ".timeindex"):
                self.files.forget(segment.path(suffix))
        return dropped

    # -- finding by time --------------------------------------------------------------------------

    def find_time(self, timestamp: int, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after ``timestamp``."""
        for segment in self.segments:
            if segment.base_offset >= end_offset:
                return None
            if segment is not self.active and segment.largest_timestamp() < timestamp:
                continue
            for item in scan(segment.file(), segment.position_before(timestamp), segment.size):
                if isinstance(item, Damage) or item.header.max_timestamp < timestamp:
                    continue
                if item.header.base_offset >= end_offset:
                    return None
                if item.header.is_control:
                    continue
                found = find_by_timestamp(item.batch, timestamp, self.start_offset)
                if found is not None:
                    return found if found[0] < end_offset else None
        return None

    def find_latest_time(self, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that has the latest timestamp."""
        best: tuple[int, int, Segment] | None = None
        for segment in self.segments:
            latest = segment.largest_timestamp()
            if segment.max_timestamp_offset >= 0 and (best is None or latest > best[0]):
                best = (latest, segment.max_timestamp_offset, segment)
        if best is None or best[0] < 0:
            return None
        _, shallow_offset, segment = best
        for item in scan(segment.file(), segment.locate(shallow_offset), segment.size):
            if isinstance(item, Damage):
                continue
            found = max_timestamp_record(item.batch)
            return found if found is not None and found[0] < end_offset else None
        return None


def do_sync_work(work: SyncWork) -> None:
    """Bring ``work`` to the disk. Runs in any thread."""
    for file in work.files:
        os.fdatasync(file.fileno())
    finish_sync_work(work)


def finish_sync_work(work: SyncWork) -> None:
    """The rest of ``work`` once its log files are synced: indexes, the snapshot, the directory."""
    for file in work.index_files:
        os.fdatasync(file.fileno())
    write_snapshot(work, sync=True)
    if work.directory is not None:
        sync_directory(work.directory)


def write_snapshot(work: SyncWork, sync: bool) -> None:
    """The snapshot of ``work``, if it has one; only when all that it stands for is on the disk."""
    if work.snapshot is None or work.snapshot_path is None:
        return
    descriptor = os.open(work.snapshot_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(descriptor, work.snapshot)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
