"""Sensors for a dashboard: figures of every minute, percentiles and distinct counts by sketch, right times.

A sketch stands for many values in a few kilobytes: KLL for percentiles, HyperLogLog for how many different
ones there were. Sketches can be merged where percentiles and distinct counts cannot, so the hour is computed
from the sketches of its minutes and no reading is looked at twice.

The devices' clocks are wrong. Each says when it measured and when it sent, both by its own clock; the log
knows when it received: that is enough to say when it was by ours.

Try it::

    headwater up examples/sensors.py --data data
    echo '{"site":"roof","sensor":"r1","celsius":21.5,"at":"2026-01-05T10:00:03Z","sent":"2026-01-05T10:00:04Z"}' |
        headwater produce readings
    headwater views hours --data data
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("sensors")

readings = app.stream(
    "readings",
    "site string, sensor string, celsius double, at timestamp, sent timestamp",
    metadata=True,  # for LOG_TIME, when the log received it
)


@app.view(key=["window", "site"])
def minutes(readings: DataFrame) -> DataFrame:
    """The figures of a site in each minute, and the sketches that the hours are made of."""
    happened = hw.corrected_time("at", "sent", hw.LOG_TIME)
    timed = hw.event_time(readings, happened, lateness="1 minute")
    return timed.groupBy(hw.tumbling("event_time", "1 minute"), "site").agg(
        F.count("*").alias("readings"),
        F.min("celsius").alias("low"),
        F.max("celsius").alias("high"),
        F.avg("celsius").alias("average"),
        F.percentile_approx("celsius", 0.5).alias("median"),
        F.approx_count_distinct("sensor").alias("sensors"),
        F.kll_sketch_agg_double("celsius").alias("spread"),
        F.hll_sketch_agg("sensor").alias("seen"),
    )


@app.view(key=["hour", "site"])
def hours(minutes: DataFrame) -> DataFrame:
    """The figures of a site in each hour, from the sketches of its minutes."""
    spread = F.kll_merge_agg_double("spread")
    return minutes.groupBy(F.date_trunc("hour", "window.start").alias("hour"), "site").agg(
        F.sum("readings").alias("readings"),
        F.kll_sketch_get_quantile_double(spread, F.lit(0.5)).alias("median"),
        F.kll_sketch_get_quantile_double(spread, F.lit(0.95)).alias("p95"),
        F.hll_sketch_estimate(F.hll_union_agg("seen")).alias("sensors"),
    )
