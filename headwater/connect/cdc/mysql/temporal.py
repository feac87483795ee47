"""Dates and times as Debezium has them, from rows of the log and from result sets. Pure.

What is no day (``0000-00-00``, ``2024-02-00``) is null, also where Debezium has 1970-01-01.
"""

from collections.abc import Callable
from datetime import date

from headwater.connect.cdc.envelope import NULL

EPOCH = date(1970, 1, 1).toordinal()
_REMEMBERED = 20_000  # days; then it begins anew


def days(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; None for what is no day (month or day 0)."""
    try:
        if year == 0:  # a leap year like 400 years later, which Python knows
            return date(400, month, day).toordinal() - 146_097 - EPOCH
        return date(year, month, day).toordinal() - EPOCH
    except ValueError:  # ALLOW_INVALID_DATES lets 2024-02-31 in
        return None


def date_binary(raw: bytes) -> bytes:
    """DATE: five bits for the day, four for the month, the rest for the year."""
    packed = int.from_bytes(raw, "little")
    year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
    number = days(year, month, day)
    return b"%d" % number if number is not None else NULL


def date_text(raw: bytes) -> bytes:
    """DATE in a result set: ``2024-02-29``."""
    number = days(int(raw[:4]), int(raw[5:7]), int(raw[8:10]))
    return b"%d" % number if number is not None else NULL


class _Days(dict[int, int | None]):
    """Milliseconds at the beginning of a day, by year * 13 + month and day in one number."""

    def __missing__(self, packed: int) -> int | None:
        if len(self) >= _REMEMBERED:
            self.clear()
        months = packed >> 5
        number = days(months // 13, months % 13, packed & 31)
        made = self[packed] = None if number is None else number * 86_400
        return made


_day_seconds = _Days()


def _fraction_size(digits: int) -> int:
    return (digits + 1) // 2


def datetime_size(digits: int) -> int:
    return 5 + _fraction_size(digits)


def datetime_decoder(digits: int) -> Callable[[bytes], bytes]:
    """DATETIME(digits): 40 bits big-endian (sign, year * 13 + month, day, hour, minute, second), then a fraction in
    units of 1/100, 1/10,000 or 1/1,000,000 of a second. Milliseconds up to three digits, else microseconds."""
    size, bits = _fraction_size(digits), _fraction_size(digits) * 8
    mask, to_micro = (1 << bits) - 1, 10 ** (6 - 2 * size)

    def convert(raw: bytes) -> bytes:
        packed = int.from_bytes(raw, "big") - (1 << (39 + bits))
        whole = packed >> bits
        seconds = _day_seconds[whole >> 17]
        hour, minute, second = whole >> 12 & 31, whole >> 6 & 63, whole & 63
        micro = (packed & mask) * to_micro
        if seconds is None:
            return NULL
        seconds += hour * 3600 + minute * 60 + second
        if digits <= 3:
            return b"%d" % (seconds * 1000 + micro // 1000)
        return b"%d" % (seconds * 1_000_000 + micro)

    if digits:
        return convert

    def convert_whole(raw: bytes) -> bytes:
        whole = int.from_bytes(raw, "big") - 0x80_0000_0000
        seconds = _day_seconds[whole >> 17]
        if seconds is None:
            return NULL
        return b"%d" % ((seconds + (whole >> 12 & 31) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)) * 1000)

    return convert_whole


def _fraction(micro: int, digits: int) -> bytes:
    return b"" if not digits else b".%b" % (b"%06d" % micro)[:digits]


def datetime_text_decoder(digits: int) -> Callable[[bytes], bytes]:
    """DATETIME in a result set: ``2024-02-29 12:00:00.000001``."""
    unit = 1000 if digits <= 3 else 1_000_000
    remembered: dict[bytes, int | None] = {}

    def convert(raw: bytes) -> bytes:
        day = raw[:10]
        if day not in remembered:
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
            number = days(int(raw[:4]), int(raw[5:7]), int(raw[8:10]))
            remembered[day] = None if number is None else number * 86_400
        seconds = remembered[day]
        if seconds is None:
            return NULL
        seconds += int(raw[11:13]) * 3600 + int(raw[14:16]) * 60 + int(raw[17:19])
        if not digits:
            return b"%d" % (seconds * 1000)
        micro = int(raw[20:].ljust(6, b"0"))
        return b"%d" % (seconds * unit + (micro if unit != 1000 else micro // 1000))

    return convert


def timestamp_decoder(digits: int) -> Callable[[bytes], bytes]:
    """TIMESTAMP(digits): seconds big-endian and a fraction as in DATETIME; a text in UTC. Zero is no moment."""
    size = _fraction_size(digits)
    to_micro = 10 ** (6 - 2 * size)
    day_texts: dict[int, bytes] = {}

    def convert(raw: bytes) -> bytes:
        seconds = int.from_bytes(raw[:4], "big")
        micro = int.from_bytes(raw[4:], "big") * to_micro if size else 0
        if not seconds and not micro:
            return NULL
        day, second = divmod(seconds, 86_400)
        text = day_texts.get(day)
        if text is None:
            if len(day_texts) >= _REMEMBERED:
                day_texts.clear()
            text = day_texts[day] = date.fromordinal(EPOCH + day).isoformat().encode()
        fraction = _fraction(micro, digits) if digits else b""
        return b'"%bT%02d:%02d:%02d%bZ"' % (
            text,
            second // 3600,
            second // 60 % 60,
            second % 60,
            fraction,
        )

    return convert


def timestamp_text(raw: bytes) -> bytes:
    """TIMESTAMP in a result set of a session in UTC."""
    if raw[:10] == b"0000-00-00":
        return NULL
    return b'"%bT%bZ"' % (raw[:10], raw[11:])


def time_size(digits: int) -> int:
    return 3 + _fraction_size(digits)


def time_decoder(digits: int) -> Callable[[bytes], bytes]:
    """TIME(digits): 24 bits and a fraction, negative numbers below the middle; microseconds."""
    bits = _fraction_size(digits) * 8
    middle, mask, to_micro = 0x80_0000 << bits, (1 << bits) - 1, 10 ** (6 - 2 * _fraction_size(digits))

    def convert(raw: bytes) -> bytes:
        packed = int.from_bytes(raw, "big") - middle
        negative, packed = packed < 0, abs(packed)
        whole = packed >> bits
        seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        micro = seconds * 1_000_000 + (packed & mask) * to_micro
        return b"%d" % (-micro if negative else micro)

    return convert


def time_text(raw: bytes) -> bytes:
    """TIME in a result set: ``-838:59:59.000000``."""
    negative = raw.startswith(b"-")
    hours, minutes, rest = raw.lstrip(b"-").split(b":")
    seconds, _, fraction = rest.partition(b".")
    micro = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, b"0"))
    return b"%d" % (-micro if negative else micro)


def old_time(raw: bytes) -> bytes:
    """TIME before MySQL 5.6: a number like 123456 for 12:34:56."""
    number = int.from_bytes(raw, "little", signed=True)
    sign, number = (-1 if number < 0 else 1), abs(number)
    seconds = number // 10_000 * 3600 + number // 100 % 100 * 60 + number % 100
    return b"%d" % (sign * seconds * 1_000_000)


def old_datetime(raw: bytes) -> bytes:
    """DATETIME before MySQL 5.6: a number like 20240229123456."""
    text = b"%014d" % int.from_bytes(raw, "little")
    day, clock = text[:8], text[8:]
    number = days(int(day[:4]), int(day[4:6]), int(day[6:8]))
    if number is None:
        return NULL
    seconds = number * 86_400 + int(clock[:2]) * 3600 + int(clock[2:4]) * 60 + int(clock[4:])
    return b"%d" % (seconds * 1000)
