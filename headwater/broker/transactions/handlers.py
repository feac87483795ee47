"""The APIs of transactional and idempotent producers, and those that show what they are doing."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.groups.handlers_offsets import txn_offset_commit as commit_offsets
from headwater.broker.groups.patterns import InvalidPattern, TopicPattern
from headwater.broker.groups.refusals import code_of
from headwater.broker.messages import ErrorCode, Fields, duration, error, milliseconds, moment
from headwater.broker.transactions.coordinator import OFFSETS_PARTITION
from headwater.broker.transactions.records import Status, TopicPartition
from headwater.broker.transactions.transitions import RAISES_EPOCH, ProducerEpoch, Refused
from headwater.errors import HeadwaterError
from headwater.log.partition import now_ms

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

NOBODY = {"producer_id": -1, "producer_epoch": -1}
END_RAISES_EPOCH_FROM = 5
OFFSETS_JOIN_THEMSELVES_FROM = 5
OFFSETS_KNOW_ABORTABLE_FROM = 4


def _code(fault: Refused | HeadwaterError, version: int, fenced_from: int) -> ErrorCode:
    """The answer; clients that do not know PRODUCER_FENCED yet are told INVALID_PRODUCER_EPOCH.

    A disk that does not take the coordinator's state makes it one that is not there: clients retry then.
    """
    code = fault.code if isinstance(fault, Refused) else code_of(fault)
    if code is ErrorCode.producer_fenced and version < fenced_from:
        return ErrorCode.invalid_producer_epoch
    return code


def _claimed(request: Any) -> ProducerEpoch:
    return ProducerEpoch(request.producer_id, request.producer_epoch)


async def init_producer_id(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """An identity for an idempotent or transactional producer."""
    named = ProducerEpoch(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (named.producer_id == -1) != (named.epoch == -1):
        return {"error_code": ErrorCode.invalid_request, **NOBODY}
    try:
        given = await broker.transactions.init_producer(
            request.transactional_id,
            milliseconds(request.transaction_timeout),
            None if named.producer_id == -1 else named,
        )
    except (Refused, HeadwaterError) as fault:
        return {"error_code": _code(fault, context.version, 4), **NOBODY}
    return {
        "error_code": ErrorCode.none,
        "producer_id": given.producer_id,
        "producer_epoch": given.epoch,
        "ongoing_txn_producer_id": -1,
        "ongoing_txn_producer_epoch": -1,
    }


async def add_partitions_to_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The transaction will write to these partitions."""
    if context.version < 4:
        claimed = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        transactional_id = request.v3_and_below_transactional_id
        topics = request.v3_and_below_topics
        codes = await _add(broker, transactional_id, claimed, _partitions(topics), context.version)
        return {"results_by_topic_v3_and_below": _by_topic(topics, codes)}
    transactions = []
    for item in request.transactions:
        wanted = _partitions(item.topics)
        if item.verify_only:
            codes = _verify(broker, item.transactional_id, _claimed(item), wanted)
        else:
            codes = await _add(broker, item.transactional_id, _claimed(item), wanted, context.version)
        topics = _by_topic(item.topics, codes)
        transactions.append({"transactional_id": item.transactional_id, "topic_results": topics})
    return {"error_code": ErrorCode.none, "results_by_transaction": transactions}


Codes = dict[TopicPartition, ErrorCode]


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _by_topic(topics: Iterable[Any], codes: Codes) -> list[Fields]:
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


async def _add(
    broker: "Broker",
    transactional_id: str,
    claimed: ProducerEpoch,
    wanted: list[TopicPartition],
    version: int,
) -> Codes:
    missing = _missing(broker, wanted)
    if missing:  # one of them and none is added, as in Kafka
        return dict.fromkeys(wanted, ErrorCode.operation_not_attempted) | missing
    try:
        await broker.transactions.add_partitions(transactional_id, claimed, wanted)
    except (Refused, HeadwaterError) as fault:
        return dict.fromkeys(wanted, _code(fault, version, 2))
    return dict.fromkeys(wanted, ErrorCode.none)


def _missing(broker: "Broker", wanted: list[TopicPartition]) -> Codes:
    codes: Codes = {}
    for topic, number in wanted:
        if broker.is_internal(topic):
            codes[topic, number] = ErrorCode.topic_authorization_failed
        elif broker.find_log(topic, number) is None:
            codes[topic, number] = ErrorCode.unknown_topic_or_partition
    return codes


def _verify(
    broker: "Broker", transactional_id: str, claimed: ProducerEpoch, wanted: list[TopicPartition]
) -> Codes:
    missing = _missing(broker, wanted)
    if missing:
        return dict.fromkeys(wanted, ErrorCode.operation_not_attempted) | missing
    codes: Codes = {}
    for partition in wanted:
        codes[partition] = ErrorCode.none
        try:
            broker.transactions.check_part(transactional_id, claimed, partition)
        except Refused as refused:
            codes[partition] = refused.code
    return codes


async def add_offsets_to_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The transaction will commit offsets of a group."""
    try:
        await broker.transactions.add_partitions(
            request.transactional_id, _claimed(request), [OFFSETS_PARTITION]
        )
    except (Refused, HeadwaterError) as fault:
        return {"error_code": _code(fault, context.version, 2)}
    return {"error_code": ErrorCode.none}


async def txn_offset_commit(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Commit offsets as part of a transaction."""
    try:
        return await broker.transactions.commit_offsets(
            request.transactional_id,
            _claimed(request),
            lambda: commit_offsets(broker.groups, request, context),
            RAISES_EPOCH,
            joins=context.version >= OFFSETS_JOIN_THEMSELVES_FROM,
        )
    except (Refused, HeadwaterError) as fault:
        code = _code(fault, 0, 1)
    if code is ErrorCode.transaction_abortable and context.version < OFFSETS_KNOW_ABORTABLE_FROM:
        code = ErrorCode.invalid_txn_state
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": partition.partition_index, "error_code": code}
                for partition in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"topics": topics}


async def end_txn(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Commit or abort; answered when the markers are durable."""
    try:
        given = await broker.transactions.end(
            request.transactional_id,
            _claimed(request),
            request.committed,
            context.version >= END_RAISES_EPOCH_FROM,
        )
    except (Refused, HeadwaterError) as fault:
        return {"error_code": _code(fault, context.version, 2), **NOBODY}
    return {
        "error_code": ErrorCode.none,
        "producer_id": given.producer_id,
        "producer_epoch": given.epoch,
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
    results: list[Fields] = []
    for transactional_id in request.transactional_ids:
        state = broker.transactions.state(transactional_id)
        if state is None:
            code = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
            results.append({"transactional_id": transactional_id, "error_code": code})
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
                "transaction_start_time": moment(state.started_ms),
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
        matches = TopicPattern(pattern).matches if pattern else None
    except InvalidPattern:
        return {"error_code": ErrorCode.invalid_regular_expression, "transaction_states": ()}
    found = []
    for transactional_id, state in broker.transactions.states():
        if wanted and state.status.label not in wanted:
            continue
        if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
            continue
        if longer_than >= 0 and now_ms() - state.started_ms <= longer_than:
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
serve(66, 0, 2, list_transactions)
