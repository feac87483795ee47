"""The broker that `headwater up` starts for itself."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headwater.broker import server
from headwater.cli import running
from headwater.cli.running import embedded_broker
from headwater.errors import EngineMissing
from tests.support.servers import answers_metadata, free_port

OWNER = """
import sys, time
from pathlib import Path
from headwater.cli.running import embedded_broker

with embedded_broker(Path(sys.argv[1]), 0) as address:
    print(address, flush=True)
    time.sleep(600)
"""


def test_the_variable_has_one_name() -> None:
    assert running.LEASH == server.LEASH


def test_a_broker_ends_with_the_block(tmp_path: Path) -> None:
    with embedded_broker(tmp_path, 0) as address:
        port = int(address.rpartition(":")[2])
        assert answers_metadata(port)
    assert not answers_metadata(port)


def test_a_broker_ends_with_its_owner_even_if_that_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        port = int(owner.stdout.readline().rpartition(":")[2])
        family = psutil.Process(owner.pid).children(recursive=True)
        assert answers_metadata(port) and len(family) == 1
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    with embedded_broker(tmp_path, port):  # the directory and the port are free again
        assert answers_metadata(port)


def test_a_broker_that_cannot_start_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with (
        embedded_broker(tmp_path / "one", port),
        pytest.raises(EngineMissing, match=f"cannot start a broker on port {port}"),
        embedded_broker(tmp_path / "two", port),
    ):
        pass
    assert f"headwater: cannot listen at 127.0.0.1:{port}: " in capfd.readouterr().err
