"""Python objects of a JSON parser into the types of a schema, when they fit without any doubt. Pure.

For records that come one by one this is ten times as fast as `json_rules`, which decide whatever is odd here:
a number where a string should be, say, whose digits the parser has not kept.
"""

from collections.abc import Callable
from typing import Any

import orjson
from pyspark.sql import types as spark

from headwater.streams.sources.json_times import day_of, moment_of

Fitter = Callable[[Any], Any]

_INTEGERS: dict[type[spark.DataType], int] = {
    spark.ByteType: 2**7,
    spark.ShortType: 2**15,
    spark.IntegerType: 2**31,
    spark.LongType: 2**63,
}


class Odd(Exception):
    """Something that the rules have to decide."""


def fitted(value: bytes, fit: Fitter) -> dict[str, Any]:
    """The value of a record; `Odd` when that takes a closer look.

    >>> schema = spark.StructType([spark.StructField("n", spark.LongType())])
    >>> fitted(b'{"n": 1}', fitter(schema, "UTC"))
    {'n': 1}
    """
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise Odd from None
    if found is None:
        raise Odd
    fields: dict[str, Any] = fit(found)
    return fields


def fitter(kind: spark.DataType, zone: str) -> Fitter:
    """What turns an object into a type's value; it is not asked about null."""
    if isinstance(kind, spark.StructType):
        return _struct([(field.name, fitter(field.dataType, zone)) for field in kind.fields])
    if isinstance(kind, spark.ArrayType):
        return _array(fitter(kind.elementType, zone))
    if isinstance(kind, spark.TimestampType):
        return lambda value: _known(moment_of(value, zone)) if type(value) is str else _odd()
    if isinstance(kind, spark.DateType):
        return lambda value: _known(day_of(value)) if type(value) is str else _odd()
    if type(kind) in _INTEGERS:
        return _integer(_INTEGERS[type(kind)])
    if type(kind) is spark.StringType:
        return _string
    if isinstance(kind, spark.BooleanType):
        return lambda value: value if type(value) is bool else _odd()
    if isinstance(kind, spark.FloatType | spark.DoubleType):
        return lambda value: value if type(value) is float else float(value) if type(value) is int else _odd()
    return lambda value: _odd()


def _struct(fields: list[tuple[str, Fitter]]) -> Fitter:
    def fit(value: Any) -> Any:
        if type(value) is not dict:
            raise Odd
        row = {}
        for name, fit_field in fields:
            item = value.get(name)
            row[name] = None if item is None else fit_field(item)
        return row

    return fit


def _string(value: Any) -> Any:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise Odd


def _array(element: Fitter) -> Fitter:
    def fit(value: Any) -> Any:
        if type(value) is not list:
            raise Odd
        return [None if item is None else element(item) for item in value]

    return fit


def _integer(bound: int) -> Fitter:
    def fit(value: Any) -> Any:
        if type(value) is not int or not -bound <= value < bound:
            raise Odd
        return value

    return fit


def _known(value: Any) -> Any:
    if value is None:
        raise Odd
    return value


def _odd() -> Any:
    raise Odd
