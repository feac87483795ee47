"""What tells one definition from another."""

import json
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.streams.engine.fingerprint import fingerprint, normalised, same_definition, version_of
from headwater.streams.inputs import events
from headwater.streams.settings import load_stream_settings


@pytest.fixture
def marked(spark: SparkSession) -> Callable[..., str]:
    """The fingerprint of a function of clicks, on a stream that is opened anew each time."""

    def mark(function: Callable[[DataFrame], DataFrame], lateness: str = "1 minute", at: str = "k:1") -> str:
        stream = hw.App("shop").stream(
            "clicks", "page string, n long, at timestamp", time="at", lateness=lateness
        )
        settings = load_stream_settings(bootstrap=at, environ={})
        return fingerprint(function(events(spark, stream, settings)), 1)

    return mark


def counts(clicks: DataFrame) -> DataFrame:
    return clicks.where("n > 1").groupBy(hw.tumbling("at", "1 minute"), "page").count()


def test_the_same_function_has_the_same_one_wherever_it_reads(marked: Callable[..., str]) -> None:
    assert marked(counts) == marked(counts) == marked(counts, at="elsewhere:9092")


def test_another_function_has_another_one(marked: Callable[..., str]) -> None:
    others: list[Callable[[DataFrame], DataFrame]] = [
        lambda clicks: clicks.where("n > 2").groupBy(hw.tumbling("at", "1 minute"), "page").count(),
        lambda clicks: clicks.where("n > 1").groupBy(hw.tumbling("at", "2 minutes"), "page").count(),
        lambda clicks: clicks.where("n > 1").groupBy(hw.tumbling("at", "1 minute"), "n").count(),
        lambda clicks: counts(clicks).withColumn("twice", F.col("count") * 2),
    ]
    found = {marked(function) for function in [counts, *others]} | {marked(counts, lateness="2 minutes")}
    assert len(found) == 6
    for mark in found - {marked(counts)}:
        assert not same_definition(mark, marked(counts))


def test_the_version_is_in_it(marked: Callable[..., str]) -> None:
    assert version_of(marked(counts)) == 1
    other = json.dumps(json.loads(marked(counts)) | {"version": 2})
    assert not same_definition(other, marked(counts))


def test_what_spark_invents_is_left_out() -> None:
    one = "Aggregate [page#12], [count(1) AS n#99L]\n+- Filter (n#3L > 1), plan_id=4\n   +- Udf@5f3a2b1c"
    other = "Aggregate [page#7], [count(1) AS n#8L]\n+- Filter (n#2L > 1), plan_id=9\n   +- Udf@77aa88bb"
    assert normalised(one) == normalised(other)
    assert normalised(one) != normalised(one.replace("> 1", "> 2"))


def test_how_a_stream_is_read_is_left_out_and_what_joins_it_is_not() -> None:
    plan = (
        "Join Inner\n:- CollectMetrics headwater.dead.clicks, [count], 5\n:  +- Project [value#1]\n"
        ":     +- StreamingRelationV2 ours\n+- CollectMetrics headwater.dead.orders, [count], 6\n"
        "   +- StreamingRelationV2 kafka"
    )
    assert normalised(plan) == "Join Inner\n:- stream clicks\n+- stream orders"
