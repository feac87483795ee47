"""The file system of checkpoints: what Hadoop and RocksDB expect of it, and that no state grows for ever."""

from pathlib import Path

from py4j.java_gateway import is_instance_of
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.streams.engine.filesystem import CLASS
from tests.streams.conftest import Bench, settle, wait_for


def test_the_local_file_system_is_ours_and_what_hadoop_takes_for_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    jvm, settings = spark._jvm, spark._jsc.hadoopConfiguration()
    assert jvm is not None
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(settings)
    assert local.getClass().getName() == CLASS
    path = jvm.org.apache.hadoop.fs.Path
    local.create(path(f"{tmp_path}/some/file")).close()
    local.copyFromLocalFile(path(f"{tmp_path}/some/file"), path(f"{tmp_path}/copy"))
    local.rename(path(f"{tmp_path}/copy"), path(f"{tmp_path}/some/other"))
    names = sorted(each.name for each in (tmp_path / "some").iterdir())
    assert names == ["file", "other"], "and no checksums beside them"
    assert is_instance_of(spark.sparkContext._gateway, local, "org.apache.hadoop.fs.LocalFileSystem")


def test_a_snapshot_of_state_is_kept_and_gone_on_from(bench: Bench) -> None:
    """Else every change since the first batch is kept, and read at each start."""
    app = hw.App("bench")
    app.stream("events", "k string")

    @app.view(key="k")
    def counts(events: DataFrame) -> DataFrame:
        return events.groupBy("k").count()

    batches = 14  # a snapshot is due after ten
    with bench.running(app) as engine:
        for _ in range(batches):
            bench.send("events", [{"k": "a"}, {"k": "b"}])
            settle(engine)
        state = Path(bench.settings.checkpoints.removeprefix("file:")) / "bench" / "counts.1" / "state" / "0"
        parts = sorted(each for each in state.iterdir() if each.name.isdigit())
        assert len(parts) == 2
        wait_for(lambda: all(list(part.glob("*.zip")) for part in parts), lambda: f"{list(state.rglob('*'))}")
    for part in parts:
        newest = max(int(each.stem) for each in part.glob("*.zip"))
        for changes in part.glob("*.changelog"):
            if int(changes.stem) <= newest:
                changes.unlink()
    with bench.running(app) as engine:
        bench.send("events", [{"k": "a"}])
        settle(engine)
        rows = {row["k"]: row["count"] for row in engine.store.rows("counts")}
    assert rows == {"a": batches + 1, "b": batches}
