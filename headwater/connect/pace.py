"""When a transaction is to be committed: at once while little comes, seldom and large under load. Pure."""

from dataclasses import dataclass

SHORTEST_GAP = 0.004  # seconds between two transactions while little comes
LONGEST_GAP = 0.25  # under load
QUIET_GAP = 1.0  # between positions without records
FULL_RATE = 50_000  # records a second, at which the gap is the longest


@dataclass
class Pace:
    """Seconds of a monotonic clock in, seconds to wait out.

    >>> pace = Pace()
    >>> pace.wait(now=10.0, records=1)
    0.0
    >>> pace.committed(began=10.0, ended=10.005, records=1)
    >>> round(pace.wait(now=10.006, records=1), 3)
    0.009
    >>> pace.committed(began=10.1, ended=10.105, records=2000)
    >>> round(pace.gap, 3)
    0.1
    """

    gap: float = SHORTEST_GAP
    _ended: float = 0.0

    def wait(self, now: float, records: int, urgent: bool = False) -> float:
        """How long to go on before a commit; only a new position, without records, has time."""
        if urgent:
            return 0.0
        gap = self.gap if records else QUIET_GAP
        return max(0.0, self._ended + gap - now)

    def committed(self, began: float, ended: float, records: int) -> None:
        """A commit of so many records took so long."""
        # At most a third of the time goes by in commits. What a commit costs besides is little for a thousand
        # records and much for ten, so the gap grows with the rate at which they come.
        least = max(SHORTEST_GAP, 2 * (ended - began))
        rate = records / max(ended - self._ended, SHORTEST_GAP)
        self.gap = max(least, LONGEST_GAP * min(1.0, rate / FULL_RATE))
        self._ended = ended
