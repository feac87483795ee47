"""The continuous window against SQL's RANGE frame."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import testing
from headwater.errors import ApplicationInvalid
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

SIZE, LATENESS, FAR = 6, 8, 10_000


def looking_back(events: DataFrame) -> DataFrame:
    return hw.sliding(
        events,
        f"{SIZE} seconds",
        by="k",
        n=F.count("*"),
        total=F.sum("v"),
        highest=F.max("v"),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_event_has_what_came_before_it(spark: SparkSession, seed: int) -> None:
    # Few moments, so that many events share theirs; rows that are equal in every column are among them.
    events = [*random_events(seed, batches=4, each=20), Event(4, -1, "end", FAR, 0)]
    marks = watermarks((events, LATENESS))
    accepted = "SELECT * FROM events WHERE t > mark"
    expected = query(
        f"""
        SELECT id, k, t, v, count(*) OVER w, sum(v) OVER w, max(v) OVER w FROM ({accepted}) WHERE t < {FAR}
        WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN {SIZE} PRECEDING AND CURRENT ROW)
        """,
        events=table(events, marks),
    )
    assert len(set(expected)) < len(expected) < len(events) - 1, (
        "equal rows and late rows were meant to be there"
    )
    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness=f"{LATENESS} seconds")

    final = testing.run(looking_back, emit="final", restarts=True, events=given)
    assert final.mode == "append"
    assert shown(final) == expected

    updates = testing.run(looking_back, key=["id"], events=given)
    assert updates.mode == "update"
    # Rows that are equal have one id: the view has each once.
    assert [row for row in shown(updates) if row[2] < FAR] == sorted_rows(set(expected))


def shown(result: testing.Result) -> list[tuple[object, ...]]:
    return sorted_rows(
        tuple(seconds(value) if name == "at" else value for name, value in row.items()) for row in result
    )


def test_the_state_is_let_go_and_the_final_rows_come_once_size_and_lateness_have_passed(
    spark: SparkSession,
) -> None:
    batches = [
        [Event(0, 1, "a", 100, 1)],
        [Event(1, 2, "b", 100 + LATENESS + SIZE, 1)],
        [Event(2, 3, "b", 115, 1)],
    ]
    events = [event for batch in batches for event in batch]
    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness=f"{LATENESS} seconds")
    result = testing.run(looking_back, emit="final", events=given)
    assert [[row["id"] for row in batch] for batch in result.batches] == [[], [], [1]]


def test_what_cannot_be_computed_is_refused(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.raises(ApplicationInvalid, match="there is nothing to compute"):
        hw.sliding(rates, "1 minute", by="value")
    with pytest.raises(ApplicationInvalid, match="the aggregate 'value' is called like a column"):
        hw.sliding(rates, "1 minute", by="value", value=F.count("*"))
    with pytest.raises(ApplicationInvalid, match="no column 'symbol' among timestamp, value"):
        hw.sliding(rates, "1 minute", by="symbol", n=F.count("*"))
    with pytest.raises(ApplicationInvalid, match="its event time is 'timestamp', not 'value'"):
        hw.sliding(rates, "1 minute", by="value", time="value", n=F.count("*"))
    with pytest.raises(ApplicationInvalid, match="cannot tell whether two maps are equal"):
        hw.sliding(
            rates.withColumn("m", F.create_map("value", "value")), "1 minute", by="value", n=F.count("*")
        )


def test_events_without_a_key_are_events_of_one_key(spark: SparkSession) -> None:
    def counted(events: DataFrame) -> DataFrame:
        return hw.sliding(events, "10 seconds", by="k", lately=F.count("*")).select("k", "lately")

    rows = [{"k": key, "at": f"2026-01-01 10:00:0{number}"} for number, key in enumerate([None, "a", None])]
    result = testing.run(counted, events=testing.Rows(rows, schema=SCHEMA, time="at"))
    assert sorted_rows(row.values() for row in result) == [(None, 1), (None, 2), ("a", 1)]
