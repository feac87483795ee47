"""Walking a log file batch by batch, checking every byte, and finding the way again behind damage.

The checksum of a batch covers neither its offset nor its length nor its leader epoch. The length is right if
the checksum is. Offsets are held against their neighbours: they rise from batch to batch, without gaps where
nothing was compacted. What cannot be noticed: an offset, in a compacted segment, that has moved within a gap.
"""

import io
import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from headwater.log.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_LENGTH,
    BatchHeader,
    crc_is_right,
    fault_at,
    read_header,
)

CHUNK = 4 << 20
LARGEST_BATCH = 1 << 30  # a length beyond this is not believed
LARGEST_OFFSET = 2**63 - 1
LEADER_EPOCH = 0  # of every batch: there was never another leader

_BASE = struct.Struct(">q")
_LARGEST_GAP = 1 << 40  # of offsets, that is believed of what follows an unexpected batch


class Found(NamedTuple):
    """A batch that is whole and right."""

    position: int
    header: BatchHeader
    batch: memoryview


class Damage(NamedTuple):
    """Bytes that are no batch. ``end`` is where the next right batch starts, or the file's end."""

    position: int
    end: int
    reason: str
    is_tail: bool  # nothing right follows
    declared_size: int  # what the header at ``position`` says, if it can be believed, else 0


class Bounds(NamedTuple):
    """What is known of the offsets of a segment."""

    end_offset: int = LARGEST_OFFSET  # where the next segment starts
    dense: bool = False  # never compacted: there are no gaps


UNBOUNDED = Bounds()


def scan(
    file: io.FileIO,
    start: int,
    end: int,
    expected_offset: int = 0,
    bounds: Bounds = UNBOUNDED,
    known: Mapping[int, Damage] | None = None,
    chunk: int = CHUNK,
) -> Iterator[Found | Damage]:
    """Every batch of the file between two positions, with the damage between them.

    ``expected_offset`` is the lowest offset that the first batch can have; where offsets are dense, the one
    it has. ``known`` damage, by position, is not searched again.
    """
    window = _Window(file, end, chunk)
    position = start
    may_skip = False
    while position < end:
        judged = _judge(window, position, end, expected_offset, bounds, may_skip)
        if isinstance(judged, Found):
            yield judged
            expected_offset = judged.header.next_offset
            position += len(judged.batch)
            may_skip = False
            continue
        reason, size = judged
        damage = known.get(position) if known else None
        if damage is None or damage.end > end:
            resume = _next_right_batch(window, position, size, end, expected_offset, bounds)
            is_tail = resume is None
            damage = Damage(position, end if resume is None else resume, reason, is_tail, size)
        yield damage
        position = damage.end
        may_skip = True  # the offsets that were in the damage


def _judge(
    window: "_Window", position: int, end: int, expected: int, bounds: Bounds, may_skip: bool
) -> Found | tuple[str, int]:
    """The batch at ``position``; or what is wrong with it, and its size if that can be believed, else 0."""
    view = window.at(position, HEADER_SIZE)
    if len(view) < HEADER_SIZE:
        return fault_at(view) or "", 0
    header = read_header(view)
    if not SMALLEST_LENGTH <= header.length <= LARGEST_BATCH:
        return f"length {header.length} is not believed", 0
    size = header.length + LOG_OVERHEAD
    if position + size > end:
        return f"cut short: {end - position} of {size} bytes", size
    if len(view) < size:
        view = window.at(position, size)
    view = view[:size]
    if header.magic != MAGIC or not crc_is_right(view, header):
        return fault_at(view) or "", size
    reason = misplaced(header, expected, bounds, may_skip)
    if reason is not None:
        return reason, size
    if header.base_offset > expected and position + size + HEADER_SIZE <= end:
        following = read_header(window.at(position + size, HEADER_SIZE))
        delta = header.last_offset_delta
        if contradicts(following, header.base_offset, delta, expected) and _is_right_batch(
            window, position + size, end, expected + delta + 1, bounds
        ):
            return f"offset {header.base_offset}, but {following.base_offset} follows", size
    return Found(position, header, view)


def misplaced(header: BatchHeader, expected: int, bounds: Bounds, may_skip: bool = False) -> str | None:
    """Why the batch cannot have its offset, if it cannot."""
    base = header.base_offset
    if header.leader_epoch != LEADER_EPOCH:
        return f"leader epoch {header.leader_epoch}, not {LEADER_EPOCH}"
    if base < expected or header.last_offset_delta < 0:
        return f"offset {base} is out of order, expected {expected} or later"
    if base > expected and bounds.dense and not may_skip:
        return f"offset {base} is out of order, expected {expected}"
    if header.next_offset > bounds.end_offset:
        return f"offset {header.last_offset} is past the end of the segment, {bounds.end_offset}"
    return None


def contradicts(following: BatchHeader, base: int, delta: int, expected: int) -> bool:
    """Whether the batch that follows one behind a gap shows that the gap is none: it fits only without."""
    if following.magic != MAGIC or following.leader_epoch != LEADER_EPOCH:
        return False
    return expected + delta < following.base_offset <= base + delta


def _next_right_batch(
    window: "_Window", damaged: int, declared: int, end: int, expected_offset: int, bounds: Bounds
) -> int | None:
    if declared and _is_right_batch(window, damaged + declared, end, expected_offset, bounds):
        return damaged + declared
    header = _believable_header(window, damaged, expected_offset, bounds)
    if header is not None:
        for candidate in _right_batches(window, damaged + 1, end, expected_offset, bounds):
            # What begins within the header shows that it is none: records come behind it.
            if candidate < damaged + HEADER_SIZE or _comes_next(window, damaged, header, candidate):
                return candidate
        if damaged + declared > end:
            return None  # the start of a batch that was being written
    for candidate in _right_batches(window, damaged + 1, end, expected_offset, bounds):
        if _goes_on_behind(window, candidate, end):
            return candidate
    return None


def _right_batches(
    window: "_Window", position: int, end: int, expected_offset: int, bounds: Bounds
) -> Iterator[int]:
    """Every position at which there is a batch with the right checksum."""
    while position + HEADER_SIZE <= end:
        chunk = bytes(window.at(position, CHUNK))
        # A batch starts 16 bytes in front of its magic byte.
        found = chunk.find(MAGIC, 16)
        while found != -1:
            if _is_right_batch(window, position + found - 16, end, expected_offset, bounds):
                yield position + found - 16
            found = chunk.find(MAGIC, found + 1)
        if len(chunk) <= 16:
            return
        position += len(chunk) - 16


# A record may hold whole batches as its value: a right batch behind damage need not be one of the log.


def _believable_header(window: "_Window", position: int, expected: int, bounds: Bounds) -> BatchHeader | None:
    """The header of the damaged batch, if its length may be the only thing that is wrong with it."""
    view = window.at(position, HEADER_SIZE)
    if len(view) < HEADER_SIZE:
        return None
    header = read_header(view)
    return None if header.magic != MAGIC or misplaced(header, expected, bounds, may_skip=True) else header


def _comes_next(window: "_Window", damaged: int, header: BatchHeader, candidate: int) -> bool:
    """Whether the batch at ``candidate`` is the one behind that of ``header``: the latter's checksum is right
    if it ends there, or its offset is the next."""
    if read_header(window.at(candidate, HEADER_SIZE)).base_offset == header.next_offset:
        return True
    extent = window.at(damaged, candidate - damaged)[: candidate - damaged]
    return len(extent) > HEADER_SIZE and crc32c(extent[CRC_START:]) == header.crc


def _is_right_batch(window: "_Window", position: int, end: int, expected_offset: int, bounds: Bounds) -> bool:
    if position + HEADER_SIZE > end:
        return False
    view = window.at(position, HEADER_SIZE)
    if len(view) < HEADER_SIZE:
        return False
    header = read_header(view)
    if header.magic != MAGIC or misplaced(header, expected_offset, bounds, may_skip=True):
        return False
    if not SMALLEST_LENGTH <= header.length <= LARGEST_BATCH or position + header.size > end:
        return False
    return crc_is_right(window.at(position, header.size), header)


def _goes_on_behind(window: "_Window", position: int, end: int) -> bool:
    """Whether what follows a right batch can be another one, whole or torn, or nothing."""
    header = read_header(window.at(position, HEADER_SIZE))
    position += header.size
    rest = bytes(window.at(position, HEADER_SIZE)[:HEADER_SIZE])
    if len(rest) < _BASE.size or not any(rest):
        return True
    (base_offset,) = _BASE.unpack_from(rest)
    if not header.next_offset <= base_offset <= header.next_offset + _LARGEST_GAP:
        return False
    return len(rest) <= 16 or rest[16] == MAGIC


def is_torn(file: io.FileIO, tail: Damage, expected_offset: int) -> bool:
    """Whether damage at the end of a log is what a crash leaves of a batch that was being written.

    Else it is a whole batch with a byte that has changed, or anything: that is for a person to look at.
    """
    length = tail.end - tail.position
    if length < HEADER_SIZE:
        return True
    content = read_fully(file, tail.position, length)
    if content.count(0) == length:
        return True  # a power failure may leave zeros where data was to come
    header = read_header(content)
    if (header.base_offset, header.leader_epoch, header.magic) != (expected_offset, LEADER_EPOCH, MAGIC):
        return False
    # Were its length wrong, and nothing else, the checksum of all that is there would be right.
    return header.size > length and crc32c(content[CRC_START:]) != header.crc


class _Window:
    """A moving view of the file."""

    def __init__(self, file: io.FileIO, end: int, chunk: int) -> None:
        self._file = file
        self._end = end
        self._chunk = chunk
        self._start = 0
        self._content = memoryview(b"")

    def at(self, position: int, size: int) -> memoryview:
        """``size`` bytes or more from ``position`` on; fewer only where the file ends."""
        size = max(min(size, self._end - position), 0)
        offset = position - self._start
        if offset < 0 or offset + size > len(self._content):
            wanted = max(min(max(size, self._chunk), self._end - position), 0)
            self._content = memoryview(read_fully(self._file, position, wanted))
            self._start = position
            offset = 0
        return self._content[offset:]


def read_fully(file: io.FileIO, position: int, size: int) -> bytes:
    """``size`` bytes at ``position``, or what there is up to the file's end."""
    content = os.pread(file.fileno(), size, position)
    if len(content) == size:
        return content
    pieces = [content]
    got = len(content)
    while content and got < size:
        content = os.pread(file.fileno(), size - got, position + got)
        pieces.append(content)
        got += len(content)
    return b"".join(pieces)
