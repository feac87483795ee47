"""Short histories of figures, for charts and rates. Pure."""

from collections import deque
from collections.abc import Sequence

KEPT_SECONDS = 300.0
RATE_SECONDS = 5.0
GAP_SECONDS = 6.0  # between two samples that are not joined by a line


class History:
    """Samples of some figures, oldest first: a time in seconds and a value for each name.

    >>> history = History(("rows", "lag"))
    >>> history.add(1.0, (5, None))
    >>> history.add(20.0, (7, 2))
    >>> history.rows()
    [[1000, 5, None], [1001, None, None], [20000, 7, 2]]
    """

    def __init__(self, names: Sequence[str], seconds: float = KEPT_SECONDS) -> None:
        self.names = tuple(names)
        self._seconds = seconds
        self._samples: deque[list[float | None]] = deque()

    def add(self, at: float, values: Sequence[float | None]) -> None:
        """Takes a sample; a pause before it is marked, since nobody looked then."""
        samples = self._samples
        milliseconds = round(at * 1000)
        if samples:
            last = samples[-1][0] or 0
            if milliseconds <= last:
                return
            if milliseconds - last > GAP_SECONDS * 1000:
                samples.append([last + 1, *[None] * len(self.names)])
        samples.append([milliseconds, *values])
        while samples and (samples[0][0] or 0) < milliseconds - self._seconds * 1000:
            samples.popleft()

    def rows(self, after: float = 0) -> list[list[float | None]]:
        """The samples after a time in milliseconds, which each begins with."""
        if not after:
            return list(self._samples)
        newer: list[list[float | None]] = []
        for sample in reversed(self._samples):
            if (sample[0] or 0) <= after:
                break
            newer.append(sample)
        return newer[::-1]

    def column(self, name: str) -> list[float | None]:
        """All values of one name."""
        place = self.names.index(name) + 1
        return [sample[place] for sample in self._samples]


class Rate:
    """How fast a counter grows, over the last seconds. A counter that falls has begun anew.

    >>> rate = Rate()
    >>> [rate.take(at, value) for at, value in [(0.0, 100), (1.0, 110), (2.0, 130), (3.0, 5)]]
    [None, 10.0, 15.0, None]
    """

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, float]] = deque()

    def take(self, at: float, value: float) -> float | None:
        """The rate with this value; None while there is nothing to compare it with."""
        seen = self._seen
        if seen and (value < seen[-1][1] or at - seen[-1][0] > 4 * self._seconds):
            seen.clear()
        if not seen or at > seen[-1][0]:
            seen.append((at, value))
        while len(seen) > 2 and seen[1][0] <= at - self._seconds:
            seen.popleft()
        elapsed = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / elapsed if elapsed > 0 else None


class Rates:
    """A rate for each of several counters.

    >>> rates = Rates()
    >>> rates.take("a", 0.0, 1), rates.take("a", 2.0, 5)
    (None, 2.0)
    """

    def __init__(self) -> None:
        self._rates: dict[str, Rate] = {}

    def take(self, name: str, at: float, value: float) -> float | None:
        """As ``Rate.take``, of the counter with this name."""
        return self._rates.setdefault(name, Rate()).take(at, value)
