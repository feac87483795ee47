"""Group commit: who waits for the disk, who shares a sync, and what happens when one fails."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from headwater.errors import DiskFull, HeadwaterError, OutOfOrderSequence, StorageFailed
from headwater.log import commit as module
from headwater.log.commit import GroupCommit
from headwater.log.partition import PartitionLog
from tests.log.logs import (
    NOW,
    add,
    committed,
    contents,
    end_transaction,
    fill,
    findings,
    kill,
    open_log,
    producer_state,
    records,
)


class Loop:
    """The owner's thread: runs what is handed to it, in order."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.commit = GroupCommit(post=self.queue.put, soon=self.queue.put)

    def run(self, until: Callable[[], bool], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, "it did not happen"
            try:
                self.queue.get(timeout=0.05)()
            except Empty:
                pass

    def wait(self, log: PartitionLog) -> HeadwaterError | None:
        """Let ``log`` become durable; the error if it did not."""
        told: list[HeadwaterError | None] = []
        self.commit.add(log, told.append)
        self.run(lambda: bool(told))
        return told[0]


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    if loop.commit._thread.is_alive():
        loop.commit.close()


class Disk:
    """Stands between the log and the disk: counts syncs, holds them up, lets them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.fail: dict[str, int] = {}  # part of a path -> error number, once
        self.gate = threading.Event()
        self.gate.set()
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self.fdatasync)

    def fdatasync(self, descriptor: int) -> None:
        assert self.gate.wait(10)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.synced.append(path)
        for part in list(self.fail):
            if part in path:
                code = self.fail.pop(part)
                raise OSError(code, os.strerror(code))
        self._real(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# -- sharing ---------------------------------------------------------------------------------------


def test_many_waiters_share_a_sync(folder: Path, loop: Loop, disk: Disk) -> None:
    log = open_log(folder / "t-0")
    told: list[int] = []
    disk.gate.clear()
    for number in range(50):
        add(log, records("x"))
        loop.commit.add(log, lambda error, number=number: told.append(number))  # type: ignore[misc]
    loop.queue.get()()  # the round starts, and waits for the disk
    for number in range(50, 100):
        add(log, records("x"))
        loop.commit.add(log, lambda error, number=number: told.append(number))  # type: ignore[misc]
    assert told == []
    assert contents(log) == []
    disk.gate.set()
    loop.run(lambda: len(told) == 100)
    assert told == list(range(100)), "in the order in which they came"
    assert loop.commit.rounds == 2
    assert len(disk.synced) == 2
    assert log.durable_offset == 100


def test_a_round_waits_for_what_is_at_hand(folder: Path, loop: Loop, disk: Disk) -> None:
    """Appends that came with the same event are in the same round, of any partition."""
    logs = [open_log(folder / f"{number}-0") for number in range(3)]
    told: list[object] = []
    for log in logs:
        add(log, records("x"))
        loop.commit.add(log, told.append)
    loop.run(lambda: len(told) == 3)
    assert loop.commit.rounds == 1
    assert told == [None] * 3


def test_readers_see_what_a_waiter_is_told_of(folder: Path, loop: Loop) -> None:
    log = open_log(folder / "t-0")
    seen: list[int] = []
    for _ in range(20):
        add(log, records("x"))
        loop.commit.add(log, lambda _: seen.append(log.durable_offset))
        if len(seen) % 3 == 0:
            loop.run(lambda: log.durable_offset == log.next_offset)
    loop.run(lambda: len(seen) == 20)
    assert all(durable > number for number, durable in enumerate(seen))


def test_nobody_has_to_wait(folder: Path, loop: Loop) -> None:
    log = open_log(folder / "t-0")
    add(log, records("x"))
    loop.commit.add(log)
    loop.run(lambda: log.durable_offset == 1)


def test_a_waiter_that_fails_harms_nobody(folder: Path, loop: Loop) -> None:
    log = open_log(folder / "t-0")
    told: list[object] = []

    def broken(error: HeadwaterError | None) -> None:
        raise RuntimeError("not my day")

    add(log, records("x"))
    loop.commit.add(log, broken)
    loop.commit.add(log, told.append)
    loop.run(lambda: told == [None])
    assert loop.wait(log) is None


def test_a_waiter_may_write_again(folder: Path, loop: Loop) -> None:
    first, second = open_log(folder / "a-0"), open_log(folder / "b-0")
    told: list[str] = []

    def then(error: HeadwaterError | None) -> None:
        add(second, records("y"))
        loop.commit.add(second, lambda _: told.append("second"))

    add(first, records("x"))
    loop.commit.add(first, then)
    loop.run(lambda: told == ["second"])
    first.sync_failed(OSError(5, "Input/output error"))
    loop.commit.add(first, then)  # told of the failure while a round is put together
    loop.run(lambda: told == ["second", "second"])


def test_closing_finishes_the_round_under_way(folder: Path, loop: Loop, disk: Disk) -> None:
    log = open_log(folder / "t-0")
    told: list[object] = []
    add(log, records("x"))
    loop.commit.add(log, told.append)
    loop.queue.get()()
    loop.commit.close()
    assert told == [None]
    assert log.durable_offset == 1
    loop.queue.get()()  # what was posted meanwhile does nothing


def test_a_failure_that_was_not_yet_told_is_not_forgotten_by_closing(
    folder: Path, loop: Loop, disk: Disk
) -> None:
    log = open_log(folder / "t-0")
    disk.fail["t-0"] = 5
    add(log, records("x"))
    loop.commit.add(log)
    loop.queue.get()()
    loop.commit.close()
    assert isinstance(log.failure, StorageFailed)
    log.close()
    assert log.snapshots() == [], "not closed as if nothing had happened"


# -- failing ---------------------------------------------------------------------------------------


def test_a_failed_sync_reaches_everybody_who_waits_for_it(folder: Path, loop: Loop, disk: Disk) -> None:
    bad, good = open_log(folder / "bad-0"), open_log(folder / "good-0")
    fill(bad, 3)
    told: list[tuple[str, object]] = []
    disk.gate.clear()
    disk.fail["bad-0"] = 5
    for name, log in (("bad", bad), ("good", good)):
        for _ in range(2):
            add(log, records("x"))
            loop.commit.add(log, lambda error, name=name: told.append((name, type(error))))  # type: ignore[misc]
    loop.queue.get()()
    add(bad, records("later"))  # for the next round, which would succeed
    loop.commit.add(bad, lambda error: told.append(("late", type(error))))
    disk.gate.set()
    loop.run(lambda: len(told) == 5)
    assert sorted(told, key=str) == sorted(
        [("bad", StorageFailed)] * 2 + [("late", StorageFailed)] + [("good", type(None))] * 2, key=str
    )
    assert bad.durable_offset == 3
    assert len(contents(bad)) == 3, "what is durable is read"
    with pytest.raises(StorageFailed, match="Check the disk, then restart"):
        add(bad, records("more"))
    assert isinstance(loop.wait(bad), StorageFailed)
    assert good.durable_offset == 2
    assert loop.wait(good) is None
    again = open_log(bad.directory, kill(bad))
    assert again.next_offset >= 3
    fill(again, 1)


def test_a_later_success_does_not_cover_an_earlier_failure(folder: Path, loop: Loop, disk: Disk) -> None:
    """The system reports a lost write once, and then forgets it."""
    log = open_log(folder / "t-0")
    disk.fail["t-0"] = 5
    add(log, records("lost"))
    assert isinstance(loop.wait(log), StorageFailed)
    assert log.durable_offset == 0
    assert isinstance(loop.wait(log), StorageFailed)
    assert log.durable_offset == 0


def test_a_file_that_cannot_be_opened_is_no_lost_write(
    folder: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder / "t-0")
    add(log, records("x"))

    def too_many(*arguments: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(log.files, "get", too_many)
        error = loop.wait(log)
        assert "too many open files" in str(error)
    assert loop.wait(log) is None
    assert log.durable_offset == 1


def test_whatever_goes_wrong_nobody_waits_for_ever(
    folder: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder / "t-0")
    add(log, records("x"))
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: 1 // 0)
    assert isinstance(loop.wait(log), StorageFailed)


# -- no room ---------------------------------------------------------------------------------------


def test_without_room_the_log_is_cut_back_and_goes_on(folder: Path, loop: Loop, disk: Disk) -> None:
    """A file system that finds out only when it writes that there is no room."""
    log = open_log(folder / "t-0", segment_bytes=600)
    add(log, records("a" * 100), (1, 0, 0))
    add(log, records("open"), (2, 0, 0), transactional=True)
    add(log, records("aborted"), (3, 0, 0), transactional=True)
    end_transaction(log, (3, 0), commit=False)
    assert loop.wait(log) is None
    before = (contents(log), producer_state(log), log.producers.aborted[:], log.last_stable_offset, log.size)
    segments = len(log.segments)
    loop.commit._policy._can_sync_file_system = False  # there will be many files
    disk.fail["t-0"] = 28
    add(log, records("lost" * 20), (1, 0, 1))
    end_transaction(log, (2, 0), commit=False)
    add(log, records("new producer"), (4, 0, 5))
    for number in range(10):
        add(log, records("lost" * 20), (1, 0, 2 + number))
    assert len(log.segments) > segments
    error = loop.wait(log)
    assert isinstance(error, DiskFull)
    assert "no space left on device" in str(error)
    assert log.failure is None
    after = (contents(log), producer_state(log), log.producers.aborted, log.last_stable_offset, log.size)
    assert after == before
    assert log.next_offset == log.durable_offset == 4
    assert findings(log.directory) == []
    with pytest.raises(OutOfOrderSequence):
        add(log, records("later"), (4, 0, 6))
    for number in range(11):
        assert add(log, records("again" * 20), (1, 0, 1 + number)).base_offset == 4 + number
    assert add(log, records("new producer"), (4, 0, 5)).base_offset == 15
    end_transaction(log, (2, 0), commit=True)
    assert loop.wait(log) is None
    assert [record.value for record in committed(log)][1] == b"open"
    assert findings(log.directory) == []
    again = open_log(log.directory, kill(log), segment_bytes=600)
    assert contents(again) == contents(log)
    assert producer_state(again) == producer_state(log)
    assert again.producers.aborted == log.producers.aborted


def test_cutting_back_a_log_of_one_segment(folder: Path, loop: Loop, disk: Disk) -> None:
    log = open_log(folder / "t-0")
    fill(log, 60, size=500)
    times = [log.find_time(NOW + at, 60) for at in range(0, 60, 5)]
    disk.fail["t-0"] = 122  # over quota
    for number in range(60, 90):
        add(log, [(b"k", bytes(500), (), NOW + 1000 + number)])
    assert isinstance(loop.wait(log), DiskFull)
    assert [log.find_time(NOW + at, 60) for at in range(0, 60, 5)] == times
    assert log.find_latest_time(60) == (59, NOW + 59)
    assert [record.offset for record in contents(log)] == list(range(60))
    fill(log, 30, size=500, first=60)
    assert log.find_latest_time(90) == (89, NOW + 89)
    assert findings(log.directory) == []


def test_cutting_back_what_was_never_durable(folder: Path, loop: Loop, disk: Disk) -> None:
    log = open_log(folder / "t-0")
    disk.fail["t-0"] = 28
    add(log, records("x"), (1, 0, 0))
    assert isinstance(loop.wait(log), DiskFull)
    assert (log.next_offset, log.size) == (0, 0)
    assert add(log, records("x"), (1, 0, 0)).base_offset == 0
    assert loop.wait(log) is None


def test_those_who_wait_for_the_next_round_are_told_when_the_log_is_cut_back(
    folder: Path, loop: Loop, disk: Disk
) -> None:
    log = open_log(folder / "t-0")
    told: list[object] = []
    disk.gate.clear()
    disk.fail["t-0"] = 28
    add(log, records("first"))
    loop.commit.add(log, told.append)
    loop.queue.get()()
    add(log, records("second"))
    loop.commit.add(log, told.append)
    disk.gate.set()
    loop.run(lambda: len(told) == 2)
    assert [type(error) for error in told] == [DiskFull, DiskFull]
    assert log.next_offset == 0


def test_if_cutting_back_fails_too_the_partition_waits_for_a_restart(
    folder: Path, loop: Loop, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder / "t-0")
    fill(log, 2)
    disk.fail["t-0"] = 28
    add(log, records("x"))

    def refuse(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        assert isinstance(loop.wait(log), StorageFailed)
    with pytest.raises(StorageFailed):
        add(log, records("x"))
    assert len(contents(log)) == 2


@pytest.mark.parametrize("what", [".index", ".timeindex"])
def test_no_room_for_an_index_is_no_failure(folder: Path, loop: Loop, disk: Disk, what: str) -> None:
    log = open_log(folder / "t-0")
    add(log, records("a"))
    log.roll(NOW)
    add(log, records("b"))
    disk.fail[what] = 28
    assert loop.wait(log) is None
    assert log.durable_offset == 2
    assert log.snapshots() == []
    assert log.recovery_offset == 0
    log._since_checkpoint = 1 << 40
    add(log, records("c"))
    assert loop.wait(log) is None
    assert [offset for offset, _ in log.snapshots()] == [3]
    assert {Path(path).name for path in disk.synced if "index" in path} >= {
        f"{0:020d}.index", f"{0:020d}.timeindex", f"{1:020d}.index", f"{1:020d}.timeindex",
    }  # fmt: skip


def test_no_room_for_a_snapshot_is_no_failure(
    folder: Path, loop: Loop, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder / "t-0")
    fill(log, 1)
    log.roll(NOW)
    add(log, records("b"))

    def no_room(path: Path, content: bytes, sync: bool) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headwater.log.sync.write_file", no_room)
        assert loop.wait(log) is None
    assert (log.durable_offset, log.recovery_offset) == (2, 0)
    assert log.snapshots() == []


# -- one file system or many files -----------------------------------------------------------------


class Costs:
    """A disk of which it is known how long everything takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: float, file_system: float) -> None:
        self.now = 0.0
        self.file, self.file_system = file, file_system
        self.calls: list[str] = []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(os, "fdatasync", lambda _: self._take("file", self.file))
        monkeypatch.setattr(module, "sync_file_system", lambda _: self._take("file system", self.file_system))
        monkeypatch.setattr(module, "CAN_SYNC_FILE_SYSTEM", True)

    def _take(self, what: str, seconds: float) -> None:
        self.calls.append(what)
        self.now += seconds


def rounds(costs: Costs, folder: Path, partitions: int, count: int) -> list[str]:
    """What so many rounds of so many partitions do."""
    policy = module._SyncPolicy()
    logs = [open_log(folder / f"{number}-0") for number in range(partitions)]
    for _ in range(count):
        outcome = policy.sync([(log, log.sync_work(), []) for log in logs])
        assert [error for *_, error in outcome] == [None] * partitions
    return costs.calls


def test_few_files_are_synced_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, file=0.01, file_system=0.001)
    assert set(rounds(costs, folder, 3, 100)) == {"file"}


def test_many_files_are_synced_as_is_cheaper(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, file=0.001, file_system=0.002)
    calls = rounds(costs, folder, 10, 300)
    assert calls.count("file system") > 290
    assert calls.count("file") == 10 * (300 - calls.count("file system")) > 0, "the other is tried again"


def test_a_file_system_that_others_write_to_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syncing it waits for their gigabytes, too: it is tried ever more rarely."""
    costs = Costs(monkeypatch, file=0.001, file_system=5.0)
    calls = rounds(costs, folder, 10, 3000)
    assert 1 <= calls.count("file system") <= 8


def test_a_file_system_that_cannot_be_synced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, file=1.0, file_system=0.0)

    def refuse(descriptor: int) -> None:
        costs.calls.append("refused")
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(module, "sync_file_system", refuse)
    calls = rounds(costs, folder, 5, 20)
    assert calls.count("refused") == 1
    assert calls.count("file") == 5 * 20


def test_syncing_the_file_system_makes_snapshots_too(
    folder: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASSUMED_SYNC", 0.001)
    loop.commit._policy._file_cost = 100.0
    logs = [open_log(folder / f"{number}-0") for number in range(6)]
    for log in logs:
        add(log, records("a"), (1, 0, 0))
        log.roll(NOW)
        add(log, records("b"), (1, 0, 1))
        loop.commit.add(log)
    loop.run(lambda: all(log.durable_offset == 2 for log in logs))
    for log in logs:
        assert [offset for offset, _ in log.snapshots()] == [2]
        assert findings(log.directory) == []
