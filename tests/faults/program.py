"""A client of the fault tests as a process of its own, so that it can be killed."""

import faulthandler
import json
import signal
import subprocess
import sys
import threading
import time
from typing import Any

# A client that is back soon after its broker is: the kills are what takes the time, not the waiting.
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 2,
}


class Program:
    """A module of this package as a process: stopped by closing its input, it prints JSON at its end."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.faults.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def finish(self, timeout: float = 180) -> Any:
        """Ask it to end; what it printed. Fails when it does not end well."""
        try:
            output, _ = self._process.communicate("", timeout)
        except subprocess.TimeoutExpired:
            self.show_stack()
            raise
        assert self._process.returncode == 0, f"{self._process.args!r} ended with {self._process.returncode}"
        return json.loads(output.splitlines()[-1])

    def show_stack(self) -> None:
        """Let it show on stderr where it stands: for a test that is about to fail."""
        if self.running:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)

    def kill(self) -> None:
        """SIGKILL: it says nothing more."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def until_input_ends() -> threading.Event:
    """In the program: an event that is set when the test closes our input."""
    faulthandler.register(signal.SIGUSR1)
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop
