"""The key that an event gets as a record: equal values have equal keys, in whatever way they were sent. Pure.

Compaction keeps the last record of a key, so a key holds the value as the stream's or table's reader decodes it,
with all its digits. Where no types are known it is the value as it was sent.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import types as spark

from headwater.streams.sources.json_objects import Odd, fitted, fitter
from headwater.streams.sources.json_rules import Misfit, can_convert, converter, parse, text_of
from headwater.views.texts import json_texts
from headwater.views.types import arrow_type

Keyed = Callable[[bytes], bytes | None]


def keyed(schema: spark.StructType, columns: Sequence[str], zone: str, *, as_object: bool) -> Keyed:
    """What makes the key of an event: a JSON object of the columns, or the text of the only one.

    Of an event without that one column there is no key. Misfit when a value is none of its column's type.

    >>> schema = spark.StructType().add("price", spark.DecimalType(4, 2)).add("n", spark.LongType())
    >>> key_of = keyed(schema, ["price"], "UTC", as_object=False)
    >>> key_of(b'{"price": 1.5, "n": NaN}'), key_of(b'{"price": "1.50"}'), key_of(b'{"n": 1}')
    (b'1.50', b'1.50', None)
    >>> keyed(schema, ["n", "price"], "UTC", as_object=True)(b'{"n": 7}')
    b'{"n":7,"price":null}'
    """
    fields = [field for field in schema.fields if field.name in columns]
    texts = _read_typed(spark.StructType(fields), zone) if len(fields) == len(columns) else None
    texts = texts or partial(_read_untyped, columns=columns)
    names = [orjson.dumps(column).decode() for column in columns]

    def key_object(value: bytes) -> bytes:
        found = texts(value)
        members = [f"{name}:{found[column]}" for name, column in zip(names, columns, strict=True)]
        return ("{" + ",".join(members) + "}").encode()

    def key_text(value: bytes) -> bytes | None:
        text = texts(value)[columns[0]]
        if text == "null":
            return None
        return str(orjson.loads(text)).encode() if text.startswith('"') else text.encode()

    return key_object if as_object else key_text


def json_object(value: bytes) -> dict[str, Any]:
    """An event as an object, with numbers as they were written; Misfit when it is none.

    >>> json_object(b'{"price": 1.10, "n": NaN}')
    {'price': '1.10', 'n': 'NaN'}
    """
    try:
        found = json.loads(text_of(value), parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except RecursionError:
        raise Misfit("it is nested too deeply") from None
    except ValueError as error:
        raise Misfit(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Misfit("it is not an object")
    return found


class _Number(str):
    """A number as it was written."""


def _read_typed(schema: spark.StructType, zone: str) -> Callable[[bytes], dict[str, str]] | None:
    """What reads the columns as JSON texts; None when a type of them has no rules."""
    if not can_convert(schema):
        return None
    fit, rules = fitter(schema, zone), converter(schema, zone)
    kinds = {field.name: arrow_type(field.dataType.simpleString()) for field in schema.fields}

    def read(value: bytes) -> dict[str, str]:
        try:
            row = fitted(value, fit)
        except Odd:
            row = parse(text_of(value), rules)
        return {name: _text(row[name], kind) for name, kind in kinds.items()}

    return read


def _text(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    if pa.types.is_integer(kind):
        return str(value)
    if pa.types.is_string(kind):
        return orjson.dumps(value).decode()
    text: str = json_texts(pa.array([value], kind))[0].as_py()
    return text


def _read_untyped(value: bytes, columns: Sequence[str]) -> dict[str, str]:
    event = json_object(value)
    return {column: _written(event.get(column)) for column in columns}


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):  # half of a surrogate pair is no character, as for the rules of types
        return orjson.dumps(value.encode("utf-8", "replace").decode()).decode()
    if isinstance(value, dict):
        return "{" + ",".join([f"{_written(name)}:{_written(each)}" for name, each in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return orjson.dumps(value).decode()
