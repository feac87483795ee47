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
_CYCLE_DAYS = 146_097  # of 400 years
_DAYS = re.compile(r"[+-]?\d+", re.ASCII)


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
    cycles, within = _cycles(int(year))
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    try:
        moment = datetime(
            within, int(month or 1), int(day or 1),
            int(hour or 0), int(minute or 0), int(second or 0), microsecond, at,
        )  # fmt: skip
        since = (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND + cycles * _CYCLE_DAYS * 86_400_000_000
    except (ValueError, OverflowError):
        return None
    return since if -(2**63) <= since < 2**63 else None


def day_of(text: str) -> int | None:
    """Days since the epoch; None when it is no date. What follows a ``T`` or a space does not count.

    A number alone that is no year counts days: so Spark wrote dates long ago, and reads them still.

    >>> day_of("1970-1-5"), day_of("1970-13-01"), day_of("12")
    (4, None, 12)
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        number = _DAYS.fullmatch(text)
        days = int(number[0]) if number else 2**31
        return days if -(2**31) <= days < 2**31 else None
    year, month, day = match.groups()
    cycles, within = _cycles(int(year))
    try:
        return (date(within, int(month or 1), int(day or 1)) - _EPOCH.date()).days + cycles * _CYCLE_DAYS
    except ValueError:
        return None


def _cycles(year: int) -> tuple[int, int]:
    """Years beyond Python's, by the calendar's cycles of 400 years.

    >>> _cycles(2026), _cycles(12026)
    ((0, 2026), (6, 9626))
    """
    cycles = max(0, -(-(year - 9999) // 400))
    return cycles, year - 400 * cycles


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
