"""What Spark's own files say of its batches."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.streams.engine.checkpoint import Checkpoint, Offsets, merge, parse_batch


def test_a_batch_of_two_sources_and_its_watermark() -> None:
    record = parse_batch(
        4,
        'v1\n{"batchWatermarkMs":1767607200000,"batchTimestampMs":1}\n'
        '{"clicks":{"0":7,"1":9}}\n{"orders":{"0":3}}\n',
    )
    assert record.id == 4
    assert record.offsets == {"clicks": {0: 7, 1: 9}, "orders": {0: 3}}
    assert record.watermark == datetime(2026, 1, 5, 10, tzinfo=UTC)


def test_a_batch_without_a_watermark_and_a_source_without_offsets() -> None:
    record = parse_batch(0, 'v1\n{"batchWatermarkMs":0}\n-\n{"clicks":{"0":1}}')
    assert (record.offsets, record.watermark) == ({"clicks": {0: 1}}, None)


def test_of_a_topic_that_is_read_twice_it_counts_what_both_have() -> None:
    offsets: Offsets = {"clicks": {0: 5}}
    merge(offsets, {"clicks": {"0": 3, "1": 8}, "orders": {"0": 1}})
    merge(offsets, {"clicks": {"1": 9}})
    assert offsets == {"clicks": {0: 3, 1: 8}, "orders": {0: 1}}


@pytest.mark.parametrize("prefix", ["", "file:"])
def test_the_files_of_a_query(spark: SparkSession, tmp_path: Path, prefix: str) -> None:
    """Those that Spark itself has written."""
    place = tmp_path / "words.1+lines.2"
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 5)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(place))
        .trigger(processingTime="10 milliseconds")
        .start()
    )
    try:
        while (query.lastProgress or {"batchId": 0})["batchId"] < 3:
            assert query.isActive, query.exception()
    finally:
        query.stop()
    checkpoint = Checkpoint(f"{prefix}{place}/", spark)
    assert checkpoint.name == "words.1+lines.2"
    assert checkpoint.identity() == query.id
    last = checkpoint.last_finished()
    assert last is not None and last >= 3
    (place / "commits" / f"{last + 5}.tmp").touch()  # begun and not finished
    assert checkpoint.last_finished() == last
    # The offsets of this source are not like ours; beside the metadata that Spark writes they are.
    head = (place / "offsets" / str(last)).read_text().splitlines()[:2]
    (place / "offsets" / str(last + 1)).write_text("\n".join([*head, '{"clicks":{"0":7}}']))
    record = checkpoint.batch(last + 1)
    assert record is not None and (record.id, record.offsets) == (last + 1, {"clicks": {0: 7}})
    assert checkpoint.batch(last + 100) is None
    assert {"offsets", "commits", "metadata"} <= set(checkpoint.children())
    checkpoint.remove()
    assert not place.exists()
    assert checkpoint.children() == [] and checkpoint.last_finished() is None


def test_offsets_are_those_that_our_source_writes() -> None:
    text = "v1\n" + json.dumps({"batchWatermarkMs": 1}) + "\n" + json.dumps({"a.b-c": {"12": 2**40}})
    assert parse_batch(1, text).offsets == {"a.b-c": {12: 2**40}}
