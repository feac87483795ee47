"""Verifying a data directory offline: every byte of every segment, and what the files beside it say of it."""

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headwater.errors import DirectoryInvalid, InvalidBatch
from headwater.log.batch import BatchHeader
from headwater.log.catalog import CHECKPOINT, Catalog, read_catalog, read_checkpoint
from headwater.log.identity import CATALOG, META, read_identity
from headwater.log.index import ABORTED_SIZE, OffsetIndex, TimeIndex, unpack_aborted
from headwater.log.producer_ids import PRODUCER_IDS, read_next_id
from headwater.log.producers import Producers
from headwater.log.records import COMMIT, open_batch, read_control, spans
from headwater.log.recovery import Checkpoint
from headwater.log.scan import LARGEST_OFFSET, Bounds, Damage, Found, is_torn, scan
from headwater.log.sealed import Spoilt, unseal
from headwater.log.segment import INDEX_INTERVAL

SETTINGS_FILES = ("groups.json", "broker.json")  # of a broker, which reads them at its start
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

    With ``deep``, records are read as well, decompressed where they are compressed. What the next start mends
    is a warning: a torn tail, which a broker that was killed leaves, or an index that can be made again.
    """
    if not path.is_dir():
        raise DirectoryInvalid("check", str(path), "there is no such directory")
    partitions = {
        entry.name: entry for entry in sorted(path.iterdir()) if entry.is_dir() and _is_partition(entry)
    }
    if not partitions and not (path / META).exists():
        raise DirectoryInvalid("check", str(path), "it holds no partitions")
    catalog: Catalog | None = None
    checkpoint: dict[str, Checkpoint] = {}
    try:
        if (path / META).exists():
            read_identity(path / META)
    except DirectoryInvalid as error:
        yield Finding(path / META, 0, "damage", error.cause)
    except OSError as error:
        yield _unreadable(path / META, error)
    try:
        checkpoint = read_checkpoint(path)
    except DirectoryInvalid as error:
        yield Finding(path / CHECKPOINT, 0, "damage", error.cause)
    try:
        catalog = read_catalog(path)
    except DirectoryInvalid as error:
        yield Finding(path / CATALOG, 0, "damage", error.cause)
    for name in SETTINGS_FILES:
        yield from _check_sealed(path / name)
    compacted: set[str] | None = None
    if catalog is not None:
        known, compacted = _partitions_of(catalog, checkpoint)
        for name in sorted(known - set(partitions)):
            yield Finding(path / name, -1, "missing", "the catalog has this partition, its directory is gone")
        for name in sorted(set(partitions) - known):
            message = "it belongs to no topic of the catalog"
            yield Finding(path / name, -1, "stray", message, WARNING)
    largest_id = -1
    for name, directory in partitions.items():
        may_have_gaps = compacted is None or name in compacted
        partition = _Partition(directory, deep, may_have_gaps)
        yield from partition.check()
        largest_id = max(largest_id, partition.producers.largest_id)
    if catalog is not None:  # partitions alone, or another program's, come without
        yield from _check_producer_ids(path / PRODUCER_IDS, largest_id)


def _check_producer_ids(path: Path, largest_id: int) -> Iterator[Finding]:
    try:
        next_id = read_next_id(path.read_bytes())
    except FileNotFoundError:
        if largest_id >= 0:
            message = f"it is gone, though the log has records of producers, up to id {largest_id}"
            yield Finding(path, -1, "missing", message)
    except OSError as error:
        yield _unreadable(path, error)
    except Spoilt as error:
        yield Finding(path, 0, "damage", f"it is damaged: {error}: the next producer cannot be given its id")
    else:
        if next_id <= largest_id:
            message = f"it says that ids from {next_id} on are free, but {largest_id} is in the log"
            yield Finding(path, 0, "producer ids", message)


def _check_sealed(path: Path) -> Iterator[Finding]:
    try:
        if path.exists():
            unseal(path.read_bytes())
    except OSError as error:
        yield _unreadable(path, error)
    except Spoilt as error:
        yield Finding(path, 0, "damage", f"it is damaged: {error}")


def _unreadable(path: Path, error: OSError) -> Finding:
    return Finding(path, -1, "unreadable", (error.strerror or str(error)).lower())


def _is_partition(path: Path) -> bool:
    name, _, number = path.name.rpartition("-")
    return bool(name) and number.isdigit()


def _partitions_of(catalog: Catalog, checkpoint: dict[str, Checkpoint]) -> tuple[set[str], set[str]]:
    """The partitions of the catalog, and those of them that may have been compacted."""
    known, compacted = set(), set()
    for topic, listed in catalog.topics.items():
        for number in range(listed.partitions):
            name = f"{topic}-{number}"
            known.add(name)
            told = checkpoint.get(name, Checkpoint())
            if told.cleaned_offset > told.start_offset or "compact" in listed.overrides.get(
                "cleanup.policy", ""
            ):
                compacted.add(name)
    return known, compacted


@dataclass(slots=True)
class _Partition:
    """The files of one partition."""

    directory: Path
    deep: bool
    may_have_gaps: bool
    producers: Producers = field(default_factory=lambda: Producers(""))
    first_offset: int = 0
    recovery_offset: int = 0  # from which on the next start reads, after a crash

    def check(self) -> Iterator[Finding]:
        snapshots = [int(path.stem) for path in self.directory.glob("*.snapshot") if path.stem.isdigit()]
        self.recovery_offset = max(snapshots, default=0)
        logs = sorted(path for path in self.directory.glob("*.log") if path.stem.isdigit())
        bases = [int(path.stem) for path in logs]
        self.first_offset = bases[0] if bases else 0
        expected = self.first_offset
        for path, base_offset, end_offset in zip(logs, bases, (*bases[1:], LARGEST_OFFSET), strict=False):
            if base_offset > expected and not self.may_have_gaps:
                message = f"offsets {expected} to {base_offset - 1} are missing before it"
                yield Finding(path, 0, "offsets", message)
            segment = _Segment(self, path, base_offset, end_offset)
            try:
                yield from segment.check()
            except OSError as error:
                yield _unreadable(path, error)
                expected = end_offset
            else:
                # Damage at the end of a segment has been told of: its offsets are not missing as well.
                ends_damaged = any(each.is_tail for each in segment.damage)
                expected = end_offset if ends_damaged else segment.next_offset
        for path in sorted(self.directory.glob("*.log.damaged-*")):
            yield Finding(path, 0, "kept aside", "bytes that recovery took out of the log", WARNING)
        for path in sorted(self.directory.glob("*.snapshot")):
            try:
                is_right = Producers("").restore(path.read_bytes())
            except OSError as error:
                yield _unreadable(path, error)
                continue
            if not is_right:
                yield Finding(path, 0, "snapshot", "its checksum does not match", WARNING)


class _Segment:
    """One segment: its log file is read once, and all indexes are held against it on the way."""

    def __init__(self, partition: _Partition, path: Path, base_offset: int, end_offset: int) -> None:
        self.partition = partition
        self.path = path
        self.base_offset = self.next_offset = base_offset
        self.is_last = end_offset == LARGEST_OFFSET
        self.bounds = Bounds(end_offset, dense=self.is_last)
        self.damage: list[Damage] = []
        self.latest = -1
        self.offsets = _Entries(path.with_suffix(".index"), OffsetIndex)
        self.times = _Entries(path.with_suffix(".timeindex"), TimeIndex)
        self.since_index = 0
        self.aborted: set[tuple[int, int]] = set()  # producer and marker

    def check(self) -> Iterator[Finding]:
        with io.FileIO(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for item in scan(file, 0, size, self.base_offset, self.bounds):
                if isinstance(item, Damage):
                    self.damage.append(item)
                    torn = self.is_last and item.is_tail and is_torn(file, item, self.next_offset)
                    yield self._damaged(item, torn)
                else:
                    yield from self._found(item)
        yield from self._check_ends(size)
        yield from self._check_aborted()

    def _damaged(self, item: Damage, is_torn: bool) -> Finding:
        message = f"{item.end - item.position} bytes: {item.reason}"
        if is_torn:
            return Finding(self.path, item.position, "torn tail", message, WARNING)
        return Finding(self.path, item.position, "damage", message)

    def _found(self, item: Found) -> Iterator[Finding]:
        header = item.header
        self.next_offset = header.next_offset
        self.latest = max(self.latest, header.max_timestamp)
        yield from self._check_offset_entry(item)
        yield from self._check_time_entries(header)
        if self.partition.deep:
            try:
                for _ in spans(*open_batch(item.batch)):
                    pass
            except InvalidBatch as error:
                yield Finding(self.path, item.position, "records", error.cause)
        self._apply(item)

    # -- the sparse indexes -----------------------------------------------------------------------

    def _check_offset_entry(self, item: Found) -> Iterator[Finding]:
        """The entry of this batch, and those of positions before it at which no batch was found."""
        offset = item.header.last_offset
        while (entry := self.offsets.current()) is not None and entry[1] <= item.position:
            relative, position = entry
            is_right = (self.base_offset + relative, position) == (offset, item.position)
            if not self.offsets.is_in_order():
                yield self.offsets.wrong("is out of order")
                return
            if not is_right and not self._is_damaged(position):
                told = f"says offset {self.base_offset + relative} is at {position}, which it is not"
                yield self.offsets.wrong(told)
                return
            self.offsets.next()
            if position == item.position:
                self.since_index = 0
        if self.since_index > INDEX_INTERVAL and not self.offsets.is_wrong and not self.is_last:
            yield self.offsets.wrong(f"is missing: nothing leads to offset {offset}")
        self.since_index += len(item.batch)

    def _check_time_entries(self, header: BatchHeader) -> Iterator[Finding]:
        while (entry := self.times.current()) is not None:
            timestamp, relative = entry
            offset = self.base_offset + relative
            if offset > header.last_offset:
                return
            is_right = offset == header.last_offset and timestamp == header.max_timestamp == self.latest
            if not self.times.is_in_order():
                yield self.times.wrong("is out of order")
                return
            if not is_right and not self.damage:
                yield self.times.wrong(f"says nothing up to {offset} is later than {timestamp}: not so")
                return
            self.times.next()

    def _is_damaged(self, position: int) -> bool:
        return any(each.position <= position < each.end for each in self.damage)

    def _check_ends(self, size: int) -> Iterator[Finding]:
        for index in (self.offsets, self.times):
            if index.torn is not None:
                yield Finding(index.path, index.torn, "index", "it ends within an entry", WARNING)
            elif not index.is_there and size and not self.is_last:
                yield Finding(index.path, -1, "index", "it is missing", WARNING)
            entry = index.current()
            if entry is not None and not self._ends_damaged(size):
                yield index.wrong(f"{entry} leads past the end of the log")
        last = self.times.last()
        is_whole = self.times.is_there and not self.times.is_wrong and not self.damage
        if is_whole and not self.is_last and self.latest > (last[0] if last else -1):
            yield self.times.wrong(f"is missing: there are timestamps up to {self.latest}")

    def _ends_damaged(self, size: int) -> bool:
        return any(each.end == size for each in self.damage)

    # -- transactions -----------------------------------------------------------------------------

    def _apply(self, item: Found) -> None:
        header, producers = item.header, self.partition.producers
        if header.producer_id < 0:
            return
        if not header.is_control:
            if header.record_count:
                producers.written(header, header.base_offset)
            return
        try:
            marker = read_control(item.batch)
        except InvalidBatch:
            return
        if marker is not None:
            is_commit = marker.kind == COMMIT
            aborted = producers.ended(header, header.base_offset, is_commit, marker.coordinator_epoch)
            if aborted is not None:
                self.aborted.add((aborted.producer_id, aborted.last_offset))
        producers.became_durable(header.next_offset)

    def _check_aborted(self) -> Iterator[Finding]:
        path = self.path.with_suffix(".txnindex")
        content = path.read_bytes() if path.exists() else b""
        if len(content) % ABORTED_SIZE:
            position = len(content) - len(content) % ABORTED_SIZE
            yield Finding(
                path, position, "index", "it ends within an entry", WARNING if self.is_last else ERROR
            )
        told = set()
        for number, entry in enumerate(unpack_aborted(content)):
            told.add((entry.producer_id, entry.last_offset))
            is_known = (entry.producer_id, entry.last_offset) in self.aborted
            # The records of an aborted transaction may be gone while its marker is still there.
            if not is_known and not self.damage and not self._has_marker_only(entry.first_offset):
                message = f"entry {number} tells of a transaction that was not aborted here"
                position = number * ABORTED_SIZE
                yield Finding(path, position, "index", message, self._aborted_severity(entry.last_offset))
                return
        for producer_id, marker in sorted(self.aborted - told):
            message = f"the transaction of producer {producer_id} that was aborted at {marker} is not there"
            yield Finding(path, len(content), "index", message, self._aborted_severity(marker))

    def _aborted_severity(self, marker: int) -> str:
        """What lies behind the newest snapshot is read again by the next start; before it, readers would be
        shown aborted records."""
        return WARNING if self.is_last and marker >= self.partition.recovery_offset else ERROR

    def _has_marker_only(self, first_offset: int) -> bool:
        return first_offset < self.partition.first_offset or self.partition.may_have_gaps


class _Entries:
    """The entries of an index file, one after another."""

    def __init__(self, path: Path, kind: type[OffsetIndex] | type[TimeIndex]) -> None:
        self.path = path
        self.is_there = path.exists()
        content = path.read_bytes() if self.is_there else b""
        self._size = kind.entry.size
        whole = len(content) - len(content) % self._size
        self.torn = whole if whole < len(content) else None  # where it ends within an entry
        self._entries: list[tuple[int, int]] = list(kind.entry.iter_unpack(content[:whole]))
        self._number = 0
        self.is_wrong = False

    def current(self) -> tuple[int, int] | None:
        if self.is_wrong or self._number >= len(self._entries):
            return None
        return self._entries[self._number]

    def next(self) -> None:
        self._number += 1

    def is_in_order(self) -> bool:
        """Whether both numbers of the current entry are larger than those before it."""
        if not self._number:
            return True
        before, now = self._entries[self._number - 1], self._entries[self._number]
        return before[0] < now[0] and before[1] < now[1]

    def last(self) -> tuple[int, int] | None:
        return self._entries[-1] if self._entries else None

    def wrong(self, message: str) -> Finding:
        """The finding of a fault in the current entry; the rest is not looked at."""
        self.is_wrong = True
        return Finding(
            self.path, self._number * self._size, "index", f"entry {self._number} {message}", WARNING
        )
