"""Segments that leave the log: too old, too many, before its start; deleted or archived."""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import OffsetOutOfRange, StorageFailed
from headwater.log import retention
from headwater.log.batch import read_header
from headwater.log.check import check_directory
from headwater.log.partition import PartitionLog
from headwater.log.recovery import Checkpoint
from headwater.log.retention import expired, remove_departed
from tests.log.crashes import crash_points
from tests.log.logs import (
    NOW,
    add,
    contents,
    end_transaction,
    fill,
    findings,
    kill,
    open_log,
    records,
    reopen,
    topic_config,
)


def retain(log: PartitionLog, now: int = NOW) -> int:
    count = expired(log, now)
    if count:
        log.drop_segments(count)
    if not log.prepare_removal():
        log.sync()
    assert log.prepare_removal()
    remove_departed(log)
    return count


def segments_of(folder: Path, batches_each: int = 2, **settings: object) -> PartitionLog:
    """A log of five segments; the records of segment n have timestamps from NOW + n * 1000 on."""
    log = open_log(folder / "t-0", **settings)
    for number in range(5):
        if number:
            log.roll(NOW)
        for index in range(batches_each):
            add(log, records("x" * 100, at=NOW + number * 1000 + index))
        log.sync()
    return log


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


# -- what goes -------------------------------------------------------------------------------------


def test_by_time(folder: Path) -> None:
    log = segments_of(folder, retention_ms=10_000)
    latest = NOW + 1001  # of the second segment
    assert retain(log, latest + 10_000) == 1
    assert retain(log, latest + 10_001) == 1
    assert (log.start_offset, len(log.segments)) == (4, 3)
    assert names(log.directory) == [f"{n:020d}.log" for n in (4, 6, 8)]
    assert findings(log.directory) == []
    assert log.next_offset == 10


def test_by_time_everything_goes_and_offsets_go_on(folder: Path) -> None:
    log = segments_of(folder, retention_ms=10_000)
    assert retain(log, NOW + 10**9) == 5
    assert (log.start_offset, log.next_offset, log.size) == (10, 10, 0)
    assert contents(log) == []
    assert retain(log, NOW + 10**9) == 0
    for clean in (True, False):
        log = reopen(log, clean, retention_ms=10_000)
        assert (log.start_offset, log.next_offset) == (10, 10)
    assert fill(log, 1) == [10]


def test_a_future_timestamp_keeps_what_follows(folder: Path) -> None:
    """Segments go from the oldest on: there are no holes."""
    log = open_log(folder / "t-0", retention_ms=1000)
    for at in (0, 10**9, 0):
        add(log, records("x", at=NOW + at))
        log.roll(NOW)
    log.sync()
    assert retain(log, NOW + 5000) == 1
    assert log.start_offset == 1


def test_without_timestamps_the_files_age_counts(folder: Path) -> None:
    log = open_log(folder / "t-0", retention_ms=1000)
    add(log, [(None, b"x", (), -1)])
    log.sync()
    created = log.active.created_ms
    assert retain(log, created + 1000) == 0
    assert retain(log, created + 1001) == 1


def test_by_size(folder: Path) -> None:
    log = segments_of(folder, retention_bytes=10**6, retention_ms=-1)
    size = log.segments[0].size
    for limit, left in (
        (5 * size, 5),
        (5 * size - 1, 5),
        (4 * size, 4),
        (2 * size + 1, 3),
        (2 * size, 2),
        (0, 1),
    ):
        log.config = topic_config(retention_bytes=limit, retention_ms=-1)
        retain(log, NOW + 10**12)
        assert len(log.segments) == left
    assert log.size == 0


def test_limits_of_minus_one_keep_everything(folder: Path) -> None:
    log = segments_of(folder, retention_bytes=-1, retention_ms=-1)
    assert retain(log, NOW + 10**15) == 0


def test_before_the_start(folder: Path) -> None:
    log = segments_of(folder, retention_ms=-1)
    for start, left in ((1, 5), (2, 4), (7, 2), (8, 1), (9, 1), (10, 1)):
        log.move_start(start)
        retain(log)
        assert (log.start_offset, len(log.segments)) == (start, left)
    assert log.size == 0
    assert log.active.base_offset == 10


def test_a_compacted_topic_keeps_what_is_old_but_not_what_was_deleted(folder: Path) -> None:
    log = segments_of(folder, cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    assert retain(log, NOW + 10**12) == 0
    log.move_start(5)
    assert retain(log, NOW + 10**12) == 2


def test_nothing_goes_that_is_not_settled(folder: Path) -> None:
    log = open_log(folder / "t-0", retention_ms=1, retention_bytes=0)
    add(log, records("old"))
    log.roll(NOW)
    add(log, records("open"), (1, 0, 0), transactional=True)
    log.roll(NOW)
    add(log, records("behind it"))
    log.sync()
    later = NOW + 10**9
    assert retain(log, later) == 1
    assert retain(log, later) == 0
    end_transaction(log, (1, 0), commit=True)
    assert retain(log, later) == 0, "its marker is not durable"
    log.sync()
    assert retain(log, later) == 2
    add(log, records("not durable"))
    assert retain(log, later) == 0


def test_what_producers_wrote_in_them_is_known_after_a_kill(folder: Path) -> None:
    for is_dirty in (False, True):
        log = open_log(folder / f"{is_dirty}-0", retention_ms=-1)
        add(log, records("a"), (1, 3, 0), transactional=True)
        add(log, records("b"), (2, 0, 7))
        log.sync()
        assert log.snapshots() == []
        log.move_start(2)
        if is_dirty:
            log.roll(NOW)
            add(log, records("not durable"))
            assert expired(log, NOW) == 1
            log.drop_segments(1)
            assert not log.prepare_removal()
            assert Path(log.departed[0].log_path).exists()
        retain(log)
        log = reopen(log, clean=False, retention_ms=-1)
        assert log.producers.open_transactions() == [(0, 1)]
        assert log.last_stable_offset == 2
        assert add(log, records("b"), (2, 0, 7)).duplicate


# -- readers and crashes ---------------------------------------------------------------------------


def test_a_reader_in_the_middle_of_a_segment_finishes_its_read(folder: Path) -> None:
    log = segments_of(folder, retention_ms=1)
    held, held_path = log.segments[0].file(), log.segments[0].log_path
    content = Path(held_path).read_bytes()
    retain(log, NOW + 10**9)
    assert not Path(held_path).exists()
    assert os.pread(held.fileno(), 1 << 20, 0) == content


def test_readers_in_threads(folder: Path) -> None:
    log = open_log(folder / "t-0", retention_ms=1000, segment_bytes=2000)
    fill(log, 50)
    faults: list[object] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                offset = log.start_offset
                with contextlib.suppress(OffsetOutOfRange):  # retention was quicker
                    while (chunk := log.read(offset, 700, log.durable_offset)) is not None:
                        if read_header(chunk.data).base_offset != offset:
                            faults.append(offset)
                        offset = chunk.next_offset
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(50, 1000, 10):
        fill(log, 10, first=number)
        retain(log, NOW + number + 980)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert log.start_offset > 800


def test_a_crash_at_every_step(folder: Path) -> None:
    log = segments_of(folder, retention_ms=10_000)
    records_before = contents(log)
    with crash_points(log.directory, folder / "copies") as copies:
        retain(log, NOW + 3002 + 10_000)
        retain(log, NOW + 10**9)
    assert len(copies) > 15
    for copy in copies:
        for checkpoint in (None, Checkpoint(start_offset=8)):
            again = open_log(copy, checkpoint, retention_ms=10_000)
            assert again.next_offset == 10
            found = contents(again)
            assert found == records_before[10 - len(found) :]
            assert findings(copy) == []
            assert fill(again, 1) == [10]
            shutil.rmtree(copy)
            shutil.copytree(log.directory, copy)


# -- the archive -----------------------------------------------------------------------------------


@pytest.fixture(params=["same file system", "other file system"])
def archive(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[Path]:
    if request.param == "same file system":
        yield folder / "archive"
        return
    for place in (tmp_path, Path(tempfile.gettempdir()), Path.cwd()):
        if os.stat(place).st_dev != os.stat(folder).st_dev:
            path = Path(tempfile.mkdtemp(prefix="headwater-archive-", dir=place))
            yield path / "archive"
            shutil.rmtree(path)
            return
    pytest.fail("there is only one file system here")


def test_segments_are_moved_whole(folder: Path, archive: Path) -> None:
    log = segments_of(folder, retention_ms=10_000, headwater_archive_dir=archive)
    add(log, records("a"), (1, 0, 0), transactional=True)
    end_transaction(log, (1, 0), commit=False)
    log.roll(NOW)
    log.sync()
    everything = contents(log)
    assert retain(log, NOW + 10**9) == 5
    assert log.size == 0
    place = archive / "t-0"
    assert sorted({path.suffix for path in place.iterdir()}) == [".index", ".log", ".timeindex", ".txnindex"]
    assert names(log.directory) == [f"{12:020d}.log"]
    assert [f for f in check_directory(archive) if f.kind != "stray"] == []
    again = open_log(place)
    assert contents(again) == everything
    assert len(again.producers.aborted) == 1


def test_a_new_topic_of_the_same_name_does_not_overwrite_the_archive(folder: Path, archive: Path) -> None:
    for life in range(3):
        log = open_log(folder / "t-0", retention_ms=1, headwater_archive_dir=archive)
        add(log, records(f"life {life}"))
        log.sync()
        retain(log, NOW + 10**9)
        shutil.rmtree(log.directory)
    lives = [contents(open_log(archive / name))[0].value for name in ("t-0", "t-0.1", "t-0.2")]
    assert lives == [b"life 0", b"life 1", b"life 2"]


def test_a_crash_at_every_step_of_archiving(folder: Path, archive: Path) -> None:
    log = segments_of(folder, retention_ms=10_000, headwater_archive_dir=archive)
    everything = contents(log)
    archive.mkdir(parents=True)
    with crash_points(log.directory, folder / "copies", archive) as copies:
        retain(log, NOW + 10**9)
    assert len(copies) > 20
    for copy in copies:
        store = copy.parent / archive.name
        again = open_log(copy, retention_ms=10_000, headwater_archive_dir=store)
        assert again.next_offset == 10
        retain(again, NOW + 10**9)
        archived = open_log(store / "t-0")
        assert contents(archived) == everything, "each record is in the archive, once"
        assert [f for f in check_directory(store) if f.kind != "stray"] == []


def test_what_cannot_be_archived_stays_and_is_tried_again(folder: Path) -> None:
    blocked = folder / "blocked"
    blocked.write_text("a file where the archive should be")
    log = segments_of(folder, retention_ms=10_000, headwater_archive_dir=blocked)
    everything = contents(log)
    with pytest.raises(StorageFailed, match=r"cannot archive segments to .*blocked: .* tried again"):
        retain(log, NOW + 10**9)
    assert len(names(log.directory)) == 6
    assert log.start_offset == 10, "they have left the log nevertheless"
    with pytest.raises(StorageFailed):
        remove_departed(log)
    blocked.unlink()
    again = open_log(log.directory, kill(log), retention_ms=10_000, headwater_archive_dir=blocked)
    assert (again.start_offset, contents(again)) == (10, [])
    remove_departed(log)
    assert names(log.directory) == [f"{10:020d}.log"]
    assert contents(open_log(blocked / "t-0")) == everything


def test_what_cannot_be_archived_keeps_what_follows_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it the other way round, a crash would leave a log with a hole."""
    log = segments_of(folder, retention_ms=10_000, headwater_archive_dir=folder / "archive")
    move = retention._move
    oldest = names(log.directory)[0]

    def refuse_the_oldest(source: Path, target: Path) -> None:
        if source.name == oldest:
            raise OSError(5, "Input/output error")
        move(source, target)

    monkeypatch.setattr(retention, "_move", refuse_the_oldest)
    with pytest.raises(StorageFailed):
        retain(log, NOW + 10**9)
    assert len(names(log.directory)) == 6


def test_after_a_restart_segments_before_the_start_are_archived(folder: Path) -> None:
    blocked = folder / "blocked"
    blocked.write_text("")
    log = segments_of(folder, retention_ms=10_000, headwater_archive_dir=blocked)
    with pytest.raises(StorageFailed):
        retain(log, NOW + 10**9)
    blocked.unlink()
    log = reopen(log, clean=True, retention_ms=10_000, headwater_archive_dir=blocked)
    assert retain(log, NOW) == 5
    assert len(contents(open_log(blocked / "t-0"))) == 10


def test_files_of_a_deleted_topic_are_left_alone(folder: Path) -> None:
    """A new topic of its name may have files of the same names in a directory of the same name."""
    log = segments_of(folder, retention_ms=1)
    log.drop_segments(expired(log, NOW + 10**9))
    log.delete()
    remove_departed(log)
    assert len(names(log.directory)) == 6
