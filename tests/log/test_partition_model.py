"""A partition against a list in memory: anything that may be done to it, in any order."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.errors import OffsetOutOfRange, OutOfOrderSequence, StaleProducerEpoch
from headwater.log.batch import read_header
from headwater.log.records import read_records
from headwater.log.retention import expired, remove_departed
from tests.log.logs import (
    NOW,
    add,
    batches_in,
    committed,
    end_transaction,
    findings,
    open_log,
    reopen,
    segment_file,
)

OPTIONS = {"segment_bytes": 900, "retention_ms": -1}
TIMES = st.lists(st.integers(0, 200), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([1, 2, 3])


@dataclass
class Batch:
    base: int
    times: list[int]
    value: bytes
    producer: tuple[int, int, int] | None = None
    transaction: int | None = None
    is_marker: bool = False

    @property
    def end(self) -> int:
        return self.base + len(self.times)


@dataclass
class Writer:
    epoch: int = 0
    sequence: int = 0
    batches: list[Batch] = field(default_factory=list)  # of this epoch
    transaction: int | None = None


class ModelledLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-", dir=place))
        self.log = open_log(self.folder / "t-0", **OPTIONS)
        self.batches: list[Batch] = []
        self.writers = {number: Writer() for number in (1, 2, 3)}
        self.aborted: set[int] = set()
        self.transactions = 0
        self.start = 0
        self.value = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    # -- writing ----------------------------------------------------------------------------------

    def _add(self, times: list[int], producer: int | None = None, transactional: bool = False) -> None:
        self.value += 1
        value = f"{self.value}".encode().ljust(60, b".")
        identity = None
        transaction = None
        if producer is not None:
            writer = self.writers[producer]
            identity = (producer, writer.epoch, writer.sequence)
            if transactional:
                if writer.transaction is None:
                    self.transactions += 1
                    writer.transaction = self.transactions
                transaction = writer.transaction
        batch = Batch(self.end, times, value, identity, transaction)
        appended = add(self.log, self._records(batch), identity, transactional)
        assert (appended.base_offset, appended.last_offset, appended.duplicate) == (
            self.end,
            batch.end - 1,
            False,
        )
        self.batches.append(batch)
        if producer is not None:
            writer.batches.append(batch)
            writer.sequence = (writer.sequence + len(times)) & 0x7FFFFFFF
        self.log.sync()

    def _records(self, batch: Batch) -> list[tuple[bytes, bytes, tuple[()], int]]:
        return [(b"k", batch.value, (), NOW + at) for at in batch.times]

    @rule(times=TIMES)
    def plain(self, times: list[int]) -> None:
        self._add(times)

    @rule(times=TIMES, producer=PRODUCERS, data=st.data())
    def idempotent(self, times: list[int], producer: int, data: st.DataObject) -> None:
        is_open = self.writers[producer].transaction is not None
        self._add(times, producer, is_open or data.draw(st.booleans()))

    @rule(producer=PRODUCERS)
    def skip_to_the_end_of_sequences(self, producer: int) -> None:
        """A new epoch whose first batch is past what a sequence can count to, but for two."""
        writer = self.writers[producer]
        if writer.transaction is None and not writer.batches and writer.epoch == 0:
            writer.sequence = 2**31 - 2

    @rule(producer=PRODUCERS, number=st.integers(1, 8))
    def repeat(self, producer: int, number: int) -> None:
        writer = self.writers[producer]
        if number > len(writer.batches):
            return
        batch = writer.batches[-number]
        new = self._records(batch)
        if number > 5:
            with pytest.raises(OutOfOrderSequence):
                add(self.log, new, batch.producer, batch.transaction is not None)
            return
        again = add(self.log, new, batch.producer, batch.transaction is not None)
        assert again == (batch.base, batch.end - 1, True)

    @rule(producer=PRODUCERS, ahead=st.integers(1, 3))
    def leave_out_a_sequence(self, producer: int, ahead: int) -> None:
        writer = self.writers[producer]
        if writer.batches and writer.transaction is None:
            with pytest.raises(OutOfOrderSequence):
                add(
                    self.log,
                    [(b"k", b"v", (), NOW)],
                    (producer, writer.epoch, writer.sequence + ahead & 0x7FFFFFFF),
                )

    @rule(producer=PRODUCERS)
    def new_epoch(self, producer: int) -> None:
        writer = self.writers[producer]
        before = writer.epoch
        writer.epoch += 1
        writer.sequence = 0
        if writer.transaction is not None:
            self._end(producer, commit=False)
        writer.batches = []
        self._add([0], producer)
        with pytest.raises(StaleProducerEpoch):
            add(self.log, [(b"k", b"v", (), NOW)], (producer, before, 0))
        with pytest.raises(StaleProducerEpoch):
            end_transaction(self.log, (producer, before), commit=True)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_of_transaction(self, producer: int, commit: bool) -> None:
        if self.writers[producer].transaction is not None:
            self._end(producer, commit)

    def _end(self, producer: int, commit: bool) -> None:
        writer = self.writers[producer]
        assert writer.transaction is not None
        end_transaction(self.log, (producer, writer.epoch), commit, NOW + 100)
        self.batches.append(Batch(self.end, [100], b"", (producer, 0, 0), None, is_marker=True))
        if not commit:
            self.aborted.add(writer.transaction)
        writer.transaction = None
        self.log.sync()

    # -- the rest ---------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(how=st.booleans())
    def restart(self, how: bool) -> None:
        self.log = reopen(self.log, how, **OPTIONS)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def torn_write(self, data: st.DataObject) -> None:
        """A kill in the middle of a write that nobody was told of."""
        add(self.log, [(b"k", b"torn" * 20, (), NOW)])
        os.truncate(segment_file(self.log), self.log.active.size - data.draw(st.integers(1, 100)))
        self.log = reopen(self.log, False, **OPTIONS)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        self.log.move_start(offset)
        self.start = max(self.start, offset)
        count = expired(self.log, NOW)
        if count:
            self.log.drop_segments(count)
            assert self.log.prepare_removal()
            remove_departed(self.log)

    @rule(data=st.data(), limit=st.sampled_from([0, 1, 100, 200, 500, 10_000]), end=st.integers(0, 3))
    def read(self, data: st.DataObject, limit: int, end: int) -> None:
        offset = data.draw(st.integers(0, self.end))
        end_offset = data.draw(st.sampled_from([b.base for b in self.batches[-end:]] or [self.end]))
        if offset < self.start:
            with pytest.raises(OffsetOutOfRange):
                self.log.check_readable(offset)
            return
        chunk = self.log.read(offset, limit, end_offset)
        expected = [b for b in self.batches if b.end > offset and b.base < end_offset]
        if offset >= end_offset:
            expected = []
        found = [] if chunk is None else list(batches_in(chunk.data))
        assert [read_header(each).base_offset for each in found] == [b.base for b in expected[: len(found)]]
        assert bool(found) == bool(expected)
        size = sum(map(len, found))
        assert size <= limit or len(found) == 1
        if len(found) < len(expected):
            position = self.log.read(expected[len(found)].base, 0, self.end)
            assert position is not None
            # What follows would not have fitted, or lies in the next segment.
            next_segment = any(s.base_offset == expected[len(found)].base for s in self.log.segments)
            assert size + read_header(position.data).size > limit or next_segment
        for each, batch in zip(found, expected, strict=False):
            if not batch.is_marker:
                assert [(r.offset, r.timestamp, r.value) for r in read_records(each)] == [
                    (batch.base + n, NOW + at, batch.value) for n, at in enumerate(batch.times)
                ]

    @rule(at=st.integers(-1, 210))
    def find_by_time(self, at: int) -> None:
        expected = next(
            (
                (batch.base + n, NOW + time)
                for batch in self.batches
                for n, time in enumerate(batch.times)
                if time >= at and batch.base + n >= self.start
            ),
            None,
        )
        assert self.log.find_time(NOW + at, self.end) == expected

    @invariant()
    def offsets_are_right(self) -> None:
        log = self.log
        assert (log.start_offset, log.next_offset, log.durable_offset) == (self.start, self.end, self.end)
        opened = {w.transaction for w in self.writers.values() if w.transaction is not None}
        unstable = min((b.base for b in self.batches if b.transaction in opened), default=self.end)
        assert log.last_stable_offset == max(unstable, self.start)

    @invariant()
    def committed_readers_see_the_settled_part(self) -> None:
        stable = self.log.last_stable_offset
        assert [(r.offset, r.value) for r in committed(self.log, 400)] == [
            (offset, batch.value)
            for batch in self.batches
            if not batch.is_marker and batch.transaction not in self.aborted
            for offset in range(batch.base, batch.end)
            if self.start <= offset < stable
        ]

    @invariant()
    def files_are_in_order(self) -> None:
        assert findings(self.log.directory) == []


ModelledLog.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestModelledLog = ModelledLog.TestCase
