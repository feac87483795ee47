"""Partitions on disk for the tests of the storage: made, filled, closed, killed, damaged and looked at."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headwater.log.aborted import aborted_checksum
from headwater.log.batch import Buffer, read_header, split
from headwater.log.check import Finding, check_directory
from headwater.log.config import TopicConfig
from headwater.log.files import OpenFiles
from headwater.log.partition import Appended, PartitionLog
from headwater.log.records import (
    ABORT,
    COMMIT,
    NewRecord,
    Record,
    build_batch,
    control_batch,
    read_control,
    read_records,
)
from headwater.log.recovery import Checkpoint, open_partition

NOW = 1_700_000_000_000
SMALL = 4096  # bytes of a segment, for tests that want many


def topic_config(**settings: object) -> TopicConfig:
    """A topic's settings; ``segment_bytes=100`` is segment.bytes=100."""
    return TopicConfig.resolve({name.replace("_", "."): str(value) for name, value in settings.items()})


def open_log(
    directory: Path, checkpoint: Checkpoint | None = None, files: OpenFiles | None = None, **settings: object
) -> PartitionLog:
    """The partition in ``directory``, as a broker opens it."""
    log = open_partition(files or OpenFiles(), directory, "t", 0, topic_config(**settings), checkpoint)
    if log.needs_sync:
        log.recovery_synced()  # not so, but these tests cut no power
    return log


def close(log: PartitionLog) -> Checkpoint:
    """Close the log cleanly; the checkpoint that a data directory would write."""
    log.close()
    assert log.failure is None
    active = log.active
    aborted = aborted_checksum(log.producers.aborted, log.start_offset)
    end = (log.next_offset, active.base_offset, active.size)
    return Checkpoint(log.start_offset, log.cleaned_offset, *end, aborted)


def kill(log: PartitionLog) -> Checkpoint:
    """Leave the log as a kill does; the checkpoint that would be there."""
    return Checkpoint(log.start_offset, log.cleaned_offset)


def reopen(log: PartitionLog, clean: bool, **settings: object) -> PartitionLog:
    """Close or kill the log, and open it again."""
    checkpoint = close(log) if clean else kill(log)
    return open_log(log.directory, checkpoint, **settings)


def copy_of(directory: Path, name: str) -> Path:
    """A copy of the partition's directory, as a crash now would leave it."""
    target = directory.parent / name / directory.name
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(directory, target)
    return target


# -- writing ---------------------------------------------------------------------------------------


def records(*values: bytes | str, key: bytes | None = None, at: int = NOW) -> list[NewRecord]:
    return [
        (key, value.encode() if isinstance(value, str) else value, (), at + index)
        for index, value in enumerate(values)
    ]


def add(
    log: PartitionLog,
    new: Sequence[NewRecord],
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    codec: int = 0,
    now: int = NOW,
) -> Appended:
    """Append a batch; ``producer`` is its id, epoch and sequence."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    batch = build_batch(
        new,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append(batch, read_header(batch), now)


def fill(log: PartitionLog, batches: int, size: int = 100, first: int = 0) -> list[int]:
    """Append batches of one record that says its number; their base offsets."""
    offsets = []
    for number in range(first, first + batches):
        value = f"record {number} ".encode().ljust(size, b".")
        offsets.append(add(log, [(f"key {number}".encode(), value, (), NOW + number)]).base_offset)
    log.sync()
    return offsets


def end_transaction(log: PartitionLog, producer: tuple[int, int], commit: bool, at: int = NOW) -> Appended:
    marker = control_batch(COMMIT if commit else ABORT, *producer, 0, at)
    return log.append_marker(marker, at)


# -- reading ---------------------------------------------------------------------------------------


def batches(log: PartitionLog, offset: int | None = None, max_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Every batch from ``offset`` on, read as a consumer would."""
    offset = log.start_offset if offset is None else offset
    while True:
        chunk = log.read(offset, max_bytes, log.durable_offset)
        if chunk is None:
            return
        yield from batches_in(chunk.data)
        assert chunk.next_offset > offset
        offset = chunk.next_offset


def batches_in(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    end = 0
    for position, header in split(view):
        end = position + header.size
        yield bytes(view[position:end])
    assert end == len(view)


def contents(log: PartitionLog, offset: int | None = None) -> list[Record]:
    """Every record from ``offset`` on, markers left out."""
    start = log.start_offset if offset is None else offset
    return [record for record in data_records(batches(log, offset)) if record.offset >= start]


def data_records(found: Iterable[bytes]) -> Iterator[Record]:
    for batch in found:
        if not read_header(batch).is_control:
            yield from read_records(batch)


def committed(log: PartitionLog, max_bytes: int = 1 << 20) -> list[Record]:
    """What a consumer with isolation.level=read_committed makes of the log."""
    seen: list[Record] = []
    offset = log.start_offset
    while True:
        end = log.last_stable_offset
        chunk, aborted = log.read_committed(offset, max_bytes, end)
        if chunk is None:
            return seen
        waiting = sorted(aborted, key=lambda each: each.first_offset)
        dropping: set[int] = set()
        for batch in batches_in(chunk.data):
            header = read_header(batch)
            while waiting and waiting[0].first_offset <= header.last_offset:
                dropping.add(waiting.pop(0).producer_id)
            if header.is_control:
                marker = read_control(batch)
                if marker is not None and marker.kind == ABORT:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                seen += [record for record in read_records(batch) if record.offset >= offset]
        offset = chunk.next_offset


# -- looking ---------------------------------------------------------------------------------------


def findings(directory: Path) -> list[Finding]:
    """What the check finds in the partition of that directory."""
    return list(check_directory(directory.parent))


def check_dense(log: PartitionLog) -> None:
    """Offsets follow one another from the start to the end."""
    expected = None
    for batch in batches(log, max_bytes=1000):
        header = read_header(batch)
        if expected is not None:
            assert header.base_offset == expected
        expected = header.next_offset
    if expected is not None:
        assert expected == log.durable_offset


def producer_state(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """All that the log knows of its producers."""
    return {
        each.producer_id: (
            each.epoch, each.coordinator_epoch, each.transaction_start, tuple(each.batches)
        )
        for each in log.producers.all()
    }  # fmt: skip


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Change one byte of the file."""
    with open(path, "rb+") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bits]))


def segment_file(log: PartitionLog, number: int = -1, suffix: str = ".log") -> Path:
    return Path(log.segments[number].path(suffix))
