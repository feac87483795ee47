"""Every test of the client room runs against both brokers, which it must not be able to tell apart."""

from collections.abc import Callable

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.writer import Writer
from tests.support.servers import Server


@pytest.fixture(params=["headwater", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def connection(server: Server) -> Connection:
    return Connection(server.bootstrap)


@pytest.fixture
def admin(connection: Connection) -> Admin:
    return Admin(connection)


@pytest.fixture
def write(connection: Connection) -> Callable[..., None]:
    """``write(topic, "a", "b", partition=0)``: values, acknowledged when it returns."""

    def write(topic: str, *values: str, partition: int | None = None) -> None:
        with Writer(connection) as writer:
            for value in values:
                writer.write(topic, value, partition=partition)

    return write
