"""The whole way: PostgreSQL, the worker, a real log, and what a reader of the topics finds."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.connect.cdc.livekeys import LogKeys
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.postgres.source import PostgresSource
from headwater.connect.worker import Worker
from tests.support.servers import Headwater

Db = psycopg.Connection[Any]


class Running:
    """A worker in a thread."""

    def __init__(self, log: Connection, source: PostgresSource) -> None:
        self.worker = Worker(log, source)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.worker.run, args=[self._stopping])
        self._thread.start()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *args: object) -> None:
        self._stopping.set()
        self._thread.join(30)


def table(log: Connection, topic: str) -> dict[bytes, Any]:
    rows: dict[bytes, Any] = {}
    with Reader(log, [topic], to_end=True) as reader:
        for batch in reader.batches():
            for message in batch:
                key = message.key()
                assert key is not None
                value = message.value()
                if value is None:
                    rows.pop(key, None)
                elif key != b"null" and (event := json.loads(value))["op"] != "d":
                    rows[key] = event["after"]
    return rows


def eventually(check: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_tables_come_to_the_log_and_a_truncated_one_leaves_it(
    db: Db, url: str, headwater: Headwater, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    name = "pg-worker"
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 3000) g"
    )
    db.execute("CREATE TABLE bag (x int); ALTER TABLE bag REPLICA IDENTITY FULL; INSERT INTO bag VALUES (1)")
    log = Connection(headwater.bootstrap)
    options = CdcOptions(url, name=name, data=tmp_path, chunk_rows=500)
    with Running(log, PostgresSource(options)):
        eventually(lambda: bool(Admin(log).topics()) and _has(log, f"{name}.t"))
        eventually(lambda: len(table(log, f"{name}.t")) == 3000)
        db.execute("DELETE FROM t WHERE id > 2500; UPDATE t SET x = 'y' WHERE id = 1")
        eventually(lambda: len(table(log, f"{name}.t")) == 2500)
    db.execute("UPDATE t SET id = 9999 WHERE id = 2")
    with Running(log, PostgresSource(options)) as running:
        eventually(lambda: b'{"id":9999}' in table(log, f"{name}.t"))
        ends = LogKeys(log, tmp_path).ends(f"{name}.t")
        db.execute("TRUNCATE t, bag")
        db.execute("INSERT INTO t VALUES (5, 'after')")
        eventually(lambda: table(log, f"{name}.t") == {b'{"id":5}': {"id": 5, "x": "after"}})
        assert list(LogKeys(log, tmp_path).live(f"{name}.t", ends)) == []
        eventually(lambda: running.worker.status().source.lag_bytes is not None)
        assert running.worker.status().source.position
    configs = {setting.name: setting.value for setting in Admin(log).configs(f"{name}.t")}
    assert configs["cleanup.policy"] == "compact"
    configs = {setting.name: setting.value for setting in Admin(log).configs(f"{name}.bag")}
    assert configs["cleanup.policy"] == "delete" and configs["retention.ms"] == "-1"


def _has(log: Connection, topic: str) -> bool:
    return any(each.name == topic for each in Admin(log).topics())
