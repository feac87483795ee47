"""Schemas by number from a schema registry, and the five bytes with which its clients begin a value.

A value is a zero byte, the schema's number in four bytes, then the data.
"""

import json
import struct
import urllib.error
import urllib.request
from functools import lru_cache
from typing import Any

from headwater.errors import RequestFailed

HEADER = struct.Struct(">bI")
TIMEOUT_SECONDS = 10.0


def split_header(value: bytes) -> tuple[int, bytes]:
    """The number of the schema, and the data behind it.

    >>> split_header(b"\\x00\\x00\\x00\\x00\\x07data")
    (7, b'data')
    """
    if len(value) < HEADER.size or value[0] != 0:
        raise ValueError("it does not begin with the number of a schema")
    return HEADER.unpack_from(value)[1], value[HEADER.size :]


@lru_cache(maxsize=1024)
def schema_by_number(registry: str, number: int) -> str:
    """The schema's text; asked for once in a process."""
    url = f"{registry.rstrip('/')}/schemas/ids/{number}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            document: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ValueError(f"the registry has no schema {number}") from error
        raise _failed(url, f"it answered {error.code}") from error
    except OSError as error:
        raise _failed(url, str(error)) from error
    return str(document["schema"])


def _failed(url: str, cause: str) -> RequestFailed:
    # Not a problem of the value: the query fails, and starts again until the registry answers.
    return RequestFailed("get a schema from", url, cause, "Look after the schema registry.")
