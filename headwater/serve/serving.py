"""What every part of the server works on: the application, and where it runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from headwater.client.connection import Connection
from headwater.client.faults import did_you_mean
from headwater.errors import UnknownView
from headwater.streams.app import App
from headwater.streams.declarations import Table, View
from headwater.streams.settings import StreamSettings
from headwater.views.store import ViewStore


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the server."""

    body_bytes: int = 8 << 20  # of one request
    event_bytes: int = 1 << 20  # of one event, its key and headers included
    events: int = 10_000  # in one request
    waiting_bytes: int = 64 << 20  # of events that are on their way to the broker, of all requests together
    rows: int = 10_000  # of a view in one answer
    wait_seconds: float = 30.0  # for a view to cover what was written


@dataclass(frozen=True)
class Serving:
    """A running application as the server sees it. Only the engine writes to the store.

    ``registry`` is what ``/metrics`` shows: a part makes its counters and gauges with ``registry=serving.registry``,
    or registers a collector of its own there.
    """

    app: App
    settings: StreamSettings
    store: ViewStore
    connection: Connection
    limits: Limits = field(default_factory=Limits)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry, repr=False, compare=False)


def declared_views(app: App) -> dict[str, View | Table]:
    """The views and tables of an application: what may be read and followed, whatever else is in the store.

    >>> app = App("shop")
    >>> declared = app.stream("clicks", "page string"), app.table("users", "id long", key="id")
    >>> list(declared_views(app))
    ['users']
    """
    return {node.name: node for node in app.nodes if isinstance(node, View | Table)}


def unknown_view(operation: str, app: App, name: str) -> UnknownView:
    """That an application declares no such view, and which there are.

    >>> app = App("shop")
    >>> declared = app.table("users", "id long", key="id")
    >>> print(unknown_view("read", app, "clicks"))
    cannot read the view clicks: shop has no such view. It has users.
    """
    known = declared_views(app)
    step = did_you_mean(name, known, f"It has {', '.join(known) or 'none'}.")
    return UnknownView(operation, f"the view {name}", f"{app.name} has no such view", step)


class Part(Protocol):
    """One group of endpoints. ``start`` and ``stop`` are called in the event loop that serves them."""

    def routes(self) -> Sequence[BaseRoute]: ...

    def describe(self) -> dict[str, Any]:
        """Its paths, as OpenAPI 3.1 describes them."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
