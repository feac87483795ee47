"""Produce: from the frame to the file, and the answer when the disk has it."""

import asyncio
import logging
import struct
import uuid
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode
from headwater.broker.transactions.records import TopicPartition
from headwater.broker.transactions.transitions import RAISES_EPOCH, ProducerEpoch, Refused
from headwater.broker.wire import (
    Produced,
    ProducePartition,
    ProduceRequest,
    read_produce,
    write_produce_response,
)
from headwater.errors import HeadwaterError, InvalidBatch
from headwater.log.batch import HEADER_SIZE, BatchHeader, Buffer, read_header
from headwater.log.compression import CODECS, ZSTD
from headwater.log.partition import Appended, PartitionLog, now_ms
from headwater.log.validate import check_batch

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.connection import Slot

logger = logging.getLogger("headwater.broker")

ALL, ONE, NONE = -1, 1, 0
ZSTD_FROM = 7
KNOWS_ABORTABLE_FROM = 11
ADDS_PARTITIONS_ITSELF_FROM = 12  # a batch joins its transaction without AddPartitionsToTxn

# Records are looked into on compacted topics, on those with a codec of their own, and in batches that do not
# know their latest timestamp. A batch can hold a hundred times what it weighs, so that anything but a small
# plain one is looked into in this thread. It is one, so that only one batch at a time takes up the memory.
_checker = ThreadPoolExecutor(1, "headwater-check")
SMALL = 32 << 10
_TIMESTAMPS, _TIMESTAMPS_START = struct.Struct(">qq"), 27  # the first and the latest one, in a header

Checked = tuple[Buffer, BatchHeader] | HeadwaterError


@dataclass(slots=True)
class _Prepared:
    """What was found out about a request's partitions before its turn to append."""

    refused: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    checked: dict[int, Checked] = field(default_factory=dict)  # by number in the request


_NOTHING = _Prepared()


def start_produce(
    broker: "Broker", context: RequestContext, frame: memoryview, position: int, slot: "Slot"
) -> Coroutine[Any, Any, None] | None:
    """Append the batches of a Produce request; ``slot`` is answered when they are as safe as asked.

    Returns a coroutine only where a transaction has to be told of new partitions first, or large batches
    have to be opened.
    """
    request = read_produce(frame, position, context.version)
    new = _partitions_to_join(broker, context, request)
    large = _batches_to_open(broker, request)
    if new or large:
        return _prepare_then_produce(broker, context, request, slot, new, large)
    _Produce(broker, context, request, slot, _NOTHING).run()
    return None


async def _prepare_then_produce(
    broker: "Broker",
    context: RequestContext,
    request: ProduceRequest,
    slot: "Slot",
    new: Mapping[ProducerEpoch, set[TopicPartition]],
    large: Mapping[int, PartitionLog],
) -> None:
    prepared = _Prepared()
    for claimed, partitions in new.items():
        assert request.transactional_id is not None
        try:
            await broker.transactions.add_partitions(
                request.transactional_id, claimed, partitions, client_version=RAISES_EPOCH
            )
        except Refused as error:
            fenced = error.code is ErrorCode.producer_fenced
            code = ErrorCode.invalid_producer_epoch if fenced else error.code
            message = f"the transaction of {request.transactional_id} does not take it: {code.name}"
            prepared.refused |= dict.fromkeys(partitions, (code, message))
        except HeadwaterError as error:
            prepared.refused |= dict.fromkeys(partitions, (error.kafka_code, str(error)))
    for number, log in large.items():
        records = request.partitions[number].records
        assert records is not None
        prepared.checked[number] = await asyncio.wrap_future(
            _checker.submit(_check, records, log), loop=broker.loop
        )
    _Produce(broker, context, request, slot, prepared).run()


def _check(records: memoryview, log: PartitionLog) -> Checked:
    try:
        return check_batch(records, log.config, now_ms(), log.name)
    except HeadwaterError as error:
        # Tracebacks hold frames, and these all that the batch was opened into.
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)


def _partitions_to_join(
    broker: "Broker", context: RequestContext, request: ProduceRequest
) -> dict[ProducerEpoch, set[TopicPartition]]:
    """Partitions that the transaction does not have yet, by the identity that writes to them."""
    if request.transactional_id is None or context.version < ADDS_PARTITIONS_ITSELF_FROM:
        return {}
    new: dict[ProducerEpoch, set[TopicPartition]] = {}
    for item in request.partitions:
        log = broker.find_log(item.topic, item.partition)
        if log is None or item.records is None or len(item.records) < HEADER_SIZE:
            continue
        header = read_header(item.records)
        if not header.is_transactional or broker.is_internal(log.topic):
            continue
        if log.producers.has_later_epoch(header):
            continue  # it will be refused, and must not begin anything
        partition = (log.topic, log.partition)
        claimed = ProducerEpoch(header.producer_id, header.producer_epoch)
        if not broker.transactions.is_part(request.transactional_id, claimed, partition):
            new.setdefault(claimed, set()).add(partition)
    return new


def _batches_to_open(broker: "Broker", request: ProduceRequest) -> dict[int, PartitionLog]:
    """Batches that have to be looked into and may be large, by number in the request."""
    large = {}
    for number, item in enumerate(request.partitions):
        log = broker.find_log(item.topic, item.partition)
        if log is None or item.records is None or len(item.records) < HEADER_SIZE:
            continue
        config = log.config
        if len(item.records) > config.max_message_bytes:
            continue
        base, latest = _TIMESTAMPS.unpack_from(item.records, _TIMESTAMPS_START)
        is_opened = config.compact or (latest < base and not config.append_time)
        if not is_opened and config.codec == "producer":
            continue
        codec = read_header(item.records).codec
        if not is_opened and codec == CODECS[config.codec]:
            continue
        if codec or len(item.records) > SMALL:
            large[number] = log
    return large


class _Produce:
    """One request under way."""

    __slots__ = ("broker", "context", "prepared", "request", "results", "slot", "waiting")

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        request: ProduceRequest,
        slot: "Slot",
        prepared: _Prepared,
    ) -> None:
        self.broker = broker
        self.context = context
        self.request = request
        self.slot = slot
        self.prepared = prepared
        self.results: list[Produced] = []
        self.waiting = 0

    def run(self) -> None:
        acks = self.request.acks
        self.waiting = 1  # until all are appended
        for number, item in enumerate(self.request.partitions):
            if acks not in (ALL, ONE, NONE):
                self._refuse(item, ErrorCode.invalid_required_acks, f"acks={acks} is none of -1, 0 and 1")
            else:
                self._append(number, item, acks == ALL)
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

    def _append(self, number: int, item: ProducePartition, wait: bool) -> None:
        log = self._writable(item)
        if log is None:
            return
        now = now_ms()
        checked = self.prepared.checked.get(number)
        if isinstance(checked, HeadwaterError):
            self._refuse_batch(item, log, checked)
            return
        try:
            assert item.records is not None
            batch, header = checked or check_batch(item.records, log.config, now, log.name)
            if not self._fits_request(item, log, header):
                return
            appended = log.append(batch, header, now)
        except HeadwaterError as error:
            self._refuse_batch(item, log, error)
            return
        self.results.append(
            Produced(
                item.topic,
                item.partition,
                0,
                appended.base_offset,
                _append_time(log, header, appended, now),
                log.start_offset,
                None,
            )
        )
        if appended.duplicate and appended.last_offset < log.durable_offset:
            return
        if wait:
            self.waiting += 1
            self.broker.commit.add(log, lambda error: self._synced(number, error))
        else:
            self.broker.commit.add(log)

    def _writable(self, item: ProducePartition) -> PartitionLog | None:
        """The partition's log, if clients may write to it; else the item is refused."""
        if isinstance(item.topic, str) and self.broker.is_internal(item.topic):
            log = None
            code, message = ErrorCode.invalid_topic_exception, f"{item.topic} is written by the broker alone"
        elif (log := self.broker.find_log(item.topic, item.partition)) is None:
            by_id = isinstance(item.topic, uuid.UUID) and self.broker.find_topic(item.topic) is None
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            message = "this broker has no such topic or partition"
        elif item.records is None:
            code, message = ErrorCode.invalid_record, "a partition without records"
        elif self.broker.is_internal(log.topic):
            code, message = ErrorCode.invalid_topic_exception, f"{log.topic} is written by the broker alone"
        elif (log.topic, log.partition) in self.prepared.refused:
            refused, message = self.prepared.refused[log.topic, log.partition]
            code = ErrorCode(refused)
        else:
            return log
        self._refuse(item, code, message)
        return None

    def _fits_request(self, item: ProducePartition, log: PartitionLog, header: BatchHeader) -> bool:
        """Whether version and transaction of the request allow the batch; else the item is refused."""
        if header.codec == ZSTD and self.context.version < ZSTD_FROM:
            message = f"zstd needs Produce of version {ZSTD_FROM} or later"
            self._refuse(item, ErrorCode.unsupported_compression_type, message)
            return False
        if not header.is_transactional:
            return True
        transactional_id = self.request.transactional_id
        if transactional_id is None:
            message = "a transactional batch in a request without a transactional id"
            self._refuse(item, ErrorCode.transactional_id_authorization_failed, message)
            return False
        try:
            knows_abortable = self.context.version >= KNOWS_ABORTABLE_FROM
            self.broker.transactions.check_produce(transactional_id, header, log, knows_abortable)
        except HeadwaterError as error:
            logger.info("produce from %s: %s", self.context.client_id, error)
            self._refuse(item, error.kafka_code, str(error))
            return False
        return True

    def _refuse(self, item: ProducePartition, code: int, message: str) -> None:
        self.results.append(Produced(item.topic, item.partition, code, -1, -1, -1, message))

    def _refuse_batch(self, item: ProducePartition, log: PartitionLog, error: HeadwaterError) -> None:
        logger.info("produce from %s: %s", self.context.client_id, error)
        bad_records = error.records if isinstance(error, InvalidBatch) else ()
        faults = tuple((number, error.cause) for number in bad_records)
        code, start = error.kafka_code, log.start_offset
        self.results.append(Produced(item.topic, item.partition, code, -1, -1, start, str(error), faults))

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


def _append_time(log: PartitionLog, header: BatchHeader, appended: Appended, now: int) -> int:
    """When the broker stamped the batch; a repetition is told the time of the original."""
    if appended.duplicate:
        producer = log.producers.get(header.producer_id)
        for batch in producer.batches if producer is not None else ():
            if batch.base_offset == appended.base_offset:
                return batch.timestamp
    return now if log.config.append_time else -1
