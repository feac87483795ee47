"""Rows as points: windows, orders, bounds, and what cannot be drawn."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from headwater.streams.declarations import Chart
from headwater.ui import charting
from headwater.views.filters import Order
from headwater.views.model import Column, ViewSchema

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMA = ViewSchema(
    "clicks",
    1,
    (
        Column("window", "struct<start:timestamp,end:timestamp>"),
        Column("country", "string"),
        Column("count", "bigint"),
    ),
    ("window", "country"),
)


def row(minute: int, country: str, count: Any) -> dict[str, Any]:
    start = NOON + timedelta(minutes=minute)
    return {
        "window": {"start": start, "end": start + timedelta(minutes=1)},
        "country": country,
        "count": count,
    }


def test_a_time_whose_rows_were_not_all_read_is_left_out() -> None:
    chart = Chart("clicks", "window", "count", by="country", points=500)
    rows = [row(100 - n // 30, f"c{n % 30}", 1) for n in range(charting.MOST_ROWS)]
    assert len(rows) % 30
    found = charting.points(chart, rows)
    assert len(found.rows) == len(rows) // 30
    assert None not in found.rows[0]
    few = charting.points(chart, rows[:-1])  # they are all that there are
    assert len(few.rows) == len(rows) // 30 + 1


def test_a_window_stands_for_its_start_and_lines_go_from_left_to_right() -> None:
    chart = Chart("clicks", "window", "count", by="country")
    found = charting.points(chart, [row(1, "CH", 4), row(0, "CH", 2), row(0, "DE", 3)])
    noon = round(NOON.timestamp() * 1000)
    assert found.is_time
    assert found.names == ("CH", "DE")
    assert found.rows == ((noon, 2, 3), (noon + 60_000, 4, None))


def test_lines_keep_the_last_points_and_bars_the_largest() -> None:
    line = Chart("clicks", "window", "count", points=3)
    assert charting.order(line, SCHEMA) == (Order("window.start", descending=True),)
    found = charting.points(line, [row(9 - n, "CH", n) for n in range(10)])
    assert [values[1] for values in found.rows] == [2, 1, 0]
    bar = Chart("words", "word", "n", kind="bar", points=2)
    schema = ViewSchema("words", 1, (Column("word", "string"), Column("n", "int")), ("word",))
    assert charting.order(bar, schema) == (Order("n", descending=True),)
    rows = [{"word": word, "n": n} for word, n in (("the", 9), ("log", 5), ("is", 1))]
    assert charting.points(bar, rows).rows == (("the", 9), ("log", 5))


def test_more_names_than_there_is_room_for_are_counted() -> None:
    rows = [row(0, f"c{n:02d}", n) for n in range(25)]
    found = charting.points(Chart("clicks", "window", "count", by="country"), rows)
    assert len(found.names) == charting.MOST_NAMES
    assert found.left_out == 15
    assert found.names[-1] == "c24"


def test_what_is_no_number_is_left_out() -> None:
    rows = [{"word": "a", "n": Decimal("1.5")}, {"word": "b", "n": None}, {"word": "c", "n": float("nan")}]
    found = charting.points(Chart("words", "word", "n", kind="bar"), rows)
    assert found.rows == (("a", 1.5),)
    assert charting.total(Chart("words", None, "n", kind="number"), rows) == 1.5


def test_rows_without_x_have_no_place_on_a_line() -> None:
    seen = Chart("users", "seen", "n")
    rows = [{"seen": NOON, "n": 3}, {"seen": None, "n": 4}]
    for given in (rows, rows[::-1]):
        found = charting.points(seen, given)
        assert found.is_time and found.rows == ((round(NOON.timestamp() * 1000), 3),)
    assert charting.points(
        Chart("users", "size", "n"), [{"size": 1, "n": 1}, {"size": None, "n": 2}]
    ).rows == ((1, 1),)
    assert charting.points(seen, rows[1:]).rows == ()
    bar = Chart("words", "word", "n", kind="bar")
    assert charting.points(bar, [{"word": None, "n": 2}]).rows == (("null", 2),)


def test_decimals_stand_in_the_order_of_numbers() -> None:
    rows = [{"price": Decimal(price), "n": 1} for price in ("9", "10", "100")]
    assert [x for x, _ in charting.points(Chart("sales", "price", "n"), rows).rows] == [9, 10, 100]


def test_columns_are_checked_against_the_view() -> None:
    assert charting.missing(Chart("clicks", "window.end", "count", by="country"), SCHEMA) is None
    cause = charting.missing(Chart("clicks", "window", "total"), SCHEMA)
    assert cause == "the view clicks has no column 'total'; it has window, country, count"
    assert charting.missing(Chart("clicks", "window.middle", "count"), SCHEMA) is not None
