"""Group commit: many appends, one wait for the disk.

Appends are written at once and gather here until the disk is free; then one round syncs every partition that
was written to, in a thread of its own, while the next appends gather. A round of a few files syncs each; a
round of many may sync their file system instead, whichever has lately cost less.

The owner's thread calls ``add``. ``soon`` runs a callable in that thread when what is at hand there is done,
so that a round gathers all of it; ``post`` does the same from the syncing thread.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from headwater.errors import HeadwaterError
from headwater.log.files import CAN_SYNC_FILE_SYSTEM, sync_file_system
from headwater.log.partition import PartitionLog, SyncWork, do_sync_work, finish_sync_work
from headwater.log.segment import Retired

logger = logging.getLogger("headwater.log")

Done = Callable[[HeadwaterError | None], None]
Post = Callable[[Callable[[], None]], object]
_Round = list[tuple[PartitionLog, SyncWork, list[Done]]]
_Outcome = list[tuple[PartitionLog, SyncWork, list[Done], OSError | None]]

_MANY = 4  # from this many files on, syncing the file system is considered
_ASSUMED_SYNC = 0.001  # seconds, until measured
_TRY_AGAIN_EVERY = 64  # rounds, for what lost the last comparison


class GroupCommit:
    """Makes partitions durable, in rounds."""

    def __init__(self, post: Post, soon: Post) -> None:
        self._post = post
        self._soon = soon
        self._waiting: dict[PartitionLog, list[Done]] = {}
        self._busy = False
        self._closed = False
        self._queue: SimpleQueue[_Round | None] = SimpleQueue()
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
            except OSError as error:
                log.sync_failed(error)
                _tell(waiters, log.failure)
        self._busy = bool(work)
        if work:
            self.rounds += 1
            self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            outcome = self._policy.sync(work)
            self._post(lambda outcome=outcome: self._finish(outcome))  # type: ignore[misc]

    def _finish(self, outcome: _Outcome) -> None:
        self._busy = False
        if self._waiting and not self._closed:
            self._start_round()
        for log, work, waiters, error in outcome:
            if error is None:
                log.synced(work)
            else:
                log.sync_failed(error)
            _tell(waiters, log.failure if error is not None else None)

    def close(self) -> None:
        """End the thread once its round is done. The owner syncs what is left by closing the partitions."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()


def _tell(waiters: list[Done], error: HeadwaterError | None) -> None:
    for done in waiters:
        try:
            done(error)
        except Exception:  # one waiter's fault is not the others'
            logger.exception("a waiter for the disk failed")


class _SyncPolicy:
    """Chooses between syncing each file and syncing the file system, by what they cost lately."""

    def __init__(self) -> None:
        self._file_cost = _ASSUMED_SYNC
        self._file_system_cost = _ASSUMED_SYNC
        self._rounds = 0

    def sync(self, work: _Round) -> _Outcome:
        files = sum(len(item.files) for _, item, _ in work)
        self._rounds += 1
        if CAN_SYNC_FILE_SYSTEM and files >= _MANY:
            cheaper = self._file_system_cost < self._file_cost * files
            if cheaper or self._rounds % _TRY_AGAIN_EVERY == 0:
                return self._sync_file_system(work)
        return self._sync_files(work, files)

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
            for _, item, _ in work:
                if item.snapshot is not None:
                    finish_sync_work(item)
            failure: OSError | None = None
        except OSError as error:
            failure = error
        cost = time.perf_counter() - started
        self._file_system_cost += 0.2 * (cost - self._file_system_cost)
        return [(log, item, waiters, failure) for log, item, waiters in work]
