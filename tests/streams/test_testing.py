"""The users' test harness: real streaming on rows, and what it says of them."""

from dataclasses import dataclass

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import testing
from headwater.errors import ApplicationInvalid, PipelineFailed

app = hw.App("shop")
app.stream("clicks", "page string, user long, at timestamp", time="at", lateness="10 seconds")
app.table("users", key="id", schema="id long, country string")


@app.view(key=["window", "page"])
def by_page(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(hw.tumbling("at", "10 seconds"), "page").count()


@app.view(key=["window", "page"], emit="final")
def closed_by_page(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(hw.tumbling("at", "10 seconds"), "page").count()


@app.topic("alerts")
def front_page(clicks: DataFrame) -> DataFrame:
    return clicks.where("page = '/'")


@app.topic("named", key="user")
def with_country(clicks: DataFrame, users: DataFrame) -> DataFrame:
    return clicks.join(users, clicks.user == users.id).select("user", "country")


def click(second: int, page: str = "/", user: int = 1) -> dict[str, object]:
    return {"page": page, "user": user, "at": f"2026-01-01 10:00:{second:02d}"}


def window(start: int, end: int) -> dict[str, object]:
    return dict(testing.window(f"2026-01-01 10:00:{start:02d}", f"2026-01-01 10:00:{end:02d}"))


@pytest.fixture(autouse=True)
def _session(spark: SparkSession) -> None:
    """The session of all tests is the one that the harness finds."""


def test_a_view_gives_its_last_rows_by_key() -> None:
    rows = testing.run(by_page, clicks=[[click(12, "/b"), click(1)], [click(2), click(3, "/b")]])
    assert rows == [
        {"window": window(0, 10), "page": "/", "count": 2},
        {"window": window(0, 10), "page": "/b", "count": 1},
        {"window": window(10, 20), "page": "/b", "count": 1},
    ]
    assert rows.mode == "update"
    assert [len(batch) for batch in rows.batches] == [2, 2]
    assert rows.late == []


def test_what_comes_behind_the_watermark_is_late_and_does_not_count() -> None:
    # After the first batch the watermark is at 10:00:15: the window up to :10 is closed, the next is open.
    rows = testing.run(by_page, clicks=[[click(1), click(25)], [click(5), click(12)]])
    assert rows == [
        {"window": window(0, 10), "page": "/", "count": 1},
        {"window": window(10, 20), "page": "/", "count": 1},
        {"window": window(20, 30), "page": "/", "count": 1},
    ]
    assert rows.late == [("clicks", click(5))]
    assert rows.watermark == testing.at("2026-01-01 10:00:15")


def test_what_is_older_than_the_first_watermark_is_late() -> None:
    def counted(births: DataFrame) -> DataFrame:
        return births.groupBy(hw.tumbling("at", "1 day")).count()

    births = [{"at": "1950-01-01 10:00"}, {"at": "1970-01-01 00:00"}]
    result = testing.run(counted, births=testing.Rows(births, schema="at timestamp", time="at"))
    assert [row["count"] for row in result] == [1]
    assert result.late == [("births", births[0])]


def test_a_row_is_late_when_nothing_of_it_counts() -> None:
    """Windows that overlap: a row may be late for one and count in the next. Gaps: it may be in none at all."""

    def overlapping(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy(hw.hopping("at", "10 seconds", every="5 seconds")).count()

    def with_gaps(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy(hw.hopping("at", "5 seconds", every="10 seconds")).count()

    clicks = [[click(30)], [click(4), click(11), click(17), click(19)]]  # the watermark is at :20
    late = [("clicks", click(4)), ("clicks", click(11))]
    assert testing.run(overlapping, app=app, clicks=clicks).late == late
    gaps = testing.run(with_gaps, app=app, clicks=clicks)
    assert gaps.late == late, "what lies in a gap is not late"


def test_a_join_has_late_rows_of_both_sides() -> None:
    def joined(lefts: DataFrame, rights: DataFrame) -> DataFrame:
        return hw.join(lefts.where("page <> '/no'"), rights, on="user", within="5 seconds").select("user")

    schema = "page string, user long, at timestamp"
    lefts = [[click(30)], [click(20), click(21), click(1, "/no")]]
    rights = [[click(40)], [click(3, user=2), click(31)]]
    both = {
        name: testing.Rows(rows, schema=schema, time="at", lateness="10 seconds")
        for name, rows in (("lefts", lefts), ("rights", rights))
    }
    result = testing.run(joined, **both)
    assert result.late == [("lefts", click(20)), ("rights", click(3, user=2))]
    assert len(result) == 1  # of :30 and :31


def test_a_final_view_shows_windows_that_are_closed() -> None:
    rows = testing.run(closed_by_page, clicks=[[click(1), click(2)], [click(25)]])
    assert rows == [{"window": window(0, 10), "page": "/", "count": 2}]
    assert rows.mode == "append"
    assert rows.batches == [[], list(rows)]


def test_a_topic_gives_every_row_in_order() -> None:
    rows = testing.run(front_page, clicks=[click(3), click(1, "/b"), click(2, user=7)])
    assert [(row["at"].second, row["user"]) for row in rows] == [(3, 1), (2, 7)]
    # Without state nothing is late, however old it is.
    again = testing.run(front_page, clicks=[[click(50)], [click(1)]])
    assert len(again) == 2 and again.late == []


def test_a_table_is_a_frame_of_all_its_rows() -> None:
    rows = testing.run(
        with_country, clicks=[click(1, user=2), click(2, user=3)], users=[{"id": 2, "country": "DE"}]
    )
    assert rows == [{"user": 2, "country": "DE"}]


def test_a_plain_function_says_its_schema_in_rows() -> None:
    @dataclass
    class Reading:
        device: str
        celsius: float

    def warm(readings: DataFrame) -> DataFrame:
        return readings.groupBy("device").agg(F.max("celsius").alias("celsius"))

    given = testing.Rows([Reading("a", 1.5), Reading("a", 3.0), Reading("b", 2.0)], batch=2)
    assert testing.run(warm, key="device", readings=given) == [
        {"device": "a", "celsius": 3.0},
        {"device": "b", "celsius": 2.0},
    ]


def test_nested_values_and_texts_for_times_fit_the_schema() -> None:
    schema = "at timestamp, day date, price decimal(6,2), tags array<string>, of map<string,int>"
    schema += ", who struct<n:int>"
    row = {
        "at": "2026-01-01T12:00:00+02:00",
        "day": "2026-01-02",
        "price": "12.5",
        "tags": ["x"],
        "of": {"a": 1},
        "who": {"n": 3},
    }
    [back] = testing.run(lambda things: things, things=testing.Rows([row], schema=schema))
    assert back["at"] == testing.at("2026-01-01 10:00")
    assert (str(back["day"]), str(back["price"]), back["tags"]) == ("2026-01-02", "12.50", ["x"])
    assert (dict(back["of"]), back["who"]) == ({"a": 1}, {"n": 3})


def test_a_row_without_its_event_time_is_dead() -> None:
    dead = {"page": "/", "user": 1, "at": None}
    rows = testing.run(by_page, clicks=[dead, click(1)])
    assert rows == [{"window": window(0, 10), "page": "/", "count": 1}]
    assert rows.dead == [("clicks", dead)]


def test_a_row_without_a_column_that_may_not_be_null_is_dead() -> None:
    rows = [{"id": 1, "n": None}, {"n": 2}]
    result = testing.run(lambda events: events, events=testing.Rows(rows, schema="id long NOT NULL, n long"))
    assert (list(result), result.dead) == ([rows[0]], [("events", rows[1])])


def test_an_error_in_the_function_names_it() -> None:
    def broken(clicks: DataFrame) -> DataFrame:
        return clicks.select(F.raise_error(F.lit("no such user")))

    with pytest.raises(PipelineFailed, match=r"cannot run the function broken \(test_testing.py, line \d+\)"):
        testing.run(broken, clicks=[{"page": "/"}])


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({}, "it wants the inputs clicks, and got none"),
        ({"click": [click(1)]}, "it wants the inputs clicks, and got click"),
        ({"clicks": [{"pgae": "/"}]}, "has the column 'pgae', and the columns are page, user, at"),
        ({"clicks": [{"page": "/", "user": "me", "at": "2026-01-01"}]}, "its rows do not fit its schema"),
    ],
)
def test_rows_that_do_not_fit_are_refused(inputs: dict[str, object], why: str) -> None:
    with pytest.raises(ApplicationInvalid) as refused:
        testing.run(by_page, **inputs)  # type: ignore[arg-type]
    assert why in str(refused.value)


def test_what_spark_refuses_is_said_before_the_start() -> None:
    def sorted_clicks(clicks: DataFrame) -> DataFrame:
        return clicks.orderBy("at")

    with pytest.raises(ApplicationInvalid, match="Sorting is not supported"):
        testing.run(sorted_clicks, app=app, clicks=[click(1)])


def test_a_later_run_of_three_batches_is_quick() -> None:
    """Six batches: below two seconds on a quiet machine; the work is measured, not the waiting."""
    java = [child for child in psutil.Process().children(recursive=True) if "java" in child.name()]

    def work() -> float:
        return sum(
            process.cpu_times().user + process.cpu_times().system for process in [*java, psutil.Process()]
        )

    taken = []
    for _ in range(3):
        before = work()
        testing.run(by_page, clicks=[[click(1)], [click(20)], [click(40)]])
        taken.append(work() - before)
    assert min(taken) < 5, taken
