"""`headwater produce` when the broker goes away."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, environment, run
from tests.support.servers import ApacheKafka, Headwater, Server


@pytest.mark.parametrize("kind", [Headwater, ApacheKafka])
def test_a_broker_that_goes_away_fails_the_command_with_the_count(kind: type[Server], tmp_path: Path) -> None:
    with kind() as own:
        assert run("topics", "create", "t", "-b", own.bootstrap).code == 0
        rejects = tmp_path / "rejects"
        process = subprocess.Popen(
            [PROGRAM, "produce", "t", "--timeout", "3", "--rejects", str(rejects), "-b", own.bootstrap],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert process.stdin and process.stderr
        process.stdin.write(b"acknowledged\n")
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while not run("consume", "t", "--from-beginning", "--exit", "-b", own.bootstrap).out:
            assert time.monotonic() < deadline
        own.kill()
        process.stdin.write(b"lost\n")
        process.stdin.close()
        assert process.wait(40) == 1
        said = process.stderr.read().decode()
    assert "headwater: line 2: not delivered: " in said
    assert "cannot deliver 1 of 2 records: " in said and "stopped after line 2" in said
    assert rejects.read_text() == "lost\n"
