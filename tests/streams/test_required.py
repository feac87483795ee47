"""Columns that may not be null, at any depth: Spark and the server find the same ones missing."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.serve.ddl import struct_of
from headwater.streams.required import lacking, lacking_in
from headwater.streams.values import declared, parsed

SCHEMA = (
    "id long NOT NULL, place struct<`a.b` int NOT NULL, town string>, "
    "lines array<struct<sku:string NOT NULL>>, prices map<string, struct<net:int NOT NULL>>"
)


def row(**fields: Any) -> dict[str, Any]:
    return {"id": 1, "place": None, "lines": None, "prices": None} | fields


ROWS = [
    (row(), None),
    (row(place={"a.b": 1, "town": None}, lines=[{"sku": "x"}, None], prices={"x": {"net": 1}}), None),
    (row(id=None), "id"),
    (row(place={"a.b": None, "town": "x"}), "place.a.b"),
    (row(lines=[{"sku": "x"}, {"sku": None}]), "lines.sku"),
    (row(prices={"x": {"net": 1}, "y": {"net": None}}), "prices.net"),
    (row(id=None, lines=[{"sku": None}]), "id"),
]


def test_what_is_missing_is_found_at_any_depth(spark: SparkSession) -> None:
    schema = declared(SCHEMA)
    frame = spark.createDataFrame(
        [(each,) for each, _ in ROWS], f"value {parsed(SCHEMA).simpleString()}".replace("a.b", "`a.b`")
    )
    reasons = lacking(F.col("value"), schema)
    assert reasons is not None
    found = [each[0] for each in frame.select(reasons).collect()]
    wanted = [path and f"'{path}' is missing, and the schema says NOT NULL" for _, path in ROWS]
    assert found == wanted
    as_decoded = [each | {"prices": each["prices"] and list(each["prices"].items())} for each, _ in ROWS]
    assert [lacking_in(each, struct_of(SCHEMA)) for each in as_decoded] == wanted


def test_spark_is_told_that_anything_may_be_null(spark: SparkSession) -> None:
    assert '"nullable":false' in declared(SCHEMA).json()
    assert '"nullable":false' not in parsed(SCHEMA).json()
    assert lacking(F.col("value"), parsed(SCHEMA)) is None
