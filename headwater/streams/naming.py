"""Columns by their names, and types as text, for names of any kind: with blanks, dots, backticks in them."""

import re

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it.

    >>> quoted("net `sum`")
    '`net ``sum```'
    """
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def col(name: str) -> Column:
    """The column of this name; ``F.col`` takes a dot for a way into a struct."""
    return F.col(quoted(name))


def type_text(kind: DataType) -> str:
    """A type as Spark reads it; ``simpleString`` leaves the names inside of structs as they are.

    >>> type_text(StructType.fromJson({"type": "struct", "fields": [
    ...     {"name": "a b", "type": "long", "nullable": True, "metadata": {}},
    ...     {"name": "n", "type": "integer", "nullable": True, "metadata": {}}]}))
    'struct<`a b`:bigint,n:int>'
    """
    if isinstance(kind, StructType):
        members = (
            f"{field.name if _PLAIN.match(field.name) else quoted(field.name)}:{type_text(field.dataType)}"
            for field in kind
        )
        return f"struct<{','.join(members)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()
