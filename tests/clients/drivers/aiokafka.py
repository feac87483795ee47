# mypy: disable-error-code="import-untyped"
"""aiokafka: asyncio, with record batches in C."""

import asyncio
import json
import sys
import threading
import time
import traceback
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import UnknownError, for_code
from aiokafka.structs import OffsetAndMetadata

from tests.clients.drivers.serving import Json, Reading, decode, headers, record

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class AioKafka:
    """The classic group protocol, transactions and a part of the administration."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.member: Any = None
        self.polling: asyncio.Task[None] | None = None
        self.inbox: list[Json] = []
        self.transactional: Any = None
        self._admin: Any = None

    async def admin(self) -> Any:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await self._admin.start()
        return self._admin

    async def hello(self) -> str:
        return f"aiokafka {aiokafka.__version__}"

    # -- producing and reading ------------------------------------------------------------------------

    async def produce(
        self, topic: str, codec: str, acks: str, idempotent: bool, records: list[Json]
    ) -> list[list[int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=20,
            max_batch_size=200_000,
        )
        await producer.start()
        try:
            return await _send(producer, topic, records, acks != "0")
        finally:
            await producer.stop()

    async def read(
        self, topic: str, isolation: str, first: dict[str, int], last: dict[str, int], quiet_ms: int
    ) -> list[Json]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, isolation_level=isolation, auto_offset_reset="none"
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, int(p)) for p in first])
            for p, offset in first.items():
                consumer.seek(TopicPartition(topic, int(p)), offset)
            reading = Reading(last)
            quiet_since = time.monotonic()
            while not reading.done and time.monotonic() - quiet_since < quiet_ms / 1000:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        reading.add(_record(message))
                    quiet_since = time.monotonic()
            return reading.records
        finally:
            await consumer.stop()

    async def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        where = TopicPartition(topic, partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        await consumer.start()
        try:
            if timestamp == -1:
                return int((await consumer.end_offsets([where]))[where])
            if timestamp == -2:
                return int((await consumer.beginning_offsets([where]))[where])
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
            return -1 if found is None else int(found.offset)
        finally:
            await consumer.stop()

    # -- groups ---------------------------------------------------------------------------------------

    async def join(
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
        self.member = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
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
        await self.member.start()
        self.polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            for messages in (await self.member.getmany(timeout_ms=50)).values():
                self.inbox.extend(_record(message) for message in messages)

    async def assigned(self) -> list[tuple[str, int]]:
        return [(where.topic, where.partition) for where in self.member.assignment()]

    async def taken(self) -> list[Json]:
        taken, self.inbox = self.inbox, []
        return taken

    async def commit(self) -> None:
        await self.member.commit()

    async def leave(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
            self.polling = None
        if self.member is not None:
            await self.member.stop()
            self.member = None

    async def set_offsets(self, group: str, offsets: list[tuple[str, int, int, str]]) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, p) for topic, p, _, _ in offsets])
            await consumer.commit(
                {TopicPartition(topic, p): (offset, text) for topic, p, offset, text in offsets}
            )
        finally:
            await consumer.stop()

    async def committed(self, group: str, partitions: list[tuple[str, int]]) -> list[Any]:
        wanted = [TopicPartition(topic, p) for topic, p in partitions]
        admin = await self.admin()
        found = await admin.list_consumer_group_offsets(group, partitions=wanted)
        return [
            [
                where.topic,
                where.partition,
                found[where].offset if found[where].offset >= 0 else None,
                found[where].metadata,
            ]
            for where in wanted
        ]

    # -- transactions ---------------------------------------------------------------------------------

    async def txn_open(self, id: str, timeout_ms: int, codec: str) -> None:
        self.transactional = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        )
        await self.transactional.start()

    async def txn_begin(self) -> None:
        await self.transactional.begin_transaction()

    async def txn_send(self, topic: str, records: list[Json]) -> list[list[int]]:
        return await _send(self.transactional, topic, records, True)

    async def txn_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> None:
        wanted = {TopicPartition(topic, p): OffsetAndMetadata(offset, "") for topic, p, offset in offsets}
        await self.transactional.send_offsets_to_transaction(wanted, group)

    async def txn_commit(self) -> None:
        await self.transactional.commit_transaction()

    async def txn_abort(self) -> None:
        await self.transactional.abort_transaction()

    async def txn_close(self) -> None:
        if self.transactional is not None:
            await self.transactional.stop()
            self.transactional = None

    # -- administration -------------------------------------------------------------------------------

    async def create_topic(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=config)
        answer = await (await self.admin()).create_topics([new])
        _check(answer.topic_errors)

    async def partitions(self, topic: str) -> int:
        (described,) = await (await self.admin()).describe_topics([topic])
        _check([(topic, described["error_code"], "")])
        return len(described["partitions"])

    async def add_partitions(self, topic: str, total: int) -> None:
        answer = await (await self.admin()).create_partitions({topic: NewPartitions(total)})
        _check(answer.topic_errors)

    async def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await (await self.admin()).describe_configs([resource])
        ((code, message, _, name, entries),) = answer.resources
        _check([(name, code, message)])
        return {entry[0]: entry[1] for entry in entries}

    async def delete_records(self, topic: str, before: dict[str, int]) -> dict[int, int]:
        wanted = {
            TopicPartition(topic, int(p)): RecordsToDelete(before_offset=offset)
            for p, offset in before.items()
        }
        result = await (await self.admin()).delete_records(wanted)
        return {where.partition: low for where, low in result.items()}

    async def delete_topic(self, topic: str) -> None:
        answer = await (await self.admin()).delete_topics([topic])
        _check([(name, code, "") for name, code in answer.topic_error_codes])

    async def topics(self) -> list[str]:
        return list(await (await self.admin()).list_topics())

    async def groups(self) -> list[str]:
        return [one[0] for one in await (await self.admin()).list_consumer_groups()]

    async def group(self, group: str) -> Json:
        (answer,) = await (await self.admin()).describe_consumer_groups([group])
        (described,) = answer.groups
        _check([(group, described[0], "")])
        return {"state": described[2], "members": sorted(member[1] for member in described[5])}

    async def reset(self) -> None:
        await self.leave()
        self.inbox = []
        await self.txn_close()


def _check(errors: Any) -> None:
    for name, code, *message in errors:
        if code:
            kind = for_code(code)
            raise (UnknownError if kind is None else kind)(f"{name}: {message}")


async def _send(producer: Any, topic: str, records: list[Json], acknowledged: bool) -> list[list[int]]:
    futures = [
        await producer.send(
            topic,
            value=decode(one["v"]),
            key=decode(one["k"]),
            partition=one["p"],
            timestamp_ms=one["t"],
            headers=headers(one),
        )
        for one in records
    ]
    sent = [await future for future in futures]
    # Without an acknowledgement the client has no metadata of the record.
    return [[one.partition, one.offset] if acknowledged else [0, -1] for one in sent]


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


async def main() -> None:
    """As ``serving.serve``, in an event loop."""
    driver = AioKafka(sys.argv[1])
    commands: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(commands.put_nowait, line)
        loop.call_soon_threadsafe(commands.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await commands.get()) is not None:
        command = json.loads(line)
        method = getattr(driver, command.pop("do"), None)
        try:
            if method is None:
                answer: Json = {"error": "Unsupported", "message": line}
            else:
                answer = {"ok": await method(**command)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    await driver.reset()


if __name__ == "__main__":
    asyncio.run(main())
