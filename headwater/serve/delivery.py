"""Events on their way to the broker: records, places, and a producer in a thread of its own.

The event loop hands records over and gets a future back; it never waits for the broker itself.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.client.writer import Headers
from headwater.errors import HeadwaterError, NotDelivered

DELIVERY_SECONDS = 8.0  # a record that no broker has acknowledged by then has failed
FULL_SECONDS = 2.0  # how long a full producer is waited for
POLL_SECONDS = 0.2
LARGEST_RECORD = 16 << 20  # for librdkafka; what a topic takes is the broker's to say
BATCH_BYTES = 900_000  # of one request to a partition, below what topics take by default


class Record(NamedTuple):
    """What is to be written."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: Headers | None = None

    @property
    def size(self) -> int:
        """Its bytes, key and headers included."""
        held = len(self.value) + len(self.key or b"")
        return held + sum(len(name) + len(value or b"") for name, value in self.headers or ())


class Place(NamedTuple):
    """Where a record is in the log."""

    topic: str
    partition: int
    offset: int


Outcome = Place | HeadwaterError

# What calls of a producer raise that has had a fatal error; confluent-kafka sometimes loses the first in the second.
BROKEN = (KafkaException, SystemError)


def token_of(places: Sequence[Place]) -> str:
    """The highest offset of every partition, as a read of a view takes it to wait for.

    >>> token_of([Place("clicks", 1, 7), Place("clicks", 0, 3), Place("clicks", 1, 8)])
    'clicks:0:3,clicks:1:8'
    """
    highest: dict[tuple[str, int], int] = {}
    for place in places:
        partition = (place.topic, place.partition)
        highest[partition] = max(place.offset, highest.get(partition, 0))
    return ",".join(f"{topic}:{number}:{offset}" for (topic, number), offset in sorted(highest.items()))


class Outcomes:
    """What became of some records, in their order; `done` holds it when all is known."""

    def __init__(self, count: int) -> None:
        self.done: Future[list[Outcome]] = Future()
        self._found: list[Outcome | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()

    def set(self, number: int, outcome: Outcome) -> None:
        """Of one record; the last one tells whoever waits."""
        with self._lock:
            if self._found[number] is not None:
                return
            self._found[number] = outcome
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self.done.set_result([each for each in self._found if each is not None])

    def report(self, number: int, error: KafkaError | None, message: Message) -> None:
        """As a producer reports a delivery."""
        topic = str(message.topic())
        if error is not None:
            self.set(number, in_words(error, "write to", topic))
        else:
            self.set(number, Place(topic, int(message.partition() or 0), int(message.offset() or 0)))


def hand_over(producer: Producer, records: Sequence[Record], outcomes: Outcomes) -> None:
    """Gives records to a producer; those for which it has no room for too long have failed."""
    until = time.monotonic() + FULL_SECONDS
    for number, record in enumerate(records):
        arguments: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}

        def report(error: KafkaError | None, message: Message, number: int = number) -> None:
            outcomes.report(number, error, message)

        while True:
            try:
                producer.produce(record.topic, record.value, record.key, on_delivery=report, **arguments)
                break
            except BufferError:
                if time.monotonic() > until:
                    cause = "the producer's queue is full"
                    outcomes.set(number, NotDelivered("write to", record.topic, cause))
                    break
                producer.poll(0.02)
            except KafkaException as error:
                outcomes.set(number, in_words(error, "write to", record.topic))
                break


class PlainDelivery:
    """Records without an idempotency key: acknowledged by all replicas, and written once however often librdkafka
    sends them. (Whether the *request* is written once is the client's to know; see `idempotency`.)"""

    def __init__(self, connection: Connection, waiting_bytes: int) -> None:
        self._connection, self._waiting_bytes = connection, waiting_bytes
        self._producer: Producer | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="ingest", daemon=True)

    def start(self) -> None:
        """Opens the producer; it connects when it is needed."""
        self._opened()
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Sends what is left, and ends."""
        if self._producer is not None:
            self._producer.flush(seconds)
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def send(self, records: Sequence[Record]) -> "Future[list[Outcome]]":
        """To be called outside of the event loop: it may wait a moment for room."""
        outcomes = Outcomes(len(records))
        hand_over(self._opened(), records, outcomes)
        return outcomes.done

    def _opened(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = open_client(Producer, self._connection.options(self._options()))
            return self._producer

    def _options(self) -> dict[str, Any]:
        return {
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": round(DELIVERY_SECONDS * 1000),
            "partitioner": "murmur2_random",
            "linger.ms": 2,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": LARGEST_RECORD,
            # The server counts what is on its way, and refuses more before this is reached.
            "queue.buffering.max.kbytes": max(2 * self._waiting_bytes // 1024, 32 << 10),
            "queue.buffering.max.messages": 1_000_000,
        }

    def _poll(self) -> None:
        while not self._stopped.is_set():
            producer = self._producer
            if producer is None:
                self._stopped.wait(POLL_SECONDS)
                continue
            try:
                producer.poll(POLL_SECONDS)
            except BROKEN:  # it takes nothing any more: the next request opens another
                with self._lock:
                    self._producer = None
                with contextlib.suppress(*BROKEN):
                    producer.purge()
                    producer.flush(1.0)  # tells whoever waits
