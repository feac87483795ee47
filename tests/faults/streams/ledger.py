"""The application that is killed: one topic, written exactly once, and one view of windows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("ledger")

payments = app.stream(
    "payments",
    "id long, account string, amount long, at timestamp",
    time="at",
    lateness="2 minutes",
    partitions=2,
)


@app.topic("checked", key="account", partitions=2)
def checked(payments: DataFrame) -> DataFrame:
    return payments.select("id", "account", (F.col("amount") * 2).alias("twice"))


@app.view(key=["window", "account"])
def totals(payments: DataFrame) -> DataFrame:
    return payments.groupBy(hw.tumbling("at", "30 seconds"), "account").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("id").alias("last")
    )
