"""Reading a topic as columns, from any Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.client.connection import Connection
from headwater.client.fetcher import Fetcher
from headwater.client.secured_fetcher import SecuredFetcher, is_secured

PATIENCE_SECONDS = 10.0  # then whoever reads says that the broker is away, and tries again


@contextmanager
def fetcher_for(connection: Connection) -> Iterator[Fetcher | SecuredFetcher]:
    """A fetcher of its own, closed at the end."""
    kind = SecuredFetcher if is_secured(connection) else Fetcher
    fetcher = kind(connection, patience=PATIENCE_SECONDS)
    try:
        yield fetcher
    finally:
        fetcher.close()
