"""What the tests of sinks share."""

from collections.abc import Iterator

import pytest

from headwater.client.connection import Connection
from tests.support.opensearch import OpenSearch
from tests.support.redis import Redis
from tests.support.servers import Headwater


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """The Redis that tests share, each with a database number or keys of its own."""
    with Redis() as server:
        yield server


@pytest.fixture
def connection(headwater: Headwater) -> Connection:
    return Connection(headwater.bootstrap)


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearch]:
    """The OpenSearch that tests share, each with an index of its own."""
    with OpenSearch() as server:
        yield server
