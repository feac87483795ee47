"""A partition: appending, rolling, becoming durable, reading, deleting."""

import os
import random
import threading
from pathlib import Path

import pytest

from headwater.errors import (
    DiskFull,
    InvalidBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleProducerEpoch,
    StorageFailed,
    UnknownTopic,
)
from headwater.log import sync
from headwater.log.batch import read_header, seal
from headwater.log.partition import PartitionLog
from headwater.log.records import build_batch, control_batch
from headwater.log.segment import LARGEST_RELATIVE_OFFSET, WouldBlock
from tests.log.crashes import crash_points
from tests.log.logs import (
    NOW,
    add,
    batches,
    check_dense,
    close,
    committed,
    contents,
    end_transaction,
    fill,
    findings,
    kill,
    open_log,
    producer_state,
    records,
    reopen,
    segment_file,
)

# -- appending and rolling -------------------------------------------------------------------------


def test_batches_get_their_offsets_and_nothing_else_is_changed(folder: Path) -> None:
    log = open_log(folder / "t-0")
    sent = [build_batch(records("a", "b"), codec=codec) for codec in range(5)]
    for number, batch in enumerate(sent):
        appended = log.append(batch, read_header(batch), NOW)
        assert (appended.base_offset, appended.last_offset) == (number * 2, number * 2 + 1)
    log.sync()
    for number, (stored, batch) in enumerate(zip(batches(log), sent, strict=True)):
        assert read_header(stored).base_offset == number * 2
        assert stored[8:12] + stored[16:] == batch[8:12] + batch[16:]


def test_a_segment_is_rolled_by_size(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_bytes=1000)
    fill(log, 30)
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len(log.segments) == 6
    fill(log, 1, size=5000)
    assert log.active.size > 5000, "a batch that is larger than a segment has one to itself"
    fill(log, 1)
    assert len(log.segments) == 8
    check_dense(log)
    assert findings(log.directory) == []


def test_a_segment_is_rolled_by_time(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_ms=1000)
    for at in (0, 1000, 1001, 500, 2001, 2002):
        add(log, records("x", at=NOW + at))
    log.sync()
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]
    assert [record.offset for record in contents(log)] == list(range(6))


def test_without_timestamps_a_segment_is_rolled_by_the_clock(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_ms=1000)
    first = log.active.created_ms
    for after in (0, 1000, 1001):
        batch = build_batch([(None, b"x", (), -1)])
        log.append(batch, read_header(batch), first + after)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_is_rolled_when_its_index_is_full(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_index_bytes=24)
    fill(log, 9, size=5000)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert findings(log.directory) == []


def test_a_segment_holds_no_more_offsets_than_an_index_can_tell(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 1)
    log.next_offset = LARGEST_RELATIVE_OFFSET  # as if batches in between had been compacted away
    fill(log, 3)
    assert [segment.base_offset for segment in log.segments] == [0, LARGEST_RELATIVE_OFFSET + 1]


def test_an_empty_segment_is_not_rolled(folder: Path) -> None:
    log = open_log(folder / "t-0")
    assert log.roll(NOW) is log.active
    assert len(log.segments) == 1


def test_a_crash_at_every_step_of_a_roll(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_bytes=2000)
    fill(log, 10)
    add(log, records("a"), (4, 0, 0), transactional=True)
    end_transaction(log, (4, 0), commit=False)
    add(log, records("b"), (5, 0, 0))
    log.sync()
    acknowledged = log.next_offset
    with crash_points(log.directory, folder / "copies") as copies:
        before = len(log.segments)
        for number in range(8):
            add(log, records("c" * 100), (5, 0, number + 1))
        assert len(log.segments) > before
        log.sync()
        add(log, records("d"), (5, 0, 9))
        log.close()
    assert len(copies) > 20
    expected = list(batches(log))
    for copy in copies:
        again = open_log(copy, segment_bytes=2000)
        found = list(batches(again))
        assert found == expected[: len(found)]
        assert again.next_offset >= acknowledged
        check_dense(again)
        assert findings(copy) == []
        producer = again.producers.get(5)
        assert producer is not None
        sequence = producer.last_sequence + 1
        assert sequence == again.next_offset - acknowledged + 1
        assert add(again, records("next"), (5, 0, sequence)).base_offset == again.next_offset - 1
        assert len(again.producers.aborted) == 1


# -- idempotence and transactions on disk ----------------------------------------------------------


@pytest.mark.parametrize("end", ["roll", "close", "kill"])
def test_the_last_five_are_known_again_after(folder: Path, end: str) -> None:
    log = open_log(folder / "t-0", segment_bytes=500)
    offsets = [add(log, records(f"{n}" * 100), (3, 1, n)).base_offset for n in range(8)]
    log.sync()
    if end == "roll":
        assert len(log.segments) > 3
    else:
        log = reopen(log, clean=end == "close", segment_bytes=500)
    for n in range(3, 8):
        again = add(log, records(f"{n}" * 100), (3, 1, n))
        assert (again.duplicate, again.base_offset) == (True, offsets[n])
    with pytest.raises(OutOfOrderSequence):
        add(log, records("2" * 100), (3, 1, 2))
    with pytest.raises(StaleProducerEpoch):
        add(log, records("x"), (3, 0, 0))
    assert not add(log, records("x"), (3, 1, 8)).duplicate
    assert log.next_offset == 9


def test_all_records_gone_the_producers_are_still_known(folder: Path) -> None:
    """Retention may take every record of a producer that will repeat its last batch."""
    log = open_log(folder / "t-0")
    add(log, records("a"), (3, 1, 0))
    log.sync()
    log.move_start(1)
    log.roll(NOW)
    log.drop_segments(1)
    for path in (log.departed[0].log_path, *log.departed[0].index_paths()):
        os.unlink(path)
    log = reopen(log, clean=True)
    assert add(log, records("a"), (3, 1, 0)).duplicate
    log = reopen(log, clean=False)
    assert add(log, records("a"), (3, 1, 0)).duplicate
    assert (log.start_offset, log.next_offset) == (1, 1)


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_transactions_survive(folder: Path, clean: bool) -> None:
    log = open_log(folder / "t-0", segment_bytes=1000)
    for number in range(10):
        add(log, records(f"kept {number}" * 10), (1, 0, number), transactional=True)
        add(log, records(f"dropped {number}" * 10), (2, 0, number), transactional=True)
        end_transaction(log, (2, 0), commit=False)
        end_transaction(log, (1, 0), commit=True)
    add(log, records("open"), (1, 0, 10), transactional=True)
    add(log, records("behind"))
    log.sync()
    assert len(log.segments) > 3
    for _ in range(3):
        assert [r.value[:4] for r in committed(log, 200) if r.value] == [b"kept"] * 10
        assert log.last_stable_offset == 40
        assert len(log.producers.aborted) == 10
        log = reopen(log, clean, segment_bytes=1000)
    end_transaction(log, (1, 0), commit=True)
    assert log.last_stable_offset == 40, "the marker is not durable"
    log.sync()
    assert log.last_stable_offset == 43
    assert [record.value for record in committed(log)][-2:] == [b"open", b"behind"]


def test_markers_that_are_none(folder: Path) -> None:
    log = open_log(folder / "t-0")
    with pytest.raises(InvalidBatch):
        log.append_marker(
            build_batch([(b"", b"", (), 0)], producer_id=1, producer_epoch=0, control=True), NOW
        )
    add(log, records("a"), (1, 5, 0), transactional=True)
    with pytest.raises(StaleProducerEpoch):
        log.append_marker(control_batch(0, 1, 4, 0, NOW), NOW)
    assert log.next_offset == 1


# -- durability ------------------------------------------------------------------------------------


def test_readers_see_nothing_before_it_is_durable(folder: Path) -> None:
    log = open_log(folder / "t-0")
    told: list[tuple[int, int]] = []
    log.when_durable = lambda log, size: told.append((log.durable_offset, size))
    add(log, records("a"))
    assert log.is_dirty
    assert contents(log) == []
    work = log.sync_work()
    add(log, records("bb"))
    assert contents(log) == []
    log.synced(work)
    assert [record.value for record in contents(log)] == [b"a"]
    log.sync()
    assert len(contents(log)) == 2
    assert not log.is_dirty
    assert [offset for offset, _ in told] == [1, 2]
    assert sum(size for _, size in told) == log.size


def test_a_snapshot_is_made_every_so_many_bytes_and_two_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.partition.CHECKPOINT_BYTES", 50_000)
    log = open_log(folder / "t-0")
    made = set()
    for number in range(40):
        fill(log, 1, first=number)
        made.update(offset for offset, _ in log.snapshots())
        assert len(log.snapshots()) <= 2
    assert 5 <= len(made) <= 7
    assert log.recovery_offset == max(made)


def test_light_snapshots_do_not_take_the_place_of_synced_ones(folder: Path) -> None:
    """They help after a kill; if the power fails they may be gone, and those before them have to be there."""
    log = open_log(folder / "t-0")
    fill(log, 3)
    close(log)
    log.snapshot_interval = 30_000
    for number in range(60):
        add(log, records("x"), (1, 0, number))
        log.sync()
    offsets = [offset for offset, _ in log.snapshots()]
    assert len(offsets) == 3 and offsets[0] == 3 == log.synced_snapshot
    assert log.recovery_offset == offsets[-1] > 50
    for _, path in log.snapshots()[1:]:
        path.write_bytes(bytes(100))
    log = reopen(log, clean=False)
    assert log.recovery_offset == 3
    assert add(log, records("x"), (1, 0, 59)).duplicate


def test_a_light_snapshot_waits_for_the_aborted_transactions_before_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery starts from it, and what is in no transaction index was not aborted: so that has to be there if
    the power fails and the snapshot is."""
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert not log.snapshots() or synced[-1].endswith(".log")

    log = open_log(folder / "t-0")
    log.snapshot_interval = 1
    monkeypatch.setattr(sync, "sync_data", note)
    monkeypatch.setattr(sync, "sync_directory", lambda path: synced.append(str(path)))
    add(log, records("x"), (1, 0, 0), transactional=True)
    end_transaction(log, (1, 0), commit=False)
    log.sync()
    assert log.recovery_offset == 2 and log.synced_snapshot < 0
    assert log.active.aborted.path in synced and str(log.directory) in synced


def test_snapshots_found_after_a_kill_stay_until_one_is_synced(folder: Path) -> None:
    """Of those that were there, nobody knows which a power failure would leave."""
    log = open_log(folder / "t-0")
    fill(log, 3)
    log = reopen(log, clean=True)
    log = open_log(log.directory, kill(log))
    assert (log.recovery_offset, log.synced_snapshot, log.needs_sync) == (3, -1, False)
    log.snapshot_interval = 30_000
    for number in range(60):
        add(log, records("x"), (1, 0, number))
        log.sync()
    offsets = [offset for offset, _ in log.snapshots()]
    assert len(offsets) == 3 and offsets[0] == 3
    close(log)
    assert len(log.snapshots()) == 2 and log.synced_snapshot == 63


@pytest.mark.parametrize(("producers", "most"), [(1, 12), (100, 100)])
def test_many_producers_make_snapshots_rarer(folder: Path, producers: int, most: int) -> None:
    """Each of them is in every snapshot."""
    log = open_log(folder / "t-0")
    log.snapshot_interval = 50_000
    behind = []
    for number in range(600):
        add(log, records("x"), (number % producers, 0, number // producers))
        log.sync()
        behind.append(log.next_offset - log.recovery_offset)
    assert most / 2 < max(behind[400:]) <= 3 * most


def test_after_a_failed_sync_nothing_is_taken_and_the_durable_part_is_read(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 3)
    add(log, records("lost?"))
    work = log.sync_work()
    log.sync_failed(OSError(5, "Input/output error"))
    with pytest.raises(StorageFailed, match="input/output error"):
        add(log, records("more"))
    assert len(contents(log)) == 3
    log.synced(work)
    assert log.durable_offset == 3, "a later success proves nothing"
    log.close()
    assert log.snapshots() == []
    log = open_log(log.directory, kill(log))
    assert log.next_offset == 4
    fill(log, 1)


def test_a_deleted_partition(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 3)
    log.delete()
    with pytest.raises(UnknownTopic):
        add(log, records("x"))
    with pytest.raises(UnknownTopic):
        log.read(0, 100, 3)
    with pytest.raises(UnknownTopic):
        log.find_time(0, 3)


# -- reading ---------------------------------------------------------------------------------------


def test_a_read_from_any_offset_with_any_limit(folder: Path) -> None:
    dice = random.Random(3)
    log = open_log(folder / "t-0", segment_bytes=1500)
    for _ in range(60):
        add(log, records(*["x" * dice.choice((1, 10, 200))] * dice.randint(1, 5)))
    log.sync()
    everything = list(batches(log))
    by_offset = {
        offset: number
        for number, batch in enumerate(everything)
        for offset in range(read_header(batch).base_offset, read_header(batch).next_offset)
    }
    for _ in range(1500):
        offset = dice.randrange(log.next_offset)
        limit = dice.choice((0, 1, 100, 300, 1000, 5000))
        chunk = log.read(offset, limit, log.durable_offset)
        assert chunk is not None
        number = by_offset[offset]
        count = by_offset[chunk.next_offset - 1] - number + 1
        assert bytes(chunk.data) == b"".join(everything[number : number + count])
        assert len(chunk.data) <= limit or count == 1


def test_reading_goes_on_where_it_ended_without_a_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(folder / "t-0", segment_bytes=20_000)
    fill(log, 300)
    chunk = log.read(0, 500, log.durable_offset)
    assert chunk is not None
    monkeypatch.setattr("headwater.log.segment.Segment.locate", None)
    while (chunk := log.read(chunk.next_offset, 500, log.durable_offset)) is not None:
        pass


def test_offsets_out_of_range(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 5)
    log.move_start(2)
    log.check_readable(2)
    log.check_readable(5)
    for offset in (1, 6, -1):
        with pytest.raises(OffsetOutOfRange, match=r"not in \[2, 5\]"):
            log.check_readable(offset)
    assert log.read(5, 100, log.durable_offset) is None


def test_a_file_that_somebody_removed_is_an_error_not_an_endless_search(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 3)
    log.files.close()
    segment_file(log).unlink()
    with pytest.raises(WouldBlock):
        log.read(0, 100, 3, may_block=False)
    with pytest.raises(StorageFailed, match="missing"):
        log.read(0, 100, 3)
    with pytest.raises(StorageFailed):
        log.find_time(NOW, 3)
    with pytest.raises(StorageFailed):
        add(log, records("x"))


def test_readers_in_threads_while_segments_are_rolled_and_dropped(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_bytes=3000)
    fill(log, 50)
    faults: list[object] = []
    is_over = threading.Event()

    def follow() -> None:
        dice = random.Random(threading.get_ident())
        try:
            while not is_over.is_set():
                offset = log.start_offset
                try:
                    while not is_over.is_set():
                        chunk = log.read(offset, dice.choice((1, 500, 4000)), log.durable_offset)
                        if chunk is None:
                            break
                        if read_header(chunk.data).base_offset != offset:
                            faults.append((offset, read_header(chunk.data)))
                        offset = chunk.next_offset
                except OffsetOutOfRange:
                    continue
                log.find_time(NOW + dice.randrange(3000), log.durable_offset)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(50, 1500, 10):
        fill(log, 10, first=number)
        if len(log.segments) > 8:
            log.drop_segments(2)
            for segment in log.departed:
                for path in (segment.log_path, *segment.index_paths()):
                    os.unlink(path)
            log.departed.clear()
    is_over.set()
    for thread in threads:
        thread.join()
    assert not faults


# -- by time ---------------------------------------------------------------------------------------


def test_finding_by_time_among_unordered_timestamps(folder: Path) -> None:
    dice = random.Random(5)
    log = open_log(folder / "t-0", segment_bytes=4000)
    times: list[int] = []
    for _ in range(120):
        new = [NOW + dice.randrange(100_000) for _ in range(dice.randint(1, 3))]
        times += new
        add(log, [(None, b"x" * 60, (), at) for at in new])
        log.sync()
    for log in (log, reopen(log, clean=True), reopen(log, clean=False)):  # noqa: B020
        assert len(log.segments) > 3
        for end in (len(times), len(times) // 2):
            for wanted in [NOW - 1, NOW, *(NOW + dice.randrange(100_100) for _ in range(60)), max(times)]:
                first = next((n for n, at in enumerate(times) if at >= wanted), None)
                is_there = first is not None and first < end
                assert log.find_time(wanted, end) == ((first, times[first]) if is_there else None)  # type: ignore[index]
            assert log.find_time(max(times) + 1, end) is None
        assert log.find_latest_time(len(times)) == (times.index(max(times)), max(times))


def test_finding_by_time_leaves_out_what_was_deleted(folder: Path) -> None:
    log = open_log(folder / "t-0")
    add(log, [(None, b"x", (), NOW + n) for n in range(5)])
    log.sync()
    log.move_start(3)
    assert log.find_time(NOW, 5) == (3, NOW + 3)


def test_finding_by_time_with_the_brokers_timestamps(folder: Path) -> None:
    log = open_log(folder / "t-0")
    for number in range(3):
        batch = build_batch(records("a", "b"), append_time=NOW + number)
        log.append(batch, read_header(batch), NOW)
    log.sync()
    assert log.find_time(NOW + 1, 6) == (2, NOW + 1)
    assert log.find_latest_time(6) == (4, NOW + 2)


def test_finding_by_time_passes_over_nonsense_and_damage(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 2)
    nonsense = bytearray(build_batch(records("z" * 50, at=NOW + 50)))
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    seal(nonsense)
    log.append(nonsense, read_header(nonsense), NOW)
    add(log, records("good", at=NOW + 60))
    log.sync()
    assert log.find_time(NOW + 40, 4) == (3, NOW + 60)


def test_an_empty_partition(folder: Path) -> None:
    log = open_log(folder / "t-0")
    assert log.find_time(0, 0) is None
    assert log.find_latest_time(0) is None
    assert log.read(0, 100, 0) is None
    assert (log.start_offset, log.next_offset, log.last_stable_offset, log.size) == (0, 0, 0, 0)
    log = reopen(log, clean=True)
    assert log.snapshots() == []
    assert findings(log.directory) == []


# -- deleting --------------------------------------------------------------------------------------


def test_the_start_moves_within_the_log(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 5)
    add(log, records("not durable"))
    log.move_start(3)
    log.move_start(1)
    assert log.start_offset == 3
    assert [record.offset for record in contents(log)] == [3, 4]
    log.move_start(100)
    assert log.start_offset == 5, "not past what is durable"


def test_closing_twice_and_going_on_after(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 5)
    first = close(log)
    assert close(log) == first
    fill(log, 5)
    assert close(log).clean_end == 10
    again = open_log(log.directory, close(log))
    assert producer_state(again) == producer_state(log)
    assert again.next_offset == 10


def test_no_room_for_the_first_batch_of_a_producer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder / "t-0")

    def no_room(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", no_room)
    with pytest.raises(DiskFull):
        add(log, records("a"), (1, 0, 0))
    monkeypatch.undo()
    with pytest.raises(OutOfOrderSequence):
        add(log, records("b"), (1, 0, 1))
    assert add(log, records("a"), (1, 0, 0)).base_offset == 0
    assert add(log, records("b"), (1, 0, 1)).base_offset == 1


def test_names(folder: Path) -> None:
    log: PartitionLog = open_log(folder / "t-0")
    assert (log.name, repr(log)) == ("t-0", "<PartitionLog t-0 [0, 0)>")
