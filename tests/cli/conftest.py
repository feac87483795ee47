"""Every verb runs as a real process, against both brokers: see tests/support/nursery.py."""

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.nursery import Nursery
from tests.support.servers import Server

PROGRAM = str(Path(sys.executable).with_name("headwater"))


@dataclass(frozen=True)
class Result:
    """What a run of the command has left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.lines]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def environment(**variables: str) -> dict[str, str]:
    """The test's own environment without what would steer the command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    return {**clean, **variables}


@functools.cache
def _nursery() -> Nursery:
    nursery = Nursery()
    atexit.register(nursery.close)
    return nursery


def run(
    *arguments: str,
    input: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Result:
    """Run `headwater` with these arguments."""
    given = input.encode() if isinstance(input, str) else input
    done = _nursery().run(list(arguments), given, environment(**(env or {})), cwd, timeout)
    return Result(done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode())


Headwater = Callable[..., Result]


@pytest.fixture(params=["headwater", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def hw(server: Server) -> Headwater:
    """``hw("topics", "list")`` runs the command against the server and expects it to succeed."""

    def succeed(*arguments: str, **how: Any) -> Result:
        result = run(
            *arguments, **{**how, "env": {"HEADWATER_BOOTSTRAP": server.bootstrap, **how.get("env", {})}}
        )
        assert result.code == 0, result.err
        return result

    return succeed


@pytest.fixture
def fails(server: Server) -> Headwater:
    """Like ``hw`` for a command that has to fail, with one line on standard error and no traceback."""

    def fail(*arguments: str, code: int = 1, lines: int = 1, **how: Any) -> Result:
        result = run(
            *arguments, **{**how, "env": {"HEADWATER_BOOTSTRAP": server.bootstrap, **how.get("env", {})}}
        )
        assert result.code == code, (result.code, result.out, result.err)
        assert len(result.err.splitlines()) == lines, result.err
        assert result.err.splitlines()[-1].startswith("headwater: ")
        assert "Traceback" not in result.err
        return result

    return fail


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start the command without waiting for it; what is left of it at the end of the test is ended."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **how: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [PROGRAM, *arguments],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},
            env=environment(HEADWATER_BOOTSTRAP=server.bootstrap),
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
