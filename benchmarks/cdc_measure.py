"""How a connector fills a topic: rows a second, processor time, memory, and the lag of single rows."""

import os
import re
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.cdc_sides import Side

_TICKS = os.sysconf("SC_CLK_TCK")
_id = re.compile(rb'"id":(\d+)').search
PATIENCE = 600.0  # seconds for one measurement


@dataclass(frozen=True)
class Rate:
    """What filling a topic took, from its first records on."""

    rows: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.rows / self.cpu_seconds


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, threads that have ended included.

    >>> cpu_seconds(os.getpid()) > 0
    True
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had resident.

    >>> peak_bytes(os.getpid()) > 1_000_000
    True
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


class Topic:
    """The end of a topic, looked at often."""

    def __init__(self, broker: str, name: str) -> None:
        settings = {"bootstrap.servers": broker, "group.id": "bench", "log_level": 0}
        self._consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._partition = TopicPartition(name, 0)

    def end(self) -> int:
        """How many offsets it has; transactions' marks are among them."""
        try:
            return int(self._consumer.get_watermark_offsets(self._partition, timeout=10)[1])
        except KafkaException:
            return 0

    def last_id(self) -> int:
        """The key of the last record."""
        end = self.end()
        for back in (5, 50, 500):
            self._consumer.assign([TopicPartition(self._partition.topic, 0, max(0, end - back))])
            found = 0
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                for message in self._consumer.consume(500, timeout=0.05):
                    key = _id(message.key() or b"") if message.error() is None else None
                    found = int(key[1]) if key else found
                if found:
                    return found
        return 0

    def follow(self, arrived: Callable[[int, float], None], stopping: threading.Event) -> None:
        """Tell of each row that comes from now on, and when."""
        self._consumer.assign([TopicPartition(self._partition.topic, 0, self.end())])
        while not stopping.is_set():
            message = self._consumer.poll(0.2)
            now = time.perf_counter()
            key = _id(message.key() or b"") if message is not None and message.error() is None else None
            if key:
                arrived(int(key[1]), now)

    def close(self) -> None:
        self._consumer.close()


def filled(side: Side, broker: str, table: str, rows: int) -> Rate:
    """Watch a connector that was just started, until the row with the last id is in the table's topic."""
    topic = Topic(broker, side.topic(table))
    try:
        deadline = time.monotonic() + PATIENCE
        while not (before := topic.end()):
            side.check()
            assert time.monotonic() < deadline, f"nothing comes to {side.topic(table)}"
            time.sleep(0.01)
        began, cpu = time.perf_counter(), cpu_seconds(side.pid)
        while topic.end() < rows:
            side.check()
            assert time.monotonic() < deadline, f"{topic.end()} of {rows} rows in {side.topic(table)}"
            time.sleep(0.02)
        while topic.last_id() != rows:
            side.check()
            assert time.monotonic() < deadline, f"the last row does not come to {side.topic(table)}"
        return Rate(rows - before, time.perf_counter() - began, cpu_seconds(side.pid) - cpu)
    finally:
        topic.close()


def lags(
    side: Side, broker: str, connection: Any, first: int, seconds: float, rate: int = 500
) -> tuple[float, float]:
    """Milliseconds from commit to reader at a steady rate of single rows: the median, and the 99th percentile."""
    committed: dict[int, float] = {}
    arrived: dict[int, float] = {}
    topic, stopping = Topic(broker, side.topic("streamed")), threading.Event()
    reader = threading.Thread(target=topic.follow, args=(arrived.__setitem__, stopping))
    reader.start()
    cursor = connection.cursor()

    def write(number: int) -> None:
        cursor.execute(
            f"insert into streamed values ({number}, 1, 2.5, 'new', '2024-02-29 13:14:15', 'note', 3, true)"
        )
        committed[number] = time.perf_counter()

    count = int(seconds * rate)
    write(first + count)  # when it is there, all that lay before it is
    deadline = time.monotonic() + 120
    while first + count not in arrived and time.monotonic() < deadline:
        side.check()
        time.sleep(0.05)
    del committed[first + count]
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        write(first + number)
    deadline = time.monotonic() + 60
    while committed.keys() - arrived.keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    stopping.set()
    reader.join()
    topic.close()
    missing = committed.keys() - arrived.keys()
    assert not missing, f"{len(missing)} of {count} rows did not come"
    taken = sorted((arrived[number] - committed[number]) * 1000 for number in committed)
    return statistics.median(taken), taken[int(len(taken) * 0.99)]
