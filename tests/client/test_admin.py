"""Topics, configurations and offsets."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headwater.client.admin import Admin, both_ends
from headwater.client.connection import Connection
from headwater.client.writer import Writer
from headwater.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    RequestFailed,
    TopicExists,
    UnknownTopic,
)


def test_a_created_topic_is_there_when_create_returns(admin: Admin, topic: str) -> None:
    assert admin.create_topic(topic, 3, configs={"cleanup.policy": "compact"})
    found = admin.topic(topic)
    assert (found.name, found.internal) == (topic, False)
    assert [partition.number for partition in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert partition.replicas == partition.in_sync == (partition.leader,)
    assert (topic, 3, False) in admin.topics()


def test_creating_twice_fails_unless_that_is_fine(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    with pytest.raises(TopicExists):
        admin.create_topic(topic)
    assert admin.create_topic(topic, exist_ok=True) is False


def test_wrong_names_and_configurations_are_refused(admin: Admin, topic: str) -> None:
    with pytest.raises(InvalidTopic):
        admin.create_topic("a/b")
    with pytest.raises(InvalidConfig, match=r"no\.such\.config"):
        admin.create_topic(topic, configs={"no.such.config": "1"})
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        admin.create_topic(topic, configs={"retention.ms": "soon"})
    with pytest.raises(UnknownTopic):
        admin.topic(topic)


def test_a_deleted_topic_is_gone_when_delete_returns(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    admin.delete_topic(topic)
    with pytest.raises(UnknownTopic, match="there is no such topic"):
        admin.topic(topic)
    with pytest.raises(UnknownTopic):
        admin.delete_topic(topic)
    assert admin.create_topic(topic)


def test_partitions_only_grow(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, 2)
    admin.add_partitions(topic, 4)
    assert admin.partitions(topic) == [0, 1, 2, 3]
    for total in (4, 3):
        with pytest.raises(InvalidPartitions):
            admin.add_partitions(topic, total)


def test_configurations_are_set_and_put_back(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, configs={"retention.ms": "1000", "cleanup.policy": "compact"})

    def own() -> dict[str, str | None]:
        return {config.name: config.value for config in admin.configs(topic) if config.source == "topic"}

    def settled(expected: dict[str, str]) -> bool:
        deadline = time.monotonic() + 5  # the brokers of a cluster hear of it a moment later
        while own() != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return own() == expected

    assert settled({"retention.ms": "1000", "cleanup.policy": "compact"})
    admin.alter_configs(topic, {"max.message.bytes": "2000"}, ["retention.ms"])
    assert settled({"max.message.bytes": "2000", "cleanup.policy": "compact"})
    with pytest.raises(InvalidConfig):
        admin.alter_configs(topic, {"max.message.bytes": "3000", "no.such.config": "1"})
    assert own() == {"max.message.bytes": "2000", "cleanup.policy": "compact"}
    everything = {config.name: config for config in admin.configs(topic)}
    assert everything["retention.ms"].is_default and everything["retention.ms"].value == "604800000"
    assert not everything["cleanup.policy"].is_default


def test_altering_what_is_not_there_says_so(admin: Admin, topic: str) -> None:
    with pytest.raises(UnknownTopic):
        admin.alter_configs(topic, {"retention.ms": "1"})
    with pytest.raises(UnknownTopic):
        admin.add_partitions(topic, 2)


def test_offsets_by_end_and_by_time(
    admin: Admin, connection: Connection, topic: str, write: Callable[..., None]
) -> None:
    admin.create_topic(topic, 2, configs={"retention.ms": "-1"})
    with Writer(connection) as writer:
        for timestamp in (1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000):
            writer.write(topic, b"x", partition=1, timestamp=timestamp)
    places = [(topic, 0), (topic, 1)]
    assert both_ends(admin, places) == {(topic, 0): (0, 0), (topic, 1): (0, 3)}
    assert admin.at_time(places, 1_700_000_000_500) == {(topic, 0): None, (topic, 1): 1}
    assert admin.at_time(places, 1_700_000_009_000) == {(topic, 0): None, (topic, 1): None}
    assert admin.latest([]) == {}
    with pytest.raises(UnknownTopic):
        admin.latest([(topic, 7)])


def test_a_partition_without_a_leader_is_asked_again(
    admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create_topic(topic, 2)
    admin.latest([(topic, 0), (topic, 1)])  # from now on a leader knows them
    ask, asked = admin.client.list_offsets, []

    def unheard_of(wanted: dict[TopicPartition, OffsetSpec], **how: Any) -> dict[TopicPartition, Future[Any]]:
        """As a new leader answers that has not heard of one of its partitions."""
        asked.append(sorted(partition.partition for partition in wanted))
        futures: dict[TopicPartition, Future[Any]] = dict(ask(wanted, **how))
        if len(asked) == 1:
            futures[TopicPartition(topic, 1)] = Future()
            futures[TopicPartition(topic, 1)].set_exception(
                KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
            )
        return futures

    monkeypatch.setattr(admin.client, "list_offsets", unheard_of)
    assert admin.latest([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 0}
    assert asked == [[0, 1], [1]]
    monkeypatch.setattr("headwater.client.admin.LEADER_SECONDS", 0)
    asked.clear()
    with pytest.raises(RequestFailed, match=f"cannot read the offsets of {topic}-1: .*NOT_LEADER"):
        admin.latest([(topic, 1)])


def test_asking_for_a_topic_does_not_create_it(admin: Admin, topic: str) -> None:
    with pytest.raises(UnknownTopic):
        admin.topic(topic)
    assert topic not in [found.name for found in admin.topics()]


def test_internal_topics_are_listed_when_asked_for(
    admin: Admin, connection: Connection, topic: str, write: Callable[..., None]
) -> None:
    from headwater.client.group_reader import GroupReader

    admin.create_topic(topic)
    write(topic, "x")
    with GroupReader(connection, topic, [topic], unread="earliest", to_end=True) as reader:
        for batch in reader.batches():
            reader.done(batch)
    assert not [found for found in admin.topics() if found.name.startswith("__")]
    assert "__consumer_offsets" in [found.name for found in admin.topics(internal=True) if found.internal]
