"""The rows of a view as the points of a chart. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headwater.streams.declarations import Chart
from headwater.ui import texts
from headwater.views.filters import Order
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type, member_type

MOST_NAMES = 10  # lines, or parts of a bar
MOST_ROWS = 4000  # of the view that one chart reads


@dataclass(frozen=True)
class Points:
    """What is drawn: names, and rows that begin with x and have a value for each name behind it."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    is_time: bool = False
    left_out: int = 0  # names for which there was no room


def missing(chart: Chart, schema: ViewSchema) -> str | None:
    """Why a chart cannot be drawn of a view with these columns; None when it can.

    >>> from headwater.views.model import Column
    >>> missing(Chart("words", "word", "n"), ViewSchema("words", 1, (Column("word", "string"),), ("word",)))
    "the view words has no column 'n'; it has word"
    """
    for name in (chart.x, chart.y, chart.by):
        if name is not None and not _has(schema, name):
            return f"the view {schema.name} has no column {name!r}; it has {', '.join(schema.types)}"
    return None


def order(chart: Chart, schema: ViewSchema) -> tuple[Order, ...]:
    """The order in which the rows are wanted, so that the first ones are enough."""
    if chart.kind == "number" or chart.x is None:
        return ()
    if chart.kind in ("line", "area") or _is_window(schema, chart.x):
        column = f"{chart.x}.start" if _is_window(schema, chart.x) else chart.x
        return (Order(column, descending=True),)
    return (Order(chart.y, descending=True),)


def points(chart: Chart, rows: Sequence[Mapping[str, Any]]) -> Points:
    """The points of a chart, of rows in the order that `order` says.

    >>> points(Chart("words", "word", "n", kind="bar"), [{"word": "the", "n": 7}, {"word": "log", "n": 3}])
    Points(names=('n',), rows=(('the', 7), ('log', 3)), is_time=False, left_out=0)
    """
    found: dict[Any, dict[str, float]] = {}
    totals: dict[str, float] = {}
    xs = [_x(chart, row) for row in rows]
    is_time = any(isinstance(x, datetime | date) for x in xs)
    has_places = is_time or chart.kind in ("line", "area")  # along x; else there are names
    for given, row in zip(xs, rows, strict=True):
        if has_places and given is None:
            continue
        x, y = _place(given) if has_places else _plain(given), number(member(row, chart.y))
        if y is None:
            continue
        if x not in found and len(found) >= chart.points:
            if chart.kind in ("line", "area"):
                break
            continue
        name = texts.value(_label(member(row, chart.by))) if chart.by else chart.y
        found.setdefault(x, {})[name] = found.get(x, {}).get(name, 0) + y
        totals[name] = totals.get(name, 0) + abs(y)
    else:
        if len(rows) >= MOST_ROWS and chart.kind in ("line", "area") and len(found) > 1:
            found.popitem()  # not all of its rows were read: it would look like a dip
    largest = sorted(totals, key=lambda name: totals[name], reverse=True)[:MOST_NAMES]
    names = tuple(sorted(largest)) if chart.by else tuple(largest)
    # Spans before a name's first point have no line; a bar without a part has none there.
    table = [(x, *(values.get(name) for name in names)) for x, values in found.items()]
    if has_places:
        table.sort(key=lambda row: row[0])
    return Points(names, tuple(table), is_time, len(totals) - len(names))


def total(chart: Chart, rows: Sequence[Mapping[str, Any]]) -> float:
    """What a number shows: the sum of y."""
    return sum(number(member(row, chart.y)) or 0 for row in rows)


def member(row: Mapping[str, Any], name: str) -> Any:
    """A column of a row, or a member of a struct in it.

    >>> member({"window": {"start": 1}}, "window.start")
    1
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def number(value: Any) -> float | None:
    """A value as a number that can be drawn; None when it is none.

    >>> number(Decimal("2.50")), number(True), number("x"), number(float("nan"))
    (2.5, 1, None, None)
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return None


def _x(chart: Chart, row: Mapping[str, Any]) -> Any:
    return _label(member(row, chart.x)) if chart.x else None


def _label(value: Any) -> Any:
    return value["start"] if texts.is_window(value) else value


def _place(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, date):
        return round(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return texts.value(value)


def _has(schema: ViewSchema, name: str) -> bool:
    if name in schema.types:
        return True
    column, *path = name.split(".")
    return column in schema.types and member_type(arrow_type(schema.types[column]), tuple(path)) is not None


def _is_window(schema: ViewSchema, name: str) -> bool:
    kind = schema.types.get(name, "")
    return kind.startswith("struct<start:timestamp") and ",end:timestamp" in kind
