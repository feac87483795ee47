"""The paths of ``reading.py`` as OpenAPI describes them: of each view its own, with its columns and its key.

The patterns of conditions are narrower than what is understood: they have no brackets, which a regular expression
cannot pair. All that fits them is understood.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from headwater.serve import where
from headwater.serve.keys import describe_key, is_window
from headwater.serve.openapi import json_schema, problems, row_schema
from headwater.serve.serving import Limits
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type, is_nested

Description = dict[str, Any]

_DATE = r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
_CLOCK = r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
_WORD = re.compile(r"[^\W\d]\w*\Z", re.ASCII)
_SPACE = " *"

STANDING: Description = {
    "Headwater-View-Version": {
        "description": "The build of the view that was read.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "Headwater-Last-Change": {
        "description": "The number of the last change that the rows contain: where changes go on.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    },
    "Headwater-Batch": {
        "description": "The number of the last batch.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Headwater-Watermark": {
        "description": "The event time up to which the view counts on having seen everything.",
        "schema": {"type": "string", "format": "date-time"},
    },
    "Headwater-Offsets": {
        "description": "The offsets that the rows cover, as JSON: by topic and partition, the next one.",
        "schema": {"type": "string"},
    },
}


def describe_reading(
    schemas: Mapping[str, ViewSchema], topics: Mapping[str, set[str]], limits: Limits
) -> Description:
    """All paths, for these views and the topics that each of them reads."""
    paths: Description = {"/views": {"get": _list()}}
    for name, schema in schemas.items():
        waiting = _waiting(topics[name], limits)
        paths[f"/views/{name}"] = {"get": _rows(schema, waiting, limits)}
        paths[f"/views/{name}/{{key}}"] = {"get": _row(schema, waiting)}
    return paths


def _list() -> Description:
    nullable = ["string", "null"]
    view: Description = {
        "type": "object",
        "required": ["name", "kind", "version", "state", "key", "columns", "rows", "batch", "watermark"],
        "properties": {
            "name": {"type": "string"},
            "kind": {"enum": ["view", "table"]},
            "version": {"type": ["integer", "null"], "description": "The build that serves."},
            "state": {"enum": ["serving", "building", "waiting"]},
            "key": {"type": "array", "items": {"type": "string"}},
            "columns": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["name", "type"],
                    "properties": {"name": {"type": "string"}, "type": {"type": "string"}},
                },
            },
            "rows": {"type": "integer", "minimum": 0},
            "watermark": {"type": nullable, "format": "date-time"},
            "batch": {"type": ["integer", "null"]},
            "committed": {"type": nullable, "format": "date-time"},
            "offsets": {"type": "object"},
            "last_change": {"type": "integer", "minimum": 0},
            "building": {"type": "array", "items": {"type": "integer"}},
        },
    }
    listed = {
        "type": "object",
        "required": ["application", "views"],
        "properties": {"application": {"type": "string"}, "views": {"type": "array", "items": view}},
    }
    return {
        "operationId": "list_views",
        "summary": "The views and tables of the application.",
        "responses": {
            "200": {"description": "They.", "content": {"application/json": {"schema": listed}}},
            **problems({400: "There is no such parameter.", 503: "The view store does not answer."}),
        },
    }


def _rows(schema: ViewSchema, waiting: list[Description], limits: Limits) -> Description:
    row = row_schema((column.name, column.type) for column in schema.columns)
    page = {
        "type": "object",
        "required": ["view", "version", "rows", "next"],
        "properties": {
            "view": {"const": schema.name},
            "version": {"type": "integer", "minimum": 1},
            "rows": {"type": "array", "items": row, "maxItems": limits.rows},
            "next": {"type": ["string", "null"], "description": "Where the following rows are."},
        },
    }
    parameters = [
        _query("where", "Which rows; see docs/serving.md for how it is written.", condition_schema(schema)),
        _query("order", "The columns to sort by, -COLUMN the largest first.", _order_schema(schema)),
        _query(
            "limit",
            "At most so many rows.",
            {"type": "integer", "minimum": 1, "maximum": limits.rows, "default": min(1000, limits.rows)},
        ),
        _query("offset", "So many rows are left out.", {"type": "integer", "minimum": 0, "maximum": 10**12}),
        {
            "name": "key",
            "in": "query",
            "description": "The row with this key only, as a JSON object of the key's columns.",
            "content": {"application/json": {"schema": _key_object(schema)}},
        },
        *waiting,
    ]
    headers = STANDING | {"Link": {"description": "Where the next page is.", "schema": {"type": "string"}}}
    return {
        "operationId": f"read_{schema.name}",
        "summary": f"Rows of {schema.name}.",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "Rows, or a row a line.",
                "headers": headers,
                "content": {
                    "application/json": {"schema": page},
                    "application/x-ndjson": {"schema": {"type": "string"}},
                },
            },
            **_refusals("The condition, the order or another parameter cannot be understood."),
        },
    }


def _row(schema: ViewSchema, waiting: list[Description]) -> Description:
    key: Description = {
        "name": "key",
        "in": "path",
        "required": True,
        "description": f"The row's key: {describe_key(schema)}.",
        "schema": _key_schema(schema),
    }
    row = row_schema((column.name, column.type) for column in schema.columns)
    return {
        "operationId": f"look_up_{schema.name}",
        "summary": f"One row of {schema.name}.",
        "parameters": [key, *waiting],
        "responses": {
            "200": {
                "description": "The row.",
                "headers": STANDING,
                "content": {"application/json": {"schema": row}},
            },
            **_refusals("The key or another parameter cannot be understood."),
            **problems({404: "There is no row with this key."}),
        },
    }


def _refusals(bad: str) -> Description:
    return problems(
        {
            400: bad,
            503: "Nobody has begun to fill the view, or the view store does not answer.",
            504: "The view does not cover the token in time.",
        }
    )


def _waiting(topics: set[str], limits: Limits) -> list[Description]:
    places = "|".join(re.escape(topic) for topic in sorted(topics)) or "-"
    place = rf"({places}):\d{{1,9}}:\d{{1,15}}"
    token = {"type": "string", "pattern": rf"^{place}(,{place}){{0,20}}$"}
    said = "What the view has to cover: the token of a write, or several with commas."
    return [
        _query("at_least", said, token),
        _query(
            "wait",
            "Seconds to wait for that.",
            {"type": "number", "minimum": 0, "maximum": limits.wait_seconds, "default": 10},
        ),
    ]


def _query(name: str, description: str, schema: Description) -> Description:
    return {"name": name, "in": "query", "description": description, "schema": schema}


# -- patterns --------------------------------------------------------------------------------------


def value_pattern(kind: pa.DataType) -> str | None:
    """The values of a type as they are written in a path; None for those of which little can be said.

    >>> bool(re.fullmatch(value_pattern(pa.int8()), "-12"))
    True
    """
    if pa.types.is_integer(kind):
        digits = {8: 2, 16: 4, 32: 9, 64: 18}[kind.bit_width]
        return rf"-?\d{{1,{digits}}}"
    if pa.types.is_floating(kind):
        return r"-?\d{1,12}(\.\d{1,6})?"
    if pa.types.is_decimal(kind):
        whole, scale = max(1, kind.precision - kind.scale), kind.scale
        return rf"-?\d{{1,{whole}}}" + (rf"(\.\d{{1,{scale}}})?" if scale else "")
    if pa.types.is_boolean(kind):
        return "(true|false)"
    if pa.types.is_timestamp(kind):
        return _DATE + _CLOCK + ("Z" if kind.tz else "")
    return _DATE if pa.types.is_date(kind) else None


def condition_schema(schema: ViewSchema) -> Description:
    """Conditions on the columns of a view."""
    comparisons = []
    for name, kind in _members(schema):
        value = value_pattern(kind)
        if pa.types.is_string(kind):
            value = r"'[^'\x00-\x1f\x7f]*'"
        elif value is not None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            value = f"'{value}'"
        if value is None:
            continue
        word = re.escape(name)
        comparisons += [
            rf"{word}{_SPACE}(=|!=|<|<=|>|>=){_SPACE}{value}",
            rf"{word} (not )?in \({value}(,{_SPACE}{value}){{0,5}}\)",
            rf"{word} is (not )?null",
        ]
    if not comparisons:
        return {"not": {}}
    one = f"(not )?({'|'.join(comparisons)})"
    whole = f"^{one}( (and|or) {one}){{0,9}}$"
    return {"type": "string", "maxLength": where.LONGEST, "pattern": whole}


def _order_schema(schema: ViewSchema) -> Description:
    names = "|".join(re.escape(name) for name, _ in _members(schema))
    return {"type": "string", "pattern": rf"^-?({names})(,-?({names})){{0,{where.ORDERS - 1}}}$"}


def _members(schema: ViewSchema) -> Iterator[tuple[str, pa.DataType]]:
    """Columns that are single values, and such members of structs, as they are written."""
    for column in schema.columns:
        kind = arrow_type(column.type)
        if pa.types.is_struct(kind):
            for member in kind:
                if not is_nested(member.type):
                    yield f"{_written(column.name)}.{_written(member.name)}", member.type
        elif not is_nested(kind):
            yield _written(column.name), kind


def _written(name: str) -> str:
    return name if _WORD.match(name) and name.lower() not in where.WORDS else f"`{name.replace('`', '``')}`"


def _key_schema(schema: ViewSchema) -> Description:
    if len(schema.key) == 1:
        kind = arrow_type(schema.types[schema.key[0]])
        if pa.types.is_integer(kind):
            return {**json_schema(kind), "type": "integer"}
        if pa.types.is_string(kind):
            return {"type": "string", "minLength": 1}
    parts = []
    for name in schema.key:
        kind = arrow_type(schema.types[name])
        pattern = value_pattern(kind)
        if is_window(kind):
            time = value_pattern(kind.field(0).type)
            pattern = rf"{time}\.\.{time}"
        parts.append(f"({pattern})" if pattern else r"[^,/\x00-\x1f\x7f]+")
    return {"type": "string", "pattern": "^" + ",".join(parts) + "$"}


def _key_object(schema: ViewSchema) -> Description:
    members = {name: _key_value(arrow_type(schema.types[name])) for name in schema.key}
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def _key_value(kind: pa.DataType) -> Description:
    """A value of a key in JSON. (That it may be null is not said here: few keys ever are.)"""
    if pa.types.is_integer(kind):
        return {**json_schema(kind), "type": "integer"}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if is_window(kind):
        members = {member.name: _key_value(member.type) for member in kind}
        return {
            "type": "object",
            "properties": members,
            "required": list(members),
            "additionalProperties": False,
        }
    pattern = value_pattern(kind)
    if pattern is not None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return {"type": "string", "pattern": f"^{pattern}$"}
    return {"type": "string"} if pa.types.is_string(kind) else json_schema(kind)
