"""A steady producer: numbered payments whose content follows from their number, through every outage.

Most are out of order by less than the lateness of the stream; some are an hour late, and some are not JSON.
"""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.program import QUICK

TOPIC = "payments"
ACCOUNTS = 8
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=20)
DISORDER = 40_000  # milliseconds; well within the lateness
LATE_EVERY, DEAD_EVERY = 251, 257

Record = tuple[str | None, bytes]


def account(number: int) -> str:
    return f"account-{number * 7919 % ACCOUNTS}"


def payment(number: int) -> dict[str, Any]:
    """The event of this number."""
    at = BEGIN + number * STEP - timedelta(milliseconds=number * 2_654_435_761 % DISORDER)
    if number % LATE_EVERY == 0:
        at -= timedelta(hours=1)
    text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"id": number, "account": account(number), "amount": number * 31 % 1000, "at": text}


def is_dead(number: int) -> bool:
    return number % DEAD_EVERY == DEAD_EVERY - 1


def record_of(number: int) -> Record:
    """Key and value of the payment of this number."""
    value = f"{{payment {number}" if is_dead(number) else json.dumps(payment(number))
    return account(number), value.encode()


class Feed:
    """Produces in a thread, as an idempotent producer that never gives a record up.

    `record` gives the key and the value of each number.
    """

    def __init__(
        self, bootstrap: str, rate: int, topic: str = TOPIC, record: Callable[[int], Record] = record_of
    ) -> None:
        self.topic, self._record = topic, record
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self._rate = rate
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                **QUICK,
            }
        )
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self, seconds: float = 60) -> int:
        """Stops, and waits until the broker has everything; how many were sent."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(seconds)
        assert left == 0, f"{left} records could not be delivered"
        assert not self.failures, self.failures[:3]
        assert self.acknowledged == self.sent
        return self.sent

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + 0.05, time.monotonic() - 0.5)
            for _ in range(max(1, self._rate // 20)):
                key, value = self._record(self.sent)
                try:
                    self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
                except BufferError:
                    break
                self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged += 1
