"""Redis's protocol (RESP2): commands as arrays of bulk strings, many in one go, and their replies.

Only what a sink needs: no publish and subscribe, no RESP3. One thread at a time may use a connection.
"""

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from headwater.errors import ApplicationInvalid, ConnectionLost, SinkImpossible

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0  # a Redis that saves or loads holds its clients up

# What passes: it loads its data, fails over, saves or is full.
_PASSING = (
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "OOM",
    "MISCONF",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "UNBLOCKED",
)


class RedisError(Exception):
    """An error that Redis answered with."""


@dataclass(frozen=True)
class RedisAddress:
    """Where a Redis is: ``redis://[user[:password]@]host[:port][/db]``, ``rediss://`` with TLS, ``unix:///path``."""

    url: str

    def __post_init__(self) -> None:
        scheme = urlsplit(self.url).scheme
        if scheme not in ("redis", "rediss", "unix"):
            step = "Use redis://HOST:PORT/DB, rediss:// for TLS, or unix:///PATH."
            raise ApplicationInvalid("use", self.shown, "it is no address of a Redis", step)
        try:
            _ = (self.db, urlsplit(self.url).port)
        except ValueError as error:
            step = "Write redis://HOST:PORT/DB, with numbers for port and database."
            raise ApplicationInvalid("use", self.shown, str(error), step) from error

    @property
    def db(self) -> int:
        """The number of the database.

        >>> RedisAddress("redis://localhost/2").db, RedisAddress("unix:///run/redis.sock?db=3").db
        (2, 3)
        """
        parts = urlsplit(self.url)
        text = parse_qs(parts.query).get("db", [""])[0] or ("" if parts.scheme == "unix" else parts.path[1:])
        return int(text or 0)

    @property
    def shown(self) -> str:
        """Without its password, for people.

        >>> RedisAddress("redis://me:secret@cache:6380/1").shown
        'redis://me:***@cache:6380/1'
        """
        parts = urlsplit(self.url)
        user, _, host = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}").geturl() if user else self.url

    def connect(self) -> socket.socket:
        """A socket to it."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            local = socket.socket(socket.AF_UNIX)
            local.settimeout(CONNECT_SECONDS)
            local.connect(parts.path)
            return local
        host = parts.hostname or "localhost"
        plain = socket.create_connection((host, parts.port or 6379), CONNECT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "redis":
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)

    def greeting(self) -> list[bytes]:
        """The commands that open a connection."""
        parts = urlsplit(self.url)
        commands = []
        if parts.password is not None:
            names = [unquote(parts.username).encode()] if parts.username else []
            commands.append(command(b"AUTH", *names, unquote(parts.password).encode()))
        if self.db:
            commands.append(command(b"SELECT", str(self.db).encode()))
        return commands


def command(*parts: bytes) -> bytes:
    """One command as it goes over the wire.

    >>> command(b"GET", b"a")
    b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n'
    """
    return many(parts)


def many(parts: Iterable[bytes]) -> bytes:
    """The same for a command of very many parts."""
    parts = list(parts)
    return b"*%d\r\n%b" % (len(parts), b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]))


class RedisConnection:
    """A connection. Whatever goes wrong with it is raised as ConnectionLost."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        try:
            self._socket = address.connect()
        except OSError as error:
            raise self._lost(error) from error
        except UnicodeError as error:
            step = "Correct the URL of the sink."
            raise SinkImpossible("reach", address.shown, "this is no name of a server", step) from error
        self._socket.settimeout(ANSWER_SECONDS)
        self._stream = self._socket.makefile("rb", buffering=1 << 16)
        if greeting := address.greeting():
            for reply in self.ask(greeting):
                self.check(reply, "open")

    def ask(self, commands: list[bytes]) -> list[Any]:
        """Sends commands together and gives their replies; an error among them is a RedisError, not raised."""
        try:
            self._socket.sendall(b"".join(commands))
            return [self._reply() for _ in commands]
        except OSError as error:
            raise self._lost(error) from error

    def check(self, reply: Any, operation: str) -> Any:
        """A reply that is no error."""
        if not isinstance(reply, RedisError):
            return reply
        cause = str(reply)
        if cause.startswith(_PASSING):
            raise ConnectionLost(operation, self.address.shown, cause, "It is tried again.")
        raise SinkImpossible(operation, self.address.shown, cause)

    def close(self) -> None:
        """Ends it."""
        self._stream.close()
        self._socket.close()

    def _reply(self) -> Any:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("it closed the connection")
        kind, content = line[:1], line[1:-2]
        if kind == b"+":
            return content
        if kind == b":":
            return int(content)
        if kind == b"-":
            return RedisError(content.decode(errors="replace"))
        if kind == b"$":
            return self._bulk(int(content))
        if kind == b"*":
            count = int(content)
            return None if count < 0 else [self._reply() for _ in range(count)]
        raise OSError("something that is no Redis answers there")

    def _bulk(self, size: int) -> bytes | None:
        if size < 0:
            return None
        content: bytes = self._stream.read(size + 2)
        if len(content) != size + 2:
            raise OSError("it closed the connection")
        return content[:-2]

    def _lost(self, error: OSError) -> ConnectionLost:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        step = "Look at the server; the sink goes on by itself when it answers again."
        return ConnectionLost("reach", self.address.shown, reason.lower(), step)
