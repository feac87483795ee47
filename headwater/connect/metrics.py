"""Prometheus metrics of running sources and sinks, from their status files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.connect.status import read_sink_statuses, read_statuses, share_read
from headwater.errors import AddressInUse

_COUNTERS = {
    "records": "Records written to the log.",
    "bytes": "Bytes of their values.",
    "transactions": "Transactions committed.",
    "restarts": "Starts after a failure.",
}
_GAUGES = {
    "rate": "Records written a second.",
    "commit_seconds": "What the last commit took.",
    "lag_seconds": "From a change to the log, as far as the source knows.",
    "lag_bytes": "Bytes of the database's own log that are yet to be read.",
}
_SINK_COUNTERS = {
    "records": "Records read from the topic.",
    "bytes": "Bytes of their values.",
    "written": "Rows written outside.",
    "deleted": "Rows deleted outside.",
    "dead": "Records set aside because they cannot be used.",
    "commits": "Commits outside.",
    "restarts": "Starts after a failure.",
}
_SINK_GAUGES = {
    "rate": "Records read a second.",
    "commit_seconds": "What the last commit took.",
    "lag_records": "Offsets between the sink and the end of its topic.",
    "lag_seconds": "The age of the last record taken, while there are more.",
}


class SourceCollector(Collector):
    """Reads the status of each source and each sink when Prometheus asks."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def collect(self) -> Iterator[Metric]:
        """The metrics, one family after the other."""
        documents = [each for each in read_statuses(self._data) if each["running"]]
        labels = ["application", "source"]
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"headwater_source_{name}", text, labels=labels)
            for document in documents:
                counter.add_metric(_labels(document), document[name])
            yield counter
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headwater_source_{name}", text, labels=labels)
            for document in documents:
                value = document.get(name, document["source"].get(name))
                if value is not None:
                    gauge.add_metric(_labels(document), value)
            yield gauge
        up = GaugeMetricFamily("headwater_source_up", "Whether the source is at work.", labels=labels)
        read = GaugeMetricFamily(
            "headwater_source_snapshot_share",
            "How much of a table its snapshot has read, from 0 to 1.",
            labels=[*labels, "table"],
        )
        for document in documents:
            up.add_metric(_labels(document), float(document["state"] == "running"))
            for progress in document["source"]["snapshot"]:
                if (share := share_read(progress)) is not None:
                    read.add_metric([*_labels(document), progress["table"]], share)
        yield up
        yield read
        yield from _sinks(self._data)


def _sinks(data: Path) -> Iterator[Metric]:
    documents = [each for each in read_sink_statuses(data) if each["running"]]
    labels = ["application", "sink", "topic"]
    for kind, metrics in ((CounterMetricFamily, _SINK_COUNTERS), (GaugeMetricFamily, _SINK_GAUGES)):
        for name, text in metrics.items():
            family = kind(f"headwater_sink_{name}", text, labels=labels)
            for document in documents:
                value = document.get(name, document["counts"].get(name))
                if value is not None:
                    family.add_metric([*_labels(document), document["topic"]], value)
            yield family
    up = GaugeMetricFamily("headwater_sink_up", "Whether the sink is at work.", labels=labels)
    for document in documents:
        up.add_metric([*_labels(document), document["topic"]], float(document["state"] == "running"))
    yield up


def _labels(document: dict[str, Any]) -> list[str]:
    return [document["application"], document["name"]]


def serve_source_metrics(data: Path, port: int) -> int:
    """Serves the metrics on loopback; gives the port, which the system chooses when it is 0."""
    registry = CollectorRegistry()
    registry.register(SourceCollector(data))
    return serve_registry(registry, port)


def serve_registry(registry: CollectorRegistry, port: int) -> int:
    """Answers Prometheus with these metrics, on loopback; gives the port, which the system chooses when it is 0."""
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        step = "Choose another --metrics-port."
        raise AddressInUse("serve metrics at", f"127.0.0.1:{port}", cause, step) from error
    return int(server.server_port)
