"""The rules of Kafka's log cleaner one by one."""

from hashlib import blake2b

import pytest

from headwater.errors import CorruptData
from headwater.log.batch import DELETE_HORIZON, assemble, fault_at, read_header
from headwater.log.compaction import CleanedTransactions, Cleaner, OffsetMap, map_dirty
from headwater.log.compression import codec_name
from headwater.log.records import (
    ABORT,
    COMMIT,
    NewRecord,
    build_batch,
    control_batch,
    encode_record,
    read_control,
    read_records,
)
from tests.log.partition_model import RETENTION, AbortedRange, Partition, Writer, new_partition

# -- the rules one by one --------------------------------------------------------------------------


def put(*records: tuple[bytes | None, bytes | None], at: int = 1000) -> list[NewRecord]:
    return [(key, value, (), at + index) for index, (key, value) in enumerate(records)]


def contents(partition: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in partition.records()]


def transactional_partition() -> tuple[Partition, Writer]:
    partition = new_partition()
    return partition, partition.writers[1]


@pytest.mark.parametrize("codec", range(5), ids=codec_name)
def test_the_latest_of_each_key_stays(codec: int) -> None:
    partition = new_partition()
    partition.write(put((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), codec=codec)
    partition.write(put((b"c", b"4"), (b"b", b"5")), codec=codec)
    statistics = partition.clean()
    assert contents(partition) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert [read_header(batch).codec for batch in partition.batches] == [codec, codec]
    assert (statistics.records_read, statistics.records_kept) == (5, 3)
    assert statistics.map_records_read == 5
    partition.check()


def test_a_batch_that_loses_nothing_is_not_even_copied() -> None:
    batch = build_batch(put((b"a", b"1"), (b"b", b"2")))
    offset_map = OffsetMap(10)
    map_dirty([batch], offset_map, CleanedTransactions())
    cleaner = Cleaner(offset_map, CleanedTransactions(), now_ms=0, delete_retention_ms=0)
    assert cleaner.clean(batch) is batch


def test_records_without_a_key_go() -> None:
    partition = new_partition()
    partition.write(put((None, b"1"), (b"a", b"2"), (None, None)))
    statistics = partition.clean()
    assert contents(partition) == [(1, b"a", b"2")]
    assert statistics.records_without_key == 2


def test_what_lies_past_the_map_stays() -> None:
    partition = new_partition()
    partition.write(put((b"a", b"1"), (b"b", b"1")))
    partition.write(put((b"a", b"2"), (None, b"keyless"), (b"a", b"3"), (b"b", None)))
    untouched = partition.batches[1]
    partition.clean(capacity=5, beyond=1)
    assert partition.first_dirty == 2
    assert partition.batches[1] is untouched
    partition.check()


def test_the_map_is_bounded_and_rounds_get_on() -> None:
    partition = new_partition()
    for number in range(10):
        partition.write(put(*((b"%d-%d" % (number, index), b"v") for index in range(4))))
    ends = []
    while partition.first_dirty < partition.end_offset:
        partition.clean(capacity=9)
        ends.append(partition.first_dirty)
    assert ends == [8, 16, 24, 32, 40]
    partition.check()


def test_a_batch_with_more_keys_than_the_map_has_room() -> None:
    offset_map = OffsetMap(capacity=3)
    batch = build_batch(put(*((b"%d" % index, b"v") for index in range(10))))
    assert map_dirty([batch], offset_map, CleanedTransactions()) == 10
    assert (
        map_dirty([build_batch(put((b"x", b"y")), base_offset=10)], offset_map, CleanedTransactions()) == 10
    )
    assert offset_map.full


def test_a_full_map_takes_nothing_more() -> None:
    """Not even what would fit: there must be no hole in what it covers."""
    offset_map = OffsetMap(capacity=5)
    log = [
        build_batch(put(*((b"%d" % index, b"v") for index in range(4)))),
        build_batch(put((b"a", b"v"), (b"b", b"v")), base_offset=4),
        build_batch(put((b"c", b"v")), base_offset=6),
    ]
    assert map_dirty(log, offset_map, CleanedTransactions()) == 4
    assert map_dirty(log[2:], offset_map, CleanedTransactions()) == 4
    assert (offset_map.full, len(offset_map)) == (True, 4)


def test_an_open_transaction_outdates_nothing() -> None:
    """Its records may lie in the segment that is cleaned, past the last stable offset."""
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")))
    partition.write(put((b"a", b"open")), writer=writer, transactional=True)
    partition.clean(beyond=1)
    assert contents(partition) == [(0, b"a", b"1"), (1, b"a", b"open")]
    partition.end(writer, committed=False)
    partition.clean()
    assert contents(partition) == [(0, b"a", b"1")]
    partition.check()


def test_the_dirty_part_may_start_inside_a_batch() -> None:
    offset_map = OffsetMap(capacity=10)
    batch = build_batch(put((b"a", b"1"), (b"b", b"2")), base_offset=5)
    assert map_dirty([batch], offset_map, CleanedTransactions(), start_offset=6) == 7
    assert (offset_map.last_offset(b"a"), offset_map.last_offset(b"b")) == (-1, 6)


def test_long_keys_are_told_apart() -> None:
    long_keys = [b"x" * 41, b"x" * 42, b"x" * 40 + b"y", b"x" * 40]
    digest = blake2b(long_keys[0], digest_size=41).digest()
    partition = new_partition()
    partition.write(put(*((key, b"1") for key in [*long_keys, digest[:40], digest])))
    partition.write(put((long_keys[0], b"2")))
    partition.clean()
    assert [key for _, key, _ in contents(partition)] == [*long_keys[1:], digest[:40], digest, long_keys[0]]

    partition = new_partition()
    partition.write(
        put(*((b"a long common beginning of keys" * 2 + b"%d" % index, b"") for index in range(2000)))
    )
    partition.clean()
    assert len(partition.records()) == 2000


# -- tombstones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5), ids=codec_name)
def test_a_tombstone_stays_until_its_horizon(codec: int) -> None:
    partition = new_partition()
    partition.write(put((b"a", b"1")))
    partition.write(put((b"b", b"2"), (b"a", None), at=5000), codec=codec)
    partition.clean()
    assert contents(partition) == [(1, b"b", b"2"), (2, b"a", None)]
    header = read_header(partition.batches[-1])
    assert header.delete_horizon == partition.now + RETENTION
    assert header.attributes == codec | DELETE_HORIZON
    # The timestamps are what they were, although the batch has another base.
    assert [record.timestamp for record in partition.records()] == [5000, 5001]
    assert header.max_timestamp == 5001

    partition.now += RETENTION - 1
    partition.clean()
    assert contents(partition) == [(1, b"b", b"2"), (2, b"a", None)]
    assert read_header(partition.batches[-1]) == header, "the horizon is set once"

    partition.now += 1
    partition.clean()
    assert contents(partition) == [(1, b"b", b"2")]
    partition.check()


def test_a_tombstone_goes_at_once_when_its_key_comes_back() -> None:
    partition = new_partition()
    partition.write(put((b"a", None)))
    partition.clean()
    partition.write(put((b"a", b"1")))
    partition.clean()
    assert contents(partition) == [(1, b"a", b"1")]


def test_with_append_time_only_the_header_changes() -> None:
    partition = new_partition()
    partition.write(put((b"a", None), (b"b", b"1"), at=7), append_time=9000)
    before = partition.batches[0]
    partition.clean()
    (after,) = partition.batches
    assert after[61:] == before[61:]
    assert [record.timestamp for record in partition.records()] == [9000, 9000]
    assert read_header(after).delete_horizon == partition.now + RETENTION
    partition.now += RETENTION
    partition.clean()
    (left,) = partition.batches
    assert read_header(left).max_timestamp == 9000
    assert [record.timestamp for record in read_records(left)] == [9000]


def test_a_horizon_starts_when_the_map_has_reached_the_tombstone() -> None:
    """Until then older values of its key are there: a reader needs the whole retention after they went."""
    partition = new_partition()
    partition.write(put((b"a", b"1")))
    partition.write(put((b"a", None)))
    partition.clean(first_uncleanable=2, capacity=1, beyond=1)
    assert read_header(partition.batches[-1]).delete_horizon is None
    partition.now += 2 * RETENTION
    partition.clean()
    assert contents(partition) == [(1, b"a", None)]


def test_the_largest_timestamp_is_that_of_what_is_left() -> None:
    partition = new_partition()
    partition.write([(b"a", b"1", (), 100), (b"b", b"1", (), 900), (b"c", b"1", (), 50)])
    partition.write([(b"b", b"2", (), 60)])
    partition.clean()
    header = read_header(partition.batches[0])
    assert (header.base_timestamp, header.max_timestamp) == (100, 100)
    assert [record.timestamp for record in read_records(partition.batches[0])] == [100, 50]


# -- producers -------------------------------------------------------------------------------------


def test_the_last_batch_of_a_producer_stays_as_a_bare_header() -> None:
    partition = new_partition()
    writer = partition.writers[0]
    partition.write(put((b"a", b"1")), writer=writer)
    partition.write(put((b"a", b"2"), (b"b", b"2")), writer=writer, codec=3)
    partition.write(put((b"a", b"3"), (b"b", b"3")))
    partition.clean()
    bare, _ = partition.batches
    header = read_header(bare)
    assert len(bare) == 61 and fault_at(bare) is None
    assert (header.base_offset, header.last_offset, header.record_count) == (1, 2, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (100, 0, 1)
    assert header.last_sequence == 2
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0, -1, 1001)
    partition.check()

    writer.known = False
    partition.clean()
    assert len(partition.batches) == 1


def test_the_last_batch_of_a_round_stays_as_a_bare_header() -> None:
    """Otherwise the log would forget that its offsets were used."""
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")))
    partition.write(put((b"b", b"2")), writer=writer, transactional=True)
    writer.known = False
    partition.aborted.append(AbortedRange(writer.producer_id, 1, 2))
    partition.ends[(writer.producer_id, 1)] = False
    writer.open_since = None
    partition.clean(first_uncleanable=2)
    assert [read_header(batch).next_offset for batch in partition.batches] == [1, 2]
    assert read_header(partition.batches[1]).record_count == 0


def test_a_marker_stays_as_long_as_it_holds_the_epoch() -> None:
    partition, writer = transactional_partition()
    partition.end(writer, committed=True)
    partition.write(put((b"a", b"1")))
    for _ in range(3):
        partition.clean()
        partition.now += RETENTION
    header = read_header(partition.batches[0])
    assert header.is_control and header.record_count == 0
    assert header.producer_epoch == writer.epoch
    writer.known = False
    partition.clean()
    assert [read_header(batch).is_control for batch in partition.batches] == [False]


# -- transactions ----------------------------------------------------------------------------------


def marker_count(partition: Partition) -> int:
    return sum(read_header(batch).is_control for batch in partition.batches)


def test_aborted_records_go_and_their_marker_later() -> None:
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"old")))
    partition.write(put((b"a", b"aborted")), writer=writer, transactional=True)
    partition.end(writer, committed=False)
    partition.write(put((b"b", b"1")))
    writer.known = False

    partition.clean()
    assert contents(partition) == [(0, b"a", b"old"), (3, b"b", b"1")]
    assert len(partition.aborted) == 1, "its batch was there until now"
    marker = partition.batches[1]
    assert read_header(marker).delete_horizon is None

    partition.clean()
    marker = partition.batches[1]
    header = read_header(marker)
    assert header.delete_horizon == partition.now + RETENTION
    told = read_control(marker)
    assert told is not None and not told.committed
    assert [record.timestamp for record in read_records(marker)] == [partition.now]
    assert partition.aborted == []

    partition.now += RETENTION - 1
    partition.clean()
    assert marker_count(partition) == 1
    partition.now += 1
    partition.clean()
    assert marker_count(partition) == 0
    partition.check()


def test_a_commit_marker_stays_as_long_as_its_records() -> None:
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")), writer=writer, transactional=True)
    partition.end(writer, committed=True)
    writer.known = False
    for _ in range(3):
        partition.clean()
        partition.now += RETENTION
    assert marker_count(partition) == 1
    assert contents(partition) == [(0, b"a", b"1")]
    partition.write(put((b"a", b"2")))
    for _ in range(3):
        partition.clean()
        partition.now += RETENTION
    assert marker_count(partition) == 0


def test_a_bare_header_of_an_aborted_transaction_holds_its_marker() -> None:
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")), writer=writer, transactional=True)
    partition.end(writer, committed=False)
    partition.write(put((b"b", b"1")))
    for _ in range(3):
        partition.clean()
        partition.now += RETENTION
    assert [read_header(batch).record_count for batch in partition.batches] == [0, 1, 1]
    assert len(partition.aborted) == 1
    partition.check()


def test_markers_of_transactions_that_wrote_elsewhere_go() -> None:
    """A producer's earlier transaction, whose records are here, does not hold the markers of later ones."""
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")), writer=writer, transactional=True)
    for committed in (True, True, False):
        partition.end(writer, committed)
    partition.write(put((b"b", b"1")))
    writer.known = False
    for _ in range(2):
        partition.clean()
        partition.now += RETENTION
    assert [read_header(batch).base_offset for batch in partition.batches] == [0, 1, 4]


def test_records_outside_of_transactions_are_never_aborted() -> None:
    transactions = CleanedTransactions([AbortedRange(7, 0, 5)])
    plain = read_header(build_batch(put((b"a", b"1")), producer_id=7, base_sequence=0))
    assert not transactions.is_aborted(plain)
    assert transactions.is_marker_of_nothing(plain._replace(base_offset=5), ABORT)


def test_a_missing_marker_does_not_spread() -> None:
    """What comes after an aborted transaction without a marker is judged by its own."""
    told = [AbortedRange(7, 0, 5), AbortedRange(7, 20, 30)]
    data = read_header(build_batch(put((b"a", b"1")), producer_id=7, transactional=True, base_sequence=0))
    transactions = CleanedTransactions(told)
    assert transactions.is_aborted(data)
    assert not transactions.is_aborted(data._replace(base_offset=10))
    assert not transactions.is_marker_of_nothing(data._replace(base_offset=11), COMMIT)
    assert transactions.is_marker_of_nothing(data._replace(base_offset=30), ABORT)
    assert transactions.take_retained() == []


def test_an_aborted_transaction_whose_marker_lies_past_the_round() -> None:
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")))
    partition.write(put((b"a", b"aborted")), writer=writer, transactional=True)
    partition.write(put((b"c", b"1")))
    partition.end(writer, committed=False)
    writer.known = False
    partition.clean(first_uncleanable=3)
    assert contents(partition) == [(0, b"a", b"1"), (2, b"c", b"1")]
    assert partition.aborted == [AbortedRange(101, 1, 3)]
    partition.check()


def test_an_abort_marker_that_nobody_told_of_does_not_leave_before_its_records() -> None:
    """If the list of aborted transactions lacks one, its records stay, and so its marker has to."""
    partition, writer = transactional_partition()
    partition.write(put((b"a", b"1")), writer=writer, transactional=True)
    partition.end(writer, committed=False)
    partition.aborted.clear()
    for _ in range(3):
        partition.clean()
        partition.now += RETENTION
    assert [read_header(batch).is_control for batch in partition.batches] == [False, True]
    assert read_control(partition.batches[1]) is not None


def test_aborted_transactions_told_twice_are_one() -> None:
    transactions = CleanedTransactions([AbortedRange(7, 0, 5), AbortedRange(7, 0, 5)])
    transactions.add_aborted([AbortedRange(7, 0, 5)])
    data = read_header(build_batch(put((b"a", b"1")), producer_id=7, transactional=True, base_sequence=0))
    assert transactions.is_aborted(data)
    marker = read_header(control_batch(ABORT, 7, 0, 0, 0))._replace(base_offset=5)
    assert not transactions.is_marker_of_nothing(marker, ABORT)
    assert not transactions.is_aborted(data._replace(base_offset=6)), "a later transaction is another"
    assert transactions.take_retained() == [AbortedRange(7, 0, 5)]
    assert transactions.take_retained() == []


# -- what is not as it should be -------------------------------------------------------------------


def nonsense(base_offset: int) -> bytes:
    """A batch with a right checksum whose third record is none."""
    data = encode_record(0, 0, b"a", b"1") + encode_record(1, 0, b"b", b"1") + b"\x7f\x7f\x7f"
    return assemble(data, record_count=3, base_offset=base_offset, base_timestamp=0, max_timestamp=0)


def test_a_batch_that_cannot_be_read_stays_and_outdates_nothing() -> None:
    partition = new_partition()
    partition.write(put((b"a", b"0"), (b"b", b"0")))
    partition.batches.append(nonsense(2))
    partition.end_offset = 5
    partition.write(put((b"b", b"9")))
    statistics = partition.clean()
    assert partition.batches[1] == nonsense(2)
    assert [record.value for record in read_records(partition.batches[0])] == [b"0"]
    assert statistics.unreadable_batches == 2  # once in the map, once in the cleaning


@pytest.mark.parametrize("timestamp_delta", [2**63 - 1, -(2**63)])
def test_a_timestamp_that_the_protocol_has_no_room_for(timestamp_delta: int) -> None:
    """Its batch stays as it is, be it to lose a record or to get a horizon; the others are cleaned."""
    made_up = [
        encode_record(0, 0, b"a", b"1") + encode_record(1, timestamp_delta, b"b", b"1"),
        encode_record(0, 0, b"c", None) + encode_record(1, timestamp_delta, b"d", None),
    ]
    partition = new_partition()
    base = 1000 if timestamp_delta > 0 else -1000
    for number, data in enumerate(made_up):
        batch = assemble(
            data, record_count=2, base_offset=2 * number, base_timestamp=base, max_timestamp=base
        )
        partition.batches.append(batch)
    before = list(partition.batches)
    partition.end_offset = 4
    partition.write(put((b"a", b"0"), (b"e", b"0")))
    partition.write(put((b"a", b"2"), (b"e", b"2")))
    statistics = partition.clean()
    assert partition.batches[:2] == before
    assert partition.batches[-1] == build_batch(put((b"a", b"2"), (b"e", b"2")), base_offset=6)
    assert statistics.unreadable_batches


def test_a_bomb_stays_as_it_is() -> None:
    bomb = build_batch(put((b"a", bytes(1_000_000)), (b"a", b"2")), codec=4)
    offset_map = OffsetMap(10)
    map_dirty([bomb], offset_map, CleanedTransactions(), limit=100_000)
    cleaner = Cleaner(offset_map, CleanedTransactions(), now_ms=0, delete_retention_ms=0, limit=100_000)
    assert len(offset_map) == 0
    assert cleaner.clean(bomb) is bomb


def test_a_control_batch_that_is_no_marker_stays() -> None:
    change = build_batch(put((b"\0\0\0\2", b"a change of leader")), control=True)
    odd = build_batch(put((b"?", b"?")), control=True, base_offset=1)
    offset_map = OffsetMap(10)
    assert map_dirty([change, odd], offset_map, CleanedTransactions()) == 2
    for now in (0, 10**15):
        cleaner = Cleaner(offset_map, CleanedTransactions(), now_ms=now, delete_retention_ms=0)
        assert list(cleaner.clean_all([change, odd])) == [change, odd]


@pytest.mark.parametrize("place", [8, 16, 21, 61, 66])
def test_damage_is_never_sealed_with_a_new_checksum(place: int) -> None:
    batch = bytearray(build_batch(put((b"a", b"1"), (b"a", b"2"))))
    batch[place] ^= 1
    with pytest.raises(CorruptData):
        map_dirty([batch], OffsetMap(10), CleanedTransactions())
    cleaner = Cleaner(OffsetMap(10), CleanedTransactions(), now_ms=0, delete_retention_ms=0)
    with pytest.raises(CorruptData):
        cleaner.clean(batch)


def test_two_batches_are_not_one() -> None:
    batch = build_batch(put((b"a", b"1")))
    with pytest.raises(CorruptData, match="bytes follow it"):
        map_dirty([batch + batch], OffsetMap(10), CleanedTransactions())
