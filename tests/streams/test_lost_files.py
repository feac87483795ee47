"""The newest files of a checkpoint, which a power cut may take: Spark does not sync them."""

from collections import Counter

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from tests.streams.conftest import Bench, settle, wait_for


@pytest.mark.parametrize("torn", [False, True], ids=["missing", "torn"])
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
