"""Topic administration: create, delete, more partitions."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import serve
from headwater.broker.configs import topic_config_fields
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, error
from headwater.errors import HeadwaterError, InvalidPartitions

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


class _Invalid(HeadwaterError):
    """A request that is wrong in itself."""

    def __init__(self, code: ErrorCode, operation: str, subject: str, cause: str) -> None:
        super().__init__(operation, subject, cause, "Correct the request.")
        self.code = code


def _failed(fault: HeadwaterError) -> dict[str, Any]:
    code = fault.code if isinstance(fault, _Invalid) else error(fault.kafka_code)
    return {"error_code": code, "error_message": str(fault)}


# -- creating ------------------------------------------------------------------------------------------


async def create_topics(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Make topics; each is durable and takes writes before the answer."""
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        result: dict[str, Any] = {"name": topic.name, "topic_id": None}
        try:
            if counts[topic.name] > 1:
                raise _Invalid(
                    ErrorCode.invalid_request, "create", f"topic {topic.name}", "the request names it twice"
                )
            result |= await _create(broker, topic, getattr(request, "validate_only", False))
        except HeadwaterError as fault:
            result |= {"num_partitions": -1, "replication_factor": -1, "configs": None, **_failed(fault)}
        results.append(result)
    return {"topics": results}


async def _create(broker: "Broker", topic: Any, validate_only: bool) -> dict[str, Any]:
    partitions = _partition_count(broker, topic)
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    broker.directory.check_new_topic(topic.name, partitions, overrides)
    result: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topic_config_error_code": ErrorCode.none,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": topic_config_fields(broker, overrides),
    }
    if not validate_only:
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
    results = []
    for topic in request.topics:
        result: dict[str, Any] = {"name": topic.name, "error_code": ErrorCode.none, "error_message": None}
        try:
            have = len(broker.directory.topic(topic.name).partitions)
            if topic.assignments is not None:
                if len(topic.assignments) != topic.count - have:
                    raise _Invalid(
                        ErrorCode.invalid_replica_assignment,
                        "add partitions to",
                        f"topic {topic.name}",
                        f"{len(topic.assignments)} assignments for {topic.count - have} new partitions",
                    )
                for assignment in topic.assignments:
                    _check_replicas(broker, f"topic {topic.name}", assignment.broker_ids)
            if request.validate_only:
                if topic.count <= have:
                    raise InvalidPartitions(
                        "add partitions to", f"topic {topic.name}", f"it has {have} already"
                    )
            else:
                await broker.change_catalog(broker.directory.add_partitions, topic.name, topic.count)
        except HeadwaterError as fault:
            result |= _failed(fault)
        results.append(result)
    return {"results": results}


# -- deleting ------------------------------------------------------------------------------------------


async def delete_topics(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Delete topics by name or by id."""
    if context.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    responses = []
    for name, topic_id in wanted:
        result: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": ErrorCode.none}
        topic = broker.directory.topics.get(name) if name is not None else None
        if name is None:
            topic = broker.directory.topic_by_id(topic_id)
            if topic is None:
                responses.append(result | {"error_code": ErrorCode.unknown_topic_id})
                continue
        try:
            found = topic if topic is not None else broker.directory.topic(name)
            result |= {"name": found.name, "topic_id": found.topic_id}
            if not broker.settings.boolean("delete.topic.enable"):
                raise _Invalid(
                    ErrorCode.topic_deletion_disabled, "delete", f"topic {found.name}", "deletion is disabled"
                )
            if broker.is_internal(found.name):
                raise _Invalid(
                    ErrorCode.invalid_request, "delete", f"topic {found.name}", "the broker needs it"
                )
            await broker.delete_topic(found.name)
        except HeadwaterError as fault:
            result |= _failed(fault)
        responses.append(result)
    return {"responses": responses}


serve(19, 2, 7, create_topics)
serve(20, 1, 6, delete_topics)
serve(37, 0, 3, create_partitions)
