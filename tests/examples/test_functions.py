"""The functions of the examples, on rows, without a broker."""

import random
import statistics
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples import sensors, stock_statistics, word_count
from headwater import testing


@pytest.fixture(autouse=True)
def _session(spark: SparkSession) -> None:
    """The session of all tests is the one that the harness finds."""


def test_words_are_counted_whatever_their_case() -> None:
    rows = testing.run(
        word_count.word_count, lines=[[{"text": "The log is the source."}], [{"text": "THE END"}]]
    )
    counts = {row["word"]: row["count"] for row in rows}
    assert counts == {"the": 3, "log": 1, "is": 1, "source": 1, "end": 1}


def trade(symbol: str, price: float, time: str) -> dict[str, Any]:
    return {"symbol": symbol, "price": price, "at": f"2026-01-05 {time}"}


def ten_seconds(time: str) -> dict[str, Any]:
    begin = testing.at(f"2026-01-05 {time}")
    return {"start": begin, "end": begin + timedelta(seconds=10)}


def test_ten_seconds_have_their_lowest_highest_and_average_price() -> None:
    first = [trade("A", 10, "10:00:01"), trade("A", 14, "10:00:09.999"), trade("B", 7, "10:00:05")]
    second = [trade("A", 12, "10:00:10"), trade("A", 9, "10:00:03")]  # the last one out of order
    rows = testing.run(stock_statistics.ten_seconds, trades=[first, second])
    assert rows == [
        {"window": ten_seconds("10:00"), "symbol": "A", "low": 9, "high": 14, "average": 11, "trades": 3},
        {"window": ten_seconds("10:00"), "symbol": "B", "low": 7, "high": 7, "average": 7, "trades": 1},
        {"window": ten_seconds("10:00:10"), "symbol": "A", "low": 12, "high": 12, "average": 12, "trades": 1},
    ]


def test_a_day_begins_and_ends_with_the_trades_that_happened_first_and_last() -> None:
    late = [trade("A", 3, "09:59:40"), trade("A", 5, "10:00:30")]  # heard of last
    rows = testing.run(
        stock_statistics.days, trades=[[trade("A", 1, "10:00:00"), trade("A", 2, "10:00:10")], late]
    )
    day = testing.window("2026-01-05", "2026-01-06")
    assert rows == [{"window": day, "symbol": "A", "first": 3, "last": 5}]


def test_the_ten_top_gainers_of_each_day() -> None:
    days = []
    for date in (5, 6):
        day = testing.window(f"2026-01-{date:02d}", f"2026-01-{date + 1:02d}")
        for number in range(15):
            gain = number if date == 5 else -number
            days.append({"window": day, "symbol": f"S{number:02d}", "first": 100.0, "last": 100.0 + gain})
    rows = testing.run(stock_statistics.top_gainers, days=days)
    ranking = [(row["window"]["start"].day, row["rank"], row["symbol"], row["percent"]) for row in rows]
    assert ranking == [
        *((5, rank, f"S{15 - rank:02d}", 15.0 - rank) for rank in range(1, 11)),
        *((6, rank, f"S{rank - 1:02d}", 1.0 - rank) for rank in range(1, 11)),
    ]


def reading(number: int, celsius: float, *, error: timedelta, sensors: int = 40) -> dict[str, Any]:
    """A reading of 10:00 and as many seconds, from a device whose clock is wrong; sent at once, received so."""
    happened = testing.at("2026-01-05 10:00") + timedelta(seconds=number)
    return {
        "site": "roof",
        "sensor": f"r{number % sensors}",
        "celsius": celsius,
        "at": happened + error,
        "sent": happened + error + timedelta(seconds=5),
        "_timestamp": happened + timedelta(seconds=5),
    }


def test_readings_count_in_the_minute_in_which_they_happened_whatever_the_devices_clock() -> None:
    clocks = [timedelta(0), timedelta(hours=3), timedelta(days=-400)]
    rows = testing.run(
        sensors.minutes, readings=[[reading(second, 20.0, error=clocks[second % 3]) for second in range(90)]]
    )
    assert [(row["window"]["start"].minute, row["readings"]) for row in rows] == [(0, 60), (1, 30)]


def test_hours_are_made_of_the_sketches_of_their_minutes() -> None:
    """40 sensors are seen in every minute, and 40 in the hour; percentiles are near those of all readings."""
    chance = random.Random(7)
    values = [chance.gauss(20, 5) for _ in range(600)]
    readings = [reading(second, celsius, error=timedelta(0)) for second, celsius in enumerate(values)]
    minutes = testing.run(sensors.minutes, readings=testing.Rows(readings, batch=200))
    assert len(minutes) == 10
    assert [row["sensors"] for row in minutes] == pytest.approx([40] * 10, rel=0.1)
    assert minutes[0]["median"] == pytest.approx(statistics.median_low(values[:60]))
    [hour] = testing.run(sensors.hours, minutes=list(minutes))
    assert (hour["hour"], hour["site"], hour["readings"]) == (testing.at("2026-01-05 10:00"), "roof", 600)
    assert hour["sensors"] == pytest.approx(40, rel=0.05)
    ordered = sorted(values)
    for name, share in (("median", 0.5), ("p95", 0.95)):
        low, high = (ordered[round(600 * (share + off))] for off in (-0.02, 0.02))
        assert low <= hour[name] <= high
