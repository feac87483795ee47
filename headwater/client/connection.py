"""An address and the properties with which clients are opened."""

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import InvalidConfig, Unreachable

# librdkafka would write its log to standard error; so it goes to Python's logging, silent unless configured.
logger = logging.getLogger("headwater.client.librdkafka")
logger.addHandler(logging.NullHandler())

PROBE_SECONDS = 3.0


@dataclass(frozen=True)
class Connection:
    """How to reach a Kafka: its bootstrap addresses, and client properties by librdkafka's names.

    >>> Connection("k1:9092", {"security.protocol": "SSL"}).options({"acks": "all"})["security.protocol"]
    'SSL'
    """

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def options(
        self, defaults: Mapping[str, Any] | None = None, forced: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The configuration of a client: ``defaults`` give way to the properties, ``forced`` do not."""
        return {
            "client.id": "headwater",
            "reconnect.backoff.max.ms": 2000,  # notice a broker that came back sooner than the default, 10 s
            **(defaults or {}),
            **self.properties,
            "bootstrap.servers": self.bootstrap,
            "logger": logger,
            **(forced or {}),
        }

    def require_listener(self, seconds: float = PROBE_SECONDS) -> None:
        """Raise Unreachable, with the system's own reason, unless something listens at one of the addresses.

        A Kafka client would only time out, seconds later and without the reason. That something listens does
        not say that it is a broker, or that it lets us in.
        """
        known = list(addresses(self.bootstrap))
        if not known:
            raise InvalidConfig(
                "use the address", repr(self.bootstrap), "it names no host", "Give HOST:PORT."
            )
        deadline = time.monotonic() + seconds
        reasons: dict[str, str] = {}
        for host, port in known:
            remaining = max(0.2, deadline - time.monotonic())
            try:
                socket.create_connection((host, port), timeout=remaining).close()
                return
            except OSError as error:
                reasons[f"{host}:{port}"] = _plain_reason(error)
        if len(set(reasons.values())) == 1:
            cause = next(iter(reasons.values()))
        else:
            cause = ", ".join(f"{address} {reason}" for address, reason in reasons.items())
        raise Unreachable("reach", f"a broker at {self.bootstrap}", cause)


def addresses(bootstrap: str) -> Iterator[tuple[str, int]]:
    """The hosts and ports of a bootstrap list.

    >>> list(addresses("SSL://k1:9093, k2,[::1]:9094"))
    [('k1', 9093), ('k2', 9092), ('::1', 9094)]
    """
    for entry in bootstrap.split(","):
        address = entry.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, "9092"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidConfig("use the address", entry.strip(), "its port is not a number from 1 to 65535")
        yield host.strip("[]"), int(port)


def open_client(factory: Callable[[dict[str, Any]], Any], options: dict[str, Any]) -> Any:
    """A client of confluent-kafka; a property that librdkafka does not accept raises InvalidConfig."""
    from confluent_kafka import KafkaException

    try:
        return factory(options)
    except KafkaException as error:
        detail = error.args[0]
        text = detail.str() if hasattr(detail, "str") else str(detail)
        step = "Correct the client property (--config-file, -X, [client] in headwater.toml)."
        raise InvalidConfig("open", "a Kafka client", text.rstrip("."), step) from error


def _plain_reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    return (error.strerror or str(error)).lower()
