"""Opening a partition again: closed, killed, torn, damaged."""

import dataclasses
import logging
import os
import shutil
from pathlib import Path

import pytest

from headwater.errors import CorruptData
from headwater.log import recovery
from headwater.log.batch import HEADER_SIZE, read_header
from headwater.log.partition import PartitionLog
from headwater.log.recovery import Checkpoint
from headwater.log.segment import Segment
from tests.log.logs import (
    NOW,
    SMALL,
    add,
    batches,
    check_dense,
    close,
    committed,
    contents,
    copy_of,
    end_transaction,
    fill,
    findings,
    flip,
    kill,
    open_log,
    producer_state,
    records,
    reopen,
    segment_file,
)

# -- a torn last batch -----------------------------------------------------------------------------


def mixed_log(directory: Path) -> PartitionLog:
    """A log of producers and transactions, small enough to be cut at every byte."""
    log = open_log(directory)
    add(log, records("plain"))
    for sequence in range(3):
        add(log, records("idempotent"), (7, 0, sequence))
    add(log, records("aborted", "aborted"), (8, 2, 0), transactional=True)
    end_transaction(log, (8, 2), commit=False)
    add(log, records("open"), (9, 1, 0), transactional=True)
    log.sync()
    return log


@pytest.mark.parametrize("last", ["plain", "idempotent", "transactional", "abort", "commit"])
def test_a_cut_at_every_byte_of_the_last_batch(folder: Path, last: str) -> None:
    log = mixed_log(folder / "t-0")
    before = list(batches(log))
    state, aborted = producer_state(log), log.producers.aborted[:]
    stable, end = log.last_stable_offset, log.next_offset
    start = log.active.size
    match last:
        case "plain":
            add(log, records("a", "b", "c"))
        case "idempotent":
            add(log, records("a", "b"), (7, 0, 3))
        case "transactional":
            add(log, records("a", "b"), (9, 1, 1), transactional=True)
        case "abort" | "commit":
            end_transaction(log, (9, 1), commit=last == "commit")
    log.sync()
    file = segment_file(log)
    whole = file.read_bytes()
    assert len(whole) - start > 60
    for size in range(start, len(whole)):
        copy = copy_of(log.directory, "cut")
        os.truncate(copy / file.name, size)
        torn = findings(copy)
        assert [each.kind for each in torn] == (["torn tail"] if size > start else [])
        again = open_log(copy)
        assert list(batches(again)) == before
        assert again.next_offset == again.durable_offset == end
        assert (again.active.size, (copy / file.name).stat().st_size) == (start, start)
        assert producer_state(again) == state
        assert again.producers.aborted == aborted
        assert again.last_stable_offset == stable
        assert findings(copy) == []
        if size % 7 == 0:  # and it goes on
            assert add(again, records("next")).base_offset == end
            again.sync()
            check_dense(again)
            assert findings(copy) == []
    assert open_log(log.directory).next_offset > end, "whole, it is there"


def test_a_cut_log_takes_the_lost_batch_again(folder: Path) -> None:
    log = mixed_log(folder / "t-0")
    lost = add(log, records("a", "b"), (7, 0, 3))
    log.sync()
    os.truncate(segment_file(log), log.active.size - 1)
    log = reopen(log, clean=False)
    again = add(log, records("a", "b"), (7, 0, 3))
    assert again == lost
    assert add(log, records("a", "b"), (7, 0, 3)).duplicate


@pytest.mark.parametrize("size", [1, 60, 61, 4096, 100_000])
def test_zeros_at_the_end_are_a_torn_tail(folder: Path, size: int) -> None:
    log = mixed_log(folder / "t-0")
    with open(segment_file(log), "ab") as file:
        file.write(bytes(size))
    assert [(each.kind, each.severity) for each in findings(log.directory)] == [("torn tail", "warning")]
    before = list(batches(log))
    log = reopen(log, clean=False)
    assert list(batches(log)) == before
    assert findings(log.directory) == []


def test_a_torn_batch_that_holds_whole_batches_is_not_taken_for_them(folder: Path) -> None:
    """A record may have anything as its value, such as the batches of another log."""
    log = open_log(folder / "t-0")
    fill(log, 3)
    end = log.next_offset
    other = open_log(folder / "other-0", Checkpoint(start_offset=end + 10))
    fill(other, 5)
    embedded = segment_file(other).read_bytes()
    add(log, [(b"copy", embedded, (), NOW), (b"more", b"x" * 100, (), NOW)])
    log.sync()
    for cut in (1, 90, 150):
        copy = copy_of(log.directory, "cut")
        os.truncate(copy / segment_file(log).name, log.active.size - cut)
        again = open_log(copy)
        assert again.next_offset == end
        assert [each.kind for each in findings(copy)] == []


def test_a_torn_tail_before_an_empty_segment(folder: Path) -> None:
    """Power went while a segment was rolled: its end never reached the disk, the next file's name did."""
    log = open_log(folder / "t-0")
    fill(log, 5)
    log.roll(NOW)
    base = log.next_offset
    os.truncate(segment_file(log, 0), log.segments[0].size - 10)
    log = reopen(log, clean=False)
    assert [record.offset for record in contents(log)] == [0, 1, 2, 3]
    assert log.next_offset == base, "offsets are not given out twice"
    fill(log, 2)
    assert [record.offset for record in contents(log)] == [0, 1, 2, 3, 5, 6]
    assert findings(log.directory) == []


# -- indexes, snapshots and the like --------------------------------------------------------------


def long_log(directory: Path) -> PartitionLog:
    """Many segments, index entries and transactions."""
    log = open_log(directory, segment_bytes=20_000)
    for number in range(60):
        fill(log, 8, size=200, first=number * 8)
        add(log, records("a", "b", at=NOW + number * 8), (5, 0, number * 2))
        add(log, records("x"), (6, 0, number), transactional=True)
        end_transaction(log, (6, 0), commit=number % 3 != 0)
    log.sync()
    assert len(log.segments) > 4
    return log


def everything(log: PartitionLog) -> tuple[object, ...]:
    """All that a log can be asked."""
    return (
        list(batches(log)),
        committed(log),
        producer_state(log),
        log.producers.aborted,
        log.last_stable_offset,
        [log.find_time(NOW + t, log.durable_offset) for t in range(0, 480, 7)],
        log.find_latest_time(log.durable_offset),
        [segment.largest_timestamp() for segment in log.segments],
        [next(iter(batches(log, offset))) for offset in range(0, log.durable_offset, 11)],
    )


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_all_is_there_after_opening_again(folder: Path, clean: bool) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    for _ in range(3):
        log = reopen(log, clean, segment_bytes=20_000)
        assert everything(log) == expected
        assert findings(log.directory) == []
    fill(log, 100)
    check_dense(log)


SPOILS = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: os.truncate(path, 0),
    "cut in an entry": lambda path: os.truncate(path, path.stat().st_size - 5),
    "garbage": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "grown by zeros": lambda path: path.write_bytes(path.read_bytes() + bytes(240)),
    "grown by garbage": lambda path: path.write_bytes(path.read_bytes() + os.urandom(241)),
    "last entry wrong": lambda path: flip(path, path.stat().st_size - 1, 0x55),
    "first half wrong": lambda path: path.write_bytes(
        os.urandom(path.stat().st_size // 2) + path.read_bytes()[path.stat().st_size // 2 :]
    ),
}


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_spoilt_indexes_do_no_harm(folder: Path, suffix: str, spoil: str, clean: bool) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    checkpoint = close(log) if clean else kill(log)
    for number in (0, 2, len(log.segments) - 1):
        path = segment_file(log, number, suffix)
        if path.stat().st_size:
            SPOILS[spoil](path)
    again = open_log(log.directory, checkpoint, segment_bytes=20_000)
    assert everything(again) == expected
    again = reopen(again, clean=True)
    assert everything(again) == expected
    if spoil != "first half wrong":  # nobody looks at all of an index when it is opened
        assert findings(again.directory) == []


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("spoil", ["cut in an entry", "garbage", "grown by garbage", "first half wrong"])
def test_a_spoilt_transaction_index_does_no_harm(folder: Path, spoil: str, clean: bool) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    checkpoint = close(log) if clean else kill(log)
    SPOILS[spoil](segment_file(log, 1, ".txnindex"))
    assert findings(log.directory), "the check tells"
    again = open_log(log.directory, checkpoint, segment_bytes=20_000)
    assert everything(again) == expected
    again = reopen(again, clean=True)
    assert everything(again) == expected
    assert findings(again.directory) == []


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_any_bit_of_a_transaction_index(folder: Path, clean: bool) -> None:
    """A reader would be shown aborted records, or miss committed ones."""
    log = open_log(folder / "t-0", segment_bytes=600)
    for number in range(8):
        add(log, records("x"), (6, 0, number), transactional=True)
        end_transaction(log, (6, 0), commit=number % 3 == 2)
    log.sync()
    expected = (committed(log), log.producers.aborted)
    checkpoint = close(log) if clean else kill(log)
    path = segment_file(log, 1, ".txnindex")
    assert path.stat().st_size >= 2 * 34
    for bit in range(path.stat().st_size * 8):
        if bit // 8 % 34 < 2:
            continue  # the version, which nobody reads
        copy = copy_of(log.directory, "spoilt")
        flip(copy / path.name, bit // 8, 1 << bit % 8)
        again = open_log(copy, checkpoint, segment_bytes=600)
        assert committed(again) == expected[0], bit
        if clean or bit // 8 % 34 < 26:
            assert again.producers.aborted == expected[1], bit


def test_any_byte_of_an_abort_marker(folder: Path) -> None:
    """Its entry in the index is all that is left to tell its records from those of the next transaction."""
    log = open_log(folder / "t-0", segment_bytes=600)
    for number in range(8):
        add(log, records("x"), (6, 0, number), transactional=True)
        end_transaction(log, (6, 0), commit=number % 3 == 1)
        log.sync()
    expected = log.producers.aborted
    first, segment = expected[0], log.segments[0]
    end = segment.locate(first.last_offset + 1)
    for position in range(segment.locate(first.first_offset), end):
        copy = copy_of(log.directory, "spoilt")
        flip(copy / Path(segment.log_path).name, position)
        again = open_log(copy, kill(log), segment_bytes=600)
        assert again.producers.aborted == expected, position
        assert again.last_stable_offset == again.next_offset


def test_an_entry_of_a_transaction_index_outlives_its_marker(folder: Path) -> None:
    """The power failed between them. What the snapshot knows of producers is not forgotten for it."""
    log = open_log(folder / "t-0", segment_bytes=600)
    for number in range(7):
        add(log, records("x"), (6, 0, number), transactional=True)
        marker = end_transaction(log, (6, 0), commit=False)
        log.sync()
    expected = log.producers.aborted[:-1]
    snapshot, _ = log.snapshots()[-1]
    assert 0 < snapshot < marker.base_offset
    os.truncate(segment_file(log), log.active.locate(marker.base_offset))
    again = open_log(log.directory, kill(log), segment_bytes=600)
    assert again.recovery_offset == snapshot
    assert again.producers.aborted == expected
    assert again.producers.open_transactions() == [(marker.base_offset - 1, 6)]


def test_a_transaction_index_is_lost(folder: Path) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    checkpoint = close(log)
    for number in (1, len(log.segments) - 1):
        segment_file(log, number, ".txnindex").unlink()
    told = findings(log.directory)
    assert len(told) > 1
    assert {each.severity for each in told} == {"error"}
    assert everything(open_log(log.directory, checkpoint, segment_bytes=20_000)) == expected
    assert findings(log.directory) == []


def test_making_a_transaction_index_again_is_cut_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of an index would be believed by the next start."""
    log = long_log(folder / "t-0")
    expected = everything(log)
    checkpoint = close(log)
    segment_file(log, 1, ".txnindex").unlink()

    def power_fails(log: PartitionLog, segment: Segment, *others: object) -> tuple[int, int]:
        for each in log.segments:
            each.aborted.keep_before(segment.base_offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "_recover_segment", power_fails)
        with pytest.raises(KeyboardInterrupt):
            open_log(log.directory, checkpoint, segment_bytes=20_000)
    assert everything(open_log(log.directory, kill(log), segment_bytes=20_000)) == expected


def test_a_checkpoint_of_an_earlier_version(folder: Path) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    checkpoint = dataclasses.replace(close(log), clean_aborted=-1)
    again = open_log(log.directory, checkpoint, segment_bytes=20_000)
    assert not again.needs_sync, "nothing was read"
    assert everything(again) == expected


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("spoil", [*SPOILS])
def test_spoilt_snapshots_do_no_harm(folder: Path, spoil: str, clean: bool) -> None:
    log = long_log(folder / "t-0")
    expected = everything(log)
    for which in (slice(-1, None), slice(None)):
        checkpoint = close(log) if clean else kill(log)
        for _, path in log.snapshots()[which]:
            SPOILS[spoil](path)
        log = open_log(log.directory, checkpoint, segment_bytes=20_000)
        assert everything(log) == expected
        assert findings(log.directory) == []
        fill(log, 3)
        expected = everything(log)


def test_a_snapshot_past_the_end_is_not_believed(folder: Path) -> None:
    log = open_log(folder / "t-0")
    add(log, records("a"), (1, 0, 0))
    log.sync()
    size = log.active.size
    add(log, records("b"), (1, 0, 1))
    close(log)
    assert log.snapshots()[-1][0] == 2
    os.truncate(segment_file(log), size)
    log = open_log(log.directory)
    assert log.next_offset == 1
    assert add(log, records("b"), (1, 0, 1)).base_offset == 1


def test_recovery_leaves_out_what_a_snapshot_covers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = long_log(folder / "t-0")
    fill(log, 1000, size=2000, first=480)
    close(log)
    fill(log, 2)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(len(data := pread(fd, n, at))) or data)
    log = reopen(log, clean=False)
    assert sum(read) < log.size / 2
    assert log.recovery_offset == log.next_offset - 2


def test_what_is_to_be_read_again_does_not_grow_with_every_kill(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.partition.CHECKPOINT_BYTES", 100_000)
    log = open_log(folder / "t-0")
    for _ in range(10):
        fill(log, 9)
        log = reopen(log, clean=False)
    assert log.next_offset - log.recovery_offset < 25


def test_a_missing_directory_does_not_turn_back_offsets(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 5)
    checkpoint = close(log)
    shutil.rmtree(log.directory)
    log = open_log(log.directory, checkpoint)
    assert (log.start_offset, log.next_offset) == (5, 5)
    assert fill(log, 1) == [5]


def test_a_checkpoint_of_another_segment_is_not_believed(folder: Path) -> None:
    """The last segment has the size that it had at a clean shutdown, but is another one."""
    log = open_log(folder / "t-0")
    fill(log, 3)
    checkpoint = close(log)
    log.roll(NOW)
    fill(log, 3, first=3)
    assert log.active.size == checkpoint.clean_size
    log = open_log(log.directory, checkpoint)
    assert log.next_offset == 6


def test_start_and_cleaned_offsets_come_from_the_checkpoint(folder: Path) -> None:
    log = open_log(folder / "t-0")
    fill(log, 5)
    log.move_start(3)
    assert [r.offset for r in contents(reopen(log, clean=False))] == [3, 4]
    assert [r.offset for r in contents(open_log(log.directory))] == [0, 1, 2, 3, 4], "missing: all of it"
    log = open_log(log.directory, Checkpoint(start_offset=100))
    assert (log.start_offset, log.next_offset) == (5, 5)


def test_recovered_timestamps_are_those_of_all_batches(folder: Path) -> None:
    """The latest one may lie between the last index entry and the snapshot from which recovery starts."""
    log = open_log(folder / "t-0")
    fill(log, 50, size=300)
    add(log, records("late", at=NOW + 1_000_000))
    log.sync()
    close(log)
    fill(log, 5)
    log = reopen(log, clean=False)
    assert log.active.largest_timestamp() == NOW + 1_000_000
    assert log.find_latest_time(log.durable_offset) == (50, NOW + 1_000_000)
    log.roll(NOW)
    fill(log, 1)
    assert log.find_time(NOW + 900_000, log.durable_offset) == (50, NOW + 1_000_000)


# -- flipped bytes ---------------------------------------------------------------------------------


def flat_log(directory: Path, batches_each: int = 3, segments: int = 3) -> PartitionLog:
    """Segments of equal batches: a wrong length may well lead to the start of another batch."""
    log = open_log(directory)
    for number in range(segments):
        if number:
            log.roll(NOW)
        for _ in range(batches_each):
            first = log.next_offset
            value = f"{first:04d}".encode()
            add(log, [(b"k", value, (), NOW + first), (b"k", value, (), NOW + first)], (3, 0, first))
        log.sync()
    return log


def spans_of(log: PartitionLog, number: int) -> list[tuple[int, int, int, int]]:
    """(start, end, base offset, next offset) of each batch of a segment."""
    content = segment_file(log, number).read_bytes()
    spans = []
    position = 0
    while position < len(content):
        header = read_header(content, position)
        spans.append((position, position + header.size, header.base_offset, header.next_offset))
        position += header.size
    return spans


def check_damaged(log: PartitionLog, good: list[bytes], bad: tuple[int, int], path: Path, start: int) -> None:
    """Reads before and behind the damage work, reads in it say so, with file and byte."""
    for batch in good:
        header = read_header(batch)
        for offset in (header.base_offset, header.last_offset):
            chunk = log.read(offset, 1, log.durable_offset)
            assert chunk is not None
            assert bytes(chunk.data) == batch
    for offset in range(*bad):
        for _ in range(2):  # not only the first time
            with pytest.raises(CorruptData) as caught:
                log.read(offset, 1 << 20, log.durable_offset)
            assert f"{path} at byte {start}:" in str(caught.value)
    # In order, from the start: everything up to the damage, then an error, then everything behind it.
    seen: list[bytes] = []
    with pytest.raises(CorruptData):
        seen.extend(batches(log, max_bytes=300))
    assert seen == [batch for batch in good if read_header(batch).base_offset < bad[0]]
    rest = list(batches(log, bad[1]))
    assert rest == [batch for batch in good if read_header(batch).base_offset >= bad[1]]


PLACED = 17  # bytes in front of the checksum: offset, length, epoch, magic
FLIPS = [(at, bit) for at in range(PLACED) for bit in (0x01, 0x80)]
FLIPS += [(at, 0x10) for at in (*range(PLACED, PLACED + 10), 40, HEADER_SIZE, HEADER_SIZE + 8, -1)]


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_flipped_bit_anywhere_in_a_batch(folder: Path, segment: int, clean: bool) -> None:
    """In the header: length, base offset, checksum, magic; in the payload. In every segment, every batch."""
    log = flat_log(folder / "t-0")
    all_batches = list(batches(log))
    checkpoint = close(log) if clean else kill(log)
    spans = spans_of(log, segment)
    is_active = segment == 2
    for number, (start, end, base, following) in enumerate(spans):
        is_end = is_active and number == len(spans) - 1
        good = [batch for batch in all_batches if read_header(batch).base_offset != base]
        for at, bit in FLIPS:
            copy = copy_of(log.directory, "flipped")
            path = copy / segment_file(log, segment).name
            flip(path, start + at if at >= 0 else end + at, bit)
            told = [each for each in findings(copy) if each.severity == "error"]
            assert [(each.path, each.position) for each in told] == [(path, start)], (at, bit)
            again = open_log(copy, checkpoint)
            if is_end and not clean:
                check_kept_aside(again, good, path, start, end)
                continue
            assert again.next_offset == log.next_offset
            check_damaged(again, good, (base, following), path, start)
            again = reopen(again, clean=False)
            if is_end:
                check_kept_aside(again, good, path, start, end)
            else:
                check_damaged(again, good, (base, following), path, start)


def check_kept_aside(log: PartitionLog, good: list[bytes], path: Path, start: int, end: int) -> None:
    assert list(batches(log)) == good
    (aside,) = log.directory.glob("*.log.damaged-*")
    assert aside.name == f"{path.name}.damaged-{start}"
    assert len(aside.read_bytes()) == end - start
    assert [each.kind for each in findings(log.directory)] == ["kept aside"]


def test_damage_in_the_active_segment_is_written_around(folder: Path) -> None:
    log = flat_log(folder / "t-0", batches_each=4, segments=1)
    flip(segment_file(log), spans_of(log, 0)[1][0] + 10)
    log = reopen(log, clean=False)
    assert log.next_offset == 8
    fill(log, 3)
    assert [r.offset for r in contents(log, 4)] == [4, 5, 6, 7, 8, 9, 10]
    for clean in (True, False):
        log = reopen(log, clean)
        assert [r.offset for r in contents(log, 4)] == [4, 5, 6, 7, 8, 9, 10]
        with pytest.raises(CorruptData, match="the next good offset is 4"):
            log.read(3, 1000, log.durable_offset)


def test_damage_is_logged_with_file_and_position(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = flat_log(folder / "t-0", segments=1)
    start = spans_of(log, 0)[1][0]
    flip(segment_file(log), start + 70)
    with caplog.at_level(logging.ERROR):
        reopen(log, clean=False)
    assert f"{segment_file(log)}: " in caplog.text
    assert f"damaged bytes at byte {start} " in caplog.text


def test_two_kept_aside_tails_do_not_overwrite_each_other(folder: Path) -> None:
    log = flat_log(folder / "t-0", segments=1)
    start = spans_of(log, 0)[-1][0]
    for _ in range(3):
        flip(segment_file(log), start + 70)
        log = reopen(log, clean=False)
        add(log, records("0004", "0004"), (3, 0, 4))
        log.sync()
    assert len(list(log.directory.glob("*.log.damaged-*"))) == 3


def test_what_was_cut_out_of_the_middle(folder: Path) -> None:
    """A missing piece, within a batch and of whole batches."""
    log = flat_log(folder / "t-0", batches_each=6, segments=1)
    spans = spans_of(log, 0)
    content = segment_file(log).read_bytes()
    for piece in ((spans[1][0] + 30, spans[2][0] + 40), (spans[1][0], spans[3][0]), (0, 50)):
        copy = copy_of(log.directory, "pieces")
        path = copy / segment_file(log).name
        path.write_bytes(content[: piece[0]] + content[piece[1] :])
        assert "error" in [each.severity for each in findings(copy)]
        again = open_log(copy)
        assert again.next_offset == log.next_offset
        last = list(batches(again, 10))
        assert [read_header(batch).base_offset for batch in last] == [10]


def test_small_segments_of_every_kind(folder: Path) -> None:
    """A roll after each batch, killed and closed at each."""
    log = open_log(folder / "t-0", segment_bytes=SMALL)
    for number in range(12):
        fill(log, 1, size=3000, first=number)
        log = reopen(log, clean=number % 2 == 0, segment_bytes=SMALL)
        assert [record.offset for record in contents(log)] == list(range(number + 1))
    assert len(log.segments) == 12
    assert findings(log.directory) == []
