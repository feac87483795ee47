"""confluent-kafka's AdminClient on topics, configs and the cluster, and how each mistake is answered.

The expected answers are those of Apache Kafka 4.1 without an authorizer. An error has the broker's own words;
they must name what is wrong.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.confluent_admin import TIMEOUT, refusal
from tests.clients.waiting import until

Topics = Callable[..., str]
Name = Callable[[str], str]


def configs(admin: Any, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(TIMEOUT)
    return found


def alter(admin: Any, topic: str, *changes: tuple[str, str | None, Any], **options: Any) -> Any:
    """Ask for changes of a topic's configs; the future of the answer."""
    entries = [ConfigEntry(name, value, incremental_operation=kind) for name, value, kind in changes]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    return admin.incremental_alter_configs([resource], **options)[resource]


def partitions(admin: Any, topic: str) -> dict[int, Any]:
    """The partitions of a topic; Apache Kafka's broker learns of new ones a moment after they are made."""
    found: dict[int, Any] = admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
    return found


# -- topics ------------------------------------------------------------------------------------------------


BAD_TOPICS: list[tuple[str, dict[str, Any], int, str]] = [
    ("with space", {}, KafkaError.TOPIC_EXCEPTION, "'with space'"),
    ("..", {}, KafkaError.TOPIC_EXCEPTION, "'..'"),
    ("x" * 250, {}, KafkaError.TOPIC_EXCEPTION, "249"),
    ("no-partitions", {"num_partitions": 0}, KafkaError.INVALID_PARTITIONS, "partition"),
    ("three-copies", {"replication_factor": 3}, KafkaError.INVALID_REPLICATION_FACTOR, "replication factor"),
    ("odd-config", {"config": {"nonsense": "1"}}, KafkaError.INVALID_CONFIG, "nonsense"),
    ("bad-number", {"config": {"retention.ms": "abc"}}, KafkaError.INVALID_CONFIG, "retention.ms"),
    ("bad-choice", {"config": {"cleanup.policy": "foo"}}, KafkaError.INVALID_CONFIG, "cleanup.policy"),
    ("too-small", {"config": {"segment.bytes": "1"}}, KafkaError.INVALID_CONFIG, "segment.bytes"),
]


@pytest.mark.parametrize(("name", "settings", "code", "words"), BAD_TOPICS, ids=lambda v: str(v)[:20])
def test_a_topic_that_cannot_be(
    admin: Any, name: str, settings: dict[str, Any], code: int, words: str
) -> None:
    wanted = {"num_partitions": 1, "replication_factor": 1, **settings}
    answer = refusal(admin.create_topics([NewTopic(name, **wanted)])[name])
    assert answer[0] == code and words in answer[1], answer
    assert name not in admin.list_topics(timeout=TIMEOUT).topics


def test_topics_of_one_request_stand_alone(admin: Any, unique: Name) -> None:
    good, bad = unique("good"), unique("bad")
    futures = admin.create_topics([NewTopic(good, 2, 1), NewTopic(bad, 1, 9)])
    assert futures[good].result(TIMEOUT) is None
    assert refusal(futures[bad])[0] == KafkaError.INVALID_REPLICATION_FACTOR
    code, words = refusal(admin.create_topics([NewTopic(good, 2, 1)])[good])
    assert code == KafkaError.TOPIC_ALREADY_EXISTS and good in words


def test_a_topic_is_only_validated(admin: Any, unique: Name) -> None:
    name = unique("topic")
    assert admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].result(TIMEOUT) is None
    assert name not in admin.list_topics(timeout=TIMEOUT).topics


def test_a_topic_with_the_brokers_defaults(admin: Any, unique: Name) -> None:
    name = unique("topic")
    admin.create_topics([NewTopic(name, -1, -1)])[name].result(TIMEOUT)
    (partition,) = until(lambda: partitions(admin, name), lambda seen: len(seen) == 1, "it has one").values()
    assert (partition.id, partition.error) == (0, None)
    assert partition.replicas == partition.isrs == [partition.leader]


def test_names_that_collide_in_metrics(admin: Any, unique: Name) -> None:
    name = unique("a.b")
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT)
    other = name.replace(".", "_")
    code, words = refusal(admin.create_topics([NewTopic(other, 1, 1)])[other])
    assert code == KafkaError.TOPIC_EXCEPTION and other in words and name in words


def test_topics_are_described(admin: Any, make_topic: Topics) -> None:
    topic = make_topic(partitions=3)
    futures = admin.describe_topics(
        TopicCollection([topic, "no-such-topic"]), include_authorized_operations=True
    )
    described = futures[topic].result(TIMEOUT)
    assert (described.name, described.is_internal) == (topic, False)
    assert [one.id for one in described.partitions] == [0, 1, 2]
    node = described.partitions[0].leader
    assert all(
        [one.leader.id, *(n.id for n in one.replicas + one.isr)] == [node.id] * 3
        for one in described.partitions
    )
    assert {operation.name for operation in described.authorized_operations} == {
        "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    }  # fmt: skip
    assert refusal(futures["no-such-topic"])[0] == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_has_another_id(admin: Any, unique: Name) -> None:
    name = unique("topic")

    def identity() -> str:
        until(lambda: len(partitions(admin, name)), lambda count: count == 1, "it is there")
        return str(admin.describe_topics(TopicCollection([name]))[name].result(TIMEOUT).topic_id)

    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT)
    first = identity()
    admin.delete_topics([name])[name].result(TIMEOUT)
    assert refusal(admin.delete_topics([name])[name])[0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT)
    until(identity, lambda seen: seen != first, "it has another id")


def test_partitions_are_only_ever_added(admin: Any, make_topic: Topics) -> None:
    topic = make_topic(partitions=3)

    def ask(name: str, total: int, **options: Any) -> Any:
        return admin.create_partitions([NewPartitions(name, total)], **options)[name]

    for total in (3, 2):
        code, words = refusal(ask(topic, total))
        assert code == KafkaError.INVALID_PARTITIONS and "3" in words
    assert refusal(ask("no-such-topic", 2))[0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    ask(topic, 5, validate_only=True).result(TIMEOUT)
    assert len(partitions(admin, topic)) == 3
    ask(topic, 5).result(TIMEOUT)
    until(lambda: sorted(partitions(admin, topic)), lambda seen: seen == [0, 1, 2, 3, 4], "it has five")


# -- configs -----------------------------------------------------------------------------------------------


TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_a_topics_configs_and_where_they_come_from(admin: Any, make_topic: Topics) -> None:
    topic = make_topic(config={"retention.ms": "1000", "cleanup.policy": "compact"})
    found = configs(admin, ResourceType.TOPIC, topic)
    values = {name: entry.value for name, entry in found.items()}
    expected = TOPIC_DEFAULTS | {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert {name: values.get(name) for name in expected} == expected
    retention = found["retention.ms"]
    assert (retention.source, retention.is_default) == (ConfigSource.DYNAMIC_TOPIC_CONFIG.value, False)
    segment = found["segment.bytes"]
    assert (segment.source, segment.is_default) == (ConfigSource.DEFAULT_CONFIG.value, True)
    assert not any(entry.is_sensitive or entry.is_read_only for entry in found.values())


def test_configs_change_step_by_step(admin: Any, make_topic: Topics) -> None:
    topic = make_topic()
    kind = AlterConfigOpType

    def wait_for(**expected: str) -> None:
        wanted = {name.replace("_", "."): value for name, value in expected.items()}

        def look() -> dict[str, str]:
            found = configs(admin, ResourceType.TOPIC, topic)
            return {name: found[name].value for name in wanted}

        until(look, lambda seen: seen == wanted, str(wanted))

    alter(admin, topic, ("retention.ms", "5", kind.SET), ("segment.ms", "7000", kind.SET)).result(TIMEOUT)
    wait_for(retention_ms="5", segment_ms="7000")
    alter(admin, topic, ("cleanup.policy", "compact", kind.APPEND)).result(TIMEOUT)
    wait_for(cleanup_policy="delete,compact")
    alter(admin, topic, ("cleanup.policy", "delete", kind.SUBTRACT)).result(TIMEOUT)
    wait_for(cleanup_policy="compact")
    alter(admin, topic, ("retention.ms", "77", kind.SET), validate_only=True).result(TIMEOUT)
    alter(admin, topic, ("segment.ms", "8000", kind.SET)).result(TIMEOUT)
    wait_for(retention_ms="5", segment_ms="8000")
    alter(admin, topic, ("retention.ms", None, kind.DELETE)).result(TIMEOUT)
    wait_for(retention_ms="604800000", segment_ms="8000")


BAD_CHANGES = [
    ("nonsense", "5", AlterConfigOpType.SET),
    ("retention.ms", "x", AlterConfigOpType.SET),
    ("retention.ms", "5", AlterConfigOpType.APPEND),
]


@pytest.mark.parametrize(("name", "value", "kind"), BAD_CHANGES, ids=lambda value: str(value)[:20])
def test_a_config_that_cannot_be(admin: Any, make_topic: Topics, name: str, value: str, kind: Any) -> None:
    topic = make_topic()
    before = {key: entry.value for key, entry in configs(admin, ResourceType.TOPIC, topic).items()}
    answer = refusal(alter(admin, topic, ("segment.ms", "9000", AlterConfigOpType.SET), (name, value, kind)))
    assert answer[0] == KafkaError.INVALID_CONFIG and name in answer[1], answer
    # Nothing of a refused request is kept.
    assert {key: entry.value for key, entry in configs(admin, ResourceType.TOPIC, topic).items()} == before


def test_configs_of_an_unknown_topic(admin: Any) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "no-such-topic")
    assert refusal(admin.describe_configs([resource])[resource])[0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    answer = refusal(alter(admin, "no-such-topic", ("retention.ms", "5", AlterConfigOpType.SET)))
    assert answer[0] == KafkaError.UNKNOWN_TOPIC_OR_PART and "no-such-topic" in answer[1]


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_the_old_way_to_alter_replaces_everything(admin: Any, make_topic: Topics) -> None:
    topic = make_topic(config={"retention.ms": "1000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "100000"})
    admin.alter_configs([resource])[resource].result(TIMEOUT)
    found = until(
        lambda: configs(admin, ResourceType.TOPIC, topic),
        lambda seen: seen["retention.bytes"].value == "100000",
        "the new setting",
    )
    assert found["retention.ms"].value == "604800000"


def test_the_brokers_configs(admin: Any) -> None:
    (node,) = admin.describe_cluster().result(TIMEOUT).nodes
    found = configs(admin, ResourceType.BROKER, str(node.id))
    expected = {
        "auto.create.topics.enable": "true",
        "num.partitions": "1",
        "message.max.bytes": "1048588",
        "log.segment.bytes": "1073741824",
        "log.cleanup.policy": "delete",
        "group.min.session.timeout.ms": "1000",  # set for these tests
    }
    assert {name: found[name].value for name in expected} == expected
    assert found["group.min.session.timeout.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["num.partitions"].is_read_only


# -- the cluster -------------------------------------------------------------------------------------------


def test_the_cluster_is_described(admin: Any, bootstrap: str) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert cluster.controller.id == node.id
    assert len(cluster.cluster_id) == 22
    assert {operation.name for operation in cluster.authorized_operations} == {
        "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    }  # fmt: skip
    assert admin.list_topics(timeout=TIMEOUT).cluster_id == cluster.cluster_id


def test_no_leader_needs_electing(admin: Any, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    wanted = [TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)]
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        answers = admin.elect_leaders(kind, wanted).result(TIMEOUT)
        codes = {(where.topic, where.partition): error.code() for where, error in answers.items()}
        assert codes == {
            (topic, 0): KafkaError.ELECTION_NOT_NEEDED,
            ("no-such-topic", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
        }
    assert admin.elect_leaders(ElectionType.PREFERRED, None).result(TIMEOUT) == {}


def test_without_an_authorizer_there_are_no_acls(admin: Any) -> None:
    any_name: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY,
        any_name,
        ResourcePatternType.ANY,
        any_name,
        any_name,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    binding = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:u",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    assert refusal(admin.create_acls([binding])[binding])[0] == KafkaError.SECURITY_DISABLED
    assert refusal(admin.delete_acls([everything])[everything])[0] == KafkaError.SECURITY_DISABLED
    # librdkafka gives no error here, though the broker's answer is the same.
    assert admin.describe_acls(everything).result(TIMEOUT) == []


def test_nobody_has_a_password(admin: Any, unique: Name) -> None:
    user = unique("user")
    assert refusal(admin.describe_user_scram_credentials([user])[user])[0] == KafkaError.RESOURCE_NOT_FOUND
