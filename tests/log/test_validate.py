"""What may enter the log: form, size, checksum, timestamps, keys and codecs of a client's batch."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import (
    BatchTooLarge,
    CorruptBatch,
    HeadwaterError,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedFormat,
)
from headwater.log.batch import BatchHeader, Buffer, assemble, fault_at, read_header, seal
from headwater.log.records import NewRecord, build_batch, control_batch, read_records
from headwater.log.validate import check_batch
from tests.log.logs import NOW, records, topic_config


def check(batch: Buffer, **settings: object) -> tuple[Buffer, BatchHeader]:
    return check_batch(batch, topic_config(**settings), NOW, "t-0")


def spoilt(position: int, form: str, value: int, batch: bytes | None = None) -> bytes:
    """A batch with another value in its header, and the right checksum for it."""
    copy = bytearray(batch or build_batch(records("a", "b")))
    struct.pack_into(form, copy, position, value)
    if position not in (8, 17):
        seal(copy)
    return bytes(copy)


@pytest.mark.parametrize("codec", range(5))
def test_a_good_batch_passes_as_it_is(codec: int) -> None:
    batch = build_batch(records("a", "b"), codec=codec)
    stored, header = check(batch)
    assert stored is batch
    assert header == read_header(batch)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", InvalidBatch),
        (bytes(20), UnsupportedFormat),
        (bytes(16) + b"\1" + bytes(60), UnsupportedFormat),
        (spoilt(16, ">b", 3), CorruptBatch),
        (spoilt(8, ">i", 20), CorruptBatch),
        (spoilt(8, ">i", -5), CorruptBatch),
        (spoilt(8, ">i", 10_000), InvalidBatch),
        (spoilt(17, ">I", 12345), CorruptBatch),
        (spoilt(21, ">h", 0x20), InvalidBatch),
        (spoilt(21, ">h", 0x05), InvalidBatch),
        (spoilt(21, ">h", 0x10), InvalidBatch),
        (spoilt(23, ">i", 5), InvalidBatch),
        (spoilt(57, ">i", 0), InvalidBatch),
        (spoilt(43, ">q", 5), InvalidBatch),
        (build_batch(records("a")) * 2, InvalidBatch),
        (control_batch(1, 5, 0, 0, NOW), InvalidBatch),
    ],
)
def test_a_bad_batch_does_not(batch: bytes, error: type[HeadwaterError]) -> None:
    with pytest.raises(error, match="cannot append to t-0"):
        check(batch)


@given(st.integers(0, 200), st.integers(1, 255))
def test_no_wrong_byte_passes_unnoticed(position: int, change: int) -> None:
    """But in the fields that the broker writes itself."""
    batch = bytearray(build_batch(records("value" * 10, "value" * 15)))
    position %= len(batch)
    batch[position] ^= change
    try:
        stored, _ = check(bytes(batch))
    except HeadwaterError:
        return
    assert position < 8 or 12 <= position < 16
    assert fault_at(stored) is None


def test_the_size_limit_is_inclusive() -> None:
    batch = build_batch(records("x" * 500))
    check(batch, max_message_bytes=len(batch))
    with pytest.raises(BatchTooLarge):
        check(batch, max_message_bytes=len(batch) - 1)


def test_timestamps_too_far_away() -> None:
    hour = 3_600_000
    check(build_batch(records("a", at=NOW + hour)))
    with pytest.raises(InvalidTimestamp):
        check(build_batch(records("a", at=NOW + hour + 1)))
    check(build_batch(records("a", at=0)))
    limit = {"message_timestamp_before_max_ms": 1000}
    check(build_batch(records("a", at=NOW - 1000)), **limit)
    with pytest.raises(InvalidTimestamp):
        check(build_batch(records("a", at=NOW - 1001)), **limit)
    check(build_batch(records("a", at=-1)), **limit)


def test_the_brokers_own_timestamps() -> None:
    batch, header = check(build_batch(records("a", at=5)), message_timestamp_type="LogAppendTime")
    assert header.uses_append_time and header.max_timestamp == NOW
    assert fault_at(batch) is None
    assert [record.timestamp for record in read_records(batch)] == [NOW]
    check(build_batch(records("a", at=NOW + 10**9)), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_wants_keys(codec: int) -> None:
    keyed: list[NewRecord] = [(b"k", b"v", (), NOW), (b"", None, (), NOW)]
    check(build_batch(keyed, codec=codec), cleanup_policy="compact")
    with pytest.raises(InvalidBatch, match="record 2 has no key"):
        check(build_batch([*keyed, (None, b"v", (), NOW)], codec=codec), cleanup_policy="compact")


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own(codec: int, name: str) -> None:
    batch = build_batch(
        records("a" * 100, "b"), codec=codec, producer_id=4, producer_epoch=1, base_sequence=9
    )
    stored, header = check(batch, compression_type=name)
    assert header.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(name)
    assert fault_at(stored) is None
    assert list(read_records(stored)) == list(read_records(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("attributes", [0, 0x08])
def test_a_header_that_does_not_know_the_latest_timestamp(codec: int, attributes: int) -> None:
    """As Sarama sent it until 1.42.1: without it no lookup by time would find the records."""
    new = [(b"k", b"a", (), NOW), (b"k", b"b", (), NOW + 20), (b"k", b"c", (), NOW - 10)]
    whole = build_batch(new, codec=codec)
    sent = spoilt(21, ">h", codec | attributes, spoilt(35, ">q", -1, whole))
    stored, header = check(sent)
    assert bytes(stored) == whole
    assert header == read_header(whole)
    with pytest.raises(InvalidTimestamp):
        check(sent, message_timestamp_after_max_ms=10)
    stamped, header = check(sent, message_timestamp_type="LogAppendTime")
    assert header.max_timestamp == NOW
    assert list(read_records(stamped))[1].timestamp == NOW


def test_a_header_without_any_timestamp_is_left_alone() -> None:
    batch = build_batch([(b"k", b"a", (), -1)])
    assert check(batch)[0] is batch


def test_garbage_without_a_latest_timestamp() -> None:
    with pytest.raises(InvalidBatch):
        check(assemble(b"\xff" * 50, record_count=1, base_timestamp=NOW))


def test_a_latest_timestamp_that_the_protocol_has_no_room_for() -> None:
    batch = build_batch([(b"k", b"a", (), NOW), (b"k", b"b", (), NOW + 20)])
    with pytest.raises(InvalidBatch, match="is no timestamp"):
        check(spoilt(27, ">q", 2**63 - 1, spoilt(35, ">q", -1, batch)))
