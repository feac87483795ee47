"""Prometheus metrics of a running application."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from headwater.streams.engine.engine import Engine

_COUNTERS = {
    "batches": "Batches that have ended.",
    "rows_in": "Rows read.",
    "rows_out": "Rows written.",
    "restarts": "Starts after a failure.",
    "late": "Events set aside as too late.",
    "dead": "Values set aside because they do not parse.",
    "missed": "Records that retention took before they were read.",
}
_GAUGES = {
    "lag": "Records in the log that are not in the result.",
    "rate": "Rows read a second.",
    "batch_ms": "Milliseconds that the last batch took.",
    "state_rows": "Rows in state.",
    "state_bytes": "Bytes of state in memory.",
}


class StatusCollector(Collector):
    """Reads the status of each output when Prometheus asks."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """The metrics, one family after the other."""
        outputs = list(self._engine.status.values())
        labels = ["application", "output"]
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"headwater_{name}", text, labels=labels)
            for status in outputs:
                counter.add_metric([self._engine.app.name, status.name], getattr(status, name))
            yield counter
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headwater_{name}", text, labels=labels)
            for status in outputs:
                value = getattr(status, name)
                if value is not None:
                    gauge.add_metric([self._engine.app.name, status.name], value)
            yield gauge
        up = GaugeMetricFamily("headwater_up", "Whether the output's query runs.", labels=labels)
        for status in outputs:
            up.add_metric([self._engine.app.name, status.name], float(status.state == "running"))
        yield up


def serve_metrics(engine: "Engine", port: int) -> int:
    """Serves the metrics on loopback; gives the port, which the system chooses when it is 0."""
    from headwater.connect.metrics import SourceCollector, serve_registry

    registry = CollectorRegistry()
    registry.register(StatusCollector(engine))
    if engine.app.connectors:
        registry.register(SourceCollector(engine.settings.data))
    return serve_registry(registry, port)
