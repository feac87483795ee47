"""Dates and times from PostgreSQL's text (ISO style, UTC) to Debezium's numbers and strings. No I/O.

PostgreSQL's years reach from 4714 BC to 294276 (dates to 5874897), and infinity; Python's do not. The usual years
take the short way through datetime; all others are counted here, in the Gregorian calendar both ways.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DAY_MICROSECONDS = 86_400_000_000

# What Debezium has for infinite timestamps, in microseconds. For dates it overflows; these are the largest and
# the smallest number of the type, as PostgreSQL itself keeps infinite dates.
_INFINITE_TIMESTAMP = {b"infinity": 9223372036825200000, b"-infinity": -9223372036832400000}
_INFINITE_DATE = {b"infinity": b"2147483647", b"-infinity": b"-2147483648"}

_moment = re.compile(rb"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(?:\+00)?( BC)?").fullmatch
_time = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?").fullmatch
_interval_parts = re.compile(rb"([+-]?\d+) (year|mon|day)s?").findall
_interval_time = re.compile(rb"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?$").search


def days(text: bytes) -> bytes:
    """A date as days since 1970.

    >>> days(b"1970-01-02"), days(b"0044-03-15 BC"), days(b"20000-01-01"), days(b"infinity")
    (b'1', b'-735160', b'6585322', b'2147483647')
    """
    try:
        return b"%d" % (date.fromisoformat(text.decode()).toordinal() - _EPOCH_DAY)
    except ValueError:
        return _INFINITE_DATE.get(text) or b"%d" % (_count(text) // _DAY_MICROSECONDS)


def timestamp_microseconds(text: bytes) -> bytes:
    """A timestamp without a zone as microseconds since 1970.

    >>> timestamp_microseconds(b"1970-01-01 00:00:01.5"), timestamp_microseconds(b"0001-01-01 00:00:00 BC")
    (b'1500000', b'-62167219200000000')
    """
    try:
        return b"%d" % ((datetime.fromisoformat(text.decode()) - _EPOCH) // _MICROSECOND)
    except ValueError:
        return b"%d" % _microseconds(text)


def timestamp_milliseconds(text: bytes) -> bytes:
    """
    >>> timestamp_milliseconds(b"1970-01-01 00:00:01.5")
    b'1500'
    """
    return b"%d" % (_microseconds(text) // 1000)


def _microseconds(text: bytes) -> int:
    try:
        return (datetime.fromisoformat(text.decode()) - _EPOCH) // _MICROSECOND
    except ValueError:
        found = _INFINITE_TIMESTAMP.get(text)
        return _count(text) if found is None else found


def _count(text: bytes) -> int:
    """Microseconds since 1970 of a date or timestamp of any year."""
    found = _moment(text)
    if found is None:
        raise ValueError(f"not a date: {text!r}")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if found[8]:
        year = 1 - year
    # The calendar repeats itself every 400 years, which are 146,097 days.
    cycles, within = divmod(year - 1, 400)
    ordinal = date(within + 1, month, day).toordinal() + 146_097 * cycles
    seconds = int(found[4] or 0) * 3600 + int(found[5] or 0) * 60 + int(found[6] or 0)
    fraction = int((found[7] or b"").ljust(6, b"0"))
    return (ordinal - _EPOCH_DAY) * _DAY_MICROSECONDS + seconds * 1_000_000 + fraction


def zoned_timestamp(precision: int) -> Callable[[bytes], bytes]:
    """A timestamp with a zone (the session's is UTC) as ISO text, with as many digits as the column has.

    >>> zoned_timestamp(6)(b"2020-01-02 03:04:05.1+00"), zoned_timestamp(0)(b"0044-03-15 00:00:00+00 BC")
    (b'"2020-01-02T03:04:05.100000Z"', b'"-0043-03-15T00:00:00Z"')
    """

    zeros = b"0" * precision

    def convert(text: bytes) -> bytes:
        if text[4] == 45 and text[-3:] == b"+00" and len(text) > 20:  # a year of four digits, not BC
            clock = text[11:-3]
            if precision:
                clock = (clock if len(clock) > 8 else clock + b".") + zeros[
                    len(clock) - 9 if len(clock) > 8 else 0 :
                ]
            return b'"%bT%bZ"' % (text[:10], clock)
        found = _moment(text)
        if found is None:
            return b'"%b"' % text  # infinity
        year = found[1]
        if found[8]:
            number = 1 - int(year)
            year = b"0000" if number == 0 else b"-%04d" % -number
        elif len(year) > 4:
            year = b"+" + year
        point = b"." + (found[7] or b"").ljust(precision, b"0") if precision else b""
        return b'"%b-%b-%bT%b:%b:%b%bZ"' % (
            year,
            found[2],
            found[3],
            found[4],
            found[5],
            found[6],
            point,
        )

    return convert


def time_microseconds(text: bytes) -> bytes:
    """
    >>> time_microseconds(b"00:00:01.5"), time_microseconds(b"24:00:00")
    (b'1500000', b'86400000000')
    """
    fraction = text[9:]
    seconds = int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:8])
    return b"%d" % (seconds * 1_000_000 + int(fraction.ljust(6, b"0")) if fraction else seconds * 1_000_000)


def time_milliseconds(text: bytes) -> bytes:
    """
    >>> time_milliseconds(b"00:00:01.5")
    b'1500'
    """
    return b"%d" % (int(time_microseconds(text)) // 1000)


def zoned_time(text: bytes) -> bytes:
    """A time with a zone, moved to UTC.

    >>> zoned_time(b"10:00:00+02"), zoned_time(b"10:00:00.25-15:59:59"), zoned_time(b"24:00:00+00")
    (b'"08:00:00Z"', b'"01:59:59.25Z"', b'"24:00:00Z"')
    """
    found = _time(text)
    if found is None:
        raise ValueError(f"not a time with a zone: {text!r}")
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    offset = int(found[6] or 0) * 3600 + int(found[7] or 0) * 60 + int(found[8] or 0)
    if offset:
        seconds = (seconds - (offset if found[5] == b"+" else -offset)) % 86_400
    fraction = (found[4] or b"").rstrip(b"0")
    point = b"." + fraction if fraction else b""
    return b'"%02d:%02d:%02d%bZ"' % (seconds // 3600, seconds // 60 % 60, seconds % 60, point)


def interval(text: bytes) -> bytes:
    """An interval as ISO 8601 text, as Debezium's interval.handling.mode=string has it; nothing is rounded.

    Its default, a number of microseconds, takes a month for 30.4375 days and ends at 2^63.

    >>> interval(b"1 year 2 mons -3 days +04:05:06.78"), interval(b"-00:00:01")
    (b'"P1Y2M-3DT4H5M6.78S"', b'"P0Y0M0DT0H0M-1S"')
    """
    parts = {unit: int(number) for number, unit in _interval_parts(text)}
    hours = minutes = seconds = 0
    sign, fraction = b"", b""
    found = _interval_time(text)
    if found is not None:
        sign = b"-" if found[1] == b"-" else b""
        hours, minutes, seconds = int(found[2]), int(found[3]), int(found[4])
        fraction = (found[5] or b"").rstrip(b"0")
    elif not parts and text not in (b"00:00:00", b""):
        return b'"%b"' % text  # infinity, since PostgreSQL 17
    whole = b"%d.%b" % (seconds, fraction) if fraction else b"%d" % seconds
    return b'"P%dY%dM%dDT%b%dH%b%dM%b%bS"' % (
        parts.get(b"year", 0),
        parts.get(b"mon", 0),
        parts.get(b"day", 0),
        sign if hours else b"",
        hours,
        sign if minutes else b"",
        minutes,
        sign if seconds or fraction else b"",
        whole,
    )


def at_utc(microseconds: int) -> datetime:
    """A commit's time for people."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
