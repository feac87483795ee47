"""A real MariaDB server as a child process, on a free port and in a directory of its own.

::

    with MariaDB() as server:
        server.run("create table shop.users (id int primary key)")
        server.kill()     # SIGKILL: the next start recovers
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymysql

from tests.support.packages import ComponentMissing
from tests.support.servers import HOST, ServerFailed, free_port

USER = "headwater"
PASSWORD = "secret"
DATABASE = "shop"
_UNPRIVILEGED = "nobody"  # MariaDB refuses to run as root
_READY_WITHIN = 30.0  # seconds


def program(name: str) -> str:
    """The path of one of MariaDB's programs; the server is in a directory that not everybody's PATH has."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
    if found is None:
        raise ComponentMissing(
            f"cannot run {name}: it is not on PATH. "
            "Run `make test` as root, which installs it, or `apt-get install mariadb-server-core`."
        )
    return found


class MariaDB:
    """One server. Kills and restarts keep port and data; leaving the block removes both."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.settings = dict(settings or {})
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-mariadb-"))
        self._data = self._directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        # Root gives the directory away and starts the server as nobody; others run it as themselves.
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user is not None:
            who = pwd.getpwnam(self._user)
            os.chown(self._directory, who.pw_uid, who.pw_gid)
        command = [
            program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self._data}",
            "--skip-test-db",
        ]
        made = subprocess.run(
            [*command, "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M"],
            user=self._user,
            capture_output=True,
            cwd="/",
            check=False,
        )
        if made.returncode:
            raise ServerFailed(f"mariadb-install-db failed: {(made.stdout + made.stderr).decode()[-2000:]}")
        self._has_user = False

    def url(self, database: str = DATABASE) -> str:
        """The address of a database, for ``hw.cdc``."""
        return f"mysql://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"

    def connect(self, database: str | None = DATABASE, **options: Any) -> "pymysql.Connection[Any]":
        """A connection of the owner, which commits each statement."""
        options = {"charset": "utf8mb4", "autocommit": True} | options
        return pymysql.connect(host=HOST, port=self.port, user="root", database=database, **options)

    def run(self, *statements: str, database: str | None = DATABASE) -> Sequence[tuple[Any, ...]]:
        """Run statements one after the other; the rows of the last."""
        with contextlib.closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None
        settings = {
            "bind-address": HOST,
            "port": str(self.port),
            "socket": str(self._directory / "socket"),
            "pid-file": str(self._directory / "pid"),
            "log-bin": "binlog",
            "server-id": "1",
            "binlog-format": "ROW",
            # Killed processes leave what they wrote to the operating system; only a power cut needs syncs.
            "innodb-flush-log-at-trx-commit": "2",
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "32M",
            "max-allowed-packet": "64M",
            "skip-name-resolve": "1",
            **self.settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("mariadbd"), "--no-defaults", f"--datadir={self._data}", *options],
                user=self._user,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        end = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(pymysql.err.OperationalError):
                self.connect(None, connect_timeout=2).close()
                break
            if self._process.poll() is not None or time.monotonic() > end:
                log_end = (self._directory / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise ServerFailed(f"MariaDB did not start: {log_end}")
            time.sleep(0.05)
        if not self._has_user:
            self.run(
                f"create user {USER}@'%' identified by '{PASSWORD}'",
                f"grant all on *.* to {USER}@'%'",
                f"create database if not exists {DATABASE}",
                database=None,
            )
            self._has_user = True

    def kill(self) -> None:
        """End it at once: nothing is finished, nothing is written; the next start recovers."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it properly."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
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
