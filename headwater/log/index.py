"""The sparse indexes beside a segment, in Kafka's format, and the index of aborted transactions.

``.index``      8 bytes an entry:  offset - base offset (int32), position in the log file (int32)
``.timeindex`` 12 bytes an entry:  timestamp (int64), offset - base offset (int32): no record up to that
                                   offset has a later timestamp
``.txnindex``  34 bytes an entry:  version (int16), producer id, first offset, last offset (that of the abort
                                   marker) and the last stable offset at that time (int64 each)

Entries are written when a handful has gathered, when the segment closes, and at checkpoints. What a crash
takes is rebuilt from the log. A search reads a few entries of the file: no index is kept in memory. None of
the formats has a checksum: who uses an entry holds it against the log, those of aborted transactions when
the partition is opened (headwater.log.aborted).
"""

import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.log.files import OpenFiles

PENDING_LIMIT = 128
_BLOCK = 512  # entries that a search reads at once when it has come this close

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")


class _SparseIndex:
    """Entries of one fixed size, ordered by their first number.

    One thread adds, any may search: entries that gather and the number of those in the file are replaced
    together.
    """

    __slots__ = ("_files", "_state", "path")

    entry: struct.Struct

    def __init__(self, files: OpenFiles, path: str, stored_bytes: int = 0) -> None:
        self._files = files
        self.path = path
        self._state = (stored_bytes // self.entry.size, b"")  # entries in the file, and those to be written

    def __len__(self) -> int:
        stored, pending = self._state
        return stored + len(pending) // self.entry.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        stored, pending = self._state
        if number >= stored:
            return self._unpack(pending, number - stored)
        return self._unpack(self._read(number, 1), 0)

    def _unpack(self, entries: bytes, number: int) -> tuple[int, int]:
        key, value = self.entry.unpack_from(entries, number * self.entry.size)
        return key, value

    def _read(self, first: int, count: int) -> bytes:
        size = self.entry.size
        file = self._files.get(self.path)
        raw = os.pread(file.fileno(), count * size, first * size)
        if len(raw) < count * size:
            raise OSError(errno.EIO, f"it is shorter than {first + count} entries", self.path)
        return raw

    def add(self, key: int, value: int) -> None:
        """Take an entry. An error says that there is no room to write; the entry is kept nevertheless."""
        stored, pending = self._state
        pending += self.entry.pack(key, value)
        self._state = (stored, pending)
        if len(pending) >= PENDING_LIMIT * self.entry.size:
            self.write()

    def write(self) -> None:
        """Hand gathered entries to the file, which is made if it is not there."""
        stored, pending = self._state
        if pending or stored == 0:
            size = self.entry.size
            file = self._files.get(self.path, create=True)
            written = os.pwrite(file.fileno(), pending, stored * size)
            if written != len(pending):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            self._state = (stored + written // size, b"")

    def last(self) -> tuple[int, int] | None:
        count = len(self)
        return self[count - 1] if count else None

    def floor(self, key: int) -> int:
        """The number of the last entry whose first number is at most ``key``; -1 when there is none."""
        stored, pending = self._state
        if pending and self._unpack(pending, 0)[0] <= key:
            return stored + self._search(pending, key)
        low, high = -1, stored  # entry low is at most key, entry high is not
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if self._unpack(self._read(middle, 1), 0)[0] <= key:
                low = middle
            else:
                high = middle
        if high - low <= 1:
            return low
        return low + 1 + self._search(self._read(low + 1, high - low - 1), key)

    def _search(self, entries: bytes, key: int) -> int:
        low, high = -1, len(entries) // self.entry.size
        while high - low > 1:
            middle = (low + high) // 2
            if self._unpack(entries, middle)[0] <= key:
                low = middle
            else:
                high = middle
        return low

    def first_with_value(self, value: int) -> int:
        """The number of the first entry whose second number is ``value`` or more: they rise as well."""
        low, high = -1, len(self)
        while high - low > 1:
            middle = (low + high) // 2
            if self[middle][1] < value:
                low = middle
            else:
                high = middle
        return high

    def cut(self, entries: int) -> None:
        """Keep the first ``entries`` only."""
        stored, pending = self._state
        if entries < stored:
            file = self._files.get(self.path, create=True)
            os.ftruncate(file.fileno(), entries * self.entry.size)
        kept = max(entries - stored, 0) * self.entry.size
        self._state = (min(entries, stored), pending[:kept])

    def clear(self) -> None:
        """Drop all entries and whatever else is in the file."""
        self._state = (0, b"")
        try:
            file = self._files.get(self.path, create=True)
            os.ftruncate(file.fileno(), 0)
        except OSError:  # a full disk may not even take a new file; entries are written over what is there
            pass


class OffsetIndex(_SparseIndex):
    """Relative offset of a batch's last record -> position of the batch in the log file."""

    __slots__ = ()
    entry = _OFFSET_ENTRY


class TimeIndex(_SparseIndex):
    """Timestamp -> relative offset of the last record of the batch that has it."""

    __slots__ = ()
    entry = _TIME_ENTRY


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


ABORTED_SIZE = _ABORTED.size


def pack_aborted(transaction: AbortedTransaction) -> bytes:
    return _ABORTED.pack(0, *transaction)


def unpack_aborted(content: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a ``.txnindex``; a torn last one is left out (recovery writes it again).

    >>> aborted = AbortedTransaction(7, 10, 20, 10)
    >>> list(unpack_aborted(pack_aborted(aborted) + b"torn")) == [aborted]
    True
    """
    for position in range(0, len(content) - ABORTED_SIZE + 1, ABORTED_SIZE):
        yield AbortedTransaction._make(_ABORTED.unpack_from(content, position)[1:])


class AbortedIndex:
    """The ``.txnindex`` of a segment. There is no file while nothing was aborted."""

    __slots__ = ("_files", "_pending", "_stored", "is_torn", "path")

    def __init__(self, files: OpenFiles, path: str, stored_bytes: int = 0) -> None:
        self._files = files
        self.path = path
        self._stored, torn = divmod(stored_bytes, ABORTED_SIZE)
        self.is_torn = bool(torn)  # it ends within an entry
        self._pending = b""

    def __len__(self) -> int:
        return self._stored + len(self._pending) // ABORTED_SIZE

    def add(self, transaction: AbortedTransaction) -> None:
        """Take an entry. An error says that there is no room to write; the entry is kept nevertheless."""
        self._pending += pack_aborted(transaction)
        self.write()

    def write(self) -> None:
        """Hand entries that had no room before to the file."""
        if self._pending:
            file = self._files.get(self.path, create=True)
            written = os.pwrite(file.fileno(), self._pending, self._stored * ABORTED_SIZE)
            if written != len(self._pending):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            self._stored += written // ABORTED_SIZE
            self._pending = b""

    def entries(self) -> list[AbortedTransaction]:
        stored = b""
        if self._stored:
            file = self._files.get(self.path)
            stored = os.pread(file.fileno(), self._stored * ABORTED_SIZE, 0)
        return list(unpack_aborted(stored + self._pending))

    def are_plausible(self, base_offset: int, end_offset: int) -> bool:
        """Whether the entries can be those of a segment with these offsets."""
        if self.is_torn:
            return False
        previous = base_offset - 1
        for entry in self.entries():
            ordered = (
                previous < entry.last_offset < end_offset and 0 <= entry.first_offset < entry.last_offset
            )
            if not ordered or entry.producer_id < 0:
                return False
            previous = entry.last_offset
        return True

    def keep_before(self, offset: int) -> None:
        """Drop the entries of markers from ``offset`` on."""
        kept = sum(1 for entry in self.entries() if entry.last_offset < offset)
        self._pending = self._pending[: max(kept - self._stored, 0) * ABORTED_SIZE]
        if kept < self._stored or self.is_torn:
            self._stored = min(kept, self._stored)
            file = self._files.get(self.path, create=True)
            os.ftruncate(file.fileno(), self._stored * ABORTED_SIZE)
            self.is_torn = False
