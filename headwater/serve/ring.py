"""The last events of something that is followed, encoded once and shared by all who follow it. Pure.

Events come in chunks, and each has a position of its own. A reader is a position and nothing else: one that
keeps up gets the very bytes of the newest chunk, as all others do; one that is behind gets what it missed
without the events that a later one with the same key makes needless; one that is further behind than the ring
reaches is told so. Readers cost the ring nothing, however many and however slow they are.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

PIECE = 64 << 10  # bytes that a reader who is behind gets at a time, unless one event is larger


class Chunk:
    """Events that came together."""

    __slots__ = ("data", "ends", "first", "keys", "needless", "number", "numbered")

    def __init__(
        self, first: int, number: int, numbered: int, keys: Sequence[str | None], events: Sequence[bytes]
    ) -> None:
        self.first = first  # the position of its first event
        self.number = number  # of the last change before it
        self.numbered = numbered  # how many of its events, from the first on, are changes with a number
        self.keys = keys
        self.data = b"".join(events)
        self.ends: list[int] = []  # where each event ends in the data
        end = 0
        for event in events:
            end += len(event)
            self.ends.append(end)
        self.needless: set[int] | None = None  # the events that a later one replaces, by their place here

    def events(self) -> list[bytes]:
        """Its events, one by one."""
        return [self.data[begin:end] for begin, end in pairwise([0, *self.ends])]

    def pieces(self, begin: int, most: int) -> tuple[list[memoryview | bytes], int]:
        """What is needed of the events from ``begin`` on, and the place behind; more than ``most`` at the end."""
        if begin == 0 and not self.needless:
            return [self.data], len(self.ends)
        needless = self.needless or ()
        view = memoryview(self.data)
        found: list[memoryview | bytes] = []
        size = 0
        for place in range(begin, len(self.ends)):
            if place in needless:
                continue
            start = self.ends[place - 1] if place else 0
            found.append(view[start : self.ends[place]])
            size += self.ends[place] - start
            if size >= most:
                return found, place + 1
        return found, len(self.ends)


class Ring:
    """Keeps the newest events, within a number and a size.

    >>> ring = Ring(number=7)
    >>> ring.append(["a", "b"], [b"8", b"9"])
    >>> ring.append(["a"], [b"10"])
    >>> ring.after(7), ring.after(9), ring.after(11)
    (0, 2, None)
    >>> ring.take(0)
    (b'910', 3)
    """

    def __init__(self, *, number: int = 0, most_events: int = 10_000, most_bytes: int = 16 << 20) -> None:
        self.most_events, self.most_bytes = most_events, most_bytes
        self.first_number = number  # of the last change before the ring
        self.number = number  # of the newest change in it
        self.start = self.end = 0  # positions: of the oldest event, and behind the newest
        self.size = 0
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._newest: dict[str, tuple[Chunk, int]] = {}  # by key
        # What readers at some position got since the last append: those at one place share the bytes.
        self._taken: dict[tuple[int, int], tuple[bytes, int]] = {}

    def append(
        self, keys: Sequence[str | None], events: Sequence[bytes], numbered: int | None = None
    ) -> None:
        """Add events; the first ``numbered`` of them, or all, are changes with the numbers that come next.

        An event makes earlier ones with its key needless. One without a key is always needed.
        """
        if not events:
            return
        numbered = len(events) if numbered is None else numbered
        chunk = Chunk(self.end, self.number, numbered, keys, events)
        newest = self._newest
        for place, key in enumerate(keys):
            if key is None:
                continue
            before = newest.get(key)
            if before is not None:
                if before[0].needless is None:
                    before[0].needless = set()
                before[0].needless.add(before[1])
            newest[key] = (chunk, place)
        self._chunks.append(chunk)
        self._firsts.append(chunk.first)
        self._taken.clear()
        self.end += len(events)
        self.number += numbered
        self.size += len(chunk.data)
        self._forget()

    def after(self, number: int) -> int | None:
        """The position behind the change with this number; None when what follows it is not all here."""
        if not self.first_number <= number <= self.number:
            return None
        low, high = 0, len(self._chunks)
        while low < high:  # the first chunk that has a later change, or the number as its last
            middle = (low + high) // 2
            chunk = self._chunks[middle]
            if chunk.number + chunk.numbered < number:
                low = middle + 1
            else:
                high = middle
        if low == len(self._chunks):
            return self.end
        chunk = self._chunks[low]
        return chunk.first + number - chunk.number

    def chunks(self) -> list[Chunk]:
        """What it holds, oldest first. Chunks do not change."""
        return list(self._chunks)

    def holds(self, position: int) -> bool:
        """Whether all events from this position on are here."""
        return self.start <= position <= self.end

    def take(self, position: int, most: int = PIECE) -> tuple[bytes, int] | None:
        """What comes at a position, and the position behind it; None when the ring holds it no more."""
        if position == self.end:
            return b"", position
        if position < self.start or position > self.end:
            return None
        if position == self._firsts[-1]:
            return self._chunks[-1].data, self.end
        known = self._taken.get((position, most))
        if known is not None:
            return known
        at = bisect_right(self._firsts, position) - 1
        pieces: list[memoryview | bytes] = []
        size, begin = 0, position
        while size < most and at < len(self._chunks):
            chunk = self._chunks[at]
            found, place = chunk.pieces(position - chunk.first, most - size)
            pieces += found
            size += sum(map(len, found))
            position = chunk.first + place
            at += 1
        result = (b"".join(pieces), position)
        if len(self._taken) < 64:
            self._taken[begin, most] = result
        return result

    def clear(self, number: int) -> None:
        """Forget all events: what comes next follows the change with this number."""
        self._chunks, self._firsts, self._newest, self.size = [], [], {}, 0
        self._taken.clear()
        # No position of before is held any more, not even the one behind the newest.
        self.end += 1
        self.start = self.end
        self.first_number = self.number = number

    def _forget(self) -> None:
        gone = 0
        # The newest chunk stays, however large: those who keep up are to get it.
        while gone < len(self._chunks) - 1 and (
            self.size > self.most_bytes or self.end - self.start > self.most_events
        ):
            chunk = self._chunks[gone]
            self.size -= len(chunk.data)
            self.start += len(chunk.ends)
            self.first_number = chunk.number + chunk.numbered
            for place, key in enumerate(chunk.keys):
                if key is not None and self._newest.get(key) == (chunk, place):
                    del self._newest[key]
            gone += 1
        if gone:
            del self._chunks[:gone], self._firsts[:gone]
