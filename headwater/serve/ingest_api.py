"""How OpenAPI describes the writing of events."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from headwater.serve.ddl import UnknownType, struct_of
from headwater.serve.fitting import Fitting
from headwater.serve.openapi import json_schema, problems
from headwater.serve.reading_api import value_pattern
from headwater.streams.declarations import Stream, Table
from headwater.views.types import arrow_type

_TIME = pa.timestamp("us", "UTC")

_PLACE = {
    "type": "object",
    "properties": {
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "refused": {"type": "string", "description": "Why the event does not fit."},
        "kept": {
            "type": "object",
            "description": "Where a refused event is kept.",
            "properties": {
                "topic": {"type": "string"},
                "partition": {"type": "integer"},
                "offset": {"type": "integer"},
            },
        },
        "failed": {"type": "string", "description": "Why the broker did not take the event."},
    },
}
_RECEIPT = {
    "type": "object",
    "required": ["topic", "taken", "refused", "token", "events"],
    "properties": {
        "topic": {"type": "string"},
        "taken": {"type": "integer"},
        "refused": {"type": "integer"},
        "token": {"type": "string", "description": "What a read of a view waits for with ?at_least=."},
        "events": {"type": "array", "items": _PLACE, "description": "One for each event, in order."},
    },
}
_TOKEN = {
    "Headwater-Token": {"schema": {"type": "string"}},
    "Idempotent-Replayed": {"schema": {"type": "string", "enum": ["true"]}},
}
_RETRY = {"Retry-After": {"schema": {"type": "integer"}}}
_PROBLEMS = problems(
    {
        400: "The request makes no sense.",
        404: "The topic takes no events over HTTP.",
        413: "The body, or an event, is too large.",
        415: "The content type is not JSON, or its encoding not gzip.",
        422: "No event fits, or the key came before with another body.",
        429: "Too much is on its way to the broker.",
        503: "The broker has not acknowledged all of it.",
    }
)


def _receipt(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "headers": _TOKEN,
        "content": {"application/json": {"schema": _RECEIPT}},
    }


def describe_writing(fittings: Iterable[Fitting]) -> dict[str, Any]:
    """The addresses to write to, of each topic its own, with events as its streams and tables read them."""
    return {f"/topics/{fitting.topic}": {"post": _describe(fitting)} for fitting in fittings}


def _describe(fitting: Fitting) -> dict[str, Any]:
    event = event_schema(fitting.nodes)
    parameters: list[dict[str, Any]] = [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "A request that is repeated with the same key and body is written once.",
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": 255,
                "pattern": "^[!-~]([ -~]*[!-~])?$",
            },
        },
    ]
    if fitting.columns and not fitting.key:
        names = "|".join(re.escape(column) for column in fitting.columns)
        parameters.append(
            {
                "name": "key",
                "in": "query",
                "required": False,
                "description": "The columns that become the record's key, separated by commas.",
                "schema": {"type": "string", "pattern": f"^({names})(,({names})){{0,9}}$"},
            }
        )
    return {
        "operationId": f"write_{fitting.topic}",
        "tags": ["topics"],
        "summary": f"Write one event or many to {fitting.topic}.",
        "description": (
            "A JSON object is one event, an array has many, and so has application/x-ndjson, one a line. "
            "With `Content-Encoding: gzip` the body may be packed."
        ),
        "parameters": parameters,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"oneOf": [event, {"type": "array", "minItems": 1, "items": event}]}
                }
            },
        },
        "responses": {
            "200": _receipt("All events are in the log."),
            "207": _receipt("Some events are in the log; the others did not fit, and are kept aside."),
            **_PROBLEMS,
            "429": {**_PROBLEMS["429"], "headers": _RETRY},
            "503": {**_PROBLEMS["503"], "headers": _RETRY},
        },
    }


def event_schema(nodes: Sequence[Stream | Table]) -> dict[str, Any]:
    """The events of a topic as JSON Schema: what fits one of the streams and tables that read it.

    >>> from headwater.streams.app import App
    >>> event_schema([App("shop").stream("clicks", "page string, n tinyint")])["properties"]["n"]
    {'type': ['integer', 'null'], 'minimum': -128, 'maximum': 127}
    >>> event_schema([App("shop").table("users", key="id")])
    {'type': 'object', 'properties': {'id': {'type': ['string', 'number', 'boolean']}}, 'required': ['id']}
    """
    if len(nodes) > 1:
        return {"anyOf": [event_schema([node]) for node in nodes]}
    (node,) = nodes
    try:
        fields = struct_of(node.schema).fields
    except UnknownType:
        return {"type": "object"}
    columns = {field.name: field.dataType for field in fields}
    required = list(node.key) if isinstance(node, Table) else []
    if not columns:  # not known yet: any object with the key
        columns = dict.fromkeys(required, spark.StringType())
    if isinstance(node, Stream):
        required = [field.name for field in fields if field.name == node.time or not field.nullable]
    properties = {name: _value(kind, name in required) for name, kind in columns.items()}
    described: dict[str, Any] = {"type": "object", "properties": properties}
    return {**described, "required": required} if required else described


def _value(kind: spark.DataType, required: bool) -> dict[str, Any]:
    """The values that a column of this type is read from."""
    null = [] if required else ["null"]
    if isinstance(kind, spark.StringType):
        return {"type": ["string", "number", "boolean"]} if required else {}  # others become texts, too
    if isinstance(kind, spark.TimestampType | spark.TimestampNTZType):
        seconds = {"type": ["integer", *null], "minimum": -(10**9), "maximum": 10**10}
        return {"anyOf": [seconds, {"type": "string", "pattern": f"^{value_pattern(_TIME)}$"}]}
    if isinstance(kind, spark.DateType):
        return {"type": ["string", *null], "pattern": f"^{value_pattern(pa.date32())}$"}
    if isinstance(kind, spark.DecimalType):
        most = 10 ** (kind.precision - kind.scale) - 1
        unit = {"multipleOf": 1} if kind.scale == 0 else {}
        return {"type": ["number", *null], "minimum": -most, "maximum": most, **unit}
    if isinstance(kind, spark.BinaryType):
        return {"type": ["string", *null], "contentEncoding": "base64", "pattern": "^([A-Za-z0-9+/]{4})*$"}
    if isinstance(kind, spark.ArrayType):
        return {"type": ["array", *null], "items": _value(kind.elementType, False)}
    if isinstance(kind, spark.MapType):
        return {"type": ["object", *null], "additionalProperties": _value(kind.valueType, False)}
    if isinstance(kind, spark.StructType):
        members = {field.name: _value(field.dataType, False) for field in kind.fields}
        return {"type": ["object", *null], "properties": members}
    described = json_schema(arrow_type(kind.simpleString()))
    if "anyOf" in described:
        return {"anyOf": [{"type": ["number", *null]}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    return {**described, "type": [described["type"][0], *null]}
