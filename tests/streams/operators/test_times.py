"""Event time: corrected, set, found, and going on beside a silent input."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import testing
from headwater.client.connection import Connection
from headwater.client.writer import Writer
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format, Stream
from headwater.streams.engine.ticking import Ticking
from headwater.streams.silence import InputState, ticks_due
from headwater.streams.times import lateness_of, required_time, time_of, watermarked, with_ticks, without_time
from headwater.views.types import LAST_MICROS
from tests.streams.operators.disorder import second, seconds

SECOND = 1_000_000


def test_the_error_of_a_clock_is_taken_out(spark: SparkSession) -> None:
    schema = "happened timestamp, sent timestamp, received timestamp"
    rows = [
        (second(100.25), second(160), second(1160)),  # the device is 1000 s behind, or the way took that long
        (second(5000), second(5060), second(60)),  # and 5000 s ahead
        (second(10), None, second(20)),
        (second(10), second(11), None),
    ]
    frame = spark.createDataFrame(rows, schema)
    found = frame.select(hw.corrected_time("happened", "sent", F.col("received")).alias("at")).toArrow()
    assert found["at"].to_pylist() == [second(1100.25), second(0), second(10), second(10)]


def test_a_computed_time_takes_the_place_of_the_declared_one(spark: SparkSession) -> None:
    def by_true_time(readings: DataFrame) -> DataFrame:
        timed = hw.event_time(readings, hw.corrected_time("at", "sent", "received"), lateness="5 seconds")
        return timed.groupBy(hw.tumbling("event_time", "10 seconds")).count()

    schema = "at timestamp, sent timestamp, received timestamp"
    rows = [
        [{"at": second(1001), "sent": second(1002), "received": second(3)}],
        [{"at": second(20), "sent": second(20), "received": second(20)}],
    ]
    result = testing.run(by_true_time, emit="final", readings=testing.Rows(rows, schema=schema))
    assert [(seconds(row["window"]["start"]), row["count"]) for row in result] == [(0, 1)]


def test_the_event_time_of_a_frame_is_found_and_taken_away(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load()
    assert time_of(rates) is None
    timed = rates.withWatermark("timestamp", "3 seconds")
    assert (time_of(timed), lateness_of(timed, "timestamp")) == ("timestamp", 3000)
    assert time_of(timed.groupBy(hw.tumbling("timestamp", "1 second")).count()) == "window"
    assert time_of(without_time(timed)) is None
    again = hw.event_time(
        timed, F.col("timestamp") - F.expr("interval 1 hour"), lateness="1 minute", name="then"
    )
    assert (time_of(again), lateness_of(again, "then")) == ("then", 60_000)
    with pytest.raises(ApplicationInvalid, match="its event time 'window' is of type struct"):
        required_time(timed.groupBy(hw.tumbling("timestamp", "1 second")).count(), "join", "two streams")


EVENTS = "k string, at timestamp, v long"


def event(at: int, v: int = 1, k: str = "a") -> dict[str, object]:
    return {"k": k, "at": second(at), "v": v}


def test_rows_that_a_function_filters_out_move_its_time_as_well(spark: SparkSession) -> None:
    batches = [[event(1)], [event(100, v=0)]]

    def plain(events: DataFrame) -> DataFrame:
        timed = events.withWatermark("at", "10 seconds")
        return timed.where("v > 0").groupBy(hw.tumbling("at", "10 seconds")).count()

    def ours(events: DataFrame) -> DataFrame:
        timed = watermarked(events, "at", "10 seconds")
        return timed.where("v > 0").groupBy(hw.tumbling("at", "10 seconds")).count()

    given = testing.Rows(batches, schema=EVENTS)
    # Spark alone filters first: should that change one day, `watermarked` is no longer needed.
    assert testing.run(plain, emit="final", events=given) == []
    assert [row["count"] for row in testing.run(ours, emit="final", events=given)] == [1]


def unmatched(lefts: DataFrame, rights: DataFrame, ticks: DataFrame) -> DataFrame:
    """A left join with a stream that may be silent; a filter as users write them is in the way of the ticks."""
    answers = with_ticks(rights, ticks, "at", "10 seconds").where("v > 0").select("k", "at")
    return hw.join(lefts, answers, on="k", within="5 seconds", how="left").select("k", "at", "at_right")


def test_a_silent_input_holds_the_others_until_a_tick_comes(spark: SparkSession) -> None:
    lefts = testing.Rows(
        [[event(1), event(2, k="b")], [event(60)], [event(61)], [event(3, k="late")], [event(200)]],
        schema=EVENTS,
        time="at",
        lateness="10 seconds",
    )
    rights = testing.Rows([[event(3, k="b")], [], [], [], [event(1, k="b")]], schema=EVENTS)
    silent = testing.Rows([], schema="at timestamp")
    held = testing.run(unmatched, lefts=lefts, rights=rights, ticks=silent)
    assert [row["k"] for row in held] == ["b", "b"], "only what found its partner"

    ticks = testing.Rows([[], [], [{"at": second(60)}], []], schema="at timestamp")
    for restarts in (False, True):
        result = testing.run(unmatched, restarts=restarts, lefts=lefts, rights=rights, ticks=ticks)
        # With the tick the watermark is at 50: the event at 1 is alone for good, and what comes at 3 is late,
        # from the silent input as well. The tick itself is nowhere to be seen.
        assert [[row["k"] for row in batch] for batch in result.batches] == [["b"], [], ["a"], [], []]
        assert [(row["k"], row["at_right"] and seconds(row["at_right"])) for row in result] == [
            ("b", 3),
            ("a", None),
        ]


def test_after_a_restart_every_input_has_to_say_its_time_again(spark: SparkSession) -> None:
    """Spark keeps the watermark, and forgets what each input had contributed: ticks are due again."""
    lefts = testing.Rows([[event(1)], [event(60)], []], schema=EVENTS, time="at", lateness="10 seconds")
    rights = testing.Rows([[event(1, k="b")]], schema=EVENTS)
    ticks = testing.Rows([[], [{"at": second(30)}], [{"at": second(60)}]], schema="at timestamp")
    inputs = {"lefts": lefts, "rights": rights, "ticks": ticks}
    assert testing.run(unmatched, **inputs).watermark == second(50)
    assert testing.run(unmatched, restarts=True, **inputs).watermark == second(20)


def state(**changes: object) -> InputState:
    usual: dict[str, object] = {"lateness": 0, "idle": 60 * SECOND, "newest": 0, "heard": 0.0}
    return InputState(**(usual | changes))  # type: ignore[arg-type]


def test_ticks_are_due_for_the_silent_beside_those_that_speak() -> None:
    speaking = state(newest=500 * SECOND, heard=1000.0)
    silent = state(newest=100 * SECOND, heard=900.0, lateness=30 * SECOND)
    assert ticks_due({"a": speaking, "b": silent}, now=1001.0) == {"b": 530 * SECOND}
    assert ticks_due({"a": speaking, "b": state(newest=None, heard=900.0)}, now=1001.0) == {"b": 500 * SECOND}
    assert ticks_due({"a": speaking, "b": silent}, now=959.0) == {}, "not yet"
    assert ticks_due({"a": speaking, "b": silent}, now=1100.0) == {}, "nobody speaks"
    assert ticks_due({"a": speaking}, now=1001.0) == {}
    behind = state(newest=100 * SECOND, heard=900.0, behind=True)
    assert ticks_due({"a": speaking, "b": behind}, now=1001.0) == {}, "what it has yet to read would be late"


_states = st.builds(
    InputState,
    lateness=st.integers(0, 100 * SECOND),
    idle=st.integers(SECOND, 100 * SECOND),
    newest=st.none() | st.integers(0, 1000 * SECOND),
    heard=st.floats(0, 200),
    behind=st.booleans(),
)


@drawn(st.dictionaries(st.sampled_from("abcd"), _states, min_size=1), st.floats(200, 400))
def test_a_tick_frees_the_others_and_never_goes_back(inputs: dict[str, InputState], now: float) -> None:
    due = ticks_due(inputs, now)
    speaking = {
        name: one for name, one in inputs.items() if one.behind or (now - one.heard) * SECOND < one.idle
    }
    assert not set(due) & set(speaking)
    for name, time in due.items():
        own = inputs[name].watermark
        after = time - inputs[name].lateness
        assert own is None or after >= own + SECOND, "it moves by a second at least, and forward"
        assert after == min(one.watermark for one in speaking.values()), "no further than who still speaks"  # type: ignore[type-var]
    if speaking and all(one.watermark is not None for one in speaking.values()):
        slowest = min(one.watermark for one in speaking.values())  # type: ignore[type-var]
        for name in set(inputs) - set(speaking) - set(due):
            mark = inputs[name].watermark
            assert mark is not None and mark > slowest - SECOND, "who is not moved holds nobody"  # type: ignore[operator]


def test_ticks_know_times_of_before_1970() -> None:
    stream = Stream("births", "births", "at timestamp", Format("json"), time="at")
    ticking = Ticking(Connection("127.0.0.1:1"), [stream], {"births": "births.ticks"})
    for newest in (-7_000_000, -9_000_000):
        ticking.read("births", {"newest": newest, "rows": 1}, {})
    assert ticking._state(stream, {}).newest == -7_000_000


@pytest.mark.parametrize("name", ["event time", "event.time"])
def test_an_event_time_may_have_any_name(spark: SparkSession, name: str) -> None:
    def near(events: DataFrame) -> DataFrame:
        first = hw.unique(events, "k", within="10 seconds")
        return hw.join(first, events, on="k", within="1 second").select("k")

    events = [{"k": "a", name: second(1)}, {"k": "a", name: second(2)}]
    rows = testing.Rows(events, schema=f"k string, `{name}` timestamp", time=name)
    assert testing.run(near, events=rows) == [{"k": "a"}, {"k": "a"}]


def test_no_tick_is_beyond_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    speaking = Stream("clocks", "clocks", "at timestamp", Format("json"), time="at")
    silent = Stream(
        "others", "others", "at timestamp", Format("json"), time="at", lateness=60 * SECOND, idle=0
    )
    ticking = Ticking(Connection("127.0.0.1:1"), [speaking, silent], {"others": "others.ticks"})
    written: list[bytes] = []
    monkeypatch.setattr(Writer, "write", lambda self, topic, value, **more: written.append(value))
    monkeypatch.setattr(Writer, "flush", lambda self: None)
    for _ in range(2):
        ticking.read("clocks", {"newest": LAST_MICROS, "rows": 1}, {})
        ticking.look({})
        ticking.read("others", {"newest": LAST_MICROS, "rows": 0}, {})
    assert written == [b'{"at":"9999-12-31T23:59:59.999999+00:00"}']
