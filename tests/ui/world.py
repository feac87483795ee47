"""What a dashboard looks at: a real broker with records, a real view store, and status files as a run leaves them.

No Spark runs here: this writes what the engine and the connectors would, by their own classes.
"""

import math
import random
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from confluent_kafka import Producer

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.connect.sinks.sink import SinkCounts
from headwater.connect.sinks.worker import SinkWorkerStatus
from headwater.connect.source import SourceStatus, TableProgress
from headwater.connect.status import SourceStatusFile
from headwater.connect.worker import WorkerStatus
from headwater.streams.engine.status import OutputStatus, StatusFile, document_of, with_failure
from headwater.views.model import Batch, Column, ViewSchema
from headwater.views.store import open_store

WINDOW = "struct<start:timestamp,end:timestamp>"
COUNTRIES = ("CH", "DE", "FR", "IT", "AT")
PRODUCTS = ("Alpine tent", "Head torch", "Rope 60 m", "Ice axe", "Stove", "Sleeping bag", "Map", "Crampons")
VIEWS = (
    ViewSchema(
        "clicks_by_country",
        1,
        (Column("window", WINDOW), Column("country", "string"), Column("count", "bigint")),
        ("window", "country"),
    ),
    ViewSchema(
        "sales_per_minute",
        1,
        (Column("window", WINDOW), Column("revenue", "double"), Column("n", "bigint")),
        ("window",),
    ),
    ViewSchema(
        "top_products",
        1,
        (Column("product", "string"), Column("sold", "bigint"), Column("revenue", "double")),
        ("product",),
    ),
    ViewSchema(
        "users", 1, (Column("id", "bigint"), Column("name", "string"), Column("country", "string")), ("id",)
    ),
)
_TIME = pa.timestamp("us", "UTC")
_WINDOW = pa.struct([("start", _TIME), ("end", _TIME)])


class World:
    """Changes with every `step`; `run` makes it step by itself."""

    def __init__(self, data: Path, bootstrap: str) -> None:
        self.data, self.bootstrap = data, bootstrap
        self.store = open_store(f"sqlite:///{data}/views.db")
        self.random = random.Random(7)
        self.batch = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._ends: dict[str, dict[int, int]] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._status = StatusFile(data, "shop")
        self._source = SourceStatusFile(data, "shop")
        self._sink = SourceStatusFile(data, "shop.users.redis")
        self._products = dict.fromkeys(PRODUCTS, 0)
        self._clicks: dict[tuple[datetime, str], int] = {}
        self._sales: dict[datetime, list[float]] = {}
        self.outputs = {
            name: OutputStatus(name, kind, state="running", build=1)
            for name, kind in (
                ("users", "table"),
                ("clicks_by_country", "view"),
                ("sales_per_minute", "view"),
                ("top_products", "view"),
                ("suspicious", "topic"),
            )
        }
        self.stopped = False
        self.missed: list[str] = []  # steps that failed: their tracebacks

    def make(self) -> None:
        """Topics, views, and a past of half an hour."""
        admin = Admin(Connection(self.bootstrap))
        for topic, partitions, configs in (
            ("shop.clicks", 3, {"retention.ms": "604800000"}),
            ("shop.orders", 2, {}),
            ("shop.users", 1, {"cleanup.policy": "compact"}),
            ("shop.alerts", 1, {}),
            ("shop.clicks_by_country", 1, {"cleanup.policy": "compact"}),
            ("clicks.dead", 1, {}),
        ):
            admin.create_topic(topic, partitions, configs=configs, exist_ok=True)
        for schema in VIEWS:
            self.store.define(schema, "as tests compute them")
        now = datetime.now(UTC)
        for minutes in range(30, 0, -1):
            self._count(now - timedelta(minutes=minutes), 5000 + round(900 * math.sin(minutes / 4)))
        names = [{"id": n, "name": f"User {n}", "country": COUNTRIES[n % 5]} for n in range(1, 41)]
        self._apply("users", {"id": pa.int64(), "name": pa.string(), "country": pa.string()}, names)
        for row in names:
            self._send("shop.users", {"op": "c", "after": row}, str(row["id"]))
        self._producer.produce("shop.users", key=b"41", value=None, headers=[("source", b"shop.db")])
        self.step()

    def step(self, events: int = 120) -> None:
        """Some more events, and what the application makes of them."""
        with self._lock:
            now = datetime.now(UTC)
            for _ in range(events):
                user = self.random.randrange(1, 41)
                page = self.random.choice(("/", "/tents", "/sale", "/basket"))
                at = now - timedelta(seconds=self.random.expovariate(0.5))
                self._send("shop.clicks", {"user_id": user, "page": page, "at": at.isoformat()}, str(user))
            for _ in range(events // 8):
                price = round(self.random.lognormvariate(4, 0.8), 2)
                order = {
                    "user_id": self.random.randrange(1, 41),
                    "product": self.random.choice(PRODUCTS),
                    "price": price,
                }
                self._send("shop.orders", order | {"at": now.isoformat()}, str(order["user_id"]))
                if price > 200:
                    self._send("shop.alerts", order, str(order["user_id"]))
            self._producer.flush(10)
            self._count(now, events)
            self.write()

    def _count(self, now: datetime, events: int) -> None:
        minute = now.replace(second=0, microsecond=0)
        window = {"start": minute, "end": minute + timedelta(minutes=1)}
        for country, weight in zip(COUNTRIES, (5, 4, 2.5, 2, 1), strict=True):
            more = round(events * weight / 14.5 * self.random.uniform(0.7, 1.3))
            self._clicks[minute, country] = self._clicks.get((minute, country), 0) + more
        sales = self._sales.setdefault(minute, [0.0, 0])
        for _ in range(events // 8):
            product = min(self.random.choices(range(8), range(16, 0, -2))[0], 7)
            self._products[PRODUCTS[product]] += 1
            sales[0] = round(sales[0] + self.random.lognormvariate(4, 0.8), 2)
            sales[1] += 1
        self.batch += 1
        rows = [{"window": window, "country": c, "count": self._clicks[minute, c]} for c in COUNTRIES]
        kinds = {"window": _WINDOW, "country": pa.string(), "count": pa.int64()}
        self._apply("clicks_by_country", kinds, rows)
        rows = [{"window": window, "revenue": sales[0], "n": int(sales[1])}]
        self._apply("sales_per_minute", {"window": _WINDOW, "revenue": pa.float64(), "n": pa.int64()}, rows)
        rows = [
            {"product": name, "sold": sold, "revenue": sold * 59.9} for name, sold in self._products.items()
        ]
        self._apply(
            "top_products", {"product": pa.string(), "sold": pa.int64(), "revenue": pa.float64()}, rows
        )

    def _apply(self, view: str, kinds: dict[str, pa.DataType], rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
        mark = datetime.now(UTC) - timedelta(seconds=31) if view == "clicks_by_country" else None
        self.store.apply(view, 1, Batch(self.batch, table, offsets=dict(self._ends), watermark=mark))

    def _send(self, topic: str, value: dict[str, Any], key: str) -> None:
        def arrived(error: object, message: Any) -> None:
            assert error is None, error
            self._ends.setdefault(topic, {})[message.partition()] = message.offset() + 1

        headers = [("trace", b"%032x" % self.random.getrandbits(128))] if topic == "shop.alerts" else None
        self._producer.produce(topic, orjson.dumps(value), key, headers=headers, on_delivery=arrived)
        self._producer.poll(0)

    # -- what processes say of themselves ------------------------------------------------------------

    def write(self) -> None:
        """The status files; whoever calls holds the lock: a status file has one writer."""
        reads = {
            "users": ("shop.users",),
            "clicks_by_country": ("shop.clicks", "shop.users"),
            "sales_per_minute": ("shop.orders",),
            "top_products": ("shop.orders",),
            "suspicious": ("shop.orders",),
        }
        for name, output in self.outputs.items():
            output.offsets = {
                topic: {number: max(0, end - 3) for number, end in self._ends.get(topic, {}).items()}
                for topic in reads[name]
            }
            covered = sum(sum(ends.values()) for ends in output.offsets.values())
            output.lag = 3 * sum(len(ends) for ends in output.offsets.values())
            output.rows_in = covered
            output.rows_out = covered // 3
            output.batches, output.batch = self.batch, self.batch
            run = self.random.randrange(180, 320)
            output.phases = {
                "latestOffset": self.random.randrange(4, 12),
                "queryPlanning": self.random.randrange(15, 30),
                "addBatch": run,
                "walCommit": self.random.randrange(20, 40),
                "commitOffsets": self.random.randrange(15, 30),
                "triggerExecution": run + 110,
            }
            output.batch_ms = run + 110
            if name in ("clicks_by_country", "sales_per_minute"):
                mark = datetime.now(UTC) - timedelta(seconds=31)
                output.watermark = mark.isoformat().replace("+00:00", "Z")
                output.state_rows = 150 + self.batch % 40
                output.state_bytes = output.state_rows * 2200
        self.outputs["clicks_by_country"].late = self.batch // 9
        document = document_of(
            "shop", list(self.outputs.values()), **({"stopped": True} if self.stopped else {})
        )
        self._status.write(document)
        table = TableProgress("users", 40, 40, True), TableProgress("products", 25 + self.batch, 400, False)
        source = SourceStatus("main 1840", 0, 0.4, tuple(table), ())
        self._source.write(
            "shop", WorkerStatus("shop", "running", source, None, 40 + self.batch, 9000, 12), 4.0
        )
        sink = SinkWorkerStatus(
            "shop.users.redis",
            "running",
            "shop.users",
            "redis://localhost",
            SinkCounts(records=41),
            "0:41",
            0,
            0.0,
        )
        self._sink.write("shop", sink, 1.0)

    def fail(self, name: str, cause: str) -> None:
        """The function of an output fails, and is started again."""
        output = self.outputs[name]
        error = f"cannot go on with shop.{name}: {cause}. It is started again from its last finished batch."
        with self._lock:
            output.error, output.state, output.restarts = error, "restarting", output.restarts + 1
            output.failures = with_failure(output.failures, error)
            self.write()

    def mend(self, name: str) -> None:
        """It works again."""
        with self._lock:
            self.outputs[name].error, self.outputs[name].state = None, "running"
            self.write()

    def run(self, every: float = 0.4) -> None:
        """Steps in a thread until it is closed."""

        def go_on() -> None:
            while not self._stopping.wait(every):
                try:
                    self.step(40)
                except Exception:  # a world that stands still would fail every test that follows
                    self.missed.append(traceback.format_exc())

        self._thread = threading.Thread(target=go_on, name="world", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(20)
        self.store.close()


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    """Until something holds that no page shows."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
