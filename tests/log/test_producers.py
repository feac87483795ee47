"""Sequences, epochs, transactions and snapshots of producers, without a log."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidTransaction, OutOfOrderSequence, StaleProducerEpoch
from headwater.log.batch import BatchHeader
from headwater.log.index import AbortedTransaction
from headwater.log.producers import REMEMBERED_BATCHES, Producers

LAST = 2**31 - 1


def header(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    transactional: bool = False,
    at: int = 1000,
) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, at, at, producer_id, epoch, sequence, count)


class Log:
    """Producers and the offsets that their batches would get."""

    def __init__(self) -> None:
        self.producers = Producers("t-0")
        self.end = 0

    def add(self, batch: BatchHeader) -> tuple[int, bool]:
        """Base offset, and whether it was there already."""
        written = self.producers.check(batch)
        if written is not None:
            return written.base_offset, True
        base = self.end
        self.producers.written(batch, base)
        self.end = base + batch.last_offset_delta + 1
        return base, False

    def finish(self, producer_id: int = 1, epoch: int = 0, commit: bool = True) -> AbortedTransaction | None:
        marker = header(producer_id, epoch, -1, transactional=True)
        self.producers.check_marker(producer_id, epoch)
        aborted = self.producers.ended(marker, self.end, commit, 0)
        self.end += 1
        return aborted

    def restarted(self) -> "Log":
        again = Log()
        assert again.producers.restore(self.producers.snapshot())
        again.end = self.end
        return again


# -- sequences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_last_five_batches_are_known_again(is_restarted: bool) -> None:
    log = Log()
    offsets = [log.add(header(sequence=number * 3, count=3))[0] for number in range(9)]
    if is_restarted:
        log = log.restarted()
    for number in range(4, 9):
        assert log.add(header(sequence=number * 3, count=3)) == (offsets[number], True)
    for number in range(4):
        with pytest.raises(OutOfOrderSequence):
            log.add(header(sequence=number * 3, count=3))
    assert log.add(header(sequence=27)) == (27, False)


def test_a_part_of_a_batch_is_not_the_batch() -> None:
    log = Log()
    log.add(header(sequence=0, count=5))
    for sequence, count in ((0, 3), (2, 3), (0, 6)):
        with pytest.raises(OutOfOrderSequence, match="sent sequence"):
            log.add(header(sequence=sequence, count=count))


def test_a_gap_is_refused() -> None:
    log = Log()
    log.add(header(sequence=0, count=2))
    with pytest.raises(OutOfOrderSequence):
        log.add(header(sequence=3))
    assert log.add(header(sequence=2)) == (2, False)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("start", [LAST, LAST - 1, LAST - 2, LAST - 5])
def test_sequences_wrap(start: int, is_restarted: bool) -> None:
    log = Log()
    sequence, offsets = start, []
    for _ in range(5):
        offsets.append((sequence, log.add(header(sequence=sequence, count=3))[0]))
        sequence = (sequence + 3) & LAST
    assert sequence < 100
    if is_restarted:
        log = log.restarted()
    for before, offset in offsets:
        assert log.add(header(sequence=before, count=3)) == (offset, True)
    assert not log.add(header(sequence=sequence))[1]


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    assert Log().add(header(sequence=77)) == (0, False)


def test_a_producer_of_which_there_is_only_a_marker_starts_at_zero() -> None:
    log = Log()
    log.finish(epoch=3)
    with pytest.raises(OutOfOrderSequence):
        log.add(header(epoch=3, sequence=4))
    assert log.add(header(epoch=3, sequence=0)) == (1, False)


def test_a_new_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    log = Log()
    log.add(header(epoch=2, sequence=0, count=10))
    with pytest.raises(OutOfOrderSequence, match="a new epoch starts at sequence 0"):
        log.add(header(epoch=3, sequence=10))
    assert log.add(header(epoch=3, sequence=0)) == (10, False)
    for sequence in (0, 1, 10):
        with pytest.raises(StaleProducerEpoch, match="the current one is 3"):
            log.add(header(epoch=2, sequence=sequence))
    with pytest.raises(StaleProducerEpoch):
        log.finish(epoch=2)
    log.finish(epoch=4)
    with pytest.raises(StaleProducerEpoch):
        log.add(header(epoch=3, sequence=1))


def test_batches_of_the_broker_have_no_sequence() -> None:
    log = Log()
    for _ in range(3):
        assert not log.add(header(epoch=1, sequence=-1, transactional=True))[1]
    assert log.restarted().producers.open_transactions() == [(0, 1)]


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = Log()
    log.add(header(sequence=0, transactional=True))
    with pytest.raises(InvalidTransaction):
        log.add(header(sequence=1))


def test_after_a_refusal_the_first_batch_stays_the_first() -> None:
    """Its producer is not known yet, and any sequence would do: but there were batches behind it."""
    log = Log()
    log.producers.refused(header(sequence=0, count=5))
    with pytest.raises(OutOfOrderSequence, match="for which there was no room"):
        log.add(header(sequence=5))
    assert log.add(header(producer_id=2, sequence=5)) == (0, False), "others may"
    assert log.add(header(epoch=1, sequence=0)) == (1, False), "a new epoch may"
    log = Log()
    log.producers.refused(header(sequence=0, count=5))
    assert log.add(header(sequence=0, count=5)) == (0, False)
    assert log.add(header(sequence=5)) == (5, False)


def test_refusals_are_bounded() -> None:
    producers = Producers("t-0")
    for producer_id in range(5000):
        producers.refused(header(producer_id))
    assert len(producers._refused) == 1000


# -- transactions ----------------------------------------------------------------------------------


def test_the_first_unstable_offset() -> None:
    log = Log()
    producers = log.producers
    assert not producers.has_transactions
    log.add(header(1, transactional=True))
    log.add(header(2, transactional=True))
    log.add(header(1, sequence=1, transactional=True))
    assert producers.open_transactions() == [(0, 1), (1, 2)]
    assert producers.first_unstable(log.end) == 0
    log.finish(1)
    assert producers.first_unstable(3) == 0, "its marker is not durable yet"
    assert producers.first_unstable(4) == 1
    producers.became_durable(4)
    log.finish(2, commit=False)
    assert producers.first_unstable(4) == 1
    assert producers.first_unstable(5) is None
    assert producers.has_transactions
    producers.became_durable(5)
    assert not producers.has_transactions
    assert producers.aborted == [AbortedTransaction(2, 1, 4, 5)]


def test_aborted_ranges_of_a_read() -> None:
    log = Log()
    long = log.add(header(9, transactional=True))[0]
    for number in range(20):
        log.add(header(1, sequence=number, transactional=True))
        log.finish(1, commit=False)
    assert log.finish(9, commit=False) == AbortedTransaction(9, long, 41, 42)
    for first in range(43):
        for end in range(first + 1, 44):
            told = log.producers.aborted_between(first, end)
            assert told == [
                a for a in log.producers.aborted if a.last_offset >= first and a.first_offset < end
            ]
    log.producers.start_moved(35)
    assert min(a.last_offset for a in log.producers.aborted) >= 35


def test_a_marker_without_a_transaction_aborts_nothing() -> None:
    log = Log()
    assert log.finish(5, commit=False) is None
    assert log.producers.get(5) is not None


def test_what_compaction_leaves() -> None:
    log = Log()
    for number in range(6):
        log.add(header(1, sequence=number, transactional=True))
        log.finish(1, commit=False)
    before = log.producers.aborted
    log.producers.cleaned([before[0], before[2]], end_offset=6, log_start=1)
    assert log.producers.aborted == [before[0], before[2], *before[3:]]
    log.producers.cleaned([], end_offset=100, log_start=0)
    assert log.producers.aborted == []


def test_a_reader_never_sees_past_a_transaction_that_ends_meanwhile() -> None:
    """The last stable offset is asked for in other threads."""
    log = Log()
    durable = 1_000_000
    log.end = durable  # nothing of what follows is durable
    low: list[int] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            unstable = log.producers.first_unstable(durable)
            low.append(durable if unstable is None else unstable)

    log.add(header(1, transactional=True))
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 2000):
        log.finish(1, commit=number % 2 == 0)
        log.add(header(1, sequence=number, transactional=True))
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(low) == {durable}, "the first of them stays the first that is not settled"


# -- forgetting ------------------------------------------------------------------------------------


def test_idle_producers_are_forgotten_busy_ones_are_not() -> None:
    log = Log()
    log.add(header(1, at=100))
    log.add(header(2, at=100))
    log.add(header(3, at=100, transactional=True))
    log.add(header(4, at=90_000))
    day = 1000
    assert log.producers.forget_idle(5_000 - day, now=5_000) == 0, "seen for the first time"
    log.add(header(2, sequence=1, at=100))  # busy with old records
    assert log.producers.forget_idle(6_000 - day, now=6_000) == 1
    assert {each.producer_id for each in log.producers.all()} == {2, 3, 4}
    assert log.producers.forget_idle(7_000 - day, now=7_000) == 1
    assert {each.producer_id for each in log.producers.all()} == {3, 4}


# -- snapshots -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["add", "bump", "commit", "abort"]), st.integers(1, 4)),
        max_size=40,
    )
)
def test_a_snapshot_holds_everything(steps: list[tuple[int, str, int]]) -> None:
    log = Log()
    epochs = dict.fromkeys(range(1, 5), 0)
    sequences = dict.fromkeys(range(1, 5), 0)
    for producer_id, step, count in steps:
        epoch, is_open = epochs[producer_id], producer_id % 2 == 0
        if step == "add":
            log.add(header(producer_id, epoch, sequences[producer_id], count, transactional=is_open))
            sequences[producer_id] += count
        elif step == "bump":
            epochs[producer_id] += 1
            sequences[producer_id] = 0
            if is_open:
                log.finish(producer_id, epochs[producer_id], commit=False)
        elif is_open:
            log.finish(producer_id, epoch, commit=step == "commit")
    again = log.restarted()
    for each in log.producers.all():
        other = again.producers.get(each.producer_id)
        assert other is not None
        assert (other.epoch, other.coordinator_epoch, other.transaction_start, other.batches) == (
            each.epoch, each.coordinator_epoch, each.transaction_start, each.batches,
        )  # fmt: skip
        assert other.batches.maxlen == REMEMBERED_BATCHES
    assert again.producers.open_transactions() == log.producers.open_transactions()
    assert len(again.producers) == len(log.producers)
    assert again.producers.snapshot() == log.producers.snapshot()


def test_a_damaged_snapshot_says_nothing() -> None:
    log = Log()
    log.add(header(1, transactional=True))
    content = log.producers.snapshot()
    for position in range(len(content)):
        wrong = bytearray(content)
        wrong[position] ^= 0x10
        producers = Producers("t-0")
        assert not producers.restore(bytes(wrong))
        assert not len(producers) and not producers.has_transactions
        assert not producers.restore(content[:position])
    assert not Producers("t-0").restore(content + b"\0")
    assert Producers("t-0").restore(Producers("t-0").snapshot())
