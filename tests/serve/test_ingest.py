"""Events over HTTP, into a real broker."""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.serve.serving import Limits
from tests.serve.ingesting import AT, content, running, serving_of
from tests.support.servers import Headwater


@pytest.fixture
def client(headwater: Headwater, tmp_path: Path, topic: str) -> Iterator[httpx.Client]:
    with running(serving_of(headwater.bootstrap, tmp_path, topic)) as client:
        yield client


def click(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"user": number, "page": "/", "at": AT, **more}


def post_lines(client: httpx.Client, url: str, lines: bytes, **headers: str) -> httpx.Response:
    return client.post(url, content=lines, headers={"Content-Type": "application/x-ndjson", **headers})


def test_one_event_and_many_are_where_the_answer_says(
    client: httpx.Client, headwater: Headwater, topic: str
) -> None:
    answers = [
        client.post(f"/topics/{topic}?key=user", json=click(1)),
        client.post(f"/topics/{topic}?key=user", json=[click(2), click(3)]),
        post_lines(client, f"/topics/{topic}?key=user,page", b'{"user": 4, "at": "%s"}\n\n' % AT.encode()),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200], [a.text for a in answers]
    placed = {(e["partition"], e["offset"]) for answer in answers for e in answer.json()["events"]}
    records = content(headwater.bootstrap, topic)
    assert {(each["partition"], each["offset"]) for each in records} == placed
    assert {each["value"]["user"]: each["key"] for each in records} == {
        1: b"1",
        2: b"2",
        3: b"3",
        4: b'{"user":4,"page":null}',
    }
    highest: dict[int, int] = {}
    for event in answers[1].json()["events"]:
        highest[event["partition"]] = max(event["offset"], highest.get(event["partition"], 0))
    token = ",".join(f"{topic}:{partition}:{offset}" for partition, offset in sorted(highest.items()))
    assert answers[1].headers["Headwater-Token"] == answers[1].json()["token"] == token


def test_digits_are_kept(client: httpx.Client, headwater: Headwater, topic: str) -> None:
    body = b'[{"user": 1, "price": 1.10, "at": "%s", "big": 123456789012345678901234567890}]' % AT.encode()
    assert client.post(f"/topics/{topic}", content=body, headers={"Content-Type": "application/json"}).json()[
        "taken"
    ]
    consumed = content(headwater.bootstrap, topic)
    assert consumed[0]["value"]["big"] == 123456789012345678901234567890


def test_what_does_not_fit_is_kept_and_told(client: httpx.Client, headwater: Headwater, topic: str) -> None:
    mixed = [click(1), click(2, user="two"), {"user": 3}, click(4)]
    answer = client.post(f"/topics/{topic}", json=mixed)
    assert answer.status_code == 207 and answer.json()["taken"] == 2 and answer.json()["refused"] == 2
    events = answer.json()["events"]
    assert events[1]["refused"] == 'user: "two" is not a long'
    assert events[2]["refused"] == "the event time 'at' is missing"
    assert sorted(each["value"]["user"] for each in content(headwater.bootstrap, topic)) == [1, 4]

    none = post_lines(client, f"/topics/{topic}", b'{"user": \n[1]\n')
    assert none.status_code == 422 and none.headers["content-type"] == "application/problem+json"
    assert [each["refused"] for each in none.json()["events"]] == [
        "not JSON: it ends too early",
        "[1] is not an object",
    ]
    assert "Headwater-Token" not in none.headers

    dead = {
        (each["partition"], each["offset"]): each for each in raw(headwater.bootstrap, "clicks.dead", topic)
    }
    for answered, value in ((events[1], mixed[1]), (events[2], mixed[2])):
        kept = answered["kept"]
        assert kept["topic"] == "clicks.dead"
        record = dead[kept["partition"], kept["offset"]]
        assert json.loads(record["value"]) == value
        assert record["headers"]["headwater.reason"].decode() == answered["refused"]
        assert record["headers"]["headwater.from"] == b"http"
    assert len(dead) == 4


def raw(bootstrap: str, topic: str, origin: str) -> list[dict[str, Any]]:
    """The dead letters that come from one topic; several tests share the dead-letter topic."""
    from headwater.client.connection import Connection
    from headwater.client.reader import Reader

    with Reader(Connection(bootstrap, {"log_level": "0"}), [topic], to_end=True) as reader:
        found = [
            {
                "partition": message.partition(),
                "offset": message.offset(),
                "value": message.value(),
                "headers": dict(message.headers() or []),
            }
            for messages in reader.batches()
            for message in messages
        ]
    return [each for each in found if each["headers"]["headwater.topic"] == origin.encode()]


def test_rows_of_a_table_are_keyed_by_its_key(client: httpx.Client, headwater: Headwater, topic: str) -> None:
    answer = client.post(f"/topics/{topic}.users", json=[{"id": 7, "name": "Ada"}, {"name": "nobody"}])
    assert answer.status_code == 207
    assert answer.json()["events"][1]["refused"] == "it has no 'id', which is the table's key"
    assert [each["key"] for each in content(headwater.bootstrap, f"{topic}.users")] == [b'{"id":7}']
    refused = client.post(f"/topics/{topic}.users?key=name", json={"id": 8, "name": "Bob"})
    assert refused.status_code == 400 and "the table's key is id" in refused.json()["cause"]


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "cause"),
    [
        ("", b"{", "application/json", 400, "it is not JSON"),
        ("", b"", "application/json", 400, "it is empty"),
        ("", b"[]", "application/json", 400, "it holds no events"),
        ("", b"{} {}", "application/json", 400, "something follows the first value"),
        ("", b'["\xff"]', "application/json", 400, "is not UTF-8"),
        ("", b"[" * 100_000, "application/json", 400, "nested too deeply"),
        ("", b"{}", "text/plain", 415, "content type is 'text/plain'"),
        ("?key=nothing", b"{}", "application/json", 400, "the key is to be 'nothing'"),
        ("?partition=1", b"{}", "application/json", 400, "there is no such parameter"),
        ("?key=user&key=page", b"{}", "application/json", 400, "it is given twice"),
        (".frames", b"{}", "application/json", 404, "its values are raw"),
        (".dead", b"{}", "application/json", 404, "declares no stream and no table"),
    ],
)
def test_a_wrong_request_writes_nothing_and_is_told_why(
    client: httpx.Client, topic: str, path: str, body: bytes, kind: str, status: int, cause: str
) -> None:
    answer = client.post(f"/topics/{topic}{path}", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert cause in answer.json()["cause"] and answer.json()["next_step"]


def test_a_body_may_be_packed_with_gzip(client: httpx.Client, topic: str) -> None:
    def post(body: bytes, encoding: str = "gzip") -> httpx.Response:
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        return client.post(f"/topics/{topic}", content=body, headers=headers)

    event = json.dumps(click()).encode()
    in_members = gzip.compress(b"[" + event + b",") + gzip.compress(event + b"]")
    assert post(gzip.compress(event)).json()["taken"] == 1
    assert post(in_members, "GZIP").json()["taken"] == 2
    assert post(event, "identity").json()["taken"] == 1
    for body, cause in (
        (event, "it is not the gzip that"),
        (gzip.compress(event)[:-9], "its gzip is cut off"),
        (gzip.compress(event) + b"and more", "it is not the gzip that"),
        (b"", "it is empty"),
    ):
        answer = post(body)
        assert answer.status_code == 400 and cause in answer.json()["cause"], answer.text
    bomb = post(gzip.compress(bytes(100 << 20)))
    assert bomb.status_code == 413 and "more than 8,388,608 bytes" in bomb.json()["cause"]
    other = post(event, "br")
    assert (other.status_code, other.headers["Accept-Encoding"]) == (415, "gzip")
    assert "content encoding is 'br'" in other.json()["cause"]


def test_internal_topics_take_nothing(client: httpx.Client) -> None:
    for name in ("__consumer_offsets", "headwater.marks", "headwater.ingest.shop"):
        assert client.post(f"/topics/{name}", json={}).status_code == 404


def test_limits(headwater: Headwater, tmp_path: Path, topic: str) -> None:
    limits = Limits(body_bytes=2000, event_bytes=200, events=3)
    with running(serving_of(headwater.bootstrap, tmp_path, topic, limits)) as client:
        url = f"/topics/{topic}"
        assert client.post(url, json=[click()] * 3).status_code == 200
        many = client.post(url, json=[click()] * 4)
        assert many.status_code == 413 and "4 events, and 3 are taken" in many.json()["cause"]
        large = client.post(url, json=[click(), click(page="/" * 200)])
        assert large.status_code == 413 and "event 1 has" in large.json()["cause"]
        assert client.post(url, json=click(page="/" * 3000)).status_code == 413
        chunks = (b" " * 500 for _ in range(10))  # no Content-Length
        endless = client.post(url, content=chunks, headers={"Content-Type": "application/json"})
        assert endless.status_code == 413
    assert len(content(headwater.bootstrap, topic)) == 3


def test_more_than_the_server_holds_is_refused_until_there_is_room(tmp_path: Path, topic: str) -> None:
    limits = Limits(waiting_bytes=3000)
    with Headwater() as server, running(serving_of(server.bootstrap, tmp_path, topic, limits)) as client:
        url = f"/topics/{topic}"
        assert client.post(url, json=click(0)).status_code == 200
        server.kill()  # what is sent now waits, and holds its room
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda n: client.post(url, json=click(n)), range(1, 21)))
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) == {429, 503} and statuses[503] <= 10, statuses
        assert all(answer.headers["Retry-After"] == "1" for answer in answers)
        server.start()
        again = client.post(url, json=click(99))
        assert again.status_code == 200, again.text
        metrics = client.get("/metrics").text
        assert f'headwater_ingest_events_total{{outcome="taken",topic="{topic}"}} 2.0' in metrics
        assert "headwater_ingest_waiting_bytes 0.0" in metrics


def test_a_key_writes_once(client: httpx.Client, headwater: Headwater, topic: str) -> None:
    url = f"/topics/{topic}"
    first = client.post(url, json=[click(1), click(2, user="x")], headers={"Idempotency-Key": "a"})
    again = client.post(url, json=[click(1), click(2, user="x")], headers={"Idempotency-Key": "a"})
    assert first.status_code == again.status_code == 207 and first.content == again.content
    assert first.headers["Headwater-Token"] == again.headers["Headwater-Token"]
    assert "Idempotent-Replayed" not in first.headers and again.headers["Idempotent-Replayed"] == "true"
    other = client.post(url, json=click(3), headers={"Idempotency-Key": "a"})
    assert other.status_code == 422 and "with another body" in other.json()["cause"]
    assert client.post(url, json=click(4), headers={"Idempotency-Key": "b"}).status_code == 200
    assert sorted(each["value"]["user"] for each in content(headwater.bootstrap, topic)) == [1, 4]
    bad = client.post(url, json=click(5), headers={"Idempotency-Key": "k" * 256})
    assert bad.status_code == 400


def test_repetitions_at_the_same_time_write_once(
    client: httpx.Client, headwater: Headwater, topic: str
) -> None:
    def send(number: int) -> httpx.Response:
        key = {"Idempotency-Key": f"key-{number % 10}"}
        return client.post(f"/topics/{topic}", json=click(number % 10), headers=key)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(send, range(100)))
    assert {answer.status_code for answer in answers} == {200}
    by_key: dict[int, set[str]] = {}
    for number, answer in enumerate(answers):
        by_key.setdefault(number % 10, set()).add(answer.text)
    assert all(len(texts) == 1 for texts in by_key.values())
    users = Counter(each["value"]["user"] for each in content(headwater.bootstrap, topic))
    assert users == Counter(range(10))


def test_a_topic_that_was_deleted_is_made_again(tmp_path: Path, topic: str) -> None:
    with (
        Headwater(arguments=["--no-auto-create"]) as server,
        running(serving_of(server.bootstrap, tmp_path, topic)) as client,
    ):
        numbers = itertools.count()

        def status() -> int:
            number = next(numbers)
            key = {"Idempotency-Key": f"key-{number}"}
            return client.post(f"/topics/{topic}", json=click(number), headers=key).status_code

        assert status() == 200
        Admin(Connection(server.bootstrap)).delete_topic(topic)
        assert status() == 503
        assert 200 in (status() for _ in range(3))


def test_two_servers_share_the_keys(headwater: Headwater, tmp_path: Path, topic: str) -> None:
    one = serving_of(headwater.bootstrap, tmp_path / "one", topic)
    two = serving_of(headwater.bootstrap, tmp_path / "two", topic)
    with running(one) as first, running(two) as second:
        for number in range(6):
            for client in ((first, second), (second, first))[number % 2]:
                key = {"Idempotency-Key": f"{topic}-{number}"}
                answer = client.post(f"/topics/{topic}", json=click(number), headers=key)
                assert answer.status_code == 200, answer.text
    users = Counter(each["value"]["user"] for each in content(headwater.bootstrap, topic))
    assert users == Counter(range(6))


def test_an_event_that_the_broker_refuses_does_not_fail_its_neighbours(
    client: httpx.Client, headwater: Headwater, topic: str
) -> None:
    client.post(f"/topics/{topic}", json=click(0))
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

    Admin(Connection(headwater.bootstrap)).alter_configs(topic, {"max.message.bytes": "2000"})

    def send(number: int) -> int:
        page = "/" * (5000 if number == 3 else 1)
        key = {"Idempotency-Key": f"{topic}-{number}"}
        return client.post(f"/topics/{topic}", json=click(number, page=page), headers=key).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(send, range(8)))
    assert statuses == [200, 200, 200, 413, 200, 200, 200, 200]
    assert client.post(f"/topics/{topic}", json=click(3, page="/" * 5000)).status_code == 413
    users = sorted(each["value"]["user"] for each in content(headwater.bootstrap, topic))
    assert users == [0, 0, 1, 2, 4, 5, 6, 7]


ODD = [
    b'{"user": 1, "at": "2026-01-05 10:00:00"}',
    b'{"user": 9223372036854775808, "at": "2026-01-05"}',
    b'{"user": 1.5, "at": "2026-01-05"}',
    b'{"user": true, "at": "2026-01-05"}',
    b'{"page": 12, "at": 1767607200}',
    b'{"page": {"a": [1]}, "at": "2026-01-05T10:00:00+02:00"}',
    b'{"price": "1,234.50", "at": "2026-01-05"}',
    b'{"price": 123456789.5, "at": "2026-01-05"}',
    b'{"price": "x", "at": "2026-01-05"}',
    b'{"at": "10:00"}',
    b'{"at": "2026-13-01"}',
    b'{"at": "2026-01-05"} and more',
    b"{'at': '2026-01-05'}",
    b"null",
    b"7",
    b'{"user": 1, "page": "half of a pair: \\ud83d", "at": "2026-01-05"}',
    b'{"user": 1, "other": NaN, "at": "2026-01-05"}',
    b'{"user": 1, "other": 1e400, "at": "2026-01-05"}',
    b'{"page": ' + b"[" * 300 + b"]" * 300 + b', "at": "2026-01-05"}',
]


def test_http_and_the_log_agree_on_what_is_an_event(client: httpx.Client, topic: str) -> None:
    """The same values through the decoder of the stream's reader."""
    import pyarrow as pa

    from headwater.serve.ddl import struct_of
    from headwater.streams.sources.json_values import JsonDecoder
    from tests.serve.ingesting import SCHEMA

    _, problems = JsonDecoder(struct_of(SCHEMA), "UTC").decode(pa.array(ODD))
    answer = post_lines(client, f"/topics/{topic}", b"\n".join(ODD))
    assert [event.get("refused") for event in answer.json()["events"]] == problems.to_pylist()
    assert answer.json()["taken"] == problems.null_count > 4


@pytest.mark.parametrize("key", ["user", "page", "price", "at", "user,page"])
def test_a_key_refuses_no_event_and_no_batch(client: httpx.Client, topic: str, key: str) -> None:
    plain = post_lines(client, f"/topics/{topic}", b"\n".join(ODD)).json()
    keyed = post_lines(client, f"/topics/{topic}?key={key}", b"\n".join(ODD))
    assert keyed.status_code == 207, keyed.text
    assert [each.get("refused") for each in keyed.json()["events"]] == [
        each.get("refused") for each in plain["events"]
    ]
