"""The source under a real worker, into a real log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

import headwater as hw
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.connect.signals import send_signal
from headwater.connect.source import Signal
from headwater.connect.worker import Worker
from tests.connect.mysql.harness import fresh_database
from tests.support.mariadb import MariaDB
from tests.support.servers import Headwater


@contextmanager
def running(server: MariaDB, database: str, broker: Headwater, data: Path) -> Iterator[Worker]:
    worker = Worker(Connection(broker.bootstrap), hw.cdc(server.url(database), chunk_rows=50).make(data))
    stopping = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        stopping.set()
        thread.join(30)
        assert not thread.is_alive()


def rows(broker: Headwater, topic: str) -> dict[bytes, object]:
    found: dict[bytes, object] = {}
    with Reader(Connection(broker.bootstrap), [topic], to_end=True) as reader:
        for batch in reader.batches():
            for message in batch:
                key, value = message.key(), message.value()
                assert key is not None
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = orjson.loads(value)["after"]
    return {key: row for key, row in found.items() if row is not None}


def wait(done: Callable[[], bool], worker: Worker) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, worker.status()
        time.sleep(0.1)


def test_from_the_first_row_on(mariadb: MariaDB, headwater: Headwater, tmp_path: Path) -> None:
    database = fresh_database(
        mariadb, "create table t (id int primary key, v int)", "create table bag (n int)"
    )
    mariadb.run(
        "insert into t select seq, 0 from seq_1_to_500", "insert into bag values (1)", database=database
    )
    topic = f"{database}.t"
    with running(mariadb, database, headwater, tmp_path) as worker:
        wait(lambda: worker.status().records >= 501, worker)
        assert len(rows(headwater, topic)) == 500
        mariadb.run("update t set v = 1 where id = 7", "delete from t where id = 8", database=database)
        wait(lambda: worker.status().records >= 504, worker)
    assert rows(headwater, topic)[b'{"id":7}'] == {"id": 7, "v": 1}
    mariadb.run("truncate table t", "insert into t values (1000, 1)", "truncate table bag", database=database)
    with running(mariadb, database, headwater, tmp_path) as worker:
        wait(lambda: b'{"id":1000}' in rows(headwater, topic), worker)
        assert rows(headwater, topic) == {b'{"id":1000}': {"id": 1000, "v": 1}}
        mariadb.run("set sql_log_bin = 0", "insert into t values (2000, 2)", "delete from t where id = 1000",
                    database=database)  # fmt: skip
        send_signal(Connection(headwater.bootstrap), database, Signal("snapshot", ("t",)))
        wait(lambda: list(rows(headwater, topic)) == [b'{"id":2000}'], worker)
        assert worker.status().state == "running" and not worker.status().error
