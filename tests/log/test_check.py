"""The offline check: silent on every healthy directory, and it names each fault."""

import os
import random
import shutil
from pathlib import Path

import pytest

from headwater.errors import DirectoryInvalid
from headwater.log.batch import HEADER_SIZE, read_header, seal
from headwater.log.check import ERROR, WARNING, Finding, check_directory
from headwater.log.cleaner import clean_partition
from headwater.log.directory import DataDirectory
from headwater.log.producer_ids import PRODUCER_IDS, written_next_id
from headwater.log.records import build_batch
from tests.log.logs import NOW, add, end_transaction, fill, flip, records


def healthy(folder: Path) -> Path:
    """A closed directory with topics of every kind."""
    data = folder / "data"
    directory = DataDirectory(data)
    dice = random.Random(2)
    plain = directory.create_topic("plain", 2, {"segment.bytes": "20000"}).partitions[0]
    for number in range(200):
        size = dice.choice((10, 300, 3000))
        new = [(b"k", dice.randbytes(size), (), NOW + dice.randrange(1000))]
        add(plain, new, (1, 0, number), codec=number % 5)
    plain.sync()
    transactions = directory.create_topic("transactions", 1, {"segment.bytes": "2000"}).partitions[0]
    for number in range(40):
        add(transactions, records("x" * 50), (2, 0, number), transactional=True)
        end_transaction(transactions, (2, 0), commit=number % 3 == 0)
    add(transactions, records("open"), (2, 0, 40), transactional=True)
    transactions.sync()
    settings = {"cleanup.policy": "compact", "segment.bytes": "20000"}
    compacted = directory.create_topic("compacted", 1, settings).partitions[0]
    for number in range(150):
        key = f"{dice.randrange(50)}".encode()
        new = [(key, b"v" * 1000, (), NOW + number)]
        add(compacted, new, (3, 0, number), transactional=True)
        end_transaction(compacted, (3, 0), commit=number % 2 == 0)
    compacted.sync()
    swap = clean_partition(compacted, NOW)
    assert swap is not None
    assert swap.put_in_place(compacted)
    swap.finish()
    deleted = directory.create_topic("deleted", 1).partitions[0]
    fill(deleted, 10)
    deleted.move_start(5)
    directory.create_topic("empty", 1)
    directory.close()
    (data / PRODUCER_IDS).write_bytes(written_next_id(1000))
    return data


def files(data: Path, topic: str, suffix: str) -> list[Path]:
    return sorted((data / f"{topic}-0").glob(f"*{suffix}"))


def found(data: Path, deep: bool = True) -> list[Finding]:
    return list(check_directory(data, deep))


def test_healthy_directories_are_clean(folder: Path) -> None:
    data = healthy(folder)
    assert len(files(data, "plain", ".log")) > 5
    assert len(files(data, "transactions", ".txnindex")) > 3
    assert found(data) == []
    assert found(data, deep=False) == []
    directory = DataDirectory(data)
    assert found(data) == [], "while it is open"
    for log in directory.partitions():
        fill(log, 30)
    assert found(data) == [], "while it is written to"
    os.close(directory._lock)  # killed
    assert found(data) == []


def test_nothing_is_changed(folder: Path) -> None:
    data = healthy(folder)
    with open(files(data, "plain", ".log")[-1], "ab") as file:
        file.write(b"torn")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    found(data)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_directory_that_may_only_be_read(folder: Path) -> None:
    data = healthy(folder)
    for path in data.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert found(data) == []
    finally:
        for path in data.rglob("*"):
            path.chmod(0o755)


def test_what_is_no_data_directory(folder: Path) -> None:
    for path in (folder, folder / "missing"):
        with pytest.raises(DirectoryInvalid):
            found(path)


def test_a_flipped_byte_anywhere(folder: Path) -> None:
    """In every segment of every topic, at any position."""
    data = healthy(folder)
    dice = random.Random(4)
    for topic in ("plain", "transactions", "compacted", "deleted"):
        for path in files(data, topic, ".log"):
            content = path.read_bytes()
            starts = positions(content)
            for _ in range(6 if content else 0):
                # The offset of a batch in a compacted segment may be wrong unnoticed, within a gap.
                at = dice.randrange(8 if topic == "compacted" else 0, len(content))
                start = max(each for each in starts if each <= at)
                if topic == "compacted" and at - start < 8:
                    continue
                flip(path, at, 1 << dice.randrange(8))
                told = [each for each in found(data) if each.severity == ERROR]
                assert [(each.path, each.position) for each in told if each.kind == "damage"] == [
                    (path, start)
                ]
                path.write_bytes(content)
    assert found(data) == []


def positions(content: bytes) -> list[int]:
    starts, position = [], 0
    while position < len(content):
        starts.append(position)
        position += read_header(content, position).size
    return starts


def test_a_torn_tail_is_a_warning_damage_at_the_end_is_not(folder: Path) -> None:
    data = healthy(folder)
    path = files(data, "plain", ".log")[-1]
    content = path.read_bytes()
    start = positions(content)[-1]
    os.truncate(path, len(content) - 3)
    (told,) = found(data)
    assert (told.path, told.position, told.kind, told.severity) == (path, start, "torn tail", WARNING)
    path.write_bytes(content)
    flip(path, start + 9, 0x01)  # its length
    (told,) = found(data)
    assert (told.path, told.position, told.kind, told.severity) == (path, start, "damage", ERROR)
    other = files(data, "plain", ".log")[0]
    path.write_bytes(content)
    os.truncate(other, other.stat().st_size - 3)
    assert [(each.path, each.severity) for each in found(data) if each.kind == "damage"] == [(other, ERROR)]


def test_a_missing_segment(folder: Path) -> None:
    data = healthy(folder)
    victim = files(data, "plain", ".log")[2]
    following = files(data, "plain", ".log")[3]
    for suffix in (".log", ".index", ".timeindex"):
        victim.with_suffix(suffix).unlink()
    (told,) = found(data)
    assert (told.path, told.kind, told.severity) == (following, "offsets", ERROR)
    message = f"offsets {int(victim.stem)} to {int(following.stem) - 1} are missing before it"
    assert told.message == message


def test_a_segment_twice(folder: Path) -> None:
    data = healthy(folder)
    first = files(data, "plain", ".log")[0]
    shutil.copy(first, first.with_name(f"{int(first.stem) + 1:020d}.log"))
    assert any(each.severity == ERROR for each in found(data))


@pytest.mark.parametrize("topic", ["plain", "compacted"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_spoilt_indexes(folder: Path, topic: str, suffix: str) -> None:
    data = healthy(folder)
    dice = random.Random(6)
    paths = [path for path in files(data, topic, suffix) if path.stat().st_size > 16]
    assert paths
    for path in paths:
        content = path.read_bytes()
        for _ in range(8):
            at = dice.randrange(len(content))
            flip(path, at, 1 << dice.randrange(8))
            told = found(data)
            assert [each.path for each in told] == [path], (path, at)
            assert (told[0].kind, told[0].severity) == ("index", WARNING)
            path.write_bytes(content)
        for spoilt in (content[:-3], content + b"\0\0\0", content + content[-12:]):
            path.write_bytes(spoilt)
            assert {each.path for each in found(data)} == {path}
        path.write_bytes(content)
    assert found(data) == []


def test_a_cut_or_missing_index_of_a_closed_segment(folder: Path) -> None:
    data = healthy(folder)
    times = files(data, "plain", ".timeindex")[1]
    content = times.read_bytes()
    os.truncate(times, len(content) - 12)
    (told,) = found(data)
    assert (told.path, told.position) == (times, len(content) - 12)
    times.unlink()
    (told,) = found(data)
    assert (told.path, told.message) == (times, "it is missing")
    times.write_bytes(content)
    offsets = files(data, "plain", ".index")[1]
    os.truncate(offsets, 0)
    assert [each.path for each in found(data)] == [offsets]


def test_a_spoilt_transaction_index(folder: Path) -> None:
    data = healthy(folder)
    for path in files(data, "transactions", ".txnindex")[:-1]:
        content = path.read_bytes()
        for spoilt in (content[:-34], content[:-1], b"", content + content[-34:][:17] + b"\x07" * 17):
            path.write_bytes(spoilt)
            told = found(data)
            assert {each.path for each in told} == {path}
            assert {each.severity for each in told} == {ERROR}, "aborted records would be shown"
        path.unlink()
        assert {each.path for each in found(data)} == {path}
        path.write_bytes(content)
    assert found(data) == []


def test_a_spoilt_snapshot(folder: Path) -> None:
    data = healthy(folder)
    path = files(data, "plain", ".snapshot")[-1]
    flip(path, 20)
    (told,) = found(data)
    assert (told.path, told.kind, told.severity) == (path, "snapshot", WARNING)


def test_records_that_are_nonsense_behind_a_right_checksum(folder: Path) -> None:
    data = healthy(folder)
    directory = DataDirectory(data)
    log = directory.topics["empty"].partitions[0]
    batch = bytearray(build_batch(records("x" * 50)))
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    seal(batch)
    log.append(batch, read_header(batch), NOW)
    directory.close()
    (told,) = found(data)
    assert (told.path.parent.name, told.position, told.kind) == ("empty-0", 0, "records")
    assert found(data, deep=False) == []


def test_spoilt_lists_and_strays(folder: Path) -> None:
    data = healthy(folder)
    shutil.copytree(data / "empty-0", data / "unknown-0")
    assert [(each.path.name, each.kind, each.severity) for each in found(data)] == [
        ("unknown-0", "stray", WARNING)
    ]
    shutil.rmtree(data / "unknown-0")
    shutil.rmtree(data / "empty-0")
    assert [(each.path.name, each.kind, each.severity) for each in found(data)] == [
        ("empty-0", "missing", ERROR)
    ]
    for name in ("catalog.json", "checkpoint.json"):
        content = (data / name).read_bytes()
        (data / name).write_bytes(content[:-5])
        assert (name, "damage") in [(each.path.name, each.kind) for each in found(data)]
        (data / name).write_bytes(content)


def test_what_cannot_be_read_is_told_and_the_rest_looked_at(folder: Path) -> None:
    data = healthy(folder)
    victim, following = files(data, "plain", ".log")[2:4]
    victim.unlink()
    victim.mkdir()
    snapshot = files(data, "plain", ".snapshot")[0]
    snapshot.unlink()
    snapshot.mkdir()
    content = bytearray(following.read_bytes())
    content[-1] ^= 1
    following.write_bytes(content)
    (data / PRODUCER_IDS).write_text("many")
    assert [(each.path, each.kind, each.severity) for each in found(data)] == [
        (victim, "unreadable", ERROR),
        (following, "damage", ERROR),
        (snapshot, "unreadable", ERROR),
        (data / PRODUCER_IDS, "damage", ERROR),
    ]


def test_a_file_of_producer_ids_that_would_give_one_out_twice(folder: Path) -> None:
    data = healthy(folder)
    path = data / PRODUCER_IDS
    content = path.read_bytes()
    path.write_text("1000\n")  # as an earlier version wrote it
    assert found(data) == []
    for spoilt, kind in (
        (content.replace(b"1000", b"0000"), "damage"),
        (content.replace(b"1000", b"1001"), "damage"),
        (b"3\n", "producer ids"),
        (written_next_id(3), "producer ids"),
    ):
        path.write_bytes(spoilt)
        assert [(each.path, each.kind, each.severity) for each in found(data)] == [(path, kind, ERROR)]
    path.unlink()
    (told,) = found(data)
    assert (told.path, told.kind, told.severity) == (path, "missing", ERROR)


def test_what_was_kept_aside_is_told(folder: Path) -> None:
    data = healthy(folder)
    (data / "plain-0" / f"{0:020d}.log.damaged-17").write_bytes(b"x")
    (told,) = found(data)
    assert (told.kind, told.severity) == ("kept aside", WARNING)
