"""Record batches as Arrow columns, without a Python object for each record.

One tight loop finds where each record starts (a record says only how long it is); the numbers in front of key
and value are then decoded for all records at once, and keys and values are copied by Arrow from their place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.client.bare_requests import Fetched
from headwater.errors import CorruptData, InvalidBatch
from headwater.log.batch import HEADER_SIZE, BatchHeader, crc_is_right, split
from headwater.log.compression import NONE
from headwater.log.records import ABORT, DECOMPRESSED_LIMIT, read_control, unpack

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

CREATE_TIME, LOG_APPEND_TIME = 0, 1
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_Batch = tuple[BatchHeader, int, int]  # the header, and from where to where its records lie in the data


class Columns(Protocol):
    """Records of one partition, in order. Offsets and times are numbers; the rest is made when asked for."""

    @property
    def offsets(self) -> Integers: ...

    @property
    def timestamps(self) -> Integers:
        """In milliseconds."""

    @property
    def timestamp_types(self) -> npt.NDArray[np.int8]: ...

    def __len__(self) -> int: ...

    def keys(self) -> pa.BinaryArray:
        """The keys, null where there is none."""

    def values(self) -> pa.BinaryArray:
        """The values, null where there is none."""

    def headers(self) -> pa.ListArray:
        """The headers of each record, null where it has none, as Spark's connector gives them."""


@dataclass(frozen=True)
class BatchColumns:
    """The columns of records as they lie in their batches."""

    offsets: Integers
    timestamps: Integers
    timestamp_types: npt.NDArray[np.int8]
    _data: bytes
    _keys: tuple[Integers, Integers]  # starts and lengths; a negative length is a null
    _values: tuple[Integers, Integers]
    _headers: Integers  # where the number of headers stands

    def __len__(self) -> int:
        return len(self.offsets)

    def keys(self) -> pa.BinaryArray:
        return _pieces(self._data, *self._keys)

    def values(self) -> pa.BinaryArray:
        return _pieces(self._data, *self._values)

    def headers(self) -> pa.ListArray:
        array = np.frombuffer(self._data, np.uint8)
        counts, _ = _varints(array, self._headers)
        if not counts.any():
            return pa.nulls(len(self), HEADERS)
        rows = [
            list(_header_pairs(self._data, position)) if count else None
            for position, count in zip(self._headers.tolist(), counts.tolist(), strict=True)
        ]
        return pa.array(rows, HEADERS)


def decode(fetched: Fetched, start: int, end: int) -> Columns | None:
    """The committed records of an answer from offset ``start`` up to ``end``; None when there are none.

    Markers, and what transactions wrote that were rolled back, are left out. `CorruptData` when a checksum does
    not match.
    """
    data, batches = _open(bytes(fetched.records), fetched, start, end)
    if not batches:
        return None
    columns = _columns(data, batches)
    if columns.offsets[0] < start or columns.offsets[-1] >= end:
        columns = _between(columns, start, end)
    return columns if len(columns) else None


def _open(raw: bytes, fetched: Fetched, start: int, end: int) -> tuple[bytes, list[_Batch]]:
    """What is wanted of an answer: decompressed data, and the batches in it."""
    batches: list[_Batch] = []
    pieces: list[bytes] | None = None  # unless all batches are uncompressed and can stay where they are
    size = 0
    aborted = sorted(fetched.aborted, key=lambda transaction: transaction[1])
    rolled_back: set[int] = set()
    for position, header in split(raw):
        stop = position + header.size
        if not crc_is_right(raw, header, position):
            raise CorruptData("read", f"the batch at offset {header.base_offset}", "its checksum is wrong")
        while aborted and aborted[0][1] <= header.last_offset:
            rolled_back.add(aborted.pop(0)[0])
        if header.is_control:
            if header.producer_id in rolled_back:
                marker = read_control(raw[position:stop])
                if marker is not None and marker.kind == ABORT:
                    rolled_back.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in rolled_back:
            continue
        if header.last_offset < start or header.base_offset >= end or not header.record_count:
            continue
        if header.codec == NONE and pieces is None:
            batches.append((header, position + HEADER_SIZE, stop))
            continue
        if pieces is None:
            pieces = [raw[first:last] for _, first, last in batches]
            batches = _moved(batches)
            size = batches[-1][2] if batches else 0
        pieces.append(unpack(header, memoryview(raw)[position:stop], DECOMPRESSED_LIMIT))
        batches.append((header, size, size + len(pieces[-1])))
        size += len(pieces[-1])
    return (raw if pieces is None else b"".join(pieces)), batches


def _moved(batches: list[_Batch]) -> list[_Batch]:
    moved, size = [], 0
    for header, first, last in batches:
        moved.append((header, size, size + last - first))
        size += last - first
    return moved


def _columns(data: bytes, batches: list[_Batch]) -> BatchColumns:
    starts: list[int] = []
    for header, first, last in batches:
        _find_records(data, first, last, header.record_count, starts)
    array = np.frombuffer(data, np.uint8)
    headers = [header for header, _, _ in batches]
    counts = [header.record_count for header in headers]
    position = np.array(starts, np.int64) + 1  # behind the attributes
    timestamps, position = _varints(array, position)
    offsets, position = _varints(array, position)
    offsets += np.repeat(np.array([header.base_offset for header in headers], np.int64), counts)
    timestamps += np.repeat(np.array([header.base_timestamp for header in headers], np.int64), counts)
    kinds = np.repeat(np.array([header.uses_append_time for header in headers], np.int8), counts)
    if kinds.any():
        appended = np.repeat(np.array([header.max_timestamp for header in headers], np.int64), counts)
        timestamps = np.where(kinds == LOG_APPEND_TIME, appended, timestamps)
    key_sizes, key_starts = _varints(array, position)
    value_sizes, value_starts = _varints(array, key_starts + np.maximum(key_sizes, 0))
    header_starts = value_starts + np.maximum(value_sizes, 0)
    return BatchColumns(
        offsets, timestamps, kinds, data, (key_starts, key_sizes), (value_starts, value_sizes), header_starts
    )


def _find_records(data: bytes, position: int, end: int, count: int, starts: list[int]) -> None:
    """Appends to ``starts`` where each record begins behind its length."""
    append = starts.append
    try:
        for _ in range(count):
            number = data[position]
            position += 1
            if number > 127:
                high = data[position]
                position += 1
                if high > 127:
                    number, position = _long_varint(data, position - 2)
                else:
                    number = number & 127 | high << 7
            append(position)
            position += number >> 1
    except IndexError:
        position = end + 1
    if position != end:
        raise InvalidBatch(
            "read", "a batch", "its records do not fill it", "Report this with the log's files."
        )


def _long_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7


def _varints(data: npt.NDArray[np.uint8], positions: Integers) -> tuple[Integers, Integers]:
    """The zigzag varints that begin at ``positions``, and the positions behind them.

    >>> numbers, behind = _varints(np.array([1, 0xAC, 2], np.uint8), np.array([0, 1]))
    >>> numbers.tolist(), behind.tolist()
    ([-1, 150], [1, 3])
    """
    last = len(data) - 1
    raw = data[positions].astype(np.int64)
    behind = positions + 1
    longer = np.flatnonzero(raw > 127)
    if len(longer):
        raw &= 127
        shift = 7
        while len(longer) and shift < 64:
            byte = data[np.minimum(behind[longer], last)].astype(np.int64)
            raw[longer] |= (byte & 127) << shift
            behind[longer] += 1
            longer = longer[byte > 127]
            shift += 7
    return (raw >> 1) ^ -(raw & 1), behind


def _pieces(data: bytes, starts: Integers, sizes: Integers) -> pa.BinaryArray:
    """Pieces of ``data`` as an array of their own.

    Pieces and the gaps between them make an array that needs no copy; every other element of it is a piece.
    """
    count = len(starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(sizes, 0)
    both = pa.BinaryArray.from_buffers(
        pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=sizes < 0)
    return both.take(wanted)


def _between(columns: BatchColumns, start: int, end: int) -> BatchColumns:
    first, last = np.searchsorted(columns.offsets, [start, end])
    cut = slice(int(first), int(last))
    return BatchColumns(
        columns.offsets[cut],
        columns.timestamps[cut],
        columns.timestamp_types[cut],
        columns._data,
        (columns._keys[0][cut], columns._keys[1][cut]),
        (columns._values[0][cut], columns._values[1][cut]),
        columns._headers[cut],
    )


def _header_pairs(data: bytes, position: int) -> Iterator[dict[str, Any]]:
    count, position = _signed(data, position)
    for _ in range(count):
        size, position = _signed(data, position)
        key = data[position : position + size]
        position += size
        size, position = _signed(data, position)
        value = None if size < 0 else data[position : position + size]
        position += max(size, 0)
        yield {"key": key.decode("utf-8", "replace"), "value": value}


def _signed(data: bytes, position: int) -> tuple[int, int]:
    number, position = _long_varint(data, position)
    return (number >> 1) ^ -(number & 1), position
