"""`headwater connect` as a process that a supervisor starts again whenever it ends."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

APPLICATION = Path(__file__).with_name("app.py")


class Connector:
    """A connector; what it keeps lies in the log, so that nothing of it outlives a kill."""

    def __init__(self, broker: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "connector.log"
        self.exits: list[int] = []  # of connectors that ended by themselves
        program = Path(sys.executable).with_name("headwater")
        self._command: Sequence[str] = [
            *(str(program), "connect", str(APPLICATION)),
            *("--bootstrap", broker, "--data", str(folder / "data")),
        ]
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def supervise(self) -> None:
        """Starts it again when it has ended; what a process manager does."""
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._process.returncode)
            assert len(self.exits) < 20, f"the connector ends again and again:\n{self.tail()}"
            time.sleep(0.2)
            self.start()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is closed."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.terminate()
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the connector does not stop:\n{self.tail()}") from None

    def tail(self, characters: int = 4000) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""
