"""Walking a log file batch by batch, checking every byte, and finding the way again behind damage."""

import io
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.log.batch import (
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

_LENGTH = struct.Struct(">i")


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


def scan(file: io.FileIO, start: int, end: int, expected_offset: int = 0) -> Iterator[Found | Damage]:
    """Every batch of the file between two positions, with the damage between them.

    ``expected_offset`` is the lowest offset that the first batch can have.
    """
    window = _Window(file, end)
    position = start
    while position < end:
        view = window.at(position, HEADER_SIZE)
        size = HEADER_SIZE
        if len(view) >= HEADER_SIZE:
            length = _LENGTH.unpack_from(view, 8)[0]
            if SMALLEST_LENGTH <= length <= LARGEST_BATCH:
                size = length + LOG_OVERHEAD
                view = window.at(position, size)
        reason = fault_at(view)
        if reason is None:
            header = read_header(view)
            if header.base_offset >= expected_offset and header.last_offset_delta >= 0:
                yield Found(position, header, view[:size])
                expected_offset = header.next_offset
                position += size
                continue
            reason = f"offset {header.base_offset} is out of order, expected {expected_offset} or later"
        declared = size if size > HEADER_SIZE else 0
        resume = _next_right_batch(window, position, declared, end, expected_offset)
        is_tail = resume is None
        resume = end if resume is None else resume
        yield Damage(position, resume, reason, is_tail, declared)
        position = resume


def _next_right_batch(
    window: "_Window", damaged: int, declared: int, end: int, expected_offset: int
) -> int | None:
    if declared and _is_right_batch(window, damaged + declared, end, expected_offset):
        return damaged + declared
    position = damaged + 1
    while position + HEADER_SIZE <= end:
        view = window.at(position, CHUNK)
        chunk = bytes(view)
        # A batch starts 16 bytes in front of its magic byte.
        found = chunk.find(MAGIC, 16)
        while found != -1:
            if _is_right_batch(window, position + found - 16, end, expected_offset):
                return position + found - 16
            found = chunk.find(MAGIC, found + 1)
        if len(chunk) <= 16:
            return None
        position += len(chunk) - 16
    return None


def _is_right_batch(window: "_Window", position: int, end: int, expected_offset: int) -> bool:
    if position + HEADER_SIZE > end:
        return False
    view = window.at(position, HEADER_SIZE)
    if len(view) < HEADER_SIZE:
        return False
    header = read_header(view)
    if header.magic != MAGIC or header.base_offset < expected_offset or header.last_offset_delta < 0:
        return False
    if not SMALLEST_LENGTH <= header.length <= LARGEST_BATCH or position + header.size > end:
        return False
    return crc_is_right(window.at(position, header.size), header)


class _Window:
    """A moving view of the file."""

    def __init__(self, file: io.FileIO, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._content = memoryview(b"")

    def at(self, position: int, size: int) -> memoryview:
        """``size`` bytes or more from ``position`` on; fewer only where the file ends."""
        size = min(size, self._end - position)
        offset = position - self._start
        if offset < 0 or offset + size > len(self._content):
            wanted = min(max(size, CHUNK), self._end - position)
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
