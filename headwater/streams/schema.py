"""Schemas of values: DDL as Spark reads it, or a dataclass. Pure; Spark checks the text later."""

import dataclasses
import types
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from headwater.errors import ApplicationInvalid

_SIMPLE: dict[Any, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
}

Schema = str | type


def to_ddl(schema: Schema, subject: str = "a schema") -> str:
    """The DDL of a schema, which may be a dataclass.

    >>> @dataclasses.dataclass
    ... class Click:
    ...     user_id: int
    ...     page: str | None
    ...     tags: list[str]
    ...     price: Annotated[Decimal, "decimal(10,2)"]
    >>> to_ddl(Click)
    '`user_id` bigint, `page` string, `tags` array<string>, `price` decimal(10,2)'
    """
    if isinstance(schema, str):
        return schema.strip()
    if dataclasses.is_dataclass(schema):
        return ", ".join(f"`{name}` {kind}" for name, kind in _fields(schema, subject))
    raise ApplicationInvalid(
        "read the schema of",
        subject,
        f"{schema!r} is neither a text nor a dataclass",
        "Write it as in CREATE TABLE: 'user_id long, page string, at timestamp'.",
    )


def _fields(record: Any, subject: str) -> list[tuple[str, str]]:
    hints = get_type_hints(record, include_extras=True)
    return [
        (field.name, _type(hints[field.name], f"{subject}, field {field.name}"))
        for field in dataclasses.fields(record)
    ]


def _type(hint: Any, subject: str) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(arguments[1])
    if origin in (Union, types.UnionType):
        present = [argument for argument in arguments if argument is not type(None)]
        if len(present) == 1:
            return _type(present[0], subject)
    elif origin is list:
        return f"array<{_type(arguments[0], subject)}>"
    elif origin is dict:
        return f"map<{_type(arguments[0], subject)},{_type(arguments[1], subject)}>"
    elif dataclasses.is_dataclass(hint):
        return f"struct<{','.join(f'`{name}`:{kind}' for name, kind in _fields(hint, subject))}>"
    elif hint in _SIMPLE:
        return _SIMPLE[hint]
    raise ApplicationInvalid(
        "read the schema of",
        subject,
        f"{hint!r} has no type in Spark",
        "Use str, int, float, bool, bytes, datetime, date, Decimal, list, dict or a dataclass, "
        "or say the type: Annotated[..., 'decimal(10,2)'].",
    )
