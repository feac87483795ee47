"""Rows of batches: the same as ``toArrow`` gives, however Spark is told to compute them."""

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.streams.engine.checkpoint import BatchRecord
from headwater.streams.sinks.collecting import LIVE, SMALL, Collector

MODE = "spark.sql.codegen.factoryMode"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """One whose settings are its own, as a query has it."""
    yield spark.newSession()


def record(number: int, offset: int) -> BatchRecord:
    return BatchRecord(number, {"events": {0: offset}}, None)


def test_rows_are_those_of_to_arrow_in_small_and_large_batches(session: SparkSession) -> None:
    frame = session.range(1000).select(
        "id",
        F.timestamp_seconds(F.col("id")).alias("at"),
        F.struct(F.col("id").cast("string").alias("text"), F.array("id").alias("ids")).alias("nested"),
        F.col("id").cast("decimal(20,3)").alias("price"),
        F.when(F.col("id") % 3 == 0, F.col("id")).alias("sometimes"),
    )
    grouped = frame.groupBy((F.col("id") % 7).alias("k")).agg(F.max("nested").alias("last"))
    for wanted in (frame, grouped):
        collect = Collector()
        large = collect(wanted, record(0, SMALL))
        for number in range(LIVE):
            small = collect(wanted, record(1 + number, SMALL + number))
        assert session.conf.get(MODE) == "NO_CODEGEN"
        session.conf.unset(MODE)
        assert small.schema == large.schema == wanted.toArrow().schema
        shown = [sorted(map(str, table.to_pylist())) for table in (small, large, wanted.toArrow())]
        assert shown[0] == shown[1] == shown[2]


def test_a_batch_without_rows_has_the_columns_all_the_same(session: SparkSession) -> None:
    frame = session.range(5).where("id > 100").select("id", F.lit("a").alias("text"))
    rows = Collector()(frame, None)
    assert (rows.num_rows, rows.schema) == (0, frame.toArrow().schema)


def test_a_live_query_is_interpreted_and_a_backlog_compiled(session: SparkSession) -> None:
    frame, collect, offset, modes = session.range(3), Collector(), 0, []
    for number, records in enumerate([SMALL, *[1] * (LIVE - 1), SMALL, *[1] * LIVE, 0, SMALL, 1]):
        offset += records
        collect(frame, record(number, offset))
        modes.append(session.conf.get(MODE, None) == "NO_CODEGEN")
    assert modes == [*[False] * LIVE, *[False] * LIVE, True, True, False, False]


def test_what_the_user_has_set_stays(session: SparkSession) -> None:
    session.conf.set(MODE, "CODEGEN_ONLY")
    Collector()(session.range(3), record(0, 10))
    assert session.conf.get(MODE) == "CODEGEN_ONLY"


def test_a_failure_says_what_it_was(session: SparkSession) -> None:
    frame = session.range(3).select(F.raise_error(F.lit("no such price")).alias("x"))
    with pytest.raises(PySparkException, match="no such price"):
        Collector()(frame, None)
