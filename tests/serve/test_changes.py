"""Following a view over HTTP, with a real server."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.serve import hub as hubs
from headwater.serve.changes import ViewChanges
from headwater.views import ViewStore, open_store
from tests.serve.following import PATIENCE, Follower, Running, raw_events, serving_of, stream, until
from tests.support.servers import free_port
from tests.views.words import batch, words


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    with open_store(f"sqlite:///{tmp_path}/views.db") as opened:
        opened.define(words(), "f")
        yield opened


@pytest.fixture
def server(store: ViewStore, tmp_path: Path) -> Iterator[Running]:
    with Running([ViewChanges(serving_of(store, tmp_path))], free_port()) as running:
        yield running


def _changes(server: Running, **query: Any) -> str:
    return str(httpx.URL(f"{server.url}/views/words/changes", params=query))


def test_a_snapshot_and_then_changes(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 1, "b": 2}, offsets={"in": {"0": 7}}))
    with stream(_changes(server)) as events:
        first, end = until(events, "snapshot-end")
        assert first == ("snapshot", None, [{"word": "a", "n": 1}, {"word": "b", "n": 2}])
        assert end[1] == "2"
        assert (end[2]["version"], end[2]["batch"], end[2]["offsets"]) == (1, 0, {"in": {"0": 7}})
        assert (end[2]["key"], end[2]["columns"]) == (["word"], {"word": "string", "n": "bigint"})
        (progress,) = until(events, "progress")
        assert progress[2]["batch"] == 0
        store.apply("words", 1, batch(1, {"a": 3}, deleted=["b"]))
        assert until(events, "progress") == [
            ("delete", "3", {"word": "b"}),
            ("upsert", "4", {"word": "a", "n": 3}),
            ("progress", None, store_progress(store)),
        ]
        store.apply("words", 1, batch(2, {}))
        assert next(events)[2]["batch"] == 2, "a batch without changes is told as well"


def store_progress(store: ViewStore) -> dict[str, Any]:
    progress = store.progress("words")
    assert progress.committed is not None
    return {
        "version": 1,
        "batch": progress.batch,
        "watermark": None,
        "offsets": progress.offsets,
        "at": progress.committed.isoformat().replace("+00:00", "Z"),
        "rows": progress.rows,
    }


def test_the_answer_is_not_kept_or_held_back_on_its_way(server: Running) -> None:
    with httpx.stream("GET", _changes(server)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in answer.headers["cache-control"]
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["headwater-key"] == '["word"]'
        assert next(answer.iter_raw()).startswith(b"retry: ")


@pytest.mark.parametrize("how", ["header", "query", "both"])
def test_who_comes_back_gets_what_it_missed(server: Running, store: ViewStore, how: str) -> None:
    store.apply("words", 1, batch(0, {"a": 1, "b": 2}))
    store.apply("words", 1, batch(1, {"a": 2}))
    headers = {"Last-Event-ID": "1"} if how != "query" else {}
    address = _changes(server, **({} if how == "header" else {"after": 1 if how == "query" else 99}))
    with stream(address, headers=headers) as events:
        assert until(events, "progress")[:-1] == [
            ("upsert", "2", {"word": "b", "n": 2}),
            ("upsert", "3", {"word": "a", "n": 2}),
        ]


def test_who_missed_many_changes_gets_the_last_of_each_key(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 0, "b": 0}))
    for number in range(1, 20):
        store.apply("words", 1, batch(number, {"a": number}))
    with stream(_changes(server, after=1)) as events:
        found = until(events, "progress")
        assert found[:-1] == [
            ("upsert", "2", {"word": "b", "n": 0}),
            ("upsert", "21", {"word": "a", "n": 19}),
        ]
        assert found[-1][2]["batch"] == 19


@pytest.mark.parametrize("after", ["trimmed", "ahead"])
def test_what_cannot_be_resumed_is_reset(server: Running, store: ViewStore, after: str) -> None:
    for number in range(10):
        store.apply("words", 1, batch(number, {"a": number}))
    store.trim_changes("words", keep=3)
    with stream(_changes(server, after=2 if after == "trimmed" else 11)) as events:
        reset, snapshot, end = until(events, "snapshot-end")
        assert (reset[0], reset[1]) == ("reset", ""), "an empty id, so that the client forgets the old one"
        assert snapshot[2] == [{"word": "a", "n": 9}]
        assert end[1] == "10"


def test_a_new_version_of_the_same_columns_is_a_difference(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 1, "b": 2, "c": 3}))
    store.define(words(2), "g")
    store.apply("words", 2, batch(0, {"a": 1, "b": 20, "d": 4}))
    with stream(_changes(server)) as events:
        until(events, "snapshot-end")
        until(events, "progress")
        store.activate("words", 2)
        *changes, progress = until(events, "progress")
        assert sorted((kind, data["word"]) for kind, _, data in changes) == [
            ("delete", "c"),
            ("upsert", "b"),
            ("upsert", "d"),
        ]
        assert progress[2]["version"] == 2


def test_a_new_version_with_other_columns_is_a_reset(server: Running, store: ViewStore) -> None:
    import pyarrow as pa

    from headwater.views import Batch, Column, ViewSchema

    store.apply("words", 1, batch(0, {"a": 1}))
    columns = (Column("word", "string"), Column("many", "boolean"))
    store.define(ViewSchema("words", 2, columns, ("word",)), "g")
    store.apply("words", 2, Batch(0, pa.table({"word": ["a"], "many": [False]})))
    with stream(_changes(server)) as events:
        until(events, "progress")
        store.activate("words", 2)
        reset, snapshot, end = until(events, "snapshot-end")
        assert reset[2] == {"why": hubs.OTHER_COLUMNS}
        assert snapshot[2] == [{"word": "a", "many": False}]
        assert end[2]["columns"] == {"word": "string", "many": "boolean"}
        until(events, "progress")
        store.apply("words", 2, Batch(1, pa.table({"word": ["a"], "many": [True]})))
        assert next(events)[2] == {"word": "a", "many": True}


def test_a_view_that_is_dropped_ends_the_stream(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 1}))
    with stream(_changes(server)) as events:
        until(events, "progress")
        store.drop("words", 1)
        *_, error = events
        assert error[0] == "error" and "words" in error[2]["why"]
    assert httpx.get(_changes(server)).status_code == 404
    store.define(words(), "f")
    with stream(_changes(server)) as events:
        assert until(events, "snapshot-end")[-1][1] == "2", "numbers go on"


def test_silence_is_told_apart_from_a_stall(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "BEAT_SECONDS", 0.05)
    store.apply("words", 1, batch(3, {"a": 1}))
    with stream(_changes(server)) as events:
        until(events, "snapshot-end")
        for _ in range(5):
            kind, identity, data = next(events)
            assert (kind, identity, data["batch"]) == ("progress", None, 3)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"after": "x"}, 400),
        ({"after": "-1"}, 400),
        ({"after": "9" * 30}, 400),
        ({"seconds": "long"}, 400),
        ({"seconds": "nan"}, 400),
        ({"seconds": "-1"}, 400),
        ({"after": "1\n2"}, 400),
    ],
)
def test_what_makes_no_sense_is_refused(server: Running, query: dict[str, str], status: int) -> None:
    answer = httpx.get(_changes(server, **query))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_there_is_no_such_view(server: Running) -> None:
    answer = httpx.get(f"{server.url}/views/nothing/changes")
    assert answer.status_code == 404
    assert "nothing" in answer.json()["subject"]


def test_a_stream_may_be_limited(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 1}))
    answer = httpx.get(_changes(server, seconds=0.2), timeout=PATIENCE)
    assert b"event: snapshot-end" in answer.content
    assert httpx.head(_changes(server), timeout=PATIENCE).status_code == 200


def test_newcomers_share_a_snapshot(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {f"w{n}": n for n in range(1000)}))
    read = 0
    texts = store.snapshot_texts

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal read
        read += 1
        return texts(*arguments, **options)

    store.snapshot_texts = counted  # type: ignore[method-assign]
    for _ in range(5):
        with stream(_changes(server)) as events:
            rows = [
                row for kind, _, data in until(events, "snapshot-end") if kind == "snapshot" for row in data
            ]
            assert len(rows) == 1000
        store.apply("words", 1, batch(_ + 1, {"w1": -_}))
    assert read == 1
    store.apply("words", 1, batch(9, {f"w{n}": -n for n in range(2, 1000)}))  # most of it is old now
    with stream(_changes(server)) as events:
        until(events, "snapshot-end")
    assert read == 2


def test_a_slow_reader_is_squashed_and_reset_and_ends_with_the_content(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "KEPT", 500)
    padding = "x" * 2000

    async def follow(slow: float, follower: Follower, last: int) -> None:
        path = "/views/words/changes"
        async for event in raw_events(server.port, path, {}, slow, 4096 if slow else None):
            follower.apply(*event)
            if follower.batch == last:
                return

    async def write() -> None:
        for number in range(1, 70):
            rows = {f"{padding}{n}": number * 1000 + n for n in range(number % 7, 60)}
            await asyncio.to_thread(store.apply, "words", 1, batch(number, rows))
        await asyncio.to_thread(store.apply, "words", 1, batch(200, {"end": 1}))

    async def all_of_it() -> tuple[Follower, Follower]:
        fast, slow = Follower(), Follower()
        async with asyncio.timeout(PATIENCE * 2):
            await asyncio.gather(follow(0, fast, 200), follow(0.01, slow, 200), write())
        return fast, slow

    store.apply("words", 1, batch(0, {"a": 1}))
    fast, slow = asyncio.run(all_of_it())
    content = {row["word"]: row for row in store.rows("words")}
    assert fast.rows == content
    assert slow.rows == content
    assert slow.kinds["upsert"] < fast.kinds["upsert"], "the slow one got fewer"
    assert slow.kinds.get("reset", 0) >= 1


def test_a_stopping_server_ends_its_streams(store: ViewStore, tmp_path: Path) -> None:
    store.apply("words", 1, batch(0, {"a": 1}))
    port = free_port()
    with Running([ViewChanges(serving_of(store, tmp_path))], port) as server:
        context = stream(_changes(server))
        events = context.__enter__()
        until(events, "snapshot-end")
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE
    list(events)
    context.__exit__(None, None, None)


def test_a_view_that_nobody_follows_is_forgotten(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "LINGER_SECONDS", 0.1)
    part: Any = server.parts[0]
    store.apply("words", 1, batch(0, {"a": 1}))
    with stream(_changes(server)) as events:
        until(events, "snapshot-end")
        assert part.followers == {"words": 1}
    deadline = time.monotonic() + PATIENCE
    while part.followers:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with stream(_changes(server, after=1)) as events:
        assert until(events, "progress")[-1][2]["batch"] == 0


def test_only_rows_for_which_a_condition_holds(server: Running, store: ViewStore) -> None:
    store.apply("words", 1, batch(0, {"a": 1, "b": 20, "c": 30}))
    with stream(_changes(server, where="n >= 10")) as events:
        snapshot, end = until(events, "snapshot-end")
        assert snapshot[2] == [{"word": "b", "n": 20}, {"word": "c", "n": 30}]
        until(events, "progress")
        store.apply("words", 1, batch(1, {"a": 11, "b": 2}, deleted=["c"]))
        assert until(events, "progress")[:-1] == [
            ("delete", "4", {"word": "c"}),
            ("upsert", "5", {"word": "a", "n": 11}),
            ("delete", "6", {"word": "b"}),
        ]
    with stream(_changes(server, where="n >= 10", after=end[1])) as events:
        assert [(kind, data["word"]) for kind, _, data in until(events, "progress")[:-1]] == [
            ("delete", "c"),
            ("upsert", "a"),
            ("delete", "b"),
        ]
    # Another condition, on what the ring held before it came.
    with stream(_changes(server, where="n < 10", after=3)) as events:
        assert [(kind, data["word"]) for kind, _, data in until(events, "progress")[:-1]] == [
            ("delete", "c"),
            ("delete", "a"),
            ("upsert", "b"),
        ]


@pytest.mark.parametrize("where", ["n >", "nothing = 1", "n = 'many'", "n = 1; drop table x", ""])
def test_a_condition_that_makes_no_sense(server: Running, store: ViewStore, where: str) -> None:
    answer = httpx.get(_changes(server, where=where))
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_conditions_are_limited_in_number(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "CONDITIONS", 2)
    store.apply("words", 1, batch(0, {"a": 1}))
    with stream(_changes(server, where="n = 1")) as one, stream(_changes(server, where="n = 2")) as two:
        until(one, "snapshot-end"), until(two, "snapshot-end")
        assert httpx.get(_changes(server, where="n = 3")).status_code == 503
        with stream(_changes(server, where="n = 2")) as again:
            until(again, "snapshot-end")
    with stream(_changes(server, where="n = 3")) as three:  # those that nobody follows make room
        until(three, "snapshot-end")


def test_a_condition_over_a_new_version(server: Running, store: ViewStore) -> None:
    import pyarrow as pa

    from headwater.views import Batch, Column, ViewSchema

    store.apply("words", 1, batch(0, {"a": 1}))
    columns = (Column("word", "string"), Column("many", "boolean"))
    store.define(ViewSchema("words", 2, columns, ("word",)), "g")
    store.apply("words", 2, Batch(0, pa.table({"word": ["a"], "many": [False]})))
    with stream(_changes(server, where="n = 1")) as events:
        until(events, "progress")
        store.activate("words", 2)
        assert list(events) == [], (
            "the stream ends, and the next attempt is told that there is no such column"
        )
    assert httpx.get(_changes(server, where="n = 1", after=1)).status_code == 400
