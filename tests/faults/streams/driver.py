"""`headwater run` as a process, its Java and its Python workers: found to be killed, and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

READY_SECONDS = 180.0
VANISH_SECONDS = 60.0

DAEMON = "headwater.streams.engine.daemon"
RUNNER = "python_streaming_source_runner"


class Driver:
    """A driver that a supervisor starts again whenever it ends; its data outlive it."""

    def __init__(
        self,
        application: Path,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.starts = 0
        self.exits: list[int] = []  # of drivers that ended by themselves
        self._command = [
            str(Path(sys.executable).with_name("headwater")),
            "run",
            str(application),
            *arguments,
        ]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._old: list[psutil.Process] = []  # of drivers before this one

    # -- start and end ---------------------------------------------------------------------------------

    def launch(self) -> None:
        """Starts it, without waiting for it to be ready."""
        assert not self.running
        self.starts += 1
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ready(self) -> bool:
        return self.running and " ready on " in self.output()

    def supervise(self) -> None:
        """Starts it again when it has ended; what a process manager does."""
        if self._process is not None and not self.running:
            self.exits.append(self._process.returncode)
            self.launch()

    def wait_ready(self) -> None:
        """Waits until it serves, starting it again if it ends before."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.ready:
            assert time.monotonic() < deadline, f"the driver does not get ready:\n{self.tail()}"
            self.supervise()
            time.sleep(0.05)

    def wait_end(self, seconds: float) -> int:
        """The exit code of a driver that is to end by itself."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver goes on after {seconds} seconds:\n{self.tail()}") from None

    def stop(self) -> int:
        """SIGTERM, as `docker stop` does it; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait_end(120)

    def close(self) -> None:
        """Ends what is left of all of them."""
        if self._process is not None:
            self._remember()
            self._process.kill()
            self._process.wait()
        for process in self._old:
            if process.is_running():
                process.kill()

    # -- kills -----------------------------------------------------------------------------------------

    def kill_driver(self) -> bool:
        """The Python process; its Java has to notice, and end."""
        assert self._process is not None
        self._remember()
        self._process.kill()
        self._process.wait()
        self.launch()
        return True

    def kill_java(self) -> bool:
        """Java alone. The driver cannot go on without it, and has to say so and end."""
        found = self.java()
        if found is None:
            return False
        self._remember()
        found.kill()
        code = self.wait_end(60)
        assert code == 1, f"a driver without its Java ended with {code}:\n{self.tail()}"
        assert "Java" in self.tail(600), self.tail()
        self.launch()
        return True

    def kill_one(self, kind: str, chosen: float) -> bool:
        """A Python process that Java started; False when there is none at the moment."""
        found = self.workers() if kind == "worker" else self._named(RUNNER)
        if not found:
            return False
        try:
            found[int(chosen * len(found))].kill()
        except psutil.NoSuchProcess:
            return False
        return True

    def java(self) -> psutil.Process | None:
        found = [process for process in self._descendants() if process.name() == "java"]
        return found[0] if found else None

    def workers(self) -> list[psutil.Process]:
        """The daemon, and the workers that were forked from it."""
        return self._named(DAEMON)

    def _named(self, part: str) -> list[psutil.Process]:
        found = []
        for process in self._descendants():
            try:
                # Java has the names among its settings.
                if process.name() != "java" and any(part in argument for argument in process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _descendants(self) -> list[psutil.Process]:
        """What the driver has started: all of its session, and of Java's. Workers outlive their daemon, as orphans."""
        if self._process is None or not self.running:
            return []
        driver = self._process.pid
        sessions = {driver}
        with suppress(psutil.NoSuchProcess):
            sessions |= {child.pid for child in psutil.Process(driver).children()}  # those that lead one
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != driver and os.getsid(process.pid) in sessions:
                    found.append(process)
            except ProcessLookupError:
                continue
        return found

    # -- what is left, and what was said ---------------------------------------------------------------

    def _remember(self) -> None:
        self._old += self._descendants()

    def assert_nothing_is_left(self) -> None:
        """Everything that killed drivers had started has ended by itself."""
        # A number may be in use again, of a process or, which psutil's own wait does not bear, of a thread.
        deadline = time.monotonic() + VANISH_SECONDS
        while alive := [process for process in self._old if _lives(process)]:
            left = [f"{process.pid} {process.name()}" for process in alive]
            assert time.monotonic() < deadline, f"killed drivers left processes behind: {left}"
            time.sleep(0.1)
        self._old = []

    def output(self) -> str:
        """What this driver has printed."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self, characters: int = 4000) -> str:
        return self.output()[-characters:]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
