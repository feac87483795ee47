"""Duplicates removed by id within a time, against a simulation of what is remembered."""

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import testing
from headwater.errors import ApplicationInvalid
from headwater.streams.times import lateness_of
from tests.streams.operators.disorder import (
    SCHEMA,
    SEEDS,
    Event,
    in_batches,
    random_events,
    seconds,
    watermarks,
)

LATENESS = 8


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("within", [4, 20])
def test_one_event_of_an_id_comes_through(spark: SparkSession, within: int, seed: int) -> None:
    # The key is the id here: few of them, so that they come again after they are forgotten.
    events = random_events(seed, batches=6, keys="abcdefgh", each=15)
    marks = watermarks((events, LATENESS))
    remembered: dict[str, int] = {}
    expected: list[tuple[str, int, int]] = []
    late = 0
    for batch in range(6):
        for event in (event for event in events if event.batch == batch):
            if event.at <= marks[batch]:
                late += 1
            elif event.k not in remembered:
                remembered[event.k] = event.at + within
                expected.append((event.k, event.at, event.id))
        remembered = {k: until for k, until in remembered.items() if until > marks[batch + 1]}
    assert late and len(expected) > 8, "late rows and ids that come again were meant to be there"

    def once(events: DataFrame) -> DataFrame:
        return hw.unique(events, "k", within=f"{within} seconds")

    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness=f"{LATENESS} seconds")
    result = testing.run(once, restarts=within == 4, events=given)
    found = [(row["k"], seconds(row["at"]), row["id"]) for row in result]
    assert sorted(found) == sorted(expected)

    # What is promised: never two of one id within the time.
    for number, (k, at, _) in enumerate(found):
        assert all(other != k or abs(at - then) > within for other, then, _ in found[:number])


def test_several_columns_may_be_the_id_and_time_goes_on_behind(spark: SparkSession) -> None:
    def counted(events: DataFrame) -> DataFrame:
        return (
            hw.unique(events, ["k", "v"], within="1 minute").groupBy(hw.tumbling("at", "10 seconds")).count()
        )

    events = [
        Event(0, 1, "a", 1, 1),
        Event(0, 2, "a", 2, 1),
        Event(0, 3, "a", 3, 2),
        Event(1, 4, "b", 100, 1),
    ]
    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness="5 seconds")
    assert [row["count"] for row in testing.run(counted, emit="final", events=given)] == [2]


def test_the_lateness_of_the_stream_is_as_before(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load().withWatermark("timestamp", "7 seconds")
    assert lateness_of(hw.unique(rates, "value", within="1 minute"), "timestamp") == 7000


def test_what_cannot_be_unique_is_refused(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load()
    with pytest.raises(ApplicationInvalid, match="it has no event time, so nothing would ever be forgotten"):
        hw.unique(rates, "value", within="1 minute")
    with pytest.raises(ApplicationInvalid, match="no column 'id' among timestamp, value"):
        hw.unique(rates, "id", within="1 minute")
