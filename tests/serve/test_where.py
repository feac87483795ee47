"""The language of conditions: what it means, held against an evaluation of its own, and what it refuses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConditionInvalid
from headwater.serve.where import DEEPEST, LONGEST, parse_order, parse_where
from headwater.views import Batch, Column, Either, Every, Order, ViewSchema, ViewStore, Where, open_store

COLUMNS = (
    Column("id", "bigint"),
    Column("a", "bigint"),
    Column("b c", "string"),
    Column("s", "struct<x:double>"),
)
SCHEMA = ViewSchema("things", 1, COLUMNS, ("id",))
ROWS: list[dict[str, Any]] = [
    {"id": number, "a": a, "b c": b, "s": None if x is None else {"x": x}}
    for number, (a, b, x) in enumerate(
        (a, b, x) for a in (None, 0, 1, 2) for b in (None, "", "it's", '"') for x in (None, 0.5, 1.0)
    )
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewStore]:
    folder: Path = tmp_path_factory.mktemp("where")
    with open_store(f"sqlite:///{folder}/views.db") as opened:
        opened.define(SCHEMA, "f")
        types = {"id": pa.int64(), "a": pa.int64(), "b c": pa.string(), "s": pa.struct([("x", pa.float64())])}
        table = pa.table({name: pa.array([row[name] for row in ROWS], kind) for name, kind in types.items()})
        opened.apply("things", 1, Batch(0, table))
        yield opened


# -- what it means ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A condition as text, and what it says of a row: true, false, or None where null decides."""

    text: str
    holds: Any


def _compared(name: str, column: str, sign: str, value: Any, text: str) -> Said:
    def holds(row: dict[str, Any]) -> bool | None:
        found = _of(row, column)
        if found is None:
            return None
        return {
            "=": found == value, "!=": found != value, "<": found < value,
            "<=": found <= value, ">": found > value, ">=": found >= value,
        }[sign]  # fmt: skip

    return Said(f"{name} {sign}{text}", holds)


def _of(row: dict[str, Any], column: str) -> Any:
    if column == "s.x":
        return None if row["s"] is None else row["s"]["x"]
    return row[column]


_NAMES = {"a": "a", "b c": "`b c`", "s.x": "s.x"}
_VALUES: dict[str, list[tuple[Any, str]]] = {
    "a": [(0, "0"), (1, "+1"), (2, "2"), (-1, "-1")],
    "b c": [("", "''"), ("it's", "'it''s'"), ("it's", '"it\'s"'), ('"', "'\"'")],
    "s.x": [(0.5, ".5"), (1.0, "1"), (1.0, "10e-1"), (0.0, "0.")],
}


@st.composite
def _comparisons(draw: st.DrawFn) -> Said:
    column = draw(st.sampled_from(sorted(_NAMES)))
    kind = draw(st.sampled_from(["sign", "in", "not in", "is null", "is not null"]))
    name = _NAMES[column]
    if kind == "sign":
        sign = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
        return _compared(name, column, sign, *draw(st.sampled_from(_VALUES[column])))
    if kind.startswith("is"):
        wanted = kind == "is null"
        return Said(f"{name} {kind.upper()}", lambda row: (_of(row, column) is None) == wanted)
    values = draw(st.lists(st.sampled_from(_VALUES[column]), min_size=1, max_size=3))
    among, negated = {value for value, _ in values}, kind == "not in"
    text = f"{name} {kind} ({', '.join(text for _, text in values)})"
    return Said(
        text, lambda row: None if _of(row, column) is None else (_of(row, column) in among) != negated
    )


def _both(left: Said, right: Said) -> Said:
    def holds(row: dict[str, Any]) -> bool | None:
        found = {left.holds(row), right.holds(row)}
        return False if False in found else None if None in found else True

    return Said(f"({left.text}) and ({right.text})", holds)


def _one_of(left: Said, right: Said) -> Said:
    def holds(row: dict[str, Any]) -> bool | None:
        found = {left.holds(row), right.holds(row)}
        return True if True in found else None if None in found else False

    return Said(f"({left.text}) OR ({right.text})", holds)


def _opposite(one: Said) -> Said:
    def holds(row: dict[str, Any]) -> bool | None:
        found = one.holds(row)
        return None if found is None else not found

    return Said(f"not ({one.text})", holds)


_CONDITIONS = st.recursive(
    _comparisons(),
    lambda parts: st.one_of(
        st.builds(_both, parts, parts), st.builds(_one_of, parts, parts), st.builds(_opposite, parts)
    ),
    max_leaves=6,
)


@given(said=_CONDITIONS)
@settings(max_examples=150)
def test_the_store_finds_what_the_text_says(store: ViewStore, said: Said) -> None:
    wanted = [row["id"] for row in ROWS if said.holds(row) is True]
    found = store.rows("things", where=parse_where(said.text, SCHEMA))
    assert [row["id"] for row in found] == wanted, said.text


def test_and_binds_closer_than_or_and_not_closest() -> None:
    a, b, c = Where("a", "=", 1), Where("b", "=", 2), Where("c", "=", 3)
    assert parse_where("a=1 or b=2 and c=3") == Either((a, Every((b, c))))
    assert parse_where("(a=1 or b=2) and c=3") == Every((Either((a, b)), c))
    assert parse_where("not a=1 and b=2") == Every((Where("a", "!=", 1), b))


def test_names_and_values_as_they_may_be_written() -> None:
    assert parse_where("`window`.`the start`>= '2026'") == Where("window.the start", ">=", "2026")
    assert parse_where("`a``b` in (true,FALSE)") == Where("a`b", "in", (True, False))
    assert parse_where("größe<1.5e3") == Where("größe", "<", 1500.0)
    assert parse_where("\t a\n=\r\n-1 ") == Where("a", "=", -1)
    assert parse_order("`b c`,-s.x") == (Order("b c"), Order("s.x", True))


# -- what it refuses -------------------------------------------------------------------------------


@given(text=st.text(max_size=40))
@settings(max_examples=300)
def test_any_text_is_understood_or_refused_with_a_position(text: str) -> None:
    for parse in (parse_where, parse_order):
        try:
            parse(text, SCHEMA)
        except ConditionInvalid as error:
            assert 1 <= error.position <= len(text) + 1
            assert re.match(rf"at character {error.position} ", error.cause)


@given(
    pieces=st.lists(
        st.sampled_from(
            [
                "a",
                "`b c`",
                "s.x",
                "=",
                "<",
                "in",
                "(",
                ")",
                ",",
                "1",
                "'x'",
                "and",
                "or",
                "not",
                "is",
                "null",
                "-",
            ]
        ),
        max_size=12,
    )
)
@settings(max_examples=300)
def test_pieces_of_the_language_in_any_order_never_reach_the_database(
    store: ViewStore, pieces: list[str]
) -> None:
    try:
        where = parse_where(" ".join(pieces), SCHEMA)
    except ConditionInvalid:
        return
    store.rows("things", where=where)  # what was understood can be asked


def test_the_limits_can_be_reached() -> None:
    assert parse_where("(" * DEEPEST + "a=1" + ")" * DEEPEST) == Where("a", "=", 1)
    parse_where("a=1" + " " * (LONGEST - 3))
    for text in ("(" * 100_000, "not " * 900 + "a=1", "a=1" + " " * (LONGEST - 2)):
        with pytest.raises(ConditionInvalid):
            parse_where(text)


def test_a_long_chain_and_a_long_list_can_be_asked(store: ViewStore) -> None:
    chain = " or ".join(["a=1"] * 500)
    assert len(store.rows("things", where=parse_where(chain, SCHEMA))) == 12
    for text in (f"a in ({','.join(['1'] * 500)})", f"not a in ({','.join(['9'] * 500)})"):
        assert store.rows("things", where=parse_where(text, SCHEMA))


@pytest.mark.parametrize("text", ["a = 1e999", "a = 9223372036854775808", f"a = {'9' * 3000}", "s.x = 1e999"])
def test_numbers_beyond_a_column_are_refused(text: str) -> None:
    with pytest.raises(ConditionInvalid, match="is not a value of the type"):
        parse_where(text, SCHEMA)
