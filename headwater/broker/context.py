"""What a handler knows of the request besides its body."""

from dataclasses import dataclass


@dataclass(slots=True)
class RequestContext:
    """Who asks, and in which version."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str  # as Kafka prints it: "/127.0.0.1"
