"""Joins of two streams within a time, against a recompute."""

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import testing
from headwater.errors import ApplicationInvalid
from headwater.streams.modes import choose_mode
from headwater.streams.times import time_of
from tests.streams.operators.disorder import (
    SCHEMA,
    SEEDS,
    Event,
    in_batches,
    query,
    random_events,
    seconds,
    sorted_rows,
    table,
    watermarks,
)

BEFORE, AFTER = 3, 6
LATE_LEFT, LATE_RIGHT = 8, 14
FAR = 10_000


def streams(seed: int) -> tuple[list[Event], list[Event]]:
    """Two streams of different pace, each ended by an event far ahead, so that all others are settled."""
    lefts = random_events(seed, batches=4, each=12, keys="abcdef")
    rights = random_events(seed + 1000, batches=4, each=12, keys="abcdef", pace=10)
    return [*lefts, Event(4, -1, "left end", FAR, 0)], [*rights, Event(4, -1, "right end", FAR, 0)]


def given(events: list[Event], lateness: int) -> testing.Rows:
    return testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness=f"{lateness} seconds")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_joins_equal_a_recompute(spark: SparkSession, how: str, seed: int) -> None:
    lefts, rights = streams(seed)
    marks = watermarks((lefts, LATE_LEFT), (rights, LATE_RIGHT))
    expected = query(
        f"""
        WITH l AS (SELECT * FROM lefts WHERE t > mark), r AS (SELECT * FROM rights WHERE t > mark)
        SELECT coalesce(l.k, r.k), l.id, l.t, l.v, r.id, r.t, r.v
        FROM l {how} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - {BEFORE} AND l.t + {AFTER}
        WHERE coalesce(l.t, r.t) < {FAR}
        """,
        lefts=table(lefts, marks),
        rights=table(rights, marks),
    )

    def joined(lefts: DataFrame, rights: DataFrame) -> DataFrame:
        return hw.join(lefts, rights, on="k", before=f"{BEFORE} seconds", after=f"{AFTER} seconds", how=how)

    result = testing.run(
        joined, restarts=how == "full", lefts=given(lefts, LATE_LEFT), rights=given(rights, LATE_RIGHT)
    )
    assert list(result[0]) == ["k", "id", "at", "v", "id_right", "at_right", "v_right"]
    found = sorted_rows(
        tuple(seconds(value) if name.startswith("at") and value else value for name, value in row.items())
        for row in result
    )
    assert found == expected
    assert result.mode == ("update" if how == "inner" else "append")
    if how == "full":
        dropped = sum(event.at <= marks[event.batch] for event in [*lefts, *rights])
        assert dropped and any(row[1] is None for row in found) and any(row[4] is None for row in found)


def test_the_right_join_is_the_left_join_turned_round(spark: SparkSession) -> None:
    lefts, rights = streams(7)

    def right_join(lefts: DataFrame, rights: DataFrame) -> DataFrame:
        return hw.join(lefts, rights, on="k", within="4 seconds", how="right").select(
            "k", "id", "id_right", "at_right"
        )

    def left_join(lefts: DataFrame, rights: DataFrame) -> DataFrame:
        return hw.join(rights, lefts, on="k", within="4 seconds", how="left").select(
            "k", "id_right", "id", "at"
        )

    inputs = {"lefts": given(lefts, LATE_LEFT), "rights": given(rights, LATE_RIGHT)}
    one, other = testing.run(right_join, **inputs), testing.run(left_join, **inputs)
    assert any(row["id"] is None for row in one)
    assert sorted_rows(row.values() for row in one) == sorted_rows(row.values() for row in other)


def stream(spark: SparkSession, schema: str, time: str | None = "at") -> DataFrame:
    columns = [f"CAST(NULL AS {part.split()[1]}) AS {part.split()[0]}" for part in schema.split(", ")]
    frame = spark.readStream.format("rate").load().selectExpr(*columns)
    return frame.withWatermark(time, "5 seconds") if time else frame


def test_one_event_time_is_left_and_can_be_grouped_by(spark: SparkSession) -> None:
    orders, payments = (
        stream(spark, "id long, at timestamp"),
        stream(spark, "id long, paid timestamp", "paid"),
    )
    for how, time in (("inner", "at"), ("left", "at"), ("right", "paid"), ("full", "at")):
        joined = hw.join(orders, payments, on="id", within="1 minute", how=how)  # type: ignore[arg-type]
        assert time_of(joined) == time
        assert choose_mode(joined.groupBy(hw.tumbling(time, "1 minute")).count(), "final") == "append"


def test_what_cannot_be_joined_is_refused(spark: SparkSession) -> None:
    orders, payments = stream(spark, "id long, at timestamp"), stream(spark, "id long, at timestamp", None)
    good = stream(spark, "id long, at timestamp")
    with pytest.raises(ApplicationInvalid, match="the right of two streams on id: it has no event time"):
        hw.join(orders, payments, on="id", within="1 minute")
    with pytest.raises(ApplicationInvalid, match="the left has no column 'nr' among id, at"):
        hw.join(orders, good, on="nr", within="1 minute")
    with pytest.raises(ApplicationInvalid, match="it needs either within="):
        hw.join(orders, good, on="id")
    with pytest.raises(ApplicationInvalid, match="both have a column 'at'"):
        hw.join(orders, good, on="id", within="1 minute", suffix=None)
    with pytest.raises(ApplicationInvalid, match="how is 'outer'"):
        hw.join(orders, good, on="id", within="1 minute", how="outer")  # type: ignore[arg-type]
