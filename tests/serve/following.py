"""A view, a server for it, and a client that follows it the way a browser would."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from headwater.client.connection import Connection
from headwater.serve.serving import Part, Serving
from headwater.serve.sse import Parser
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings
from headwater.views.store import ViewStore

PATIENCE = 60.0  # seconds; a busy machine is no fault


def declared() -> App:
    """An application with the views that are followed here."""
    app = App("followed")
    app.stream("lines", "line string")
    for name, key in (("words", "word"), ("clicks_by_page", "page"), ("prices", "price"), ("later", "word")):

        def rows(lines: Any) -> Any:
            return lines

        rows.__name__ = name
        app.view(key=key)(rows)
    return app


def serving_of(store: ViewStore, data: Path, bootstrap: str = "127.0.0.1:1") -> Serving:
    """What a server needs to serve the views of a store."""
    return Serving(declared(), load_stream_settings(data=data), store, Connection(bootstrap))


class Running:
    """Parts of the server in a thread, at a port that stays the same when it is started again."""

    def __init__(self, parts: Sequence[Part], port: int, whole: ASGIApp | None = None) -> None:
        self.port, self.url, self.parts = port, f"http://127.0.0.1:{port}", parts
        app = Starlette(routes=[route for part in parts for route in part.routes()], lifespan=self._lifespan)
        config = uvicorn.Config(
            whole or app,
            host="127.0.0.1",
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=5,
            lifespan="on",
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        for part in self.parts:
            await part.start()
        yield

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._uvicorn.serve()

        asyncio.run(serve())

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while not self._uvicorn.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        for part in self.parts:
            asyncio.run_coroutine_threadsafe(part.stop(), self._loop).result(PATIENCE)
        self._uvicorn.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the server did not stop"


Event = tuple[str, str | None, Any]


@contextlib.contextmanager
def stream(url: str, **options: Any) -> Iterator[Iterator[Event]]:
    """The events of an address as they come."""
    with (
        httpx.Client(timeout=PATIENCE) as client,
        client.stream("GET", url, **options) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Event]:
    parser = Parser()
    for data in answer.iter_raw():
        for kind, identity, content in parser.feed(data):
            yield kind, identity, json.loads(content)


def until(events: Iterator[Event], kind: str) -> list[Event]:
    """Events up to and with the first of a kind."""
    found = []
    for event in events:
        found.append(event)
        if event[0] == kind:
            return found
    raise AssertionError(f"the stream ended without {kind}: {found[-5:]}")


class Follower:
    """Keeps a copy of a view with the column ``word`` as its key, by the rules of the events alone."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.last: str | None = None
        self.batch: int | None = None
        self.kinds: dict[str, int] = {}
        self._coming: dict[str, Any] = {}

    def connected(self) -> None:
        self._coming = {}

    def apply(self, kind: str, identity: str | None, data: Any) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if identity is not None:
            if identity and self.last:
                assert int(identity) > int(self.last), f"{identity} came after {self.last}"
            self.last = identity or None
        if kind == "snapshot":
            assert self.last is None, "a snapshot without a reset"
            self._coming |= {row["word"]: row for row in data}
        elif kind == "snapshot-end":
            self.rows, self._coming = self._coming, {}
        elif kind == "upsert":
            self.rows[data["word"]] = data
        elif kind == "delete":
            self.rows.pop(data["word"], None)
        elif kind == "progress":
            self.batch = data["batch"]
        elif kind == "reset":
            self._coming = {}

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.last is None else {"Last-Event-ID": self.last}


async def raw_events(
    port: int, path: str, headers: Mapping[str, str], slow: float = 0.0, buffer: int | None = None
) -> AsyncIterator[Event]:
    """As ``stream``, over a bare socket that may be slow and have little room."""
    client = socket.socket()
    client.setblocking(False)
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(client, ("127.0.0.1", port))
        lines = [f"GET {path} HTTP/1.0", "Host: 127.0.0.1", *(f"{k}: {v}" for k, v in headers.items())]
        await loop.sock_sendall(client, "\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            got = await loop.sock_recv(client, 4096)
            if not got:
                raise ConnectionError(head)
            head += got
        head, _, data = head.partition(b"\r\n\r\n")
        if head.split(b" ")[1] == b"503":
            raise ConnectionError("the server is on its way up or down")
        assert head.split(b" ")[1] == b"200", head
        parser = Parser()
        while True:
            for kind, identity, content in parser.feed(data):
                yield kind, identity, json.loads(content)
            if slow:
                await asyncio.sleep(slow)
            data = await loop.sock_recv(client, 4096 if slow else 65536)
            if not data:
                return
    finally:
        client.close()
