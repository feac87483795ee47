"""A condition means the same in Python as in the view store."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import BadInput
from headwater.serve.matching import matcher
from headwater.views import Batch, Column, Either, Every, Filter, ViewSchema, ViewStore, Where, open_store
from headwater.views.filters import Operator
from headwater.views.types import arrow_type

COLUMNS = (
    Column("id", "bigint"),
    Column("word", "string"),
    Column("share", "double"),
    Column("price", "decimal(10,2)"),
    Column("at", "timestamp"),
    Column("day", "date"),
    Column("fine", "boolean"),
    Column("window", "struct<start:timestamp,count:int>"),
    Column("tags", "array<string>"),
    Column("parts", "struct<price:decimal(38,2),single:float,double:double>"),
    Column("odd", 'struct<text:string,raw:binary,`a "name`:int>'),
)
SCHEMA = ViewSchema("odd", 1, COLUMNS, ("id",))
START = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)

VALUES: dict[str, list[Any]] = {
    "word": ["", "a", "B", "é", "z\u2028", "🙂", "\uffff"],
    "share": [0.0, -0.0, 1.5, -2.5, 1e300, float("inf"), float("-inf"), float("nan")],
    "price": [Decimal("0.00"), Decimal("2.50"), Decimal("-10.01"), Decimal("99999999.99")],
    "at": [START + datetime.timedelta(microseconds=n) for n in (0, 1, 10**6, -(10**12))],
    "day": [START.date(), datetime.date(1969, 1, 1)],
    "fine": [True, False],
    "window": [{"start": START, "count": 1}, {"start": START, "count": None}, {"start": None, "count": 3}],
    "tags": [[], ["a"], ["a", None], ["b"]],
    "parts": [
        {"price": Decimal("123456789012345678901.00"), "single": 0.1, "double": 0.1},
        {"price": Decimal("123456789012345678901.10"), "single": float("inf"), "double": float("-inf")},
        {"price": Decimal("-2.50"), "single": float("nan"), "double": float("nan")},
        {"price": None, "single": None, "double": None},
        {"price": Decimal("9.00"), "single": 2.0, "double": float("inf")},
        {"price": Decimal("0.00"), "single": float("-inf"), "double": 1e300},
    ],
    "odd": [
        {"text": "a\0b", "raw": b"\0", 'a "name': 1},
        {"text": "a\0c", "raw": b"\xd0", 'a "name': 2},
        {"text": "\\u0000", "raw": b"\xff", 'a "name': None},
        {"text": "a", "raw": b"", 'a "name': 2},
        {"text": "b\\\0\0", "raw": None, 'a "name': 3},
    ],
}
MEMBERS: dict[str, list[Any]] = {"window.start": VALUES["at"], "window.count": [0, 1, 3]} | {
    f"{column}.{name}": [value[name] for value in VALUES[column]]
    for column in ("parts", "odd")
    for name in VALUES[column][0]
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewStore]:
    url = f"sqlite:///{tmp_path_factory.mktemp('matching')}/views.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url("matching")
    with open_store(url) as opened:
        opened.define(SCHEMA, "f")
        longest = max(map(len, VALUES.values()))
        table: dict[str, Any] = {"id": list(range(3 * longest))}
        for at, (name, values) in enumerate(VALUES.items()):
            table[name] = [([*values, None] * 9)[(n * (at + 1)) % (len(values) + 1)] for n in table["id"]]
        arrays = {c.name: pa.array(table[c.name], arrow_type(c.type)) for c in COLUMNS}
        opened.apply("odd", 1, Batch(0, pa.table(arrays)))
        yield opened


_OPERATORS: tuple[Operator, ...] = ("=", "!=", "<", "<=", ">", ">=")


def _comparisons() -> st.SearchStrategy[Filter]:
    def of(column: str) -> st.SearchStrategy[Filter]:
        values = st.sampled_from([*(VALUES | MEMBERS)[column], None])
        compared = ("=", "!=") if column in ("window", "tags", "parts", "odd") else _OPERATORS
        return st.one_of(
            st.builds(Where, st.just(column), st.sampled_from(compared), values),
            st.builds(Where, st.just(column), st.just("in"), st.lists(values, max_size=3).map(tuple)),
            st.builds(Where, st.just(column), st.sampled_from(("is null", "is not null"))),
        )

    return st.sampled_from([*VALUES, *MEMBERS]).flatmap(of)


_filters: st.SearchStrategy[Filter] = st.recursive(
    _comparisons(),
    lambda parts: st.builds(
        lambda kind, some: kind(tuple(some)), st.sampled_from((Every, Either)), st.lists(parts, max_size=3)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("member", MEMBERS)
def test_python_and_the_store_agree_about_members(store: ViewStore, member: str) -> None:
    for value in MEMBERS[member]:
        for compared in _OPERATORS:
            _agree(store, Where(member, compared, value))
        _agree(store, Where(member, "in", (value, None)))


@settings(max_examples=80)
@given(_filters)
def test_python_and_the_store_agree(store: ViewStore, where: Filter) -> None:
    _agree(store, where)


def _agree(store: ViewStore, where: Filter) -> None:
    matches = matcher(SCHEMA, where)
    found = {c.key for c in store.changes("odd", 0) if matches((c.value or "").encode())}
    expected = {f'{{"id":{row["id"]}}}' for row in store.rows("odd", where=where)}
    assert found == expected, where


@pytest.mark.parametrize(
    "where", [Where("nothing", "=", 1), Where("window.nothing", "=", 1), Where("at", "<", "noon")]
)
def test_conditions_that_do_not_fit(where: Filter, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        matcher(SCHEMA, where)
