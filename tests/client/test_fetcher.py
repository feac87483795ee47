"""Raw batches into columns: against what was written, and the two fetchers against each other."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.admin import Admin
from headwater.client.bare_requests import EARLIEST, LATEST, Fetched, Place
from headwater.client.columns import Columns, decode
from headwater.client.connection import Connection
from headwater.client.fetcher import Fetcher
from headwater.client.secured_fetcher import SecuredFetcher
from headwater.errors import CorruptData, InvalidBatch, OffsetOutOfRange, UnknownTopic, Unreachable
from headwater.log.batch import LOG_APPEND_TIME, seal
from headwater.log.compression import CODEC_NAMES
from headwater.log.records import ABORT, NewRecord, build_batch, control_batch
from tests.support.servers import Headwater, free_port

Row = tuple[int, int, bytes | None, bytes | None, object]

_BYTES = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 20_000).map(lambda size: b"x" * size))
_HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)
_TIMES = st.integers(0, 2**41)
_RECORDS = st.lists(st.tuples(_BYTES, _BYTES, _HEADERS, _TIMES), min_size=1, max_size=8)


def rows(columns: Columns | None) -> list[Row]:
    if columns is None:
        return []
    headers = [
        tuple((each["key"], each["value"]) for each in row or ()) for row in columns.headers().to_pylist()
    ]
    return list(
        zip(
            columns.offsets.tolist(), columns.timestamps.tolist(),
            columns.keys().to_pylist(), columns.values().to_pylist(), headers, strict=True,
        )
    )  # fmt: skip


def answer(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(0, 1 << 40, 0, aborted, memoryview(b"".join(batches)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(_RECORDS, st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(0, 12),
    st.integers(1, 40),
    st.integers(0, 60),
)
def test_columns_are_the_records(
    parts: list[tuple[list[NewRecord], int, int]], start: int, length: int, torn: int
) -> None:
    """Batches of any codec, with gaps between them, cut to a range, the last one perhaps torn."""
    batches, wanted, offset = [], [], 0
    for records, codec, gap in parts:
        batches.append(build_batch(records, base_offset=offset, codec=codec))
        wanted += [
            (offset + delta, time_, key, value, tuple(headers))
            for delta, (key, value, headers, time_) in enumerate(records)
        ]
        offset += len(records) + gap
    whole = b"".join(batches)
    fetched = answer(whole, batches[0][:torn])
    found = rows(decode(fetched, start, start + length))
    assert found == [row for row in wanted if start <= row[0] < start + length]


def test_append_time_replaces_the_records_times() -> None:
    batch = bytearray(build_batch([(None, b"a", (), 1000), (None, b"b", (), 2000)]))
    batch[22] |= LOG_APPEND_TIME
    batch[35:43] = (7777).to_bytes(8, "big")
    seal(batch)
    columns = decode(answer(bytes(batch)), 0, 10)
    assert columns is not None
    assert columns.timestamps.tolist() == [7777, 7777]
    assert columns.timestamp_types.tolist() == [1, 1]


def test_rolled_back_records_and_markers_are_left_out() -> None:
    def of(producer: int, offset: int, value: bytes) -> bytes:
        return build_batch(
            [(None, value, (), 0)], base_offset=offset, producer_id=producer, producer_epoch=0,
            base_sequence=0, transactional=True,
        )  # fmt: skip

    def marker(producer: int, offset: int, kind: int) -> bytes:
        batch = bytearray(control_batch(kind, producer, 0, 0, 0))
        batch[0:8] = offset.to_bytes(8, "big")
        return bytes(batch)

    batches = [
        of(7, 10, b"no"), of(8, 11, b"yes"), marker(7, 12, ABORT), of(7, 13, b"again"),
        marker(8, 14, 1), marker(7, 15, 1), of(9, 16, b"no"), marker(9, 17, ABORT),
    ]  # fmt: skip
    found = rows(decode(answer(*batches, aborted=((9, 16), (7, 5))), 0, 100))
    assert [(row[0], row[3]) for row in found] == [(11, b"yes"), (13, b"again")]


def test_damage_is_found() -> None:
    batch = bytearray(build_batch([(None, b"value", (), 0)]))
    batch[-2] ^= 1
    with pytest.raises(CorruptData):
        decode(answer(bytes(batch)), 0, 10)
    seal(batch)
    batch[61] ^= 0x40  # the length of the record
    seal(batch)
    with pytest.raises(InvalidBatch):
        decode(answer(bytes(batch)), 0, 10)


# -- against a broker --------------------------------------------------------------------------------


@pytest.fixture(params=[Fetcher, SecuredFetcher], ids=["bare", "librdkafka"])
def fetcher(request: pytest.FixtureRequest, headwater: Headwater) -> Iterator[Fetcher | SecuredFetcher]:
    opened = request.param(Connection(headwater.bootstrap), patience=10)
    yield opened
    opened.close()


def _write(server: Headwater, topic: str, values: list[bytes | None], codec: str = "none") -> None:
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "log_level": 0, "compression.type": codec, "linger.ms": 2}
    )
    for number, value in enumerate(values):
        headers = [("n", b"%d" % number)] if number % 3 == 0 else None
        producer.produce(topic, value, b"%d" % number if number % 2 else None, headers=headers, partition=0)
    assert producer.flush(30) == 0


def test_both_read_the_same(headwater: Headwater, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    Admin(Connection(headwater.bootstrap)).create_topic(topic, 1)
    chance = random.Random(3)
    for codec in CODEC_NAMES:
        values = [None if chance.random() < 0.1 else b"v" * chance.randrange(300) for _ in range(2000)]
        _write(headwater, topic, values, codec)
    with Fetcher(Connection(headwater.bootstrap)) as bare:
        ours = [row for part in bare.columns((topic, 0), 100, 9_900) for row in rows(part)]
        kinds = {int(kind) for part in bare.columns((topic, 0), 0, 10) for kind in part.timestamp_types}
    secured = SecuredFetcher(Connection(headwater.bootstrap))
    theirs = [row for part in secured.columns((topic, 0), 100, 9_900) for row in rows(part)]
    secured.close()
    assert [row[0] for row in ours] == list(range(100, 9_900))
    assert ours == theirs
    assert kinds == {0}


def test_questions(fetcher: Fetcher | SecuredFetcher, headwater: Headwater, topic: str) -> None:
    Admin(Connection(headwater.bootstrap)).create_topic(topic, 2)
    _write(headwater, topic, [b"1", b"2", b"3"])
    places = [(topic, 0), (topic, 1)]
    assert fetcher.partitions([topic]) == places
    assert fetcher.offsets(places, EARLIEST) == {(topic, 0): 0, (topic, 1): 0}
    assert fetcher.offsets(places, LATEST) == {(topic, 0): 3, (topic, 1): 0}
    assert fetcher.offsets(places, 0) == {(topic, 0): 0, (topic, 1): -1}
    assert fetcher.ends(places) == {(topic, 0): (0, 3), (topic, 1): (0, 0)}
    with pytest.raises(UnknownTopic):
        fetcher.partitions([topic + ".not"])


def test_waiting_ends_with_a_record(
    fetcher: Fetcher | SecuredFetcher, headwater: Headwater, topic: str
) -> None:
    Admin(Connection(headwater.bootstrap)).create_topic(topic, 2)
    positions = {(topic, 0): 0, (topic, 1): 0}
    began = time.monotonic()
    assert fetcher.await_records(positions, 0.3) == positions
    assert 0.25 < time.monotonic() - began < 3
    _write(headwater, topic, [b"1"])
    began = time.monotonic()
    assert fetcher.await_records(positions, 20)[topic, 0] == 1
    assert time.monotonic() - began < 5
    assert fetcher.await_records({(topic, 0): 9}, 5) == {(topic, 0): None}


def test_an_offset_that_is_not_there(
    fetcher: Fetcher | SecuredFetcher, headwater: Headwater, topic: str
) -> None:
    Admin(Connection(headwater.bootstrap)).create_topic(topic, 1)
    _write(headwater, topic, [b"1"])
    with pytest.raises(OffsetOutOfRange):
        list(fetcher.columns((topic, 0), 5, 10))


def test_an_end_that_is_to_come_is_waited_for(
    fetcher: Fetcher | SecuredFetcher, headwater: Headwater, topic: str
) -> None:
    """A leader that was elected just now may for a moment tell of less than the one before."""
    _write(headwater, topic, [b"1", b"2"])
    parts = fetcher.columns((topic, 0), 0, 3)
    values = [row[3] for row in rows(next(parts))]
    later = threading.Timer(1.5, _write, (headwater, topic, [b"3"]))
    later.start()
    values += [row[3] for part in parts for row in rows(part)]
    later.join()
    assert values == [b"1", b"2", b"3"]


def test_a_broker_that_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Headwater() as server:
        Admin(Connection(server.bootstrap)).create_topic("again", 1)
        _write(server, "again", [b"x" * 1000] * 20_000)
        with Fetcher(Connection(server.bootstrap), patience=30) as fetcher:
            parts = fetcher.columns(("again", 0), 0, 20_000)
            offsets = [next(parts).offsets]
            server.kill()
            server.start()
            offsets += [part.offsets for part in parts]
        assert np.concatenate(offsets).tolist() == list(range(20_000))


def test_nobody_there() -> None:
    began = time.monotonic()
    with (
        pytest.raises(Unreachable) as raised,
        Fetcher(Connection(f"127.0.0.1:{free_port()}"), patience=0.5) as fetcher,
    ):
        fetcher.partitions(["orders"])
    assert "refused" in raised.value.cause
    assert time.monotonic() - began < 5


def test_a_deleted_topic_keeps_nobody_from_others(
    fetcher: Fetcher | SecuredFetcher, headwater: Headwater, topic: str
) -> None:
    admin = Admin(Connection(headwater.bootstrap))
    first, second = f"{topic}.first", f"{topic}.second"
    for name in (first, second):
        admin.create_topic(name, 1)
    assert fetcher.partitions([first]) == [(first, 0)]
    admin.delete_topic(first)
    assert fetcher.offsets([(second, 0)]) == {(second, 0): 0}
    with pytest.raises(UnknownTopic):
        fetcher.partitions([first, second])


def test_an_answer_goes_to_who_asked(headwater: Headwater, topic: str) -> None:
    """Also when records are left in the middle, for other questions or to begin anew."""
    _write(headwater, topic, [b"x" * 1000] * 3000)
    with Fetcher(Connection(headwater.bootstrap), fetch_bytes=100_000, patience=5) as fetcher:
        parts = fetcher.columns((topic, 0), 0, 3000)
        offsets = [next(parts).offsets, next(parts).offsets]
        assert fetcher.offsets([(topic, 0)]) == {(topic, 0): 3000}
        again = [part.offsets for part in fetcher.columns((topic, 0), 0, 3000)]
        offsets += [part.offsets for part in parts]
    assert np.concatenate(again).tolist() == list(range(3000))
    assert np.concatenate(offsets).tolist() == list(range(3000))


class OneOfMany(Fetcher):
    """As if each partition had a broker of its own: the same one, by three of its names."""

    def _led(self, places: Iterable[Place]) -> dict[tuple[str, int], list[Place]]:
        ((_, port),) = super()._led(places)
        return {(("127.0.0.1", "localhost", "127.1")[place[1]], port): [place] for place in places}


def test_waiting_at_several_brokers(headwater: Headwater, topic: str) -> None:
    Admin(Connection(headwater.bootstrap)).create_topic(topic, 3)
    positions = {(topic, number): 0 for number in range(3)}
    with OneOfMany(Connection(headwater.bootstrap)) as fetcher:
        assert fetcher.await_records(positions, 0.2) == positions
        kept = dict(fetcher._brokers)
        assert len(kept) == 3
        assert fetcher.await_records(positions, 0.2) == positions
        assert fetcher._brokers == kept, "connections stay while there is no news"
        _write(headwater, topic, [b"1"])
        began = time.monotonic()
        assert fetcher.await_records(positions, 20)[topic, 0] == 1
        assert time.monotonic() - began < 10, "it waited for those without news"
        assert [row[3] for part in fetcher.columns((topic, 0), 0, 1) for row in rows(part)] == [b"1"]
