"""Requests counted and timed, for Prometheus.

Counted on the event loop in plain numbers, and made into metrics when somebody asks: a request that takes a
fifth of a millisecond should not spend a tenth of that on being counted.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)  # seconds
OTHER = "(none)"  # the route of what no route takes; the path itself would make metrics without end
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))  # anybody can make up more


class RequestMetrics(Collector):
    """How many requests had which answer, and how long until it began."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request.

        >>> metrics = RequestMetrics()
        >>> metrics.count("GET", "/views", 200, 0.002)
        >>> [family.name for family in metrics.collect()]
        ['headwater_http_requests', 'headwater_http_request_seconds']
        """
        key = (method if method in METHODS else OTHER, route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = [0] * (len(BOUNDS) + 1)
            self._sums[route] = 0.0
        times[bisect_left(BOUNDS, seconds)] += 1
        self._sums[route] += seconds

    def collect(self) -> Iterator[Metric]:
        """The two families."""
        requests = CounterMetricFamily(
            "headwater_http_requests",
            "Requests answered, by route and status.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), number in list(self._counts.items()):
            requests.add_metric([method, route, str(status)], number)
        yield requests
        seconds = HistogramMetricFamily(
            "headwater_http_request_seconds", "From a request to the begin of its answer.", labels=["route"]
        )
        for route, times in list(self._times.items()):
            total, buckets = 0, []
            for bound, number in zip([*map(str, BOUNDS), "+Inf"], times, strict=True):
                total += number
                buckets.append((bound, float(total)))
            seconds.add_metric([route], buckets, sum_value=self._sums[route])
        yield seconds
