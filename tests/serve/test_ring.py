"""The ring against a model that keeps everything."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.serve.ring import Ring

_keys = st.lists(st.sampled_from("abcdefg"), min_size=0, max_size=6)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _keys, st.booleans()),
        st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 40)),
        st.tuples(st.just("resume"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("clear"), st.integers(0, 3), st.integers(1, 3)),
    ),
    max_size=60,
)


class Reader:
    """Applies what it takes, as a client does."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.position: int | None = None
        self.number = 0

    def load(self, rows: dict[str, int], number: int, position: int | None) -> None:
        self.rows, self.number, self.position = dict(rows), number, position

    def apply(self, data: bytes) -> None:
        for event in data.decode().split(";")[:-1]:
            key, number = event.split("=")
            if key != "progress":
                assert int(number) > self.number, "a change came twice or out of order"
                self.rows[key] = self.number = int(number)


@given(_steps, st.integers(3, 30), st.integers(20, 300))
def test_a_reader_that_is_not_told_to_start_over_ends_with_the_content(
    steps: Sequence[tuple[str, object, object]], most_events: int, most_bytes: int
) -> None:
    ring = Ring(number=5, most_events=most_events, most_bytes=most_bytes)
    rows: dict[str, int] = {}
    number = 5
    newest: list[bytes] = []
    readers = [Reader() for _ in range(4)]
    for reader in readers:
        reader.load(rows, number, ring.after(number))
    for step, first, second in steps:
        if step == "append":
            assert isinstance(first, list)
            events: list[bytes] = []
            for key in first:
                number += 1
                rows[key] = number
                events.append(f"{key}={number};".encode())
            keys: list[str | None] = list(first)
            if second:
                keys.append("progress")
                events.append(f"progress={number};".encode())
            ring.append(keys, events, len(first))
            assert ring.number == number
            newest = events or newest
            assert ring.end - ring.start <= max(most_events, len(newest))
            assert ring.size <= max(most_bytes, sum(map(len, newest)))
            continue
        assert isinstance(first, int) and isinstance(second, int)
        reader = readers[first]
        if step == "clear":
            number += second
            ring.clear(number)
        elif step == "resume":
            reader.position = ring.after(reader.number)
        else:
            _take(ring, reader, rows, number, second)
    for reader in readers:
        while reader.position != ring.end:
            _take(ring, reader, rows, number, 25)
        assert reader.rows == rows


def _take(ring: Ring, reader: Reader, rows: dict[str, int], number: int, most: int) -> None:
    taken = None if reader.position is None else ring.take(reader.position, most)
    if taken is None:
        reader.load(rows, number, ring.after(number))
    else:
        reader.apply(taken[0])
        reader.position = taken[1]


def test_readers_that_keep_up_share_the_bytes() -> None:
    ring = Ring()
    ring.append(["a", "b"], [b"1", b"2"])
    first, second = ring.take(0), ring.take(0)
    assert first is not None and second is not None
    assert first[0] is second[0]


def test_readers_that_are_equally_far_behind_share_the_bytes() -> None:
    ring = Ring()
    for number in range(5):
        ring.append(["a", str(number)], [b"a%d;" % number, b"%d;" % number])
    first, second = ring.take(0), ring.take(0)
    assert first == (b"0;1;2;3;a4;4;", 10)
    assert second is not None and first[0] is second[0]


def test_a_ring_forgets_the_oldest_and_says_so() -> None:
    ring = Ring(most_events=3)
    for number in range(1, 11):
        ring.append([str(number)], [b"%d;" % number])
    assert (ring.first_number, ring.number, ring.start, ring.end) == (7, 10, 7, 10)
    assert ring.take(6) is None
    assert ring.after(6) is None
    assert ring.after(7) == 7
    assert ring.take(7) == (b"8;9;10;", 10)
    assert len(ring._newest) == 3, "keys of forgotten events are forgotten, too"


def test_a_large_chunk_is_kept_whole() -> None:
    ring = Ring(most_events=2, most_bytes=4)
    ring.append(["a"], [b"1;"])
    ring.append(["b", "c", "d"], [b"22;", b"33;", b"44;"])
    assert ring.take(1) == (b"22;33;44;", 4)
    assert ring.take(0) is None


@pytest.mark.parametrize("numbered", [0, 1])
def test_who_comes_back_gets_the_progress_that_follows_its_last_change(numbered: int) -> None:
    ring = Ring(number=3)
    ring.append(["a", "progress"], [b"4;", b"p;"], 1)
    ring.append(["progress"], [b"q;"], 0)
    place = ring.after(4 - numbered)
    assert place is not None
    taken = ring.take(place)
    assert taken is not None
    assert taken[0].endswith(b"q;")


def test_nothing_is_held_after_clear() -> None:
    ring = Ring()
    ring.append(["a"], [b"1;"])
    at_end = ring.end
    ring.clear(9)
    assert ring.take(0) is None and ring.take(at_end) is None
    assert ring.after(1) is None and ring.after(9) == ring.end
