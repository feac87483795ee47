"""Produce: from the frame to the file, and the answer when the disk has it."""

import logging
import uuid
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode
from headwater.broker.transactions.coordinator import BUMPS_EPOCH, ProducerEpoch, Refused
from headwater.broker.transactions.records import TopicPartition
from headwater.broker.wire import (
    Produced,
    ProducePartition,
    ProduceRequest,
    read_produce,
    write_produce_response,
)
from headwater.errors import HeadwaterError
from headwater.log.batch import HEADER_SIZE, read_header
from headwater.log.compression import ZSTD
from headwater.log.partition import now_ms
from headwater.log.validate import check_batch

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.connection import Slot

logger = logging.getLogger("headwater.broker")

ALL, ONE, NONE = -1, 1, 0
ADDS_PARTITIONS_ITSELF = 12  # from this version on, a batch joins its transaction without AddPartitionsToTxn


def start_produce(
    broker: "Broker", context: RequestContext, frame: memoryview, position: int, slot: "Slot"
) -> Coroutine[Any, Any, None] | None:
    """Append the batches of a Produce request; ``slot`` is answered when they are as safe as asked.

    Returns a coroutine only where a transaction has to be told of new partitions first.
    """
    request = read_produce(frame, position, context.version)
    joins = request.transactional_id is not None and context.version >= ADDS_PARTITIONS_ITSELF
    if joins and _partitions_to_join(broker, request):
        return _join_then_produce(broker, context, request, slot)
    _Produce(broker, context, request, slot).run({})
    return None


def _partitions_to_join(
    broker: "Broker", request: ProduceRequest
) -> dict[ProducerEpoch, set[TopicPartition]]:
    """Partitions that the transaction does not have yet, by the identity that writes to them."""
    new: dict[ProducerEpoch, set[TopicPartition]] = {}
    for item in request.partitions:
        log = broker.find_log(item.topic, item.partition)
        if log is None or item.records is None or len(item.records) < HEADER_SIZE:
            continue
        header = read_header(item.records)
        partition = (log.topic, log.partition)
        identity = ProducerEpoch(header.producer_id, header.producer_epoch)
        assert request.transactional_id is not None
        if not broker.transactions.is_part(request.transactional_id, *identity, partition):
            new.setdefault(identity, set()).add(partition)
    return new


async def _join_then_produce(
    broker: "Broker", context: RequestContext, request: ProduceRequest, slot: "Slot"
) -> None:
    refused: dict[TopicPartition, int] = {}
    for identity, partitions in _partitions_to_join(broker, request).items():
        try:
            assert request.transactional_id is not None
            await broker.transactions.add_partitions(
                request.transactional_id, *identity, partitions, client_version=BUMPS_EPOCH
            )
        except Refused as error:
            fenced = error.code is ErrorCode.producer_fenced
            code = ErrorCode.invalid_producer_epoch if fenced else error.code
            refused |= dict.fromkeys(partitions, code)
        except HeadwaterError as error:
            refused |= dict.fromkeys(partitions, error.kafka_code)
    _Produce(broker, context, request, slot).run(refused)


class _Produce:
    """One request under way."""

    __slots__ = ("broker", "context", "request", "results", "slot", "waiting")

    def __init__(
        self, broker: "Broker", context: RequestContext, request: ProduceRequest, slot: "Slot"
    ) -> None:
        self.broker = broker
        self.context = context
        self.request = request
        self.slot = slot
        self.results: list[Produced] = []
        self.waiting = 0

    def run(self, refused: dict[TopicPartition, int]) -> None:
        acks = self.request.acks
        self.waiting = 1  # until all are appended
        for number, item in enumerate(self.request.partitions):
            if acks not in (ALL, ONE, NONE):
                self._refuse(item, ErrorCode.invalid_required_acks, f"acks={acks} is none of -1, 0 and 1")
            else:
                self._append(number, item, acks == ALL, refused)
        if acks == NONE:
            failed = [result for result in self.results if result.error]
            if failed:
                # Nothing can be said to this client but by ending the connection, as Kafka does.
                logger.warning("closing %s: %s", self.context.client_host, failed[0].message)
                self.slot.fail()
            else:
                self.slot.skip()
            return
        self._one_done()

    def _append(
        self, number: int, item: ProducePartition, wait: bool, refused: dict[TopicPartition, int]
    ) -> None:
        log = self.broker.find_log(item.topic, item.partition)
        if log is None:
            code = (
                ErrorCode.unknown_topic_id
                if isinstance(item.topic, uuid.UUID)
                else ErrorCode.unknown_topic_or_partition
            )
            self._refuse(item, code, "this broker has no such topic or partition")
            return
        if item.records is None:
            self._refuse(item, ErrorCode.invalid_record, "a partition without records")
            return
        if self.broker.is_internal(log.topic):
            self._refuse(
                item, ErrorCode.invalid_topic_exception, f"{log.topic} is written by the broker alone"
            )
            return
        if refused and (log.topic, log.partition) in refused:
            self._refuse(item, refused[log.topic, log.partition], None)
            return
        now = now_ms()
        try:
            batch, header = check_batch(item.records, log.config, now, log.name)
            if header.codec == ZSTD and self.context.version < 7:
                self._refuse(
                    item, ErrorCode.unsupported_compression_type, "zstd needs Produce of version 7 or later"
                )
                return
            if header.is_transactional:
                self.broker.transactions.check_produce(
                    self.request.transactional_id, header, log.topic, log.partition
                )
            appended = log.append(batch, header, now)
        except HeadwaterError as error:
            self._refuse(item, error.kafka_code, str(error))
            logger.info("produce from %s: %s", self.context.client_id, error)
            return
        append_time = now if log.config.append_time else -1
        self.results.append(
            Produced(item.topic, item.partition, 0, appended.base_offset, append_time, log.start_offset, None)
        )
        if appended.duplicate and appended.last_offset < log.durable_offset:
            return
        if wait:
            self.waiting += 1
            self.broker.commit.add(log, lambda error: self._synced(number, error))
        else:
            self.broker.commit.add(log)

    def _refuse(self, item: ProducePartition, code: int, message: str | None) -> None:
        self.results.append(Produced(item.topic, item.partition, code, -1, -1, -1, message))

    def _synced(self, number: int, error: HeadwaterError | None) -> None:
        if error is not None:
            failed = self.results[number]
            self.results[number] = failed._replace(
                error=error.kafka_code, base_offset=-1, log_start=-1, message=str(error)
            )
        self._one_done()

    def _one_done(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            response = write_produce_response(self.context.correlation_id, self.context.version, self.results)
            self.slot.answer((response,))
