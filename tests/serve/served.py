"""A view store with rows of all types, an application that declares them, and its server on a port of its own."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import uvicorn

from headwater.client.connection import Connection
from headwater.serve.running import config_of
from headwater.serve.security import Access
from headwater.serve.server import Server
from headwater.serve.serving import Limits, Serving
from headwater.serve.settings import ServeSettings
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings
from headwater.views import Batch, Column, ViewSchema, ViewStore, open_store
from headwater.views.types import arrow_type

PATIENCE = 60.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOW = "struct<start:timestamp,end:timestamp>"

WORDS = ViewSchema("words", 1, (Column("word", "string"), Column("n", "bigint")), ("word",))
SALES = ViewSchema(
    "sales",
    1,
    (
        Column("window", WINDOW),
        Column("country", "string"),
        Column("day", "date"),
        Column("total", "decimal(12,2)"),
        Column("mean", "double"),
        Column("small", "float"),
        Column("closed", "boolean"),
        Column("tags", "array<string>"),
        Column("parts", "map<string,int>"),
        Column("raw", "binary"),
        Column("in", "int"),
    ),
    ("window", "country"),
)
BY_DAY = ViewSchema("by_day", 1, (Column("day", "date"), Column("orders", "int")), ("day",))
USERS = ViewSchema("users", 1, (Column("id", "bigint"), Column("name", "string")), ("id",))


def declared() -> App:
    """The application: a stream of lines and one of sales, views of each, a view over views, and a table."""
    app = App("shop")
    app.stream("lines", "line string")
    app.stream("shop.sales", "country string, amount double, at timestamp", name="events", time="at")
    app.table("shop.users", "id long, name string", key="id")

    @app.view(key="word")
    def words(lines: Any) -> Any:
        return lines

    @app.view(key=["window", "country"])
    def sales(events: Any) -> Any:
        return events

    @app.view(key="day")
    def by_day(sales: Any, users: Any) -> Any:
        return sales

    @app.view(key="word")
    def absent(lines: Any) -> Any:
        return lines

    return app


def window(minute: int) -> dict[str, datetime]:
    return {
        "start": NOON + timedelta(minutes=minute),
        "end": NOON + timedelta(minutes=minute + 1),
    }


def sale(minute: int, country: str, **more: Any) -> dict[str, Any]:
    return {
        "window": window(minute),
        "country": country,
        "day": date(2026, 3, 1),
        "total": Decimal("12.50"),
        "mean": 0.25,
        "small": 0.1,
        "closed": True,
        "tags": ["a", None],
        "parts": [("x", 1)],
        "raw": b"\x00\xff",
        "in": minute,
        **more,
    }


SALES_ROWS = [
    sale(0, "CH"),
    sale(0, "a,b/c%d é"),
    sale(1, "CH", total=Decimal("-0.01"), mean=float("nan"), closed=False),
    sale(2, "CH", mean=1e20, tags=[], parts=[]),
    sale(3, "CH", mean=float("-inf"), small=1e-7),
    dict.fromkeys(SALES.types) | {"window": window(4), "country": "", "mean": -0.0},
    sale(5, 'quote " and \\ and \n'),
]


def table(schema: ViewSchema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {
            column.name: pa.array([row[column.name] for row in rows], arrow_type(column.type))
            for column in schema.columns
        }
    )


def fill(store: ViewStore) -> None:
    """The views, a batch in each."""
    for schema in (WORDS, SALES, BY_DAY, USERS):
        store.define(schema, "f")
    words = [{"word": f"w{number}", "n": number} for number in range(25)]
    store.apply("words", 1, Batch(0, table(WORDS, words), offsets={"lines": {"0": 5}}))
    offsets = {"shop.sales": {"0": 3, "1": 4}}
    store.apply("sales", 1, Batch(7, table(SALES, SALES_ROWS), offsets=offsets, watermark=NOON))
    days = [{"day": date(2026, 3, day), "orders": day} for day in (1, 2)]
    merged = {**offsets, "shop.users": {"0": 9}, "views": {"sales": [1, 7]}}
    store.replace("by_day", 1, Batch(0, table(BY_DAY, days), offsets=merged))
    store.apply(
        "users", 1, Batch(0, table(USERS, [{"id": 7, "name": "Ada"}]), offsets={"shop.users": {"0": 9}})
    )


def serving_of(url: str, data: Path, limits: Limits | None = None) -> Serving:
    """What a server works on, over a store that is filled when it is new."""
    settings = load_stream_settings(data=data, store=url, bootstrap="127.0.0.1:1", environ={}, directory=data)
    store = open_store(url)
    if not store.views():
        fill(store)
    return Serving(declared(), settings, store, Connection(settings.bootstrap), limits or Limits())


@contextmanager
def running(
    serving: Serving, token: str | None = None, origins: frozenset[str] = frozenset()
) -> Iterator[httpx.Client]:
    """The server in a thread, and a client of it."""
    server = Server(serving, Access(token, origins), dashboard=False)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        uvicorn_server = uvicorn.Server(config_of(server, ServeSettings()))
        thread = threading.Thread(target=uvicorn_server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while not uvicorn_server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.005)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                yield client
        finally:
            uvicorn_server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server did not stop"
