"""Values of every type, as rows, keys, changes, conditions and orders: the same from both stores."""

import json
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadInput
from headwater.views import Batch, Column, Either, Every, Filter, Order, ViewSchema, ViewStore, Where
from headwater.views.encoding import encode_key
from headwater.views.texts import json_texts
from headwater.views.types import arrow_type
from headwater.views.values import json_decoder, to_json

AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
HOUR = timedelta(hours=1)

# type -> values, each different from the others
VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "a",
        "ä\u00a0\U0001f40b",
        'quote " backslash \\ line\nend',
        "null",
        "NaN",
        "\\N",
        "a,b",
        "\x01",
    ],
    "boolean": [False, True],
    "tinyint": [-128, 0, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 0, 2**31 - 1],
    "bigint": [-(2**63), 0, 2**63 - 1],
    "float": [-1.5, 0.10000000149011612, math.inf],
    "double": [-math.inf, -1.5e300, 0.0, 0.1, 1.0, 1e22, 5e-324, math.inf, math.nan],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), AT],
    "timestamp_ntz": [datetime(1969, 12, 31), datetime(2026, 3, 1, 12, 0, 0, 1)],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "decimal(10,2)": [Decimal("-12345678.90"), Decimal("-2.50"), Decimal("0.00"), Decimal("10.00")],
    "decimal(38,18)": [Decimal("-1.000000000000000001"), Decimal("12345678901234567890.123456789012345678")],
    "binary": [b"", b"\x00\xff", b"text"],
    "struct<start:timestamp,end:timestamp>": [
        {"start": AT, "end": AT + HOUR},
        {"start": AT + HOUR, "end": None},
    ],
    "array<string>": [[], ["a", None, 'b"'], ["a"]],
    "array<struct<n:int,price:decimal(5,2)>>": [[{"n": 1, "price": Decimal("1.10")}, None], []],
    "map<string,double>": [{}, {"a": 1.0, "b": None}],
    "map<int,array<date>>": [{1: [date(2026, 1, 1)], -2: None}],
    "struct<a:struct<b:array<map<string,binary>>>>": [{"a": {"b": [{"x": b"1"}, None]}}, {"a": None}],
}


def arrow(values: list[Any], kind: str) -> pa.Array:
    return pa.array([_pairs(value) for value in values], arrow_type(kind))


def _pairs(value: Any) -> Any:
    """Dicts whose keys are no member names, as Arrow takes maps."""
    if isinstance(value, list):
        return [_pairs(element) for element in value]
    if isinstance(value, dict):
        if set(value) <= {"start", "end", "n", "price"} and value:
            return value
        if set(value) == {"a"} and not isinstance(value["a"], float):
            return {"a": None if value["a"] is None else {"b": _pairs(value["a"]["b"])}}
        return [(key, _pairs(item)) for key, item in value.items()]
    return value


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right and type(left) is type(right))


@pytest.mark.parametrize("kind", VALUES)
def test_rows_come_back_as_they_went_in(store: ViewStore, kind: str) -> None:
    values = [*VALUES[kind], None]
    store.define(ViewSchema("v", 1, (Column("id", "int"), Column("x", kind)), ("id",)), "f")
    rows = pa.table({"id": pa.array(range(len(values)), pa.int32()), "x": arrow(values, kind)})
    store.apply("v", 1, Batch(0, rows))
    found = [row["x"] for row in store.rows("v")]
    assert all(map(same, found, values)), found
    # The same again changes nothing, whatever the database made of the values.
    store.apply("v", 1, Batch(1, rows))
    changes = store.changes("v", 0)
    assert len(changes) == len(values)
    # The outbox has the values as JSON, and a switch of versions writes the same JSON from what is stored.
    decode = json_decoder(arrow_type(f"struct<id:int,x:{kind}>"))
    assert all(same(decode(change.value)["x"], value) for change, value in zip(changes, values, strict=True))
    for change in changes:
        assert change.value is not None
        json.loads(change.value, parse_constant=pytest.fail)
    store.define(ViewSchema("v", 2, (Column("id", "int"), Column("x", kind)), ("id",)), "g")
    store.activate("v", 2)
    store.apply("v", 1, Batch(2, rows))
    store.activate("v", 1)
    again = [change.value for change in store.changes("v", 0) if change.op == "upsert"]
    assert again == [change.value for change in changes] * 2
    # A reader's line of JSON means the same.
    assert all(same(decode(to_json({"id": 0, "x": value}))["x"], value) for value in found)


KEYS = [kind for kind in VALUES if not kind.startswith("map")]


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_and_null(store: ViewStore, kind: str) -> None:
    values = [*VALUES[kind], None]
    store.define(ViewSchema("v", 1, (Column("k", kind), Column("n", "int")), ("k",)), "f")
    for number in range(2):
        numbers = pa.array([number * 100 + i for i in range(len(values))], pa.int32())
        store.apply("v", 1, Batch(number, pa.table({"k": arrow(values, kind), "n": numbers})))
    assert store.progress("v").rows == len(values)
    for i, value in enumerate(values):
        row = store.get("v", [value])
        assert row is not None
        assert row["n"] == 100 + i
        assert same(row["k"], value)
    store.apply("v", 1, Batch(2, pa.table({"k": arrow([], kind), "n": pa.array([], pa.int32())}),
                              pa.table({"k": arrow(values[1:], kind)})))  # fmt: skip
    assert [row["n"] for row in store.rows("v")] == [100]


def test_times_that_nobody_could_read_are_null_at_any_depth(store: ViewStore) -> None:
    kind = "struct<at:timestamp,days:array<struct<day:date>>,seen:map<string,array<timestamp>>>"
    store.define(ViewSchema("v", 1, (Column("id", "int"), Column("x", kind)), ("id",)), "f")
    at, day = round(AT.timestamp() * 1_000_000), 20_513

    def rows(at: int, day: int) -> list[dict[str, Any]]:
        # Lists that are null and empty stand before those with times, and the last row is as it should be.
        return [
            {"at": at, "days": None, "seen": [("a", []), ("b", [at, None])]},
            {"at": None, "days": [{"day": 20_513}, {"day": day}], "seen": None},
            {"at": 0, "days": [], "seen": [("c", [0])]},
        ]

    raw = "struct<at:bigint,days:array<struct<day:int>>,seen:map<string,array<bigint>>>"
    for number, (micros, days) in enumerate([(at, day), (1_767_225_600_000 * 1_000_000, 2**30)]):
        values = pa.array([None, *rows(micros, days)], arrow_type(raw)).cast(arrow_type(kind))[1:]
        store.apply("v", 1, Batch(number, pa.table({"id": pa.array(range(3), pa.int32()), "x": values})))
        if number == 0:
            whole = [row["x"] for row in store.rows("v")]
            assert whole[0]["at"] == AT and whole[1]["days"][1] == {"day": date(2026, 3, 1)}
    found = [row["x"] for row in store.rows("v")]
    assert found[0] == {"at": None, "days": None, "seen": {"a": [], "b": [None, None]}}
    assert found[1] == {"at": None, "days": [{"day": date(2026, 3, 1)}, {"day": None}], "seen": None}
    assert found[2] == whole[2]


def test_zero_and_minus_zero_are_one_key(store: ViewStore) -> None:
    store.define(ViewSchema("v", 1, (Column("k", "double"),), ("k",)), "f")
    store.apply("v", 1, Batch(0, pa.table({"k": [0.0, -0.0]})))
    store.apply("v", 1, Batch(1, pa.table({"k": [-0.0]})))
    assert store.progress("v").rows == 1


def test_a_window_is_a_key_however_it_is_given(store: ViewStore) -> None:
    columns = (Column("window", "struct<start:timestamp,end:timestamp>"), Column("n", "bigint"))
    store.define(ViewSchema("v", 1, columns, ("window",)), "f")
    kind = pa.struct(
        [("start", pa.timestamp("us", "Europe/Zurich")), ("end", pa.timestamp("us", "Europe/Zurich"))]
    )
    starts = [AT + i * HOUR for i in (2, 0, 1)]
    windows = pa.array([{"start": start, "end": start + HOUR} for start in starts], kind)
    store.apply("v", 1, Batch(0, pa.table({"window": windows, "n": [2, 0, 1]})))
    assert [row["n"] for row in store.rows("v")] == [0, 1, 2]
    for key in (
        {"start": AT, "end": AT + HOUR},
        (AT, AT + HOUR),
        '{"start":"2026-03-01T12:30:15.25Z","end":"2026-03-01T14:30:15.250+01:00"}',
        ["2026-03-01T12:30:15.250", "2026-03-01T13:30:15.250"],
    ):
        assert store.get("v", [key]) == {"window": {"start": AT, "end": AT + HOUR}, "n": 0}
    assert store.changes("v", 0, 1)[0].key == (
        '{"window":{"start":"2026-03-01T12:30:15.250000Z","end":"2026-03-01T13:30:15.250000Z"}}'
    )
    later = store.rows("v", where=Where("window.start", ">", AT), order=["-window.start"])
    assert [row["n"] for row in later] == [2, 1]


@pytest.mark.parametrize(
    ("key", "cause"),
    [(["x"], "'x' is not a"), ([1, 2], "a key has 1 values"), ("5", "a key has 1 values")],
)
def test_keys_that_do_not_fit(store: ViewStore, key: Any, cause: str) -> None:
    store.define(ViewSchema("v", 1, (Column("k", "bigint"),), ("k",)), "f")
    with pytest.raises(BadInput, match=cause):
        store.get("v", key)


def test_bytes_that_are_no_text_and_nul(store: ViewStore) -> None:
    """Neither may stop a view for ever. PostgreSQL has no NUL; it gets the symbol for it."""
    store.define(ViewSchema("v", 1, (Column("k", "int"), Column("s", "string")), ("k",)), "f")
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 3, 6], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffba\x00b")]
    )
    store.apply("v", 1, Batch(0, pa.table({"k": pa.array([1, 2], pa.int32()), "s": broken})))
    first, second = (row["s"] for row in store.rows("v"))
    assert first == "a\ufffdb"
    assert second in ("a\0b", "a\u2400b")


def test_a_key_with_nul_is_the_same_in_rows_and_changes(store: ViewStore) -> None:
    store.define(ViewSchema("v", 1, (Column("k", "string"), Column("n", "int")), ("k",)), "f")
    rows = pa.table({"k": ["a\0"], "n": pa.array([1], pa.int32())})
    store.apply("v", 1, Batch(0, rows))
    (row,) = store.rows("v")
    assert store.get("v", [row["k"]]) == store.get("v", ["a\0"]) == row
    assert len(store.look_up("v", lambda schema: encode_key(schema, ["a\0"])).rows) == 1
    store.apply("v", 1, Batch(1, rows.slice(0, 0), deleted_keys=rows.select(["k"])))
    assert store.rows("v") == []
    assert [json.loads(change.key) for change in store.changes("v", 0)] == [{"k": row["k"]}] * 2


# -- conditions and orders -------------------------------------------------------------------------

TYPED = (
    Column("id", "int"),
    Column("s", "string"),
    Column("n", "bigint"),
    Column("x", "double"),
    Column("d", "decimal(20,2)"),
    Column("t", "timestamp"),
    Column("b", "boolean"),
    Column("m", "struct<t:timestamp,n:int,s:string,d:decimal(9,3),in:struct<x:double>>"),
)


def typed_rows(count: int, seed: int) -> list[dict[str, Any]]:
    r = random.Random(seed)

    def some(value: Any) -> Any:
        return None if r.random() < 0.15 else value

    rows = []
    for number in range(count):
        inner = {
            "t": some(AT + r.randrange(3) * HOUR),
            "n": some(r.randrange(4)),
            "s": some(r.choice("abC")),
            "d": some(Decimal(r.randrange(-2000, 2000)).scaleb(-3)),
            "in": some({"x": some(r.choice([r.random(), math.nan]))}),
        }
        rows.append(
            {"id": number, "s": some(r.choice(["a", "B", "ä", "b", ""])), "n": some(r.randrange(-3, 12)),
             "x": some(r.choice([1.0, -2.5, math.nan, math.inf, 10.0])),
             "d": some(Decimal(r.randrange(-2000, 2000)).scaleb(-2)), "t": some(AT + r.randrange(5) * HOUR),
             "b": some(r.random() < 0.5), "m": some(inner)}
        )  # fmt: skip
    return rows


def member(row: dict[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def holds(where: Filter, row: dict[str, Any]) -> bool | None:
    """SQL's three-valued logic over Python's rows."""
    if isinstance(where, Every):
        parts = [holds(part, row) for part in where.parts]
        return False if False in parts else (None if None in parts else True)
    if isinstance(where, Either):
        parts = [holds(part, row) for part in where.parts]
        return True if True in parts else (None if None in parts else False)
    value = member(row, where.column)
    if where.operator in ("is null", "is not null"):
        return (value is None) == (where.operator == "is null")
    if value is None:
        return None
    left = rank(value)
    if where.operator == "in":
        return left in [rank(one) for one in where.value]
    right = rank(where.value)
    outcomes: dict[str, bool] = {
        "=": left == right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right,
    }  # fmt: skip
    return outcomes[where.operator]


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def test_conditions_and_orders_equal_pythons(store: ViewStore) -> None:
    rows = typed_rows(150, 5)
    store.define(ViewSchema("v", 1, TYPED, ("id",)), "f")
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in TYPED])
    store.apply("v", 1, Batch(0, pa.Table.from_pylist(rows, schema)))
    r = random.Random(11)
    paths = ["id", "s", "n", "x", "d", "t", "b", "m.t", "m.n", "m.s", "m.d", "m.in.x"]

    def condition(depth: int) -> Filter:
        if depth and r.random() < 0.4:
            parts = tuple(condition(depth - 1) for _ in range(r.randrange(4)))
            return Every(parts) if r.random() < 0.5 else Either(parts)
        path = r.choice(paths)
        known = [value for row in rows if (value := member(row, path)) is not None]
        operator = r.choice(["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"])
        if operator == "in":
            return Where(path, "in", r.sample(known, r.randrange(4)))
        return Where(path, operator, None if "null" in operator else r.choice(known))  # type: ignore[arg-type]

    for _ in range(120):
        where, path = condition(2), r.choice(paths)
        descending = r.random() < 0.5
        wanted = sorted((row for row in rows if holds(where, row)), key=lambda row: row["id"])

        def place(row: dict[str, Any], path: str = path) -> Any:
            value = member(row, path)
            return (value is not None, 0 if value is None else rank(value))

        wanted.sort(key=place, reverse=descending)  # stable: equal ones stay by id
        if descending:
            wanted.sort(key=lambda row: row["id"])
            wanted.sort(key=place, reverse=True)
        found = store.rows("v", where=where, order=[Order(path, descending)])
        assert [row["id"] for row in found] == [row["id"] for row in wanted], (where, path)
        page = store.rows("v", where=where, order=[Order(path, descending)], limit=5, offset=3)
        assert [row["id"] for row in page] == [row["id"] for row in wanted[3:8]]


def test_values_in_conditions_may_be_texts(store: ViewStore) -> None:
    store.define(ViewSchema("v", 1, TYPED, ("id",)), "f")
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in TYPED])
    row = {"id": 1, "s": "it's", "n": 5, "x": 1.5, "d": Decimal("7.10"), "t": AT, "b": True, "m": None}
    store.apply("v", 1, Batch(0, pa.Table.from_pylist([row], schema)))
    texts = {
        "id": "1",
        "s": "it's",
        "n": "5",
        "x": "1.5",
        "d": "7.1",
        "t": "2026-03-01T12:30:15.25",
        "b": "true",
    }
    for column, text in texts.items():
        assert store.rows("v", where=Where(column, "=", text)) == [row], column
    assert store.rows("v", offset=1) == []
    for where in (
        Where("nobody", "=", 1),
        Where("m.nobody", "=", 1),
        Where("s.x", "=", 1),
        Where('s" or 1=1 --', "=", 1),
        Where("n", "; drop", 1),  # type: ignore[arg-type]
        Where("n", "=", "many"),
        Where("b", "=", "perhaps"),
        Where("n", "in", 5),
    ):
        with pytest.raises(BadInput):
            store.rows("v", where=where)
    with pytest.raises(BadInput):
        store.rows("v", order=["nobody"])
    with pytest.raises(BadInput):
        store.rows("v", limit=-1)


def test_texts_of_slices_and_chunks() -> None:
    """Arrow's nested arrays keep offsets into shared buffers, which a slice moves."""
    kind = "struct<a:array<map<string,int>>,b:array<int>,c:map<int,string>>"
    r = random.Random(3)

    def some(value: Any) -> Any:
        return None if r.random() < 0.2 else value

    def up_to_three(make: Callable[[int], Any]) -> Any:
        return some([make(number) for number in range(r.randrange(4))])

    def row(_: int) -> Any:
        maps = up_to_three(lambda _: up_to_three(lambda number: (f"k{number}", some(number))))
        return some({"a": maps, "b": up_to_three(some), "c": up_to_three(lambda number: (number, some("x")))})

    rows = [row(number) for number in range(60)]
    array = pa.array(rows, arrow_type(kind))
    whole = json_texts(array).to_pylist()
    for begin in range(0, 60, 7):
        assert json_texts(array[begin : begin + 9]).to_pylist() == whole[begin : begin + 9]
        alone = [json_texts(pa.array([one], array.type))[0].as_py() for one in rows[begin : begin + 9]]
        assert alone == whole[begin : begin + 9]
