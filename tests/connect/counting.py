"""A source that counts, as a program too: what it writes tells whether anything was lost or came twice.

``python -m tests.connect.counting BOOTSTRAP NAME TOPIC`` runs it under a worker until it is killed.
"""

import random
import sys
import threading
import time
from collections.abc import Iterator

from headwater.client.connection import Connection
from headwater.client.reader import Reader
from headwater.connect.source import Position, Record, Signal, Source, Step
from headwater.connect.worker import Worker


class Counting(Source):
    """Numbers from 0 on, in steps of random size; up to `end`, then it is silent."""

    def __init__(
        self, name: str, topic: str, end: int | None = None, step: int = 500, pause: float = 0.0
    ) -> None:
        self.name, self.topic, self.end, self.step, self.pause = name, topic, end, step, pause
        self.acknowledged: list[int] = []
        self.signals: list[Signal] = []
        self.starts: list[Position | None] = []
        self.told_before: list[Signal] = []  # before the first step of the last start

    def steps(self, position: Position | None) -> Iterator[Step]:
        self.starts.append(position)
        self.told_before = list(self.signals)
        number = position["next"] if position is not None else 0
        while True:
            count = random.randint(1, self.step)
            if self.end is not None:
                count = min(count, self.end - number)
            records = [
                Record(self.topic, b"%d" % (each % 7), b"%d" % each) for each in range(number, number + count)
            ]
            number += count
            yield Step(records, {"next": number, "signals": len(self.signals)})
            if not count:
                time.sleep(0.05)
            elif self.pause:
                time.sleep(random.uniform(0, self.pause))

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position["next"])

    def signal(self, signal: Signal) -> None:
        self.signals.append(signal)


def numbers(connection: Connection, topic: str) -> list[int]:
    """What is committed in the topic."""
    with Reader(connection, [topic], to_end=True) as reader:
        return [int(message.value() or b"") for messages in reader.batches() for message in messages]


def main() -> None:
    bootstrap, name, topic = sys.argv[1:4]
    worker = Worker(Connection(bootstrap), Counting(name, topic, pause=0.002))
    print("begins", flush=True)
    worker.run(threading.Event())


if __name__ == "__main__":
    main()
