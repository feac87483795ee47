"""confluent-kafka, which is librdkafka."""

import functools
import time
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.drivers.serving import Driver, Json, Reading, decode, headers, record, serve

TIMEOUT = 30.0


class Confluent(Driver):
    """Everything the matrix asks for."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.common: Json = {"bootstrap.servers": bootstrap}
        self.member: Consumer | None = None
        self.inbox: list[Json] = []
        self.transactional: Producer | None = None
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self.common)
        return self._admin

    def error_name(self, error: Exception) -> str:
        # flush() wraps what a fatal error raised in a SystemError.
        cause = error.__cause__ if isinstance(error, SystemError) else error
        if isinstance(cause, KafkaException):
            return str(cause.args[0].name())
        return super().error_name(error)

    def hello(self) -> str:
        return f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"

    # -- producing and reading ------------------------------------------------------------------------

    def produce(
        self, topic: str, codec: str, acks: str, idempotent: bool, records: list[Json]
    ) -> list[list[int]]:
        producer = Producer(
            {
                **self.common,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "delivery.timeout.ms": 30_000,
            }
        )
        return _send(producer, topic, records)

    def read(
        self, topic: str, isolation: str, first: dict[str, int], last: dict[str, int], quiet_ms: int
    ) -> list[Json]:
        consumer = Consumer(
            {
                **self.common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([TopicPartition(topic, int(p), offset) for p, offset in first.items()])
        reading = Reading(last)
        quiet_since = time.monotonic()
        while not reading.done and time.monotonic() - quiet_since < quiet_ms / 1000:
            message = consumer.poll(0.1)
            if message is not None:
                reading.add(_record(message))
                quiet_since = time.monotonic()
        consumer.close()
        return reading.records

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        where = TopicPartition(topic, partition)
        kinds: Any = OffsetSpec  # its methods have no types
        spec = {-1: kinds.latest, -2: kinds.earliest}.get(timestamp, lambda: kinds.for_timestamp(timestamp))()
        found = self.admin.list_offsets({where: spec})
        return int(found[where].result(TIMEOUT).offset)

    # -- groups ---------------------------------------------------------------------------------------

    def join(
        self,
        group: str,
        topics: list[str],
        protocol: str,
        assignor: str,
        session_ms: int,
        instance: str | None,
        isolation: str,
        client_id: str,
    ) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": client_id,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
        if protocol == "classic":
            config["session.timeout.ms"] = session_ms
            config["heartbeat.interval.ms"] = 500
            config["partition.assignment.strategy"] = assignor or "range"
        elif assignor:
            config["group.remote.assignor"] = assignor
        if instance is not None:
            config["group.instance.id"] = instance
        self.member = Consumer(config)
        self.member.subscribe(topics)

    def busy(self) -> bool:
        return self.member is not None

    def work(self) -> None:
        assert self.member is not None
        message: Any = self.member.poll(0.05)
        if message is None:
            return
        if message.error():
            self.inbox.append({"error": message.error().name()})
        else:
            self.inbox.append(_record(message))

    def assigned(self) -> list[tuple[str, int]]:
        assert self.member is not None
        return [(where.topic, where.partition) for where in self.member.assignment()]

    def taken(self) -> list[Json]:
        taken, self.inbox = self.inbox, []
        return taken

    def commit(self) -> None:
        assert self.member is not None
        try:
            self.member.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def leave(self) -> None:
        if self.member is not None:
            self.member.close()
            self.member = None

    def set_offsets(self, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = [TopicPartition(topic, p, offset, text) for topic, p, offset, text in offsets]
        request = ConsumerGroupTopicPartitions(group, wanted)
        result = self.admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT)
        for where in result.topic_partitions:
            if where.error:
                raise KafkaException(where.error)

    def committed(self, group: str, partitions: list[tuple[str, int]]) -> list[Any]:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for topic, p in partitions])
        while True:
            futures = self.admin.list_consumer_group_offsets([request], require_stable=True)
            found = futures[group].result(TIMEOUT).topic_partitions
            errors = [one.error for one in found if one.error]
            if not errors:
                break
            if errors[0].code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise KafkaException(errors[0])
            time.sleep(0.05)  # a transaction that holds offsets of the group has not ended yet
        return [
            [one.topic, one.partition, one.offset if one.offset >= 0 else None, _text(one)] for one in found
        ]

    # -- transactions ---------------------------------------------------------------------------------

    def txn_open(self, id: str, timeout_ms: int, codec: str) -> None:
        self.transactional = Producer(
            {
                **self.common,
                "transactional.id": id,
                "transaction.timeout.ms": timeout_ms,
                "compression.type": codec,
                "linger.ms": 20,
            }
        )
        self.transactional.init_transactions(TIMEOUT)

    def txn_begin(self) -> None:
        self._producer().begin_transaction()

    def txn_send(self, topic: str, records: list[Json]) -> list[list[int]]:
        return _send(self._producer(), topic, records)

    def txn_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> None:
        wanted = [TopicPartition(topic, p, offset) for topic, p, offset in offsets]
        consumer = self.member or Consumer({**self.common, "group.id": group})
        self._producer().send_offsets_to_transaction(wanted, consumer.consumer_group_metadata(), TIMEOUT)
        if consumer is not self.member:
            consumer.close()

    def txn_commit(self) -> None:
        self._producer().commit_transaction(TIMEOUT)

    def txn_abort(self) -> None:
        self._producer().abort_transaction(TIMEOUT)

    def txn_close(self) -> None:
        self.transactional = None

    def _producer(self) -> Producer:
        assert self.transactional is not None
        return self.transactional

    # -- administration -------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([new])[topic].result(TIMEOUT)

    def partitions(self, topic: str) -> int:
        description = self.admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(
            TIMEOUT
        )
        return len(description.partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT)

    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(TIMEOUT)
        return {name: entry.value for name, entry in entries.items()}

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)

    def delete_records(self, topic: str, before: dict[str, int]) -> dict[int, int]:
        wanted = [TopicPartition(topic, int(p), offset) for p, offset in before.items()]
        futures = self.admin.delete_records(wanted)
        return {where.partition: one.result(TIMEOUT).low_watermark for where, one in futures.items()}

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(TIMEOUT)

    def topics(self) -> list[str]:
        return list(self.admin.list_topics(timeout=TIMEOUT).topics)

    def groups(self) -> list[str]:
        return [one.group_id for one in self.admin.list_consumer_groups().result(TIMEOUT).valid]

    def group(self, group: str) -> Json:
        described = self.admin.describe_consumer_groups([group])[group].result(TIMEOUT)
        return {
            "state": described.state.name,
            "members": sorted(one.client_id for one in described.members),
            "held": sorted(len(one.assignment.topic_partitions) for one in described.members),
        }

    def delete_group(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(TIMEOUT)

    def reset(self) -> None:
        self.leave()
        self.inbox = []
        self.transactional = None


def _text(where: Any) -> str:
    """The text of a commit. The library does not end it with a zero byte: what follows it may be anything."""
    try:
        return str(where.metadata or "")
    except UnicodeDecodeError:
        return ""


def _send(producer: Any, topic: str, records: list[Json]) -> list[list[int]]:
    placed: dict[int, list[int]] = {}
    errors: list[KafkaException] = []

    def delivered(number: int, error: Any, message: Any) -> None:
        if error is not None:
            errors.append(KafkaException(error))
        else:
            placed[number] = [message.partition(), message.offset()]

    for number, one in enumerate(records):
        producer.produce(
            topic,
            decode(one["v"]),
            decode(one["k"]),
            one["p"],
            on_delivery=functools.partial(delivered, number),
            timestamp=one["t"],
            headers=headers(one),
        )
    producer.flush(TIMEOUT)
    if errors:
        raise errors[0]
    return [placed[number] for number in range(len(records))]


def _record(message: Any) -> Json:
    if message.error():
        raise KafkaException(message.error())
    return record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers(),
    )


if __name__ == "__main__":
    serve(Confluent)
