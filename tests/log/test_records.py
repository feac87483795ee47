"""The records in a batch: read, checked, built, in every codec, against Kafka's own clients and tools."""

import random
import struct
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidBatch, UnsupportedFormat
from headwater.log.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    assemble,
    fault_at,
    read_header,
    seal,
    with_append_time,
)
from headwater.log.compression import codec_name
from headwater.log.records import (
    ABORT,
    COMMIT,
    ControlRecord,
    NewRecord,
    Record,
    build_batch,
    check_keys,
    control_batch,
    encode_record,
    encode_varint,
    find_by_timestamp,
    max_timestamp_record,
    open_batch,
    read_control,
    read_records,
    recompress,
    spans,
    with_timestamps_moved,
)

CODECS = range(5)
every_codec = pytest.mark.parametrize("codec", CODECS, ids=codec_name)

names = st.text(max_size=10) | st.just("x" * 200)
contents = st.none() | st.binary(max_size=40) | st.integers(0, 20_000).map(lambda size: b"v" * size)
headers = st.lists(st.tuples(names, contents), max_size=3).map(tuple)
timestamps = st.integers(0, 2**44) | st.just(-1)
new_records = st.tuples(contents, contents, headers, timestamps)


def as_read(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (key, value, headers, timestamp) in enumerate(records)
    ]


# -- round trips -----------------------------------------------------------------------------------


@given(st.lists(new_records, min_size=1, max_size=30), st.sampled_from(CODECS), st.integers(0, 2**62))
@settings(max_examples=300, deadline=None)
def test_what_is_built_is_read(records: list[NewRecord], codec: int, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    assert fault_at(batch) is None
    assert list(read_records(batch)) == as_read(records, base_offset)
    header, data = open_batch(batch)
    assert header.max_timestamp == max(timestamp for *_, timestamp in records)
    assert [
        (delta, header.base_timestamp + stamp, key, None if value < 0 else data[value:rest])
        for _, _, delta, stamp, key, value, rest in spans(header, data)
    ] == [(index, stamp, key, value) for index, (key, value, _, stamp) in enumerate(records)]
    assert check_keys(batch) == [index for index, record in enumerate(records) if record[0] is None]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 100_000])
def test_offsets_of_every_length(count: int) -> None:
    batch = build_batch([(b"k", b"v", (), 0)] * count, codec=4)
    assert [record.offset for record in read_records(batch)] == list(range(count))


@pytest.mark.parametrize("bits", range(64))
def test_numbers_of_every_length(bits: int) -> None:
    for number in (1 << bits, (1 << bits) - 1, -(1 << bits), 1 - (1 << bits)):
        if -(2**63) <= number < 2**63:
            expected = bytearray()
            kafka_python_records.encode_varint(number, expected.append)
            assert encode_varint(number) == expected
            record = encode_record(0, number, b"k", b"v")
            batch = assemble(record, record_count=1, base_timestamp=0)
            assert [stamp for *_, stamp, _, _, _ in spans(*open_batch(batch))] == [number]


def test_append_time_is_the_time_of_all() -> None:
    records = [(b"a", b"1", (), 5), (b"b", b"2", (), 9)]
    assert [record.timestamp for record in read_records(build_batch(records, append_time=1000))] == [
        1000,
        1000,
    ]
    assert [record.timestamp for record in read_records(with_append_time(build_batch(records), 70))] == [
        70,
        70,
    ]


def test_header_names_that_are_not_text_survive() -> None:
    body = b"\0\0\0" + b"\2k\2v" + b"\2" + b"\4\xff\xfe" + b"\2h"
    batch = assemble(encode_varint(len(body)) + body, record_count=1, base_timestamp=0, max_timestamp=0)
    (record,) = read_records(batch)
    assert build_batch([(record.key, record.value, record.headers, 0)])[HEADER_SIZE:] == batch[HEADER_SIZE:]


# -- other implementations -------------------------------------------------------------------------


@pytest.mark.parametrize("library", [kafka_python_records, aiokafka_records])
def test_what_other_clients_build_is_read(library: Any) -> None:
    options = {"compression_type": 1, "producer_id": 7, "producer_epoch": 3, "base_sequence": 11}
    builder = library.DefaultRecordBatchBuilder(magic=2, is_transactional=1, batch_size=1 << 20, **options)
    expected = []
    for index in range(500):
        key = None if index % 7 == 0 else b"key-%d" % index
        value = None if index % 5 == 0 else b"value" * (index % 50)
        extra = [("name", b"content"), ("empty", b"")] if index % 3 == 0 else []
        assert builder.append(index, timestamp=1000 + index * 37, key=key, value=value, headers=extra)
        expected.append(Record(index, 1000 + index * 37, key, value, tuple(extra)))
    batch = builder.build()
    assert fault_at(batch) is None
    assert list(read_records(batch)) == expected


@pytest.mark.parametrize("library", [kafka_python_records, aiokafka_records])
@pytest.mark.parametrize("codec", [0, 1])
@given(records=st.lists(new_records, min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_what_is_built_other_clients_read(library: Any, codec: int, records: list[NewRecord]) -> None:
    batch = build_batch(
        records, codec=codec, base_offset=70, producer_id=5, producer_epoch=2, base_sequence=9
    )
    theirs = library.DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in theirs
    ] == as_read(records, 70)


# -- garbage ---------------------------------------------------------------------------------------


def resealed(batch: bytes | bytearray, **fields: int) -> bytes:
    """The batch with other header fields and a right checksum."""
    copy = bytearray(batch)
    places = {"last_offset_delta": 23, "record_count": 57}
    for name, value in fields.items():
        struct.pack_into(">i", copy, places[name], value)
    seal(copy)
    return bytes(copy)


def read_in_every_way(batch: bytes) -> None:
    for way in (
        lambda: list(read_records(batch, 1 << 20)),
        lambda: list(spans(*open_batch(batch, 1 << 20))),
        lambda: check_keys(batch, 1 << 20),
        lambda: find_by_timestamp(batch, 0, limit=1 << 20),
        lambda: max_timestamp_record(batch, 1 << 20),
        lambda: recompress(batch, 1, limit=1 << 20),
        lambda: read_control(batch),
    ):
        try:
            way()
        except InvalidBatch:
            pass


@given(st.binary(max_size=200), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**15 - 1))
@example(b"\x80" * 200, 1, 0)
@example(b"\xff" * 200, 2**31 - 1, 0)
@settings(max_examples=1000, deadline=None)
def test_garbage_as_records(garbage: bytes, count: int, attributes: int) -> None:
    batch = assemble(garbage, record_count=count, last_offset_delta=count, attributes=attributes)
    read_in_every_way(batch)
    read_in_every_way(garbage)


@given(st.lists(new_records, min_size=1, max_size=5), st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=1000, deadline=None)
def test_damaged_records(records: list[NewRecord], source: random.Random, changes: int) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(changes):
        batch[source.randrange(HEADER_SIZE, len(batch))] = source.choice([0, 1, 2, 127, 128, 255])
    read_in_every_way(resealed(batch))


@given(st.lists(new_records, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_records_cut_short(records: list[NewRecord]) -> None:
    data = build_batch(records)[HEADER_SIZE:]
    for end in {*range(min(len(data), 200)), len(data) - 1}:
        with pytest.raises(InvalidBatch):
            list(read_records(assemble(data[:end], record_count=len(records))))


THREE = build_batch([(b"a", b"1", (), 0), (b"b", b"2", [("h", b"x")], 0), (b"c", None, (), 0)])


FAULTS = [
    (THREE[:60], "60 bytes are less than a header"),
    (THREE[:-1], "it claims 91 bytes of 90"),
    (THREE[:16] + b"\1" + THREE[17:], "its magic is 1"),
    (resealed(THREE, record_count=2), "8 bytes follow the last record"),
    (resealed(THREE, record_count=4), "cut short"),
    (resealed(THREE, record_count=-1), "count or last offset is negative"),
    (resealed(THREE, record_count=2**31 - 1), "cut short"),
    (resealed(THREE, last_offset_delta=1), "offset delta 2 is past the last, 1"),
    (resealed(THREE, last_offset_delta=-1), "count or last offset is negative"),
    (assemble(encode_record(1, 0, b"k", b"v") * 2, record_count=2), "does not follow the one before"),
    (assemble(encode_record(-1, 0, b"k", b"v"), record_count=1), "does not follow the one before"),
    (assemble(b"\x01" * 9, record_count=1), "its length leads out of the batch"),
    (assemble(b"\x14\0\0\0\2k\2v\0", record_count=1), "its length leads out of the batch"),
    (assemble(b"\x10\0\0\0\x08k\2v\0", record_count=1), "cut short"),
    (assemble(b"\x10\0\0\0\2k\x40v\0", record_count=1), "its key or value leads out of it"),
    (assemble(b"\x12\0\0\0\2k\2v\2\0", record_count=1), "cut short"),
    (assemble(b"\x10\0\0\0\2k\2v\1", record_count=1), "it claims -1 headers"),
    (assemble(b"\x14\0\0\0\2k\2v\2\1\0", record_count=1), "a header has no name"),
    (assemble(b"\x14\0\0\0\2k\2v\2\0\2" + THREE[61:], record_count=4), "a header leads out of it"),
    (assemble(b"\x12\0\0\0\2k\2v\0\0", record_count=1), "1 bytes follow its headers"),
    (assemble(b"\xff\xff\xff\xff\xff\x01" + b"\0" * 20, record_count=1), "longer than 32 bits"),
    (assemble(b"\xff\xff\xff\xff\x1f" + b"\0" * 20, record_count=1), "longer than 32 bits"),
    (assemble(b"\x40\0" + b"\xff" * 9 + b"\2" + b"\0" * 30, record_count=1), "longer than 64 bits"),
    (assemble(b"\x40\0" + b"\xff" * 10 + b"\0" * 30, record_count=1), "longer than 64 bits"),
]


@pytest.mark.parametrize(("batch", "cause"), FAULTS, ids=[f"{index}" for index in range(len(FAULTS))])
def test_what_is_wrong_is_said(batch: bytes, cause: str) -> None:
    with pytest.raises(InvalidBatch, match=cause):
        list(read_records(batch))


def test_old_formats_are_named_as_such() -> None:
    with pytest.raises(UnsupportedFormat):
        check_keys(THREE[:16] + b"\0" + THREE[17:])


@every_codec
def test_a_bomb_in_a_batch(codec: int) -> None:
    batch = build_batch([(b"k", bytes(1_000_000), (), 0)], codec=codec)
    assert len(list(read_records(batch, limit=1_100_000))) == 1
    with pytest.raises(InvalidBatch, match="more than 100000 bytes come out"):
        list(read_records(batch, limit=100_000))


# -- timestamps ------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-1, 40), min_size=1, max_size=20), st.integers(-1, 42), st.integers(95, 125),
    st.sampled_from(CODECS), st.booleans(),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_finding_by_timestamp(stamps: list[int], wanted: int, start: int, codec: int, append: bool) -> None:
    batch = build_batch(
        [(b"k", b"v", (), stamp) for stamp in stamps],
        base_offset=100,
        codec=codec,
        append_time=17 if append else None,
    )
    found = [(record.offset, record.timestamp) for record in read_records(batch)]
    expected = [each for each in found if each[1] >= wanted and each[0] >= start]
    assert find_by_timestamp(batch, wanted, start) == (expected[0] if expected else None)
    largest = max(stamp for _, stamp in found)
    assert max_timestamp_record(batch) == next(each for each in found if each[1] == largest)


def test_timestamps_of_a_batch_that_lost_its_first_records() -> None:
    """Append time is the same for all, but the first offset is not the batch's."""
    data = encode_record(3, 0, b"k", b"v") + encode_record(5, 0, b"k", b"v")
    batch = assemble(
        data,
        record_count=2,
        last_offset_delta=8,
        base_offset=100,
        attributes=LOG_APPEND_TIME,
        max_timestamp=50,
    )
    assert find_by_timestamp(batch, 50) == (103, 50)
    assert find_by_timestamp(batch, 50, 104) == (105, 50)
    assert find_by_timestamp(batch, 50, 106) is None
    assert max_timestamp_record(batch) == (103, 50)


def test_timestamps_of_an_emptied_batch() -> None:
    batch = assemble(b"", record_count=0, last_offset_delta=8, max_timestamp=50)
    assert find_by_timestamp(batch, 0) is None
    assert max_timestamp_record(batch) is None


@given(st.lists(new_records, min_size=1, max_size=10), st.integers(-(2**45), 2**45))
@settings(max_examples=200, deadline=None)
def test_moving_timestamps_changes_nothing_else(records: list[NewRecord], by: int) -> None:
    header, data = open_batch(build_batch(records))
    moved = with_timestamps_moved(data, [(start, end) for start, end, *_ in spans(header, data)], by)
    batch = assemble(moved, record_count=len(records), base_timestamp=header.base_timestamp - by)
    assert list(read_records(batch)) == as_read(records)


# -- recompression ---------------------------------------------------------------------------------


@every_codec
@pytest.mark.parametrize("other", CODECS, ids=codec_name)
def test_recompression_changes_the_codec_alone(codec: int, other: int) -> None:
    records: list[NewRecord] = [(b"k%d" % index, b"value" * 20, (), index) for index in range(100)]
    fields = {"producer_id": 8, "producer_epoch": 2, "base_sequence": 77, "leader_epoch": 4}
    batch = build_batch(records, codec=codec, base_offset=50, transactional=True, **fields)
    again = recompress(batch, other)
    assert fault_at(again) is None
    assert read_header(again).codec == other
    assert list(read_records(again)) == as_read(records, 50)
    before, after = read_header(batch), read_header(again)
    assert before._replace(length=0, crc=0, attributes=0) == after._replace(length=0, crc=0, attributes=0)
    assert before.attributes & ~7 == after.attributes & ~7
    if codec == other:
        assert again == batch


# -- control batches -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_markers(kind: int) -> None:
    batch = control_batch(kind, producer_id=2**40, producer_epoch=30_000, coordinator_epoch=12, timestamp=99)
    marker = read_control(batch)
    assert marker == ControlRecord(kind, 2**40, 30_000, 12)
    assert marker.committed == (kind == COMMIT)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.base_sequence, header.record_count, header.max_timestamp) == (-1, 1, 99)


def test_a_marker_of_a_later_version() -> None:
    batch = build_batch([(b"\0\1\0\1\7", b"\0\1\0\0\0\5more", (), 0)], control=True, producer_id=1)
    assert read_control(batch) == ControlRecord(COMMIT, 1, -1, 5)


def test_control_records_that_are_no_markers() -> None:
    batch = build_batch([(b"\0\0\0\2", b"a change of leader", (), 0)], control=True)
    assert read_control(batch) == ControlRecord(2, -1, -1, -1)


def test_an_emptied_marker() -> None:
    assert read_control(assemble(b"", record_count=0, last_offset_delta=0, attributes=0x30)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\0\0", b"\0" * 6), (None, b"\0" * 6), (b"\0\0\0\1", b"\0" * 5), (b"\0" * 4, None)]
)
def test_markers_that_are_damaged(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        read_control(build_batch([(key, value, (), 0)], control=True))
