"""A segment: one log file of record batches and the indexes beside it.

Only the last segment of a partition is written to. A segment never interprets records; it places batches,
finds them by offset and by time, and checks them on every read.
"""

import errno
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headwater.errors import CorruptData, DiskFull, StorageFailed
from headwater.log.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_LENGTH,
    BatchHeader,
    Buffer,
    read_header,
)
from headwater.log.files import OpenFiles
from headwater.log.index import AbortedIndex, AbortedTransaction, OffsetIndex, TimeIndex
from headwater.log.scan import (
    CHUNK,
    LARGEST_OFFSET,
    LEADER_EPOCH,
    Bounds,
    Damage,
    Found,
    contradicts,
    read_fully,
    scan,
)

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
INDEX_INTERVAL = 4096
LARGEST_RELATIVE_OFFSET = 2**31 - 1
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_WALK_BLOCK = 8192  # read at once when looking for an offset from an index entry on
_CAREFUL_CHUNK = 64 << 10
_ENTRIES_TRIED = 8  # of an index, before it is given up
_unpack_header = HEADER.unpack_from


class WouldBlock(Exception):
    """The bytes are not in the page cache; read them where waiting hurts nobody."""


class Unreadable(CorruptData):
    """Bytes of a segment are damaged; ``next_offset`` is the first readable one behind, if there is any."""

    next_offset: int | None = None


class Retired(Exception):
    """The segment was replaced or deleted since it was looked up; look again."""


class Chunk(NamedTuple):
    """Whole batches out of one segment."""

    data: Buffer
    next_offset: int  # that follows the last record of ``data``
    end_position: int


class Segment:
    """One segment of a partition.

    >>> import tempfile
    >>> from headwater.log.batch import assemble
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     segment = Segment(OpenFiles(), Path(folder), base_offset=5)
    ...     segment.create()
    ...     batch = assemble(b"opaque", record_count=2, base_offset=5, max_timestamp=99)
    ...     segment.append((batch,), len(batch), last_offset=6, max_timestamp=99)
    ...     bytes(segment.read(segment.locate(6), 6, max_bytes=1 << 20, end_offset=7).data) == batch
    True
    """

    __slots__ = (
        "_files",
        "_first_timestamp",
        "_since_index",
        "aborted",
        "base_offset",
        "bounds",
        "created_ms",
        "damage",
        "directory",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "retired",
        "size",
        "time_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: Path,
        base_offset: int,
        size: int = 0,
        index_size: int = 0,
        time_index_size: int = 0,
        aborted_size: int = 0,
        created_ms: int = 0,
        dense: bool = False,
    ) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.log_path = self.path(".log")
        self.size = size
        self.offset_index = OffsetIndex(files, self.path(".index"), index_size)
        self.time_index = TimeIndex(files, self.path(".timeindex"), time_index_size)
        self.aborted = AbortedIndex(files, self.path(".txnindex"), aborted_size)
        self.created_ms = created_ms
        self.bounds = Bounds(dense=dense)
        self.damage: dict[int, Damage] = {}  # found so far, by position
        self.retired = False
        self.max_timestamp = -1
        self.max_timestamp_offset = -1  # last offset of the batch that has it
        self._first_timestamp: int | None = None
        self._since_index = 0

    def path(self, suffix: str) -> str:
        """The file of this segment with that suffix."""
        return os.path.join(self.directory, f"{self.base_offset:020d}{suffix}")

    def create(self) -> None:
        """Make the log file, empty."""
        self._files.get(self.log_path, create=True)

    def file(self) -> io.FileIO:
        """The log file, opened. Hold on to it while using its descriptor."""
        file = self._files.get(self.log_path)
        if self.retired:
            raise Retired
        return file

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} {self.size} bytes>"

    # -- writing ----------------------------------------------------------------------------------

    def append(self, pieces: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. After an error nothing of it is in the segment."""
        position = self.size
        try:
            file = self.file()  # held: one that the cache lets go would be closed
            descriptor = file.fileno()
            try:
                written = os.pwritev(descriptor, pieces, position)
                if written != size:
                    self._write_rest(descriptor, pieces, written, position)
            except OSError:
                self._undo(descriptor, position)
                raise
        except OSError as error:
            raise storage_error("append to", self.log_path, error) from error
        if self._since_index > INDEX_INTERVAL:
            self._index(last_offset, position)
        self._since_index += size
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp

    def _write_rest(self, descriptor: int, pieces: Sequence[Buffer], written: int, position: int) -> None:
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            count = os.pwrite(descriptor, rest, position + written)
            written += count
            rest = rest[count:]

    def _undo(self, descriptor: int, position: int) -> None:
        """Take back a part of a batch. If even that fails, recovery will: the size in memory rules."""
        try:
            os.ftruncate(descriptor, position)
        except OSError:
            pass

    def _index(self, last_offset: int, position: int) -> None:
        self._since_index = 0
        try:
            self.offset_index.add(last_offset - self.base_offset, position)
            self._index_time()
        except OSError:
            # No room for index entries is no reason to refuse records: they wait in memory.
            pass

    def _index_time(self) -> None:
        if self.max_timestamp_offset < 0:
            return
        last = self.time_index.last()
        if last is None or self.max_timestamp > last[0]:
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Take a batch that is in the file already into account: indexes, size, timestamps."""
        if self._since_index > INDEX_INTERVAL:
            self._index(header.last_offset, position)
        self._since_index += header.size
        self.size = position + header.size
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = header.max_timestamp

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction in the ``.txnindex`` (made when the first one is noted)."""
        self.aborted.add(aborted)

    def write_indexes(self) -> None:
        """Hand gathered index entries to their files."""
        self.offset_index.write()
        self.time_index.write()
        self.aborted.write()

    def seal(self) -> None:
        """Finish the indexes: the segment takes no more batches."""
        self._index_time()
        self.write_indexes()

    def index_paths(self) -> list[str]:
        """The index files that there are once they are written."""
        paths = [self.offset_index.path, self.time_index.path]
        return [*paths, self.aborted.path] if len(self.aborted) else paths

    def truncate(self, size: int) -> None:
        """Cut the log file; the caller rebuilds the indexes behind."""
        file = self.file()
        os.ftruncate(file.fileno(), size)
        self.size = size
        self.damage = {position: damage for position, damage in self.damage.items() if position < size}

    def reset_indexes(self, keep_before: int = 0) -> int:
        """Drop index entries for positions from ``keep_before`` on, or all that are not to be believed.

        Returns the position from which a scan with ``index_batch`` makes them again: that of the last entry
        that stays, for timestamps behind it are in no index.
        """
        try:
            position = self._cut_indexes(keep_before)
        except (OSError, CorruptData):
            position = 0
        if position == 0:
            self.offset_index.clear()
            self.time_index.clear()
        last = self.time_index.last()
        self.max_timestamp = last[0] if last else -1
        self.max_timestamp_offset = last[1] + self.base_offset if last else -1
        self._since_index = 0
        return position

    def _cut_indexes(self, keep_before: int) -> int:
        offsets, times = self.offset_index, self.time_index
        offsets.cut(offsets.first_with_value(keep_before))
        last = offsets.last()
        if last is None:
            return 0
        relative, position = last
        header = self.header_at(position)
        if position >= keep_before or header is None or header.last_offset != self.base_offset + relative:
            return 0
        times.cut(times.first_with_value(relative))
        last = times.last()
        return position if last is None or self.holds_time(*last) else 0

    def continue_index(self, since_index: int) -> None:
        """``since_index`` bytes have come since the last entry of the index."""
        self._since_index = since_index

    # -- finding ----------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """The position of the batch that holds ``offset`` or, where that was compacted away, of the next one.

        CorruptData where it lies in damage.
        """
        start, first = self._walk_start(offset)
        file = self.file()
        end = self.size
        position, expected = start, first
        block, block_start = b"", start
        while position < end:
            at = position - block_start
            if at + HEADER_SIZE > len(block):
                block = os.pread(file.fileno(), _WALK_BLOCK, position)
                block_start, at = position, 0
                if len(block) < HEADER_SIZE:
                    break
            base, length, epoch, magic, _, _, delta, *_ = _unpack_header(block, at)
            size = length + LOG_OVERHEAD
            if base != expected or magic != MAGIC or epoch != LEADER_EPOCH or delta < 0:
                break
            if size < HEADER_SIZE or position + size > end:
                break
            if base + delta >= offset:
                return position
            expected = base + delta + 1
            position += size
        else:
            return end
        # A gap that compaction made, or damage: then any header since the start may be wrong.
        return self._locate_carefully(offset, start, first)

    def _walk_start(self, offset: int) -> tuple[int, int]:
        """The position of a batch not behind ``offset``, and the first offset that it surely has."""
        index = self.offset_index
        try:
            number = index.floor(offset - self.base_offset)
            for tried in range(number, max(number - _ENTRIES_TRIED, -1), -1):
                relative, position = index[tried]
                header = self.header_at(position)
                if header is not None and header.last_offset == self.base_offset + relative:
                    return position, header.base_offset
        except OSError:  # the index is shorter than it was
            if self.retired:
                raise Retired from None
        return 0, self.base_offset

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at ``position``, unchecked; None if that is not in the file."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return None
        file = self.file()
        raw = os.pread(file.fileno(), HEADER_SIZE, position)
        return read_header(raw) if len(raw) == HEADER_SIZE else None

    def _locate_carefully(self, offset: int, start: int, first: int) -> int:
        damage: Damage | None = None
        for item in self.scan(start, first, _CAREFUL_CHUNK):
            if isinstance(item, Damage):
                damage = item
                continue
            if item.header.last_offset >= offset:
                if damage is not None and offset < item.header.base_offset:
                    raise self._corrupt(damage)
                return item.position
            damage = None
        if damage is not None:
            raise self._corrupt(damage)
        return self.size

    def scan(self, start: int = 0, first: int | None = None, chunk: int = CHUNK) -> Iterator[Found | Damage]:
        """Every batch from the one at ``start``, whose offset is ``first``, on, and the damage between."""
        first = self.base_offset if first is None else first
        for item in scan(self.file(), start, self.size, first, self.bounds, self.damage, chunk):
            if isinstance(item, Damage):
                self.damage.setdefault(item.position, item)
            yield item

    def first_timestamp(self) -> int | None:
        """The timestamp by which the segment is rolled: the latest one of its first batch."""
        if self._first_timestamp is None and self.size >= HEADER_SIZE:
            self._first_timestamp = read_header(read_fully(self.file(), 0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    def largest_timestamp(self) -> int:
        """The latest timestamp in the segment; -1 when there is none."""
        if self.max_timestamp_offset < 0 and self.size:
            last = self.time_index.last()
            if last is not None:
                self.max_timestamp, relative = last
                self.max_timestamp_offset = relative + self.base_offset
        return self.max_timestamp

    def holds_time(self, timestamp: int, relative: int) -> bool:
        """Whether an entry of the time index is true: a batch ends at that offset, and has that timestamp."""
        header = self.header_at(self.locate(self.base_offset + relative))
        wanted = (timestamp, self.base_offset + relative)
        return header is not None and (header.max_timestamp, header.last_offset) == wanted

    def position_before(self, timestamp: int) -> tuple[int, int]:
        """A position before which every record is older than ``timestamp``, and the first offset there."""
        try:
            number = self.time_index.floor(timestamp - 1)
            if number >= 0:
                latest, relative = self.time_index[number]
                if self.holds_time(latest, relative):
                    position = self.locate(self.base_offset + relative)
                    header = self.header_at(position)
                    if header is not None:
                        return position, header.base_offset
        except (OSError, CorruptData):
            if self.retired:
                raise Retired from None
        return 0, self.base_offset

    # -- reading ----------------------------------------------------------------------------------

    def read(
        self,
        position: int,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> Chunk:
        """Whole, checked batches from ``position`` on that start before ``end_offset``.

        The first of them holds ``offset`` or, where that was compacted away, follows it. At most
        ``max_bytes`` of them, but with ``at_least_one`` the first batch even if it is larger.
        """
        file = self.file()
        end = self.size
        wanted = min(max_bytes, end - position)
        if wanted < HEADER_SIZE:
            wanted = min(HEADER_SIZE, end - position) if at_least_one else 0
        if wanted <= 0:
            return Chunk(b"", -1, position)
        data = self._pread(file, wanted, position, may_block)
        good, next_offset, fault = self._right_batches(data, position, offset, end_offset)
        if good:
            return Chunk(memoryview(data)[:good] if good < len(data) else data, next_offset, position + good)
        if fault is _PAST_END or (fault is None and not at_least_one):
            return Chunk(b"", -1, position)
        if fault is None:  # the first batch is larger than what was read
            size = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if position + size <= end:
                data = self._pread(file, size, position, may_block)
                good, next_offset, fault = self._right_batches(data, position, offset, end_offset)
                if good:
                    return Chunk(data, next_offset, position + good)
        if not may_block:
            raise WouldBlock  # a search for the end of the damage takes its time
        # A damaged header may have led here though `offset` lies behind the damage.
        sure = self._locate_carefully(offset, *self._walk_start(offset))
        if sure == position:
            raise self._corrupt(Damage(position, end, fault or "it is not whole", True, 0))
        if sure >= end:
            return Chunk(b"", -1, end)
        return self.read(sure, offset, max_bytes, end_offset, at_least_one, may_block)

    def _right_batches(
        self, data: Buffer, start: int, offset: int, end_offset: int
    ) -> tuple[int, int, str | None]:
        """Bytes of whole, right batches in front of ``data``, which is at ``start`` of the file; the offset
        after them; and what is wrong behind, if that can be seen."""
        view = memoryview(data)
        total = len(data)
        position = 0
        expected = offset
        while position + HEADER_SIZE <= total:
            fields = _unpack_header(data, position)
            base, length = fields[0], fields[1]
            if fields[3] != MAGIC or fields[2] != LEADER_EPOCH or length < SMALLEST_LENGTH:
                return position, expected, "no batch is here"
            end = position + length + LOG_OVERHEAD
            next_offset = base + fields[6] + 1
            if (
                base != expected
                and (base > expected or position or next_offset <= offset)  # else a read from its middle
                and not self._may_follow(base, next_offset, expected, start + end)
            ):
                return position, expected, f"offset {base} is out of order"
            if base >= end_offset:
                return position, expected, _PAST_END
            if end > total:
                break
            if crc32c(view[position + CRC_START : end]) != fields[4]:
                return position, expected, "the checksum does not match"
            position = end
            expected = next_offset
        return position, expected, None

    def _may_follow(self, base: int, next_offset: int, expected: int, end: int) -> bool:
        """Whether a batch may have offsets from ``base`` on where ``expected`` would be without a gap."""
        if base < expected or self.bounds.dense or next_offset > self.bounds.end_offset:
            return False
        following = self.header_at(end)
        delta = next_offset - base - 1
        return following is None or not contradicts(following, base, delta, expected)

    def _pread(self, file: io.FileIO, size: int, position: int, may_block: bool) -> Buffer:
        try:
            if not may_block and _NOWAIT:
                _check_cached(file.fileno(), size, position)
            return os.pread(file.fileno(), size, position)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as error:
            raise storage_error("read", self.log_path, error) from error

    def _corrupt(self, damage: Damage) -> Unreadable:
        header = self.header_at(damage.end)
        follows = header.base_offset if header is not None else self.bounds.end_offset
        cause = f"{damage.reason}; {damage.end - damage.position} bytes are damaged"
        if follows != LARGEST_OFFSET:
            cause += f", the next good offset is {follows}"
        error = Unreadable("read", f"{self.log_path} at byte {damage.position}", cause)
        error.next_offset = follows if follows != LARGEST_OFFSET else None
        return error


_PAST_END = "past the end"


_PROBE = [bytearray(1)]  # what is read into it does not matter


def _check_cached(descriptor: int, size: int, position: int) -> None:
    """Raise BlockingIOError unless the first and the last byte are in the page cache.

    What lies between nearly always is then, too. Reading all of it without waiting would need a buffer, and
    clearing a fresh megabyte costs more than reading it.
    """
    try:
        os.preadv(descriptor, _PROBE, position, _NOWAIT)
        os.preadv(descriptor, _PROBE, position + size - 1, _NOWAIT)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise


def storage_error(operation: str, subject: str, error: OSError) -> DiskFull | StorageFailed:
    """The catalogue's error for what the operating system said."""
    reason = (error.strerror or str(error)).lower()
    kind = DiskFull if error.errno in NO_SPACE else StorageFailed
    return kind(operation, subject, reason)
