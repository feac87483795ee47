"""Topics of changes, and sinks that follow them in a thread."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.client.writer import Writer
from headwater.connect.sinks.sink import Sink
from headwater.connect.sinks.worker import SinkWorker

Pair = tuple[bytes | None, bytes | None]


def key(id: Any) -> bytes:
    return json.dumps({"id": id}).encode()


def event(op: str, before: Any = None, after: Any = None, *, schema: bool = False) -> bytes:
    """A change event as Debezium has it."""
    source = {"version": "3.4", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_000}
    value = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1}
    return json.dumps({"schema": {"type": "struct"}, "payload": value} if schema else value).encode()


def upsert(row: dict[str, Any], op: str = "c") -> Pair:
    return key(row["id"]), event(op, None, row)


def delete(id: Any) -> list[Pair]:
    return [(key(id), event("d", {"id": id, "name": None})), (key(id), None)]


def produce(connection: Connection, topic: str, records: Iterable[Pair], *, partitions: int = 1) -> None:
    Admin(connection).create_topic(topic, partitions, exist_ok=True)
    writer = _writer(connection.bootstrap)
    for each, value in records:
        writer.write(topic, value, each)
    writer.flush()


@cache
def _writer(bootstrap: str) -> Writer:
    """One for all tests: the first record of each takes half a second."""
    return Writer(Connection(bootstrap))


@contextmanager
def following(connection: Connection, sink: Sink) -> Iterator[SinkWorker]:
    """Runs a sink; what stopped it is raised at the end."""
    worker, stopping = SinkWorker(connection, sink), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(stopping)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        stopping.set()
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.02)


def caught_up(worker: SinkWorker, records: int) -> Callable[[], bool]:
    """Whether it has taken so many records, and there are no more."""
    return lambda: (status := worker.status()).counts.records >= records and status.lag_records == 0


def table_of(connection: Connection, topic: str) -> dict[bytes, dict[str, Any]]:
    """The table as the topic has it, rebuilt without any of the code that is tried."""
    rows: dict[bytes, dict[str, Any]] = {}
    with Reader(connection, [topic], to_end=True) as reader:
        for batch in reader.batches():
            for message in batch:
                name, value = message.key() or b"", message.value()
                document = json.loads(value) if value is not None else {"op": "d"}
                if document["op"] == "d":
                    rows.pop(name, None)
                else:
                    rows[name] = document["after"]
    return rows


def dead_of(connection: Connection, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
    """What was set aside: key, value and our headers."""
    found = []
    with Reader(connection, [f"{topic}.dead"], to_end=True) as reader:
        for batch in reader.batches():
            for message in batch:
                headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
                found.append((message.key(), message.value(), headers))
    return found
