"""A server that takes events: in this process for tests, and as a program that can be killed.

``python -m tests.serve.ingesting BOOTSTRAP DATA PORT TOPIC``
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.serve.server import Server
from headwater.serve.serving import Limits, Serving
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings
from headwater.views.store import open_store

SCHEMA = "user long, page string, price decimal(10,2), at timestamp"
AT = "2026-01-05T10:00:00Z"


def declared(topic: str) -> App:
    """A stream, a table, and topics that take nothing over HTTP."""
    app = App("shop")
    app.stream(topic, SCHEMA, name="clicks", time="at", partitions=2)
    app.table(f"{topic}.users", "id long, name string", key="id", name="users")
    app.stream(f"{topic}.frames", format="raw", name="frames")
    return app


def serving_of(bootstrap: str, data: Path, topic: str, limits: Limits | None = None) -> Serving:
    settings = load_stream_settings(data=data, bootstrap=bootstrap, environ={}, directory=data)
    store = open_store(settings.store)
    connection = Connection(bootstrap, {"log_level": "0"})
    return Serving(declared(topic), settings, store, connection, limits or Limits())


@contextmanager
def running(serving: Serving) -> Iterator[httpx.Client]:
    """The server in a thread, and a client of it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            Server(serving, dashboard=False), log_level="warning", timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                wait_until_healthy(client)
                yield client
        finally:
            server.should_exit = True
            thread.join(30)
            serving.store.close()


def wait_until_healthy(client: httpx.Client, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


def content(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The records of a topic that a reader of committed ones sees."""
    with Reader(Connection(bootstrap, {"log_level": "0"}), [topic], to_end=True) as reader:
        return [
            {
                "partition": message.partition(),
                "offset": message.offset(),
                "key": message.key(),
                "value": json.loads(message.value() or b"null"),
                "headers": dict(message.headers() or []),
            }
            for messages in reader.batches()
            for message in messages
        ]


def main() -> None:
    bootstrap, data, port, topic = sys.argv[1:]
    uvicorn.run(Server(serving_of(bootstrap, Path(data), topic)), port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
