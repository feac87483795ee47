"""Verifying a data directory offline: every byte of every segment, and what the indexes say of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.errors import DirectoryInvalid, InvalidBatch
from headwater.log.batch import HEADER_SIZE, read_header
from headwater.log.files import OpenFiles
from headwater.log.index import OffsetIndex, TimeIndex
from headwater.log.records import open_batch, spans
from headwater.log.scan import Damage, scan

ERROR, WARNING = "error", "warning"


class Finding(NamedTuple):
    """Something that is not as it should be. ``position`` is a byte in the file, -1 where none applies."""

    path: Path
    position: int
    kind: str
    message: str
    severity: str = ERROR


def check_directory(path: Path, deep: bool = True) -> Iterator[Finding]:
    """Findings in the data directory ``path``; none in a healthy one. Nothing is changed.

    With ``deep``, records are read as well, decompressed where they are compressed. A torn tail is a warning:
    a broker that was killed leaves one, and the next start cuts it off.
    """
    if not path.is_dir():
        raise DirectoryInvalid("check", str(path), "there is no such directory")
    partitions = sorted(entry for entry in path.iterdir() if entry.is_dir() and _is_partition(entry))
    if not partitions and not (path / "meta.properties").exists():
        raise DirectoryInvalid("check", str(path), "it holds no partitions")
    files = OpenFiles(64)
    try:
        for directory in partitions:
            yield from _check_partition(files, directory, deep)
    finally:
        files.close()


def _is_partition(path: Path) -> bool:
    name, _, number = path.name.rpartition("-")
    return bool(name) and number.isdigit()


def _check_partition(files: OpenFiles, directory: Path, deep: bool) -> Iterator[Finding]:
    logs = sorted(path for path in directory.glob("*.log") if path.stem.isdigit())
    expected = 0
    for log in logs:
        base_offset = int(log.stem)
        if base_offset < expected:
            yield Finding(
                log, 0, "offsets", f"starts at {base_offset}, the segment before ends at {expected}"
            )
        is_last = log == logs[-1]
        for item in _check_log(files, log, base_offset, is_last, deep):
            if isinstance(item, Finding):
                yield item
            else:
                expected = item
        yield from _check_offset_index(files, log, base_offset)
        yield from _check_time_index(files, log, base_offset)
    for path in directory.glob("*.log.damaged-*"):
        yield Finding(path, 0, "kept aside", "bytes that recovery took out of the log", WARNING)


def _check_log(
    files: OpenFiles, path: Path, base_offset: int, is_last: bool, deep: bool
) -> Iterator[Finding | int]:
    """Findings in the log file, and last the offset that follows it."""
    expected = base_offset
    file = files.get(str(path))
    for item in scan(file, 0, os.fstat(file.fileno()).st_size, base_offset):
        if isinstance(item, Damage):
            size = item.end - item.position
            torn = item.is_tail and is_last and (not item.declared_size or item.declared_size > size)
            if torn:
                yield Finding(path, item.position, "torn tail", f"{size} bytes: {item.reason}", WARNING)
            else:
                yield Finding(path, item.position, "damage", f"{size} bytes: {item.reason}")
            continue
        expected = item.header.next_offset
        if deep:
            try:
                for _ in spans(*open_batch(item.batch)):
                    pass
            except InvalidBatch as error:
                yield Finding(path, item.position, "records", error.cause)
    yield expected


def _check_offset_index(files: OpenFiles, log: Path, base_offset: int) -> Iterator[Finding]:
    path = log.with_suffix(".index")
    if not path.exists():
        return
    size = path.stat().st_size
    if size % 8:
        yield Finding(path, size - size % 8, "index", "its size is no multiple of an entry's", WARNING)
    index = OffsetIndex(files, str(path), size)
    file = files.get(str(log))
    previous = -1
    for number in range(len(index)):
        relative, position = index[number]
        if relative <= previous:
            yield Finding(path, number * 8, "index", f"entry {number} is out of order", WARNING)
            return
        previous = relative
        raw = os.pread(file.fileno(), HEADER_SIZE, position)
        if len(raw) < HEADER_SIZE or read_header(raw).last_offset != base_offset + relative:
            message = f"entry {number} says offset {base_offset + relative} is at {position}, which it is not"
            yield Finding(path, number * 8, "index", message, WARNING)
            return


def _check_time_index(files: OpenFiles, log: Path, base_offset: int) -> Iterator[Finding]:
    path = log.with_suffix(".timeindex")
    if not path.exists():
        return
    size = path.stat().st_size
    if size % 12:
        yield Finding(path, size - size % 12, "index", "its size is no multiple of an entry's", WARNING)
    index = TimeIndex(files, str(path), size)
    previous = (-1, -1)
    for number in range(len(index)):
        entry = index[number]
        if entry[0] <= previous[0] or entry[1] < previous[1]:
            yield Finding(path, number * 12, "index", f"entry {number} is out of order", WARNING)
            return
        previous = entry
