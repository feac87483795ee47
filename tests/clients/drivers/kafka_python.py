# mypy: disable-error-code="import-untyped"
"""kafka-python: all of Kafka's client in Python."""

import time
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import NoError, UnstableOffsetCommitError

from tests.clients.drivers.serving import Driver, Json, Reading, decode, headers, record, serve

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPython(Driver):
    """The classic group protocol, transactions and most of the administration."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.common: Json = {"bootstrap_servers": bootstrap}
        self.member: Any = None
        self.inbox: list[Json] = []
        self.transactional: Any = None
        self._admin: Any = None

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self.common)
        return self._admin

    def hello(self) -> str:
        return f"kafka-python {kafka.__version__}"

    # -- producing and reading ------------------------------------------------------------------------

    def produce(
        self, topic: str, codec: str, acks: str, idempotent: bool, records: list[Json]
    ) -> list[list[int]]:
        producer = KafkaProducer(
            **self.common,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
            batch_size=200_000,
        )
        try:
            return _send(producer, topic, records)
        finally:
            producer.close()

    def read(
        self, topic: str, isolation: str, first: dict[str, int], last: dict[str, int], quiet_ms: int
    ) -> list[Json]:
        consumer = KafkaConsumer(
            **self.common, isolation_level=isolation, auto_offset_reset="none", enable_auto_commit=False
        )
        consumer.assign([TopicPartition(topic, int(p)) for p in first])
        for p, offset in first.items():
            consumer.seek(TopicPartition(topic, int(p)), offset)
        reading = Reading(last)
        quiet_since = time.monotonic()
        while not reading.done and time.monotonic() - quiet_since < quiet_ms / 1000:
            for messages in consumer.poll(timeout_ms=100).values():
                for message in messages:
                    reading.add(_record(message))
                quiet_since = time.monotonic()
        consumer.close()
        return reading.records

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        where = TopicPartition(topic, partition)
        return int(self.admin.list_partition_offsets({where: timestamp})[where].offset)

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
        self.member = KafkaConsumer(
            **self.common,
            client_id=client_id,
            group_id=group,
            group_instance_id=instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=[ASSIGNORS[assignor or "range"]],
        )
        self.member.subscribe(topics)
        # Else it may join before it knows the topic's partitions, and with the cooperative assignor it then
        # never looks again: a race of the client's own, on Apache Kafka as well.
        self.member.topics()

    def busy(self) -> bool:
        return self.member is not None

    def work(self) -> None:
        for messages in self.member.poll(timeout_ms=50).values():
            self.inbox.extend(_record(message) for message in messages)

    def assigned(self) -> list[tuple[str, int]]:
        return [(where.topic, where.partition) for where in self.member.assignment()]

    def taken(self) -> list[Json]:
        taken, self.inbox = self.inbox, []
        return taken

    def commit(self) -> None:
        self.member.commit()

    def leave(self) -> None:
        if self.member is not None:
            self.member.close()
            self.member = None

    def set_offsets(self, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        wanted = {
            TopicPartition(topic, p): OffsetAndMetadata(offset, text, -1)
            for topic, p, offset, text in offsets
        }
        for error in self.admin.alter_group_offsets(group, wanted).values():
            if error is not NoError:
                raise error

    def committed(self, group: str, partitions: list[tuple[str, int]]) -> list[Any]:
        wanted = [TopicPartition(topic, p) for topic, p in partitions]
        while True:
            try:
                found = self.admin.list_group_offsets({group: wanted})[group]
                break
            except UnstableOffsetCommitError:
                time.sleep(0.05)
        return [
            [
                where.topic,
                where.partition,
                found[where].offset if found[where].offset >= 0 else None,
                found[where].metadata or "",
            ]
            for where in wanted
        ]

    # -- transactions ---------------------------------------------------------------------------------

    def txn_open(self, id: str, timeout_ms: int, codec: str) -> None:
        self.transactional = KafkaProducer(
            **self.common,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        self.transactional.init_transactions()

    def txn_begin(self) -> None:
        self.transactional.begin_transaction()

    def txn_send(self, topic: str, records: list[Json]) -> list[list[int]]:
        return _send(self.transactional, topic, records)

    def txn_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> None:
        wanted = {TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1) for topic, p, offset in offsets}
        metadata = self.member.group_metadata() if self.member is not None else group
        self.transactional.send_offsets_to_transaction(wanted, metadata)

    def txn_commit(self) -> None:
        self.transactional.commit_transaction()

    def txn_abort(self) -> None:
        self.transactional.abort_transaction()

    def txn_close(self) -> None:
        if self.transactional is not None:
            self.transactional.close(timeout=2)
            self.transactional = None

    # -- administration -------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=config)
        self.admin.create_topics([new])

    def partitions(self, topic: str) -> int:
        return len(self.admin.describe_topics([topic])[0]["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions({topic: total})

    def config(self, topic: str) -> dict[str, str | None]:
        found = self.admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def set_config(self, topic: str, config: dict[str, str]) -> None:
        self.admin.alter_configs([ConfigResource("TOPIC", topic, config)])

    def delete_records(self, topic: str, before: dict[str, int]) -> dict[int, int]:
        wanted = {TopicPartition(topic, int(p)): offset for p, offset in before.items()}
        result = self.admin.delete_records(wanted)
        return {where.partition: answer["low_watermark"] for where, answer in result.items()}

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def topics(self) -> list[str]:
        return list(self.admin.list_topics())

    def groups(self) -> list[str]:
        return [one["group_id"] for one in self.admin.list_groups()]

    def group(self, group: str) -> Json:
        described = self.admin.describe_groups([group])[group]
        return {
            "state": described["group_state"],
            "members": sorted(one["client_id"] for one in described["members"]),
        }

    def delete_group(self, group: str) -> None:
        for error in self.admin.delete_groups([group]).values():
            if error is not NoError and error != "OK":
                raise error if isinstance(error, type) else RuntimeError(str(error))

    def reset(self) -> None:
        self.leave()
        self.inbox = []
        self.txn_close()


def _send(producer: Any, topic: str, records: list[Json]) -> list[list[int]]:
    futures = [
        producer.send(
            topic,
            value=decode(one["v"]),
            key=decode(one["k"]),
            headers=headers(one),
            partition=one["p"],
            timestamp_ms=one["t"],
        )
        for one in records
    ]
    sent = [future.get(timeout=30) for future in futures]
    return [[one.partition, one.offset] for one in sent]


def _record(message: Any) -> Json:
    return record(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        message.headers,
    )


if __name__ == "__main__":
    serve(KafkaPython)
