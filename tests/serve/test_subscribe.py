"""``hw.subscribe`` against a real server."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import BadInput, NotAllowed, UnknownView, Unreachable
from headwater.serve import subscribing
from headwater.serve.changes import ViewChanges
from headwater.serve.security import Access
from headwater.serve.server import Server
from headwater.serve.subscribing import (
    Copy,
    Delete,
    Progress,
    Reset,
    Snapshot,
    SnapshotEnd,
    Subscription,
    Upsert,
    ViewEvent,
)
from headwater.views import Batch, Column, ViewSchema, ViewStore, open_store
from tests.serve.following import PATIENCE, Running, serving_of
from tests.support.servers import free_port
from tests.views.words import batch, content, words


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    with open_store(f"sqlite:///{tmp_path}/views.db") as opened:
        opened.define(words(), "f")
        opened.apply("words", 1, batch(0, {"a": 1, "b": 2}))
        yield opened


@pytest.fixture
def server(store: ViewStore, tmp_path: Path) -> Iterator[Running]:
    with Running([ViewChanges(serving_of(store, tmp_path))], free_port()) as running:
        yield running


def _until(events: Iterator[ViewEvent], batch: int) -> list[ViewEvent]:
    found: list[ViewEvent] = []
    for event in events:
        found.append(event)
        if isinstance(event, Progress) and event.batch == batch:
            return found
    raise AssertionError("the events ended")


def _counts(changes: Subscription) -> dict[str, int]:
    return {key: row["n"] for key, row in changes.rows.items()}


def test_events_and_rows(server: Running, store: ViewStore) -> None:
    with hw.subscribe(server.url, "words") as changes:
        events = iter(changes)
        snapshot, end, progress = _until(events, 0)
        assert snapshot == Snapshot([{"word": "a", "n": 1}, {"word": "b", "n": 2}])
        assert end == SnapshotEnd(2, 1, {"word": "string", "n": "bigint"}, ("word",))
        assert isinstance(progress, Progress) and changes.progress == progress
        assert _counts(changes) == {"a": 1, "b": 2}
        store.apply("words", 1, batch(1, {"a": 3}, deleted=["b"]))
        assert _until(events, 1)[:-1] == [Delete(3, "b"), Upsert(4, "a", {"word": "a", "n": 3})]
        assert _counts(changes) == {"a": 3}
        assert changes.last == 4


def test_asynchronously(server: Running, store: ViewStore) -> None:
    async def follow() -> dict[str, int]:
        async with hw.subscribe(server.url, "words") as changes, asyncio.timeout(PATIENCE):
            async for event in changes:
                if isinstance(event, SnapshotEnd):
                    await asyncio.to_thread(store.apply, "words", 1, batch(1, {"c": 5}))
                if isinstance(event, Progress) and event.batch == 1:
                    return _counts(changes)
        raise AssertionError("the events ended")

    assert asyncio.run(follow()) == {"a": 1, "b": 2, "c": 5}


def test_it_goes_on_where_it_was_when_the_server_comes_back(store: ViewStore, tmp_path: Path) -> None:
    port = free_port()
    serving = serving_of(store, tmp_path)
    changes = hw.subscribe(f"http://127.0.0.1:{port}", "words")
    events = iter(changes)
    with Running([ViewChanges(serving)], port):
        _until(events, 0)
    store.apply("words", 1, batch(1, {"a": 7}))
    with Running([ViewChanges(serving)], port):
        found = _until(events, 1)
        assert found[:-1] == [Upsert(3, "a", {"word": "a", "n": 7})], "no snapshot, nothing twice"
        changes.close()
        store.apply("words", 1, batch(2, {"a": 8}))
        assert list(events) == []
    assert _counts(changes) == {"a": 7, "b": 2}


def test_it_starts_over_when_the_changes_are_gone(store: ViewStore, tmp_path: Path) -> None:
    port = free_port()
    serving = serving_of(store, tmp_path)
    changes = hw.subscribe(f"http://127.0.0.1:{port}", "words")
    events = iter(changes)
    with Running([ViewChanges(serving)], port):
        _until(events, 0)
    for number in range(1, 6):
        store.apply("words", 1, batch(number, {"a": number}, deleted=["b"]))
    store.trim_changes("words", keep=1)
    with Running([ViewChanges(serving)], port):
        found = _until(events, 5)
        assert [type(event) for event in found] == [Reset, Snapshot, SnapshotEnd, Progress]
        assert _counts(changes) == content(store) == {"a": 5}


@pytest.mark.parametrize("key", ["word", "id"])
def test_columns_that_changed_while_nobody_followed(store: ViewStore, tmp_path: Path, key: str) -> None:
    port = free_port()
    serving = serving_of(store, tmp_path)
    changes = hw.subscribe(f"http://127.0.0.1:{port}", "words")
    events = iter(changes)
    with Running([ViewChanges(serving)], port):
        _until(events, 0)
    store.apply("words", 1, batch(1, {"a": 7}))
    store.define(ViewSchema("words", 2, (Column("word", "string"), Column("id", "bigint")), (key,)), "g")
    store.apply("words", 2, Batch(0, pa.table({"word": ["y", "z"], "id": [5, 6]})))
    store.activate("words", 2)
    with Running([ViewChanges(serving)], port):
        kinds = {type(event) for event in _until(events, 0)}
        assert (Reset in kinds) == (key == "id"), "of one key it is a difference"
        expected: list[Any] = ["y", "z"] if key == "word" else [5, 6]
        assert list(changes.rows) == expected


def test_columns_of_a_key_that_changed_places_while_nobody_followed(store: ViewStore, tmp_path: Path) -> None:
    port = free_port()
    serving = serving_of(store, tmp_path)
    columns = (Column("a", "bigint"), Column("b", "bigint"), Column("n", "bigint"))
    changes = hw.subscribe(f"http://127.0.0.1:{port}", "prices")
    events = iter(changes)
    for version, key in enumerate((("a", "b"), ("b", "a")), 1):
        store.define(ViewSchema("prices", version, columns, key), f"f{version}")
        store.apply("prices", version, Batch(0, pa.table({"a": [1], "b": [2], "n": [version]})))
        store.activate("prices", version)
        with Running([ViewChanges(serving)], port):
            _until(events, 0)
    assert changes.rows == {(2, 1): {"a": 1, "b": 2, "n": 2}}


def test_going_on_after_a_number(server: Running) -> None:
    changes = hw.subscribe(server.url, "words", after=1)
    assert _until(iter(changes), 0)[:-1] == [Upsert(2, "b", {"word": "b", "n": 2})]


def test_another_thread_may_close_it(server: Running, store: ViewStore) -> None:
    changes = hw.subscribe(server.url, "words")
    seen = threading.Event()

    def follow() -> None:
        for event in changes:
            if isinstance(event, Progress):
                seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert seen.wait(PATIENCE)
    changes.close()
    store.apply("words", 1, batch(1, {"a": 3}))
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_view_that_is_not_there_or_no_more(server: Running, store: ViewStore) -> None:
    with pytest.raises(UnknownView, match="nothing"):
        next(iter(hw.subscribe(server.url, "nothing")))
    events = iter(hw.subscribe(server.url, "words"))
    _until(events, 0)
    store.drop("words", 1)
    with pytest.raises(UnknownView, match="words"):
        list(events)


def test_the_example_of_the_guide(
    server: Running, store: ViewStore, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ViewSchema("clicks_by_page", 1, (Column("page", "string"), Column("count", "bigint")), ("page",))
    store.define(pages, "f")
    store.apply("clicks_by_page", 1, Batch(0, pa.table({"page": ["cart", "start"], "count": [3, 17]})))
    guide = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    section = guide[guide.index("## hw.subscribe") :]
    (code,) = re.findall(r"```python\n(.*?)```", section[: section.index("\n## ", 1)], re.DOTALL)
    assert "http://127.0.0.1:8080" in code
    exec(code.replace("http://127.0.0.1:8080", server.url), {})
    printed = capsys.readouterr().out
    assert "Snapshot(rows=" in printed
    assert printed.endswith("2 pages, the start was seen 17 times\n")


def test_a_server_with_a_token(store: ViewStore, tmp_path: Path) -> None:
    whole = Server(serving_of(store, tmp_path), Access("secret"), dashboard=False)
    with Running(whole.parts, free_port(), whole) as server:
        with pytest.raises(NotAllowed):
            next(iter(hw.subscribe(server.url, "words")))
        with pytest.raises(NotAllowed):
            next(iter(hw.subscribe(server.url, "words", token="other")))
        with hw.subscribe(server.url, "words", token="secret", where="n > 1") as changes:
            events = iter(changes)
            _until(events, 0)
            assert _counts(changes) == {"b": 2}
            metrics = httpx.get(f"{server.url}/metrics", headers={"Authorization": "Bearer secret"}).text
            assert 'headwater_view_followers{view="words"} 1.0' in metrics


def test_a_view_that_is_declared_but_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    serving = serving_of(open_store(f"sqlite:///{tmp_path}/views.db"), tmp_path)
    serving.app.stream("text", "word string")

    @serving.app.view(key="word")
    def words_to_come(text: Any) -> Any:
        return text.groupBy("word").count()

    with Running([ViewChanges(serving)], free_port()) as server:
        schema = ViewSchema("words_to_come", 1, (Column("word", "string"),), ("word",))
        threading.Timer(0.3, serving.store.define, (schema, "f")).start()
        events = iter(hw.subscribe(server.url, "words_to_come"))
        assert next(event for event in events if isinstance(event, SnapshotEnd)).number == 0
    serving.store.close()


def test_no_server() -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="words"):
        next(iter(hw.subscribe(f"http://127.0.0.1:{free_port()}", "words", patience=0.5)))
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize(
    ("url", "verify"),
    [
        ("ftp://127.0.0.1", True),
        ("http://", True),
        ("http://127.0.0.1:port", True),
        ("http://[::1", True),
        ("http://127.0.0.1\n", True),
        ("https://127.0.0.1", "/nothing/here.pem"),
        ("https://127.0.0.1", __file__),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(url: str, verify: bool | str) -> None:
    with pytest.raises(BadInput, match=r"cannot follow .*words"):
        hw.subscribe(url, "words", verify=verify)
    with pytest.raises(BadInput, match="the token has characters"):
        hw.subscribe("http://127.0.0.1", "words", token="secret\n")


def test_a_server_that_cannot_answer_yet_says_why_itself(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.serve.hub.CONDITIONS", 0)
    with pytest.raises(Unreachable, match=r"0 other conditions already\. Ask again later, or without a"):
        next(iter(hw.subscribe(server.url, "words", where="n = 1", patience=0.3)))


@pytest.mark.parametrize("slowly", ["begun", "read"])
def test_time_that_the_reader_takes_is_none_without_an_answer(
    slowly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"begun": 0.0, "read": 0.0}
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(late.values()), sleep=time.sleep)
    monkeypatch.setattr(subscribing, "time", clock)
    head = b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nHeadwater-Key: ["word"]\r\n'
    events = [b'id: %d\nevent: upsert\ndata: {"word":"a","n":%d}\n\n' % (n, n) for n in (1, 2)]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in (b"", events[0], b"", events[1]):  # each time it is cut off
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer and head + b"Content-Length: 999\r\n\r\n" + answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with hw.subscribe(address, "words") as changes:
            following = iter(changes)
            for each in late:
                if each == slowly:
                    late[each] = 2 * subscribing.PATIENCE_SECONDS
                assert isinstance(next(following), Upsert)
        thread.join()


def test_a_server_that_is_away_behind_its_proxy_is_to_be_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\n<p/>")

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"with status 502\. Start it"):
            next(iter(hw.subscribe(address, "words", patience=0.0)))
        thread.join()


def test_a_condition_that_does_not_fit_is_said_when_the_view_begins(
    server: Running, store: ViewStore
) -> None:
    schema = ViewSchema("later", 1, (Column("word", "string"),), ("word",))
    threading.Timer(0.3, store.define, (schema, "f")).start()
    with pytest.raises(BadInput, match="there is no column 'absent'"):
        next(iter(hw.subscribe(server.url, "later", where="absent = 1")))


def test_decimals_keep_their_digits(server: Running, store: ViewStore) -> None:
    big = [Decimal(f"1234567890123456.000{n}") for n in (1, 2, 3)]

    def prices(version: int, *more: Column) -> ViewSchema:
        return ViewSchema("prices", version, (Column("price", "decimal(20,4)"), *more), ("price",))

    def rows(*chosen: Decimal, **more: Any) -> pa.Table:
        return pa.table({"price": pa.array(chosen, pa.decimal128(20, 4)), **more})

    store.define(prices(1, Column("mean", "double")), "f")
    store.apply("prices", 1, Batch(0, rows(*big[:2], mean=[0.5, 1.0])))
    with hw.subscribe(server.url, "prices") as changes:
        events = iter(changes)
        first = _until(events, 0)[0]
        assert first == Snapshot([{"price": big[0], "mean": 0.5}, {"price": big[1], "mean": 1.0}])
        assert isinstance(first, Snapshot) and type(first.rows[0]["mean"]) is float
        assert list(changes.rows) == big[:2]
        store.apply(
            "prices", 1, Batch(1, rows(big[2], mean=[0.5]), pa.table({"price": rows(big[0])["price"]}))
        )
        _until(events, 1)
        assert list(changes.rows) == big[1:]
    resumed = hw.subscribe(server.url, "prices", after=2)
    _until(iter(resumed), 1)
    assert list(resumed.rows) == [big[2]]

    ids = [Decimal(f"1234567890123456789012{n}") for n in (3, 4)]
    columns = (Column("price", "decimal(38,0)"),)
    store.define(ViewSchema("prices", 2, columns, ("price",)), "g")
    store.apply("prices", 2, Batch(0, pa.table({"price": pa.array(ids, pa.decimal128(38, 0))})))
    following = iter(changes := hw.subscribe(server.url, "prices"))
    _until(following, 1)
    store.activate("prices", 2)
    assert Snapshot([{"price": each} for each in ids]) in _until(following, 0), "after a reset, too"
    assert list(changes.rows) == ids


def test_decimals_of_a_version_that_came_while_somebody_connected(server: Running, store: ViewStore) -> None:
    big = Decimal("1234567890123456.0001")
    store.define(ViewSchema("prices", 1, (Column("price", "bigint"),), ("price",)), "f")
    store.apply("prices", 1, Batch(0, pa.table({"price": [1]})))
    store.define(ViewSchema("prices", 2, (Column("price", "decimal(20,4)"),), ("price",)), "g")
    store.apply("prices", 2, Batch(0, pa.table({"price": pa.array([big], pa.decimal128(20, 4))})))
    texts = store.snapshot_texts

    def after_activation(*arguments: Any, **options: Any) -> Any:
        store.snapshot_texts = texts  # type: ignore[method-assign]
        store.activate("prices", 2)
        return texts(*arguments, **options)

    store.snapshot_texts = after_activation  # type: ignore[method-assign]
    changes = hw.subscribe(server.url, "prices")
    assert next(event for event in changes if isinstance(event, Snapshot)).rows == [{"price": big}]


def test_only_what_is_a_decimal_becomes_one() -> None:
    columns = {
        "struct": "struct<decimal:double,in:array<decimal(38,0)>>",
        "map": "map<string,decimal(4,2)>",
        "means": "array<double>",
        "n": "bigint",
        "flag": "boolean",
    }
    row = b'{"struct":{"decimal":0.1,"in":[1,null]},"map":{"a":1.50},"means":[0.5,"NaN"],"n":1,"flag":true}'
    copy = Copy()
    copy.connected(("n",))
    assert copy.take("columns", None, orjson.dumps(columns)) is None
    taken = copy.take("upsert", "1", row)
    assert repr(taken) == repr(
        Upsert(
            1,
            1,
            {
                "struct": {"decimal": 0.1, "in": [Decimal(1), None]},
                "map": {"a": Decimal("1.50")},
                "means": [0.5, "NaN"],
                "n": 1,
                "flag": True,
            },
        )
    )
    earlier = copy.take("upsert", "2", b'{"struct":0.5,"map":0.5,"means":{"a":0.5},"gone":[0.5],"n":2}')
    assert isinstance(earlier, Upsert) and "Decimal" not in repr(earlier), "of before these columns"
    for begin in (lambda: copy.take("reset", "", b'{"why":"other columns"}'), lambda: copy.connected(("n",))):
        copy.take("columns", None, orjson.dumps(columns))
        begin()
        assert copy.take("snapshot", None, b'[{"mean":0.5}]') == Snapshot([{"mean": 0.5}])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
            "of the type text/html",
        ),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: https://a/\r\nContent-Length: 0\r\n\r\n",
            "sends one on to https://a/",
        ),
    ],
)
def test_what_is_no_server_of_ours_is_not_asked_again(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(BadInput, match=said):
            next(iter(hw.subscribe(f"http://127.0.0.1:{listener.getsockname()[1]}", "words")))
        thread.join()


def test_a_snapshot_that_was_cut_off_leaves_nothing() -> None:
    copy = Copy()
    copy.connected(("word",))
    copy.take("snapshot", None, b'[{"word":"old"}]')
    copy.connected(("word",))
    copy.take("snapshot", None, b'[{"word":"new"}]')
    copy.take("snapshot-end", "3", b'{"version":1,"key":["word"],"columns":{}}')
    assert list(copy.rows) == ["new"]
    copy.take("reset", "", b'{"why":"slow"}')
    assert copy.last is None, "cut off now, it asks for a whole snapshot"
    assert list(copy.rows) == ["new"], "shown until the new ones are whole"


def test_keys_of_several_columns_and_structs() -> None:
    copy = Copy()
    copy.connected(("window", "word"))
    copy.take("upsert", "1", b'{"word":"a","window":{"start":"s","end":"e"},"n":1}')
    assert list(copy.rows) == [(("s", "e"), "a")]
    copy.take("delete", "2", b'{"window":{"start":"s","end":"e"},"word":"a"}')
    assert copy.rows == {}
