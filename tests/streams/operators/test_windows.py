"""Tumbling, hopping and session windows against a recompute."""

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import testing
from headwater.errors import ApplicationInvalid, BadDuration
from headwater.streams.declarations import Emit
from headwater.streams.modes import choose_mode, prepared
from tests.streams.operators.disorder import (
    SCHEMA,
    SEEDS,
    Event,
    in_batches,
    query,
    random_events,
    second,
    seconds,
    sorted_rows,
    table,
    watermarks,
)

LATENESS = 8

WINDOWS = {
    "tumbling": (10, 10),
    "hopping with overlap": (10, 4),
    "hopping with gaps": (4, 10),
}


def column(kind: str) -> Column:
    size, every = WINDOWS[kind]
    if kind == "tumbling":
        return hw.tumbling("at", f"{size} seconds")
    return hw.hopping("at", f"{size} seconds", every=f"{every} seconds")


def run(window: Column, events: list[Event], emit: Emit | None, restarts: bool = False) -> testing.Result:
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))

    given = testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness=f"{LATENESS} seconds")
    key = ["window", "k"] if emit is None else None
    return testing.run(totals, key=key, emit=emit, restarts=restarts, events=given)


def shown(result: testing.Result) -> list[tuple[object, ...]]:
    return sorted_rows(
        (seconds(row["window"]["start"]), seconds(row["window"]["end"]), row["k"], row["n"], row["total"])
        for row in result
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_equal_a_recompute(spark: SparkSession, kind: str, seed: int) -> None:
    size, every = WINDOWS[kind]
    events = random_events(seed)
    marks = watermarks((events, LATENESS))
    # Every window that a time may lie in, then those that were still open when the event came.
    expected = query(
        f"""
        WITH placed AS (
            SELECT *, (t // {every} - step) * {every} AS start
            FROM events, range({-(-size // every)}) AS steps(step)
        )
        SELECT start, start + {size} AS stop, k, count(*), sum(v) FROM placed
        WHERE t < start + {size} AND start + {size} > mark
        GROUP BY ALL
        """,
        events=table(events, marks),
    )
    late = {event.id for event in events if event.at + size <= marks[event.batch]}
    assert late, "the stream was meant to have late rows"

    updates = run(column(kind), events, None, restarts=kind == "hopping with gaps")
    assert updates.mode == "update"
    assert shown(updates) == expected

    final = run(column(kind), events, "final")
    assert final.mode == "append"
    assert shown(final) == [row for row in expected if row[1] <= marks[-1]]


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_equal_gaps_and_islands(spark: SparkSession, seed: int) -> None:
    """Where nothing is late, the sessions are those of the whole stream."""
    gap = 4
    events = [event for event in random_events(seed, each=12, disorder=6) if event.at >= 12 * event.batch]
    events.append(Event(5, -1, "end", 10_000, 0))
    marks = watermarks((events, 30))
    assert all(event.at > marks[event.batch] for event in events)

    def sessions(events: DataFrame) -> DataFrame:
        return events.groupBy(hw.session("at", f"{gap} seconds"), "k").agg(
            F.count("*").alias("n"), F.sum("v").alias("total")
        )

    result = testing.run(
        sessions, events=testing.Rows(in_batches(events), schema=SCHEMA, time="at", lateness="30 seconds")
    )
    assert result.mode == "append"
    # An event exactly `gap` after the last one still belongs to its session.
    expected = query(
        f"""
        WITH marked AS (
            SELECT *, coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > {gap}, true) AS begins
            FROM events
        ), numbered AS (
            SELECT *, sum(begins::int) OVER (
                PARTITION BY k ORDER BY t, begins DESC ROWS UNBOUNDED PRECEDING
            ) AS s
            FROM marked
        )
        SELECT min(t), max(t) + {gap}, k, count(*), sum(v) FROM numbered WHERE k <> 'end' GROUP BY k, s
        """,
        events=table(events, marks),
    )
    assert shown(result) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_with_late_events_equal_a_simulation(spark: SparkSession, seed: int) -> None:
    gap = 5
    events = random_events(seed + 100, keys="ab")
    events.append(Event(5, -1, "end", 10_000, 0))
    marks = watermarks((events, LATENESS))
    emitted: list[tuple[object, ...]] = []
    open_sessions: list[tuple[int, int, str, int, int]] = []
    for batch in range(6):
        for event in (event for event in events if event.batch == batch):
            if event.at + gap <= marks[batch]:
                continue
            new = (event.at, event.at + gap, event.k, 1, event.v)
            open_sessions.append(new)
        open_sessions = merged(open_sessions)
        emitted += [session for session in open_sessions if session[1] <= marks[batch + 1]]
        open_sessions = [session for session in open_sessions if session[1] > marks[batch + 1]]

    result = run(hw.session("at", f"{gap} seconds"), events, "final")
    assert shown(result) == sorted_rows(emitted)


def merged(sessions: list[tuple[int, int, str, int, int]]) -> list[tuple[int, int, str, int, int]]:
    done: list[tuple[int, int, str, int, int]] = []
    for start, end, k, n, total in sorted(sessions, key=lambda session: (session[2], session[0])):
        if done and done[-1][2] == k and start <= done[-1][1]:
            first = done.pop()
            done.append((first[0], max(first[1], end), k, first[3] + n, first[4] + total))
        else:
            done.append((start, end, k, n, total))
    return done


def test_windows_of_windows(spark: SparkSession) -> None:
    """Windows with gaps are windows to Spark as well: others are made of them."""

    def by_twenty(events: DataFrame) -> DataFrame:
        inner = events.groupBy(hw.hopping("at", "4 seconds", every="10 seconds")).agg(F.count("*").alias("n"))
        return inner.groupBy(hw.tumbling("window", "20 seconds")).agg(F.sum("n").alias("n"))

    events = [Event(batch, at, "a", at, 1) for batch, at in [*((0, at) for at in range(40)), (1, 200)]]
    result = testing.run(by_twenty, events=testing.Rows(in_batches(events), schema=SCHEMA, time="at"))
    assert [(seconds(row["window"]["start"]), row["n"]) for row in result] == [(0, 8), (20, 8)]


def test_an_event_without_a_time_or_in_a_gap_is_in_no_window(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(second(4.999999),), (second(5),), (second(-1),), (None,)], "at timestamp")
    found = rows.groupBy(hw.hopping("at", "5 seconds", every="10 seconds")).count().collect()
    assert [(row["window"]["start"].second, row["count"]) for row in found] == [(0, 1)]


def test_a_window_with_gaps_over_no_event_time_has_no_end(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    frame = prepared(stream.groupBy(hw.hopping("timestamp", "1 second", every="1 minute")).count())
    assert choose_mode(frame) == "update"
    with pytest.raises(ApplicationInvalid, match="Give the stream an event time"):
        choose_mode(frame, "final")


def test_bad_lengths_are_refused() -> None:
    for make in (
        lambda: hw.tumbling("at", "ten seconds"),
        lambda: hw.hopping("at", "10 seconds", every="0 seconds"),
        lambda: hw.session("at", "5 fortnights"),
    ):
        with pytest.raises(BadDuration):
            make()
