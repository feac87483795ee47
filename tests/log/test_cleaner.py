"""Compaction of the files of a partition: what readers see, and what a crash leaves."""

import random
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.errors import CorruptData, DiskFull
from headwater.log import cleaner
from headwater.log.batch import read_header
from headwater.log.check import check_directory
from headwater.log.cleaner import clean_partition, cleanable_end, is_cleanable
from headwater.log.partition import PartitionLog
from headwater.log.records import Record, read_records
from tests.log.crashes import crash_points
from tests.log.logs import (
    NOW,
    add,
    batches,
    batches_in,
    close,
    committed,
    contents,
    end_transaction,
    findings,
    flip,
    kill,
    open_log,
    reopen,
    segment_file,
)

RETENTION = 1000
COMPACT = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": RETENTION,
}


def clean(log: PartitionLog, now: int = NOW) -> bool:
    """A round, as the broker makes it."""
    swap = clean_partition(log, now)
    if swap is None:
        return False
    assert swap.put_in_place(log)
    swap.finish()
    return True


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], at: int = NOW, **options: object) -> None:
    add(log, [(key, value, (), at) for key, value in pairs], **options)  # type: ignore[arg-type]
    log.sync()


def state(found: list[Record]) -> dict[bytes | None, bytes]:
    latest = {record.key: record.value for record in found}
    return {key: value for key, value in latest.items() if value is not None}


def keyed_log(folder: Path, rounds: int = 5, **more: object) -> PartitionLog:
    """Segments in which the same keys are written again and again."""
    log = open_log(folder / "t-0", **(COMPACT | more))
    for number in range(rounds):
        put(log, *((f"key {n}".encode(), f"{number}.{n}".encode() * 20) for n in range(8)), at=NOW + number)
        put(log, (b"only in %d" % number, b"x"), at=NOW + number)
        log.roll(NOW)
    log.sync()
    return log


# -- what is left ----------------------------------------------------------------------------------


def test_the_latest_of_every_key_is_left_with_its_offset(folder: Path) -> None:
    log = keyed_log(folder)
    before = contents(log)
    assert is_cleanable(log, NOW)
    assert clean(log)
    latest = {record.key: record for record in before}
    assert contents(log) == sorted(latest.values())
    assert log.cleaned_offset == log.active.base_offset
    assert not is_cleanable(log, NOW)
    assert len(log.segments) == 2, "what fits into one segment is put into one"
    assert (log.start_offset, log.next_offset) == (0, 45)
    for clean_end in (True, False):
        log = reopen(log, clean_end, **COMPACT)
        assert contents(log) == sorted(latest.values())
        assert (log.start_offset, log.next_offset) == (0, 45)
        assert findings(log.directory) == []
    assert sorted(path.suffix for path in log.directory.iterdir()) == [
        ".index", ".index", ".log", ".log", ".snapshot", ".snapshot", ".timeindex", ".timeindex",
    ]  # fmt: skip


def test_groups_keep_within_the_size_of_a_segment(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_bytes=3000, **COMPACT)
    for number in range(60):
        put(log, (f"key {number}".encode(), b"v" * 200))
    before = contents(log)
    count = len(log.segments)
    assert clean(log)
    assert contents(log) == before
    assert len(log.segments) == count
    assert all(segment.size <= 3000 for segment in log.segments)
    assert findings(log.directory) == []


def test_reads_and_lookups_by_offset_and_time_after_cleaning(folder: Path) -> None:
    dice = random.Random(9)
    log = open_log(folder / "t-0", segment_bytes=20_000, **COMPACT)
    for number in range(400):
        key = f"key {dice.randrange(150)}".encode()
        put(log, (key, bytes(dice.choice((10, 1000)))), at=NOW + number * 10 + dice.randrange(50))
    assert clean(log)
    left = contents(log)
    assert len(left) < 200
    for _ in range(2):
        for offset in range(0, log.next_offset, 3):
            chunk = log.read(offset, 1, log.durable_offset)
            expected = next((record for record in left if record.offset >= offset), None)
            assert chunk is not None and expected is not None
            assert read_header(chunk.data).last_offset == expected.offset
        for at in range(NOW, NOW + 4100, 70):
            first = next((record for record in left if record.timestamp >= at), None)
            expected_time = None if first is None else (first.offset, first.timestamp)
            assert log.find_time(at, log.durable_offset) == expected_time
        assert findings(log.directory) == []
        log = reopen(log, clean=True, segment_bytes=20_000, **COMPACT)


def test_a_tombstone_stays_for_its_time(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None))
    log.roll(NOW)
    clean(log, NOW)
    assert [(r.key, r.value) for r in contents(log)] == [(b"b", b"2"), (b"a", None)]
    for now, left in ((NOW + RETENTION - 1, 2), (NOW + RETENTION, 1)):
        put(log, (b"c", str(now).encode()))
        log.roll(NOW)
        log = reopen(log, clean=False, **COMPACT)
        clean(log, now)
        assert len([r for r in contents(log) if r.key in (b"a", b"b")]) == left


def test_everything_may_go_but_the_log_goes_on_where_it_was(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    put(log, (b"a", b"1"))
    log.roll(NOW)
    put(log, (b"a", None))
    log.roll(NOW)
    clean(log, NOW)
    put(log, (b"b", b"1"))
    log.roll(NOW)
    clean(log, NOW + RETENTION)
    assert [r.key for r in contents(log)] == [b"b"]
    for how in (True, False):
        log = reopen(log, how, **COMPACT)
        assert (log.start_offset, log.next_offset) == (0, 3)
        assert [r.key for r in contents(log)] == [b"b"]
        assert log.read(0, 100, 3) is not None


def test_producers_are_known_after_cleaning_and_a_crash(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    for number in range(7):
        put(log, (b"same", b"%d" % number), producer=(5, 2, number))
    log.roll(NOW)
    put(log, (b"same", b"last"))
    log.roll(NOW)
    assert clean(log)
    assert len(contents(log)) == 1
    for _, path in log.snapshots():
        path.unlink()
    log = reopen(log, clean=False, **COMPACT)
    again = add(log, [(b"same", b"6", (), NOW)], (5, 2, 6))
    assert (again.duplicate, again.base_offset) == (True, 6)
    assert not add(log, [(b"same", b"7", (), NOW)], (5, 2, 7)).duplicate


# -- what may not be cleaned -----------------------------------------------------------------------


def test_the_active_segment_and_young_records_stay(folder: Path) -> None:
    log = keyed_log(folder)
    put(log, (b"key 1", b"newest"))
    assert cleanable_end(log, NOW) == log.active.base_offset
    young = COMPACT | {"min_compaction_lag_ms": 10}
    log = reopen(log, clean=True, **young)
    assert cleanable_end(log, NOW + 12) == log.segments[3].base_offset
    clean(log, NOW + 12)
    assert cleanable_end(log, NOW + 12) == log.cleaned_offset, "a cleaned segment is not young"
    clean(log, NOW + 100)
    assert [r.value for r in contents(log) if r.key == b"key 1"] == [b"4.1" * 20, b"newest"]


def test_an_open_transaction_outdates_nothing(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    put(log, (b"a", b"old"))
    put(log, (b"a", b"open"), producer=(1, 0, 0), transactional=True)
    put(log, (b"b", b"1"))
    put(log, (b"b", b"2"))
    log.roll(NOW)
    log.sync()
    clean(log)
    assert [r.value for r in contents(log)] == [b"old", b"open", b"1", b"2"]
    end_transaction(log, (1, 0), commit=False)
    log.sync()
    assert state(committed(log)) == {b"a": b"old", b"b": b"2"}
    log.roll(NOW)
    clean(log)
    assert [r.value for r in contents(log)] == [b"old", b"2"]


def test_aborted_data_past_the_cleaned_part_of_a_segment_does_not_come_back(folder: Path) -> None:
    """An open transaction ends the cleaning in the middle of a segment; behind it another one was aborted."""
    log = open_log(folder / "t-0", **COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"open", b"x"), producer=(1, 0, 0), transactional=True)
    put(log, (b"b", b"aborted"), producer=(2, 0, 0), transactional=True)
    end_transaction(log, (2, 0), commit=False)
    log.roll(NOW)
    log.sync()
    clean(log)
    end_transaction(log, (1, 0), commit=True)
    log.sync()
    for how in (None, True, False):
        if how is not None:
            log = reopen(log, how, **COMPACT)
        assert state(committed(log)) == {b"a": b"1", b"open": b"x"}


def test_aborted_data_that_went_past_the_cleaned_part_is_not_missed_after_a_crash(folder: Path) -> None:
    """All of the partition would be read again with every start, and its snapshots forgotten."""
    log = open_log(folder / "t-0", cleanup_policy="compact", segment_bytes=600)
    put(log, (b"k", b"old"), (b"k", b"new"))
    put(log, (b"open", b"1"), producer=(5, 0, 0), transactional=True)
    put(log, (b"aborted", b"1"), producer=(6, 0, 0), transactional=True)
    end_transaction(log, (6, 0), commit=False)
    put(log, (b"committed", b"1"), producer=(6, 0, 1), transactional=True)
    end_transaction(log, (6, 0), commit=True)
    while len(log.segments) < 3:
        put(log, (b"filler", bytes(100)))
        log.sync()
    assert clean(log)
    (aborted,) = log.producers.aborted
    assert log.cleaned_offset < aborted.first_offset < log.segments[1].base_offset
    snapshot, _ = log.snapshots()[-1]
    again = open_log(log.directory, kill(log), cleanup_policy="compact", segment_bytes=600)
    assert again.recovery_offset == snapshot > 0
    assert again.producers.aborted == [aborted]


def test_what_is_told_of_aborted_transactions_after_their_markers_went(folder: Path) -> None:
    """Else a reader would wait for the marker, and drop what the same producer committed later."""
    log = open_log(folder / "t-0", **COMPACT)
    for sequence, commit in enumerate((False, True)):
        put(log, (b"k%d" % commit, b"v"), producer=(1, 0, sequence), transactional=True)
        end_transaction(log, (1, 0), commit)
        log.roll(NOW)
        log.sync()
    assert len(log.producers.aborted) == 1
    clean(log, NOW)
    for now in (NOW + RETENTION, NOW + 3 * RETENTION):
        put(log, (b"more", str(now).encode()))
        log.roll(NOW)
        clean(log, now)
        for how in (None, True, False):
            if how is not None:
                log = reopen(log, how, **COMPACT)
            assert state(committed(log)) == {b"k1": b"v", b"more": str(now).encode()}
            assert findings(log.directory) == []
    assert log.producers.aborted == []


def test_a_segment_that_is_not_all_durable_is_left_alone(folder: Path) -> None:
    log = keyed_log(folder, rounds=2)
    add(log, [(b"key 1", b"not durable", (), NOW)])
    log.roll(NOW)
    end = log.durable_offset
    clean(log)
    assert log.cleaned_offset == end
    assert log.segments[-2].base_offset == end


def test_damage_is_not_cleaned_over(folder: Path) -> None:
    log = keyed_log(folder)
    flip(segment_file(log, 1), 100)
    before = sorted(path.name for path in log.directory.iterdir())
    with pytest.raises(CorruptData, match=r"cannot compact .*log at byte 0"):
        clean(log)
    assert sorted(path.name for path in log.directory.iterdir()) == before
    assert not is_cleanable(log, NOW), "it is given up until a restart, not tried every few seconds"


def test_a_partition_is_cleanable_by_ratio_and_by_age(folder: Path) -> None:
    half = COMPACT | {"min_cleanable_dirty_ratio": 0.5, "max_compaction_lag_ms": 10_000}
    log = open_log(folder / "t-0", **half)
    assert not is_cleanable(log, NOW)
    for number in range(4):
        put(log, (b"key %d" % number, bytes(100)))
    assert not is_cleanable(log, NOW), "all of it is active"
    log.roll(NOW)
    assert is_cleanable(log, NOW)
    clean(log)
    put(log, (b"key 0", bytes(100)))
    log.roll(NOW)
    assert not is_cleanable(log, NOW), "a fifth is dirty"
    assert is_cleanable(log, NOW + 10_001)


def test_more_keys_than_the_map_holds_take_several_rounds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "MAP_CAPACITY", 10)
    log = keyed_log(folder, rounds=6)
    expected = state(contents(log))
    rounds = 0
    while is_cleanable(log, NOW):
        before = log.cleaned_offset
        clean(log)
        assert log.cleaned_offset > before
        assert state(contents(log)) == expected
        rounds += 1
    assert rounds > 3
    assert len(contents(log)) == len(expected)


def test_a_segment_with_more_keys_than_the_map_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "MAP_CAPACITY", 10)
    log = open_log(folder / "t-0", **COMPACT | {"min_cleanable_dirty_ratio": 0.5})
    for value in (b"old", b"new"):
        for number in range(0, 40, 4):
            put(log, *((b"key %d" % each, value) for each in range(number, number + 4)))
    log.roll(NOW)
    for _ in range(12):
        if is_cleanable(log, NOW):
            assert clean(log)
    assert log.cleaned_offset == 80
    assert [record.value for record in contents(log)] == [b"new"] * 40
    assert not is_cleanable(log, NOW)


def test_what_was_cleaned_up_to_an_open_transaction_waits_for_its_end(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"b", b"2"), producer=(1, 0, 0), transactional=True)
    log.roll(NOW)
    log.sync()
    assert is_cleanable(log, NOW)
    clean(log)
    assert not is_cleanable(log, NOW), "again and again"
    end_transaction(log, (1, 0), commit=True)
    log.sync()
    assert is_cleanable(log, NOW)


# -- readers, crashes, lack of room ----------------------------------------------------------------


def test_readers_in_threads_while_segments_are_swapped(folder: Path) -> None:
    log = open_log(folder / "t-0", segment_bytes=4000, **COMPACT)
    model: dict[int, Record] = {}
    lock = threading.Lock()
    faults: list[object] = []
    is_over = threading.Event()

    def write(number: int) -> None:
        key = f"key {number % 37}".encode()
        base = add(log, [(key, f"{number}".encode().ljust(80, b"."), (), NOW + number)]).base_offset
        with lock:
            model[base] = Record(base, NOW + number, key, f"{number}".encode().ljust(80, b"."), ())
        log.sync()

    def read() -> None:
        dice = random.Random(threading.get_ident())
        try:
            while not is_over.is_set():
                end = log.durable_offset
                seen = {}
                offset = 0
                while offset < end and (chunk := log.read(offset, dice.choice((1, 600, 9000)), end)):
                    for batch in batches_in(chunk.data):
                        for record in read_records(batch):
                            if model.get(record.offset) != record:
                                faults.append(record)
                            seen[record.key] = record.offset
                    if chunk.next_offset <= offset:
                        faults.append((offset, chunk))
                    offset = chunk.next_offset
                with lock:
                    latest = {each.key: o for o, each in sorted(model.items()) if o < end}
                for key, o in latest.items():
                    # A key that was written again meanwhile may have been cleaned before it was reached.
                    if key not in seen or seen[key] < o:
                        with lock:
                            newest = max(x for x, each in model.items() if each.key == key)
                        if newest < end:
                            faults.append((key, o, seen.get(key)))
                log.find_time(NOW + dice.randrange(1500), end)
        except Exception as error:
            faults.append(error)

    for number in range(200):
        write(number)
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200, 1200):
        write(number)
        if number % 25 == 0:
            clean(log, NOW + number)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]
    assert findings(log.directory) == []


def rich_log(folder: Path) -> PartitionLog:
    """A log of which every kind of thing goes in the next round."""
    log = open_log(folder / "t-0", segment_bytes=900, **COMPACT)
    put(log, (b"dead", b"value"), (b"a", b"0"))
    log.roll(NOW)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    end_transaction(log, (1, 0), commit=False)
    log.roll(NOW)
    put(log, (b"dead", None))
    put(log, (b"c", b"committed"), producer=(1, 0, 1), transactional=True)
    end_transaction(log, (1, 0), commit=True)
    log.sync()
    for number in range(12):
        put(log, (b"b", b"%d" % number * 60), (b"d%d" % number, b"x"))
    log.roll(NOW)
    log.sync()
    clean(log, NOW)  # sets the horizons of the tombstone and the markers
    for number in range(6):
        put(log, (b"a", b"new %d" % number), (b"d%d" % number, b"y" * 50))
    log.roll(NOW)
    put(log, (b"z", b"active"))
    return log


def test_a_crash_at_every_step_of_a_round(folder: Path) -> None:
    log = rich_log(folder)
    expected = state(committed(log))
    assert b"dead" not in expected and expected[b"a"] == b"new 5"
    checkpoint = kill(log)
    with crash_points(log.directory, folder / "copies") as copies:
        assert clean(log, NOW + RETENTION + 1)
    assert state(committed(log)) == expected
    assert not any(record.key == b"dead" for record in contents(log)), "the tombstone is gone"
    assert len(copies) > 40
    outcomes = set()
    for copy in copies:
        again = open_log(copy, checkpoint, segment_bytes=900, **COMPACT)
        assert state(committed(again)) == expected
        assert [each for each in findings(copy) if each.kind != "stray"] == []
        assert again.next_offset == log.next_offset
        assert not (copy / "cleaning").exists() and not (copy / "cleaned").exists()
        outcomes.add(tuple(record.offset for record in contents(again)))
        clean(again, NOW + RETENTION + 1)
        assert state(committed(again)) == expected
        shutil.rmtree(copy)
    assert len(outcomes) == 2, "the round happened or it did not; there is nothing in between"


def test_a_crash_while_a_swap_is_completed(folder: Path) -> None:
    """The broker is killed again while it recovers."""
    log = rich_log(folder)
    expected = state(committed(log))
    checkpoint = kill(log)
    swap = clean_partition(log, NOW + RETENTION + 1)
    assert swap is not None
    with crash_points(log.directory, folder / "copies") as copies:
        open_log(log.directory, checkpoint, segment_bytes=900, **COMPACT)
    assert len(copies) > 10
    for copy in copies:
        again = open_log(copy, checkpoint, segment_bytes=900, **COMPACT)
        assert state(committed(again)) == expected
        assert not any(record.key == b"dead" for record in contents(again))
        assert findings(copy) == []


def test_a_round_that_was_never_put_in_place(folder: Path) -> None:
    """The broker was stopped between cleaning and swap: the next start, or round, takes care of it."""
    log = rich_log(folder)
    expected = state(committed(log))
    assert clean_partition(log, NOW + RETENTION + 1) is not None
    assert clean(log, NOW + RETENTION + 2), "another round is made from the old segments"
    assert state(committed(log)) == expected
    put(log, (b"more", b"1"))
    log.roll(NOW)
    assert clean_partition(log, NOW + RETENTION + 1) is not None
    log = open_log(log.directory, close(log), segment_bytes=900, **COMPACT)
    assert state(committed(log)) == expected | {b"more": b"1"}
    assert findings(log.directory) == []


def test_retention_may_be_quicker(folder: Path) -> None:
    log = keyed_log(folder, cleanup_policy="compact,delete")
    expected = contents(log)
    swap = clean_partition(log, NOW)
    assert swap is not None
    log.drop_segments(1)
    assert not swap.put_in_place(log)
    swap.finish()
    assert contents(log) == [record for record in expected if record.offset >= 9]
    assert not (log.directory / "cleaned").exists()
    log.departed.clear()
    assert clean(log)


def test_retention_may_be_quicker_while_segments_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = keyed_log(folder, cleanup_policy="compact,delete")
    real = cleaner._clean_group

    def drop_then_clean(*arguments: object) -> object:
        log.drop_segments(2)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner, "_clean_group", drop_then_clean)
    assert clean_partition(log, NOW) is None
    assert not (log.directory / "cleaning").exists()


def test_without_room_nothing_is_changed_and_the_next_round_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = keyed_log(folder)
    before = contents(log)
    files = sorted(path.name for path in log.directory.iterdir())

    def no_room(*arguments: object) -> None:
        raise DiskFull("append to", "it", "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("headwater.log.segment.Segment.append", no_room)
        with pytest.raises(DiskFull):
            clean(log)
    assert contents(log) == before
    assert sorted(path.name for path in log.directory.iterdir()) == files
    assert clean(log)
    assert len(contents(log)) == 13


# -- anything, in any order ------------------------------------------------------------------------


@dataclass
class Write:
    offset: int
    key: bytes
    value: bytes | None
    transaction: int | None


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.one_of(st.none(), st.binary(min_size=1, max_size=80))
OPTIONS = COMPACT | {"segment_bytes": 700}


class CompactedLog(RuleBasedStateMachine):
    """A log and a list of all that was written to it, with how the transactions ended."""

    def __init__(self) -> None:
        super().__init__()
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-", dir=place))
        self.log = open_log(self.folder / "0" / "t-0", **OPTIONS)
        self.writes: list[Write] = []
        self.ends: dict[int, bool] = {}
        self.open: dict[int, int] = {}  # producer -> transaction
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.count = 0
        self.now = NOW

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        self.plain([(b"a", b"first")])

    def _written(self, base: int, pairs: list[tuple[bytes, bytes | None]], transaction: int | None) -> None:
        for number, (key, value) in enumerate(pairs):
            self.writes.append(Write(base + number, key, value, transaction))
        self.log.sync()

    @rule(pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3))
    def plain(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        base = add(self.log, [(key, value, (), self.now) for key, value in pairs]).base_offset
        self._written(base, pairs, None)

    @rule(
        pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3),
        producer=st.sampled_from([1, 2, 3]),
    )
    def transactional(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        if producer not in self.open:
            self.count += 1
            self.open[producer] = self.count
        new = [(key, value, (), self.now) for key, value in pairs]
        base = add(self.log, new, (producer, 0, self.sequences[producer]), transactional=True).base_offset
        self.sequences[producer] += len(pairs)
        self._written(base, pairs, self.open[producer])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open)))
        self.ends[self.open.pop(producer)] = commit
        end_transaction(self.log, (producer, 0), commit, self.now)
        self.log.sync()

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(later=st.sampled_from([0, 1, RETENTION]))
    def clean(self, later: int) -> None:
        self.now += later
        clean(self.log, self.now)

    @rule(data=st.data())
    def crash_in_a_round(self, data: st.DataObject) -> None:
        self.now += RETENTION // 2
        home = self.log.directory.parent
        copies = home.parent / f"copies {home.name}"
        with crash_points(self.log.directory, copies) as made:
            clean(self.log, self.now)
        chosen = data.draw(st.integers(0, len(made) - 1))
        target = home.parent / str(int(home.name) + 1)
        shutil.move(made[chosen].parent, target)
        self.log = open_log(target / "t-0", kill(self.log), **OPTIONS)
        shutil.rmtree(home)
        shutil.rmtree(copies)

    @rule(how=st.booleans())
    def restart(self, how: bool) -> None:
        self.log = reopen(self.log, how, **OPTIONS)

    @invariant()
    def readers_see_what_they_should(self) -> None:
        log = self.log
        stable = log.last_stable_offset
        settled = [
            write
            for write in self.writes
            if write.offset < stable and (write.transaction is None or self.ends.get(write.transaction))
        ]
        seen = committed(log, 300)
        told = {write.offset: (write.key, write.value) for write in settled}
        assert all(told.get(record.offset) == (record.key, record.value) for record in seen)
        expected: dict[bytes | None, bytes] = {}
        for write in settled:
            if write.value is None:
                expected.pop(write.key, None)
            else:
                expected[write.key] = write.value
        assert state(seen) == expected
        assert log.last_stable_offset == min(
            (write.offset for write in self.writes if write.transaction in self.open.values()),
            default=log.durable_offset,
        )
        for producer, sequence in self.sequences.items():
            known = log.producers.get(producer)
            assert known is None or known.last_sequence == sequence - 1

    @invariant()
    def files_are_in_order(self) -> None:
        assert [each for each in check_directory(self.log.directory.parent) if each.kind != "stray"] == []


CompactedLog.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCompactedLog = CompactedLog.TestCase


def test_batches_of_every_codec(folder: Path) -> None:
    log = open_log(folder / "t-0", **COMPACT)
    for number in range(3):
        for codec in range(5):
            new = [(b"%d" % key, b"%d" % number * 50, (), NOW) for key in range(4)]
            add(log, new, codec=codec)
        log.roll(NOW)
    log.sync()
    clean(log)
    assert [record.value for record in contents(log)] == [b"2" * 50] * 4
    assert {read_header(batch).codec for batch in batches(log)} == {4}
