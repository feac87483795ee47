"""Dates and timestamps in texts, as Spark's casts read them. Pure.

A timestamp is ``yyyy-MM-dd``, then perhaps ``T`` or a space and ``HH:mm:ss.SSSSSS``, then perhaps a zone; the
end may be left out, months to seconds may have one digit, and digits behind the microseconds do not count.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_TIMESTAMP = re.compile(
    r"(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*))?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_DATE = re.compile(r"(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2}))?(?::?(\d{2}))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def moment_of(text: str, zone: str) -> int | None:
    """Microseconds since the epoch; None when it is no timestamp.

    >>> moment_of("1970-01-01T00:00:01.5+00:00", "UTC"), moment_of("1970-01-01 1:00:00", "Europe/Paris")
    (1500000, 0)
    >>> moment_of("yesterday", "UTC")
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, written_zone = match.groups()
    at = _zone(written_zone.strip() if written_zone and written_zone.strip() else zone)
    if at is None:
        return None
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    try:
        moment = datetime(
            int(year), int(month or 1), int(day or 1),
            int(hour or 0), int(minute or 0), int(second or 0), microsecond, at,
        )  # fmt: skip
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def day_of(text: str) -> date | None:
    """The day; None when it is no date. What follows a ``T`` or a space does not count.

    >>> day_of("2026-1-5"), day_of("2026-13-01")
    (datetime.date(2026, 1, 5), None)
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day = match.groups()
    try:
        return date(int(year), int(month or 1), int(day or 1))
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo | None:
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(name)
    if match is not None:
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        if hours > 18 or minutes > 59 or seconds > 59:
            return None
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
