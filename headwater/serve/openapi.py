"""The OpenAPI 3.1 description of the server of one application, made when it is asked for.

Each part describes its paths; this module puts them together and has what they share: problems, a view's
columns as JSON Schema, and the headers of reads.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater import __version__
from headwater.serve.serving import declared_views
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type

if TYPE_CHECKING:
    from headwater.serve.server import Server
    from headwater.serve.serving import Serving

Schema = dict[str, Any]

TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$"
_INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}

PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong, as RFC 9457 describes problems.",
    "required": ["title", "status", "operation", "subject", "cause", "next_step"],
    "properties": {
        "title": {"type": "string", "description": "The whole of it in one sentence."},
        "status": {"type": "integer"},
        "operation": {"type": "string", "description": "What was being done."},
        "subject": {"type": "string", "description": "To what."},
        "cause": {"type": "string", "description": "Why it failed."},
        "next_step": {"type": "string", "description": "What to do about it."},
    },
}


def events(*names: str) -> dict[str, Any]:
    """The content of an answer that is server-sent events of these names; the schema is that of one event.

    >>> events("upsert")["text/event-stream"]["schema"]["properties"]["event"]
    {'enum': ['upsert']}
    """
    members: Schema = {
        "id": {"type": "string"},
        "event": {"enum": list(names)},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": ["integer", "string"], "description": "Milliseconds until a client comes back."},
    }
    return {"text/event-stream": {"schema": {"type": "object", "properties": members}}}


def problems(causes: Mapping[int, str]) -> dict[str, Any]:
    """Answers that are problems, by their status.

    >>> problems({404: "There is no such view."})["404"]["description"]
    'There is no such view.'
    """
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {str(status): {"description": cause, "content": content} for status, cause in causes.items()}


def json_schema(kind: pa.DataType) -> Schema:
    """The values of a type as they are in JSON; all of them may be null.

    >>> json_schema(pa.int8())
    {'type': ['integer', 'null'], 'minimum': -128, 'maximum': 127}
    """
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        return {"type": ["integer", "null"], "minimum": -(2**bits), "maximum": 2**bits - 1}
    if pa.types.is_boolean(kind):
        return {"type": ["boolean", "null"]}
    if pa.types.is_floating(kind):
        return {"anyOf": [{"type": ["number", "null"]}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    if pa.types.is_decimal(kind):
        return {"type": ["number", "null"]}
    if pa.types.is_timestamp(kind):
        return (
            {"type": ["string", "null"], "format": "date-time"} if kind.tz else {"type": ["string", "null"]}
        )
    if pa.types.is_date(kind):
        return {"type": ["string", "null"], "format": "date"}
    if pa.types.is_binary(kind):
        return {"type": ["string", "null"], "contentEncoding": "base64"}
    if pa.types.is_struct(kind):
        members = {member.name: json_schema(member.type) for member in kind}
        return {"type": ["object", "null"], "properties": members, "required": list(members)}
    if pa.types.is_map(kind):
        return {"type": ["object", "null"], "additionalProperties": json_schema(kind.item_type)}
    if pa.types.is_list(kind):
        return {"type": ["array", "null"], "items": json_schema(kind.value_type)}
    return {"type": "null"} if pa.types.is_null(kind) else {"type": ["string", "null"]}


def row_schema(columns: Iterable[tuple[str, str]]) -> Schema:
    """A row of these columns, given with Spark's types.

    >>> row_schema([("word", "string")])["required"]
    ['word']
    """
    members = {name: json_schema(arrow_type(kind)) for name, kind in columns}
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def serving_schemas(serving: "Serving") -> dict[str, ViewSchema]:
    """The views of the application that can be read at this moment, by name."""
    declared = declared_views(serving.app)
    return {
        info.name: version.schema
        for info in serving.store.views()
        for version in info.versions
        if info.name in declared and version.version == info.serving
    }


def document(server: "Server") -> dict[str, Any]:
    """The description of all that a server answers, as the application is at this moment."""
    paths: dict[str, Any] = {}
    for part in server.parts:
        paths.update(part.describe())
    paths.update(_own_paths())
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": f"Headwater: {server.serving.app.name}",
            "version": __version__,
            "description": "Views to read and follow, topics to write and follow.",
        },
        "paths": paths,
        "components": {"schemas": {"Problem": PROBLEM}},
    }
    if server.access.needs_token:
        described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
        unknown = problems({401: "The request does not carry the server's token."})
        for path, methods in paths.items():
            for method in methods.values():
                if path == "/health":
                    method["security"] = []
                elif isinstance(method, dict) and "responses" in method:
                    method["responses"] |= unknown
    return described


def _own_paths() -> dict[str, Any]:
    def answer(description: str, kind: str, schema: Schema) -> dict[str, Any]:
        return {"200": {"description": description, "content": {kind: {"schema": schema}}}}

    health: Schema = {
        "type": "object",
        "required": ["status", "application", "version"],
        "properties": {name: {"type": "string"} for name in ("status", "application", "version")},
    }
    return {
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "Whether the server answers.",
                "responses": answer("It does.", "application/json", health),
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Counters and gauges for Prometheus.",
                "responses": answer("They.", "text/plain", {"type": "string"}),
            }
        },
    }
