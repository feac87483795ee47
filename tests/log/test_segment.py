"""A segment by itself: placing batches, finding them by offset and by time, checking them on every read."""

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from headwater.errors import CorruptData, DiskFull, StorageFailed
from headwater.log.batch import HEADER_SIZE, place, read_header
from headwater.log.files import OpenFiles
from headwater.log.index import OffsetIndex, TimeIndex
from headwater.log.records import build_batch
from headwater.log.scan import Damage
from headwater.log.segment import (
    INDEX_INTERVAL,
    Retired,
    Segment,
    Unreadable,
    WouldBlock,
    storage_error,
)
from tests.log.logs import flip


def batch_at(offset: int, count: int = 1, size: int = 100, at: int = 0) -> bytes:
    batch = bytearray(build_batch([(b"k", bytes(size), (), at)] * count))
    place(batch, offset, 0)
    return bytes(batch)


def write(segment: Segment, *batches: bytes) -> None:
    for batch in batches:
        header = read_header(batch)
        segment.append((batch,), len(batch), header.last_offset, header.max_timestamp)


def make(folder: Path, base_offset: int = 0, dense: bool = True) -> Segment:
    segment = Segment(OpenFiles(), folder, base_offset, dense=dense)
    segment.create()
    return segment


def opened(segment: Segment, dense: bool = False) -> Segment:
    """The same files, opened again."""
    size = {suffix: os.path.getsize(segment.path(suffix)) for suffix in (".log", ".index", ".timeindex")}
    return Segment(
        OpenFiles(), segment.directory, segment.base_offset, size[".log"], size[".index"], size[".timeindex"],
        dense=dense,
    )  # fmt: skip


def many(folder: Path, count: int = 400) -> tuple[Segment, list[bytes]]:
    """A segment of batches of one to four records and of rising timestamps."""
    dice = random.Random(7)
    segment = make(folder, base_offset=1000)
    batches = []
    offset = 1000
    for number in range(count):
        records = dice.randint(1, 4)
        batches.append(batch_at(offset, records, dice.choice((1, 50, 400, 6000)), at=number * 10))
        offset += records
    write(segment, *batches)
    return segment, batches


def test_every_offset_leads_to_its_batch(folder: Path) -> None:
    segment, batches = many(folder)
    segment.seal()
    for each in (segment, opened(segment), opened(segment, dense=True)):
        for batch in batches:
            header = read_header(batch)
            for offset in range(header.base_offset, header.next_offset):
                position = each.locate(offset)
                chunk = each.read(position, offset, 1, 1 << 40)
                assert bytes(chunk.data) == batch
                assert chunk.next_offset == header.next_offset
        assert each.locate(header.next_offset) == each.size
        assert each.locate(0) == 0


def test_an_index_entry_for_every_few_kilobytes(folder: Path) -> None:
    segment, _ = many(folder)
    segment.seal()
    index = OffsetIndex(OpenFiles(), segment.path(".index"), os.path.getsize(segment.path(".index")))
    positions = [0, *(index[number][1] for number in range(len(index)))]
    assert all(late - early > INDEX_INTERVAL for early, late in pairwise(positions))
    assert len(index) > segment.size / (INDEX_INTERVAL + 4 * 6100)
    times = TimeIndex(OpenFiles(), segment.path(".timeindex"), os.path.getsize(segment.path(".timeindex")))
    entries = [times[number] for number in range(len(times))]
    assert entries == sorted(entries)
    assert entries[-1][0] == segment.max_timestamp == 3990


def test_without_an_index_the_log_is_walked(folder: Path) -> None:
    segment, batches = many(folder, 50)
    bare = Segment(OpenFiles(), folder, 1000, segment.size)
    for batch in batches:
        offset = read_header(batch).last_offset
        assert bare.locate(offset) == segment.locate(offset)


def test_offsets_that_compaction_took_lead_to_the_next_batch(folder: Path) -> None:
    segment = make(folder, dense=False)
    write(segment, batch_at(3), batch_at(10, 2), batch_at(40))
    positions = [segment.locate(offset) for offset in range(42)]
    size = len(batch_at(3))
    second = size + len(batch_at(10, 2))
    assert positions == [0] * 4 + [size] * 8 + [second] * 29 + [segment.size]
    chunk = segment.read(0, 0, 1 << 20, 41)
    assert (len(chunk.data), chunk.next_offset) == (segment.size, 41)


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 61, 200, 1000, 1 << 20])
@pytest.mark.parametrize("may_block", [True, False])
def test_reads_give_whole_batches_within_the_limit(folder: Path, max_bytes: int, may_block: bool) -> None:
    segment, batches = many(folder, 60)
    position, offset, seen = 0, 1000, []
    while position < segment.size:
        chunk = segment.read(position, offset, max_bytes, 1 << 40, may_block=may_block)
        size = read_header(chunk.data).size
        assert len(chunk.data) <= max(max_bytes, size)
        seen.append(bytes(chunk.data))
        position, offset = chunk.end_position, chunk.next_offset
    assert b"".join(seen) == b"".join(batches)


def test_without_at_least_one_a_batch_over_the_limit_is_not_read(folder: Path) -> None:
    segment = make(folder)
    write(segment, batch_at(0, size=500))
    assert segment.read(0, 0, 400, 10, at_least_one=False).data == b""
    assert segment.read(0, 0, 30, 10, at_least_one=False).data == b""
    assert len(segment.read(0, 0, 5000, 10, at_least_one=False).data) == segment.size


def test_reads_end_before_the_end_offset(folder: Path) -> None:
    segment = make(folder)
    write(segment, batch_at(0, 3), batch_at(3, 3), batch_at(6, 3))
    assert segment.read(0, 0, 1 << 20, 6).next_offset == 6
    assert segment.read(0, 0, 1 << 20, 4).next_offset == 6, "whole batches"
    position = segment.locate(6)
    assert segment.read(position, 6, 1 << 20, 6).data == b""


def test_the_latest_timestamp_and_where_older_ones_end(folder: Path) -> None:
    segment = make(folder)
    times = [50, 20, 70, 70, 10, 90, 30, 95, 20]
    for number, at in enumerate(times):
        write(segment, batch_at(number, size=3000, at=at))
    segment.seal()
    assert segment.first_timestamp() == 50
    for each in (segment, opened(segment)):
        assert each.largest_timestamp() == 95
        assert each.max_timestamp_offset == 7
        assert each.first_timestamp() == 50
        for wanted in range(0, 100, 5):
            position, first = each.position_before(wanted)
            assert position == each.locate(first)
            assert all(at < wanted for at in times[:first])


def test_a_time_index_that_lies_is_not_used(folder: Path) -> None:
    segment, _ = many(folder)
    segment.seal()
    path = Path(segment.path(".timeindex"))
    path.write_bytes(os.urandom(path.stat().st_size))
    again = opened(segment)
    assert all(again.position_before(at)[0] <= segment.position_before(at)[0] for at in range(0, 4000, 100))


# -- damage ----------------------------------------------------------------------------------------


def test_damage_is_found_again_without_a_search(folder: Path) -> None:
    segment, batches = many(folder, 30)
    start = segment.locate(read_header(batches[10]).base_offset)
    flip(Path(segment.log_path), start + HEADER_SIZE)
    offset = read_header(batches[10]).base_offset
    for _ in range(2):
        with pytest.raises(CorruptData):
            segment.read(segment.locate(offset), offset, 1, 1 << 40)
    (damage,) = segment.damage.values()
    assert damage == Damage(
        start, start + len(batches[10]), "checksum does not match", False, len(batches[10])
    )


def test_the_error_says_where_reading_may_go_on(folder: Path) -> None:
    segment, batches = many(folder, 30)
    for number, following in ((10, read_header(batches[11]).base_offset), (29, None)):
        offset = read_header(batches[number]).base_offset
        flip(Path(segment.log_path), segment.locate(offset) + HEADER_SIZE)
        with pytest.raises(Unreadable) as caught:
            segment.read(segment.locate(offset), offset, 1, 1 << 40)
        assert caught.value.next_offset == following
        assert f"{segment.log_path} at byte" in str(caught.value)


def test_the_thread_that_must_not_wait_does_not_search(folder: Path) -> None:
    segment, _ = many(folder, 3)
    flip(Path(segment.log_path), HEADER_SIZE)
    with pytest.raises(WouldBlock):
        segment.read(0, 1000, 1 << 20, 1 << 40, may_block=False)


def test_a_file_that_was_cut_behind_our_back(folder: Path) -> None:
    segment, batches = many(folder, 3)
    os.truncate(segment.log_path, segment.size - 5)
    last = read_header(batches[-1]).base_offset
    with pytest.raises(CorruptData, match="cut short"):
        segment.read(segment.locate(last), last, 1 << 20, 1 << 40)
    assert bytes(segment.read(0, 1000, 1 << 20, 1 << 40).data) == batches[0] + batches[1]


def test_a_retired_segment_is_not_read(folder: Path) -> None:
    segment, _ = many(folder, 3)
    segment.retired = True
    for use in (segment.file, lambda: segment.locate(1001), lambda: segment.read(0, 1000, 1, 2000)):
        with pytest.raises(Retired):
            use()


# -- writing ---------------------------------------------------------------------------------------


def test_a_batch_in_pieces_and_in_several_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may write less than it was asked to."""
    pwritev, pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: pwritev(fd, [pieces[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:50], at))
    segment = make(folder)
    batch = batch_at(0, size=500)
    segment.append((batch[:16], memoryview(batch)[16:]), len(batch), 0, 0)
    assert Path(segment.log_path).read_bytes() == batch


@pytest.mark.parametrize("code", [28, 27, 122], ids=["ENOSPC", "EFBIG", "EDQUOT"])
def test_a_batch_without_room_leaves_nothing(
    folder: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = make(folder)
    write(segment, batch_at(0))
    size = segment.size
    pwritev = os.pwritev

    def half(descriptor: int, pieces: list[bytes], at: int) -> int:
        pwritev(descriptor, [pieces[0][:50]], at)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(DiskFull, match=r"cannot append to .*log: .*Free space"):
        write(segment, batch_at(1))
    assert (segment.size, os.path.getsize(segment.log_path)) == (size, size)
    monkeypatch.undo()
    write(segment, batch_at(1))
    assert segment.read(0, 0, 1000, 10).next_offset == 2


def test_index_entries_without_room_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    segment = make(folder)
    monkeypatch.setattr(os, "pwrite", no_room)
    for number in range(1000):
        write(segment, batch_at(number, size=5000))
    monkeypatch.undo()
    segment.seal()
    assert len(opened(segment).offset_index) == 999
    assert opened(segment).locate(777) == 777 * len(batch_at(0, size=5000))


def test_what_the_system_says_becomes_an_error_of_the_catalogue() -> None:
    assert isinstance(storage_error("read", "x", OSError(5, "Input/output error")), StorageFailed)
    assert isinstance(storage_error("read", "x", OSError(28, "No space left on device")), DiskFull)
    assert str(storage_error("read", "x", OSError("odd"))).startswith("cannot read x: odd.")
