"""What functions do when they are called, before anything starts: every fault is one line that names the function."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.errors import HeadwaterError
from headwater.streams.inputs import events
from headwater.streams.naming import type_text
from headwater.streams.planning import Plan, plan
from headwater.streams.settings import load_stream_settings
from headwater.streams.sinks.topics import records
from headwater.streams.sinks.views import WHOSE, together, view_schema
from headwater.views.types import arrow_type


def planned(spark: SparkSession, app: hw.App, folder: Path) -> Plan:
    settings = load_stream_settings(data=folder, bootstrap="127.0.0.1:1", environ={}, directory=folder)
    return plan(spark, app.graph(), lambda stream, quick: events(spark, stream, settings))


def app_of(declare: Callable[[hw.App], object]) -> hw.App:
    app = hw.App("shop")
    app.stream("clicks", "user_id long, page string, at timestamp", time="at", lateness="10 seconds")
    declare(app)
    return app


def python_fault(app: hw.App) -> None:
    @app.view(key="page")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.limit(int(math.sqrt(-1)))


def missing_file(app: hw.App) -> None:
    @app.view(key="page")
    def pages(clicks: DataFrame) -> DataFrame:
        open("/nonexistent/rates.csv").close()
        return clicks


def all_rows(app: hw.App) -> None:
    @app.view(key="page")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.limit(clicks.count())


def bad_duration(app: hw.App) -> None:
    @app.view(key=["window", "page"])
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy(hw.tumbling("at", "5 lightyears"), "page").count()


def join_without_column(app: hw.App) -> None:
    @app.topic("pairs")
    def pages(clicks: DataFrame) -> DataFrame:
        return hw.join(clicks, clicks, on="user", within="1 minute")


def view_of_intervals(app: hw.App) -> None:
    @app.view(key="page")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("lasts", F.make_interval(hours=F.lit(1)))


def view_of_views_of_intervals(app: hw.App) -> None:
    @app.view(key="page")
    def counts(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("page").count()

    @app.view(key="page")
    def pages(counts: DataFrame) -> DataFrame:
        return counts.withColumn("lasts", F.make_interval(hours=F.lit(1)))


def files_of_nothing(app: hw.App) -> None:
    @app.files("/nonexistent/warehouse")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("nothing", F.lit(None))


def files_of_batches(app: hw.App) -> None:
    @app.files("/nonexistent/warehouse")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.withColumn("Batch", F.lit(1))


def files_of_partitions_alone(app: hw.App) -> None:
    @app.files("/nonexistent/warehouse", partition_by="page")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.select("page")


def files_by_window(app: hw.App) -> None:
    @app.files("/nonexistent/warehouse", partition_by="window")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy(hw.tumbling("at", "1 minute")).count()


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (python_fault, "ValueError: math domain error (line {line}). Correct the function."),
        (
            missing_file,
            "FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/rates.csv' (line {line})",
        ),
        (
            all_rows,
            "it asks for the rows of a stream while it is called (line {line}), and a stream has no end. Leave out",
        ),
        (
            bad_duration,
            "'5 lightyears' as the size of a window in {function}: 'lightyears' is not a unit of time",
        ),
        (
            join_without_column,
            "join two streams on user in {function}: the left has no column 'user' among user_id",
        ),
        (view_of_intervals, "{function}: the column 'lasts': no view keeps the type 'interval'"),
        (view_of_views_of_intervals, "{function}: the column 'lasts': no view keeps the type 'interval'"),
        (files_of_nothing, "{function}: Parquet has no type for its column 'nothing' (void)"),
        (files_of_batches, "{function}: its column 'Batch' would be hidden"),
        (files_of_partitions_alone, "{function}: it returns no column besides those of partition_by"),
        (
            files_by_window,
            "{function}: it is partitioned by 'window' (struct<start:timestamp,end:timestamp>)",
        ),
    ],
)
def test_a_fault_of_a_function_is_one_line_that_names_it(
    spark: SparkSession, tmp_path: Path, declare: Callable[[hw.App], None], said: str
) -> None:
    app = app_of(declare)
    code = list(app.graph().outputs())[-1].function.__code__
    function = f"the function pages (test_planning.py, line {code.co_firstlineno})"
    with pytest.raises(HeadwaterError) as refused:
        planned(spark, app, tmp_path)
    message = str(refused.value)
    assert function in message
    assert said.format(function=function, line=code.co_firstlineno + 2) in message
    assert "\n" not in message


def test_an_event_time_is_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    app = hw.App("shop")
    app.stream("readings", "id long, at timestamp_ntz", time="at")

    @app.view(key="id")
    def newest(readings: DataFrame) -> DataFrame:
        return readings

    with pytest.raises(HeadwaterError, match="its event time 'at' is of type timestamp_ntz"):
        planned(spark, app, tmp_path)


def test_a_topic_that_cannot_be_read_back_is_refused_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(lambda app: None)

    @app.topic("pages")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.select(F.create_map("user_id", "page").alias("page"))

    @app.view(key="page")
    def back(pages: DataFrame) -> DataFrame:
        return pages

    with pytest.raises(
        HeadwaterError, match=r"cannot read the stream pages: .*can only contain STRING as a key"
    ):
        planned(spark, app, tmp_path)


def test_names_of_columns_may_have_anything_in_them(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(lambda app: None)
    names = ["the page.", "`x` y", "größe"]

    @app.topic("odd", key=names)
    def odd(clicks: DataFrame) -> DataFrame:
        inside = F.struct(F.col("user_id").alias("a: `b`, c"), F.lit(1).alias("größe"))
        return clicks.select(*(F.col("page").alias(name) for name in names), inside.alias("s"))

    @app.view(key=names)
    def back(odd: DataFrame) -> DataFrame:
        return odd

    @app.view(key=names)
    def again(odd: DataFrame) -> DataFrame:
        return odd

    plan = planned(spark, app, tmp_path)
    written, first, second = (each.frame for each in plan.pipelines)
    assert type_text(first.schema) == type_text(written.schema)
    assert together([first, second]).columns == [
        WHOSE,
        *(f"{n}.{name}" for n in (0, 1) for name in first.columns),
    ]
    (kept,) = [column for column in view_schema("back", 1, first.schema, ()).columns if column.name == "s"]
    assert [member.name for member in arrow_type(kept.type)] == ["a: `b`, c", "größe"]


def test_a_topic_has_all_digits_of_a_moment(spark: SparkSession) -> None:
    given = spark.sql(
        "SELECT timestamp'2026-01-02 03:04:05.123456Z' AS at, timestamp_ntz'2026-01-02 03:04:05' AS day"
    )
    (row,) = records(given, ("at", "day")).collect()
    assert (
        row["key"]
        == row["value"]
        == '{"at":"2026-01-02T03:04:05.123456Z","day":"2026-01-02T03:04:05.000000"}'
    )


def test_a_topic_read_further_down_is_as_late_as_what_made_it(spark: SparkSession, tmp_path: Path) -> None:
    app = app_of(lambda app: None)
    app.stream("readings", "id long, at timestamp")

    @app.topic("joined", name="joined")
    def joined(clicks: DataFrame) -> DataFrame:
        return hw.join(clicks, clicks, on="page", before="1 minute", after="15 minutes", how="left")

    @app.topic("joined.again", name="again")
    def again(joined: DataFrame, clicks: DataFrame) -> DataFrame:
        found = hw.join(joined, clicks, on="page", within="1 minute", how="right", suffix="_again")
        return found.select(F.col("at_again").alias("time"))

    @app.topic("computed", name="computed")
    def computed(readings: DataFrame) -> DataFrame:
        return hw.event_time(readings, F.col("at"), lateness="1 minute")

    streams = planned(spark, app, tmp_path).streams
    lateness = {name: stream.lateness // 1_000_000 for name, stream in streams.items()}
    # A topic that is read has its rows late already: what the next join holds back comes on top.
    assert lateness == {"clicks": 10, "readings": 0, "joined": 970, "again": 970 + 120, "computed": 60}
