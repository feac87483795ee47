"""A shop: its database, its web pages and the sensors of its store room, as live views.

Three ways in: the database is captured (nobody writes twice), clicks come over HTTP as a web page sends them, and a
gateway writes the sensors' readings with a Kafka client. `make demo` runs all of it, with traffic.
"""

import os
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import headwater as hw

DATABASE = Path(os.environ.get("SHOP_DATABASE", "shop.db")).resolve()

PRODUCT = "id long, name string, category string, cents long, stock long, reorder_at long"
ORDER_LINE = (
    "id long, order_id long, product string, category string, quantity long, cents long, sold_at timestamp"
)
TOO_WARM = 8.0  # degrees Celsius

app = hw.App("shop")

# -- what comes in ----------------------------------------------------------------------------------

app.source(
    hw.cdc(f"sqlite:///{DATABASE}", tables=["customers", "products", "orders", "order_lines"], name="shop")
)

products = app.table("shop.products", PRODUCT, key="id", format="debezium")
product_changes = app.stream("shop.products", name="product_changes", format=hw.debezium(PRODUCT))
order_lines = app.stream("shop.order_lines", format=hw.debezium(ORDER_LINE))

clicks = app.stream(
    "clicks", "session string, page string, product long, at timestamp", time="at", lateness="10 seconds"
)
readings = app.stream(
    "readings", "sensor string, celsius double, at timestamp", time="at", lateness="5 seconds"
)


# -- what is sold -----------------------------------------------------------------------------------


@app.view(key=["window", "category"])
def sales_per_minute(order_lines: DataFrame) -> DataFrame:
    """The sales of a minute, every ten seconds."""
    sold = order_lines.where("op IN ('c', 'r')").select("after.*")
    timed = hw.event_time(sold, F.col("sold_at"), lateness="10 seconds")
    return timed.groupBy(hw.hopping("event_time", "1 minute", every="10 seconds"), "category").agg(
        F.sum("quantity").alias("pieces"), F.sum(F.col("quantity") * F.col("cents")).alias("cents")
    )


@app.view(key="product")
def product_sales(order_lines: DataFrame) -> DataFrame:
    """What each product has sold since the shop opened."""
    sold = order_lines.where("op IN ('c', 'r')").select("after.*")
    return sold.groupBy("product").agg(
        F.sum("quantity").alias("pieces"), F.sum(F.col("quantity") * F.col("cents")).alias("cents")
    )


@app.view(key="rank")
def top_products(product_sales: DataFrame) -> DataFrame:
    """The five best sellers. A ranking is made of a small table, whenever that has changed."""
    best_first = Window.orderBy(F.desc("pieces"), "product")
    return product_sales.withColumn("rank", F.row_number().over(best_first)).where("rank <= 5")


@app.view(key="product")
def stock_left(products: DataFrame) -> DataFrame:
    """What the store room holds, as the database has it."""
    is_low = F.col("stock") < F.col("reorder_at")
    return products.select(F.col("name").alias("product"), "category", "stock", is_low.alias("is_low"))


# -- who is there -----------------------------------------------------------------------------------


@app.view(key="window")
def active_sessions(clicks: DataFrame) -> DataFrame:
    """How many visitors there are, by ten seconds; it grows while the ten seconds last."""
    return clicks.groupBy(hw.tumbling("at", "10 seconds")).agg(
        F.size(F.collect_set("session")).alias("sessions"), F.count("*").alias("clicks")
    )


@app.view(key=["window", "session"], emit="final")
def visits(clicks: DataFrame) -> DataFrame:
    """A visit from its first click to its last: it is over when nothing came for ten seconds."""
    return clicks.groupBy(hw.session("at", "10 seconds"), "session").agg(
        F.count("*").alias("clicks"), F.max(F.col("page") == "/checkout").alias("bought")
    )


# -- the store room ---------------------------------------------------------------------------------


@app.view(key=["window", "sensor"])
def temperatures(readings: DataFrame) -> DataFrame:
    """What each sensor measured in five seconds. What came out of order is in its place."""
    return readings.groupBy(hw.tumbling("at", "5 seconds"), "sensor").agg(
        F.avg("celsius").alias("celsius"), F.max("celsius").alias("warmest"), F.count("*").alias("readings")
    )


@app.topic("alerts", key="about", emit="final")
def too_warm(readings: DataFrame) -> DataFrame:
    """A fridge that was too warm for five seconds; said once, when no reading can change it any more."""
    means = readings.where("sensor LIKE 'fridge%'").groupBy(hw.tumbling("at", "5 seconds"), "sensor")
    warm = means.agg(F.avg("celsius").alias("celsius")).where(F.col("celsius") > TOO_WARM)
    return warm.select(
        F.lit("too warm").alias("alert"),
        F.col("sensor").alias("about"),
        F.round("celsius", 1).alias("value"),
        F.col("window.end").alias("at"),
    )


@app.topic("alerts", key="about", name="low_stock")
def low_stock(product_changes: DataFrame) -> DataFrame:
    """A product of which too little is left: the change that took it below its limit."""
    fell = "op = 'u' AND after.stock < after.reorder_at AND before.stock >= before.reorder_at"
    return product_changes.where(fell).select(
        F.lit("low stock").alias("alert"),
        F.col("after.name").alias("about"),
        F.col("after.stock").cast("double").alias("value"),
        F.timestamp_millis("ts_ms").alias("at"),
    )


# -- what the dashboard shows -----------------------------------------------------------------------

app.chart(
    "sales_per_minute",
    x="window.end",
    y="cents",
    by="category",
    kind="area",
    title="Sales of a minute, in cents",
)
app.chart("top_products", x="product", y="pieces", kind="bar", title="Best sellers, in pieces")
app.chart("active_sessions", x="window", y="sessions", title="Visitors in ten seconds")
app.chart("stock_left", x="product", y="stock", kind="bar", title="Stock left")
app.chart("temperatures", x="window", y="celsius", by="sensor", title="Temperatures, in degrees Celsius")
