"""A search index kept in step with a topic: against a real OpenSearch, and a server that is out of sorts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.groups import Groups
from headwater.connect.sinks import search as search_sink
from headwater.connect.sinks import worker as sink_worker
from headwater.connect.sinks.factory import search as declare
from headwater.connect.sinks.sink import Sink
from headwater.errors import RecordsMissed, SinkImpossible
from tests.connect.sinks.following import (
    Pair,
    caught_up,
    dead_of,
    delete,
    event,
    following,
    key,
    produce,
    until,
    upsert,
)
from tests.support.opensearch import OpenSearch


def sink_of(url: str, topic: str, **options: Any) -> Sink:
    return declare(url, topic=topic, index=_index(topic), **options).make(Path())


def _index(topic: str) -> str:
    return topic.lower()


def follow(connection: Connection, url: str, topic: str, records: list[Pair], **options: Any) -> None:
    produce(connection, topic, records)
    with following(connection, sink_of(url, topic, **options)) as worker:
        until(caught_up(worker, len(records)))


def test_documents_follow_and_what_does_not_fit_is_set_aside(
    connection: Connection, opensearch: OpenSearch, topic: str
) -> None:
    records: list[Pair] = [upsert({"id": 1, "age": 30}), upsert({"id": 2, "age": 40})]
    records += [upsert({"id": 1, "age": 31}, "u"), *delete(2), upsert({"id": 3, "age": 1})]
    records += [upsert({"id": 4, "age": "no number"}), upsert({"id": 5, "age": 5}), (key(6), b"no JSON")]
    records += [(json.dumps({"id": "x" * 600}).encode(), event("c", None, {"age": 7}))]
    produce(connection, topic, records[:6])
    with following(connection, sink_of(opensearch.url, topic)) as worker:
        until(caught_up(worker, 6))
        assert opensearch.documents(_index(topic)) == {"1": {"id": 1, "age": 31}, "3": {"id": 3, "age": 1}}
        produce(connection, topic, records[6:])
        until(caught_up(worker, len(records)))
        assert worker.status().counts.dead == 2
    found = opensearch.documents(_index(topic))
    assert {name[:7]: row["age"] for name, row in found.items()} == {"1": 31, "3": 1, "5": 5, "sha256:": 7}
    dead = dead_of(connection, topic)
    assert [headers["headwater.offset"] for _, _, headers in dead] == ["8", "6"]
    assert "mapper_parsing_exception" in dead[1][2]["headwater.reason"]
    assert (dead[1][0], dead[1][1]) == records[6]
    committed = Groups(Admin(connection)).committed(f"headwater.sink.{topic}.search")
    assert committed == {(topic, 0): len(records)}


def test_what_is_repeated_changes_nothing(connection: Connection, opensearch: OpenSearch, topic: str) -> None:
    """A second sink that begins at the start, as after a position that was not committed."""
    records = [upsert({"id": 1, "v": 1}), upsert({"id": 2, "v": 1}), *delete(2), upsert({"id": 1, "v": 2})]
    follow(connection, opensearch.url, topic, records)
    stale = declare(opensearch.url, topic=topic, index=_index(topic), name="stale").make(Path())
    assert isinstance(stale, search_sink.SearchSink)
    from headwater.connect.sinks.changes import Change

    stale.attach(connection)
    stale.open([(topic, 0)])
    for offset, row in ((0, {"id": 1, "v": 1}), (2, None)):
        assert stale.write((topic, 0), [Change("1", offset, row)], 1) == {}
    assert stale.write((topic, 0), [Change("2", 1, {"id": 2, "v": 1})], 1) == {}
    stale.close(in_order=False)
    assert opensearch.documents(_index(topic)) == {"1": {"id": 1, "v": 2}}
    follow(connection, opensearch.url, topic, [], name="again")
    assert opensearch.documents(_index(topic)) == {"1": {"id": 1, "v": 2}}


def test_a_topic_made_anew_is_followed_when_the_index_is_deleted(
    connection: Connection, opensearch: OpenSearch, topic: str
) -> None:
    """Its offsets are versions below those that are there, or beyond: the index would mix old rows and new ones."""
    follow(connection, opensearch.url, topic, [upsert({"id": number, "of": "old"}) for number in range(5)])
    Admin(connection).delete_topic(topic)
    records = [upsert({"id": number, "of": "new"}) for number in range(3, 12)]
    produce(connection, topic, records)
    with (
        pytest.raises(RecordsMissed, match=f"made anew.*Delete the index {_index(topic)}"),
        following(connection, sink_of(opensearch.url, topic)) as worker,
    ):
        until(lambda: worker.status().state == "failed")
    opensearch.ask("DELETE", f"/{_index(topic)}")
    follow(connection, opensearch.url, topic, [])
    expected = {str(number): {"id": number, "of": "new"} for number in range(3, 12)}
    assert opensearch.documents(_index(topic)) == expected


def test_a_topic_made_anew_under_a_sink_at_work_stops_it(
    connection: Connection, opensearch: OpenSearch, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_worker, "LOOK_SECONDS", 0.2)
    opensearch.ask("PUT", f"/{_index(topic)}", {"mappings": {"_meta": {"team": "shop"}}})
    produce(connection, topic, [upsert({"id": 1})])
    with (
        pytest.raises(RecordsMissed, match=r"made anew.*Delete the index"),
        following(connection, sink_of(opensearch.url, topic)) as worker,
    ):
        until(caught_up(worker, 1))
        _, mappings = opensearch.ask("GET", f"/{_index(topic)}/_mapping")
        meta = mappings[_index(topic)]["mappings"]["_meta"]
        assert meta == {"team": "shop", "headwater": {topic: Admin(connection).topic(topic).id}}
        Admin(connection).delete_topic(topic)
        produce(connection, topic, [upsert({"id": 2}), upsert({"id": 3})])
        until(lambda: worker.status().state == "failed")


def test_an_index_made_again_by_hand_is_written_anew(
    connection: Connection, opensearch: OpenSearch, topic: str
) -> None:
    follow(connection, opensearch.url, topic, [upsert({"id": number}) for number in range(3)])
    opensearch.ask("DELETE", f"/{_index(topic)}")
    follow(connection, opensearch.url, topic, [])
    assert set(opensearch.documents(_index(topic))) == {"0", "1", "2"}


def test_truncate(connection: Connection, opensearch: OpenSearch, topic: str) -> None:
    rows = [upsert({"id": number}) for number in range(50)]
    follow(connection, opensearch.url, topic, [*rows, (None, event("t")), upsert({"id": 7, "n": 1})])
    assert opensearch.documents(_index(topic)) == {"7": {"id": 7, "n": 1}}


def test_a_closed_index_is_waited_for(
    connection: Connection, opensearch: OpenSearch, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_sink, "PATIENCE_SECONDS", 0.5)
    opensearch.ask("PUT", f"/{_index(topic)}")
    opensearch.ask("POST", f"/{_index(topic)}/_close")
    produce(connection, topic, [upsert({"id": 1})])
    with following(connection, sink_of(opensearch.url, topic)) as worker:
        until(lambda: "index_closed_exception" in worker.status().error)
        opensearch.ask("POST", f"/{_index(topic)}/_open")
        until(caught_up(worker, 1))
    assert set(opensearch.documents(_index(topic))) == {"1"}


# -- what a healthy server does not do -------------------------------------------------------------


@contextmanager
def moody(*moods: int | str) -> Iterator[tuple[str, list[list[str]]]]:
    """A server whose first bulk requests are answered so, and all others well; it gives the ids of each.

    A number is the status of the answer, "items" refuses every other item with 429, "cut" closes the connection.
    """
    seen: list[list[str]] = []
    left = list(moods)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, {"version": {"number": "2.19.1"}})

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(403, {"error": {"type": "security_exception", "reason": "no permission"}})

        def do_POST(self) -> None:
            lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
            actions = [json.loads(line) for line in lines if b'"version_type"' in line]
            ids = [next(iter(each.values()))["_id"] for each in actions]
            seen.append(ids)
            mood = left.pop(0) if left else 200
            if mood == "cut":
                self.close_connection = True
                return
            if mood == "small" and len(ids) > 2:
                left.insert(0, "small")
                mood = 413
            statuses = [429 if mood == "items" and index % 2 else 200 for index in range(len(ids))]
            items = [
                {"index": {"status": status, **({"error": {"type": "rejected"}} if status > 200 else {})}}
                for status in statuses
            ]
            self._answer(mood if isinstance(mood, int) else 200, {"items": items, "error": {"type": "moody"}})

        def _answer(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def test_a_busy_server_is_asked_again_for_what_it_refused(connection: Connection, topic: str) -> None:
    with moody(503, 429, "items", "cut") as (url, seen):
        follow(connection, url, topic, [upsert({"id": number}) for number in range(4)])
    everything = ["0", "1", "2", "3"]
    assert seen == [everything, everything, everything, ["1", "3"], everything]


def test_requests_that_are_too_large_are_divided(connection: Connection, topic: str) -> None:
    with moody("small") as (url, seen):
        follow(connection, url, topic, [upsert({"id": number}) for number in range(4)])
    assert seen == [["0", "1", "2", "3"], ["0", "1"], ["2", "3"]]


def test_a_server_that_does_not_let_us_in_stops_it(connection: Connection, topic: str) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    with (
        moody(401) as (url, _),
        pytest.raises(SinkImpossible, match="401"),
        following(connection, sink_of(url, topic)) as worker,
    ):
        until(lambda: worker.status().state == "failed")


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [
        ("localhost", {"ca": "/nowhere/ca.pem"}, "use the certificates in /nowhere/ca.pem: no such file"),
        ("localhost", {"ca": __file__}, "use the certificates in .*no certificate"),
        ("a" * 70, {}, "ask https://aaa.*Correct url and headers"),
    ],
)
def test_what_nothing_can_be_asked_with_stops_it(
    connection: Connection, topic: str, host: str, options: dict[str, str], said: str
) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    sink = sink_of(f"https://{host}:1", topic, **options)
    with pytest.raises(SinkImpossible, match=said), following(connection, sink) as worker:
        until(lambda: worker.status().state == "failed")


def test_a_header_that_cannot_be_sent_stops_it(connection: Connection, topic: str) -> None:
    produce(connection, topic, [upsert({"id": 1})])
    with (
        moody() as (url, _),
        pytest.raises(SinkImpossible, match="Correct url and headers"),
        following(connection, sink_of(url, topic, headers={"X-Team": "Δ"})) as worker,
    ):
        until(lambda: worker.status().state == "failed")
