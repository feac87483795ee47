"""Columns that a schema declares NOT NULL: a value that lacks one is no event.

Spark believes a schema that says so and fails at the first null, so it is given schemas in which everything may be
null, and what was declared is looked at here: as columns for Spark, as Python objects for the server.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

_Test = Callable[[Column], Column]


def nullable(schema: StructType) -> StructType:
    """The schema with everything in it nullable, at all depths.

    >>> nullable(StructType([StructField("n", ArrayType(StructType(), False), False)]))
    StructType([StructField('n', ArrayType(StructType([]), True), True)])
    """
    return StructType(
        [StructField(each.name, _nullable(each.dataType), True, each.metadata) for each in schema]
    )


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def lacking(value: Column, schema: StructType) -> Column | None:
    """Why a struct of this schema is no event, null when it has all it must have; None if it must have nothing."""
    reasons = [F.when(test(value), F.lit(_reason(path))) for path, test in _tests(schema, "")]
    return F.coalesce(*reasons) if reasons else None


def _tests(kind: DataType, path: str) -> Iterator[tuple[str, _Test]]:
    """What may be missing in a value, and whether it is."""
    if isinstance(kind, StructType):
        for field in kind:
            inside = f"{path}.{field.name}" if path else field.name
            if not field.nullable:
                yield inside, partial(_lacks, field.name)
            for each, test in _tests(field.dataType, inside):
                yield each, partial(_in_field, field.name, test)
    elif isinstance(kind, ArrayType):
        for each, test in _tests(kind.elementType, path):
            yield each, partial(_in_elements, test)
    elif isinstance(kind, MapType):
        for each, test in _tests(kind.valueType, path):
            yield each, partial(_in_values, test)


def _lacks(name: str, value: Column) -> Column:
    return value.isNotNull() & value.getField(name).isNull()


def _in_field(name: str, test: _Test, value: Column) -> Column:
    return test(value.getField(name))


def _in_elements(test: _Test, value: Column) -> Column:
    return F.exists(value, lambda element: test(element))


def _in_values(test: _Test, value: Column) -> Column:
    return F.exists(F.map_values(value), lambda element: test(element))


def lacking_in(row: Mapping[str, Any], schema: StructType) -> str | None:
    """The same of a row as the rules of JSON give it, in which a map is a list of pairs.

    >>> schema = StructType([StructField("n", StructType(), False)])
    >>> lacking_in({"n": None}, schema), lacking_in({"n": {}}, schema)
    ("'n' is missing, and the schema says NOT NULL", None)
    """
    path = next(_missing_in(row, schema, ""), None)
    return None if path is None else _reason(path)


def _missing_in(value: Any, kind: DataType, path: str) -> Iterator[str]:
    if value is None:
        return
    if isinstance(kind, StructType):
        for field in kind:
            inside = f"{path}.{field.name}" if path else field.name
            if not field.nullable and value.get(field.name) is None:
                yield inside
            yield from _missing_in(value.get(field.name), field.dataType, inside)
    elif isinstance(kind, ArrayType):
        for each in value:
            yield from _missing_in(each, kind.elementType, path)
    elif isinstance(kind, MapType):
        for _, each in value:
            yield from _missing_in(each, kind.valueType, path)


def _reason(path: str) -> str:
    return f"{path!r} is missing, and the schema says NOT NULL"
