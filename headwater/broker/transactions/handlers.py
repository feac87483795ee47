"""The APIs of transactional and idempotent producers, and those that show what they are doing."""

import re
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.groups.handlers_offsets import txn_offset_commit as commit_offsets
from headwater.broker.messages import ErrorCode, Fields, duration, error, milliseconds, moment
from headwater.broker.transactions.coordinator import BUMPS_EPOCH, OFFSETS_PARTITION, Refused
from headwater.broker.transactions.records import Status, TopicPartition
from headwater.errors import HeadwaterError
from headwater.log.partition import now_ms

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

END_BUMPS_EPOCH_FROM = 5
OFFSETS_JOIN_THEMSELVES_FROM = 5


def _older(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Clients that do not know PRODUCER_FENCED yet are told INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.producer_fenced and version < fenced_from:
        return ErrorCode.invalid_producer_epoch
    return code


async def init_producer_id(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """An identity for an idempotent or transactional producer."""
    try:
        identity = await broker.transactions.init_producer(
            request.transactional_id,
            milliseconds(request.transaction_timeout),
            getattr(request, "producer_id", -1),
            getattr(request, "producer_epoch", -1),
        )
    except Refused as refused:
        code = _older(refused.code, context.version, 4)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    except HeadwaterError as fault:
        return {"error_code": error(fault.kafka_code), "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": ErrorCode.none,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "ongoing_txn_producer_id": -1,
        "ongoing_txn_producer_epoch": -1,
    }


async def add_partitions_to_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The transaction will write to these partitions."""
    if context.version < 4:
        results = await _add(
            broker,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
            False,
            context.version,
        )
        return {"results_by_topic_v3_and_below": results}
    transactions = []
    for item in request.transactions:
        topics = await _add(
            broker,
            item.transactional_id,
            item.producer_id,
            item.producer_epoch,
            item.topics,
            item.verify_only,
            context.version,
        )
        transactions.append({"transactional_id": item.transactional_id, "topic_results": topics})
    return {"error_code": ErrorCode.none, "results_by_transaction": transactions}


async def _add(
    broker: "Broker",
    transactional_id: str,
    producer_id: int,
    epoch: int,
    topics: Any,
    verify_only: bool,
    version: int,
) -> list[dict[str, Any]]:
    wanted: list[TopicPartition] = [(topic.name, number) for topic in topics for number in topic.partitions]
    unknown = {key for key in wanted if broker.find_log(*key) is None}
    codes: dict[TopicPartition, ErrorCode] = {}
    if unknown:
        # One unknown partition and none is added, as in Kafka.
        codes = dict.fromkeys(wanted, ErrorCode.operation_not_attempted)
        codes |= dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)
    elif verify_only:
        for key in wanted:
            known = broker.transactions.is_part(transactional_id, producer_id, epoch, key)
            codes[key] = ErrorCode.none if known else ErrorCode.transaction_abortable
    else:
        try:
            await broker.transactions.add_partitions(transactional_id, producer_id, epoch, wanted)
            codes = dict.fromkeys(wanted, ErrorCode.none)
        except Refused as refused:
            codes = dict.fromkeys(wanted, _older(refused.code, version, 2))
        except HeadwaterError as fault:
            codes = dict.fromkeys(wanted, error(fault.kafka_code))
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": codes[topic.name, number]}
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]


async def add_offsets_to_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The transaction will commit offsets of a group."""
    try:
        await broker.transactions.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, [OFFSETS_PARTITION]
        )
    except Refused as refused:
        return {"error_code": _older(refused.code, context.version, 2)}
    except HeadwaterError as fault:
        return {"error_code": error(fault.kafka_code)}
    return {"error_code": ErrorCode.none}


async def txn_offset_commit(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Commit offsets as part of a transaction."""
    code = ErrorCode.none
    identity = (request.transactional_id, request.producer_id, request.producer_epoch)
    if not broker.transactions.is_part(*identity, OFFSETS_PARTITION):
        if context.version >= OFFSETS_JOIN_THEMSELVES_FROM:
            try:
                await broker.transactions.add_partitions(
                    *identity, [OFFSETS_PARTITION], client_version=BUMPS_EPOCH
                )
            except Refused as refused:
                code = refused.code
            except HeadwaterError as fault:
                code = error(fault.kafka_code)
        else:
            code = _why_not_part(broker, request)
    if code is ErrorCode.producer_fenced:
        code = ErrorCode.invalid_producer_epoch
    if code is not ErrorCode.none:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": partition.partition_index, "error_code": code}
                        for partition in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }
    return await commit_offsets(broker.groups, request, context)


def _why_not_part(broker: "Broker", request: Any) -> ErrorCode:
    state = broker.transactions.state(request.transactional_id)
    if state is None or state.producer_id != request.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if state.epoch != request.producer_epoch:
        return ErrorCode.producer_fenced
    return ErrorCode.invalid_txn_state


async def end_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Commit or abort; answered when the markers are durable."""
    try:
        identity = await broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            context.version >= END_BUMPS_EPOCH_FROM,
        )
    except Refused as refused:
        code = _older(refused.code, context.version, 2)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    except HeadwaterError as fault:
        return {"error_code": error(fault.kafka_code), "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": ErrorCode.none,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }


async def write_txn_markers(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Markers in single partitions: how an administrator ends a transaction that hangs."""
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = []
            for number in topic.partition_indexes:
                code = ErrorCode.none
                log = broker.find_log(topic.name, number)
                if log is None:
                    code = ErrorCode.unknown_topic_or_partition
                else:
                    try:
                        await broker.transactions.write_marker(
                            log,
                            marker.producer_id,
                            marker.producer_epoch,
                            marker.coordinator_epoch,
                            marker.transaction_result,
                        )
                    except HeadwaterError as fault:
                        code = error(fault.kafka_code)
                partitions.append({"partition_index": number, "error_code": code})
            topics.append({"name": topic.name, "partitions": partitions})
        markers.append({"producer_id": marker.producer_id, "topics": topics})
    return {"markers": markers}


# -- looking -------------------------------------------------------------------------------------------


def describe_producers(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The producers that a partition remembers."""
    topics = []
    for topic in request.topics:
        partitions = []
        for number in topic.partition_indexes:
            log = broker.find_log(topic.name, number)
            result: dict[str, Any] = {
                "partition_index": number,
                "error_code": ErrorCode.none,
                "error_message": None,
                "active_producers": (),
            }
            if log is None:
                result["error_code"] = ErrorCode.unknown_topic_or_partition
            else:
                result["active_producers"] = [
                    {
                        "producer_id": producer.producer_id,
                        "producer_epoch": producer.epoch,
                        "last_sequence": producer.last_sequence,
                        "last_timestamp": producer.timestamp,
                        "coordinator_epoch": producer.coordinator_epoch,
                        "current_txn_start_offset": producer.transaction_start,
                    }
                    for producer in log.producers.all()
                ]
            partitions.append(result)
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def describe_transactions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Transactional ids in full."""
    results = []
    for transactional_id in request.transactional_ids:
        state = broker.transactions.state(transactional_id)
        if state is None:
            results.append(
                {
                    "transactional_id": transactional_id,
                    "error_code": ErrorCode.transactional_id_not_found,
                    "producer_id": -1,
                    "producer_epoch": -1,
                    "transaction_state": "",
                    "transaction_start_time": moment(-1),
                    "topics": (),
                }
            )
            continue
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(state.partitions):
            topics.setdefault(topic, []).append(number)
        results.append(
            {
                "transactional_id": transactional_id,
                "error_code": ErrorCode.none,
                "transaction_state": state.status.label,
                "transaction_timeout": duration(state.timeout_ms),
                "transaction_start_time": moment(state.started_ms if state.status is Status.ONGOING else -1),
                "producer_id": state.producer_id,
                "producer_epoch": state.epoch,
                "topics": [{"topic": name, "partitions": tuple(p)} for name, p in topics.items()],
            }
        )
    return {"transaction_states": results}


def list_transactions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Transactional ids, filtered."""
    labels = {status.label for status in Status}
    wanted = set(request.state_filters)
    longer_than = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        matches = re.compile(pattern).fullmatch if pattern else None
    except re.error:
        return {"error_code": ErrorCode.invalid_regular_expression, "transaction_states": ()}
    found = []
    for transactional_id, state in broker.transactions.states():
        if wanted and state.status.label not in wanted:
            continue
        if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
            continue
        if longer_than >= 0 and (state.started_ms < 0 or now_ms() - state.started_ms <= longer_than):
            continue
        if matches is not None and not matches(transactional_id):
            continue
        found.append(
            {
                "transactional_id": transactional_id,
                "producer_id": state.producer_id,
                "transaction_state": state.status.label,
            }
        )
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": tuple(sorted(wanted - labels)),
        "transaction_states": found,
    }


serve(22, 0, 5, init_producer_id)
serve(24, 0, 5, add_partitions_to_txn)
serve(25, 0, 4, add_offsets_to_txn)
serve(26, 0, 5, end_txn)
serve(27, 1, 1, write_txn_markers)
serve(28, 0, 5, txn_offset_commit)
serve(61, 0, 0, describe_producers)
serve(65, 0, 0, describe_transactions)
serve(66, 0, 1, list_transactions)
