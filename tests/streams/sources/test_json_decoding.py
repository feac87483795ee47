"""Our decoder of JSON against Spark's, on random values: the same value, or a problem in both."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headwater.streams.sources.json_values import SMALLEST, JsonDecoder
from headwater.streams.sources.spark_json import decode_in_spark
from tests.streams.sources.json_examples import QUICK_SCHEMA, SCHEMA, plain_values, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 4000


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
@pytest.mark.parametrize("ddl", [QUICK_SCHEMA, SCHEMA], ids=["quick", "every type"])
def test_ours_is_sparks(spark: "SparkSession", ddl: str, zone: str) -> None:
    schema = StructType.fromDDL(ddl)
    examples = values(COUNT, seed=len(ddl) + len(zone))
    structs, problems = JsonDecoder(schema, zone).decode(pa.array(examples, pa.binary()))
    good = _compare(spark, examples, schema, zone, structs, problems)
    assert COUNT / 2 < good < COUNT  # both kinds were there


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    "at", ["2026-11-16T11:31:17.123Z", "2026-11-16T11:31:17+05:30", "2026-07-16 11:31:17"]
)
def test_the_quick_way_is_sparks(spark: "SparkSession", at: str, zone: str) -> None:
    schema = StructType.fromDDL(QUICK_SCHEMA)
    examples = plain_values(1500, seed=len(at), at=at)
    decoder = JsonDecoder(schema, zone)
    structs = decoder._quickly(pa.array(examples, pa.binary()))
    assert _compare(spark, examples, schema, zone, structs, pa.nulls(1500, pa.string())) == 1500
    one_by_one, _ = decoder._one_by_one(pa.array(examples, pa.binary()))
    assert structs.equals(one_by_one)


def _compare(
    spark: "SparkSession",
    examples: Sequence[bytes | None],
    schema: StructType,
    zone: str,
    structs: pa.StructArray,
    problems: pa.StringArray,
) -> int:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        raw = spark.createDataFrame([(value,) for value in examples], "value binary")
        theirs = decode_in_spark(raw, schema).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    ours = pa.table({"value": structs, "problem": problems})
    good = 0
    for example, mine, other in zip(examples, plain(ours), plain(theirs), strict=True):
        assert (mine["problem"] is None) == (other["problem"] is None), (example, mine, other)
        assert _same(mine["value"], other["value"]), (example, mine, other)
        good += mine["value"] is not None
    return good


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with timestamps and dates as numbers: not all of them are within Python's range."""
    value = table["value"].combine_chunks()
    return pa.table({"value": value.cast(_numbers(value.type)), "problem": table["problem"]}).to_pylist()


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbers(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    return kind


def _same(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and isinstance(other, float) and math.isnan(mine):
        return math.isnan(other)
    if isinstance(mine, dict) and isinstance(other, dict):
        return mine.keys() == other.keys() and all(_same(mine[key], other[key]) for key in mine)
    if isinstance(mine, list) and isinstance(other, list):
        return len(mine) == len(other) and all(map(_same, mine, other))
    return bool(mine == other)


@pytest.mark.parametrize("count", [1, SMALLEST, SMALLEST * 20])
@pytest.mark.parametrize(
    "bad", [b"", b"{", b'{"big":1}{"big":2}', b'{"big":\n1}', b'{"big":"x"}', b"\xff", b'"}\n{"', b"null"]
)
def test_a_bad_value_harms_no_other(spark: "SparkSession", bad: bytes, count: int) -> None:
    """Above all those that would shift the rows: two objects in a value beside one that has none."""
    good = [b'{"big": %d}' % number for number in range(count)]
    decoder = JsonDecoder(StructType.fromDDL("big long"), "UTC")
    for place in {0, count // 2, count}:
        examples = [*good[:place], bad, b"", *good[place:]]
        structs, problems = decoder.decode(pa.array(examples, pa.binary()))
        found = structs.to_pylist()
        assert found[:place] + found[place + 2 :] == [{"big": number} for number in range(count)]
        assert problems.slice(0, place).null_count == place
        assert problems[place + 1].as_py() == "it is empty"


@pytest.mark.parametrize("count", [1, SMALLEST])
def test_odd_json_in_a_string_and_beside_the_schema(spark: "SparkSession", count: int) -> None:
    """Such a value may stop no batch: it would come again for ever."""
    examples = [
        json.dumps({"s": odd}).encode()
        for odd in ({"x": "\ud800"}, ["\udc00\ud800"], {"\ud800": 1}, ["\U0001f600", "ä\x1f\x7f", "\\u001f"])
    ]
    examples += [b'{"%b": %b}' % (name, b"9" * 5000) for name in (b"s", b"n", b"other")]
    schema = StructType.fromDDL("s string, n long")
    structs, problems = JsonDecoder(schema, "UTC").decode(pa.array(examples * count, pa.binary()))
    assert _compare(spark, examples * count, schema, "UTC", structs, problems) == 4 * count


def test_null_values_have_no_problem(spark: "SparkSession") -> None:
    decoder = JsonDecoder(StructType.fromDDL("n long"), "UTC")
    structs, problems = decoder.decode(pa.array([b'{"n": 1}', None] * 1000, pa.binary()))
    assert structs.to_pylist() == [{"n": 1}, None] * 1000
    assert problems.null_count == 2000
