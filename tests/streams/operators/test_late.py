"""Which events are late: what is said of a batch afterwards against what Spark did."""

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import testing
from headwater.streams.declarations import Function
from headwater.streams.late import is_late, windows_used
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


@pytest.mark.parametrize("function", [hopping, gaps, sessions, unique_then_counted, joined_with_itself])
def test_late_events_are_those_that_spark_leaves_out(spark: SparkSession, function: Function) -> None:
    # The watermark is at 30 when the second batch comes; times on and around every edge.
    edges = [4, 5, 10, 14, 15, 19, 20, 24, 25, 26, 29, 30, 31, 35]
    events = [Event(0, 0, "a", 40, 1), *(Event(1, at, "a", at, 1) for at in edges)]
    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness="10 seconds")
    result = testing.run(function, events=given)
    by_harness = [seconds(row["at"]) for _, row in result.late]

    with windows_used() as windows:
        function(
            events=spark.readStream.format("rate")
            .load()
            .selectExpr("value AS id", "'a' AS k", "timestamp AS at", "value AS v")
            .withWatermark("at", "10 seconds")
        )
    frame = spark.createDataFrame([(second(at),) for at in edges], "at timestamp")
    found = frame.where(is_late(frame["at"], second(30), windows)).toArrow()["at"].to_pylist()
    assert [seconds(at) for at in found] == by_harness
    assert by_harness and len(by_harness) < len(edges)
