"""Durations as people write them: ``"30 seconds"``, ``"1 hour 30 minutes"``, ``"250 ms"``."""

import re
from datetime import timedelta

from headwater.errors import BadDuration

_MICROSECONDS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")

Duration = str | timedelta


def microseconds(duration: Duration, *, use: str = "duration", zero: bool = False) -> int:
    """The length of a duration; `use` says in errors what it was given for.

    >>> microseconds("1 minute 30 seconds")
    90000000
    >>> microseconds("-5 seconds", use="lateness")
    Traceback (most recent call last):
    ...
    headwater.errors.BadDuration: cannot use '-5 seconds' as lateness: it is not a length of time. Write a \
number and a unit, such as '30 seconds', '5 minutes' or '1 hour 30 minutes'.
    """
    if isinstance(duration, timedelta):
        total = round(duration / timedelta(microseconds=1))
    else:
        total = _parsed(duration, use)
    if total < 0 or (total == 0 and not zero):
        raise BadDuration("use", f"{str(duration)!r} as {use}", "it has to be longer than nothing")
    return total


def _parsed(text: str, use: str) -> int:
    position, total = 0, 0.0
    text = str(text)
    while match := _PART.match(text, position):
        unit = match[2].lower()
        scale = _MICROSECONDS.get(unit) or _MICROSECONDS.get(unit.removesuffix("s"))
        if scale is None:
            raise BadDuration("use", f"{text!r} as {use}", f"{match[2]!r} is not a unit of time")
        total += float(match[1]) * scale
        position = match.end()
    if position == 0 or text[position:].strip():
        raise BadDuration("use", f"{text!r} as {use}", "it is not a length of time")
    return round(total)


def interval(duration: Duration, *, use: str = "duration", zero: bool = False) -> str:
    """The same, as Spark reads it.

    >>> interval("1 minute 30 seconds")
    '90000 milliseconds'
    >>> interval("1 microsecond")
    '1 microseconds'
    """
    length = microseconds(duration, use=use, zero=zero)
    return f"{length} microseconds" if length % 1000 else f"{length // 1000} milliseconds"
