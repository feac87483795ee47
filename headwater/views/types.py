"""Spark's type strings as Arrow types. Pure."""

import functools
import re

import pyarrow as pa

# Moments that databases, Python and ISO 8601 agree about: the years 1 to 9999.
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999

_SCALARS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "binary": pa.binary(),
    "void": pa.null(),
    # spellings that Spark's DDL knows besides
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "decimal": pa.decimal128(10, 0),
}

_MEMBER = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<plain>[^:`]+))\s*:(?P<kind>.*)", re.DOTALL)


@functools.lru_cache(maxsize=4096)
def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of Spark's simple type string; ValueError when the store has no place for such values.

    >>> print(arrow_type("struct<start:timestamp,end:timestamp>"))
    struct<start: timestamp[us, tz=UTC], end: timestamp[us, tz=UTC]>
    >>> print(arrow_type("map<string,array<decimal(10,2)>>"))
    map<string, list<element: decimal128(10, 2)>>
    >>> print(arrow_type("struct<`a: ``b``, c`:int>"))
    struct<a: `b`, c: int32>
    >>> arrow_type("interval day to second")
    Traceback (most recent call last):
    ValueError: no view keeps the type 'interval day to second'
    """
    kind = text.strip()
    lower = kind.lower()
    if lower in _SCALARS:
        return _SCALARS[lower]
    if lower.startswith(("varchar(", "char(")):
        return pa.string()
    try:
        if lower.startswith("decimal(") and lower.endswith(")"):
            precision, scale = kind[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        if lower.startswith("array<") and lower.endswith(">"):
            return pa.list_(pa.field("element", arrow_type(kind[len("array<") : -1])))
        if lower.startswith("map<") and lower.endswith(">"):
            key, value = _parts(kind[len("map<") : -1])
            return pa.map_(arrow_type(key), arrow_type(value))
        if lower.startswith("struct<") and lower.endswith(">"):
            return pa.struct([_member(part) for part in _parts(kind[len("struct<") : -1])])
    except (ValueError, pa.ArrowInvalid) as error:
        raise ValueError(f"no view keeps the type {text!r}: {error}") from None
    raise ValueError(f"no view keeps the type {text!r}")


def _member(text: str) -> pa.Field:
    match = _MEMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not name:type")
    name = match["quoted"].replace("``", "`") if match["quoted"] is not None else match["plain"].strip()
    return pa.field(name, arrow_type(match["kind"]))


def _parts(text: str) -> list[str]:
    """What commas separate outside of brackets and of quoted names.

    >>> _parts("a:int,b:map<string,int>,`c, (d`:decimal(4,2)")
    ['a:int', 'b:map<string,int>', '`c, (d`:decimal(4,2)']
    """
    parts: list[str] = []
    depth = begin = 0
    is_quoted = False
    for at, character in enumerate(text):
        if character == "`":  # a doubled one inside of a name closes it and opens it again
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]] if text[begin:].strip() else parts


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of this type are kept as JSON text."""
    return bool(pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind))


def member_type(kind: pa.DataType, path: tuple[str, ...]) -> pa.DataType | None:
    """The type of a member of a struct, or None.

    >>> member_type(arrow_type("struct<at:struct<day:int>>"), ("at", "day"))
    DataType(int32)
    """
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind
