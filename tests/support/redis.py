"""A real Redis as a child process, on a free port and in a directory of its own.

::

    with Redis() as server:
        server.ask("SET", "a", "1")
        server.kill()     # SIGKILL
        server.start()    # the same port, the same data
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.connect.sinks.resp import RedisAddress, RedisConnection, command
from headwater.errors import ConnectionLost
from tests.support.packages import require
from tests.support.servers import HOST, ServerFailed, free_port

_READY_WITHIN = 20.0  # seconds


class Redis:
    """One server; what it has acknowledged outlives a kill (an append-only file, synced always)."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **(settings or {})}
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None
        options = [part for name, value in self.settings.items() for part in (f"--{name}", value)]
        command = [require("redis-server"), "--bind", HOST, "--port", str(self.port)]
        command += ["--dir", str(self._directory), *options]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + _READY_WITHIN
        while True:
            try:
                if self.ask("PING") == b"PONG":
                    return
            except ConnectionLost:
                pass
            if self._process.poll() is not None or time.monotonic() > end:
                log_end = (self._directory / "log").read_text(errors="replace")[-2000:]
                self.kill()
                raise ServerFailed(f"Redis did not start: {log_end}")
            time.sleep(0.02)

    def ask(self, *parts: str | bytes) -> Any:
        """The reply to one command, by a connection of its own."""
        connection = RedisConnection(RedisAddress(self.url))
        try:
            words = [part.encode() if isinstance(part, str) else part for part in parts]
            return connection.ask([command(*words)])[0]
        finally:
            connection.close()

    def rows(self, pattern: str = "*") -> dict[str, bytes]:
        """All strings, by key; the sinks' positions are left out."""
        found = [key for key in self.ask("KEYS", pattern) if not key.startswith(b"headwater:sink:")]
        values = self.ask("MGET", *found) if found else []
        return {key.decode(): value for key, value in zip(found, values, strict=True)}

    def kill(self) -> None:
        """SIGKILL: nothing is finished."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
