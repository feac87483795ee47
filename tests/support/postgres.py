"""A real PostgreSQL server as a child process, on a free port and in a directory of its own.

::

    with Postgres() as server:
        store = open_store(server.url(schema="mine"))
        server.kill()     # an immediate shutdown, as after a power cut of the process
        server.start()    # the same port, the same data
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support.packages import ComponentMissing
from tests.support.servers import HOST, ServerFailed, free_port

USER = "headwater"
_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
_READY_WITHIN = 30.0  # seconds


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs; Debian keeps them off PATH, one directory a version."""
    places = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[4].split(".")[0])
    )
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        raise ComponentMissing(
            f"cannot run {name}: it is not in /usr/lib/postgresql nor on PATH. "
            "Run `make test` as root, which installs it, or `apt-get install postgresql`."
        )
    return found


class Postgres:
    """One server. Kills and restarts keep port and data; leaving the block removes both."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.settings = dict(settings or {})
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        self._data = self._directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        # Root gives the directory away and starts the server as nobody; others run it as themselves.
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user is not None:
            who = pwd.getpwnam(self._user)
            os.chown(self._directory, who.pw_uid, who.pw_gid)
        command = [program("initdb"), "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        made = subprocess.run(
            [*command, "--locale=C", "--no-sync"], user=self._user, capture_output=True, cwd="/", check=False
        )
        if made.returncode:
            raise ServerFailed(f"initdb failed: {made.stderr.decode()}")

    def url(self, schema: str | None = None) -> str:
        """The address of the server's database, for ``open_store``."""
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres" + (f"?schema={schema}" if schema else "")

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None
        settings = {"listen_addresses": HOST, "port": self.port, "unix_socket_directories": self._directory}
        # Killed processes leave what they wrote to the operating system; only a power cut needs fsync.
        settings |= {"fsync": "off", "shared_buffers": "64MB", "autovacuum_naptime": "10s"}
        settings |= {"wal_level": "logical", "max_replication_slots": 50, "max_wal_senders": 50}
        settings |= self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), "-D", str(self._data), *options],
                user=self._user,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        end = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            if self._process.poll() is not None or time.monotonic() > end:
                log_end = (self._directory / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise ServerFailed(f"PostgreSQL did not start: {log_end}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once: no session is finished, nothing is written; the next start recovers."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it without waiting for its clients."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
