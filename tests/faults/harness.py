"""The parts of the fault tests: the broker under test, programs beside it, kills at random moments, readers.

``HEADWATER_KILLS`` says how often the broker is killed, ``HEADWATER_SEED`` when; the seed is printed, but the
moments also depend on the machine, so that a seed repeats the schedule and not the interleaving.
``HEADWATER_FAULTS_SERVER=kafka`` runs the same tests against Apache Kafka, to try the harness itself.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.payload import sender_and_sequence
from tests.faults.program import QUICK
from tests.faults.verdict import Entry
from tests.support.servers import ApacheKafka, Headwater, Server

KILLS = int(os.environ.get("HEADWATER_KILLS", "5"))


BROKER_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
COORDINATOR_AWAY = BROKER_AWAY | {
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def broker() -> Server:
    """A broker of its own for one test, not yet started."""
    if os.environ.get("HEADWATER_FAULTS_SERVER") == "kafka":
        quick = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
        return ApacheKafka(config=quick)
    return Headwater()


def chance() -> random.Random:
    """The dice of one test; the seed is in the test's output."""
    seed = int(os.environ.get("HEADWATER_SEED", str(random.SystemRandom().randrange(10**9))))
    print(f"seed {seed}")
    return random.Random(seed)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def kill_repeatedly(
    server: Server,
    times: int,
    dice: random.Random,
    after_start: Callable[[], object] = lambda: None,
    longest: float = 1.5,
) -> None:
    """Kill and start the broker: mostly while it serves, at times while it is still recovering."""
    for number in range(times):
        if dice.random() < 0.15 and number:
            server.kill()
            server.launch()
            time.sleep(dice.uniform(0, 0.6))  # in the middle of opening its log
        else:
            time.sleep(dice.uniform(0.02, longest))
        server.kill()
        server.start()
        after_start()


def entries(messages: Sequence[Any]) -> Iterator[Entry]:
    for message in messages:
        sender, sequence = sender_and_sequence(message.value())
        yield Entry(message.partition(), message.offset(), sender, sequence)


def read_all(
    bootstrap: str, topic: str, isolation: str = "read_uncommitted", timeout: float = 120
) -> list[Entry]:
    """Everything in the topic as a fresh consumer reads it, to the end of each partition."""
    return list(entries(read_messages(bootstrap, topic, isolation, timeout)))


def read_messages(
    bootstrap: str, topic: str, isolation: str = "read_uncommitted", timeout: float = 120
) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "fresh-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            **QUICK,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    open_partitions = set(partitions)
    messages: list[Any] = []
    deadline = time.monotonic() + timeout
    try:
        while open_partitions:
            assert time.monotonic() < deadline, f"no end of {topic} partitions {sorted(open_partitions)}"
            for message in consumer.consume(5000, 1.0):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return messages


def committed_offsets(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """What the consumer's group has committed; asked again while its coordinator is coming back."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.committed(partitions, 30)
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_AWAY or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Tail:
    """A reader that follows the topic through all kills, in a thread of its own."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, isolation: str = "read_uncommitted"
    ) -> None:
        self.seen: list[Entry] = []
        self.faults: list[str] = []
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tail",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "error",  # a position beyond the log's end would be a lost record
                **QUICK,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> "Tail":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(2000, 0.2):
                error = message.error()
                if error is None:
                    self.seen.extend(entries([message]))
                elif error.code() not in BROKER_AWAY:
                    self.faults.append(f"the reader got {error.str()} at {message.offset()}")


def read_acknowledgements(path: Path, sender: int) -> Iterator[Entry]:
    """The lines that a sender wrote."""
    with path.open() as lines:
        for line in lines:
            partition, sequence, offset = map(int, line.split())
            yield Entry(partition, offset, sender, sequence)
