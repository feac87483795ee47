"""The server of an application: its parts put together, behind the rules of who may ask.

A request passes, in this order: the rules (``security.py``), the short way for reads of one row
(``reading.py``), and Starlette's routes for everything else. Whatever goes wrong is answered as a problem
(``answers.py``); all of it is counted (``metrics.py``).
"""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from headwater import __version__
from headwater.errors import HeadwaterError, NotAllowed, NotFound, RequestFailed, TokenMissing
from headwater.serve.answers import as_json, problem
from headwater.serve.changes import ViewChanges
from headwater.serve.ingest import Ingest
from headwater.serve.login import Login
from headwater.serve.metrics import OTHER, RequestMetrics
from headwater.serve.reading import ROW, Reads, raw_path
from headwater.serve.security import Access
from headwater.serve.serving import Part, Serving
from headwater.serve.sharing import ASKED_METHOD, asked_headers, shared_headers
from headwater.serve.topic_events import TopicEvents

logger = logging.getLogger("headwater.serve")


class Server:
    """An ASGI application that serves one application of ours."""

    def __init__(self, serving: Serving, access: Access | None = None, *, dashboard: bool = True) -> None:
        """Without the dashboard it is lighter by some tens of megabytes, and starts a second sooner."""
        self.serving, self.access = serving, access or Access()
        self._reads = Reads(serving)
        # Rows come last: the key of one could be the name of what others have under a view.
        self.parts: Sequence[Part] = (
            ViewChanges(serving),
            TopicEvents(serving),
            Ingest(serving),
            self._reads,
        )
        self._requests = RequestMetrics()
        serving.registry.register(self._requests)
        self._stopped = False
        self.failure: HeadwaterError | None = None  # why it could not start
        self.app = Starlette(
            routes=self._routes(),
            exception_handlers={
                HeadwaterError: _answer_error,
                HTTPException: _answer_refused,
                Exception: _answer_unexpected,
            },
            lifespan=self._lifespan,
        )
        self.app.router.redirect_slashes = False
        self.ui = dashboard and _mount_ui(self.app, serving)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, as ASGI says."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        refusal = self.access.refusal(scope)
        if scope["type"] == "websocket":
            if refusal is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})  # before it is accepted: an HTTP 403
            return
        status, seconds, route = 500, 0.0, ""
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        if origin is not None and not self.access.shares_with(origin.decode("latin-1")):
            origin = None

        async def counted(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - began
                if origin is not None:
                    message = {**message, "headers": [*message.get("headers", ()), *shared_headers(origin)]}
            await send(message)

        try:
            if origin is not None and _only_asks(scope) and not isinstance(refusal, NotAllowed):
                # What asks has no token yet.
                await send({"type": "http.response.start", "status": 204, "headers": asked_headers(origin)})
                await send({"type": "http.response.body", "body": b""})
                status = 204
            elif refusal is not None:
                await self._refuse(refusal, scope, receive, counted)
            elif scope["method"] == "GET" and (row := self._reads.wants(raw_path(scope))) is not None:
                route = ROW
                await self._answer_row(scope, row, receive, counted)
            else:
                await self.app(scope, receive, counted)
        finally:
            route = route or getattr(scope.get("route"), "path_format", OTHER)
            self._requests.count(scope["method"], route, status, seconds)

    async def _answer_row(self, scope: Scope, row: tuple[str, bytes], receive: Receive, send: Send) -> None:
        try:
            body, headers = await self._reads.row_at(scope, *row)
        except HeadwaterError as error:
            await answer_error(error)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def stop(self) -> None:
        """Ends what the parts do, among it answers that have no end; once."""
        if self._stopped:
            return
        self._stopped = True
        for part in self.parts:
            try:
                await part.stop()
            except Exception:
                logger.exception("a part of the server did not stop in order")

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            for part in self.parts:
                await part.start()
        except HeadwaterError as error:
            self.failure = error
            raise
        try:
            yield
        finally:
            await self.stop()

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route("/", self._root),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._description),
        ]
        if self.access.needs_token:
            routes += Login(self.access).routes()
        for part in self.parts:
            routes += part.routes()
        return routes

    async def _root(self, request: Request) -> Response:
        if self.ui:
            return RedirectResponse("/ui/")
        name = self.serving.app.name
        return as_json({"application": name, "views": "/views", "description": "/openapi.json"})

    async def _health(self, request: Request) -> Response:
        return as_json({"status": "ok", "application": self.serving.app.name, "version": __version__})

    async def _metrics(self, request: Request) -> Response:
        text = await run_in_threadpool(generate_latest, self.serving.registry)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _description(self, request: Request) -> Response:
        from headwater.serve.openapi import document

        return as_json(await run_in_threadpool(document, self))

    async def _refuse(self, refusal: HeadwaterError, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(refusal, TokenMissing):
            answer: Response = problem(refusal, headers={"WWW-Authenticate": "Bearer"})
            accepted = Request(scope).headers.get("accept", "")
            if scope["method"] == "GET" and "text/html" in accepted:  # a person with a browser
                answer = RedirectResponse("/login", 303)
        else:
            answer = problem(refusal)
        await answer(scope, receive, send)


def _only_asks(scope: Scope) -> bool:
    """Whether a browser asks what it may send, and sends nothing yet."""
    return scope["method"] == "OPTIONS" and any(name == ASKED_METHOD for name, _ in scope["headers"])


def _mount_ui(app: Starlette, serving: Serving) -> bool:
    """Adds the dashboard, where what it is made with is installed."""
    from headwater import ui

    try:
        ui.mount(app, serving)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nicegui":
            raise
        return False
    return True


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwaterError)
    return answer_error(error)


def answer_error(error: HeadwaterError) -> Response:
    """An error as a problem, with what it has to say beyond its sentence."""
    return problem(error, **getattr(error, "details", {}))


async def _answer_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 404:
        return problem(NotFound("find", path, "there is nothing at this address"))
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        cause = f"{request.method} is not what one does with it"
        fault = RequestFailed("answer", path, cause, f"Use {allowed or 'another method'}.")
        return problem(fault, 405, error.headers)
    fault = RequestFailed("answer", path, str(error.detail), "Correct the request.")
    return problem(fault, error.status_code, error.headers)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    cause = f"{type(error).__name__}: {error}"
    fault = RequestFailed("answer", request.scope["path"], cause, "See the server's log, and report it.")
    return problem(fault, 500)
