"""Answers that are the same everywhere: JSON, and errors as RFC 9457 describes problems.

A problem has ``title`` (the whole sentence), ``status``, and the four parts of every error of Headwater:
``operation``, ``subject``, ``cause`` and ``next_step``.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from headwater.errors import (
    BadInput,
    HeadwaterError,
    InvalidTopic,
    NotAllowed,
    NotFound,
    NotInTime,
    NotReady,
    StoreFailed,
    TokenMissing,
    UnknownTopic,
    UnknownView,
    Unreachable,
)

STATUSES: Mapping[type[HeadwaterError], int] = {
    BadInput: 400,
    InvalidTopic: 400,
    TokenMissing: 401,
    NotAllowed: 403,
    NotFound: 404,
    UnknownView: 404,
    UnknownTopic: 404,
    NotReady: 503,
    StoreFailed: 503,
    Unreachable: 503,
    NotInTime: 504,
}


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain data as JSON; times are ISO 8601, decimals and other values texts.

    >>> as_json({"n": 1}).body
    b'{"n":1}'
    """
    body = orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z)
    return Response(body, status, dict(headers or {}), "application/json")


def problem(
    error: HeadwaterError, status: int | None = None, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """An error as an answer; one that may pass says when to ask again.

    >>> problem(BadInput("read", "the view sales", "there is no column 'x'")).status_code
    400
    """
    if status is None:
        status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    content = {
        "title": str(error),
        "status": status,
        "operation": error.operation,
        "subject": error.subject,
        "cause": error.cause,
        "next_step": error.next_step,
        **more,
    }
    again = {"Retry-After": "1"} if status == 503 else {}
    return Response(
        orjson.dumps(content, default=str), status, {**again, **(headers or {})}, "application/problem+json"
    )
