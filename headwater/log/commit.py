"""Group commit: many appends, one wait for the disk.

Appends are written at once and gather here until the disk is free; then one round syncs every partition that
was written to, in a thread of its own, while the next appends gather. A round of a few files syncs each; a
round of many may sync their file system instead, whichever has lately cost less.

The owner's thread calls ``add``. ``soon`` runs a callable in that thread when what is at hand there is done,
so that a round gathers all of it; ``post`` does the same from the syncing thread.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from headwater.errors import DiskFull, HeadwaterError, StorageFailed
from headwater.log.files import CAN_SYNC_FILE_SYSTEM, sync_file_system
from headwater.log.partition import PartitionLog
from headwater.log.recovery import cut_back
from headwater.log.segment import NO_SPACE, Retired, storage_error
from headwater.log.sync import SyncWork, do_sync_work, finish_sync_work

logger = logging.getLogger("headwater.log")

Done = Callable[[HeadwaterError | None], None]
Post = Callable[[Callable[[], None]], object]
_Round = list[tuple[PartitionLog, SyncWork, list[Done]]]
_Outcome = list[tuple[PartitionLog, SyncWork, list[Done], OSError | None]]

_MANY = 4  # from this many files on, syncing the file system is considered
_ASSUMED_SYNC = 0.001  # seconds, until measured
_TRY_AGAIN_AFTER = 64  # rounds, for what lost the last comparison; twice as many each time it loses again
_TRY_AGAIN_LATEST = 1 << 16


class GroupCommit:
    """Makes partitions durable, in rounds."""

    def __init__(self, post: Post, soon: Post) -> None:
        self._post = post
        self._soon = soon
        self._waiting: dict[PartitionLog, list[Done]] = {}
        self._busy = False
        self._closed = False
        self._queue: SimpleQueue[_Round | None] = SimpleQueue()
        self._outcome: _Outcome | None = None  # of the last round, until it is finished
        self._policy = _SyncPolicy()
        self.rounds = 0
        self._thread = threading.Thread(target=self._run, name="headwater-commit", daemon=True)
        self._thread.start()

    def add(self, log: PartitionLog, done: Done | None = None) -> None:
        """Sync ``log`` soon; ``done`` is called when all that is written to it now is durable, or failed."""
        waiters = self._waiting.get(log)
        if waiters is None:
            waiters = self._waiting[log] = []
        if done is not None:
            waiters.append(done)
        if not self._busy:
            self._busy = True
            self._soon(self._start_round)

    def _start_round(self) -> None:
        work: _Round = []
        waiting, self._waiting = self._waiting, {}
        for log, waiters in waiting.items():
            if log.failure is not None:
                _tell(waiters, log.failure)
                continue
            try:
                work.append((log, log.sync_work(), waiters))
            except Retired:
                _tell(waiters, log.failure)
            except (
                OSError
            ) as error:  # a file could not be opened: nothing is lost, the next round tries again
                _tell(waiters, storage_error("sync", log.name, error))
        self._busy = bool(work)
        if work:
            self.rounds += 1
            self._queue.put(work)
        elif self._waiting:  # a waiter that was told of a failure has written elsewhere
            self._busy = True
            self._soon(self._start_round)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                self._outcome = self._policy.sync(work)
            except Exception as error:  # whatever it is, nobody may wait for ever
                logger.exception("a sync failed")
                failure = OSError(errno.EIO, str(error))
                self._outcome = [(log, item, waiters, failure) for log, item, waiters in work]
            try:
                self._post(self._finish)
            except RuntimeError:  # the owner's loop is gone; `close` finishes
                return

    def _finish(self) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return  # `close` was quicker
        self._busy = False
        # Failures first: the next sync of such a partition might succeed, and would prove nothing.
        failures = [self._fail(log, error) if error is not None else None for log, _, _, error in outcome]
        if self._waiting and not self._closed:
            self._start_round()
        for (log, work, waiters, error), failure in zip(outcome, failures, strict=True):
            if error is None:
                log.synced(work)
                failure = log.failure
            _tell(waiters, failure)

    def _fail(self, log: PartitionLog, error: OSError) -> HeadwaterError:
        """A sync failed: nothing that waits for the disk, also for the next round, will get there."""
        reason = (error.strerror or str(error)).lower()
        failure: HeadwaterError
        if error.errno in NO_SPACE and log.failure is None and cut_back(log):
            failure = DiskFull("sync", str(log.directory), reason)
        else:
            log.sync_failed(error)
            failure = log.failure or StorageFailed("sync", str(log.directory), reason)
        _tell(self._waiting.pop(log, []), failure)
        return failure

    def close(self) -> None:
        """End the thread once its round is done. The owner syncs what is left by closing the partitions."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._finish()


def _tell(waiters: list[Done], error: HeadwaterError | None) -> None:
    for done in waiters:
        try:
            done(error)
        except Exception:  # one waiter's fault is not the others'
            logger.exception("a waiter for the disk failed")


class _SyncPolicy:
    """Chooses between syncing each file and syncing the file system, by what they cost lately.

    The latter waits for everything that anybody has written to the file system.
    """

    def __init__(self) -> None:
        self._file_cost = _ASSUMED_SYNC
        self._file_system_cost = _ASSUMED_SYNC
        self._can_sync_file_system = CAN_SYNC_FILE_SYSTEM
        self._until_trial = _TRY_AGAIN_AFTER
        self._patience = _TRY_AGAIN_AFTER

    def sync(self, work: _Round) -> _Outcome:
        files = sum(len(item.files) for _, item, _ in work)
        if files < _MANY or not self._can_sync_file_system:
            return self._sync_files(work, files)
        together = self._file_system_cost < self._file_cost * files
        self._until_trial -= 1
        if self._until_trial > 0:
            return self._sync_file_system(work) if together else self._sync_files(work, files)
        outcome = self._sync_files(work, files) if together else self._sync_file_system(work)
        lost = together == (self._file_system_cost < self._file_cost * files)
        self._patience = min(self._patience * 2, _TRY_AGAIN_LATEST) if lost else _TRY_AGAIN_AFTER
        self._until_trial = self._patience
        return outcome

    def _sync_files(self, work: _Round, files: int) -> _Outcome:
        outcome: _Outcome = []
        started = time.perf_counter()
        for log, item, waiters in work:
            try:
                do_sync_work(item)
                outcome.append((log, item, waiters, None))
            except OSError as error:
                outcome.append((log, item, waiters, error))
        cost = (time.perf_counter() - started) / max(files, 1)
        self._file_cost += 0.2 * (cost - self._file_cost)
        return outcome

    def _sync_file_system(self, work: _Round) -> _Outcome:
        started = time.perf_counter()
        try:
            sync_file_system(work[0][1].files[0].fileno())
        except OSError:
            # Which file it was, and whether it was one of ours, the files say themselves.
            self._can_sync_file_system = False
            return self._sync_files(work, sum(len(item.files) for _, item, _ in work))
        cost = time.perf_counter() - started
        self._file_system_cost += 0.2 * (cost - self._file_system_cost)
        outcome: _Outcome = []
        for log, item, waiters in work:
            try:
                if item.snapshot is not None:
                    finish_sync_work(item)
                outcome.append((log, item, waiters, None))
            except OSError as error:
                outcome.append((log, item, waiters, error))
        return outcome
