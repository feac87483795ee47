"""The clients of the log benchmark, each a process of its own: librdkafka with its default settings.

``python -m benchmarks.client produce|consume|send|receive ...`` prints one line of JSON: what it measured,
and how much CPU it used itself, so that a limit of the client can be told from one of the server.
"""

import argparse
import json
import os
import struct
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.processes import Usage, usage

_PIECE = 1000  # messages handed to librdkafka at once
_STAMP = struct.Struct(">Qq")  # number, nanoseconds of the machine's monotonic clock


def produce(options: argparse.Namespace) -> dict[str, Any]:
    """As many records as asked for, as fast as they are acknowledged."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    # The queue is large enough to keep the sender's thread busy; all else is as it comes.
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": "all",
            "enable.idempotence": options.idempotent,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 << 10,
            # Only errors come back one by one: a callback for every record would measure Python.
            "delivery.report.only.error": True,
        }
    )
    where = {} if options.partition is None else {"partition": options.partition}
    value = os.urandom(options.size)
    piece = [{"value": value} for _ in range(_PIECE)]
    producer.list_topics(options.topic, 30)  # connected, and the topic is known
    before, started = usage(os.getpid()), time.perf_counter()
    left: int = options.records
    while left:
        part = piece if left >= _PIECE else piece[:left]
        try:
            queued = producer.produce_batch(options.topic, part, **where, on_delivery=delivered)
        except BufferError:
            queued = 0
        left -= queued
        producer.poll(0.002 if queued < len(part) else 0)
    unsent = producer.flush(300)
    seconds = time.perf_counter() - started
    if failures or unsent:
        raise SystemExit(f"{unsent} records were not delivered, {len(failures)} failed: {failures[:3]}")
    return {"seconds": seconds, **_cost(before)}


def consume(options: argparse.Namespace) -> dict[str, Any]:
    """So many records from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            # With its defaults librdkafka waits a second whenever 100,000 records are queued: both servers
            # would be measured by that pause.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(options.topic, 30).topics[options.topic].partitions
    before, started = usage(os.getpid()), time.perf_counter()
    consumer.assign([TopicPartition(options.topic, number, 0) for number in partitions])
    left, size = options.records, 0
    while left > 0:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise SystemExit(f"nothing came for 30 s, {left} records are missing")
        for message in (messages[0], messages[-1]):
            if message.error() is not None:
                raise KafkaException(message.error())
        left -= len(messages)
        size = len(messages[-1].value() or b"")
    seconds = time.perf_counter() - started
    assert size == options.size, f"records of {size} bytes"
    cost = _cost(before)
    consumer.close()
    return {"seconds": seconds, **cost}


def send(options: argparse.Namespace) -> dict[str, Any]:
    """Records at a steady rate, each stamped with the time it was sent; latencies of the acknowledgements."""
    producer = Producer({"bootstrap.servers": options.bootstrap, "acks": "all", "linger.ms": 0})
    filling = bytes(options.size - _STAMP.size)
    latencies: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        value = message.value()
        assert isinstance(value, bytes)
        latencies.append(time.monotonic_ns() - _STAMP.unpack_from(value)[1])

    producer.list_topics(options.topic, 30)
    interval = 1 / options.rate
    due = time.monotonic()
    for number in range(options.records):
        while (wait := due - time.monotonic()) > 0:
            producer.poll(wait)  # serves acknowledgements, returns early when one comes
        stamp = _STAMP.pack(number, time.monotonic_ns())
        producer.produce(options.topic, stamp + filling, partition=0, on_delivery=delivered)
        due += interval
    producer.flush(60)
    return {"latencies": latencies}


def receive(options: argparse.Namespace) -> dict[str, Any]:
    """The other end of ``send``: latencies from the call of produce to the record in the consumer's hand."""
    consumer = Consumer(
        {"bootstrap.servers": options.bootstrap, "group.id": "benchmark", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    print("ready", file=sys.stderr, flush=True)
    latencies: list[int] = []
    while len(latencies) < options.records:
        message = consumer.poll(60)
        if message is None:
            raise SystemExit(f"nothing came for 60 s after {len(latencies)} records")
        if message.error() is not None:
            raise KafkaException(message.error())
        now, value = time.monotonic_ns(), message.value()
        assert isinstance(value, bytes)
        number, sent = _STAMP.unpack_from(value)
        assert number == len(latencies), "out of order"
        latencies.append(now - sent)
    consumer.close()
    return {"latencies": latencies}


def ends(options: argparse.Namespace) -> dict[str, Any]:
    """The end offsets of all partitions."""
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "benchmark"})
    numbers = sorted(consumer.list_topics(options.topic, 30).topics[options.topic].partitions)
    partitions = [TopicPartition(options.topic, number) for number in numbers]
    found = [consumer.get_watermark_offsets(partition, 30)[1] for partition in partitions]
    consumer.close()
    return {"ends": found}


def _cost(before: Usage) -> dict[str, float]:
    used = usage(os.getpid()).since(before)
    return {"cpu": used.total, "busiest": used.busiest}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["produce", "consume", "send", "receive", "ends"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--rate", type=int, default=1000)
    options = parser.parse_args()
    print(json.dumps(globals()[options.what](options)), flush=True)


if __name__ == "__main__":
    main()
