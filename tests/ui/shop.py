"""The application whose dashboard is tried: a shop with a database, clicks, orders and alerts."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("shop")

app.source(hw.cdc("sqlite:///shop.db", tables=["users", "products"]))
clicks = app.stream(
    "shop.clicks", "user_id long, page string, at timestamp", time="at", lateness="30 seconds"
)
orders = app.stream("shop.orders", "user_id long, product string, price double, at timestamp", time="at")
users = app.table("shop.users", "id long, name string, country string", key="id")


@app.view(key=["window", "country"])
def clicks_by_country(clicks: DataFrame, users: DataFrame) -> DataFrame:
    joined = clicks.join(users, clicks.user_id == users.id)
    return joined.groupBy(hw.tumbling("at", "1 minute"), "country").count()


@app.view(key="window")
def sales_per_minute(orders: DataFrame) -> DataFrame:
    return orders.groupBy(hw.tumbling("at", "1 minute")).agg(
        F.sum("price").alias("revenue"), F.count("*").alias("n")
    )


@app.view(key="product")
def top_products(orders: DataFrame) -> DataFrame:
    return orders.groupBy("product").agg(F.count("*").alias("sold"), F.sum("price").alias("revenue"))


@app.topic("shop.alerts", key="user_id")
def suspicious(orders: DataFrame) -> DataFrame:
    return orders.where("price > 900")


app.sink(hw.redis("redis://localhost", topic="shop.users", key="user:{id}"))
app.chart("clicks_by_country", x="window", y="count", by="country", title="Clicks a minute", kind="area")
app.chart("sales_per_minute", x="window", y="revenue", title="Revenue a minute")
app.chart("top_products", x="product", y="sold", title="Best sellers", kind="bar")
