"""Prices at a stock exchange: figures of every ten seconds, and the ten top gainers of the day.

The ranking needs two phases. A stream is aggregated by symbol and day, which Spark keeps up to date with every
trade; what is left is a small table, and ranking it is an ordinary query that runs again when it has changed.

Try it::

    headwater up examples/stock_statistics.py --data data
    echo '{"symbol": "ACME", "price": 12.5, "at": "2026-01-05T10:00:03Z"}' | headwater produce trades
    headwater views top_gainers --data data
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("stocks")

trades = app.stream(
    "trades", "symbol string, price double, at timestamp", time="at", lateness="30 seconds", partitions=2
)


@app.view(key=["window", "symbol"])
def ten_seconds(trades: DataFrame) -> DataFrame:
    """The range of prices in each ten seconds. A window shows from its first trade on."""
    return trades.groupBy(hw.tumbling("at", "10 seconds"), "symbol").agg(
        F.min("price").alias("low"),
        F.max("price").alias("high"),
        F.avg("price").alias("average"),
        F.count("*").alias("trades"),
    )


@app.view(key=["window", "symbol"])
def days(trades: DataFrame) -> DataFrame:
    """The first and the last price of each day, by the time of the trade and not by when we heard of it."""
    return trades.groupBy(hw.tumbling("at", "1 day"), "symbol").agg(
        F.min_by("price", "at").alias("first"), F.max_by("price", "at").alias("last")
    )


@app.view(key=["window", "rank"])
def top_gainers(days: DataFrame) -> DataFrame:
    """The ten symbols of each day whose price has risen most."""
    gains = days.withColumn("percent", F.round((F.col("last") / F.col("first") - 1) * 100, 2))
    best_first = Window.partitionBy("window").orderBy(F.desc("percent"), "symbol")
    ranked = gains.withColumn("rank", F.row_number().over(best_first))
    return ranked.where("rank <= 10").select("window", "rank", "symbol", "percent")
