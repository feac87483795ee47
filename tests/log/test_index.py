"""The sparse indexes and the index of aborted transactions, by themselves."""

import os
import threading
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.files import OpenFiles
from headwater.log.index import (
    PENDING_LIMIT,
    AbortedIndex,
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    pack_aborted,
)


def filled(path: Path, count: int, kind: type[OffsetIndex] | type[TimeIndex] = OffsetIndex) -> OffsetIndex:
    index = kind(OpenFiles(), str(path))
    for number in range(count):
        index.add(number * 10, number * 7)
    return index  # type: ignore[return-value]


@pytest.mark.parametrize("count", [0, 1, 2, PENDING_LIMIT - 1, PENDING_LIMIT, 3000])
@pytest.mark.parametrize("is_written", [False, True], ids=["gathering", "written"])
def test_the_entry_at_or_before_a_key(folder: Path, count: int, is_written: bool) -> None:
    index = filled(folder / "i", count)
    if is_written:
        index.write()
        assert (folder / "i").stat().st_size == 8 * count
        index = OffsetIndex(OpenFiles(), str(folder / "i"), 8 * count)
    assert len(index) == count
    keys = [number * 10 for number in range(count)]
    for key in {-1, 0, 1, 9, 10, 11, *range(0, count * 10, 997), count * 10 - 10, count * 10, 1 << 30}:
        number = index.floor(key)
        assert number == bisect_right(keys, key) - 1
        if number >= 0:
            assert index[number] == (number * 10, number * 7)
    assert index.last() == ((count * 10 - 10, count * 7 - 7) if count else None)
    assert [index.first_with_value(value) for value in (0, 1, 7, 8)] == [
        0, min(count, 1), min(count, 1), min(count, 2),
    ]  # fmt: skip


def test_entries_are_written_by_the_handful(folder: Path) -> None:
    filled(folder / "i", PENDING_LIMIT * 3 + 5)
    assert (folder / "i").stat().st_size == 8 * PENDING_LIMIT * 3


def test_a_search_reads_little(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(folder / "i", 100_000)
    reads = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: reads.append(arguments[1]) or pread(*arguments))
    assert index.floor(123_456) == 12_345
    assert len(reads) < 10
    assert sum(reads) < 8192


@pytest.mark.parametrize("kept", [0, 1, 100, 128, 150, 300])
def test_cutting(folder: Path, kept: int) -> None:
    index = filled(folder / "i", 300)
    index.cut(kept)
    assert len(index) == kept
    index.add(1 << 20, 5)
    index.write()
    assert (folder / "i").stat().st_size == 8 * (kept + 1)
    assert index.last() == (1 << 20, 5)
    assert index.floor(1 << 19) == kept - 1


def test_a_file_shorter_than_its_entries_is_an_error(folder: Path) -> None:
    index = filled(folder / "i", 300, TimeIndex)
    index.write()
    os.truncate(folder / "i", 100)
    with pytest.raises(OSError, match="shorter than"):
        index[200]


def test_clearing_removes_what_is_no_entry(folder: Path) -> None:
    (folder / "i").write_bytes(b"garbage")
    index = OffsetIndex(OpenFiles(), str(folder / "i"), 7)
    index.clear()
    assert (folder / "i").read_bytes() == b""


def test_reading_while_entries_are_added(folder: Path) -> None:
    """Another thread searches while entries move from memory to the file."""
    index = filled(folder / "i", 1)
    faults: list[object] = []
    is_over = threading.Event()

    def search() -> None:
        while not is_over.is_set():
            count = len(index)
            number = index.floor(1 << 30)
            if number < count - 1 or index[number] != (number * 10, number * 7):
                faults.append((count, number))

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 20_000):
        index.add(number * 10, number * 7)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not faults


# -- aborted transactions --------------------------------------------------------------------------

A = AbortedTransaction(7, 10, 20, 10)
B = AbortedTransaction(8, 15, 30, 31)


def test_there_is_no_file_while_nothing_was_aborted(folder: Path) -> None:
    index = AbortedIndex(OpenFiles(), str(folder / "t"))
    index.write()
    index.keep_before(5)
    assert index.entries() == []
    assert not (folder / "t").exists()


def test_entries_in_kafkas_format(folder: Path) -> None:
    index = AbortedIndex(OpenFiles(), str(folder / "t"))
    index.add(A)
    index.add(B)
    assert (folder / "t").read_bytes() == pack_aborted(A) + pack_aborted(B)
    assert pack_aborted(A).hex() == "0000" + "".join(f"{n:016x}" for n in A)
    again = AbortedIndex(OpenFiles(), str(folder / "t"), 68)
    assert again.entries() == [A, B]
    assert again.are_plausible(10, 31)
    assert not again.are_plausible(10, 30)
    assert not again.are_plausible(21, 40)
    again.keep_before(30)
    assert again.entries() == [A]
    assert (folder / "t").stat().st_size == 34


def test_an_entry_without_room_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = AbortedIndex(OpenFiles(), str(folder / "t"))
    index.add(A)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:20], at))
    with pytest.raises(OSError, match="No space"):
        index.add(B)
    assert index.entries() == [A, B]
    monkeypatch.undo()
    index.write()
    assert (folder / "t").read_bytes() == pack_aborted(A) + pack_aborted(B)


def test_a_torn_file_is_not_believed(folder: Path) -> None:
    (folder / "t").write_bytes(pack_aborted(A) + pack_aborted(B)[:20])
    index = AbortedIndex(OpenFiles(), str(folder / "t"), 54)
    assert index.is_torn
    assert not index.are_plausible(0, 100)
    index.keep_before(100)
    assert (folder / "t").read_bytes() == pack_aborted(A)


@given(st.binary(max_size=34 * 4))
def test_garbage_is_hardly_ever_plausible(content: bytes) -> None:
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    path = path / f"headwater-txnindex-{os.getpid()}"
    path.write_bytes(content)
    try:
        index = AbortedIndex(OpenFiles(), str(path), len(content))
        if index.are_plausible(100, 200):
            assert all(100 <= entry.last_offset < 200 for entry in index.entries())
    finally:
        path.unlink()
