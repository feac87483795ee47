"""Who follows what, for Prometheus."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class FollowMetrics(Collector):
    """Streams that are open, and how often a client had to start over, by view or topic.

    >>> [family.name for family in FollowMetrics("view", lambda: {"sales": 2}, {"sales": 1}).collect()]
    ['headwater_view_followers', 'headwater_view_resets']
    """

    def __init__(
        self, kind: str, followers: Callable[[], Mapping[str, int]], resets: Mapping[str, int]
    ) -> None:
        self._kind, self._followers, self._resets = kind, followers, resets

    def collect(self) -> Iterator[Metric]:
        """The two families."""
        name = f"headwater_{self._kind}_followers"
        followers = GaugeMetricFamily(name, f"Clients that follow the {self._kind}.", labels=[self._kind])
        for one, count in self._followers().items():
            followers.add_metric([one], count)
        yield followers
        told = "Clients that were told to start over: too slow, away for too long, or other columns."
        resets = CounterMetricFamily(f"headwater_{self._kind}_resets", told, labels=[self._kind])
        for one, count in list(self._resets.items()):
            resets.add_metric([one], count)
        yield resets
