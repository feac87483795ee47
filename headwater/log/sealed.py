"""Small JSON files with a checksum over what they say, so that a digit that has changed is noticed.

The checksum is that of the object without it, written without blanks: how the file is laid out does not matter. A
file without one passes: it is from before there were any, or somebody took it out to change something by hand.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from fastcrc.crc32 import iscsi as crc32c

CHECKSUM = "checksum"
BY_HAND = f"if you changed it yourself, take {CHECKSUM!r} out of it"


class Spoilt(ValueError):
    """What is wrong with the content of a file."""


def seal(content: Mapping[str, Any], layout: int = orjson.OPT_INDENT_2) -> bytes:
    """The file that says this.

    >>> unseal(seal({"a": 1}))
    {'a': 1}
    >>> unseal(seal({"a": 1}).replace(b"1", b"2", 1))
    Traceback (most recent call last):
    ...
    headwater.log.sealed.Spoilt: its checksum does not match: something in it is not as it was written
    """
    return orjson.dumps({**content, CHECKSUM: checksum(orjson.dumps(content))}, option=layout)


def unseal(raw: bytes) -> dict[str, Any]:
    """What the file says; Spoilt when it is no object, or not the one that was written."""
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Spoilt(str(error)) from None
    if not isinstance(content, dict):
        raise Spoilt("not an object")
    if CHECKSUM in content:
        told = content.pop(CHECKSUM)
        try:
            is_right = told == checksum(orjson.dumps(content))
        except orjson.JSONEncodeError:  # a number that was written would not be as large
            is_right = False
        if not is_right:
            raise Spoilt("its checksum does not match: something in it is not as it was written")
    return content


def checksum(content: bytes) -> str:
    """As these files have it.

    >>> checksum(b"123456789")
    'e3069283'
    """
    return f"{crc32c(content):08x}"
