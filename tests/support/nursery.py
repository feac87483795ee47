"""Runs of the command `headwater` that do not import everything anew: each is a fork of one process that has.

A run is a process of its own, with its own arguments, environment and working directory, and ends as the
command does. ``python -m tests.support.nursery`` is the process that they are forks of. It is sent a run as a
datagram: a description in JSON and four descriptors: standard input, output and error, and a pipe that is
told the process's id and, when it has ended, its exit code.
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

LARGEST_REQUEST = 200_000
_NUMBER = struct.Struct(">i")


class Nursery:
    """Runs the command, from any thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with theirs:
            command = [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._socket = ours

    def run(
        self, arguments: list[str], input: bytes, env: Mapping[str, str], cwd: Path | None, timeout: float
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run `headwater` with these arguments to its end."""
        told, tells = os.pipe()
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
            open(told, "rb", buffering=0) as answer,
        ):
            given.write(input)
            given.seek(0)
            request = json.dumps([arguments, dict(env), str(cwd or Path.cwd())]).encode()
            descriptors = [given.fileno(), output.fileno(), errors.fileno(), tells]
            try:
                socket.send_fds(self._socket, [request], descriptors)
            finally:
                os.close(tells)
            (pid,) = _NUMBER.unpack(answer.read(_NUMBER.size))
            if not select.select([answer], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout)
            (code,) = _NUMBER.unpack(answer.read(_NUMBER.size))
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _serve(descriptor: int) -> None:
    import confluent_kafka  # noqa: F401 (what nearly every verb imports)

    import headwater.cli.main  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the runs
    with socket.socket(fileno=descriptor) as requests:
        while True:
            content, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 4)
            if os.fork() == 0:
                requests.close()
                _keep(content, descriptors)
            for each in descriptors:
                os.close(each)


def _keep(content: bytes, descriptors: list[int]) -> NoReturn:
    """Start the run, and tell how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, tells = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(tells)
        _become(content, standard)
    os.write(tells, _NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(tells, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(content: bytes, standard: list[int]) -> NoReturn:
    """Be the command."""
    from headwater.cli.main import run

    arguments, environment, directory = json.loads(content)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["headwater", *arguments]
    program = sys.modules["__main__"]  # by which usage errors would name this module
    program.__package__, program.__spec__ = None, None
    run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
