"""Rows for those who pass them on as JSON: the texts are those of the changes, and of one moment with the progress."""

import threading
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import BadInput, UnknownView
from headwater.views import Batch, Column, Order, ViewSchema, ViewStore, Where
from headwater.views.encoding import encode_key
from headwater.views.types import arrow_type
from tests.views.words import batch, words


def _pairs(entries: dict[str, int]) -> list[tuple[str, int]]:
    return list(entries.items())


TYPES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "text": ("string", st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)),
    "small": ("tinyint", st.integers(-128, 127)),
    "large": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "single": ("float", st.floats(width=32)),
    "double": ("double", st.floats() | st.sampled_from([9999999999.5, 1e10, 85454796017215.0, 1e-4, 1e-5])),
    "price": ("decimal(12,3)", st.decimals(-(10**8), 10**8, places=3)),
    "at": ("timestamp", st.datetimes(datetime(1600, 1, 1), datetime(2999, 1, 1)).map(lambda t: t.replace(tzinfo=UTC))),
    "local": ("timestamp_ntz", st.datetimes(datetime(1600, 1, 1), datetime(2999, 1, 1))),
    "day": ("date", st.dates(date(1600, 1, 1), date(2999, 1, 1))),
    "flag": ("boolean", st.booleans()),
    "raw": ("binary", st.binary(max_size=4)),
    "list": ("array<double>", st.lists(st.floats(allow_nan=False), max_size=3)),
    "map": ("map<string,int>", st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)).map(_pairs)),
    "both": ("struct<x:int,y:string>", st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.none()})),
}  # fmt: skip
SCHEMA = ViewSchema("all", 1, (Column("id", "int"), *(Column(n, k) for n, (k, _) in TYPES.items())), ("id",))
ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()})


@given(rows=st.lists(ROWS, min_size=1, max_size=5))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_row_has_the_text_of_its_change(store: ViewStore, rows: list[dict[str, Any]]) -> None:
    store.define(SCHEMA, "f")
    known = store.progress("all").batch
    before = store.views()[0].last_change
    columns = {
        name: pa.array([row[name] for row in rows], arrow_type(kind)) for name, (kind, _) in TYPES.items()
    }
    numbers = pa.array(range(len(rows)), pa.int32())
    table = pa.table({"id": numbers, **columns})
    store.replace("all", 1, Batch(0 if known is None else known + 1, table))
    for change in store.changes("all", before):
        if change.value is not None:
            found = store.look_up("all", lambda schema, key=change.key: key)  # type: ignore[misc]
            assert found.rows == [change.value]
    page = store.page("all", limit=100)
    singles = [
        store.look_up("all", lambda schema, n=n: encode_key(schema, [n])).rows[0] for n in range(len(rows))
    ]  # type: ignore[misc]
    assert page.rows == singles


def test_a_reading_says_which_version_and_how_far_it_is(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply(
        "words",
        1,
        batch(3, {"a": 1, "b": 2}, offsets={"t": {"0": 5}}, watermark=datetime(2026, 1, 1, tzinfo=UTC)),
    )
    found = store.look_up("words", lambda schema: encode_key(schema, ["b"]))
    assert found.rows == ['{"word":"b","n":2}']
    assert found.schema == words()
    assert found.progress == store.progress("words")
    assert found.last_change == 2
    assert store.look_up("words", lambda schema: encode_key(schema, ["c"])).rows == []
    store.apply("words", 1, batch(4, {}, ["b"], offsets={"t": {"0": 6}}))
    found = store.look_up("words", lambda schema: encode_key(schema, ["b"]))
    assert (found.rows, found.progress.batch, found.progress.offsets, found.last_change) == (
        [],
        4,
        {"t": {"0": 6}},
        3,
    )


def test_the_version_that_takes_over_is_seen_with_its_own_columns(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1}))
    assert store.look_up("words", lambda schema: encode_key(schema, ["a"])).rows == ['{"word":"a","n":1}']
    wider = ViewSchema(
        "words", 2, (Column("n", "bigint"), Column("word", "string"), Column("m", "int")), ("n",)
    )
    store.define(wider, "g")
    rows = pa.table({"n": [7], "word": ["a"], "m": pa.array([None], pa.int32())})
    store.apply("words", 2, Batch(0, rows))
    store.activate("words", 2)
    found = store.look_up("words", lambda schema: encode_key(schema, [7]))
    assert (found.rows, found.progress.version) == (['{"n":7,"word":"a","m":null}'], 2)
    with pytest.raises(UnknownView):
        store.look_up("nothing", lambda schema: "{}")


def test_a_page_in_an_order_with_a_condition(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 1, "b": 2, "c": 2, "d": 3}))
    found = store.page(
        "words",
        where=lambda schema: Where("n", ">=", 2),
        order=lambda schema: [Order("n", True)],
        limit=2,
        offset=1,
    )
    assert found.rows == ['{"word":"b","n":2}', '{"word":"c","n":2}']
    assert (found.progress.rows, found.last_change) == (4, 4)
    assert store.page("words", limit=0).rows == []
    with pytest.raises(BadInput, match="no column"):
        store.page("words", where=lambda schema: Where("m", "=", 1), limit=1)


def test_rows_and_progress_are_of_one_moment_under_a_writer(store: ViewStore) -> None:
    store.define(words(), "f")
    store.apply("words", 1, batch(0, {"a": 0, "b": 0}))
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.apply("words", 1, batch(number, {"a": number, "b": number}, offsets={"t": {"0": number}}))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            one = store.look_up("words", lambda schema: encode_key(schema, ["a"]))
            assert one.rows == [f'{{"word":"a","n":{one.progress.batch}}}']
            page = store.page("words", limit=2)
            assert page.rows == [f'{{"word":"{word}","n":{page.progress.batch}}}' for word in "ab"]
    finally:
        stop.set()
        writer.join()
