"""A program: an idempotent ``acks=all`` producer that sends until its standard input is closed.

It numbers its records per partition, writes a line ``partition sequence offset`` for every acknowledgement,
waits at the end until nothing is in flight, and prints what it did as JSON.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.payload import payload
from tests.faults.program import until_input_ends


class Sender:
    """Sends and keeps the record of it."""

    def __init__(self, options: argparse.Namespace, acknowledgements: TextIO) -> None:
        self.options = options
        self.sent = [0] * options.partitions
        self.errors: list[str] = []
        self._acknowledgements = acknowledgements
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "enable.idempotence": True,  # which means acks=all and retries without end
                "message.timeout.ms": 0,  # a record is never given up
                "linger.ms": options.linger,
                "compression.type": options.compression,
                "queue.buffering.max.messages": 20_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "log_level": 2,
            }
        )

    def burst(self, count: int) -> None:
        """One piece of work: some records to every partition in turn."""
        for index in range(count):
            partition = index % self.options.partitions
            sequence = self.sent[partition]
            value = payload(self.options.sender, sequence, self.options.largest)
            key = f"{self.options.sender}-{sequence % 50}"
            try:
                self._producer.produce(self.options.topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:  # the broker is away: what is queued comes first
                self._producer.poll(0.05)
                continue
            self.sent[partition] += 1
        self._producer.poll(0)

    def finish(self, timeout: float) -> dict[str, Any]:
        left = self._producer.flush(timeout)
        return {"sent": self.sent, "left": left, "errors": self.errors}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        value = message.value()
        assert isinstance(value, bytes)
        sequence = int.from_bytes(value[2:10], "big")
        self._acknowledgements.write(f"{message.partition()} {sequence} {message.offset()}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--sender", type=int, required=True)
    parser.add_argument("--acknowledgements", type=Path, required=True)
    parser.add_argument("--rate", type=int, default=3000, help="records a second")
    parser.add_argument("--largest", type=int, default=300, help="bytes of the largest record")
    parser.add_argument("--linger", type=float, default=2)
    parser.add_argument("--compression", default="none")
    options = parser.parse_args()

    stop = until_input_ends()
    with options.acknowledgements.open("w") as acknowledgements:
        sender = Sender(options, acknowledgements)
        due = time.monotonic()
        while not stop.is_set():
            sender.burst(options.rate // 50)
            due = max(due + 0.02, time.monotonic() - 0.2)
            time.sleep(max(0.0, due - time.monotonic()))
        summary = sender.finish(120)
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
