"""The server of one view store, for the benchmark of subscriptions: what serves an application, with no broker."""

import argparse
import socket
from pathlib import Path

import uvicorn

from headwater.client.connection import Connection
from headwater.serve.server import Server
from headwater.serve.serving import Serving
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings
from headwater.views import open_store


class _Uvicorn(uvicorn.Server):
    """Ends answers that have no end before it waits for those under way."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._server.stop()
        await super().shutdown(sockets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("port", type=int)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    settings = load_stream_settings(data=options.data)
    with open_store(options.store) as views:
        server = Server(Serving(App("followed"), settings, views, Connection("127.0.0.1:1")), dashboard=False)
        config = uvicorn.Config(
            server,
            host="127.0.0.1",
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=10,
        )
        _Uvicorn(config, server).run()


if __name__ == "__main__":
    main()
