"""When a worker commits: soon at every moderate rate, seldom under full load."""

import pytest

from headwater.connect.pace import LONGEST_GAP, Pace

COMMIT_SECONDS = 0.005


def lags(rate: int, seconds: float = 20.0) -> list[float]:
    """From the moment a record comes until its commit has ended, in order; records come evenly."""
    pace, now, following = Pace(), 0.0, 0.0
    pending: list[float] = []
    found = []
    while now < seconds:
        if not pending:
            now = max(now, following)
        due = now + pace.wait(now, max(1, len(pending)))
        ended = due + COMMIT_SECONDS
        aside = []
        while following <= ended:  # what comes during the commit belongs to the next transaction
            (pending if following <= due else aside).append(following)
            following += 1 / rate
        pace.committed(due, ended, len(pending))
        found += [ended - came for came in pending]
        pending, now = aside, ended
    return sorted(found[rate // 2 :])


@pytest.mark.parametrize("rate", [1, 10, 100, 200, 500, 1_000])
def test_a_change_waits_for_few_commits_at_moderate_rates(rate: int) -> None:
    found = lags(rate)
    assert found[int(len(found) * 0.99)] < 5 * COMMIT_SECONDS


def test_transactions_grow_with_the_rate() -> None:
    middles = [lags(rate, seconds=5.0) for rate in (1_000, 10_000, 100_000)]
    one, ten, hundred = (found[len(found) // 2] for found in middles)
    assert one < ten < hundred < LONGEST_GAP
    assert hundred > LONGEST_GAP / 3


def test_a_slow_log_is_not_asked_more_often_than_it_answers() -> None:
    pace = Pace()
    pace.committed(began=10.0, ended=11.0, records=5)
    assert pace.wait(now=11.0, records=1) == 2.0
    assert pace.wait(now=11.0, records=1, urgent=True) == 0.0
