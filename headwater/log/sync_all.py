"""Bringing all partitions of a data directory to the disk at once: when it is opened, and when it is closed.

Syncing their file system is one wait for any number of files; where that cannot be done, or there are few
partitions, each is synced by itself.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from headwater.log.files import CAN_SYNC_FILE_SYSTEM, sync_file_system
from headwater.log.partition import PartitionLog
from headwater.log.sync import SyncWork, write_snapshot

logger = logging.getLogger("headwater.log")

# Partitions, from which on syncing their file system is quicker. It waits for whatever anybody has written.
MANY = 16


def sync_recovered(path: Path, logs: Iterable[PartitionLog]) -> None:
    """What recovery found may be in memory only; readers will be shown it, so it has to be durable."""
    recovered = [log for log in logs if log.needs_sync]
    if CAN_SYNC_FILE_SYSTEM and len(recovered) >= MANY:
        try:
            _sync_file_system(path)
            for log in recovered:
                log.recovery_synced()
            return
        except OSError:
            pass  # the files will say which of them it was
    for log in recovered:
        try:
            log.sync_recovered()
        except OSError as error:
            log.sync_failed(error)


def close_partitions(path: Path, logs: Iterable[PartitionLog]) -> bool:
    """Bring everything to the disk, so that the next open reads nothing; False when it is not known which
    partitions got there."""
    sound = [log for log in logs if log.failure is None]
    if CAN_SYNC_FILE_SYSTEM and len(sound) >= MANY:
        return _close_together(path, sound)
    for log in sound:
        try:
            log.close()
        except OSError as error:
            log.sync_failed(error)
    return True


def _close_together(path: Path, logs: list[PartitionLog]) -> bool:
    works: list[tuple[PartitionLog, SyncWork]] = []
    for log in logs:
        try:
            work = log.closing_work()
        except OSError as error:
            log.sync_failed(error)
            continue
        if work is not None:
            work.files.clear()  # not to hold them all open
            work.index_files.clear()
            works.append((log, work))
    try:
        _sync_file_system(path)
        for _, work in works:
            write_snapshot(work, sync=False)
        _sync_file_system(path)
    except OSError as error:
        logger.error("%s: %s; the next start recovers it", path, error.strerror)
        return False
    for log, work in works:
        log.synced(work)
    return True


def _sync_file_system(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file_system(descriptor)
    finally:
        os.close(descriptor)
