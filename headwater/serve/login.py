"""A page to sign in with the token, for the dashboard: browsers do not send headers of one's own."""

from collections.abc import Sequence
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from headwater.serve.security import Access, cookie_header

LONGEST = 4096  # bytes of the form

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Headwater</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 16px system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 100vh; margin: 0; }}
form {{ display: grid; gap: .8rem; width: min(20rem, 90vw); }}
input, button {{ font: inherit; padding: .5rem; }}
p {{ margin: 0; color: #c62828; }}
</style></head><body>
<form method="post" action="/login"><h1>Headwater</h1>{said}
<label for="token">The server's token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button>Sign in</button></form></body></html>
"""


class Login:
    """The page, and what it sends."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> Sequence[BaseRoute]:
        """Its one address."""
        return [Route("/login", self._show, methods=["GET"]), Route("/login", self._take, methods=["POST"])]

    async def _show(self, request: Request) -> Response:
        return HTMLResponse(_PAGE.format(said=""))

    async def _take(self, request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > LONGEST:
                break
        token = parse_qs(body[:LONGEST].decode("latin-1")).get("token", [""])[0]
        if not self._access.accepts(token):
            return HTMLResponse(_PAGE.format(said="<p>That is not the token.</p>"), 401)
        headers = cookie_header(self._access.session, request.url.scheme == "https")
        return RedirectResponse("/", 303, headers=dict(headers))
