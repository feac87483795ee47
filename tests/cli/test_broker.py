"""`headwater broker`: its flags reach the broker, and its failures are one line."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, environment, run
from tests.support.servers import Headwater, free_port

Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker in the test's own directory; its address."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **variables: str) -> str:
        process = subprocess.Popen(
            [PROGRAM, "broker", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, env=environment(**variables),
        )  # fmt: skip
        running.append(process)
        assert process.stdout
        while line := process.stdout.readline().decode():
            if "ready at" in line:
                return line.split("ready at ")[1].split()[0]
        raise AssertionError("the broker ended before it was ready")

    yield start
    for process in running:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert process.stdout
        process.stdout.close()


def test_flags(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "somewhere" / "data"
    address = start(
        "--data", str(data), "--host", "127.0.0.1", "--port", "0", "--partitions", "3",
        "--set", "log.retention.hours=5", "--set", "message.max.bytes=5000",
    )  # fmt: skip
    assert data.is_dir() and not address.endswith(":0")
    assert run("topics", "create", "t", "-b", address).out == "created t with 3 partitions\n"
    configs = {
        config["name"]: (config["value"], config["source"])
        for config in run("topics", "describe", "t", "--json", "-b", address).objects[0]["configs"]
    }
    assert configs["retention.ms"] == ("18000000", "broker")
    assert configs["max.message.bytes"] == ("5000", "broker")


@pytest.mark.parametrize(("flag", "is_made"), [("--auto-create", True), ("--no-auto-create", False)])
def test_auto_creation_is_a_choice(start: Start, flag: str, is_made: bool) -> None:
    from confluent_kafka import Producer

    address = start("--port", "0", flag)
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 3000, "log_level": 0})
    producer.produce("by-use", b"x")
    producer.flush(20)
    assert ("by-use" in run("topics", "list", "-b", address).out) is is_made


def test_the_settings_file_and_the_environment(start: Start, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "headwater.toml").write_text(
        f'data = "from-toml"\nbootstrap = "127.0.0.1:{port}"\n'
        f"[broker]\nport = {port}\ndefault_partitions = 4\n"
        '[broker.settings]\nlog.retention.hours = 5\n"message.max.bytes" = 5000\n'
    )
    address = start("--set", "message.max.bytes=6000", HEADWATER_DATA="from-environment")
    assert address == f"127.0.0.1:{port}"
    assert (tmp_path / "from-environment").is_dir() and not (tmp_path / "from-toml").exists()
    assert run("topics", "create", "t", cwd=tmp_path).out == "created t with 4 partitions\n"
    rows = run("topics", "describe", "t", cwd=tmp_path).rows
    assert ["config", "retention.ms", "18000000", "broker"] in rows
    assert ["config", "max.message.bytes", "6000", "broker"] in rows


def test_without_anything_the_data_lies_in_the_working_directory(start: Start, tmp_path: Path) -> None:
    start("--port", "0")
    assert (tmp_path / ".headwater").is_dir()


def test_sigterm_ends_it_with_success() -> None:
    with Headwater() as server:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--data", ""), "cannot use --data: it is empty"),
        (("--set", "novalue"), "it is not of the form key=value"),
        (("--set", "no.such.property=1"), "no.such.property"),
        (("--set", "log.retention.hours=soon"), "log.retention.hours"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    result = run("broker", "--port", "0", *arguments, cwd=tmp_path)
    assert result.code == 1 and len(result.err.splitlines()) == 1, result.err
    assert result.err.startswith("headwater: cannot ") and complaint in result.err


def test_a_wrong_settings_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text('[broker]\nport = "high"')
    result = run("broker", cwd=tmp_path)
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "headwater.toml: 'broker.port' must be of type int" in result.err


def test_a_port_and_a_directory_that_are_taken_are_one_line(tmp_path: Path) -> None:
    with Headwater() as server:
        taken = run("broker", "--data", str(tmp_path / "other"), "--port", str(server.port))
        assert (taken.code, len(taken.err.splitlines())) == (1, 1), taken.err
        assert str(server.port) in taken.err and "in use" in taken.err
        held = run("broker", "--data", str(server.data), "--port", "0")
        assert (held.code, len(held.err.splitlines())) == (1, 1), held.err
        assert str(server.data) in held.err


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("broker", "--data", str(tmp_path / "file" / "data"), "--port", "0")
    assert (result.code, len(result.err.splitlines())) == (1, 1), result.err
    assert result.err.startswith("headwater: cannot ")


def test_a_directory_with_other_things_in_it_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    result = run("broker", "--data", str(tmp_path), "--port", "0")
    assert (result.code, len(result.err.splitlines())) == (1, 1), result.err
    assert "it is not a data directory: it has no meta.properties, but notes.txt" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
