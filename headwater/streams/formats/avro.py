"""Avro values, by a schema that is given or by the registry's. Needs ``fastavro`` (headwater[avro])."""

import io
import json
from functools import lru_cache
from typing import Any

from headwater.errors import ApplicationInvalid, EngineMissing
from headwater.streams.declarations import Format
from headwater.streams.formats.numbers import all_finite
from headwater.streams.formats.registry import schema_by_number, split_header

_SIMPLE = {
    "null": "string",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "fixed": "binary",
    "enum": "string",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "time-millis": "string",
    "time-micros": "string",
    "uuid": "string",
}


def avro(schema: str | dict[str, Any], *, registry: str | None = None) -> Format:
    """Values in Avro. `schema` is what the stream reads them as: its columns come from it.

    With a `registry` values begin with the number of the schema they were written with, and are resolved to
    `schema` as Avro defines it; without, they were written with `schema` itself.

    >>> avro({"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}).name
    'avro'
    """
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Format("avro", (("schema", text), ("registry", registry)))


def ddl(format: Format) -> str:
    """The columns of a record's schema.

    >>> ddl(avro('{"type": "record", "name": "C", "fields": [{"name": "n", "type": ["null", "long"]}]}'))
    '`n` bigint'
    """
    try:
        record = json.loads(format.option("schema"))
    except ValueError as error:
        raise _invalid(str(error)) from error
    if not isinstance(record, dict) or record.get("type") != "record":
        raise _invalid("the schema of a value has to be a record")
    named: dict[str, Any] = {}
    return ", ".join(f"`{field['name']}` {_type(field['type'], named)}" for field in record["fields"])


def _type(schema: Any, named: dict[str, Any]) -> str:
    if isinstance(schema, list):
        present = [branch for branch in schema if branch != "null"]
        if len(present) != 1:
            raise _invalid("a union of several types has no column type")
        return _type(present[0], named)
    if isinstance(schema, str):
        if schema in named:
            return _type(named[schema], named)
        if schema not in _SIMPLE:
            raise _invalid(f"the type {schema!r} is not defined")
        return _SIMPLE[schema]
    kind = schema["type"]
    if kind in ("record", "enum", "fixed"):
        named[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        fields = [f"`{field['name']}`:{_type(field['type'], named)}" for field in schema["fields"]]
        return f"struct<{','.join(fields)}>"
    if kind == "array":
        return f"array<{_type(schema['items'], named)}>"
    if kind == "map":
        return f"map<string,{_type(schema['values'], named)}>"
    return _type(kind, named) if isinstance(kind, dict | list) else _SIMPLE[kind]


def decode(value: bytes, schema: str, registry: str | None) -> Any:
    """One value; ValueError says what is wrong with it."""
    import fastavro

    written, data = None, value
    if registry is not None:
        number, data = split_header(value)
        written = _parsed(schema_by_number(registry, number))
    reader = _parsed(schema)
    stream = io.BytesIO(data)
    try:
        record = fastavro.schemaless_reader(stream, written if written is not None else reader, reader)
    except (
        EOFError,
        IndexError,
        ValueError,
        TypeError,
        KeyError,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise ValueError(f"it is not Avro of the schema: {error or type(error).__name__}") from error
    except Exception as error:  # fastavro has errors of its own for schemas that do not resolve
        raise ValueError(f"it is not Avro of the schema: {error}") from error
    if stream.read(1):
        raise ValueError("it is longer than the schema says")
    return all_finite(record) if '"double"' in schema or '"float"' in schema else record


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def require() -> None:
    """Refuses to start without fastavro."""
    try:
        import fastavro  # noqa: F401
    except ImportError:
        raise EngineMissing(
            "read", "Avro", "the package fastavro is not installed", "Run `pip install 'headwater[avro]'`."
        ) from None


def _invalid(cause: str) -> ApplicationInvalid:
    return ApplicationInvalid("read", "an Avro schema", cause, "Give the schema of a record, as JSON.")
