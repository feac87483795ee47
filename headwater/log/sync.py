"""Bringing a partition to the disk: what has to get there, and in which order.

Log files first, then the indexes, then the directory in which new files have to be found again, then the
producer snapshot that makes all of it the point from which recovery starts.
"""

import contextlib
import io
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.files import sync_data, sync_directory, write_file

if TYPE_CHECKING:
    from headwater.log.partition import PartitionLog
    from headwater.log.segment import Segment

logger = logging.getLogger("headwater.log")


@dataclass(slots=True)
class SyncWork:
    """What has to reach the disk before ``end_offset`` is durable. Done in another thread."""

    log: "PartitionLog"
    end_offset: int
    end_bytes: int  # of all that was ever written to the partition, in this process
    end_place: "tuple[Segment, int]"  # where in the files that is
    files: list[io.FileIO]
    directory: Path | None = None  # new files have to be found again
    snapshot: bytes | None = None  # with it, ``end_offset`` becomes the recovery point
    snapshot_path: Path | None = None
    is_light: bool = False  # the snapshot need not be synced
    index_files: list[io.FileIO] = field(default_factory=list)
    finished_indexes: "list[Segment]" = field(default_factory=list)  # of rolled segments, among the above


def do_sync_work(work: SyncWork) -> None:
    """Bring ``work`` to the disk. Runs in any thread."""
    for file in work.files:
        sync_data(file.fileno())
    finish_sync_work(work)


def finish_sync_work(work: SyncWork) -> None:
    """The rest of ``work`` once its log files are synced: indexes, the snapshot, the directory.

    Indexes and snapshots can be made again. If they cannot be written, that is no failure of the sync: the
    recovery point stays where it was.
    """
    try:
        for file in work.index_files:
            sync_data(file.fileno())
    except OSError as error:
        drop_snapshot(work, error)
    if work.directory is not None and not work.log.deleted:
        sync_directory(work.directory)  # recovery takes what lies before a snapshot for safe
    write_snapshot(work, sync=not work.is_light)
    if work.snapshot is not None and not work.is_light and not work.log.deleted:
        sync_directory(work.log.directory)


def write_snapshot(work: SyncWork, sync: bool) -> None:
    """The snapshot of ``work``, if it has one; only when all that it stands for is on the disk."""
    if work.snapshot is None or work.snapshot_path is None or work.log.deleted:
        return  # in the directory of a deleted topic there may be a new one of its name
    try:
        write_file(work.snapshot_path, work.snapshot, sync)
    except OSError as error:
        drop_snapshot(work, error)


def drop_snapshot(work: SyncWork, error: OSError) -> None:
    logger.warning("no snapshot %s: %s", work.snapshot_path, (error.strerror or str(error)).lower())
    if work.snapshot_path is not None:
        with contextlib.suppress(OSError):
            work.snapshot_path.unlink(missing_ok=True)
    work.snapshot = work.snapshot_path = None
