"""When a transaction is to be committed: at once while little comes, seldom and large under load. Pure."""

from dataclasses import dataclass

SHORTEST_GAP = 0.004  # seconds between two transactions while little comes
LONGEST_GAP = 0.25  # under load
QUIET_GAP = 1.0  # between positions without records


@dataclass
class Pace:
    """Seconds of a monotonic clock in, seconds to wait out.

    >>> pace = Pace()
    >>> pace.wait(now=10.0, records=1)
    0.0
    >>> pace.committed(began=10.0, ended=10.005, busy=False)
    >>> round(pace.wait(now=10.006, records=1), 3)
    0.009
    """

    gap: float = SHORTEST_GAP
    _ended: float = 0.0

    def wait(self, now: float, records: int, urgent: bool = False) -> float:
        """How long to go on before a commit; only a new position, without records, has time."""
        if urgent:
            return 0.0
        gap = self.gap if records else QUIET_GAP
        return max(0.0, self._ended + gap - now)

    def committed(self, began: float, ended: float, busy: bool) -> None:
        """A commit took so long; `busy` when more was waiting by then."""
        self._ended = ended
        # At most a third of the time goes by in commits; under load they become ever rarer.
        least = max(SHORTEST_GAP, 2 * (ended - began))
        self.gap = min(LONGEST_GAP, max(least, self.gap * 2) if busy else least)
