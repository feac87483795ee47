"""Which output mode a result runs in, and what is said when it runs in none."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Emit
from headwater.streams.modes import choose_mode, has_watermark, prepared


@pytest.fixture
def rates(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.fixture
def timed(rates: DataFrame) -> DataFrame:
    return rates.withWatermark("timestamp", "1 second")


def by_minute(timed: DataFrame) -> DataFrame:
    return timed.groupBy(hw.tumbling("timestamp", "1 minute")).count()


def by_session(timed: DataFrame) -> DataFrame:
    return timed.groupBy(hw.session("timestamp", "1 minute"), "value").count()


@pytest.mark.parametrize(
    ("make", "wanted", "mode"),
    [
        (lambda timed: timed, None, "update"),
        (lambda timed: timed, "final", "append"),
        (lambda timed: timed.groupBy("value").count(), None, "update"),
        (lambda timed: timed.groupBy("value").count().orderBy("count"), None, "complete"),
        (by_minute, "final", "append"),
        (by_session, None, "append"),
        (by_session, "updates", "complete"),
        (lambda timed: by_minute(timed).groupBy(hw.tumbling("window", "1 hour")).count(), None, "append"),
    ],
)
def test_the_mode_is_the_first_that_spark_takes(
    timed: DataFrame, make: Callable[[DataFrame], DataFrame], wanted: Emit | None, mode: str
) -> None:
    assert choose_mode(prepared(make(timed)), wanted) == mode


@pytest.mark.parametrize(
    ("make", "wanted", "why", "advice"),
    [
        (
            lambda timed: timed.orderBy("value"),
            None,
            "Sorting is not supported",
            "Leave the order to who reads",
        ),
        (lambda timed: timed.agg(F.countDistinct("value")), None, "Distinct aggregations", "F.collect_set"),
        (lambda timed: timed.groupBy("value").count(), "final", "without watermark", "Group by a window"),
    ],
)
def test_what_no_mode_takes_is_refused_with_a_way_out(
    timed: DataFrame, make: Callable[[DataFrame], DataFrame], wanted: Emit | None, why: str, advice: str
) -> None:
    with pytest.raises(ApplicationInvalid) as refused:
        choose_mode(prepared(make(timed)), wanted, subject="the function top")
    assert str(refused.value).startswith("cannot run the function top: ")
    assert why in refused.value.cause and advice in refused.value.next_step
    assert "SQLSTATE" not in str(refused.value) and "Relation" not in str(refused.value)


def test_sessions_need_a_key(timed: DataFrame) -> None:
    """Spark would say so only when the query runs."""
    alone = timed.groupBy(hw.session("timestamp", "1 minute"))
    with pytest.raises(ApplicationInvalid, match="no sessions over all events together"):
        choose_mode(prepared(alone.count()))


def test_complete_can_be_ruled_out(timed: DataFrame) -> None:
    ordered = timed.groupBy("value").count().orderBy("count")
    with pytest.raises(ApplicationInvalid, match="Sorting"):
        choose_mode(ordered, complete=False)


def test_a_frame_that_does_not_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ApplicationInvalid, match="does not follow a stream"):
        choose_mode(spark.range(3))


def test_watermarks_are_found_wherever_they_are(rates: DataFrame, timed: DataFrame) -> None:
    assert not has_watermark(rates)
    assert has_watermark(rates.select("value").join(timed.groupBy("value").count(), "value"))


def test_a_second_event_time_is_refused_before_spark_fails(timed: DataFrame) -> None:
    again = hw.event_time(timed, F.col("timestamp") - F.expr("interval 1 hour"), lateness="1 minute")
    for frame in (again, again.groupBy(hw.tumbling("event_time", "1 minute")).count()):
        with pytest.raises(ApplicationInvalid, match="it sets an event time where there is one already"):
            choose_mode(prepared(frame))
