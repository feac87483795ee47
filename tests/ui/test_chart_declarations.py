"""Charts that an application declares: what is refused, and when."""

import pytest

import headwater as hw
from headwater.errors import ApplicationInvalid
from headwater.streams.app import MOST_POINTS


def shop() -> hw.App:
    app = hw.App("shop")
    app.stream("clicks", "page string, at timestamp", time="at")

    @app.view(key="page")
    def pages(clicks):  # type: ignore[no-untyped-def]
        return clicks.groupBy("page").count()

    return app


def test_a_chart_is_one_line() -> None:
    app = shop()
    chart = app.chart("pages", x="page", y="count", kind="bar")
    assert app.charts == (chart,)
    assert (chart.title, chart.points) == ("pages: count", 20)
    app.graph()


def test_a_chart_may_be_declared_before_its_view() -> None:
    app = hw.App("shop")
    app.chart("users", x="id", y="age")
    with pytest.raises(ApplicationInvalid, match="no view or table 'users'"):
        app.graph()
    app.table("shop.users", "id long, age int", key="id")
    app.graph()


def test_the_start_names_the_views_that_there_are() -> None:
    app = shop()
    app.chart("page", x="page", y="count")
    with pytest.raises(ApplicationInvalid, match="Name one of pages"):
        app.graph()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": "page", "y": "count", "kind": "spider"}, "Say one of 'line'"),
        ({"x": "page"}, "lacks a column"),
        ({"y": "count"}, "lacks a column"),
        ({"x": "page", "y": "count", "points": -1}, "points is -1"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(arguments: dict, words: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ApplicationInvalid, match=words):
        shop().chart("pages", **arguments)


def test_a_number_needs_no_x_and_points_are_bounded() -> None:
    app = shop()
    assert app.chart("pages", y="count", kind="number").x is None
    assert app.chart("pages", x="page", y="count", points=10_000_000).points == MOST_POINTS
