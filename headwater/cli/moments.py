"""Moments as people write them: an ISO 8601 time, epoch milliseconds, "10 minutes ago", "1h"."""

import re
from datetime import datetime, timedelta

from headwater.errors import BadInput

_UNITS = {
    "ms": 0.001, "millisecond": 0.001,
    "s": 1, "sec": 1, "second": 1,
    "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600,
    "d": 86400, "day": 86400,
    "w": 604800, "week": 604800,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_PAUSE = re.compile(r"(\s|,|and\b)*")

# A number below this, as milliseconds, lies in 1973 or before: it was meant as seconds.
_SMALLEST_MILLISECONDS = 10**11
LARGEST_MILLISECONDS = 2**63 - 1
_ACCEPTED = "Give an ISO 8601 time, epoch milliseconds, or an age such as '10 minutes ago' or 1h."


def parse_moment(text: str, flag: str, now: datetime | None = None) -> int:
    """The moment in milliseconds since the epoch. A time without a zone is local time.

    >>> noon = datetime.fromisoformat("2026-01-02T12:00:00+00:00")
    >>> parse_moment("2026-01-02T11:30:00Z", "--from-time") == parse_moment("30 minutes ago", "", noon)
    True
    >>> parse_moment("1h30m", "", noon) - parse_moment("2h", "", noon)
    1800000
    """
    text = text.strip()
    now = now or datetime.now().astimezone()
    if re.fullmatch(r"\d+", text):
        milliseconds = int(text)
        if 0 < milliseconds < _SMALLEST_MILLISECONDS:
            raise BadInput("read", f"{flag} {text}", "milliseconds are wanted, and these look like seconds")
        if milliseconds > LARGEST_MILLISECONDS:
            raise BadInput("read", f"{flag} {text}", "no record can be so late", _ACCEPTED)
        return milliseconds
    if text.lower() == "now":
        return _milliseconds(now)
    try:
        age = parse_age(text)
        return _milliseconds(datetime.fromisoformat(text) if age is None else now - age)
    except (ValueError, OverflowError) as error:
        raise BadInput("read", f"{flag} {text}", "it is not a time", _ACCEPTED) from error


def parse_age(text: str) -> timedelta | None:
    """How long ago ``text`` says; None when it says something else.

    >>> parse_age("1 day and 2 hours ago")
    datetime.timedelta(days=1, seconds=7200)
    """
    rest = text.lower().strip().removesuffix("ago").strip()
    seconds, position = 0.0, 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            return None
        unit = match[2] if match[2] in _UNITS else match[2].removesuffix("s")
        if unit not in _UNITS:
            return None
        seconds += float(match[1]) * _UNITS[unit]
        pause = _PAUSE.match(rest, match.end())
        position = pause.end() if pause else match.end()
    try:
        return timedelta(seconds=seconds) if position else None
    except OverflowError:
        return None


def _milliseconds(moment: datetime) -> int:
    # The first negative ones stand for the ends of a partition.
    return max(round(moment.timestamp() * 1000), 0)


def iso(milliseconds: int) -> str:
    """A timestamp for people, in UTC.

    >>> iso(1767355200123)
    '2026-01-02T12:00:00.123Z'
    """
    from datetime import UTC

    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)  # outside of the years 1 to 9999
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
