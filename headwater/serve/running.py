"""Running the server: listen, say so, serve until told to stop."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn

from headwater.client.connection import Connection
from headwater.errors import AddressInUse
from headwater.serve.security import Access
from headwater.serve.server import Server
from headwater.serve.serving import Serving
from headwater.serve.settings import ServeSettings
from headwater.streams.app import App
from headwater.streams.settings import StreamSettings
from headwater.views.store import open_store

# Set by who starts a server for itself and holds its standard input: the server ends when that is closed, and so
# with its owner, however that ends.
LEASH = "HEADWATER_SERVE_LEASH"
GRACE = 3  # seconds for answers that are on their way when it is time to stop
UNSENT = 64 << 10  # bytes that may wait in the kernel for a client that reads slowly
KEEP_ALIVE = 75  # seconds that a connection may be idle


def run(
    app: App,
    streams: StreamSettings,
    settings: ServeSettings,
    ready: Callable[[str], None],
    seconds: float | None = None,
) -> None:
    """Serve an application in this process until SIGTERM or Ctrl-C; ``ready`` is told the address."""
    listener = _listen(settings)
    with contextlib.closing(listener), open_store(streams.store) as store:
        connection = Connection(streams.bootstrap, streams.properties)
        access = Access(settings.token, settings.origins)
        server = Server(Serving(app, streams, store, connection), access, dashboard=settings.dashboard)
        work = _serve(server, settings, listener, ready, seconds)
        try:
            import uvloop
        except ImportError:
            asyncio.run(work)
        else:
            uvloop.run(work)


def _listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens already: a port that is taken is refused before anything else is done."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                # Its connections inherit it. Else the kernel would take megabytes for each client that does not
                # read, and hide from us that it does not.
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
            listener.bind(address)
            listener.listen(2048)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        cause = (error.strerror or str(error)).lower()
        step = "Choose another port (--port of `serve`, --http of `up`), or 0 for a free one."
        raise AddressInUse("listen at", where, cause, step) from error
    return listener


class _Uvicorn(uvicorn.Server):
    """Says when it is ready, and leaves signals to us."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    server: Server,
    settings: ServeSettings,
    listener: socket.socket,
    ready: Callable[[str], None],
    seconds: float | None,
) -> None:
    def begin() -> None:
        # What was made to start is kept for ever: collections should not look through it again and again.
        gc.collect()
        gc.freeze()
        ready(settings.url(listener.getsockname()[1]))

    uvicorn_server = _Uvicorn(config_of(server, settings), begin)
    stop = asyncio.Event()
    stopper = asyncio.create_task(_stop(stop, server, uvicorn_server))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    leashed = bool(os.environ.get(LEASH))
    if leashed:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    if seconds is not None:
        loop.call_later(seconds, stop.set)
    try:
        await uvicorn_server.serve([listener])
    finally:
        if leashed:
            loop.remove_reader(sys.stdin.fileno())
        stopper.cancel()
    if server.failure is not None:
        raise server.failure


async def _stop(stop: asyncio.Event, server: Server, uvicorn_server: uvicorn.Server) -> None:
    """Answers without an end are ended first: uvicorn would wait for them."""
    await stop.wait()
    uvicorn_server.should_exit = True
    await server.stop()


def config_of(server: Server, settings: ServeSettings) -> uvicorn.Config:
    """How uvicorn runs a server of ours."""
    logging.getLogger("uvicorn.error").addFilter(_unless_graceful)
    return uvicorn.Config(
        server,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,  # who may ask does not depend on what others say
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def _unless_graceful(record: logging.LogRecord) -> bool:
    """That it cancels answers which outlast the grace is what it was asked for; nothing to report."""
    return "timeout graceful shutdown" not in record.getMessage()
