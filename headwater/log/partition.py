"""A partition: what is written to it, what is durable of it, and what its producers have written.

Its readable side is headwater.log.reading. All methods here are called from one thread.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.errors import (
    DiskFull,
    HeadwaterError,
    InvalidBatch,
    StorageFailed,
    UnknownTopic,
)
from headwater.log.batch import BatchHeader, Buffer, placed_prefix, read_header
from headwater.log.config import TopicConfig
from headwater.log.files import OpenFiles, sync_directory
from headwater.log.producers import Producers
from headwater.log.reading import ReadableLog
from headwater.log.records import COMMIT, read_control
from headwater.log.scan import LEADER_EPOCH
from headwater.log.segment import (
    LARGEST_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    Retired,
    Segment,
    storage_error,
)
from headwater.log.sync import SyncWork, do_sync_work

logger = logging.getLogger("headwater.log")

CHECKPOINT_BYTES = 64 << 20  # a crash makes recovery read at most about this much of a partition again
BATCH_COST = 8192  # reading a batch again takes as long as these many bytes of it
PRODUCER_COST = 16384  # a producer in a snapshot weighs as much: large ones are made more rarely


class Appended(NamedTuple):
    """Where a batch is in the log."""

    base_offset: int
    last_offset: int
    duplicate: bool  # it was there already: an idempotent producer's repetition


class PartitionLog(ReadableLog):
    """The log of one partition. Made by headwater.log.recovery.open_partition."""

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        topic: str,
        partition: int,
        config: TopicConfig,
    ) -> None:
        super().__init__(topic, partition)
        self.files = files
        self.directory = directory
        self.config = config
        self.recovery_offset = 0  # of the newest snapshot: a scan after a crash starts here
        self.synced_snapshot = -1  # offset of the newest one that a power failure cannot take
        self.snapshot_interval = CHECKPOINT_BYTES  # less where many partitions would have to be read again
        self.cleaned_offset = 0  # compacted up to here
        self.before_removal: SyncWork | None = None  # has to be done before the files of these are removed:
        self.departed: list[Segment] = []  # that are no part of the log any more, but still have files
        self.uncleanable: str | None = None  # why compaction has given the partition up
        self.failure: HeadwaterError | None = None
        self.needs_sync = False  # recovered from what a crash left, perhaps in the page cache only
        self._found_snapshot = -1  # from which recovery started, perhaps in the page cache only
        self.when_durable: Callable[[PartitionLog, int], None] | None = None  # told how many bytes came
        self._to_sync: list[Segment] = []  # that were rolled since the last sync
        self._unsynced_indexes: list[Segment] = []  # whose indexes were finished since the last snapshot
        self._new_files = False
        self._since_checkpoint = 0
        self._at_snapshot = 0  # what the former was at the newest snapshot since
        self._written_bytes = 0
        self._durable_bytes = 0
        self.durable_place: tuple[Segment, int] | None = None  # segment and bytes of it that are durable

    # -- appending --------------------------------------------------------------------------------

    def append(self, batch: Buffer, header: BatchHeader, now_ms: int) -> Appended:
        """Write a client's batch, already checked for form, unless its producer wrote it before."""
        if header.producer_id >= 0:
            written = self.producers.check(header)
            if written is not None:
                return Appended(written.base_offset, written.last_offset, True)
        try:
            base_offset = self._write(batch, header, now_ms)
        except DiskFull:
            if header.producer_id >= 0:
                self.producers.refused(header)
            raise
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
            except OSError:  # it waits in memory, where readers look
                logger.warning("%s: no room for an entry of the transaction index", self.name)
        return Appended(base_offset, base_offset, False)

    def _write(self, batch: Buffer, header: BatchHeader, now_ms: int) -> int:
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # which would grow with every time
        active = self.segments[-1]
        size = len(batch)
        base_offset = self.next_offset
        last_offset = base_offset + header.last_offset_delta
        try:
            if active.size and self._is_full(active, size, last_offset, header, now_ms):
                active = self.roll(now_ms)
            prefix = placed_prefix(header, base_offset, LEADER_EPOCH)
            active.append((prefix, memoryview(batch)[16:]), size, last_offset, header.max_timestamp)
        except Retired:
            raise UnknownTopic("append to", self.name, "it was deleted") from None
        self.next_offset = last_offset + 1
        self._since_checkpoint += size + BATCH_COST
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
        new = Segment(self.files, self.directory, self.next_offset, created_ms=now_ms, dense=True)
        try:
            old.seal()
            new.create()
        except OSError as error:
            raise storage_error("start a segment of", self.name, error) from error
        self._to_sync.append(old)
        self._unsynced_indexes.append(old)
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
        files = [segment.file() for segment in (*self._to_sync, active) if not segment.retired]
        work = SyncWork(self, self.next_offset, self._written_bytes, (active, active.size), files)
        self._to_sync.clear()
        if self._new_files:
            work.directory = self.directory
            self._new_files = False
        since = self._since_checkpoint
        if since >= CHECKPOINT_BYTES:
            self._since_checkpoint = self._at_snapshot = 0
            self._add_checkpoint(work)
            if work.snapshot is not None:
                self._unsynced_indexes = []
        elif since - self._at_snapshot >= self.snapshot_interval + len(self.producers) * PRODUCER_COST:
            self._at_snapshot = since
            self._add_light_snapshot(work)
        return work

    def _add_checkpoint(self, work: SyncWork) -> None:
        work.finished_indexes = [segment for segment in self._unsynced_indexes if not segment.retired]
        try:
            for segment in (*work.finished_indexes, self.active):
                segment.write_indexes()
                work.index_files += [self.files.get(path) for path in segment.index_paths()]
        except OSError:
            work.index_files.clear()
            return  # no room: the recovery point stays where it is
        work.snapshot = self.producers.snapshot()
        work.snapshot_path = self.snapshot_path(self.next_offset)

    def _add_light_snapshot(self, work: SyncWork) -> None:
        """A snapshot that is not synced itself: it helps after a kill, and after the power failed perhaps."""
        try:
            self.active.write_indexes()
            # Recovery makes the others again where they are wrong, but takes no entry for no transaction.
            aborted = [each.aborted for each in (*self._unsynced_indexes, self.active) if len(each.aborted)]
            work.index_files += [self.files.get(each.path) for each in aborted]
        except OSError:
            work.index_files.clear()
            return
        if aborted:
            work.directory = self.directory
        work.snapshot = self.producers.snapshot()
        work.snapshot_path = self.snapshot_path(self.next_offset)
        work.is_light = True

    def synced(self, work: SyncWork) -> None:
        """``work`` was done: readers may see what it covers."""
        if self.failure is not None:
            return  # an earlier sync failed: this one proves nothing of what that one covered
        if work.snapshot is not None:
            self.recovery_offset = work.end_offset
            if not work.is_light:
                self.synced_snapshot = work.end_offset
            self._drop_old_snapshots()
        elif work.finished_indexes:
            known = set(self._unsynced_indexes)
            self._unsynced_indexes += [each for each in work.finished_indexes if each not in known]
        if work.end_offset > self.durable_offset:
            self.durable_offset = work.end_offset
            self.durable_place = work.end_place
            if self.producers.has_transactions:
                self.producers.became_durable(work.end_offset)
            new_bytes = work.end_bytes - self._durable_bytes
            self._durable_bytes = work.end_bytes
            if self.when_durable is not None:
                self.when_durable(self, new_bytes)

    def sync_failed(self, error: OSError) -> None:
        """The disk may or may not have what was written: take no more until recovery has looked.

        A later sync that succeeds says nothing: the system drops what it could not write.
        """
        if self.failure is None:
            reason = (error.strerror or str(error)).lower()
            self.failure = StorageFailed("sync", str(self.directory), reason)
            logger.error("%s", self.failure)

    def recovered(self, segments: Sequence[Segment], since_checkpoint: int) -> None:
        """Recovery has read these segments, and so many bytes of them, again: what it found there, and the
        indexes it made, may be in memory only. What lies before a snapshot is on the disk."""
        finished = [segment for segment in segments if segment is not self.active]
        self._to_sync += finished
        self._unsynced_indexes += finished
        self._since_checkpoint = since_checkpoint
        self._at_snapshot = 0
        self._new_files = True
        self._found_snapshot = self.recovery_offset
        self.needs_sync = since_checkpoint > 0

    def recovery_synced(self) -> None:
        """What recovery found is on the disk, and the snapshot from which it started."""
        self._to_sync.clear()
        self._new_files = False
        self.needs_sync = False
        self.synced_snapshot = self.recovery_offset

    def sync_recovered(self) -> None:
        """Bring what recovery found to the disk."""
        self.sync()
        with contextlib.suppress(FileNotFoundError):  # there may be none
            sync_directory(self.snapshot_path(self.recovery_offset))
        sync_directory(self.directory)
        self.recovery_synced()

    def cut_back(self, producers: Producers) -> None:
        """Everything behind ``durable_offset`` was cut off the files: go on from there."""
        self.producers = producers
        self.next_offset = self.durable_offset
        self._written_bytes = self._durable_bytes
        self._to_sync.clear()
        self._unsynced_indexes.clear()
        self._new_files = True
        self._since_checkpoint = CHECKPOINT_BYTES
        self.recovery_offset = min(self.recovery_offset, self.durable_offset)

    def sync(self) -> None:
        """Make everything durable now, in this thread."""
        work = self.sync_work()
        do_sync_work(work)
        self.synced(work)

    def snapshot_path(self, offset: int) -> Path:
        return self.directory / f"{offset:020d}.snapshot"

    def snapshots(self) -> list[tuple[int, Path]]:
        """Offsets and files of the producer snapshots, oldest first."""
        names = [name for name in os.listdir(self.directory) if name.endswith(".snapshot")]
        stems = sorted(name[: -len(".snapshot")] for name in names)
        return [(int(stem), self.directory / f"{stem}.snapshot") for stem in stems if stem.isdigit()]

    def _drop_old_snapshots(self) -> None:
        """Two stay, and two of those that are synced: were the newest unreadable, recovery would start from
        the one before."""
        snapshots = self.snapshots()
        synced = [path for offset, path in snapshots if offset <= self.synced_snapshot]
        kept = {*synced[-2:], *(path for _, path in snapshots[-2:])}
        found = self._found_snapshot if self.synced_snapshot < 0 else -1  # one of these may be the synced one
        for offset, path in snapshots:
            if path not in kept and offset > found:
                path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Take no more; the caller removes the directory."""
        self.deleted = True
        self.failure = UnknownTopic("use", self.name, "it was deleted")
        for segment in self.segments:
            segment.retired = True

    def forget_files(self) -> None:
        """The directory was renamed or removed: let go of its files."""
        for segment in self.segments:
            for suffix in SEGMENT_SUFFIXES:
                self.files.forget(segment.path(suffix))

    def closing_work(self) -> SyncWork | None:
        """Finish the indexes; what to bring to the disk so that the next open reads nothing, if anything."""
        if self.failure is not None:
            return None
        if self.next_offset == 0:
            return None  # nothing was ever written
        if self.active.size:
            self.active.seal()
        if self.next_offset != self.synced_snapshot or not self.snapshot_path(self.next_offset).exists():
            self._since_checkpoint = CHECKPOINT_BYTES
            return self.sync_work()
        return self.sync_work() if self.is_dirty else None

    def close(self) -> None:
        """Bring everything to the disk, with a snapshot, so that the next open reads nothing."""
        work = self.closing_work()
        if work is not None:
            do_sync_work(work)
            self.synced(work)

    # -- forgetting ------------------------------------------------------------------------------

    def move_start(self, offset: int) -> None:
        """Let the partition start at ``offset``; what lies before is not served any more."""
        if offset > self.start_offset:
            self.start_offset = min(offset, self.durable_offset)
            self.cleaned_offset = max(self.cleaned_offset, self.start_offset)
            self.producers.start_moved(self.start_offset)

    def drop_segments(self, count: int) -> None:
        """Take the first ``count`` segments out; their files are for headwater.log.retention to remove."""
        dropped = self.segments[:count]
        self.move_start(self.segments[count].base_offset)
        self.set_segments(self.segments[count:])
        for segment in dropped:
            segment.retired = True
            for suffix in SEGMENT_SUFFIXES:
                self.files.forget(segment.path(suffix))
        self.departed += dropped

    def prepare_removal(self) -> bool:
        """Whether the files of departed segments may be removed now; else after the next sync.

        What their producers have written must not be forgotten with them: a snapshot has to cover it.
        """
        if self.synced_snapshot >= self.segments[0].base_offset:
            return True
        if self.failure is not None:
            return False
        if self.is_dirty:
            self._since_checkpoint = CHECKPOINT_BYTES
            return False
        work = SyncWork(self, self.next_offset, self._written_bytes, (self.active, self.active.size), [])
        self._add_checkpoint(work)
        self.before_removal = work
        return True


def now_ms() -> int:
    return time.time_ns() // 1_000_000
