"""A program: a member of a consumer group that reads and commits, and keeps a history of it, line by line.

``time event partition offset``: ``tried`` before a commit, ``committed`` after it, ``read`` for the offset
after a record that was read, ``from`` for the first offset of a stretch of records. Times are of the
machine's monotonic clock, so that the histories of several processes can be merged.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.program import QUICK, until_input_ends


class Member:
    """Reads in a group, commits what it read, writes down both."""

    def __init__(self, options: argparse.Namespace, history: TextIO) -> None:
        self._history = history
        self._topic = options.topic
        self._next: dict[int, int] = {}  # partition -> offset after the last record read
        self.failed: dict[str, int] = {}
        classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "group.protocol": options.protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **(classic if options.protocol == "classic" else {}),
                **QUICK,
            }
        )
        self._consumer.subscribe(
            [options.topic], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved
        )

    def step(self) -> None:
        """Read some records and commit them."""
        ends: dict[int, int] = {}
        for message in self._consumer.consume(500, 0.05):
            partition, offset = message.partition(), message.offset()
            if message.error() is not None or partition is None or offset is None:
                continue
            if self._next.get(partition) != offset:
                self._write("from", partition, offset)
            ends[partition] = self._next[partition] = offset + 1
        for partition, end in ends.items():
            self._write("read", partition, end)
        owned = {assigned.partition for assigned in self._consumer.assignment()}
        positions = {partition: end for partition, end in ends.items() if partition in owned}
        if positions:
            self._commit(positions)

    def close(self) -> None:
        self._consumer.close()

    def _commit(self, positions: dict[int, int]) -> None:
        for partition, end in positions.items():
            self._write("tried", partition, end)
        try:
            results = self._consumer.commit(
                offsets=[TopicPartition(self._topic, *end) for end in positions.items()], asynchronous=False
            )
        except KafkaException as error:  # the broker is away, or the group is being arranged anew
            name = error.args[0].name()
            self.failed[name] = self.failed.get(name, 0) + 1
            return
        for result in results or []:
            if result.error is None:
                self._write("committed", result.partition, result.offset)

    def _moved(self, _: object, partitions: list[TopicPartition]) -> None:
        for moved in partitions:
            self._next.pop(moved.partition, None)

    def _write(self, event: str, partition: int, offset: int) -> None:
        self._history.write(f"{time.monotonic_ns()} {event} {partition} {offset}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("bootstrap", "topic", "group", "protocol"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--history", type=Path, required=True)
    options = parser.parse_args()
    stop = until_input_ends()
    with options.history.open("w", buffering=1) as history:  # line by line: we may be killed
        member = Member(options, history)
        while not stop.is_set():
            member.step()
        member.close()
    print(json.dumps(member.failed), flush=True)


if __name__ == "__main__":
    main()
