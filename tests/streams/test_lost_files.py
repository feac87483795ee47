"""The newest files of a checkpoint, which a power cut may take: Spark does not sync them."""

import os
from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.client.admin import Admin
from headwater.client.groups import Groups
from headwater.client.marked import MarkedWriter
from headwater.client.transactions import TransactionalWriter
from headwater.streams.engine.replays import Replays
from tests.streams.conftest import Bench, settle, wait_for


@pytest.mark.parametrize("torn", [pytest.param(False, marks=pytest.mark.wide), True], ids=["missing", "torn"])
def test_a_view_is_built_again_when_the_newest_batch_is_gone_from_the_checkpoint(
    bench: Bench, torn: bool
) -> None:
    app = hw.App("bench")
    app.stream("events", "k string")

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    sent = [{"k": f"k{number % 3}"} for number in range(30)]
    with bench.running(app) as engine:
        for part in range(2):
            bench.send("events", sent[10 * part : 10 * part + 10])
            settle(engine)
        newest = engine.store.progress("counts").batch
    kept = bench.data / "checkpoints" / "bench" / "counts.1"
    (kept / "commits" / str(newest)).unlink()
    (kept / "offsets" / str(newest)).unlink()
    if torn:
        (kept / "offsets" / str(newest)).touch()
    # Otherwise the next batch had the number of the lost one, more records, and would be taken for done.
    bench.send("events", sent[20:])
    with bench.running(app) as engine:
        wait_for(lambda: engine.store.views()[0].serving == 2)
        settle(engine)
        found = {row["k"]: row["count"] for row in engine.store.rows("counts")}
    assert found == Counter(event["k"] for event in sent)


def test_views_are_built_again_when_the_store_is_gone(bench: Bench) -> None:
    app = hw.App("bench")
    app.stream("events", "k string")

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    @app.view(key="k")
    def seen(events: DataFrame) -> DataFrame:
        return events.select("k").distinct()

    @app.view(key="n")
    def above(counts: DataFrame) -> DataFrame:
        return counts.agg(F.count("*").alias("n"))

    with bench.running(app) as engine:
        bench.send("events", [{"k": "a"}, {"k": "b"}])
        settle(engine)
    for path in bench.data.glob("views.db*"):
        path.unlink()
    # The changes of the new store have the numbers of others that are in the changelog.
    admin = Admin(bench.connection)
    admin.delete_topic("bench.counts")
    Groups(admin).delete("headwater.bench.counts.changelog")
    with bench.running(app) as engine:
        bench.send("events", [{"k": "b"}])
        settle(engine)
        assert {row["k"]: row["count"] for row in engine.store.rows("counts")} == {"a": 1, "b": 2}
        assert [row["k"] for row in engine.store.rows("seen")] == ["a", "b"]
        wait_for(lambda: engine.store.rows("above") == [{"n": 2}])
    assert {row["k"]: row["count"] for row in bench.folded("bench.counts").values()} == {"a": 1, "b": 2}
    with bench.running(app) as engine:
        settle(engine)
        assert {info.name: info.serving for info in engine.store.views()} == {
            "above": 1,
            "counts": 2,
            "seen": 2,
        }


def test_a_view_is_built_again_beside_a_checkpoint_of_a_later_store(bench: Bench) -> None:
    def app(both: bool) -> hw.App:
        made = hw.App("bench")
        made.stream("events", "k string")

        @made.view(key="k", changelog=False)
        def counts(events: DataFrame) -> DataFrame:
            return events.groupBy("k").count()

        if both:

            @made.view(key="k", changelog=False)
            def seen(events: DataFrame) -> DataFrame:
                return events.select("k").distinct()

        return made

    store = bench.data / "views.db"
    with bench.running(app(both=True)) as engine:
        bench.send("events", [{"k": "a"}, {"k": "b"}])
        settle(engine)
    earlier = store.read_bytes()
    with bench.running(app(both=True)) as engine:
        Replays(bench.data).ask("counts", "earliest")
        wait_for(lambda: engine.store.views()[0].serving == 2)
    for path in bench.data.glob("views.db*"):
        path.unlink()
    store.write_bytes(earlier)
    # The build that would come next has a checkpoint; `seen` is gone, so that `counts` needs a new one.
    with bench.running(app(both=False)) as engine:
        bench.send("events", [{"k": "b"}])
        wait_for(lambda: engine.store.views()[0].serving in (2, 3))
        settle(engine)
        assert {row["k"]: row["count"] for row in engine.store.rows("counts")} == {"a": 1, "b": 2}


def test_a_topic_is_written_when_the_record_of_its_batch_is_on_the_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = hw.App("bench")
    app.stream("events", "k string")

    @app.topic("copies", key="k")
    def copies(events: DataFrame) -> DataFrame:
        return events

    synced: list[str] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    written: list[tuple[int, bool]] = []
    write = MarkedWriter.write
    offsets = bench.data / "checkpoints" / "bench" / "copies.1" / "offsets"

    def watched(self: MarkedWriter, batch: int, fill: Callable[[TransactionalWriter], None]) -> bool:
        if ".copies." in self.name:
            written.append((batch, {str(offsets / str(batch)), str(offsets)} <= set(synced)))
        return write(self, batch, fill)

    monkeypatch.setattr(MarkedWriter, "write", watched)
    with bench.running(app) as engine:
        bench.send("events", [{"k": "a"}])
        settle(engine)
    assert written and all(was_synced for _, was_synced in written)
