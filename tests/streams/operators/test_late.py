"""Which events are late: what is said of a batch afterwards against what Spark did."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import testing
from headwater.streams.declarations import Function
from headwater.streams.late import is_late, windows_of
from headwater.streams.modes import prepared
from tests.streams.operators.disorder import SCHEMA, Event, in_batches, second, seconds


def hopping(events: DataFrame) -> DataFrame:
    return events.groupBy(hw.hopping("at", "10 seconds", every="5 seconds")).count()


def gaps(events: DataFrame) -> DataFrame:
    return events.groupBy(hw.hopping("at", "5 seconds", every="10 seconds")).count()


def sessions(events: DataFrame) -> DataFrame:
    return events.groupBy(hw.session("at", "5 seconds"), "k").count()


def unique_then_counted(events: DataFrame) -> DataFrame:
    return hw.unique(events, "id", within="1 minute").groupBy(hw.tumbling("at", "10 seconds")).count()


def joined_with_itself(events: DataFrame) -> DataFrame:
    return hw.join(events, events, on="k", within="5 seconds")


def by_windows_of_spark(events: DataFrame) -> DataFrame:
    timed = events.where("v > 0").withColumn("time", F.window("at", "10 seconds", startTime="4 seconds"))
    return timed.select(F.col("time").alias("shown"), "k").groupBy("shown", "k").count()


def by_overlapping_windows_of_spark(events: DataFrame) -> DataFrame:
    return events.groupBy("k", F.window("at", "10 seconds", "4 seconds", "1 second")).count()


def by_windows_in_sql(events: DataFrame) -> DataFrame:
    query = "SELECT window, count(*) AS n FROM {events} GROUP BY window(at, '10 seconds')"
    return events.sparkSession.sql(query, events=events)


def by_sessions_of_spark(events: DataFrame) -> DataFrame:
    return events.groupBy(F.session_window("at", "5 seconds"), "k").count()


def by_windows_over_windows(events: DataFrame) -> DataFrame:
    counted = events.groupBy(F.window("at", "5 seconds"), "k").count()
    return counted.groupBy(F.window(F.window_time("window"), "20 seconds")).count()


def without_duplicates_of_spark(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["id"])


def joined_by_spark(events: DataFrame) -> DataFrame:
    others = events.select(F.col("k").alias("other"), F.col("at").alias("then"))
    near = F.expr("k = other AND then BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 5 SECONDS")
    return events.join(others, near)


def in_several_branches(events: DataFrame) -> DataFrame:
    short = events.groupBy(F.window("at", "5 seconds")).count()
    return short.union(events.groupBy(hw.tumbling("at", "10 seconds")).count())


@pytest.mark.parametrize(
    "function",
    [
        hopping,
        gaps,
        sessions,
        unique_then_counted,
        joined_with_itself,
        by_windows_of_spark,
        by_overlapping_windows_of_spark,
        by_windows_over_windows,
        pytest.param(by_windows_in_sql, marks=pytest.mark.wide),
        pytest.param(by_sessions_of_spark, marks=pytest.mark.wide),
        pytest.param(without_duplicates_of_spark, marks=pytest.mark.wide),
        pytest.param(joined_by_spark, marks=pytest.mark.wide),
        pytest.param(in_several_branches, marks=pytest.mark.wide),
    ],
)
def test_late_events_are_those_that_spark_leaves_out(spark: SparkSession, function: Function) -> None:
    # The watermark is at 30 when the second batch comes; times on and around every edge.
    edges = [4, 5, 10, 14, 15, 19, 20, 24, 25, 26, 29, 30, 31, 35]
    events = [Event(0, 0, "a", 40, 1), *(Event(1, at, "a", at, 1) for at in edges)]
    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness="10 seconds")
    result = testing.run(function, events=given)
    by_harness = [seconds(row["at"]) for _, row in result.late]

    stream = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("value AS id", "'a' AS k", "timestamp AS at", "value AS v")
        .withWatermark("at", "10 seconds")
    )
    windows = windows_of(prepared(function(events=stream)))
    frame = spark.createDataFrame([(second(at),) for at in edges], "at timestamp")
    found = frame.where(is_late(frame["at"], second(30), windows)).toArrow()["at"].to_pylist()
    assert [seconds(at) for at in found] == by_harness
    assert by_harness and len(by_harness) < len(edges)
