"""Topic administration: create, delete, more partitions."""

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.configs import topic_config_fields
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, error
from headwater.errors import HeadwaterError, InvalidConfig, InvalidPartitions, RequestInvalid, TopicExists
from headwater.log.topic import LARGEST_PARTITION_COUNT, Topic

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


class _Invalid(RequestInvalid):
    """A request that is wrong in itself, and the number by which the protocol knows the fault."""

    def __init__(self, code: ErrorCode, operation: str, subject: str, cause: str) -> None:
        super().__init__(operation, subject, cause)
        self.code = code


def _failed(fault: HeadwaterError) -> dict[str, Any]:
    code = fault.code if isinstance(fault, _Invalid) else error(fault.kafka_code)
    return {"error_code": code, "error_message": str(fault)}


# -- creating ------------------------------------------------------------------------------------------


async def create_topics(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Make topics; each is durable and takes writes before the answer."""
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, dict[str, Any]] = {}
    too_many = _total_partitions(broker, request.topics) > LARGEST_PARTITION_COUNT
    for topic in request.topics:
        result: dict[str, Any] = {"name": topic.name, "topic_id": None}
        try:
            if counts[topic.name] > 1:
                raise _Invalid(
                    ErrorCode.invalid_request, "create", f"topic {topic.name}", "the request names it twice"
                )
            partitions = _partition_count(broker, topic)
            if too_many:
                cause = f"one request makes {LARGEST_PARTITION_COUNT} partitions at most"
                raise _Invalid(ErrorCode.policy_violation, "create", f"topic {topic.name}", cause)
            result |= await _create(broker, topic, partitions, getattr(request, "validate_only", False))
        except HeadwaterError as fault:
            result |= {"num_partitions": -1, "replication_factor": -1, "configs": (), **_failed(fault)}
        results[topic.name] = result
    return {"topics": tuple(results.values())}


def _total_partitions(broker: "Broker", topics: Iterable[Any]) -> int:
    default = broker.settings.default_partitions
    return sum(
        len(t.assignments) or (default if t.num_partitions == -1 else t.num_partitions) for t in topics
    )


async def _create(broker: "Broker", topic: Any, partitions: int, validate_only: bool) -> dict[str, Any]:
    overrides = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig("set", config.name, "it has no value")
        overrides[config.name] = config.value.strip()
    if broker.is_internal(topic.name):
        raise TopicExists("create", f"topic {topic.name}", "it is the broker's own")
    broker.directory.check_new_topic(topic.name, partitions, overrides)
    result: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topic_config_error_code": ErrorCode.none,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": topic_config_fields(broker, overrides),
    }
    if validate_only:
        result["topic_id"] = uuid.uuid4()
    else:
        made = await broker.create_topic(topic.name, partitions, overrides)
        result["topic_id"] = made.topic_id
    return result


def _partition_count(broker: "Broker", topic: Any) -> int:
    subject = f"topic {topic.name}"
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise _Invalid(
                ErrorCode.invalid_request,
                "create",
                subject,
                "replicas are assigned, and numbers of partitions or replicas are given as well",
            )
        numbers = sorted(assignment.partition_index for assignment in topic.assignments)
        if numbers != list(range(len(numbers))):
            raise _Invalid(
                ErrorCode.invalid_replica_assignment, "create", subject, "partitions are not 0, 1, 2, ..."
            )
        for assignment in topic.assignments:
            _check_replicas(broker, subject, assignment.broker_ids)
        return len(numbers)
    if topic.replication_factor not in (-1, 1):
        raise _Invalid(
            ErrorCode.invalid_replication_factor,
            "create",
            subject,
            f"replication factor {topic.replication_factor} on 1 broker",
        )
    return broker.settings.default_partitions if topic.num_partitions == -1 else int(topic.num_partitions)


def _check_replicas(broker: "Broker", subject: str, nodes: Any) -> None:
    if tuple(nodes) != (broker.directory.node_id,):
        raise _Invalid(
            ErrorCode.invalid_replica_assignment,
            "assign replicas of",
            subject,
            f"brokers {list(nodes)} are not [{broker.directory.node_id}]",
        )


async def create_partitions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Give topics more partitions."""
    counts = Counter(topic.name for topic in request.topics)
    results: dict[str, dict[str, Any]] = {}
    for topic in request.topics:
        result: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none, "error_message": None}
        try:
            if counts[topic.name] > 1:
                cause = "the request names it twice"
                raise _Invalid(ErrorCode.invalid_request, "add partitions to", f"topic {topic.name}", cause)
            _check_growth(broker, topic)
            if not request.validate_only:
                await broker.change_catalog(broker.directory.add_partitions, topic.name, topic.count)
        except HeadwaterError as fault:
            result |= _failed(fault)
        results[topic.name] = result
    return {"results": tuple(results.values())}


def _check_growth(broker: "Broker", topic: Any) -> None:
    subject = f"topic {topic.name}"
    have = len(broker.directory.topic(topic.name).partitions)
    if broker.is_internal(topic.name):
        raise InvalidPartitions("add partitions to", subject, "it is the broker's own, and has one")
    if not have < topic.count <= LARGEST_PARTITION_COUNT:
        cause = f"it has {have}, and may have {LARGEST_PARTITION_COUNT}; {topic.count} is not between"
        raise InvalidPartitions("add partitions to", subject, cause)
    if topic.assignments is None:
        return
    if len(topic.assignments) != topic.count - have:
        cause = f"{len(topic.assignments)} assignments for {topic.count - have} new partitions"
        raise _Invalid(ErrorCode.invalid_replica_assignment, "add partitions to", subject, cause)
    for assignment in topic.assignments:
        _check_replicas(broker, subject, assignment.broker_ids)


# -- deleting ------------------------------------------------------------------------------------------


async def delete_topics(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Delete topics by name or by id."""
    if context.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    mentions: dict[Any, list[tuple[str | None, uuid.UUID | None]]] = {}
    for name, topic_id in wanted:
        topic = _named_topic(broker, name, topic_id)
        subject = topic.name if topic is not None else name or topic_id
        mentions.setdefault(subject, []).append((name, topic_id))
    responses = []
    for named in mentions.values():
        name = next((name for name, _ in named if name is not None), None)
        topic_id = next((topic_id for _, topic_id in named if topic_id is not None), None)
        result: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": ErrorCode.none}
        try:
            if len(named) > 1 or (name is None) == (topic_id is None):
                cause = "the request has to say once which one it means, by name or by id"
                raise _Invalid(ErrorCode.invalid_request, "delete", f"topic {name}", cause)
            topic = _named_topic(broker, name, topic_id)
            if topic is not None:
                result |= {"name": topic.name, "topic_id": topic.topic_id}
            await _delete(broker, topic, name)
        except HeadwaterError as fault:
            result |= _failed(fault)
        responses.append(result)
    return {"responses": responses}


def _named_topic(broker: "Broker", name: str | None, topic_id: uuid.UUID | None) -> Topic | None:
    if name is not None:
        return broker.directory.topics.get(name)
    return broker.directory.topic_by_id(topic_id)


async def _delete(broker: "Broker", topic: Topic | None, name: str | None) -> None:
    if topic is None:
        code = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
        raise _Invalid(code, "delete", f"topic {name or 'by id'}", "there is none")
    subject = f"topic {topic.name}"
    if not broker.settings.boolean("delete.topic.enable"):
        raise _Invalid(ErrorCode.topic_deletion_disabled, "delete", subject, "deletion is disabled")
    if broker.is_internal(topic.name):
        raise _Invalid(ErrorCode.invalid_request, "delete", subject, "the broker needs it")
    await broker.delete_topic(topic.name)


serve(19, 2, 7, create_topics)
serve(20, 1, 6, delete_topics)
serve(37, 0, 3, create_partitions)
