"""How the command fails: one line, the reason, the next step, and a code that scripts can use."""

import socket
import time
from pathlib import Path

import pytest

from tests.cli.conftest import run
from tests.support.servers import Server, free_port

EVERY_VERB = [
    ("topics", "list"),
    ("topics", "create", "t"),
    ("topics", "describe", "t"),
    ("topics", "alter", "t", "-p", "2"),
    ("topics", "delete", "t"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "--group", "g"),
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("groups", "reset", "g", "--to-end"),
    ("groups", "delete", "g"),
]


@pytest.mark.parametrize("command", EVERY_VERB, ids=" ".join)
def test_no_broker_is_one_line_at_once(command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    result = run(*command, "--bootstrap", address)
    assert time.monotonic() - began < 5
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"headwater: cannot reach a broker at {address}: connection refused. "
        "Start one with `headwater broker`, or name another with --bootstrap.\n"
    )


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "t"), ("produce", "t")], ids=" ".join)
def test_something_else_at_the_address_is_one_line_in_a_few_seconds(command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        began = time.monotonic()
        result = run(*command, "--bootstrap", address)
        assert time.monotonic() - began < 10
    assert result.code == 1 and len(result.err.splitlines()) == 1
    assert address in result.err and "does not answer as a Kafka broker" in result.err


def test_the_wrong_security_protocol(server: Server) -> None:
    result = run("topics", "list", "-b", server.bootstrap, "-X", "security.protocol=SSL")
    assert result.code == 1 and len(result.err.splitlines()) == 1
    assert "SSL" in result.err and "security.protocol" in result.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nonsense",), "No such command 'nonsense'. See `headwater --help`."),
        (("topics", "nonsense"), "No such command 'nonsense'. See `headwater topics --help`."),
        (("topics", "list", "--nope"), "No such option: --nope"),
        (("topics", "create"), "Missing argument 'TOPIC'"),
        (("produce", "t", "--acks", "2"), "'--acks'"),
        (("produce", "t", "--compression", "rar"), "'--compression'"),
        (("consume", "t", "--isolation", "none"), "'--isolation'"),
        (("consume", "t", "-n", "0"), "'-n'"),
        (("broker", "--port", "70000"), "'--port'"),
    ],
)
def test_usage_errors_are_one_line_and_code_two(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1 and result.err.startswith("headwater: ")
    assert complaint in result.err and "--help`." in result.err


def test_a_group_of_verbs_shows_them() -> None:
    result = run("topics")
    assert (result.code, result.out) == (2, "")
    lines = result.err.splitlines()
    assert lines[0] == "Usage: headwater topics [OPTIONS] COMMAND [ARGS]..."
    assert any(line.split()[:1] == ["create"] for line in lines)


def test_an_address_that_is_none() -> None:
    result = run("topics", "list", "-b", "localhost:http")
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "cannot use the address localhost:http" in result.err


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("topics", "create", ""), "cannot create a topic: its name is empty"),
        (("topics", "describe", ""), "cannot describe a topic: its name is empty"),
        (("topics", "delete", ""), "cannot delete a topic: its name is empty"),
        (("produce", ""), "cannot write to a topic: its name is empty"),
        (("consume", ""), "cannot read a topic: its name is empty"),
        (("consume", "t", "--group", ""), "cannot read as a member of a group: its name is empty"),
        (("groups", "describe", ""), "cannot describe a group: its name is empty"),
        (("groups", "reset", "", "--to-end"), "a group: its name is empty"),
        (("groups", "delete", ""), "cannot delete a group: its name is empty"),
        (("topics", "list", "--bootstrap", ","), "cannot use the address ',': it names no host"),
        (("topics", "list", "--bootstrap", ""), "cannot use --bootstrap: it is empty. Give HOST:PORT."),
    ],
)
def test_names_that_are_empty(server: Server, command: tuple[str, ...], complaint: str) -> None:
    result = run(*command, env={"HEADWATER_BOOTSTRAP": server.bootstrap})
    assert (result.code, len(result.err.splitlines())) == (1, 1), result.err
    assert complaint in result.err


def test_a_wrong_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("bootstrap = 1")
    result = run("topics", "list", cwd=tmp_path)
    assert result.code == 1 and "headwater.toml: 'bootstrap' must be" in result.err


def test_settings_rise_from_file_to_environment_to_flag(tmp_path: Path, server: Server) -> None:
    nobody, nobody_else = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (tmp_path / "headwater.toml").write_text(f'bootstrap = "{nobody}"')
    assert f"at {nobody}:" in run("topics", "list", cwd=tmp_path).err
    env = {"HEADWATER_BOOTSTRAP": nobody_else}
    assert f"at {nobody_else}:" in run("topics", "list", cwd=tmp_path, env=env).err
    assert run("topics", "list", "--bootstrap", server.bootstrap, cwd=tmp_path, env=env).code == 0
    (tmp_path / "headwater.toml").write_text(f'bootstrap = "{server.bootstrap}"')
    assert run("topics", "list", cwd=tmp_path).code == 0


def test_a_file_of_client_properties_from_the_environment(tmp_path: Path, server: Server) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={server.bootstrap}\n")
    assert run("topics", "list", env={"HEADWATER_CONFIG_FILE": str(properties)}).code == 0
    missing = run("topics", "list", "--config-file", str(tmp_path / "missing"))
    assert missing.code == 1 and "missing: No such file" in missing.err
