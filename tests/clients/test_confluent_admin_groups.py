"""confluent-kafka's AdminClient on groups, offsets and records, and how each mistake is answered.

The expected answers are those of Apache Kafka 4.1 without an authorizer.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import (
    OffsetSpec,
)

from tests.clients.confluent_admin import TIMEOUT, refusal
from tests.clients.peer import Peer
from tests.clients.records import START, Record, numbered
from tests.clients.waiting import until

Topics = Callable[..., str]
Name = Callable[[str], str]
SPEC: Any = OffsetSpec  # its methods have no types


# -- offsets and records -----------------------------------------------------------------------------------


def test_offsets_of_every_kind(admin: Any, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    times = [100, 300, 300, 200]
    reference.produce(topic, [Record(None, b"v", (), START + time) for time in times])

    def ask(where: TopicPartition, spec: Any, **options: Any) -> Any:
        return admin.list_offsets({where: spec}, **options)[where]

    def found(partition: int, spec: Any, **options: Any) -> tuple[int, int]:
        result = ask(TopicPartition(topic, partition), spec, **options).result(TIMEOUT)
        return result.offset, result.timestamp

    assert found(0, SPEC.earliest()) == (0, -1)
    assert found(0, SPEC.latest()) == (4, -1)
    assert found(0, SPEC.latest(), isolation_level=IsolationLevel.READ_COMMITTED) == (4, -1)
    assert found(0, SPEC.max_timestamp()) == (1, START + 300)
    assert found(0, SPEC.for_timestamp(START + 150)) == (1, START + 300)
    assert found(0, SPEC.for_timestamp(START + 301)) == (-1, -1)
    assert found(1, SPEC.max_timestamp()) == (-1, -1)
    assert found(1, SPEC.latest()) == (0, -1)
    # The client asks for metadata first, and has an error of its own for a topic that is not in it.
    assert refusal(ask(TopicPartition("no-such-topic", 0), SPEC.latest()))[0] == KafkaError._NOENT


def test_records_are_deleted_up_to_the_end(admin: Any, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    reference.produce(topic, numbered(10, 2))

    def delete(partition: int, offset: int) -> Any:
        where = TopicPartition(topic, partition, offset)
        return admin.delete_records([where])[where]

    assert delete(0, 3).result(TIMEOUT).low_watermark == 3
    assert delete(0, 1).result(TIMEOUT).low_watermark == 3
    assert delete(1, -1).result(TIMEOUT).low_watermark == 5
    assert refusal(delete(0, 6))[0] == KafkaError.OFFSET_OUT_OF_RANGE
    unknown = TopicPartition("no-such-topic", 0, 0)
    assert refusal(admin.delete_records([unknown])[unknown])[0] == KafkaError._NOENT


# -- groups ------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_members(admin: Any, make_topic: Topics, unique: Name) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    wanted = [
        TopicPartition(topic, 0, 4, "note", 0),
        TopicPartition(topic, 77, 4),
        TopicPartition("no-such-topic", 0, 4),
    ]
    futures = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
    answers = futures[group].result(TIMEOUT).topic_partitions
    codes = {(one.topic, one.partition): one.error and one.error.code() for one in answers}
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert codes == {(topic, 0): None, (topic, 77): unknown, ("no-such-topic", 0): unknown}
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (kept,) = asked[group].result(TIMEOUT).topic_partitions
    assert (kept.topic, kept.partition, kept.offset) == (topic, 0, 4)
    assert kept.metadata.startswith("note")  # the library may read past its end
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT)
    assert (described.state, described.is_simple_consumer_group) == (ConsumerGroupState.EMPTY, True)


@pytest.mark.parametrize(("protocol", "kind"), [("classic", "CLASSIC"), ("consumer", "CONSUMER")])
def test_a_group_at_work(
    admin: Any, reference: Peer, make_topic: Topics, unique: Name, protocol: str, kind: str
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    reference.join(group, [topic], protocol=protocol, client_id="worker", session_ms=10_000)
    until(reference.assigned, lambda held: len(held) == 2, "the member has its partitions")

    def listed(**filters: Any) -> list[tuple[Any, Any, Any]]:
        found = admin.list_consumer_groups(**filters).result(TIMEOUT)
        assert found.errors == []
        return [
            (one.state, one.type, one.is_simple_consumer_group)
            for one in found.valid
            if one.group_id == group
        ]

    type_ = ConsumerGroupType[kind]
    until(lambda: listed(), lambda seen: seen == [(ConsumerGroupState.STABLE, type_, False)], "it is stable")
    assert listed(states={ConsumerGroupState.STABLE}, types={type_}) == [
        (ConsumerGroupState.STABLE, type_, False)
    ]
    assert listed(states={ConsumerGroupState.EMPTY}) == []
    other = ConsumerGroupType.CONSUMER if kind == "CLASSIC" else ConsumerGroupType.CLASSIC
    assert listed(types={other}) == []

    futures = admin.describe_consumer_groups([group], include_authorized_operations=True)
    described = futures[group].result(TIMEOUT)
    assert (described.group_id, described.state, described.type) == (group, ConsumerGroupState.STABLE, type_)
    assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
    assert {operation.name for operation in described.authorized_operations} == (
        {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    )
    (member,) = described.members
    assert (member.client_id, member.host, member.group_instance_id) == ("worker", "/127.0.0.1", None)
    held = [(where.topic, where.partition) for where in member.assignment.topic_partitions]
    assert sorted(held) == [(topic, 0), (topic, 1)]

    assert refusal(admin.delete_consumer_groups([group])[group])[0] == KafkaError.NON_EMPTY_GROUP
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    (answer,) = admin.alter_consumer_group_offsets([offsets])[group].result(TIMEOUT).topic_partitions
    assert answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    reference.ask("leave")
    until(
        lambda: admin.describe_consumer_groups([group])[group].result(TIMEOUT).state,
        lambda state: state == ConsumerGroupState.EMPTY,
        "it is empty",
    )
    admin.delete_consumer_groups([group])[group].result(TIMEOUT)
    assert listed() == []


def test_an_unknown_group(admin: Any) -> None:
    described = admin.describe_consumer_groups(["no-such-group"])["no-such-group"].result(TIMEOUT)
    assert (described.state, described.members) == (ConsumerGroupState.DEAD, [])
    answer = refusal(admin.delete_consumer_groups(["no-such-group"])["no-such-group"])
    assert answer[0] == KafkaError.GROUP_ID_NOT_FOUND
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("no-such-group")])
    assert offsets["no-such-group"].result(TIMEOUT).topic_partitions == []
