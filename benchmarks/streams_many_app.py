"""Ten views over four streams: what a small shop would have. For ``python -m benchmarks.streams_many``."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = hw.App("many")

app.stream("clicks", "id long, user string, page string, at timestamp", time="at", lateness="5 seconds")
app.stream(
    "orders",
    "id long, user string, item string, amount double, at timestamp",
    time="at",
    lateness="5 seconds",
)
app.stream("sensors", "id long, device string, value double, at timestamp", time="at", lateness="5 seconds")
app.stream("searches", "id long, user string, words string, at timestamp", time="at", lateness="5 seconds")


@app.view(key="page")
def clicks_by_page(clicks: "DataFrame") -> "DataFrame":
    return clicks.groupBy("page").agg(F.count("*").alias("n"))


@app.view(key=["window", "page"])
def clicks_by_minute(clicks: "DataFrame") -> "DataFrame":
    return clicks.groupBy(hw.tumbling("at", "1 minute"), "page").agg(F.count("*").alias("n"))


@app.view(key="user")
def last_page(clicks: "DataFrame") -> "DataFrame":
    return clicks.groupBy("user").agg(F.max_by("page", "at").alias("page"), F.max("at").alias("at"))


@app.view(key="item")
def revenue_by_item(orders: "DataFrame") -> "DataFrame":
    return orders.groupBy("item").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))


@app.view(key="window")
def revenue_by_minute(orders: "DataFrame") -> "DataFrame":
    return orders.groupBy(hw.tumbling("at", "1 minute")).agg(
        F.sum("amount").alias("revenue"), F.count("*").alias("n")
    )


@app.view(key=["window", "device"])
def sensor_statistics(sensors: "DataFrame") -> "DataFrame":
    return sensors.groupBy(hw.tumbling("at", "10 seconds"), "device").agg(
        F.min("value").alias("low"),
        F.max("value").alias("high"),
        F.avg("value").alias("average"),
        F.count("*").alias("n"),
    )


@app.view(key="device")
def sensor_last(sensors: "DataFrame") -> "DataFrame":
    return sensors.groupBy("device").agg(F.max_by("value", "at").alias("value"), F.count("*").alias("n"))


@app.view(key=["window", "device"])
def sensor_trend(sensors: "DataFrame") -> "DataFrame":
    return sensors.groupBy(hw.hopping("at", "1 minute", "20 seconds"), "device").agg(
        F.avg("value").alias("average"), F.count("*").alias("n")
    )


@app.view(key="word")
def searched_words(searches: "DataFrame") -> "DataFrame":
    words = searches.select(F.explode(F.split("words", " ")).alias("word"))
    return words.groupBy("word").agg(F.count("*").alias("n"))


@app.view(key="window")
def searches_by_minute(searches: "DataFrame") -> "DataFrame":
    return searches.groupBy(hw.tumbling("at", "1 minute")).agg(F.count("*").alias("n"))
