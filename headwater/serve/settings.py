"""Where the server listens, and what it asks of those who come.

``headwater.toml`` may say::

    [serve]
    listen = "0.0.0.0"                 # else loopback
    port = 8080
    token_file = "/etc/headwater/token"  # or the token itself in HEADWATER_TOKEN
    tls_cert = "/etc/headwater/cert.pem"
    tls_key = "/etc/headwater/key.pem"
    origins = ["https://shop.example"]   # whose pages may read and write, too
    dashboard = false
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.client.settings import FILE, read_toml
from headwater.errors import BadInput
from headwater.serve.security import is_loopback
from headwater.serve.sharing import origins_of

TOKEN_VARIABLE = "HEADWATER_TOKEN"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8080
SHORTEST_TOKEN = 16  # characters; shorter ones can be guessed

_KINDS: Mapping[str, type] = {
    "listen": str,
    "port": int,
    "token_file": str,
    "tls_cert": str,
    "tls_key": str,
    "origins": list,
    "dashboard": bool,
}


@dataclass(frozen=True)
class ServeSettings:
    """The address and the rules of a server."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    token: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    origins: frozenset[str] = frozenset()
    dashboard: bool = True

    @property
    def scheme(self) -> str:
        """What its addresses begin with."""
        return "http" if self.tls_cert is None else "https"

    def url(self, port: int) -> str:
        """Where it is found.

        >>> ServeSettings(host="::1").url(8080)
        'http://[::1]:8080'
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{port}"

    def require_safe(self) -> None:
        """Refuses to be reached from elsewhere without a token, or to have it sent in the clear.

        >>> ServeSettings(host="0.0.0.0").require_safe()
        Traceback (most recent call last):
        headwater.errors.BadInput: cannot listen at 0.0.0.0: others can reach this address, and there is no...
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            cause = "a certificate and its key go together"
            raise BadInput("serve", "with TLS", cause, "Give both --tls-cert and --tls-key.")
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            cause = f"it has fewer than {SHORTEST_TOKEN} characters, and can be guessed"
            raise BadInput("use", "the token", cause, "Make a longer one, as with `openssl rand -hex 32`.")
        if is_loopback(self.host):
            return
        missing = []
        if self.token is None:
            missing.append(("no token", f"--token-file FILE (or {TOKEN_VARIABLE})"))
        if self.tls_cert is None:
            missing.append(("no TLS", "--tls-cert FILE and --tls-key FILE"))
        if missing:
            cause = "others can reach this address, and there is " + " and ".join(what for what, _ in missing)
            step = f"Give {' and '.join(how for _, how in missing)}, or listen on loopback."
            raise BadInput("listen at", self.host, cause, step)

    def require_certificate(self) -> None:
        """Refuses files that are no certificate and key, before anything is started."""
        if self.tls_cert is None or self.tls_key is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ValueError) as error:
            subject = f"the certificate {self.tls_cert} and the key {self.tls_key}"
            cause = getattr(error, "strerror", None) or str(error)
            raise BadInput("use", subject, cause, "Give PEM files that belong together.") from error


def load_serve_settings(
    *,
    listen: str | None = None,
    port: int | None = None,
    token_file: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    origins: Sequence[str] = (),
    dashboard: bool | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> ServeSettings:
    """What flags, environment and headwater.toml say, in that order; refused when it is not safe.

    >>> load_serve_settings(port=0, environ={}, directory=Path("/nonexistent")).url(4711)
    'http://127.0.0.1:4711'
    """
    environ = os.environ if environ is None else environ
    path = (directory or Path.cwd()) / FILE
    table = _table(read_toml(path), path)
    token = environ.get(TOKEN_VARIABLE)
    if token_file is not None or (token is None and "token_file" in table):
        token = _read_token(token_file or Path(table["token_file"]))
    settings = ServeSettings(
        host=listen or table.get("listen", DEFAULT_HOST),
        port=table.get("port", DEFAULT_PORT) if port is None else port,
        token=token or None,
        tls_cert=_path(tls_cert, table.get("tls_cert")),
        tls_key=_path(tls_key, table.get("tls_key")),
        origins=origins_of(map(str, origins or table.get("origins", ()))),
        dashboard=table.get("dashboard", True) if dashboard is None else dashboard,
    )
    settings.require_safe()
    settings.require_certificate()
    return settings


def _table(document: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    table = document.get("serve", {})
    if not isinstance(table, dict):
        raise BadInput("read", str(path), "[serve] is not a table", "Write [serve] and its keys below it.")
    for key, value in table.items():
        kind = _KINDS.get(key)
        if kind is None:
            raise BadInput("read", str(path), f"[serve] has no {key!r}", f"There are {', '.join(_KINDS)}.")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            cause = f"'serve.{key}' must be of type {kind.__name__}"
            raise BadInput("read", str(path), cause, "Correct the file.")
    return table


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not text"
        raise BadInput(
            "read", f"the token file {path}", cause.lower(), "Name a file that holds it."
        ) from error
    if not token or len(token.split()) != 1 or not token.isascii():
        raise BadInput(
            "use", f"the token file {path}", "it does not hold one word", "Write the token into it."
        )
    return token


def _path(flag: Path | None, text: str | None) -> Path | None:
    return flag if flag is not None else (None if text is None else Path(text))
