"""Offsets of partitions: by position or by time, by leader epoch, and deleting what lies before one."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.broker.answers import breathe, encoded
from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, error
from headwater.errors import HeadwaterError
from headwater.log.partition import PartitionLog

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
READ_COMMITTED = 1
# The versions of ListOffsets that brought them; the last one came after what is served here.
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
LEADER_EPOCH, NO_EPOCH = 0, -1  # there has been one leader ever
NOWHERE = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


async def list_offsets(broker: "Broker", request: Any, context: RequestContext) -> Fields | bytes:
    """Offsets by name (earliest, latest, latest in time) or by timestamp."""
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    asked = Counter(
        (topic.name, item.partition_index) for topic in request.topics for item in topic.partitions
    )
    topics = []
    for topic in request.topics:
        partitions = {}
        for number, item in enumerate(topic.partitions):
            await breathe(number)
            found = {"error_code": ErrorCode.invalid_request, **NOWHERE}
            if asked[topic.name, item.partition_index] == 1:
                found = await _list(broker, topic.name, item, committed, context.version)
            partitions[item.partition_index] = {"partition_index": item.partition_index, **found}
        topics.append({"name": topic.name, "partitions": tuple(partitions.values())})
    return await encoded(broker, context, {"topics": topics}, len(asked))


async def _list(
    broker: "Broker", topic: str, partition: Any, committed: bool, version: int
) -> dict[str, Any]:
    result: dict[str, Any] = {"error_code": ErrorCode.none, **NOWHERE}
    log = broker.find_log(topic, partition.partition_index)
    if log is None:
        return result | {"error_code": ErrorCode.unknown_topic_or_partition}
    fenced = epoch_fault(getattr(partition, "current_leader_epoch", NO_EPOCH))
    if fenced is not ErrorCode.none:
        return result | {"error_code": fenced}
    end = log.end_for(committed)
    wanted = partition.timestamp
    if wanted < EARLIEST_PENDING or version < FIRST_VERSIONS.get(wanted, 0):
        return result | {"error_code": ErrorCode.unsupported_version}
    if wanted == LATEST:
        return result | {"offset": end, "leader_epoch": LEADER_EPOCH}
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        return result | {"offset": log.start_offset, "leader_epoch": LEADER_EPOCH}
    if wanted in (LATEST_TIERED, EARLIEST_PENDING):
        return result  # nothing is ever stored elsewhere
    try:
        found = await broker.loop.run_in_executor(broker.readers, _find, log, wanted, end)
    except HeadwaterError as fault:
        return result | {"error_code": error(fault.kafka_code)}
    if found is None:
        return result
    return result | {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}


def epoch_fault(current: int) -> ErrorCode:
    """What is wrong with the leader epoch that a client believes in.

    >>> epoch_fault(-1), epoch_fault(3)
    (<ErrorCode.none: 0>, <ErrorCode.unknown_leader_epoch: 75>)
    """
    if current > LEADER_EPOCH:
        return ErrorCode.unknown_leader_epoch
    return ErrorCode.none if current in (LEADER_EPOCH, NO_EPOCH) else ErrorCode.fenced_leader_epoch


def _find(log: PartitionLog, timestamp: int, end: int) -> tuple[int, int] | None:
    if timestamp == MAX_TIMESTAMP:
        return log.find_latest_time(end)
    return log.find_time(timestamp, end)


def offset_for_leader_epoch(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Where a leader's epoch ends. There is one epoch: nothing that was shown is ever taken back."""
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            log = broker.find_log(topic.topic, partition.partition)
            result: dict[str, Any] = {
                "partition": partition.partition,
                "error_code": ErrorCode.none,
                "leader_epoch": -1,
                "end_offset": -1,
            }
            fenced = epoch_fault(getattr(partition, "current_leader_epoch", NO_EPOCH))
            if log is None:
                result["error_code"] = ErrorCode.unknown_topic_or_partition
            elif fenced is not ErrorCode.none:
                result["error_code"] = fenced
            elif partition.leader_epoch == LEADER_EPOCH:
                result |= {"leader_epoch": LEADER_EPOCH, "end_offset": log.durable_offset}
            elif partition.leader_epoch < NO_EPOCH:
                result |= {"leader_epoch": partition.leader_epoch, "end_offset": log.start_offset}
            partitions.append(result)
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


async def delete_records(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Make partitions start later; -1 means at their end."""
    topics = []
    moved = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            result: dict[str, Any] = {
                "partition_index": partition.partition_index,
                "low_watermark": -1,
                "error_code": ErrorCode.none,
            }
            log = broker.find_log(topic.name, partition.partition_index)
            if broker.is_internal(topic.name):
                result["error_code"] = ErrorCode.invalid_topic_exception
            elif log is None:
                result["error_code"] = ErrorCode.unknown_topic_or_partition
            elif log.config.compact and not log.config.delete:
                result["error_code"] = ErrorCode.policy_violation
            else:
                offset = log.durable_offset if partition.offset == -1 else partition.offset
                if not 0 <= offset <= log.durable_offset:
                    result["error_code"] = ErrorCode.offset_out_of_range
                else:
                    log.move_start(offset)
                    result["low_watermark"] = log.start_offset
                    moved.append(result)
            partitions.append(result)
        topics.append({"name": topic.name, "partitions": partitions})
    if moved:
        try:
            await broker.save_checkpoint()
        except HeadwaterError as fault:  # gone for readers, but perhaps back after a restart
            for result in moved:
                result |= {"low_watermark": -1, "error_code": error(fault.kafka_code)}
        broker.housekeeping.look_soon()
    return {"topics": topics}


serve(2, 1, 10, list_offsets)
serve(21, 0, 2, delete_records)
serve(23, 2, 4, offset_for_leader_epoch)
