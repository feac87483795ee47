"""The workloads in Headwater: the application that ``headwater run`` gets. The environment says which."""

import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORKLOAD = os.environ["BENCH_WORKLOAD"]
OUTPUT = os.environ["BENCH_OUTPUT"]  # view, topic or realtime
TARGET = os.environ["BENCH_TARGET"]

app = hw.App("bench")


def counts(events: "DataFrame") -> "DataFrame":
    """How often each word occurs."""
    words = events.select(F.explode(F.split("text", " ")).alias("word"))
    return words.groupBy("word").agg(F.count("*").alias("n"))


def statistics(events: "DataFrame") -> "DataFrame":
    """Of each symbol and ten seconds."""
    return events.groupBy(hw.tumbling("at", "10 seconds"), "symbol").agg(
        F.min("price").alias("low"),
        F.max("price").alias("high"),
        F.avg("price").alias("average"),
        F.count("*").alias("n"),
    )


def passed(events: "DataFrame") -> "DataFrame":
    """Each tick by itself."""
    return events.select("id", "symbol", "price")


if WORKLOAD == "words":
    app.stream(os.environ["BENCH_SOURCE"], "id long, text string", name="events")
    key, function = ["word"], counts
else:
    columns = "id long, symbol string, price double, size long, at timestamp"
    app.stream(os.environ["BENCH_SOURCE"], columns, name="events", time="at", lateness="5 seconds")
    key, function = (["symbol"], passed) if WORKLOAD == "rows" else (["window", "symbol"], statistics)

if OUTPUT == "view":
    app.view(key=key, name="result")(function)
else:
    app.topic(TARGET, key=key, name="result", partitions=2, realtime=OUTPUT == "realtime")(function)
