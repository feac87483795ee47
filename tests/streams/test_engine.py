"""Applications from topics to views and topics: what comes out, after restarts, and what is set aside."""

import json
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.errors import ApplicationInvalid, ViewChanged
from headwater.streams import aside
from headwater.streams.aside import _DeadLetters
from headwater.streams.declarations import Format, Stream
from headwater.streams.inputs import problems
from tests.streams.conftest import Bench, settle, wait_for

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id long, k string, v double, at timestamp"
REQUIRING = SCHEMA.replace("k string", "k string NOT NULL")


def events(count: int, seed: int = 1, first: int = 0) -> list[dict[str, Any]]:
    """Events a second apart, out of order by up to five seconds."""
    chance = random.Random(seed)
    made = [
        {
            "id": number,
            "k": f"k{chance.randrange(5)}",
            "v": float(chance.randrange(1000)),
            "at": (START + timedelta(seconds=number)).isoformat(),
        }
        for number in range(first, first + count)
    ]
    return sorted(
        made, key=lambda event: datetime.fromisoformat(event["at"]).timestamp() + chance.uniform(0, 5)
    )


def statistics(rows: list[dict[str, Any]], seconds: int = 10) -> set[tuple[Any, ...]]:
    """Tumbling windows by key, computed by DuckDB."""
    connection = duckdb.connect()
    connection.execute("create table events (id bigint, k varchar, v double, time timestamptz)")
    connection.executemany(
        "insert into events values (?, ?, ?, ?)", [(row["id"], row["k"], row["v"], row["at"]) for row in rows]
    )
    found = connection.execute(
        f"select epoch(time_bucket(interval '{seconds} seconds', time)), k, min(v), max(v), count(*) "
        "from events group by all"
    ).fetchall()
    return {(int(start), k, low, high, n) for start, k, low, high, n in found}


def app_with_views(name: str = "bench") -> hw.App:
    app = hw.App(name)
    app.stream("events", REQUIRING, time="at", lateness="10 seconds")

    @app.view(key=["window", "k"])
    def stats(events: DataFrame) -> DataFrame:
        grouped = events.groupBy(hw.tumbling("at", "10 seconds"), "k")
        return grouped.agg(F.min("v").alias("low"), F.max("v").alias("high"), F.count("*").alias("n"))

    @app.view(key="k")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("sum"))

    @app.view(key="rank")
    def ranking(totals: DataFrame) -> DataFrame:
        from pyspark.sql import Window

        ranked = totals.withColumn("rank", F.row_number().over(Window.orderBy(F.desc("sum"), "k")))
        return ranked.where("rank <= 3").select("rank", "k", "sum")

    @app.topic("large", key="k")
    def large(events: DataFrame) -> DataFrame:
        return events.where("v >= 500")

    return app


def shown(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {
        (int(row["window"]["start"].timestamp()), row["k"], row["low"], row["high"], row["n"]) for row in rows
    }


def test_views_and_topics_equal_a_recompute_over_restarts(bench: Bench) -> None:
    sent: list[dict[str, Any]] = []
    for part in range(3):
        with bench.running(app_with_views()) as engine:
            # A batch under way when the engine stops is repeated by the next one.
            for _ in range(3):
                more = events(300, seed=part, first=len(sent))
                bench.send("events", more)
                sent += more
                time.sleep(0.3)
            if part < 2:
                continue
            settle(engine)
            end = {"0": len(sent)}
            wait_for(lambda: engine.store.progress("ranking").offsets.get("events") == end)  # noqa: B023
            assert shown(engine.store.rows("stats")) == statistics(sent)
            totals = Counter(event["k"] for event in sent)
            assert {row["k"]: row["n"] for row in engine.store.rows("totals")} == dict(totals)
            sums = {k: sum(event["v"] for event in sent if event["k"] == k) for k in totals}
            best = sorted(sums, key=lambda k: (-sums[k], k))[:3]
            assert [row["k"] for row in engine.store.rows("ranking", order=["rank"])] == best
            assert engine.store.progress("stats").offsets == {"events": {"0": len(sent)}}
            # A view over views tells as much of itself as any other.
            of_ranking = engine.status["ranking"]
            wait_for(lambda: of_ranking.batch == engine.store.progress("ranking").batch)  # noqa: B023
            assert of_ranking.batches and of_ranking.rows_in >= len(sums) and of_ranking.rows_out >= 3
            assert of_ranking.phases["triggerExecution"] == of_ranking.batch_ms > 0
    large = [event["id"] for event in sent if event["v"] >= 500]
    assert sorted(value["id"] for value in bench.values("large")) == sorted(large)
    assert len(bench.folded("bench.stats")) == len(statistics(sent))
    assert {json.loads(key)["k"]: row["n"] for key, row in bench.folded("bench.totals").items()} == dict(
        totals
    )


def test_views_of_one_stream_share_a_query(bench: Bench) -> None:
    app = app_with_views()
    with bench.running(app) as engine:
        assert sorted(engine._queries) == ["large.1", "stats.1+totals.1"]


def test_a_value_that_does_not_parse_is_set_aside_and_counted(bench: Bench) -> None:
    app = hw.App("bench")
    app.stream("events", REQUIRING, time="at")

    @app.view(key="k")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    bad: list[dict[str, Any] | bytes] = [
        b"not json",
        {"id": "x", "k": "a", "v": 1.0, "at": START.isoformat()},
    ]
    bad.append({"id": 1, "k": "a"})
    bad.append({"id": 1, "k": "a", "at": 1_767_225_600_000})  # milliseconds: the year 57971
    bad.append({"id": 1, "at": START.isoformat()})
    good = events(20)
    with bench.running(app) as engine:
        bench.send("events", [*good[:10], *bad, None, *good[10:]])
        settle(engine)
        wait_for(lambda: len(bench.messages("events.dead")) == 5)
        wait_for(lambda: engine.status["totals"].dead == 5)
        assert sum(row["count"] for row in engine.store.rows("totals")) == 20
    dead = bench.messages("events.dead")
    assert dead[0].value() == b"not json"
    headers = [dict(message.headers() or []) for message in dead]
    assert [header["headwater.offset"] for header in headers] == [b"10", b"11", b"12", b"13", b"14"]
    assert {header["headwater.topic"] for header in headers} == {b"events"}
    assert "'at' is missing" in headers[2]["headwater.reason"].decode()
    assert "'at' is not within the years 1 to 9999" in headers[3]["headwater.reason"].decode()
    assert headers[1]["headwater.reason"].decode() == 'id: "x" is not a long'
    assert headers[4]["headwater.reason"].decode() == "'k' is missing, and the schema says NOT NULL"
    # The same of a stream with a type that Spark decodes, which gives no reasons.
    dated = Stream("events", "events", f"{SCHEMA}, k timestamp_ntz".replace("k string, ", ""), Format("json"))
    ends = [{"events": {"0": offset}} for offset in (9, 12)]
    found = problems(bench.spark, dated, bench.settings, *ends).sort("offset").collect()
    assert [(row["offset"], row["problem"]) for row in found] == [
        (9, "k is not of its type (timestamp_ntz)"),
        (10, "not JSON: not json at character 1"),
        (11, 'id: "x" is not a long'),
    ]
    # A restart looks at nothing twice, and knows without a batch that nothing is left to read.
    with bench.running(app) as engine:
        wait_for(engine.caught_up)
        assert engine.status["totals"].batches == 0
        bench.send("events", [b"bad again"])
        wait_for(lambda: len(bench.messages("events.dead")) == 6)


def test_what_a_run_could_not_set_aside_the_next_one_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nothing more comes; and a stop tries again what has just failed."""
    tries = [0]

    def refused(*_: object) -> None:
        tries[0] += 1
        raise OSError("no room")

    app = hw.App("bench")
    app.stream("events", SCHEMA, time="at")

    @app.view(key="k")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    with monkeypatch.context() as broken:
        broken.setattr(_DeadLetters, "write", refused)
        broken.setattr(aside, "LAST_TRIES_SECONDS", 3.0)
        with bench.running(app) as engine:
            bench.send("events", [*events(3), b"not json", *events(3), b"nor this"])
            settle(engine)
            wait_for(lambda: engine.status["totals"].dead == 2 and tries[0] > 0)
            before = tries[0]
    assert tries[0] > before + 2 and bench.messages("events.dead") == []
    with bench.running(app):
        wait_for(lambda: len(bench.messages("events.dead")) == 2)


def test_an_event_that_comes_too_late_is_set_aside_and_counted(bench: Bench) -> None:
    app = app_with_views()

    @app.view(key=["minute", "k"])
    def minutes(events: DataFrame) -> DataFrame:
        minute = F.window("at", "1 minute", startTime="5 seconds").alias("minute")
        return events.groupBy(minute, "k").agg(F.count("*").alias("n"))

    with bench.running(app) as engine:
        bench.send("events", events(100))
        settle(engine)
        open_window = {"id": 1000, "k": "open", "v": 1.0, "at": (START + timedelta(seconds=85)).isoformat()}
        too_late = {"id": 1001, "k": "late", "v": 1.0, "at": START.isoformat()}
        # The watermark of a batch counts for the ones after it.
        bench.send("events", events(1, first=101))
        settle(engine)
        dead_as_well = {"id": 1002, "v": 1.0, "at": START.isoformat()}
        bench.send("events", [open_window, too_late, dead_as_well])
        settle(engine)
        # Both windows of the open event are open, though its own time is behind the watermark.
        wait_for(lambda: engine.status["stats"].late == 1 and engine.status["minutes"].late == 1)
        assert {row["k"]: row["n"] for row in engine.store.rows("minutes")}["open"] == 1
        keys = {row["k"] for row in engine.store.rows("stats")}
        assert "open" in keys and "late" not in keys
        assert "late" in {row["k"] for row in engine.store.rows("totals")}
    assert [event["id"] for event in bench.values("minutes.late")] == [1001]
    late = bench.messages("stats.late")
    assert [json.loads(message.value())["id"] for message in late] == [1001]
    assert [event["id"] for event in bench.values("events.dead")] == [1002]
    assert b"behind the watermark" in dict(late[0].headers() or [])["headwater.reason"]


def test_an_event_of_before_the_first_watermark_is_set_aside_and_counted(bench: Bench) -> None:
    app = app_with_views()
    old = {"id": 1, "k": "old", "v": 1.0, "at": "1950-01-01T00:00:00Z"}
    oldest = {"id": 2, "k": "oldest", "v": 1.0, "at": "0001-01-01T00:00:00Z"}
    with bench.running(app) as engine:
        bench.send("events", [*events(3), old])
        settle(engine)
        wait_for(lambda: engine.status["stats"].late == 1)
        bench.send("events", [oldest])
        settle(engine)
        wait_for(lambda: engine.status["stats"].late == 2)
        assert {row["k"] for row in engine.store.rows("totals")} >= {"old"}
    assert bench.values("stats.late") == [old, oldest]
    reasons = [dict(late.headers() or [])["headwater.reason"] for late in bench.messages("stats.late")]
    assert reasons[1].startswith(b"its time 0001-01-01 00:00:00 was behind the watermark 2025-12-31 23:59:52")


def versioned(version: int, factor: int) -> hw.App:
    app = hw.App("bench")
    app.stream("events", SCHEMA)

    @app.view(key="k", version=version)
    def scaled(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg((F.sum("v") * factor).alias("total"))

    return app


def test_a_new_version_is_built_beside_the_old_one_and_takes_over(bench: Bench) -> None:
    sent = events(200)
    with bench.running(versioned(1, 1)) as engine:
        bench.send("events", sent)
        settle(engine)
    with pytest.raises(ViewChanged, match="version=2"), bench.running(versioned(1, 2)):
        pass
    with bench.running(versioned(2, 2)) as engine:
        wait_for(lambda: [info.serving for info in engine.store.views()] == [2])
        settle(engine)
        expected = {k: 2 * sum(e["v"] for e in sent if e["k"] == k) for k in {e["k"] for e in sent}}
        assert {row["k"]: row["total"] for row in engine.store.rows("scaled")} == expected
        assert [version.version for version in engine.store.views()[0].versions] == [2]
    assert {
        json.loads(key)["k"]: row["total"] for key, row in bench.folded("bench.scaled").items()
    } == expected


def test_applications_with_one_store_do_not_take_each_others_views(bench: Bench) -> None:
    def app(name: str, extra: bool = False) -> hw.App:
        made = hw.App(name)
        made.stream("events", SCHEMA)

        @made.view(key="k")
        def totals(events: DataFrame) -> DataFrame:
            return events.groupBy("k").count()

        if extra:

            @made.view(key="k")
            def above(totals: DataFrame) -> DataFrame:
                return totals

        return made

    def definitions(engine: Any) -> list[tuple[str, int, str]]:
        return [
            (info.name, version.version, json.loads(version.fingerprint)["application"])
            for info in engine.store.views()
            for version in info.versions
        ]

    with bench.running(app("one")) as engine:
        bench.send("events", events(10))
        settle(engine)
        assert definitions(engine) == [("totals", 1, "one")]
        # As a store has it that was made before applications were noted.
        fingerprint = json.loads(engine.store.views()[0].versions[0].fingerprint)
        fingerprint.pop("application")
        engine.store.note("totals", 1, json.dumps(fingerprint))
    with bench.running(app("one")) as engine:
        settle(engine)
        assert definitions(engine) == [("totals", 1, "one")]
        with (
            pytest.raises(ViewChanged, match="a view of that name, of the application one"),
            bench.running(app("two", extra=True)),
        ):
            pass
        assert definitions(engine) == [("totals", 1, "one")]
        assert engine.status["totals"].error is None


@pytest.mark.wide
def test_a_replay_builds_the_view_again(bench: Bench) -> None:
    from headwater.streams.engine.replays import Replays

    with bench.running(versioned(1, 1)) as engine:
        bench.send("events", events(50))
        settle(engine)
        before = engine.store.rows("scaled")
        Replays(bench.data).ask("scaled", "earliest")
        wait_for(lambda: engine.store.views()[0].serving == 2)
        settle(engine)
        assert engine.store.rows("scaled") == before
        bench.send("events", events(50, first=50))
        settle(engine)
        assert sum(row["total"] for row in engine.store.rows("scaled")) > sum(row["total"] for row in before)


def test_a_replay_that_was_killed_before_its_first_batch_begins_where_it_was_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.streams.engine.engine import Engine
    from headwater.streams.engine.replays import Replays

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    later = events(50, first=50)
    with bench.running(versioned(1, 1)) as engine:
        bench.send("events", events(50))
        time.sleep(0.1)
        asked = datetime.now(UTC).isoformat()
        time.sleep(0.01)  # records know milliseconds
        bench.send("events", later)
        settle(engine)
    Replays(bench.data).ask("scaled", asked)
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "_begin", killed)
        with pytest.raises(RuntimeError, match="killed"), bench.running(versioned(1, 1)):
            pass
    with bench.running(versioned(1, 1)) as engine:
        wait_for(lambda: engine.store.views()[0].serving == 2)
        settle(engine)
        assert sum(row["total"] for row in engine.store.rows("scaled")) == sum(each["v"] for each in later)


@pytest.mark.wide
def test_a_lost_checkpoint_builds_the_view_again(bench: Bench) -> None:
    import shutil

    with bench.running(versioned(1, 1)) as engine:
        for part in range(2):
            bench.send("events", events(50, first=50 * part))
            settle(engine)
        rows = engine.store.rows("scaled")
    shutil.rmtree(bench.data / "checkpoints")
    with bench.running(versioned(1, 1)) as engine:
        wait_for(lambda: engine.store.views()[0].serving == 2)
        settle(engine)
        assert engine.store.rows("scaled") == rows


@pytest.mark.wide
def test_a_view_that_is_changed_lets_the_others_of_its_query_go_on_in_a_new_one(bench: Bench) -> None:
    def app(version: int) -> hw.App:
        made = hw.App("bench")
        made.stream("events", SCHEMA)

        @made.view(key="k")
        def counts(events: DataFrame) -> DataFrame:
            return events.groupBy("k").count()

        @made.view(key="k", version=version)
        def sums(events: DataFrame) -> DataFrame:
            return events.groupBy("k").agg((F.sum("v") * version).alias("sum"))

        return made

    sent = events(100)
    with bench.running(app(1)) as engine:
        assert list(engine._queries) == ["counts.1+sums.1"]
        bench.send("events", sent)
        settle(engine)
    with bench.running(app(2)) as engine:
        assert list(engine._queries) == ["counts.2+sums.2"]
        wait_for(lambda: all(info.serving == 2 for info in engine.store.views()))
        settle(engine)
        assert {row["k"]: row["count"] for row in engine.store.rows("counts")} == Counter(
            e["k"] for e in sent
        )


def test_files_hold_every_row_once_for_each_version(bench: Bench, tmp_path: Path) -> None:
    def app_of(version: int) -> hw.App:
        app = hw.App("bench")
        app.stream("events", SCHEMA)

        @app.files(str(tmp_path / "warehouse"), partition_by="k", version=version)
        def archive(events: DataFrame) -> DataFrame:
            return events.withColumn("version", F.lit(version))

        return app

    # The second version counts its batches from nothing again, among the directories of the first.
    for part, version in enumerate((1, 1, 2)):
        with bench.running(app_of(version)) as engine:
            bench.send("events", events(100, first=100 * part))
            settle(engine)
    found = duckdb.sql(
        "select version, id, k from "
        f"read_parquet('{tmp_path}/warehouse/*/*/*.parquet', hive_partitioning=true)"
    ).fetchall()
    assert sorted(row[:2] for row in found) == [
        *((1, number) for number in range(200)),
        *((2, number) for number in range(300)),
    ]


def test_a_topic_of_the_application_is_read_further_down(bench: Bench) -> None:
    app = hw.App("bench")
    app.stream("events", SCHEMA, time="at", lateness="10 seconds")

    @app.topic("large", key="k")
    def large(events: DataFrame) -> DataFrame:
        return events.where("v >= 500")

    @app.view(key=["window"])
    def large_per_minute(large: DataFrame) -> DataFrame:
        return large.groupBy(hw.tumbling("at", "1 minute")).count()

    sent = events(300)
    with bench.running(app) as engine:
        bench.send("events", sent)
        wanted = sum(event["v"] >= 500 for event in sent)
        wait_for(lambda: sum(row["count"] for row in engine.store.rows("large_per_minute")) == wanted)


@pytest.mark.parametrize(
    ("column", "message"),
    [("missing", "wants the column 'missing', and events has id, k, v, at"), (None, "its key is 'key'")],
)
def test_a_wrong_column_is_refused_before_anything_starts(
    bench: Bench, column: str | None, message: str
) -> None:
    app = hw.App("bench")
    app.stream("events", SCHEMA)

    @app.view(key="key" if column is None else "k")
    def broken(events: DataFrame) -> DataFrame:
        return events.groupBy("k" if column is None else column).count()

    with pytest.raises(ApplicationInvalid, match=message), bench.running(app):
        pass
    from headwater.client.admin import Admin

    assert Admin(bench.connection).topics() == []


@pytest.mark.wide
def test_a_function_that_fails_while_it_runs_is_shown_and_tried_again(bench: Bench, tmp_path: Path) -> None:
    app = hw.App("bench")
    app.stream("events", SCHEMA)
    flag = tmp_path / "mended"

    @app.view(key="k")
    def fragile(events: DataFrame) -> DataFrame:
        @F.udf("string")  # type: ignore[untyped-decorator]
        def check(k: str) -> str:
            if not flag.exists():
                raise ValueError("the flag is not there")
            return k

        return events.select(check("k").alias("k")).groupBy("k").count()

    known = tmp_path / "known"

    @app.view(key="n")
    def above(fragile: DataFrame) -> DataFrame:
        if fragile.count() and not known.exists():
            raise KeyError("not known yet")
        return fragile.groupBy().agg(F.lit(1).alias("n"), F.sum("count").alias("events"))

    with bench.running(app) as engine:
        bench.send("events", events(10))
        wait_for(lambda: engine.status["fragile"].restarts > 0)
        wait_for(lambda: "the flag is not there" in (engine.status["fragile"].error or ""))
        flag.touch()
        settle(engine)
        assert sum(row["count"] for row in engine.store.rows("fragile")) == 10
        wait_for(lambda: "KeyError: 'not known yet'" in (engine.status["above"].error or ""))
        known.touch()
        wait_for(lambda: [row["events"] for row in engine.store.rows("above")] == [10])


@pytest.mark.parametrize("nulls", [pytest.param("", marks=pytest.mark.wide), " NOT NULL"])
def test_a_silent_input_does_not_hold_the_others_for_ever(bench: Bench, nulls: str) -> None:
    app = hw.App("bench")
    app.stream("questions", "id long, at timestamp", time="at", lateness="5 seconds")
    app.stream(
        "answers",
        f"id long{nulls}, text string, at timestamp",
        time="at",
        lateness="5 seconds",
        idle="2 seconds",
    )

    @app.topic("answered", key="id")
    def answered(questions: DataFrame, answers: DataFrame) -> DataFrame:
        found = hw.join(questions, answers, on="id", within="10 seconds", how="left")
        return found.select("id", "text")

    def moment(second: int) -> str:
        return (START + timedelta(seconds=second)).isoformat()

    with bench.running(app) as engine:
        bench.send("questions", [{"id": number, "at": moment(number)} for number in range(3)])
        bench.send("answers", [{"id": 0, "text": "yes", "at": moment(1)}])
        settle(engine)
        # Nobody answers any more, and questions go on: the ones without an answer come out.
        second = 100
        end = time.monotonic() + 90
        while len(bench.messages("answered")) < 3 and time.monotonic() < end:
            bench.send("questions", [{"id": 1000 + second, "at": moment(second)}])
            second += 10
            time.sleep(0.5)
        found = {value["id"]: value["text"] for value in bench.values("answered")}
        assert {number: found.get(number, "nothing") for number in range(3)} == {0: "yes", 1: None, 2: None}
        bench.send("answers", [{"id": 1000, "text": "awake", "at": moment(second)}])
        settle(engine)
        assert engine.status["answered"].dead == 0


@pytest.mark.parametrize("on_gap", ["fail", pytest.param("continue", marks=pytest.mark.wide)])
def test_records_that_were_removed_before_they_were_read(bench: Bench, on_gap: Any) -> None:
    from headwater.client.admin import Admin

    app = hw.App("bench")
    app.stream("events", SCHEMA, on_gap=on_gap)

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    with bench.running(app) as engine:
        bench.send("events", events(50))
        settle(engine)
    bench.send("events", events(50, first=50))
    from confluent_kafka import TopicPartition

    gone = Admin(bench.connection).client.delete_records([TopicPartition("events", 0, 70)])
    assert all(future.result() for future in gone.values())
    with bench.running(app) as engine:
        if on_gap == "fail":
            wait_for(lambda: engine.status["counts"].state == "failed")
            assert "20 records" in (engine.status["counts"].error or ""), engine.status["counts"].error
        else:
            settle(engine)
            wait_for(lambda: engine.status["counts"].missed == 20)
            assert sum(row["count"] for row in engine.store.rows("counts")) == 80


def test_a_topic_goes_on_only_as_it_was_begun(bench: Bench) -> None:
    def app(least: int, version: int = 1) -> hw.App:
        made = hw.App("bench")
        made.stream("events", SCHEMA)

        @made.topic("large", version=version)
        def large(events: DataFrame) -> DataFrame:
            return events.where(F.col("v") >= least)

        return made

    with bench.running(app(500)) as engine:
        bench.send("events", events(20))
        settle(engine)
    with (
        pytest.raises(ViewChanged, match="the topic large: its definition is not the one"),
        bench.running(app(600)),
    ):
        pass
    with bench.running(app(600, version=2)) as engine:
        settle(engine)
