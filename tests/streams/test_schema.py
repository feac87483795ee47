"""Schemas from dataclasses."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pyspark.sql import SparkSession

from headwater.errors import ApplicationInvalid
from headwater.streams.schema import to_ddl
from headwater.streams.values import parsed


@dataclass
class Place:
    lat: float
    long: float


@dataclass
class Order:
    id: int
    customer: str | None
    items: list[str]
    prices: dict[str, Annotated[Decimal, "decimal(10,2)"]]
    place: Place | None
    route: list[Place]
    day: date
    at: datetime
    paid: bool = False
    raw: bytes = b""
    total: Decimal = field(default=Decimal(0))


def test_a_dataclass_is_what_spark_reads(spark: SparkSession) -> None:
    kinds = {each.name: each.dataType.simpleString() for each in parsed(to_ddl(Order))}
    place = "struct<lat:double,long:double>"
    assert kinds == {
        "id": "bigint",
        "customer": "string",
        "items": "array<string>",
        "prices": "map<string,decimal(10,2)>",
        "place": place,
        "route": f"array<{place}>",
        "day": "date",
        "at": "timestamp",
        "paid": "boolean",
        "raw": "binary",
        "total": "decimal(38,18)",
    }


def test_a_text_is_left_to_spark() -> None:
    assert to_ddl("  a long, b string ") == "a long, b string"


@pytest.mark.parametrize("kind", [complex, int | str, set[int], Any])
def test_a_type_that_spark_does_not_have_is_named_with_its_field(kind: Any) -> None:
    made = dataclass(type("Made", (), {"__annotations__": {"number": kind}}))
    with pytest.raises(ApplicationInvalid) as refused:
        to_ddl(made, "the stream clicks")
    assert "the schema of the stream clicks, field number: " in str(refused.value)
    assert "has no type in Spark" in str(refused.value)


def test_neither_a_text_nor_a_dataclass() -> None:
    with pytest.raises(ApplicationInvalid, match="is neither a text nor a dataclass"):
        to_ddl(int)
