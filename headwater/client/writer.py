"""Writing records, with every delivery accounted for."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.client.connection import Connection, open_client
from headwater.client.faults import in_words
from headwater.errors import HeadwaterError, NotDelivered

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = Sequence[tuple[str, bytes | None]]
OnFailure = Callable[[HeadwaterError], None]

DELIVERY_SECONDS = 30.0
LARGEST_REQUEST = 100_000_000  # bytes; brokers take 100 MiB
SERVE_EVERY = 100  # records between two looks at delivery reports


class Writer:
    """A producer that knows what became of every record.

    ``written`` counts the records taken, ``failed`` those that were not delivered for certain, and after
    ``flush`` everything else has been acknowledged as ``acks`` asks (with "0" nothing is: they were sent).
    With "all" retries write no record twice, and keep the order within a partition.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        delivery_seconds: float = DELIVERY_SECONDS,
    ) -> None:
        self.connection = connection
        self.written = 0
        self.failed = 0
        self.first_failure: HeadwaterError | None = None
        self._delivery_seconds = delivery_seconds
        defaults: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "message.timeout.ms": round(delivery_seconds * 1000),
            # The Java client's partitioner, so that a key lands in the same partition whoever wrote it.
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
            # What is too large is for the topic to say.
            "message.max.bytes": LARGEST_REQUEST,
        }
        self.producer: Producer = open_client(Producer, connection.options(defaults, self._forced_options()))

    def _forced_options(self) -> dict[str, Any]:
        return {"delivery.report.only.error": True, "on_delivery": self._report}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self.producer.flush(0)

    def write(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """Hand a record over; it is sent in the background.

        A failure is counted, and ``on_failure`` is told of it during a later ``write`` or ``flush``. When the
        buffer is full this waits. A ``timestamp`` is in milliseconds; without one it is now.
        """
        arguments: dict[str, Any] = {}
        if headers:
            arguments["headers"] = list(headers)
        if partition is not None:
            arguments["partition"] = partition
        if timestamp is not None:
            arguments["timestamp"] = timestamp
        if on_failure is not None:
            arguments["on_delivery"] = lambda error, message: self._report(error, message, on_failure)
        self.written += 1
        while True:
            try:
                self.producer.produce(topic, value, key, **arguments)
                break
            except BufferError:
                self.producer.poll(0.1)
            except KafkaException as error:
                self._fail(in_words(error, "write to", topic), on_failure)
                break
        if self.written % SERVE_EVERY == 0:
            self.serve()

    def write_many(self, topic: str, records: list[dict[str, Any]]) -> None:
        """Hand many records over at once, as dictionaries of ``value``, ``key`` and ``timestamp``."""
        self.written += len(records)
        left = records
        while left:
            if self.producer.produce_batch(topic, left) == len(left):
                return
            refused = []
            for record in left:
                error = record.pop("_error", None)
                if error is None:
                    continue
                if error.code() == KafkaError._QUEUE_FULL:
                    refused.append(record)
                else:
                    self._fail(in_words(error, "write to", topic), None)
            left = refused
            self.producer.poll(0.05)

    def serve(self) -> None:
        """Take note of failures so far. ``write`` and ``flush`` do so by themselves."""
        self.producer.poll(0)

    def _report(
        self, error: KafkaError | None, message: Message, on_failure: OnFailure | None = None
    ) -> None:
        if error is not None:
            topic, partition = message.topic(), message.partition()
            subject = f"{topic}-{partition}" if partition is not None and partition >= 0 else str(topic)
            self._fail(in_words(error, "write to", subject), on_failure)

    def _fail(self, fault: HeadwaterError, on_failure: OnFailure | None) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or fault
        if on_failure is not None:
            on_failure(fault)

    def settle(self) -> None:
        """Wait until every record has been acknowledged or has failed."""
        # Each record fails by itself after the delivery time-out, so that this cannot go on for ever.
        while self.producer.flush(1.0):
            pass

    def flush(self) -> None:
        """``settle``, and raise NotDelivered unless everything written so far was acknowledged."""
        self.settle()
        if self.failed:
            cause = self.first_failure.cause if self.first_failure else "unknown"
            subject = f"{self.failed} of {self.written} records"
            raise NotDelivered("deliver", subject, cause) from self.first_failure
