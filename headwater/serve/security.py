"""Who may ask: programs on this machine, or whoever has the token.

Without a token the server is open, and listens on loopback only. Two things could still reach it from
elsewhere, both through a browser on this machine: a page whose name was made to point here (DNS rebinding),
which the Host header gives away, and a page that sends requests without being able to read the answers, which
the Origin header gives away. Both are refused. Pages of this machine itself, of another port say, may read and
write as its programs do; with a token, those of origins that were named.

With a token each request carries it, as ``Authorization: Bearer TOKEN`` or as the cookie that ``/login`` sets;
``/health`` alone is open. The cookie holds a digest made with the token, not the token.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from headwater.errors import HeadwaterError, NotAllowed, TokenMissing

COOKIE = "headwater"
OPEN = frozenset(("/health", "/login"))
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_MANY = 1000  # hosts remembered as fine; each is a few bytes

Scope = MutableMapping[str, Any]


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine, by itself and without asking a name server.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "app.localhost", "example.org", "10.0.0.1")]
    [True, True, True, True, False, False]
    """
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str | None:
    """The name in a Host header, without the port; None when it is none.

    >>> [host_name(text) for text in ("127.0.0.1:8080", "[::1]:80", "localhost", "a/b", "")]
    ['127.0.0.1', '::1', 'localhost', None, None]
    """
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises when it is no number
    except ValueError:
        return None
    return None if parts.path or parts.query or parts.fragment or "@" in header else parts.hostname


def origin_host(origin: str) -> str | None:
    """The host of an origin as browsers send it; None when it is none.

    >>> [origin_host(text) for text in ("http://localhost:3000", "https://shop.example", "null", "http://a/b", "a")]
    ['localhost', 'shop.example', None, None, None]
    """
    scheme, colon, authority = origin.partition("://")
    return host_name(authority) if colon and scheme in ("http", "https") else None


class Access:
    """The rules for one server."""

    def __init__(self, token: str | None = None, origins: frozenset[str] = frozenset()) -> None:
        """``origins`` are those whose pages may read and write, besides the server's own."""
        self._origins = origins
        self._digest = None if token is None else _digest(token.encode())
        self._session = (
            None if token is None else hmac.new(token.encode(), b"headwater session", "sha256").hexdigest()
        )
        self._fine: set[bytes] = set()

    @property
    def needs_token(self) -> bool:
        """Whether requests carry a token."""
        return self._digest is not None

    @property
    def session(self) -> str:
        """What the cookie holds."""
        assert self._session is not None
        return self._session

    def refusal(self, scope: Scope) -> HeadwaterError | None:
        """Why a request, as ASGI gives it, is not answered; None when it is."""
        host = origin = authorization = cookie = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                authorization = value
            elif name == b"cookie":
                cookie = value if cookie is None else cookie + b"; " + value
        path = scope["path"]
        if self._digest is None and host not in self._fine:
            name = host_name((host or b"").decode("latin-1"))
            if name is None or not is_loopback(name):
                return NotAllowed(
                    "answer",
                    path,
                    "the request is for another host, and this server is open to its own machine only",
                    "Use http://127.0.0.1, or start the server with --listen and a token.",
                )
            if host is not None and len(self._fine) < _MANY:
                self._fine.add(host)
        if origin is not None and (scope["type"] == "websocket" or scope["method"] not in SAFE):
            refusal = self._foreign(path, origin.decode("latin-1"), (host or b"").decode("latin-1"))
            if refusal is not None:
                return refusal
        if self._digest is None or path in OPEN or self._carries(authorization, cookie):
            return None
        return TokenMissing("answer", path, "the request does not carry the server's token")

    def accepts(self, token: str) -> bool:
        """Whether this is the token; takes the same time for all that are not."""
        return self._digest is not None and hmac.compare_digest(_digest(token.encode()), self._digest)

    def shares_with(self, origin: str) -> bool:
        """Whether pages of this origin may read answers, and write."""
        name = origin_host(origin)
        return name is not None and (origin in self._origins or (self._digest is None and is_loopback(name)))

    def _foreign(self, path: str, origin: str, host: str) -> HeadwaterError | None:
        own = origin_host(origin) is not None and origin.partition("://")[2] == host
        if own or self.shares_with(origin):
            return None
        step = "Send it from a page of this server or from a program, or start the server with --origin."
        return NotAllowed("answer", path, f"the request comes from a page of {origin}", step)

    def _carries(self, authorization: bytes | None, cookie: bytes | None) -> bool:
        assert self._digest is not None
        if authorization is not None:
            scheme, _, given = authorization.partition(b" ")
            return scheme.lower() == b"bearer" and hmac.compare_digest(_digest(given.strip()), self._digest)
        if cookie is None:
            return False
        # By hand: Python's parser takes none of the cookies when another program of this host has set an odd one.
        session = self.session.encode()
        pairs = [pair.partition(b"=") for pair in cookie.split(b";")]
        return any(
            name.strip() == COOKIE.encode() and hmac.compare_digest(value.strip().strip(b'"'), session)
            for name, _, value in pairs
        )


def cookie_header(session: str, secure: bool) -> Mapping[str, str]:
    """The header that keeps somebody signed in, until the browser is closed."""
    flags = "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    return {"Set-Cookie": f"{COOKIE}={session}{flags}"}


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
