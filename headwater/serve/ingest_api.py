"""How OpenAPI describes the writing of events."""

from typing import Any

from headwater.serve.openapi import problems

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
        415: "The content type is not JSON.",
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


DESCRIPTION: dict[str, Any] = {
    "operationId": "writeEvents",
    "summary": "Write one event or many to a topic.",
    "parameters": [
        {"name": "topic", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},
        {
            "name": "key",
            "in": "query",
            "required": False,
            "description": "The columns that become the record's key, separated by commas.",
            "schema": {"type": "string"},
        },
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "A request that is repeated with the same key and body is written once.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        {"type": "object"},
                        {"type": "array", "minItems": 1, "items": {"type": "object"}},
                    ]
                }
            },
            "application/x-ndjson": {"schema": {"type": "string"}},
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
