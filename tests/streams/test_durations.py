"""Lengths of time as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadDuration
from headwater.streams.durations import interval, microseconds

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("10s", 10 * SECOND),
        ("250 ms", 250_000),
        ("5 us", 5),
        ("1.5 hours", 5400 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1 hour, 30 min", 5400 * SECOND),
        ("2h5m", 7500 * SECOND),
        ("  1  DAY  ", 86_400 * SECOND),
        ("2 weeks", 14 * 86_400 * SECOND),
        (timedelta(minutes=1, microseconds=1), 60 * SECOND + 1),
    ],
)
def test_what_is_understood(text: str | timedelta, length: int) -> None:
    assert microseconds(text) == length


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not a length of time"),
        ("soon", "it is not a length of time"),
        ("5", "it is not a length of time"),
        ("5 parsecs", "'parsecs' is not a unit of time"),
        ("-5 seconds", "it is not a length of time"),
        ("5 seconds ago!", "is not a"),
        ("1 minute and 5 seconds", "it is not a length of time"),
        ("0 seconds", "it has to be longer than nothing"),
        ("0.1 us", "it has to be longer than nothing"),
        (timedelta(seconds=-1), "it has to be longer than nothing"),
    ],
)
def test_what_is_refused_says_what_it_was_for(text: str | timedelta, why: str) -> None:
    with pytest.raises(BadDuration) as refused:
        microseconds(text, use="the lateness of clicks")
    assert "as the lateness of clicks: " in str(refused.value) and why in str(refused.value)


def test_nothing_is_a_length_where_it_is_allowed() -> None:
    assert microseconds("0 seconds", zero=True) == 0
    assert microseconds(timedelta(0), zero=True) == 0


@given(st.integers(1, 10**15))
def test_what_spark_is_told_is_the_same_length(length: int) -> None:
    assert microseconds(interval(timedelta(microseconds=length))) == length
