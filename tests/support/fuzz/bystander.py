"""What goes on beside the attack: a healthy client that must not suffer, a janitor, a watch on resources."""

import statistics
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.fuzz.seeds import TOPICS

HEALTHY_TOPIC = "bystander-8d1f"  # no mutation of a seed's name leads here


class Bystander(threading.Thread):
    """Sends a record, waits until it is acknowledged, reads it back; again and again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.round_trips: list[float] = []  # seconds
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bystander", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(HEALTHY_TOPIC, 0, 0)])

    def stop(self) -> None:
        self._ended.set()
        self.join(60)

    def run(self) -> None:
        try:
            while not self._ended.wait(0.02):
                self._round_trip(len(self.round_trips))
        except BaseException as error:
            self.failure = error
        finally:
            self._consumer.close()

    def _round_trip(self, number: int) -> None:
        sent = str(number).encode()
        started = time.monotonic()
        self._producer.produce(HEALTHY_TOPIC, sent, partition=0)
        left = self._producer.flush(30)
        assert left == 0, f"record {number} was not acknowledged within 30 s"
        message = self._consumer.poll(30)
        assert message is not None, f"record {number} did not come back within 30 s"
        if message.error() is not None:
            raise KafkaException(message.error())
        assert (message.offset(), message.value()) == (number, sent)
        self.round_trips.append(time.monotonic() - started)

    def summary(self) -> str:
        ordered = sorted(self.round_trips)
        middle, high = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        return (
            f"{len(ordered)} round trips, p50 {middle * 1e3:.1f} ms, p99 {high * 1e3:.1f} ms, "
            f"max {ordered[-1] * 1e3:.0f} ms"
        )


class Janitor:
    """Removes what mutated requests created, so that what is left over is a leak and not data."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self.removed = 0

    def prepare(self) -> None:
        """The topics that the seeds name, and the bystander's."""
        special = {
            "fuzz-compacted": {"cleanup.policy": "compact"},
            "fuzz-log-time": {"message.timestamp.type": "LogAppendTime"},
        }
        there = set(self._admin.list_topics(timeout=30).topics)
        wanted = {topic for topic in (*TOPICS, HEALTHY_TOPIC) if topic not in there}
        new = [NewTopic(topic, 3, 1, config=special.get(topic, {})) for topic in sorted(wanted)]
        for future in self._admin.create_topics(new).values() if new else ():
            try:
                future.result(30)
            except KafkaException:  # a mutated request was faster
                pass

    def sweep(self) -> None:
        """Delete every other topic and every group without members."""
        kept = {*TOPICS, HEALTHY_TOPIC}
        topics = self._admin.list_topics(timeout=30).topics
        strays = [name for name in topics if name not in kept and not name.startswith("__")]
        futures = list(self._admin.delete_topics(strays).values()) if strays else []
        groups = self._admin.list_consumer_groups().result(30)
        names = [group.group_id for group in groups.valid if group.group_id]
        futures += list(self._admin.delete_consumer_groups(names).values()) if names else []
        for future in futures:
            try:
                future.result(30)
                self.removed += 1
            except KafkaException:  # gone already, or a group with members
                pass
        self.prepare()


class Watch(threading.Thread):
    """The broker's memory and open files over time."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self.peak = 0

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            try:
                self.peak = max(self.peak, self.memory())
            except psutil.Error:
                return

    def memory(self) -> int:
        """Resident bytes."""
        return int(self._process.memory_info().rss)

    def files(self) -> int:
        return int(self._process.num_fds())

    def sockets(self) -> int:
        """Descriptors that are sockets, the listening one included."""
        links = Path(f"/proc/{self._process.pid}/fd")
        count = 0
        for link in links.iterdir():
            try:
                count += link.readlink().name.startswith("socket:")
            except OSError:
                pass
        return count
