"""Compaction against a simple model: random logs of interleaved producers, cleaned again and again."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.batch import read_header
from tests.log.partition_model import RETENTION, WRITERS, Partition, new_partition

KEYS = [b"", b"a", b"b", b"c", b"k" * 40, b"k" * 41, b"long" * 100]
keys = st.sampled_from(KEYS) | st.sampled_from([*KEYS, None])
values = st.none() | st.binary(max_size=3) | st.sampled_from([b"v" * 100, b"v" * 20_000])
headers = st.just(()) | st.just((("trace", b"1"), ("null", None)))
stamps = st.integers(990_000, 1_010_000)
batches = st.lists(st.tuples(keys, values, headers, stamps), min_size=1, max_size=6)

slots = st.integers(0, WRITERS - 1)
operations = st.one_of(
    st.tuples(st.just("write"), st.none() | slots, batches, st.integers(0, 4), st.booleans()),
    st.tuples(st.just("write"), slots, batches, st.integers(0, 4), st.just(False)),
    st.tuples(st.just("end"), st.integers(1, WRITERS - 1), st.booleans()),
    st.tuples(st.just("fence"), slots),
    st.tuples(st.just("forget"), slots),
    st.tuples(
        st.just("clean"),
        st.sampled_from([0, 1, RETENTION - 1, RETENTION, 3 * RETENTION]),
        st.floats(0, 1) | st.just(1.0),
        st.sampled_from([1, 3, 1000]),
        st.integers(0, 3),
        st.integers(1, 4),
    ),
)


def perform(partition: Partition, operation: tuple[Any, ...]) -> None:
    name, *arguments = operation
    if name == "write":
        slot, records, codec, append = arguments
        writer = None if slot is None else partition.writers[slot]
        partition.write(
            records,
            writer=writer,
            transactional=bool(slot),
            codec=codec,
            append_time=partition.now if append else None,
        )
    elif name == "end":
        partition.end(partition.writers[arguments[0]], arguments[1])
    elif name == "fence":
        partition.fence(partition.writers[arguments[0]])
    elif name == "forget":
        writer = partition.writers[arguments[0]]
        writer.known = writer.open_since is not None
    else:
        advance, cut, capacity, beyond, chunk = arguments
        partition.now += advance
        ends = [0, *(read_header(batch).next_offset for batch in partition.batches)]
        ends = [end for end in ends if partition.first_dirty <= end <= partition.stable_offset]
        ends = ends or [partition.first_dirty]
        partition.clean(ends[round(cut * (len(ends) - 1))], capacity, beyond, chunk)


@given(st.lists(operations, max_size=40))
@settings(max_examples=400, deadline=None)
def test_against_the_model(steps: list[tuple[Any, ...]]) -> None:
    partition = new_partition()
    for step in steps:
        perform(partition, step)
        if step[0] == "clean":
            partition.check()
    # In the end everything is closed, cleaned, and cleaned again when every horizon is over.
    for slot in range(1, WRITERS):
        partition.end(partition.writers[slot], committed=bool(slot % 2))
    for _ in range(4):
        partition.clean()
        partition.check()
        partition.now += RETENTION
    assert all(record.value is not None for record in partition.records())


@given(st.lists(operations, max_size=30))
@settings(max_examples=200, deadline=None)
def test_cleaning_again_at_the_same_time_changes_nothing(steps: list[tuple[Any, ...]]) -> None:
    partition = new_partition()
    for step in steps:
        perform(partition, step)
    partition.clean()
    records = partition.records()
    partition.clean()  # markers whose data went with the first round get their horizon now
    partition.check()
    assert partition.records() == records
    batches, aborted = partition.batches, partition.aborted
    partition.clean()
    assert (partition.batches, partition.aborted) == (batches, aborted)
