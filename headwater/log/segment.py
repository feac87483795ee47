"""A segment: one log file of record batches and the indexes beside it.

Only the last segment of a partition is written to. A segment never interprets records; it places batches,
finds them by offset and by time, and checks them on every read.
"""

import errno
import io
import os
from collections.abc import Sequence
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
from headwater.log.index import (
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    pack_aborted,
    unpack_aborted,
)
from headwater.log.scan import Damage, read_fully, scan

INDEX_INTERVAL = 4096
LARGEST_RELATIVE_OFFSET = 2**31 - 1
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_unpack_header = HEADER.unpack_from


class WouldBlock(Exception):
    """The bytes are not in the page cache; read them where waiting hurts nobody."""


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
    ...     bytes(segment.read(segment.locate(6), max_bytes=1 << 20, end_offset=7).data) == batch
    True
    """

    __slots__ = (
        "_files",
        "_first_timestamp",
        "_since_index",
        "base_offset",
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
        created_ms: int = 0,
    ) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.log_path = self.path(".log")
        self.size = size
        self.offset_index = OffsetIndex(files, self.path(".index"), index_size)
        self.time_index = TimeIndex(files, self.path(".timeindex"), time_index_size)
        self.created_ms = created_ms
        self.damage: list[Damage] = []
        self.retired = False
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
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
        descriptor = self.file().fileno()
        try:
            written = os.pwritev(descriptor, pieces, position)
            if written != size:
                self._write_rest(descriptor, pieces, written, position)
        except OSError as error:
            self._undo(descriptor, position)
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
        try:
            self.offset_index.add(last_offset - self.base_offset, position)
            self._index_time()
            self._since_index = 0
        except OSError:
            # No room for an index entry is no reason to refuse records: the next one will do.
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
            self.offset_index.add(header.last_offset - self.base_offset, position)
            self._index_time()
            self._since_index = 0
        self._since_index += header.size
        self.size = position + header.size
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = header.max_timestamp

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction in the ``.txnindex`` (made when the first one is noted)."""
        with open(self.path(".txnindex"), "ab") as file:
            file.write(pack_aborted(aborted))

    def aborted(self) -> list[AbortedTransaction]:
        try:
            return list(unpack_aborted(Path(self.path(".txnindex")).read_bytes()))
        except FileNotFoundError:
            return []

    def write_indexes(self) -> None:
        """Hand gathered index entries to their files."""
        self.offset_index.write()
        self.time_index.write()

    def seal(self) -> None:
        """Finish the indexes: the segment takes no more batches."""
        self._index_time()
        self.write_indexes()

    def truncate(self, size: int) -> None:
        """Cut the log file; the caller rebuilds the indexes behind."""
        os.ftruncate(self.file().fileno(), size)
        self.size = size

    def reset_indexes(self, keep_before: int = 0) -> None:
        """Drop index entries for positions from ``keep_before`` on; a scan from there makes them again."""
        offsets = self.offset_index
        count = len(offsets)
        while count and offsets[count - 1][1] >= keep_before:
            count -= 1
        offsets.cut(count)
        last_kept = offsets.last()
        times = self.time_index
        count = len(times)
        while count and (last_kept is None or times[count - 1][1] > last_kept[0]):
            count -= 1
        times.cut(count)
        last_time = times.last()
        self.max_timestamp = last_time[0] if last_time else -1
        self.max_timestamp_offset = last_time[1] + self.base_offset if last_time else -1
        self._since_index = 0

    # -- finding ----------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """The position of the batch that holds ``offset`` or, where that is gone, of the next one."""
        entry = self.offset_index.floor(offset - self.base_offset)
        position = entry[1] if entry else 0
        descriptor = self.file().fileno()
        end = self.size
        while position < end:
            raw = os.pread(descriptor, HEADER_SIZE, position)
            if len(raw) < HEADER_SIZE:
                return self._past_damage(position)
            header = read_header(raw)
            if (
                header.magic != MAGIC
                or header.length < SMALLEST_LENGTH
                or header.last_offset_delta < 0
                or header.base_offset < self.base_offset
                or position + header.size > end
            ):
                position = self._past_damage(position)
                continue
            if header.base_offset + header.last_offset_delta >= offset:
                return position
            position += header.size
        return end

    def _past_damage(self, position: int) -> int:
        """The end of the damage at ``position``."""
        return self._note_damage(position).end

    def _note_damage(self, position: int) -> Damage:
        for damage in self.damage:
            if damage.position <= position < damage.end:
                return damage
        for item in scan(self.file(), position, self.size):
            if isinstance(item, Damage) and item.position == position:
                self.damage.append(item)
                return item
            break
        return Damage(position, self.size, "no batch is here", True, 0)

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

    def position_before(self, timestamp: int) -> int:
        """A position before which every record is older than ``timestamp``."""
        entry = self.time_index.floor(timestamp - 1)
        return self.locate(self.base_offset + entry[1]) if entry else 0

    # -- reading ----------------------------------------------------------------------------------

    def read(
        self,
        position: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> Chunk:
        """Whole, checked batches from ``position`` on that start before ``end_offset``.

        At most ``max_bytes`` of them, but with ``at_least_one`` the first batch even if it is larger.
        """
        file = self.file()
        end = self.size
        wanted = min(max_bytes, end - position)
        if wanted < HEADER_SIZE:
            wanted = min(HEADER_SIZE, end - position) if at_least_one else 0
        if wanted <= 0:
            return Chunk(b"", -1, position)
        data = self._pread(file, wanted, position, may_block)
        good, next_offset, fault = _checked_prefix(data, end_offset)
        if good:
            return Chunk(memoryview(data)[:good] if good < len(data) else data, next_offset, position + good)
        if fault is not None:
            raise self._corrupt(position, fault)
        if next_offset == _PAST_END or not at_least_one:
            return Chunk(b"", -1, position)
        # The first batch is larger than what was read.
        if len(data) < HEADER_SIZE:
            raise self._corrupt(position, "the file ends within a batch header")
        size = read_header(data).size
        if position + size > end:
            raise self._corrupt(position, f"a batch of {size} bytes goes past the end of the file")
        data = self._pread(file, size, position, may_block)
        good, next_offset, fault = _checked_prefix(data, end_offset)
        if fault is not None or not good:
            if not may_block and len(data) < size:
                raise WouldBlock
            raise self._corrupt(position, fault or "a batch is cut short")
        return Chunk(data, next_offset, position + good)

    def _pread(self, file: io.FileIO, size: int, position: int, may_block: bool) -> Buffer:
        try:
            if not may_block and _NOWAIT:
                _check_cached(file.fileno(), size, position)
            return os.pread(file.fileno(), size, position)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as error:
            raise storage_error("read", self.log_path, error) from error

    def _corrupt(self, position: int, reason: str) -> CorruptData:
        damage = self._note_damage(position)
        where = f"{self.log_path} at byte {position}"
        return CorruptData("read", where, f"{reason}; {damage.end - damage.position} bytes are damaged")


_PAST_END = -2


def _checked_prefix(data: Buffer, end_offset: int) -> tuple[int, int, str | None]:
    """Bytes of whole, right batches in front, the offset after them, and what is wrong behind if none is."""
    view = memoryview(data)
    total = len(data)
    position = 0
    next_offset = -1
    while position + HEADER_SIZE <= total:
        fields = _unpack_header(data, position)
        base_offset, length = fields[0], fields[1]
        if base_offset >= end_offset:
            return position, next_offset if position else _PAST_END, None
        if fields[3] != MAGIC or length < SMALLEST_LENGTH:
            return position, next_offset, "no batch is here"
        end = position + length + LOG_OVERHEAD
        if end > total:
            break
        if crc32c(view[position + CRC_START : end]) != fields[4]:
            return position, next_offset, "the checksum does not match"
        position = end
        next_offset = base_offset + fields[6] + 1
    return position, next_offset, None


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
