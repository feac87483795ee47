"""Views over views whose inputs, or they themselves, are built anew."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import headwater as hw
from headwater.errors import StoreFailed, Unreachable, ViewChanged
from headwater.streams.declarations import View
from headwater.streams.engine.builds import Build
from headwater.streams.engine.engine import Engine
from headwater.streams.engine.fingerprint import fingerprint
from headwater.streams.engine.recompute import Recompute
from headwater.streams.engine.replays import Replays
from headwater.streams.planning import Recomputed
from headwater.streams.sinks.views import view_schema
from headwater.views.model import Batch, Snapshot, ViewSchema
from headwater.views.sql import SqlStore
from headwater.views.store import ViewStore, open_store
from tests.streams.conftest import Bench, settle, wait_for

COLUMNS = {1: "k string, n long", 2: "k string, n long, ids long"}


def total_of(version: int) -> Callable[[DataFrame], DataFrame]:
    def total(counts: DataFrame) -> DataFrame:
        return counts.groupBy().agg(F.lit(1).alias("one"), (F.sum("n") * version).alias("total"))

    return total


class Stage:
    """A view `counts` that is written by hand, and `total` over it."""

    def __init__(self, spark: SparkSession, store: ViewStore) -> None:
        self.spark, self.store = spark, store
        self.builds: dict[str, Build] = {}
        self.recompute: Recompute
        self.total: Recomputed

    def counts(self, build: int, version: int, columns: int = 1) -> None:
        """A build of `counts` to have from now on."""
        self.schema = StructType.fromDDL(COLUMNS[columns])
        text = json.dumps({"version": version, "spark": "", "plan": "", "schema": ""})
        self._have(build, "counts", self.schema, "k", text)

    def over(self, build: int, version: int) -> None:
        """The same of `total`."""
        function = total_of(version)
        frame = function(self.spark.createDataFrame([], self.schema))
        view = View("total", function, ("counts",), ("one",), version)
        self.total = Recomputed(view, ("counts",), frame.schema, fingerprint(frame, version))
        self._have(build, "total", frame.schema, "one", self.total.fingerprint)
        schemas = {"counts": self.schema}
        self.recompute = Recompute(
            self.spark, self.store, [self.total], schemas, self.builds, lambda name: None
        )

    def _have(self, build: int, name: str, schema: StructType, key: str, text: str) -> None:
        if name not in self.builds or self.builds[name].number != build:
            self.store.define(view_schema(name, build, schema, (key,)), text)
        self.builds[name] = Build(build, text, "same")

    def write(self, build: int, batch: int, n: int) -> None:
        rows = {"k": ["a"], "n": [n], "ids": [n]}
        held = next(each for each in self.store.views()[0].versions if each.version == build)
        self.store.replace(
            "counts", build, Batch(batch, pa.table({name: rows[name] for name in held.schema.types}))
        )

    def bring_up(self) -> bool:
        return self.recompute.bring_up(self.total)

    def totals(self, build: int | None = None) -> list[int]:
        return [row["total"] for row in self.store.rows("total", version=build)]


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Iterator[Stage]:
    """Both views in their first version, and computed."""
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        stage = Stage(spark, store)
        stage.counts(1, version=1)
        stage.over(1, version=1)
        assert not stage.bring_up()  # there is nothing to compute it of
        stage.write(1, batch=0, n=7)
        assert stage.bring_up() and stage.totals() == [7]
        assert not stage.bring_up()
        yield stage


def test_a_new_version_waits_for_those_of_its_inputs(stage: Stage) -> None:
    stage.counts(2, version=2)
    stage.over(2, version=2)
    stage.write(1, batch=1, n=8)
    stage.write(2, batch=0, n=3)
    assert not stage.bring_up()
    stage.store.activate("counts", 2)
    assert stage.bring_up() and (stage.totals(), stage.totals(2)) == ([7], [6])


def test_a_new_version_over_inputs_that_are_replayed_waits_for_nothing(stage: Stage) -> None:
    stage.counts(2, version=1)
    stage.over(2, version=2)
    assert stage.bring_up() and (stage.totals(), stage.totals(2)) == ([7], [14])


@pytest.mark.parametrize("version", [1, 2], ids=["replayed", "new version"])
def test_a_view_is_of_what_its_inputs_show_while_they_are_built_anew(stage: Stage, version: int) -> None:
    stage.counts(2, version)
    stage.write(2, batch=0, n=1)
    stage.write(1, batch=1, n=8)
    assert stage.bring_up() and stage.totals() == [8]
    stage.write(2, batch=1, n=9)
    assert not stage.bring_up()
    stage.store.activate("counts", 2)
    assert stage.bring_up() and stage.totals() == [9]


def test_a_view_waits_for_columns_that_it_is_for(stage: Stage) -> None:
    # Of another Spark plans are not compared, so that the view is the same though its input has more columns.
    known = json.loads(stage.total.fingerprint)
    stage.store.note("total", 1, json.dumps({**known, "spark": "before"}))
    stage.counts(2, version=2, columns=2)
    stage.over(1, version=1)
    stage.write(1, batch=1, n=8)
    stage.write(2, batch=0, n=3)
    assert not stage.bring_up() and stage.totals() == [7]
    stage.store.activate("counts", 2)
    assert stage.bring_up() and stage.totals() == [3]


def test_a_replay_computes_what_has_been_computed_of_the_same(stage: Stage) -> None:
    stage.over(2, version=1)
    assert stage.bring_up() and stage.totals(2) == [7]


def test_an_input_may_take_over_while_it_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.counts(2, version=1)
    stage.write(1, batch=1, n=8)
    stage.write(2, batch=0, n=3)
    snapshot = SqlStore.snapshot

    def after(store: SqlStore, view: str) -> Snapshot:
        store.activate("counts", 2)
        store.drop("counts", 1)
        return snapshot(store, view)

    monkeypatch.setattr(SqlStore, "snapshot", after)
    assert stage.bring_up() and stage.totals() == [3]
    assert stage.store.progress("total").offsets == {"views": {"counts": [2, 0]}}


EVENTS = 2400


def layered(version: int, factor: int = 1) -> hw.App:
    """The sum of all counts; in its second version also of something that the first knows nothing of."""
    app = hw.App("bench")
    app.stream("events", "id long, k string", max_rows=None if version == 1 else 200)

    @app.view(key="k", version=version)
    def counts(events: DataFrame) -> DataFrame:
        more = [F.sum("id").alias("ids")] if version == 2 else []
        return events.groupBy("k").agg((F.count("*") * factor).alias("n"), *more)

    @app.view(key="one", version=version)
    def above(counts: DataFrame) -> DataFrame:
        more = [F.sum("ids").alias("ids")] if version == 2 else []
        return counts.groupBy().agg(F.lit(1).alias("one"), F.sum("n").alias("total"), *more)

    @app.view(key="one", version=version)
    def topmost(above: DataFrame) -> DataFrame:
        return above

    return app


def shown(engine: Engine) -> dict[str, Any]:
    rows = engine.store.rows("topmost")
    return rows[0] if rows else {}


def builds(engine: Engine) -> dict[str, list[int]]:
    return {info.name: [each.version for each in info.versions] for info in engine.store.views()}


def test_new_versions_in_three_layers_take_over_with_the_rows_of_the_new_ones(bench: Bench) -> None:
    with bench.running(layered(1)) as engine:
        bench.send("events", [{"id": 1, "k": "ab"[number % 2]} for number in range(EVENTS)])
        settle(engine)
        wait_for(lambda: shown(engine).get("total") == EVENTS)
    with bench.running(layered(2)) as engine:
        seen: list[dict[str, Any]] = []

        def is_whole() -> bool:
            seen.append(shown(engine))
            return seen[-1].get("ids") == EVENTS

        wait_for(is_whole, lambda: str(seen[-1]))
        assert seen[-1] == {"one": 1, "total": EVENTS, "ids": EVENTS}
        # What took over was of nearly all events, and never of rows of the old version.
        for row in seen:
            assert row == {"one": 1, "total": EVENTS} or row["ids"] >= EVENTS - 1000, row
        wait_for(lambda: builds(engine) == {"counts": [2], "above": [2], "topmost": [2]})


def test_a_view_over_views_is_built_anew_when_somebody_asks(bench: Bench) -> None:
    replays = Replays(bench.data)

    def count_one_more(engine: Engine, total: int) -> None:
        bench.send("events", [{"id": 1, "k": "a"}])
        wait_for(lambda: shown(engine).get("total") == total, lambda: str(shown(engine)))

    with bench.running(layered(1)) as engine:
        count_one_more(engine, 1)
        for name in ("above", "counts"):
            replays.ask(name, "earliest")
        wait_for(lambda: builds(engine) == {"counts": [2], "above": [2], "topmost": [1]})
        assert replays.waiting() == {} and engine.status["above"].build == 2
        count_one_more(engine, 2)
    replays.ask("above", "earliest")
    # A start that is refused forgets nobody's request.
    with pytest.raises(ViewChanged, match="the view counts"), bench.running(layered(1, factor=2)):
        pass
    assert replays.waiting() == {"above": "earliest"}
    with bench.running(layered(1)) as engine:
        wait_for(lambda: builds(engine) == {"counts": [2], "above": [3], "topmost": [1]})
        assert replays.waiting() == {}
        count_one_more(engine, 3)


def test_replays_begin_though_the_store_or_the_broker_is_away_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hw.App("bench", share=False)
    app.stream("events", "id long, k string")

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    @app.view(key="k")
    def sums(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(F.sum("id").alias("sum"))

    failed: list[str] = []
    define, begin = SqlStore.define, Engine._begin

    def defined(store: SqlStore, schema: ViewSchema, text: str) -> None:
        if failed == ["begin"]:
            failed.append("define")
            raise StoreFailed("define", schema.name, "it is Sunday", "Wait.")
        define(store, schema, text)

    def begun(engine: Engine, members: tuple[Any, ...]) -> None:
        if not failed:
            failed.append("begin")
            raise Unreachable("begin", members[0].name, "it is Sunday")
        begin(engine, members)

    with bench.running(app) as engine:
        bench.send("events", [{"id": 1, "k": "a"}])
        settle(engine)
        monkeypatch.setattr(SqlStore, "define", defined)
        monkeypatch.setattr(Engine, "_begin", begun)
        for name in ("counts", "sums"):
            Replays(bench.data).ask(name, "earliest")
        wait_for(lambda: builds(engine) == {"counts": [2], "sums": [2]}, lambda: str(builds(engine)))
        assert failed == ["begin", "define"]
        # The dead values of the stream were for one of the queries to count that have ended.
        bench.send("events", [b"not json"])
        wait_for(lambda: engine.status["counts"].dead == 1 and bench.messages("events.dead"))


def test_builds_that_a_kill_has_left_behind_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[int] = []
    drop = SqlStore.drop

    def fails_at_first(store: SqlStore, view: str, version: int) -> None:
        dropped.append(version)
        if len(dropped) == 1:
            raise StoreFailed("drop", view, "it is Sunday", "Wait.")
        drop(store, view, version)

    monkeypatch.setattr(SqlStore, "drop", fails_at_first)
    with bench.running(layered(1)) as engine:
        bench.send("events", [{"id": 1, "k": "a"}])
        wait_for(lambda: shown(engine).get("total") == 1)
        Replays(bench.data).ask("above", "earliest")
        wait_for(lambda: builds(engine)["above"] == [2])
        assert dropped == [1, 1] and shown(engine) == {"one": 1, "total": 1}


def test_a_batch_of_a_build_that_goes_meanwhile_stops_no_other_view(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hw.App("bench")
    app.stream("events", "id long, k string")

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    @app.view(key="k")
    def sums(events: DataFrame) -> DataFrame:
        return events.groupBy("k").agg(F.sum("id").alias("sum"))

    holding: list[bool] = []
    waited: list[int] = []
    apply = SqlStore.apply

    def applied(store: SqlStore, view: str, build: int, batch: Batch) -> bool:
        if holding and (view, build) == ("counts", 1):
            wait_for(lambda: [each.version for each in store.views()[0].versions] == [2])
            waited.append(batch.id)
        return apply(store, view, build, batch)

    monkeypatch.setattr(SqlStore, "apply", applied)
    with bench.running(app) as engine:
        bench.send("events", [{"id": 1, "k": "a"}])
        settle(engine)
        holding.append(True)
        Replays(bench.data).ask("counts", "earliest")
        bench.send("events", [{"id": 2, "k": "a"}])
        wait_for(lambda: builds(engine) == {"counts": [2], "sums": [1]})
        wait_for(
            lambda: engine.store.rows("sums") == [{"k": "a", "sum": 3}], lambda: str(engine.status["sums"])
        )
        assert waited and engine.status["sums"].failures == []
