"""The sparse indexes beside a segment, in Kafka's format, and the index of aborted transactions.

``.index``      8 bytes an entry:  offset - base offset (int32), position in the log file (int32)
``.timeindex`` 12 bytes an entry:  timestamp (int64), offset - base offset (int32): no record up to that
                                   offset has a later timestamp
``.txnindex``  34 bytes an entry:  version (int16), producer id, first offset, last offset (that of the abort
                                   marker) and the last stable offset at that time (int64 each)

Entries are written when a handful has gathered, when the segment closes, and at checkpoints. What a crash
takes is rebuilt from the log. A search reads a few entries of the file: no index is kept in memory.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.log.files import OpenFiles

PENDING_LIMIT = 128

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")


class _SparseIndex:
    """Entries of one fixed size, ordered by their first number."""

    __slots__ = ("_files", "_pending", "_stored", "path")

    entry: struct.Struct

    def __init__(self, files: OpenFiles, path: str, stored_bytes: int = 0) -> None:
        self._files = files
        self.path = path
        self._pending = bytearray()
        self._stored = stored_bytes // self.entry.size

    def __len__(self) -> int:
        return self._stored + len(self._pending) // self.entry.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        size = self.entry.size
        if number >= self._stored:
            key, value = self.entry.unpack_from(self._pending, (number - self._stored) * size)
        else:
            raw = os.pread(self._files.get(self.path).fileno(), size, number * size)
            if len(raw) < size:
                raise OSError(f"{self.path} is shorter than its {self._stored} entries")
            key, value = self.entry.unpack(raw)
        return key, value

    def add(self, key: int, value: int) -> None:
        self._pending += self.entry.pack(key, value)
        if len(self._pending) >= PENDING_LIMIT * self.entry.size:
            self.write()

    def write(self) -> None:
        """Hand gathered entries to the file."""
        if self._pending or self._stored == 0:
            size = self.entry.size
            descriptor = self._files.get(self.path, create=True).fileno()
            written = os.pwrite(descriptor, self._pending, self._stored * size)
            if written != len(self._pending):
                raise OSError(28, "no room for an index entry", self.path)
            self._stored += written // size
            self._pending.clear()

    def last(self) -> tuple[int, int] | None:
        count = len(self)
        return self[count - 1] if count else None

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose first number is at most ``key``."""
        low, high = 0, len(self)
        found: tuple[int, int] | None = None
        while low < high:
            middle = (low + high) // 2
            entry = self[middle]
            if entry[0] <= key:
                found = entry
                low = middle + 1
            else:
                high = middle
        return found

    def cut(self, entries: int) -> None:
        """Keep the first ``entries`` only."""
        if entries >= self._stored:
            del self._pending[(entries - self._stored) * self.entry.size :]
            return
        self._pending.clear()
        self._stored = entries
        os.ftruncate(self._files.get(self.path, create=True).fileno(), entries * self.entry.size)


class OffsetIndex(_SparseIndex):
    """Relative offset -> position in the log file."""

    __slots__ = ()
    entry = _OFFSET_ENTRY


class TimeIndex(_SparseIndex):
    """Timestamp -> relative offset."""

    __slots__ = ()
    entry = _TIME_ENTRY


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_aborted(transaction: AbortedTransaction) -> bytes:
    return _ABORTED.pack(0, *transaction)


def unpack_aborted(content: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a ``.txnindex``; a torn last one is left out (recovery writes it again).

    >>> aborted = AbortedTransaction(7, 10, 20, 10)
    >>> list(unpack_aborted(pack_aborted(aborted) + b"torn")) == [aborted]
    True
    """
    for position in range(0, len(content) - _ABORTED.size + 1, _ABORTED.size):
        yield AbortedTransaction._make(_ABORTED.unpack_from(content, position)[1:])
