"""What pages of other origins are told, so that their browser lets them read (CORS). Pure.

A browser shows a page the answers of another origin only where these say so, and asks first, with OPTIONS, before
it sends what a form could not send. Cookies are not asked for: such a page sends the token, where there is one.
"""

from collections.abc import Iterable

from headwater.errors import BadInput
from headwater.serve.security import origin_host

ANY_ORIGIN = (b"vary", b"origin")
ASKED_METHOD = b"access-control-request-method"  # it is in a question before the request, and nowhere else
KEPT_SECONDS = 600  # for which a browser remembers the answer

_READ = (
    "Headwater-View-Version, Headwater-Batch, Headwater-Watermark, Headwater-Offsets, Headwater-Last-Change, "
    "Headwater-Key, Headwater-Token, Idempotent-Replayed, Link, Retry-After, Allow"
)
_SENT = (
    "Authorization, Content-Type, Content-Encoding, Idempotency-Key, Headwater-At-Least, Last-Event-ID, "
    "Cache-Control"
)

Headers = list[tuple[bytes, bytes]]


def shared_headers(origin: bytes) -> Headers:
    """What every answer to a page of this origin has.

    >>> shared_headers(b"http://localhost:3000")[0]
    (b'access-control-allow-origin', b'http://localhost:3000')
    """
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _READ.encode()),
        ANY_ORIGIN,
    ]


def asked_headers(origin: bytes) -> Headers:
    """The answer to a browser that asks whether a page of this origin may send a request."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", b"GET, HEAD, POST"),
        (b"access-control-allow-headers", _SENT.encode()),
        (b"access-control-max-age", b"%d" % KEPT_SECONDS),
        ANY_ORIGIN,
    ]


def origins_of(texts: Iterable[str]) -> frozenset[str]:
    """Origins as people write them, the way browsers send them.

    >>> origins_of(["https://Shop.example/"])
    frozenset({'https://shop.example'})
    >>> origins_of(["shop.example"])
    Traceback (most recent call last):
    headwater.errors.BadInput: cannot share with the origin shop.example: it is not SCHEME://HOST or SCHEME://HOST...
    """
    found = set()
    for text in texts:
        origin = text.lower().removesuffix("/")
        if origin_host(origin) is None:
            cause = "it is not SCHEME://HOST or SCHEME://HOST:PORT"
            raise BadInput("share with", f"the origin {text}", cause, "Write it like https://shop.example.")
        found.add(origin)
    return frozenset(found)
