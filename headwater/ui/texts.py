"""Figures as people read them. Pure."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson

NONE = "–"
DIGITS = 12  # of a number in a table


def count(number: float | None) -> str:
    """A count, short from ten thousand on.

    >>> count(1234), count(56_789), count(3_400_000), count(None)
    ('1,234', '56.8k', '3.4M', '–')
    """
    if number is None:
        return NONE
    if abs(number) < 10_000:
        return f"{number:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:,.0f}"


def counted(number: float, thing: str, things: str = "") -> str:
    """A count of things.

    >>> counted(1, "row"), counted(20_000, "row"), counted(2, "batch", "batches")
    ('1 row', '20.0k rows', '2 batches')
    """
    return f"{count(number)} {thing if number == 1 else things or thing + 's'}"


def rate(number: float | None) -> str:
    """Something a second.

    >>> rate(0.27), rate(12.0), rate(45_000), rate(0)
    ('0.3/s', '12/s', '45.0k/s', '0/s')
    """
    if number is None:
        return NONE
    if 0 < number < 9.95 and round(number, 1) != round(number):
        return f"{number:.1f}/s"
    return f"{count(number)}/s"


def size(number: float | None) -> str:
    """Bytes.

    >>> size(512), size(20_480), size(3_500_000)
    ('512 B', '20 kB', '3.5 MB')
    """
    if number is None:
        return NONE
    for step, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= step:
            shown = number / step
            return f"{shown:.1f} {unit}" if shown < 10 else f"{shown:.0f} {unit}"
    return f"{number:.0f} B"


def span(seconds: float | None) -> str:
    """A length of time in one or two units.

    >>> span(0.25), span(42), span(150), span(7300), span(200_000)
    ('250 ms', '42 s', '2 min 30 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10 and round(seconds, 1) != round(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for length, unit, smaller, name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= length:
            rest = whole % length // smaller
            return f"{whole // length} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"


def ago(then: float | None, now: float) -> str:
    """How long ago a moment was, both in seconds since the epoch.

    >>> ago(100.0, 161.0), ago(100.0, 100.4), ago(None, 1.0)
    ('1 min 1 s ago', 'just now', '–')
    """
    if then is None:
        return NONE
    return "just now" if now - then < 1.5 else f"{span(round(now - then))} ago"


def clock(seconds: float) -> str:
    """A moment as the time of day in UTC, with the date when it is not today's.

    >>> clock(1767355200.0)
    '2026-01-02 12:00:00'
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    today = datetime.now(UTC).date() == moment.date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def moment(text: str | None) -> float | None:
    """The seconds of a time in ISO 8601, as Spark tells a watermark; None before there is one.

    >>> moment("2026-01-02T12:00:00.000Z"), moment("1970-01-01T00:00:00.000Z")
    (1767355200.0, None)
    """
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds > 86_400 else None


def value(one: Any) -> str:
    """A value of a row in a table cell; a window is its start and end.

    >>> value({"start": datetime(2026, 1, 2, 12, tzinfo=UTC), "end": datetime(2026, 1, 2, 12, 1, tzinfo=UTC)})
    '2026-01-02 12:00:00 – 12:01:00'
    >>> value(None), value(2.0), value([1, 2]), value(True)
    ('null', '2.0', '[1,2]', 'true')
    >>> value(12.089999999999998), value(1e300)  # what adding up leaves behind helps nobody
    ('12.09', '1e+300')
    """
    if one is None:
        return "null"
    if isinstance(one, bool):
        return "true" if one else "false"
    if isinstance(one, datetime):
        text = one.strftime("%Y-%m-%d %H:%M:%S")
        return f"{text}.{one.microsecond // 1000:03d}" if one.microsecond else text
    if isinstance(one, float) and len(str(one)) > DIGITS and 1e-4 <= abs(one) < 10.0**DIGITS:
        return f"{one:.{DIGITS}g}"
    if isinstance(one, int | float | Decimal | str | date):
        return str(one)
    if isinstance(one, bytes):
        return f"0x{one[:32].hex()}" + ("…" if len(one) > 32 else "")
    if is_window(one):
        start, end = value(one["start"]), value(one["end"])
        return f"{start} – {end[11:] if end[:10] == start[:10] else end}"
    return orjson.dumps(one, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def is_window(one: Any) -> bool:
    """Whether a value is a window: a struct of a start and an end.

    >>> is_window({"start": 1, "end": 2})
    False
    """
    return (
        isinstance(one, dict)
        and one.keys() == {"start", "end"}
        and all(isinstance(side, datetime) for side in one.values())
    )


def shortened(text: str, most: int) -> str:
    """A text with at most so many characters.

    >>> shortened("a long story", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
