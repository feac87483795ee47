"""Following a topic over HTTP, with a real server and a real broker."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.client.writer import Writer
from headwater.serve import topic_hub
from headwater.serve.topic_events import TopicEvents
from headwater.views import open_store
from tests.serve.following import PATIENCE, Event, Running, raw_events, serving_of, stream, until
from tests.support.servers import Headwater, free_port


@pytest.fixture
def connection(headwater: Headwater) -> Connection:
    return Connection(headwater.bootstrap)


@pytest.fixture
def admin(connection: Connection) -> Admin:
    return Admin(connection)


@pytest.fixture(scope="module")
def server(headwater: Headwater, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tmp_path = tmp_path_factory.mktemp("server")
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        part = TopicEvents(serving_of(store, tmp_path, headwater.bootstrap))
        with Running([part], free_port()) as running:
            yield running


def _events(server: Running, topic: str, **query: Any) -> str:
    return str(httpx.URL(f"{server.url}/topics/{topic}/events", params=query))


def _write(connection: Connection, topic: str, records: list[dict[str, Any]]) -> None:
    with Writer(connection) as writer:
        for record in records:
            writer.write(topic, **record)
        writer.flush()


def _numbers(connection: Connection, topic: str, numbers: range, partition: int = 0) -> None:
    _write(connection, topic, [{"value": str(n).encode(), "partition": partition} for n in numbers])


def _records(events: Iterator[Event], count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for kind, _, data in events:
        if kind == "record":
            found.append(data)
            if len(found) == count:
                return found
    raise AssertionError(f"the stream ended after {len(found)} records")


def test_records_as_they_are(server: Running, connection: Connection, admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 1)
    values = [b'{"a": [1, 2.50]}', b"\xff\x00", b"plain text", None, b'{"a":\n1}', b"12345678901234567890123"]
    values += [b'{"a":\r\n12345678901234567890123}', b"[" * 300 + b"\n" + b"]" * 300]
    headers = [("kind", b"x"), ("raw", b"\xfe"), ("none", None)]
    _write(connection, topic, [{"key": b"k", "value": v, "timestamp": 1_700_000_000_123} for v in values])
    with Writer(connection) as writer:
        writer.write(topic, b"last", key=b"\xff", headers=headers)
        writer.flush()
    with stream(_events(server, topic, **{"from": "beginning"})) as events:
        found = [next(events) for _ in range(9)]
    records = [data for _, _, data in found]
    assert [identity for _, identity, _ in found] == [f"0:{n}" for n in range(1, 10)]
    assert [(r["partition"], r["offset"]) for r in records] == [(0, n) for n in range(9)]
    assert records[0]["timestamp"] == "2023-11-14T22:13:20.123Z"
    assert [r["key"] for r in records] == ["k"] * 8 + ["/w=="]
    assert records[8]["key_encoding"] == "base64"
    shown = [(r["value"], r.get("value_encoding")) for r in records]
    assert shown[:5] == [
        ({"a": [1, 2.5]}, None), ("/wA=", "base64"), ("plain text", "text"), (None, None), ({"a": 1}, None),
    ]  # fmt: skip
    assert shown[5] == (12345678901234567890123, None)
    assert shown[6] == ({"a": 12345678901234567890123}, None)
    assert json.dumps(shown[7][0]) == "[" * 300 + "]" * 300
    assert records[8]["headers"] == [
        {"key": "kind", "value": "x"},
        {"key": "raw", "value": "/g==", "encoding": "base64"},
        {"key": "none", "value": None},
    ]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"from": "beginning"}, [0, 1, 2, 3, 4, 5]),
        ({}, [5]),
        ({"from": "end"}, [5]),
        ({"from": "3"}, [3, 4, 5]),
        ({"from": "99"}, [5]),
        ({"from": "-2"}, [3, 4, 5]),
        ({"from": "-99"}, [0, 1, 2, 3, 4, 5]),
        ({"from": "1970-01-01T00:16:43Z"}, [3, 4, 5]),
        ({"from": "2100-01-01T00:00:00Z"}, [5]),
        ({"from": "0:2"}, [2, 3, 4, 5]),
        ({"after": "0:4"}, [4, 5]),
    ],
)
def test_where_it_begins(
    server: Running,
    connection: Connection,
    admin: Admin,
    topic: str,
    start: dict[str, str],
    expected: list[int],
) -> None:
    admin.create_topic(topic, 1)
    _write(connection, topic, [{"value": str(n).encode(), "timestamp": (1000 + n) * 1000} for n in range(5)])
    with stream(_events(server, topic, **start)) as events:
        _numbers(connection, topic, range(5, 6))
        assert [record["value"] for record in _records(events, len(expected))] == expected


def test_nothing_is_lost_or_repeated_over_cut_connections(
    server: Running, connection: Connection, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that come and go, one that is slow, and a ring that is far too small for them."""
    monkeypatch.setattr(topic_hub, "KEPT", 300)
    admin.create_topic(topic, 3)
    total, chance = 6000, random.Random(7)

    async def write() -> None:
        with Writer(connection) as writer:
            for first in range(0, total, 200):
                for n in range(first, first + 200):
                    writer.write(topic, b"%d" % n, partition=n % 3)
                await asyncio.to_thread(writer.flush)
                await asyncio.sleep(0.02)

    async def follow(cut_after: int, slow: float) -> list[int]:
        found: list[int] = []
        last, query = None, "?from=beginning"
        while len(found) < total:
            left = chance.randrange(1, cut_after)
            path = f"/topics/{topic}/events{query}"
            headers: dict[str, str] = {} if last is None else {"Last-Event-ID": last}
            async for kind, identity, data in raw_events(
                server.port, path, headers, slow, 4096 if slow else None
            ):
                last = identity or last
                assert kind in ("record", "progress"), (kind, data)
                if kind == "record":
                    found.append(data["value"])
                left -= 1
                if left == 0 or len(found) == total:
                    break
        return found

    async def all_of_it() -> list[list[int]]:
        async with asyncio.timeout(PATIENCE * 2):
            *found, _ = await asyncio.gather(
                follow(700, 0), follow(150, 0), follow(10**9, 0), follow(10**9, 0.005), write()
            )
        return found

    for found in asyncio.run(all_of_it()):
        assert sorted(found) == list(range(total)), "each record once"
        for partition in range(3):
            assert [n for n in found if n % 3 == partition] == list(range(partition, total, 3)), "in order"


def test_a_reader_of_the_log_is_not_closed_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done, order = threading.Event(), threading.Event(), list[str]()

    class Slow:
        def columns(self, *_: object) -> Iterator[object]:
            begun.set()
            done.wait(PATIENCE)
            order.append("read")
            yield

        def close(self) -> None:
            order.append("closed")

    monkeypatch.setattr(topic_hub, "open_fetcher", lambda *_, **__: Slow())

    async def leave_while_it_reads() -> None:
        histories = topic_hub.Histories(Connection("127.0.0.1:1"))

        async def read() -> None:
            async with histories.reading() as fetcher:
                async for _ in histories.read(fetcher, "t", {0: 0}, {0: 9}):
                    pass

        reading = asyncio.create_task(read())
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        reading.cancel()
        await asyncio.sleep(0.05)
        done.set()
        assert isinstance((await asyncio.gather(reading, return_exceptions=True))[0], asyncio.CancelledError)
        histories.stop()

    asyncio.run(leave_while_it_reads())
    assert order == ["read", "closed"]


def test_transactions_that_are_rolled_back_are_left_out(
    server: Running, connection: Connection, admin: Admin, topic: str, unique: Any
) -> None:
    admin.create_topic(topic, 1)
    with (
        stream(_events(server, topic)) as events,
        TransactionalWriter(connection, unique("writer")) as writer,
    ):
        with writer.transaction():
            writer.write(topic, b"1")
        with pytest.raises(RuntimeError), writer.transaction():
            writer.write(topic, b"2")
            writer.producer.flush()  # or it would never leave
            raise RuntimeError
        with writer.transaction():
            writer.write(topic, b"3")
        assert [record["value"] for record in _records(events, 2)] == [1, 3]
        place = "0:0"
        while place != "0:6":  # records and the markers of three transactions
            place = until(events, "progress")[-1][1] or ""
    with stream(_events(server, topic, after=place)) as events:
        _numbers(connection, topic, range(7, 8))
        assert [record["value"] for record in _records(events, 1)] == [7]


def test_partitions_that_are_added(
    server: Running, connection: Connection, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_hub, "LOOK_SECONDS", 0.1)
    admin.create_topic(topic, 1)
    with stream(_events(server, topic)) as events:
        _numbers(connection, topic, range(1))
        assert _records(events, 1)[0]["value"] == 0
        admin.add_partitions(topic, 2)
        _numbers(connection, topic, range(1, 2), partition=1)
        (record,) = _records(events, 1)
        assert (record["partition"], record["offset"], record["value"]) == (1, 0, 1)
    with stream(_events(server, topic, after="0:1")) as events:
        assert _records(events, 1)[0]["value"] == 1, "a partition that the client has not heard of"


def test_what_is_not_in_the_log_is_a_reset(
    server: Running, connection: Connection, admin: Admin, topic: str
) -> None:
    admin.create_topic(topic, 1)
    _numbers(connection, topic, range(3))
    with stream(_events(server, topic, after="0:50")) as events:
        kind, identity, _ = next(events)
        assert (kind, identity) == ("reset", "0:0")
        assert [record["value"] for record in _records(events, 3)] == [0, 1, 2]


def test_a_topic_that_is_deleted_ends_the_stream(
    server: Running, connection: Connection, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_hub, "LOOK_SECONDS", 0.1)
    admin.create_topic(topic, 1)
    with stream(_events(server, topic)) as events:
        _numbers(connection, topic, range(1))
        _records(events, 1)
        admin.delete_topic(topic)
        *_, (kind, _, data) = events
        assert kind == "error" and topic in data["why"]
    assert httpx.get(_events(server, topic)).status_code == 404


def test_a_failure_is_logged_once_and_told_as_what_it_is(
    server: Running,
    connection: Connection,
    admin: Admin,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    encode, tries = topic_hub.record_events, list[int]()

    def fail_at_first(*given: Any) -> list[bytes]:
        tries.append(1)
        if len(tries) < 5:
            raise TypeError("no such value")
        return encode(*given)

    monkeypatch.setattr(topic_hub, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(topic_hub, "record_events", fail_at_first)
    admin.create_topic(topic, 1)
    with httpx.stream("GET", _events(server, topic), timeout=PATIENCE) as answer:
        _numbers(connection, topic, range(1))
        said = ""
        for text in answer.iter_text():
            said += text
            if "event: record" in said:
                break
    assert "the server failed (TypeError)" in said and "no broker" not in said
    assert len([line for line in caplog.messages if topic in line]) == 1


@pytest.mark.parametrize(
    "query",
    [
        {"from": "somewhere"},
        {"after": "7"},
        {"after": "0:x"},
        {"from": "9" * 20},
        {"from": ""},
        {"from": "somewhere", "after": "0:0"},
        {"seconds": "x"},
    ],
)
def test_what_makes_no_sense_is_refused(
    server: Running, admin: Admin, topic: str, query: dict[str, str]
) -> None:
    admin.create_topic(topic, 1)
    answer = httpx.get(_events(server, topic, **query))
    assert answer.status_code == 400, answer.text


def test_no_such_topic_and_no_broker(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert httpx.get(_events(server, "nothing.here")).status_code == 404
    assert httpx.get(_events(server, "not a name")).status_code == 400
    monkeypatch.setattr(topic_hub, "PATIENCE_SECONDS", 0.2)
    with open_store(f"sqlite:///{tmp_path}/other.db") as store:
        part = TopicEvents(serving_of(store, tmp_path, f"127.0.0.1:{free_port()}"))
        with Running([part], free_port()) as lonely:
            answer = httpx.get(_events(lonely, "orders"), timeout=PATIENCE)
    assert answer.status_code == 503
    assert json.loads(answer.content)["next_step"]
