"""Reaching a broker, or failing to, in a few seconds and with the reason."""

import socket
import time

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection, addresses
from headwater.errors import InvalidConfig, NotAllowed, Unreachable
from tests.support.servers import Server, free_port


def printed_about(address: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What librdkafka wrote past Python. Clients of other tests, of brokers long gone, may still write as well."""
    return [line for line in "".join(capfd.readouterr()).splitlines() if address in line]


def test_a_refused_connection_fails_at_once_with_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: connection refused. Start one with"):
        Admin(Connection(f"127.0.0.1:{port}"))
    assert time.monotonic() - began < 4
    assert not printed_about(f"127.0.0.1:{port}", capfd)


def test_an_unknown_host_is_said_to_be_unknown() -> None:
    with pytest.raises(Unreachable, match="the name is not known"):
        Connection("broker.invalid:9092").require_listener()


def test_one_listener_among_several_addresses_is_enough(server: Server) -> None:
    nobody = free_port()
    Connection(f"127.0.0.1:{nobody},{server.bootstrap}").require_listener()
    assert Admin(Connection(f"127.0.0.1:{nobody},{server.bootstrap}")).topics(internal=True) is not None


def test_a_listener_that_says_nothing_is_no_broker(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"{address}: something listens there but does not answer"):
            Admin(Connection(address))
        assert time.monotonic() - began < 8
    assert not printed_about(address, capfd)


def test_the_wrong_security_protocol_is_named(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    properties = {"security.protocol": "SSL"}
    with pytest.raises((Unreachable, NotAllowed), match=r"security\.protocol") as raised:
        Admin(Connection(server.bootstrap, properties))
    assert "SSL" in raised.value.cause
    assert not printed_about(server.bootstrap, capfd)


def test_an_unknown_client_property_is_named(server: Server) -> None:
    with pytest.raises(InvalidConfig, match=r'No such configuration property: "no\.such\.thing"'):
        Admin(Connection(server.bootstrap, {"no.such.thing": "1"}))


@pytest.mark.parametrize("bootstrap", ["host:port", "host:0", "host:65536", "host:"])
def test_a_port_that_is_none_is_refused(bootstrap: str) -> None:
    with pytest.raises(InvalidConfig, match="its port is not a number from 1 to 65535"):
        list(addresses(bootstrap))


def test_properties_give_way_to_what_must_hold_and_override_what_need_not() -> None:
    connection = Connection(
        "k:1", {"acks": "1", "enable.auto.commit": "true", "bootstrap.servers": "other:1"}
    )
    options = connection.options({"acks": "all", "linger.ms": 5}, {"enable.auto.commit": False})
    assert (options["acks"], options["linger.ms"]) == ("1", 5)
    assert (options["enable.auto.commit"], options["bootstrap.servers"]) == (False, "k:1")
