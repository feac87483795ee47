"""What topics hold, as it is compared and kept: records without what differs from run to run."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

# One record: its key and its value as JSON has them (objects keep the order of their fields), and its headers.
Event = dict[str, Any]
Transcript = dict[str, list[Event]]

_QUIET = {"log_level": 0}
# They name the connector, and are compared nowhere.
_CONTEXT = "__debezium.context."


def read(bootstrap: str, wanted: Callable[[str], bool]) -> Transcript:
    """Everything committed in the topics of these names, up to their end as of now."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    found = admin.list_topics(timeout=20).topics
    partitions = [
        TopicPartition(name, number, 0)
        for name, topic in found.items()
        if wanted(name)
        for number in topic.partitions
    ]
    events: Transcript = {partition.topic: [] for partition in partitions}
    if not partitions:
        return events
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **_QUIET,
        }
    )
    try:
        consumer.assign(partitions)
        left = {(partition.topic, partition.partition) for partition in partitions}
        while left:
            for message in consumer.consume(2000, timeout=0.1):
                problem = message.error()
                if problem is None:
                    headers: Any = message.headers()
                    events[str(message.topic())].append(event(message.key(), message.value(), headers))
                elif problem.code() == KafkaError._PARTITION_EOF:
                    left.discard((message.topic(), message.partition()))
                else:
                    raise AssertionError(f"cannot read {message.topic()}: {problem}")
    finally:
        consumer.close()
    return events


def event(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> Event:
    """One record.

    >>> event(b'{"id":1}', None, [("__debezium.context.taskId", b"0"), ("__debezium.newkey", b'{"id":2}')])
    {'key': {'id': 1}, 'value': None, 'headers': {'__debezium.newkey': {'id': 2}}}
    """
    return {
        "key": None if key is None else json.loads(key),
        "value": None if value is None else json.loads(value),
        "headers": {
            name: json.loads(content) if content else None
            for name, content in headers or []
            if not name.startswith(_CONTEXT)
        },
    }


def wait_for(
    bootstrap: str,
    wanted: Callable[[str], bool],
    done: Callable[[Mapping[str, list[Event]]], bool],
    check: Callable[[], None],
    seconds: float = 60.0,
) -> Transcript:
    """Read again and again until the topics hold what is waited for; `check` raises when that cannot come."""
    deadline = time.monotonic() + seconds
    while True:
        found = read(bootstrap, wanted)
        if done(found):
            return read(bootstrap, wanted)  # topics may have been made between listing them and reading
        check()
        if time.monotonic() > deadline:
            counts = {topic: len(events) for topic, events in found.items()}
            raise AssertionError(f"not there after {seconds:.0f} s; the topics hold {counts}")
        time.sleep(0.3)


def snapshot_rows(events: Mapping[str, list[Event]]) -> int:
    """How many records say that a snapshot read them."""
    return sum(
        1
        for of_topic in events.values()
        for event in of_topic
        if event["value"] and event["value"].get("op") == "r"
    )
