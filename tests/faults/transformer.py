"""A program: the exactly-once loop. Reads a topic in a group, writes each record to another topic, and
commits output and position in one transaction, until its input is closed.

A fatal error of its clients ends it with exit code 3: whoever runs it starts it again.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.client.transactions import finishes
from tests.faults.program import QUICK, until_input_ends

FATAL_EXIT = 3


class MustAbort(Exception):
    """The transaction cannot be committed; abort it and go on from what is committed."""


class Transformer:
    """One transactional producer and the consumer that feeds it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
        self._rebalanced = False
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": 15_000,
                "linger.ms": 2,
                **QUICK,
            }
        )
        member = {"group.instance.id": options.instance_id} if options.instance_id else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **member,
                **QUICK,
            }
        )

    def start(self) -> None:
        self._insist(lambda: self._producer.init_transactions(10))
        self._consumer.subscribe(
            [self.options.input], on_assign=self._note, on_revoke=self._note, on_lost=self._note
        )

    def step(self) -> None:
        """Some records through one transaction."""
        self._rebalanced = False
        messages = []
        for message in self._consumer.consume(200, 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                self._end_if_fatal(error)
        if self._rebalanced:
            # What came before the partitions moved may have been read by somebody else since.
            self._rewind()
            return
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            self._transform(messages)
            if random.random() < 0.1:
                raise MustAbort("on purpose")
            self._insist(lambda: self._producer.commit_transaction(10))
            self.counts["committed"] += 1
        except MustAbort:
            self._insist(lambda: self._producer.abort_transaction(10))
            self.counts["aborted"] += 1
            self._rewind()

    def close(self) -> None:
        self._consumer.close()

    def _transform(self, messages: list[Message]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            self._send(message.value(), partition)
            ends[partition] = offset + 1
        positions = [TopicPartition(self.options.input, *end) for end in ends.items()]
        group = self._consumer.consumer_group_metadata()

        def send() -> None:
            # After a broker came back librdkafka may never return from this, with any broker: as fatal as it gets.
            if not finishes(lambda: self._producer.send_offsets_to_transaction(positions, group, 10), 20):
                print(f"{self.options.transactional_id}: its producer hangs", file=sys.stderr, flush=True)
                os._exit(FATAL_EXIT)

        self._insist(send)

    def _send(self, value: Any, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self.options.output, value, partition=partition)
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                self._judge(error)

    def _insist(self, call: Callable[[], Any]) -> None:
        """Repeat the call while the producer says that it may be repeated."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                self._judge(error)

    def _judge(self, error: KafkaException) -> None:
        cause = error.args[0]
        self.counts[cause.name()] += 1
        self._end_if_fatal(cause)
        if cause.txn_requires_abort():
            raise MustAbort from error
        if not cause.retriable() and cause.code() != KafkaError._TIMED_OUT:
            raise error

    def _rewind(self) -> None:
        """Go back to what is committed in every partition that is ours."""
        while self._consumer.assignment():
            try:
                for position in self._consumer.committed(self._consumer.assignment(), 10):
                    self._consumer.seek(
                        TopicPartition(position.topic, position.partition, max(position.offset, 0))
                    )
                return
            except KafkaException as error:
                self._end_if_fatal(error.args[0])
                self.counts[f"rewind {error.args[0].name()}"] += 1
                time.sleep(0.05)
                self._consumer.poll(0)  # keeps the membership alive; nothing is fetched past the rewind

    def _end_if_fatal(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID):
            print(f"{self.options.transactional_id}: {error}", file=sys.stderr, flush=True)
            sys.exit(FATAL_EXIT)

    def _note(self, *_: object) -> None:
        self._rebalanced = True


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("bootstrap", "input", "output", "group", "transactional-id"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--instance-id")
    transformer = Transformer(parser.parse_args())
    stop = until_input_ends()
    transformer.start()
    while not stop.is_set():
        transformer.step()
    transformer.close()
    print(json.dumps(transformer.counts), flush=True)


if __name__ == "__main__":
    main()
