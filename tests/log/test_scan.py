"""Walking a log file, and finding the way again behind damage."""

import io
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.log import scan as module
from headwater.log.batch import place, read_header
from headwater.log.records import build_batch
from headwater.log.scan import Bounds, Damage, Found, is_torn, scan


def log_of(sizes: list[int], first: int = 0, gaps: dict[int, int] | None = None) -> bytes:
    """Batches of one record of these sizes; ``gaps`` are offsets that are missing before a batch."""
    content = bytearray()
    offset = first
    for number, size in enumerate(sizes):
        offset += (gaps or {}).get(number, 0)
        batch = bytearray(build_batch([(b"key", bytes([number + 65]) * size, (), 1000 + number)]))
        place(batch, offset, 0)
        content += batch
        offset += 1
    return bytes(content)


def positions(content: bytes) -> list[int]:
    found, position = [], 0
    while position < len(content):
        found.append(position)
        position += read_header(content, position).size
    return found


class Scanned:
    """What a scan of some bytes gives."""

    def __init__(
        self, path: Path, content: bytes, first: int = 0, bounds: Bounds = module.UNBOUNDED, start: int = 0
    ) -> None:
        file_path = path / "log"
        file_path.write_bytes(content)
        with io.FileIO(file_path, "rb") as file:
            self.items = list(scan(file, start, len(content), first, bounds))
        # Whatever it is, it covers every byte once.
        position = start
        for item in self.items:
            assert item.position == position
            position = item.end if isinstance(item, Damage) else position + len(item.batch)
            if isinstance(item, Found):
                assert bytes(item.batch) == content[item.position : position]
        assert position == len(content)

    @property
    def offsets(self) -> list[int]:
        return [item.header.base_offset for item in self.items if isinstance(item, Found)]

    @property
    def damage(self) -> list[tuple[int, int, bool]]:
        return [(i.position, i.end, i.is_tail) for i in self.items if isinstance(i, Damage)]


@pytest.mark.parametrize("chunk", [70, 1000, 1 << 20])
def test_batches_across_the_edges_of_what_is_read_at_once(
    folder: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = log_of([10, 5000, 1, 70_000, 300, 2])
    monkeypatch.setattr(module, "CHUNK", chunk)
    path = folder / "log"
    path.write_bytes(content)
    with io.FileIO(path, "rb") as file:
        items = list(scan(file, 0, len(content), chunk=chunk))
    assert b"".join(bytes(item.batch) for item in items if isinstance(item, Found)) == content
    spoilt = bytearray(content)
    spoilt[positions(content)[2] + 9] ^= 0x40
    path.write_bytes(spoilt)
    with io.FileIO(path, "rb") as file:
        items = list(scan(file, 0, len(content), chunk=chunk))
    assert [type(item) for item in items] == [Found, Found, Damage, Found, Found, Found]


def test_nothing(folder: Path) -> None:
    assert Scanned(folder, b"").items == []


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 120), min_size=1, max_size=6),
    st.data(),
    st.booleans(),
    st.sampled_from([0, 40, 10_000]),
)
def test_one_wrong_byte_costs_one_batch(
    sizes: list[int], data: st.DataObject, dense: bool, first: int
) -> None:
    """Wherever it is, whatever it becomes: the other batches are found, that one is not."""
    content = log_of(sizes, first)
    bounds = Bounds(first + len(sizes), dense)
    at = data.draw(st.integers(0, len(content) - 1))
    wrong = bytearray(content)
    wrong[at] ^= data.draw(st.integers(1, 255))
    starts = [*positions(content), len(content)]
    hit = max(number for number, start in enumerate(starts) if start <= at)
    folder = temporary()
    scanned = Scanned(folder, bytes(wrong), first, bounds)
    assert scanned.offsets == [first + number for number in range(len(sizes)) if number != hit]
    assert scanned.damage == [(starts[hit], starts[hit + 1], hit == len(sizes) - 1)]


def temporary() -> Path:
    path = Path("/dev/shm/headwater-scan" if Path("/dev/shm").is_dir() else "/tmp/headwater-scan")
    path.mkdir(exist_ok=True)
    return path


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.data())
def test_an_offset_that_cannot_be_is_damage_among_gaps_too(sizes: list[int], data: st.DataObject) -> None:
    """In a compacted segment: any offset that is not between its neighbours'."""
    gaps = {number: data.draw(st.integers(0, 50)) for number in range(len(sizes))}
    content = bytearray(log_of(sizes, 100, gaps))
    starts = positions(content)
    offsets = [read_header(content, start).base_offset for start in starts]
    end = offsets[-1] + 1 + data.draw(st.integers(0, 20))
    assert Scanned(temporary(), bytes(content), 100, Bounds(end)).offsets == offsets
    number = data.draw(st.integers(0, len(sizes) - 1))
    low = offsets[number - 1] if number else 99
    high = offsets[number + 1] if number + 1 < len(sizes) else end
    wrong = data.draw(st.one_of(st.integers(-(2**63), low), st.integers(high, 2**63 - 1)))
    spoilt = bytearray(content)
    spoilt[starts[number] : starts[number] + 8] = wrong.to_bytes(8, "big", signed=True)
    found = Scanned(temporary(), bytes(spoilt), 100, Bounds(end)).offsets
    if number and gaps[number - 1] and offsets[number - 1] - gaps[number - 1] < wrong <= low:
        # It would fit if the one before it were wrong: nobody can tell which of them is.
        assert len(found) == len(sizes) - 1
    else:
        assert found == [offset for n, offset in enumerate(offsets) if n != number]


@settings(max_examples=150, deadline=None)
@example(b"\0\0\0\0\0\0\0\x02\x01", [1], False)  # with what follows, it looks like the start of a batch
@given(st.binary(min_size=1, max_size=400), st.lists(st.integers(1, 60), max_size=4), st.booleans())
def test_garbage_between_batches(garbage: bytes, sizes: list[int], at_end: bool) -> None:
    before, behind = log_of([5, 6], 0), log_of(sizes, 2)
    content = before + (behind + garbage if at_end else garbage + behind)
    scanned = Scanned(temporary(), content, 0, Bounds(dense=True))
    assert scanned.offsets == list(range(2 + len(sizes)))


def test_a_missing_batch_is_no_damage_of_its_own(folder: Path) -> None:
    """Where offsets have gaps, nobody can tell; where they have none, the next batch is out of order."""
    content = log_of([9, 9, 9, 9])
    second, third = positions(content)[1:3]
    cut = content[:second] + content[third:]
    assert Scanned(folder, cut).offsets == [0, 2, 3]
    scanned = Scanned(folder, cut, 0, Bounds(dense=True))
    assert scanned.offsets == [0, 3]
    assert scanned.damage == [(second, second + third - second, False)]


def test_what_a_record_holds_is_not_taken_for_a_batch_of_the_log(folder: Path) -> None:
    inner = log_of([20, 20, 20], first=50)
    outer = bytearray(build_batch([(b"copy", inner, (), 0), (b"tail", b"t" * 30, (), 0)]))
    place(outer, 3, 0)
    behind = bytearray(build_batch([(b"next", b"one", (), 0)]))
    place(behind, 5, 0)
    content = log_of([9, 9, 9]) + bytes(outer) + bytes(behind)
    start = positions(content)[3]
    for position in range(8, 12):  # its length
        wrong = bytearray(content)
        wrong[start + position] ^= 0x41
        assert Scanned(folder, bytes(wrong), 0, Bounds(dense=True)).offsets == [0, 1, 2, 5]
    for end in range(start + 61, len(content) - len(behind)):
        assert Scanned(folder, content[:end], 0, Bounds(dense=True)).damage == [(start, end, True)]


def test_known_damage_is_not_searched_again(folder: Path) -> None:
    content = bytearray(log_of([9] * 5))
    start, end = positions(content)[1:3]
    content[start + 16] ^= 1
    path = folder / "log"
    path.write_bytes(content)
    told = Damage(start, end, "known", False, 0)
    with io.FileIO(path, "rb") as file:
        items = list(scan(file, 0, len(content), known={start: told}))
    assert items[1] is told


def test_a_tail_that_is_torn_and_one_that_is_not(folder: Path) -> None:
    content = log_of([9, 9, 200])
    start = positions(content)[-1]
    path = folder / "log"

    def torn(tail: bytes) -> bool:
        path.write_bytes(content[:start] + tail)
        with io.FileIO(path, "rb") as file:
            *_, last = scan(file, 0, start + len(tail))
            assert isinstance(last, Damage)
            assert last.is_tail
            return is_torn(file, last, 2)

    whole = content[start:]
    assert all(torn(whole[:size]) for size in range(1, len(whole)))
    assert torn(bytes(10)) and torn(bytes(1000))
    for position in [*range(8, 17), 17, 25, 100]:
        wrong = bytearray(whole)
        wrong[position] ^= 0x02
        assert not torn(bytes(wrong)), position
    assert not torn(b"nobody knows what this is".ljust(100, b"?"))


def test_a_length_that_leads_far_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong length must not make the walk read a gigabyte."""
    content = bytearray(log_of([9, 9, 9]))
    content[positions(content)[1] + 8] = 0x3F
    assert Scanned(folder, bytes(content), 0, Bounds(dense=True)).offsets == [0, 2]
