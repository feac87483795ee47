"""A running application: `headwater up` or `headwater run` as a child process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import java

PROGRAM = str(Path(sys.executable).with_name("headwater"))
START_SECONDS = 120.0
STOP_SECONDS = 90.0
PATIENCE = 120.0


class Application:
    """Started with these arguments, ready when the block begins, and stopped by SIGTERM at its end."""

    def __init__(self, *arguments: str, data: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._command = [PROGRAM, *arguments, "--data", str(data)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        self._environment = {**clean, **java.QUICK, **(environment or {})}
        self._out, self._err = data.with_name(data.name + ".out"), data.with_name(data.name + ".err")
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self._environment,
                start_new_session=True,
            )
        try:
            self.wait_for(lambda: re.search(r"ready on \S+\n", self.out()), START_SECONDS)
        except BaseException:
            self.stop()
            raise
        found = re.search(r"ready on (\S+)\n", self.out())
        assert found is not None
        self.bootstrap = found[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Signals its whole group, as terminals and supervisors do; the exit code.

        One that does not end is killed and reported.
        """
        assert self._process is not None
        os.killpg(self._process.pid, how)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(
                f"it did not end {STOP_SECONDS:.0f} s after {how.name}:\n{self.err()}"
            ) from None

    def out(self) -> str:
        """What it has printed."""
        return self._out.read_text()

    def err(self) -> str:
        """What it has said on standard error."""
        return self._err.read_text()

    def wait_for(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """What the condition gives, once it holds; an application that has ended is reported at once."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert self._process is not None
            code = self._process.poll()
            assert code is None, f"it ended with code {code}:\n{self.err()}"
            assert time.monotonic() < end, f"not within {seconds:.0f} s:\n{self.err()}"
            time.sleep(0.1)
        return found

    def produce(self, topic: str, events: Sequence[Mapping[str, Any] | bytes]) -> None:
        """Events to a topic, as JSON; bytes as they are."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for event in events:
            producer.produce(topic, event if isinstance(event, bytes) else json.dumps(event, default=str))
        assert producer.flush(30) == 0
