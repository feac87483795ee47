"""Following a view over HTTP, with a real server."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headwater.errors import NotReady, StoreFailed
from headwater.serve import changes
from headwater.serve import hub as hubs
from headwater.serve.changes import ViewChanges
from headwater.serve.feed import ViewFeed
from headwater.views import Batch, Column, ViewSchema, ViewStore, Where, open_store
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


def test_a_header_holds_a_key_of_any_name(server: Running, store: ViewStore) -> None:
    store.define(ViewSchema("prices", 1, (Column("価格", "string"),), ("価格",)), "f")
    with httpx.stream("GET", f"{server.url}/views/prices/changes") as answer:
        assert json.loads(answer.headers["headwater-key"]) == ["価格"]


@pytest.mark.parametrize("where", ["", "where=price>0"])
def test_the_types_come_before_rows_with_decimals(server: Running, store: ViewStore, where: str) -> None:
    store.define(ViewSchema("prices", 1, (Column("price", "decimal(20,4)"),), ("price",)), "f")
    told = ("columns", None, {"price": "decimal(20,4)"})
    address = f"{server.url}/views/prices/changes?{where}"
    with stream(address) as events:
        assert next(events) == told
        until(events, "progress")
        store.apply("prices", 1, Batch(0, pa.table({"price": pa.array(["1.5"]).cast(pa.decimal128(20, 4))})))
        assert until(events, "progress")[0] == ("upsert", "1", {"price": 1.5})
    with stream(f"{address}&after=0") as events:
        assert [next(events), next(events)] == [told, ("upsert", "1", {"price": 1.5})]


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
        *changed, progress = until(events, "progress")
        assert sorted((kind, data["word"]) for kind, _, data in changed) == [
            ("delete", "c"),
            ("upsert", "b"),
            ("upsert", "d"),
        ]
        assert progress[2]["version"] == 2


def test_a_new_version_with_other_columns_is_a_reset(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[int] = []

    class Noted(hubs.Hub):
        def clear(self, why: str, number: int) -> None:
            super().clear(why, number)
            assert self.schema is not None
            cleared.append(self.schema.version)

    monkeypatch.setattr(hubs, "Hub", Noted)
    store.apply("words", 1, batch(0, {"a": 1}))
    columns = (Column("word", "string"), Column("many", "boolean"))
    store.define(ViewSchema("words", 2, columns, ("word",)), "g")
    store.apply("words", 2, Batch(0, pa.table({"word": ["a"], "many": [False]})))
    with stream(_changes(server)) as events:
        until(events, "progress")
        store.activate("words", 2)
        reset, snapshot, end = until(events, "snapshot-end")
        assert reset[2] == {"why": hubs.OTHER_COLUMNS}
        assert cleared == [2], "who comes back just then is not taken for one of the old columns"
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
    again = httpx.get(_changes(server, seconds=0.2))
    assert again.status_code == 200 and changes.BEGUN_BY_NOBODY in again.text
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


def test_a_view_that_the_application_does_not_declare_is_none(server: Running, store: ViewStore) -> None:
    store.define(ViewSchema("hidden", 1, (Column("word", "string"),), ("word",)), "f")
    for name in ("hidden", "lines"):  # of which one is in the store and the other a stream
        answer = httpx.get(f"{server.url}/views/{name}/changes")
        assert answer.status_code == 404 and answer.json()["cause"] == "followed has no such view"


def test_a_view_that_nobody_has_begun_to_fill_is_waited_for_in_the_stream(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.02)
    address = f"{server.url}/views/later/changes"
    assert httpx.get(address, params={"where": "word ="}).status_code == 400
    with (
        httpx.stream("GET", address, timeout=PATIENCE) as whole,
        stream(f"{address}?where=word='b'&after=3") as some,
        stream(f"{address}?where=absent=1") as wrong,
    ):
        pieces = whole.iter_text()
        assert next(pieces).startswith("retry: ")
        assert next(pieces) == f": {changes.BEGUN_BY_NOBODY}\n\n"
        store.define(ViewSchema("later", 1, (Column("word", "string"),), ("word",)), "f")
        store.apply("later", 1, Batch(0, pa.table({"word": ["a", "b"]})))
        reset, *rows, _ = until(some, "snapshot-end")
        assert reset == ("reset", "", {"why": changes.BEGUN})
        if rows:
            assert rows == [("snapshot", None, [{"word": "b"}])]
        else:  # it was followed before it had a row
            assert until(some, "upsert")[-1][2] == {"word": "b"}
        said = ""
        while "event: snapshot-end" not in said:
            said += next(pieces)
        assert list(wrong) == [], "it ends, and who comes back is told why"
        answer = httpx.get(f"{address}?where=absent=1")
        assert answer.status_code == 400 and "there is no column 'absent'" in answer.json()["cause"]
    part: Any = server.parts[0]
    assert not part._resets, "nobody had to start over"


def test_who_waits_for_a_view_waits_for_the_store_as_well(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(changes, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(hubs, "RETRY_SECONDS", 0.02)
    news = store.news

    def failing(*_: Any) -> Any:
        raise StoreFailed("read", "the view later", "it went\naway")

    with httpx.stream("GET", f"{server.url}/views/later/changes", timeout=PATIENCE) as answer:
        pieces = answer.iter_text()
        while changes.BEGUN_BY_NOBODY not in next(pieces):
            pass
        store.news = failing  # type: ignore[method-assign]
        while (piece := next(pieces)) != ": it went away\n\n":
            assert changes.BEGUN_BY_NOBODY in piece
        store.news = news  # type: ignore[method-assign]
        store.define(ViewSchema("later", 1, (Column("word", "string"),), ("word",)), "f")
        while "event: snapshot-end" not in next(pieces):
            pass


def test_all_who_wait_for_a_view_share_the_looks_for_it(
    server: Running, store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.2)
    looks: list[float] = []
    news = store.news

    def counted(*arguments: Any) -> Any:
        looks.append(time.monotonic())
        return news(*arguments)

    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(stream(f"{server.url}/views/later/changes"))
            time.sleep(0.01)
        store.news = counted  # type: ignore[method-assign]
        time.sleep(1.0)
        assert 1 <= len(looks) <= 20, "twenty would look a hundred times"


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
            await asyncio.sleep(0.03)  # the fast one is to keep up, on any machine
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


def test_a_stopping_server_asks_nothing_of_a_store_that_nobody_followed(store: ViewStore) -> None:
    asked: list[None] = []
    store.watch = lambda: asked.append(None)  # type: ignore[method-assign, assignment, return-value]

    async def start_and_stop() -> None:
        tailer = hubs.Tailer(store)
        await asyncio.sleep(0.1)
        tailer.stop()
        tailer._thread.join(PATIENCE)

    asyncio.run(start_and_stop())
    assert not asked


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
        refused = httpx.get(_changes(server, where="n = 3"))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        with stream(_changes(server, where="n = 2")) as again:
            until(again, "snapshot-end")
    part: Any = server.parts[0]
    deadline = time.monotonic() + PATIENCE
    while part.followers["words"]:  # a busy server sees a moment later that they went
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with stream(_changes(server, where="n = 3")) as three:  # those that nobody follows make room
        until(three, "snapshot-end")


def test_who_is_on_the_way_to_a_view_is_not_forgotten(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "CONDITIONS", 1)
    store.apply("words", 1, batch(0, {"a": 1}))

    async def told(feed: ViewFeed) -> bytes:
        """All that a stream of it gives, which ends."""
        said: list[bytes] = []

        async def emit(data: bytes) -> None:
            said.append(data)

        async with asyncio.timeout(PATIENCE):
            await changes.follow(feed, None, emit)
        return b"".join(said)

    async def come_and_go() -> None:
        tailer = hubs.Tailer(store)
        try:
            hub = await tailer.hub("words")
            first, second = (hub.filtered(Where("n", "=", n)) for n in (1, 2))
            one, refused = await asyncio.gather(first, second, return_exceptions=True)
            assert isinstance(refused, NotReady), "the first is still being made"
            assert isinstance(one, ViewFeed)
            three = await hub.filtered(Where("n", "=", 3))
            assert hubs.LEFT.encode() in await told(one), "whose place another condition has taken"
            monkeypatch.setattr(hubs, "LINGER_SECONDS", 0.0)
            while tailer.hubs:
                await asyncio.sleep(0.01)
            for feed in (three, hub):
                assert hubs.LEFT.encode() in await told(feed)
        finally:
            tailer.stop()
            await asyncio.to_thread(tailer._thread.join, PATIENCE)

    asyncio.run(come_and_go())


def test_a_condition_over_a_new_version(server: Running, store: ViewStore) -> None:
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


@pytest.mark.parametrize(
    ("column", "value", "where"), [("many boolean", True, "many = true"), ("n string", "x", "n < 'y'")]
)
def test_a_condition_that_changes_of_before_a_new_version_do_not_fit(
    server: Running, store: ViewStore, column: str, value: Any, where: str
) -> None:
    store.apply("words", 1, batch(0, {"a": 1, "gone": 2}))
    name, kind = column.split()
    columns = (Column("word", "string"), Column(name, kind))
    store.define(ViewSchema("words", 2, columns, ("word",)), "g")
    store.apply("words", 2, Batch(0, pa.table({"word": ["a"], name: [value]})))
    store.activate("words", 2)
    with stream(_changes(server, where=where)) as events:
        assert until(events, "snapshot-end")[0] == ("snapshot", None, [{"word": "a", name: value}])
    with stream(_changes(server, where=where, after=0)) as events:
        last = {data["word"]: (kind, data) for kind, _, data in until(events, "progress")[:-1]}
        assert last == {"a": ("upsert", {"word": "a", name: value}), "gone": ("delete", {"word": "gone"})}
