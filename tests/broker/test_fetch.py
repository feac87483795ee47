"""Fetch: long polls, limits, whole batches, and incremental sessions (KIP-227)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.log.records import build_batch, read_records
from tests.broker.wire_client import WireClient
from tests.support.servers import Headwater

BIG = 50 << 20


@pytest.fixture
def client(headwater: Headwater) -> Iterator[WireClient]:
    with WireClient(headwater.port) as connected:
        yield connected


def _create(client: WireClient, name: str, partitions: int = 1) -> str:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = client.call("create_topics", 5, topics=[topic], timeout=30_000)
    assert answer["topics"][0]["error_code"] == "none"
    return name


def _produce(client: WireClient, topic: str, values: list[bytes], partition: int = 0) -> int:
    now = int(time.time() * 1000)
    batch = build_batch([(None, value, (), now) for value in values])
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    answer = client.call("produce", 7, acks=-1, timeout=30_000, topic_data=data)
    result = answer["responses"][0]["partition_responses"][0]
    assert result["error_code"] == "none"
    return int(result["base_offset"])


def _request(topic: str, offsets: dict[int, int], **changes: Any) -> dict[str, Any]:
    size = changes.pop("partition_max_bytes", 1 << 20)
    partitions = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": size}
        for number, offset in offsets.items()
    ]
    topics = [{"topic": topic, "partitions": partitions}] if partitions else []
    return {"max_wait": 0, "min_bytes": 1, "max_bytes": BIG, "session_epoch": -1, "topics": topics, **changes}


def _partitions(answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
    assert answer["error_code"] == "none"
    return {p["partition_index"]: p for topic in answer["responses"] for p in topic["partitions"]}


def _values(result: dict[str, Any]) -> list[bytes | None]:
    """The values of the batches in a result; each of them must be whole."""
    data, values = memoryview(result["records"] or b""), []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        assert size <= len(data), "a batch is cut"
        values += [record.value for record in read_records(data[:size])]
        data = data[size:]
    return values


def test_a_fetch_inside_a_batch_returns_the_whole_batch(
    client: WireClient, unique: Callable[..., str]
) -> None:
    topic = _create(client, unique())
    _produce(client, topic, [b"a", b"b", b"c"])
    result = _partitions(client.call("fetch", 11, **_request(topic, {0: 2})))[0]
    assert _values(result) == [b"a", b"b", b"c"]


def test_limits_cut_between_batches_and_the_first_batch_always_comes(
    client: WireClient, unique: Callable[..., str]
) -> None:
    topic = _create(client, unique())
    for number in range(3):
        _produce(client, topic, [bytes([number]) * 1000])
    by_partition = _partitions(client.call("fetch", 11, **_request(topic, {0: 0}, partition_max_bytes=2500)))
    assert len(_values(by_partition[0])) == 2
    in_all = _partitions(client.call("fetch", 11, **_request(topic, {0: 0}, max_bytes=2500)))
    assert len(_values(in_all[0])) == 2
    tiny = _partitions(client.call("fetch", 11, **_request(topic, {0: 1}, partition_max_bytes=1)))
    assert _values(tiny[0]) == [b"\x01" * 1000]


def test_a_long_poll_ends_with_the_first_record(headwater: Headwater, unique: Callable[..., str]) -> None:
    with WireClient(headwater.port) as reader, WireClient(headwater.port) as writer:
        topic = _create(writer, unique())
        reader.send("fetch", 11, **_request(topic, {0: 0}, max_wait=60_000))
        _produce(writer, topic, [b"now"])
        assert _values(_partitions(reader.receive("fetch", 11))[0]) == [b"now"]


def test_a_long_poll_waits_for_its_least_bytes_or_its_time(
    headwater: Headwater, unique: Callable[..., str]
) -> None:
    with WireClient(headwater.port) as reader, WireClient(headwater.port) as writer:
        topic = _create(writer, unique())
        reader.send("fetch", 11, **_request(topic, {0: 0}, max_wait=60_000, min_bytes=3000))
        for _ in range(3):
            _produce(writer, topic, [b"x" * 1000])
        assert len(_values(_partitions(reader.receive("fetch", 11))[0])) == 3
        began = time.monotonic()
        nothing = _partitions(reader.call("fetch", 11, **_request(topic, {0: 3}, max_wait=300)))[0]
        assert time.monotonic() - began >= 0.3
        assert _values(nothing) == []


def test_offsets_outside_the_log(client: WireClient, unique: Callable[..., str]) -> None:
    topic = _create(client, unique())
    _produce(client, topic, [b"only"])
    for offset in (-1, 2, 2**40):
        result = _partitions(client.call("fetch", 11, **_request(topic, {0: offset}, max_wait=60_000)))[0]
        assert result["error_code"] == "offset_out_of_range"
    assert _values(_partitions(client.call("fetch", 11, **_request(topic, {0: 1})))[0]) == []


def test_a_session_tells_only_what_is_new(client: WireClient, unique: Callable[..., str]) -> None:
    topic = _create(client, unique(), partitions=3)
    _produce(client, topic, [b"first"], partition=1)
    opened = client.call("fetch", 11, **_request(topic, {0: 0, 1: 0, 2: 0}, session_epoch=0))
    session = opened["session_id"]
    assert session > 0
    assert sorted(_partitions(opened)) == [0, 1, 2]

    # Nothing new but the records of partition 1, which are asked for again at the same offset.
    again = client.call("fetch", 11, **_request(topic, {}, session_id=session, session_epoch=1))
    assert {number: _values(p) for number, p in _partitions(again).items()} == {1: [b"first"]}

    moved = client.call("fetch", 11, **_request(topic, {1: 1}, session_id=session, session_epoch=2))
    assert _partitions(moved) == {}
    _produce(client, topic, [b"second"], partition=2)
    found = client.call("fetch", 11, **_request(topic, {}, session_id=session, session_epoch=3))
    assert {number: _values(p) for number, p in _partitions(found).items()} == {2: [b"second"]}

    forgotten = [{"topic": topic, "partitions": [2]}]
    request = _request(topic, {}, session_id=session, session_epoch=4, forgotten_topics_data=forgotten)
    assert _partitions(client.call("fetch", 11, **request)) == {}


def test_sessions_that_are_not_there(client: WireClient, unique: Callable[..., str]) -> None:
    topic = _create(client, unique())
    opened = client.call("fetch", 11, **_request(topic, {0: 0}, session_epoch=0))
    session = opened["session_id"]
    early = client.call("fetch", 11, **_request(topic, {}, session_id=session, session_epoch=7))
    assert early["error_code"] == "invalid_fetch_session_epoch"
    unknown = client.call("fetch", 11, **_request(topic, {}, session_id=session ^ 1, session_epoch=1))
    assert unknown["error_code"] == "fetch_session_id_not_found"
    closed = client.call("fetch", 11, **_request(topic, {0: 0}, session_id=session, session_epoch=-1))
    assert (closed["error_code"], closed["session_id"]) == ("none", 0)
    gone = client.call("fetch", 11, **_request(topic, {}, session_id=session, session_epoch=1))
    assert gone["error_code"] == "fetch_session_id_not_found"


def test_a_fetch_of_a_deleted_topic_ends(headwater: Headwater, unique: Callable[..., str]) -> None:
    with WireClient(headwater.port) as reader, WireClient(headwater.port) as writer:
        topic = _create(writer, unique())
        reader.send("fetch", 11, **_request(topic, {0: 0}, max_wait=60_000))
        writer.call("delete_topics", 5, topic_names=[topic], timeout=30_000)
        assert _partitions(reader.receive("fetch", 11))[0]["error_code"] == "unknown_topic_or_partition"
