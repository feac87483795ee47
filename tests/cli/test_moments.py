"""Moments as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from headwater.cli.moments import iso, parse_age, parse_moment
from headwater.errors import BadInput

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
NOW_MS = 1_767_355_200_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1767355200000", NOW_MS),
        ("now", NOW_MS),
        ("2026-01-02T12:00:00Z", NOW_MS),
        ("2026-01-02T13:00:00+01:00", NOW_MS),
        ("2026-01-02 12:00:00.250+00:00", NOW_MS + 250),
        ("1h", NOW_MS - 3_600_000),
        ("90s", NOW_MS - 90_000),
        ("10 minutes ago", NOW_MS - 600_000),
        ("1 Day ago", NOW_MS - 86_400_000),
        ("1h30m", NOW_MS - 5_400_000),
        ("1.5 hours", NOW_MS - 5_400_000),
        ("2 weeks, 1 day and 3 hours ago", NOW_MS - (15 * 24 + 3) * 3_600_000),
        ("250 ms", NOW_MS - 250),
        (str(2**63 - 1), 2**63 - 1),
        ("1969-12-31T23:59:59.999Z", 0),
        ("1900-01-01T00:00:00Z", 0),
        ("4000 weeks ago", 0),
    ],
)
def test_moments(text: str, milliseconds: int) -> None:
    assert parse_moment(text, "--from-time", NOW) == milliseconds


def test_a_time_without_a_zone_is_local_time() -> None:
    local = datetime(2026, 1, 2, 12, 0).astimezone()
    assert parse_moment("2026-01-02T12:00", "") == round(local.timestamp() * 1000)
    assert parse_moment("2026-01-02", "") == round(datetime(2026, 1, 2).timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "1 parsec ago",
        "10",
        "2026-13-01",
        "1h of",
        "-1h",
        "ago",
        "9" * 30 + "w",
        "999999 weeks",
        str(2**63),
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot read --to-time"):
        parse_moment(text, "--to-time", NOW)


def test_ages() -> None:
    assert parse_age("1h") == timedelta(hours=1)
    assert parse_age("2026-01-02") is None


def test_timestamps_outside_of_the_calendar_are_shown_as_they_are() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(10**18) == "1" + "0" * 18
