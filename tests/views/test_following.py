"""What those who follow a view read of the store."""

import json

import pytest

from headwater.errors import UnknownView
from headwater.views import Column, ViewSchema, ViewStore, Where, open_store
from tests.views.words import batch, words


def _texts(store: ViewStore, view: str = "words", **options: object) -> list[str]:
    found: list[str] = []
    store.snapshot_texts(view, found.extend, **options)  # type: ignore[arg-type]
    return found


def test_news_are_changes_and_the_view_at_that_moment(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2}, offsets={"in": {"0": 5}}))
    store.apply("words", 1, batch(1, {"a": 3}, deleted=["b"]))
    news = store.news("words", 1, 2)
    assert [(change.number, change.op) for change in news.changes] == [(2, "upsert"), (3, "delete")]
    assert (news.last_change, news.progress.batch, news.progress.rows) == (4, 1, 1)
    assert news.schema == words()
    assert [change.number for change in store.news("words", 3).changes] == [4]
    assert store.news("words", 4).changes == []


def test_news_of_no_view(store: ViewStore) -> None:
    with pytest.raises(UnknownView):
        store.news("words", 0)
    store.define(words(), "f")
    store.drop("words", 1)
    with pytest.raises(UnknownView):
        store.news("words", 0)
    with pytest.raises(UnknownView):
        _texts(store)


def test_the_texts_of_a_snapshot_are_those_of_changes(store: ViewStore) -> None:
    import datetime
    from decimal import Decimal

    import pyarrow as pa

    from headwater.views import Batch

    columns = (
        Column("window", "struct<start:timestamp,end:timestamp>"),
        Column("name", "string"),
        Column("price", "decimal(10,2)"),
        Column("share", "double"),
        Column("short", "float"),
        Column("tags", "map<string,array<int>>"),
        Column("raw", "binary"),
        Column("day", "date"),
        Column("fine", "boolean"),
    )
    schema = ViewSchema("odd", 1, columns, ("window", "name"))
    start = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    window = {"start": start, "end": start + datetime.timedelta(minutes=1)}
    rows = [
        (
            window,
            'a"\n\u2028',
            Decimal("2.50"),
            float("nan"),
            0.1,
            [("x", [1, None])],
            b"\x00\xff",
            None,
            True,
        ),
        (window, "b", None, float("-inf"), None, None, None, start.date(), None),
        (window, "c", Decimal("-0.01"), 1e300, -3.5, [], b"", start.date(), False),
    ]
    from headwater.views.types import arrow_type

    table = pa.table(
        {
            column.name: pa.array([row[at] for row in rows], arrow_type(column.type))
            for at, column in enumerate(columns)
        }
    )
    store.define(schema, "f")
    store.apply("odd", 1, Batch(0, table))
    assert sorted(_texts(store, "odd")) == sorted(change.value or "" for change in store.changes("odd", 0))


def test_a_snapshot_of_some_rows(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {f"w{n}": n for n in range(12_000)}))
    found = [json.loads(text)["n"] for text in _texts(store, where=Where("n", ">=", 500))]
    assert sorted(found) == list(range(500, 12_000))


def test_a_watch_tells_of_commits_of_anybody(store: ViewStore, url: str) -> None:
    store.define(words(), "f")
    watch = store.watch()
    assert watch.changed()
    assert not watch.changed()
    store.apply("words", 1, batch(0, {"a": 1}))
    assert watch.changed()
    with open_store(url) as other:
        other.apply("words", 1, batch(1, {"a": 2}))
        assert watch.changed()
        other.apply("words", 1, batch(2, {}))  # progress alone
        assert watch.changed()
        other.define(words(2), "g")
        watch.changed()
        other.activate("words", 2)
        assert watch.changed()
    assert not watch.changed()
    watch.close()
