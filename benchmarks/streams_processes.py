"""A group of processes under measurement: everything that a system starts, however deep."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 1.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Command:
    """What is started, and what is added to its environment."""

    arguments: Sequence[str | Path]
    environment: Mapping[str, str]


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that what it started ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class SystemFailed(Exception):
    """A system under measurement ended by itself; the message holds the end of what it printed."""


class Group:
    """The processes of some commands, with their descendants and all of the sessions that they lead.

    >>> import tempfile
    >>> with Group([Command(["sleep", "5"], {})], Path(tempfile.gettempdir()) / "group.log") as group:
    ...     len(group.pids()), group.proportional_bytes() > 0
    (1, True)
    """

    def __init__(self, commands: Sequence[Command], log: Path) -> None:
        self.commands = commands
        self.log = log
        self.started = 0.0
        self.peak_bytes = 0
        self._leaders: list[subprocess.Popen[bytes]] = []
        self._ending = threading.Event()
        self._resting = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        with self.log.open("ab") as log:
            for command in self.commands:
                self._leaders.append(
                    subprocess.Popen(
                        [str(argument) for argument in command.arguments],
                        env={**os.environ, **command.environment},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._sampler.join()
        for leader in self._leaders:
            leader.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        while self.pids() and time.monotonic() < deadline:
            for leader in self._leaders:
                leader.poll()
            time.sleep(0.05)
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for leader in self._leaders:
            leader.wait()

    def pids(self) -> list[int]:
        """All processes that are there now."""
        return [pid for pid, fields in self._members().items() if fields[0] != "Z"]

    def finished(self) -> bool:
        """All commands have ended well. A command that failed is an error."""
        codes = [leader.poll() for leader in self._leaders]
        failed = [code for code in codes if code not in (None, 0)]
        if failed:
            raise self.failure(f"ended with exit code {failed[0]}")
        return None not in codes

    def failure(self, what: str) -> SystemFailed:
        """An error that says what, and shows what was printed last."""
        end = self.log.read_bytes()[-3000:].decode("utf-8", "replace")
        return SystemFailed(f"{what}. It printed:\n{end}")

    def proportional_bytes(self) -> int:
        """Memory of all processes now; a page that several share is counted once in all."""
        return sum(_proportional_bytes(pid) for pid in self.pids())

    def cpu_seconds(self) -> float:
        """Processor time of all processes so far, with those that have ended and been waited for."""
        times = (fields[11:15] for fields in self._members().values())
        return sum(int(ticks) for four in times for ticks in four) / _TICKS

    def _members(self) -> dict[int, list[str]]:
        everybody = _stats()
        ours = {leader.pid for leader in self._leaders}
        grew = True
        while grew:
            more = {
                pid
                for pid, fields in everybody.items()
                if pid not in ours and (int(fields[1]) in ours or int(fields[3]) in ours)
            }
            ours |= more
            grew = bool(more)
        return {pid: everybody[pid] for pid in ours if pid in everybody}

    def rest(self) -> None:
        """Sample no more: to count the pages of a gigabyte takes some 50 ms, in which Java cannot get more of them."""
        self._resting.set()

    def _sample(self) -> None:
        while not self._ending.wait(_SAMPLE_SECONDS):
            if not self._resting.is_set():
                self.peak_bytes = max(self.peak_bytes, self.proportional_bytes())


def _stats() -> dict[int, list[str]]:
    """For each process what follows its name in /proc/PID/stat: state, parent, group, session and so on."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            found[int(entry.name)] = text.rpartition(")")[2].split()
    return found


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
