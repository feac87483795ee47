"""Applications on a broker of their own, run by the engine in the tests' Spark session."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.streams.app import App
from headwater.streams.engine.engine import Engine
from headwater.streams.settings import StreamSettings, load_stream_settings
from tests.support.servers import Headwater

PATIENCE = 120.0


class Bench:
    """A broker, a data directory, and engines on them."""

    def __init__(self, spark: SparkSession, server: Headwater, data: Path) -> None:
        self.spark, self.server, self.data = spark, server, data
        self.connection = Connection(server.bootstrap, {"log_level": "0"})
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0, "linger.ms": 1})

    @property
    def settings(self) -> StreamSettings:
        return load_stream_settings(
            data=self.data, bootstrap=self.server.bootstrap, environ={}, directory=self.data
        )

    @contextmanager
    def running(self, app: App) -> Iterator[Engine]:
        """The application, stopped at the end of the block."""
        engine = Engine(app, self.settings, self.spark)
        try:
            engine.start()
            yield engine
        finally:
            engine.stop()

    def send(
        self, topic: str, events: Iterable[Mapping[str, Any] | bytes | None], key: bytes | None = None
    ) -> None:
        """Events as JSON, bytes as they are."""
        for event in events:
            value = json.dumps(event) if isinstance(event, Mapping) else event
            while True:
                try:
                    self._producer.produce(topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(30) == 0

    def messages(self, topic: str) -> list[Message]:
        """What the topic holds for a read_committed reader."""
        with Reader(self.connection, [topic], to_end=True) as reader:
            return [message for messages in reader.batches() for message in messages]

    def values(self, topic: str) -> list[dict[str, Any]]:
        """The same, as objects."""
        return [json.loads(message.value()) for message in self.messages(topic)]

    def folded(self, topic: str) -> dict[str, dict[str, Any]]:
        """The newest value of each key: the table that a changelog describes."""
        table: dict[str, dict[str, Any]] = {}
        for message in self.messages(topic):
            key = message.key().decode()
            if message.value() is None:
                table.pop(key, None)
            else:
                table[key] = json.loads(message.value())
        return table


def settle(engine: Engine) -> None:
    """Waits until every output covers the log."""
    wait_for(
        engine.caught_up, lambda: f"{[(each.name, each.lag, each.error) for each in engine.status.values()]}"
    )


def wait_for(condition: Callable[[], object], explain: Callable[[], str] = lambda: "") -> None:
    """Waits for something that has to come."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE:.0f} s: {explain()}"
        time.sleep(0.1)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """A broker with nothing in it, and what is needed to run applications on it."""
    with Headwater(tmp_path / "log") as server:
        yield Bench(spark, server, tmp_path / "data")
