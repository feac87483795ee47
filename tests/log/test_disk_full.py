"""A disk without room: appends fail and say so, reads go on, and writing resumes when there is room."""

import contextlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.errors import DiskFull, HeadwaterError, UnknownTopic
from headwater.log.cleaner import clean_partition
from headwater.log.directory import DataDirectory
from headwater.log.partition import PartitionLog
from headwater.log.retention import expired, remove_departed
from tests.log.logs import (
    NOW,
    add,
    check_dense,
    close,
    committed,
    contents,
    end_transaction,
    fill,
    findings,
    kill,
    open_log,
    records,
    reopen,
    segment_file,
)
from tests.log.test_commit import Loop

SIZE = 2 << 20


class Room:
    """A file system of two megabytes that can be filled to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> None:
        """Leave so many bytes, rounded down to what the file system counts in."""
        with open(self.path / "ballast", "ab") as ballast:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(ballast.fileno(), bytes(size))
            os.ftruncate(ballast.fileno(), max(os.fstat(ballast.fileno()).st_size - leave, 0))

    def free(self) -> None:
        (self.path / "ballast").unlink()


class LimitedRoom(Room):
    """No file may grow past a limit: for those who have no right to mount anything."""

    def fill(self, leave: int = 0) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (leave, hard))

    def free(self) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(params=["small file system", "limited files"])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    path = Path(tempfile.mkdtemp(prefix="headwater-small-"))
    is_mounted = False
    if request.param == "small file system":
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(path)]
        is_mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    limited = LimitedRoom(path)
    yield Room(path) if is_mounted else limited
    limited.free()
    if is_mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)
    else:
        subprocess.run(["rm", "-rf", str(path)], check=True)
    with contextlib.suppress(OSError):
        path.rmdir()


def test_an_append_fails_and_leaves_nothing(room: Room) -> None:
    log = open_log(room.path / "t-0")
    fill(log, 20, size=1000)
    before, size = contents(log), log.active.size
    room.fill()
    for _ in range(3):
        with pytest.raises(DiskFull, match=r"cannot append to .*t-0/.*\.log: .* Free space; writing resumes"):
            add(log, records("x" * 60_000), (1, 0, 0))
    assert (log.next_offset, log.active.size, segment_file(log).stat().st_size) == (20, size, size)
    assert contents(log) == before
    assert log.find_time(NOW + 5, 20) == (5, NOW + 5)
    log.sync()
    assert log.failure is None
    room.free()
    assert add(log, records("x" * 60_000), (1, 0, 0)).base_offset == 20
    fill(log, 10)
    check_dense(log)
    assert findings(log.directory) == []


def test_a_batch_for_a_part_of_which_there_is_room(room: Room) -> None:
    log = open_log(room.path / "t-0")
    fill(log, 3)
    size = log.active.size
    room.fill(leave=16384)
    with pytest.raises(DiskFull):
        add(log, records("x" * 100_000))
    assert (log.active.size, segment_file(log).stat().st_size) == (size, size)
    add(log, records("small"))
    log.sync()
    assert len(contents(log)) == 4
    room.free()
    for clean in (False, True):
        log = reopen(log, clean)
        assert len(contents(log)) == 4
        assert findings(log.directory) == []


def test_no_room_for_a_new_segment(room: Room) -> None:
    log = open_log(room.path / "t-0", segment_bytes=5000)
    fill(log, 4, size=1000)
    room.fill()
    for _ in range(5):
        with pytest.raises(DiskFull):
            add(log, records("x" * 1000))
    assert len(contents(log)) == 4
    room.free()
    fill(log, 20, size=1000)
    check_dense(log)
    assert findings(log.directory) == []
    log = reopen(log, clean=False, segment_bytes=5000)
    assert len(contents(log)) == 24


def test_no_room_for_indexes_and_snapshots(room: Room) -> None:
    log = open_log(room.path / "t-0")
    fill(log, 40, size=1000)
    log._since_checkpoint = 1 << 40
    room.fill(leave=segment_file(log).stat().st_size if isinstance(room, LimitedRoom) else 0)
    with contextlib.suppress(DiskFull):
        add(log, records("x"))
    log.sync()
    assert log.failure is None
    log.sync()
    with contextlib.suppress(OSError):
        log.close()
    room.free()
    for clean in (False, True):
        log = reopen(log, clean)
        assert len(contents(log)) >= 40
        assert findings(log.directory) == []


def test_no_room_for_an_aborted_transaction_in_the_index(room: Room) -> None:
    log = open_log(room.path / "t-0")
    for sequence in range(3):
        add(log, records("x" * 100), (1, 0, sequence), transactional=True)
        log.sync()
        if sequence == 1:
            room.fill(leave=2000)
            if not isinstance(room, LimitedRoom):
                (room.path / "ballast2").write_bytes(b"")
        with contextlib.suppress(DiskFull):
            end_transaction(log, (1, 0), commit=False)
            log.sync()
    room.free()
    if log.producers.open_transactions():
        end_transaction(log, (1, 0), commit=False)
        log.sync()
    assert committed(log) == []
    for clean in (True, False):
        log = reopen(log, clean)
        assert committed(log) == []
        assert findings(log.directory) == []


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_full_disk_can_be_opened_and_read(room: Room, clean: bool) -> None:
    log = open_log(room.path / "t-0", segment_bytes=20_000)
    fill(log, 100, size=1000)
    add(log, records("x"), (1, 0, 0), transactional=True)
    end_transaction(log, (1, 0), commit=False)
    log.sync()
    expected = contents(log)
    checkpoint = close(log) if clean else kill(log)
    if not clean:
        with open(segment_file(log), "ab") as file:
            file.write(b"torn")
    room.fill()
    again = open_log(log.directory, checkpoint, segment_bytes=20_000)
    assert contents(again) == expected
    assert again.find_time(NOW + 50, 100) == (50, NOW + 50)
    assert len(again.producers.aborted) == 1
    with pytest.raises(DiskFull):
        for _ in range(10):
            add(again, records("y" * 5000))
    room.free()
    fill(again, 5)
    again = reopen(again, clean=True, segment_bytes=20_000)
    assert contents(again)[: len(expected)] == expected
    assert findings(again.directory) == []


def test_compaction_without_room_changes_nothing(room: Room) -> None:
    options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
    log = open_log(room.path / "t-0", **options)
    for _ in range(30):
        add(log, [(f"{n}".encode(), os.urandom(1000), (), NOW) for n in range(20)])
    log.roll(NOW)
    log.sync()
    before = contents(log)
    room.fill()
    with pytest.raises((HeadwaterError, OSError), match=r"o space left|too large"):
        clean_partition(log, NOW)
    assert contents(log) == before
    assert not (log.directory / "cleaning").exists()
    room.free()
    swap = clean_partition(log, NOW)
    assert swap is not None
    assert swap.put_in_place(log)
    swap.finish()
    assert len(contents(log)) == 20


def test_retention_makes_room(room: Room) -> None:
    if isinstance(room, LimitedRoom):
        return  # here, deleting files makes none
    log = open_log(room.path / "t-0", segment_bytes=100_000, retention_bytes=500_000)
    with pytest.raises(DiskFull):
        for number in range(10_000):
            fill(log, 1, size=10_000, first=number)
    end = log.next_offset
    log.drop_segments(expired(log, NOW))
    assert log.prepare_removal()
    remove_departed(log)
    fill(log, 20, size=10_000, first=end)
    assert log.size < 800_000
    check_dense(log)
    assert findings(log.directory) == []


@pytest.fixture
def late_room() -> Iterator[tuple[Path, Callable[[], None]]]:
    """A file system that takes writes and finds out only when it is synced that its disk has no room; and
    what gives the disk more."""
    path = Path(tempfile.mkdtemp(prefix="headwater-late-"))
    (path / "disk").mkdir()
    (path / "mounted").mkdir()

    def run(*command: str | Path) -> bool:
        return subprocess.run([str(each) for each in command], capture_output=True).returncode == 0

    image = path / "disk" / "image"
    can_mount = (
        os.getuid() == 0
        and run("mount", "-t", "tmpfs", "-o", "size=4m", "none", path / "disk")
        and run("truncate", "-s", "64m", image)
        and run("mkfs.ext4", "-q", "-O", "^has_journal", image)
        and run("mount", "-o", "loop", image, path / "mounted")
    )
    try:
        if not can_mount:
            pytest.skip("nobody but root may mount a file system in a file")
        yield path / "mounted", lambda: run("mount", "-o", "remount,size=60m", path / "disk") and None
    finally:
        run("umount", "-l", path / "mounted")
        run("umount", "-l", path / "disk")
        run("rm", "-rf", path)


def test_a_disk_that_finds_out_late(late_room: tuple[Path, Callable[[], None]]) -> None:
    mounted, give_more = late_room
    loop = Loop()
    log = open_log(mounted / "t-0")
    sequence = failures = 0
    while failures < 3:
        add(log, records(os.urandom(200_000)), (1, 0, sequence))
        error = loop.wait(log)
        if error is None:
            sequence += 1
        else:
            assert isinstance(error, DiskFull)
            failures += 1
        assert sequence < 100
    assert sequence > 3
    assert [record.offset for record in contents(log)] == list(range(sequence))
    give_more()
    for _ in range(20):
        add(log, records(os.urandom(200_000)), (1, 0, sequence))
        assert loop.wait(log) is None
        sequence += 1
    assert findings(log.directory) == []
    log = reopen(log, clean=False)
    assert [record.offset for record in contents(log)] == list(range(sequence))
    loop.commit.close()
    log.files.close()


# -- the data directory ----------------------------------------------------------------------------


def topics(directory: DataDirectory) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in directory.topics.items()}


def fill_topic(directory: DataDirectory, name: str) -> PartitionLog:
    log = directory.topics[name].partitions[0]
    fill(log, 5)
    return log


def test_changes_of_topics_happen_whole_or_not_at_all(room: Room) -> None:
    data = room.path / "data"
    directory = DataDirectory(data)
    directory.create_topic("orders", 2, {"retention.ms": "5"})
    log = fill_topic(directory, "orders")
    room.fill()
    with pytest.raises(DiskFull, match="topic other"):
        directory.create_topic("other", 3)
    with pytest.raises(DiskFull):
        directory.add_partitions("orders", 5)
    with pytest.raises(DiskFull):
        directory.set_config("orders", {"retention.ms": "6"})
    with pytest.raises(DiskFull):
        directory.delete_topic("orders")
    with pytest.raises(DiskFull):
        directory.checkpoint()
    assert topics(directory) == {"orders": 2}
    assert log.config.retention_ms == 5
    with pytest.raises(UnknownTopic):
        directory.topic("other")
    assert len(contents(log)) == 5
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["orders-0", "orders-1"]
    room.free()
    directory.create_topic("other", 3)
    directory.add_partitions("orders", 5)
    directory.set_config("orders", {"retention.ms": "6"})
    directory.close()
    directory = DataDirectory(data)
    assert topics(directory) == {"orders": 5, "other": 3}
    assert directory.topics["orders"].config.retention_ms == 6
    directory.delete_topic("orders")
    directory.close()


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_full_data_directory_is_opened_and_closed(room: Room, clean: bool) -> None:
    data = room.path / "data"
    directory = DataDirectory(data)
    directory.create_topic("orders", 2)
    directory.create_topic("deleted", 1)
    fill_topic(directory, "orders")
    directory.delete_topic("deleted")
    if clean:
        directory.close()
    else:
        os.close(directory._lock)
    room.fill()
    for _ in range(2):
        directory = DataDirectory(data)
        log = directory.topics["orders"].partitions[0]
        assert len(contents(log)) == 5
        directory.close()
    room.free()
    directory = DataDirectory(data)
    log = fill_topic(directory, "orders")
    assert len(contents(log)) == 10
    directory.close()
