"""A connection to a server that speaks HTTP, kept open; what goes wrong with it is raised as ConnectionLost."""

import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from headwater.errors import ApplicationInvalid, ConnectionLost, SinkImpossible

ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class HttpAddress:
    """``http://`` or ``https://[user:password@]host[:port][/path]``.

    >>> HttpAddress("https://me:secret@search:9200/es/").shown
    'https://me:***@search:9200/es'
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ca: str | None = None  # a file of certificates to trust

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            known = False
        if not known:
            step = "Write http://HOST:PORT or https://HOST:PORT."
            raise ApplicationInvalid("use", self.shown, "it is no address of a server", step)

    @property
    def shown(self) -> str:
        """Without its password, for people."""
        parts = urlsplit(self.url)
        user, _, host = parts.netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}" if user else parts.netloc
        return parts._replace(netloc=netloc).geturl().rstrip("/")

    @property
    def path(self) -> str:
        """What stands in front of every path."""
        return urlsplit(self.url).path.rstrip("/")

    def all_headers(self) -> dict[str, str]:
        """Those given, and the one that says who we are."""
        parts = urlsplit(self.url)
        if parts.username is None:
            return dict(self.headers)
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": f"Basic {b64encode(who.encode()).decode()}", **self.headers}

    def connect(self) -> http.client.HTTPConnection:
        """A connection, not yet open."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=ANSWER_SECONDS)
        context = ssl.create_default_context(cafile=self.ca)
        return http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_SECONDS, context=context)


class HttpConnection:
    """Requests one after the other."""

    def __init__(self, address: HttpAddress) -> None:
        self.address = address
        self._headers = address.all_headers()
        try:
            self._connection = address.connect()
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            step = "Let ca be a file of certificates (PEM) that can be read, and start the sink again."
            raise SinkImpossible("use the certificates in", str(address.ca), cause, step) from error

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        headers = {"Content-Type": kind, **self._headers} if body is not None else self._headers
        try:
            if self._connection.sock is None:
                self._connection.connect()
                assert self._connection.sock is not None
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.request(method, self.address.path + path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
            step = "Look at the server; the sink goes on by itself when it answers again."
            raise ConnectionLost("reach", self.address.shown, reason.lower(), step) from error
        except ValueError as error:  # a name, or a header, that cannot be sent
            self.close()
            step = "Correct url and headers of the sink."
            raise SinkImpossible("ask", self.address.shown, str(error), step) from error

    def close(self) -> None:
        """Ends it; the next request opens it again."""
        self._connection.close()
