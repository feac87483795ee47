"""Metadata: which topics and partitions there are, and topics made because somebody asked for them."""

import uuid
from typing import TYPE_CHECKING, Any

from headwater.broker.answers import LARGE, breathe, encoded
from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields, encode_response, error
from headwater.broker.rights import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headwater.errors import HeadwaterError, TopicExists
from headwater.log.topic import Topic, check_topic_name

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

NO_TOPIC_ID = uuid.UUID(int=0)
MOST_CREATED = 100  # topics that one request can make by naming them
LARGEST_PAGE = 2000  # partitions; Kafka's max.request.partition.size.limit


async def metadata(broker: "Broker", request: Any, context: RequestContext) -> Fields | bytes:
    """The topics that were asked for, or all of them."""
    version = context.version
    everything = request.topics is None or (version == 0 and not request.topics)
    asked = () if everything else tuple({(t.name, getattr(t, "topic_id", None)): 0 for t in request.topics})
    flags = (
        getattr(request, "include_cluster_authorized_operations", False),
        getattr(request, "include_topic_authorized_operations", False),
    )
    key = (version, everything, asked, flags)
    if version in (10, 11) and any(
        name is None or topic_id not in (None, NO_TOPIC_ID) for name, topic_id in asked
    ):
        # These versions carry ids but cannot be asked by them; Kafka refuses the request as a whole.
        return {"topics": [_refused(name, topic_id) for name, topic_id in asked]}
    cached = broker.metadata_cache.get(broker.generation, key, context.correlation_id)
    if cached is not None:
        return cached
    if everything:
        topics = [_describe(broker, topic, flags[1]) for topic in list(broker.directory.topics.values())]
        complete = True
    else:
        may_create = broker.settings.auto_create_topics and getattr(
            request, "allow_auto_topic_creation", True
        )
        left = MOST_CREATED if may_create else 0
        topics = []
        for number, (name, topic_id) in enumerate(asked):
            await breathe(number)
            found, created = await _find(broker, name, topic_id, may_create, left > 0, flags[1])
            left -= created
            topics.append(found)
        complete = len(asked) < LARGE and all(topic["error_code"] == 0 for topic in topics)
    generation = broker.generation
    fields = {
        "brokers": [
            {"node_id": broker.directory.node_id, "host": broker.host, "port": broker.port, "rack": None}
        ],
        "cluster_id": broker.directory.cluster_id,
        "controller_id": broker.directory.node_id,
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if flags[0] else NOT_ASKED,
    }
    entries = sum(len(topic["partitions"]) + 1 for topic in topics)
    answer = await encoded(broker, context, fields, entries)
    if isinstance(answer, bytes):
        response = answer
    else:
        response = encode_response(context.api_key, version, context.correlation_id, fields)
    if complete and generation == broker.generation:
        broker.metadata_cache.put(key, response)
    return response


async def _find(
    broker: "Broker",
    name: str | None,
    topic_id: uuid.UUID | None,
    may_create: bool,
    has_room: bool,
    with_operations: bool,
) -> tuple[dict[str, Any], bool]:
    """A topic's description, and whether it was made for this."""
    if topic_id is not None and topic_id != NO_TOPIC_ID:
        topic = broker.directory.topic_by_id(topic_id)
        if topic is not None:
            return _describe(broker, topic, with_operations), False
        unknown = {"error_code": ErrorCode.unknown_topic_id, "name": name, "topic_id": topic_id}
        return unknown | {"partitions": ()}, False
    name = name or ""
    topic = broker.directory.topics.get(name)
    if topic is not None:
        return _describe(broker, topic, with_operations), False
    try:
        check_topic_name(name)
        if not may_create or broker.is_internal(name):
            return _missing(name, ErrorCode.unknown_topic_or_partition), False
        if not has_room:  # the client will ask again
            return _missing(name, ErrorCode.leader_not_available), False
        topic = await broker.create_topic(name, broker.settings.default_partitions, {})
    except TopicExists:  # made by another request in the meantime
        topic = broker.directory.topic(name)
    except HeadwaterError as refused:
        return _missing(name, error(refused.kafka_code)), False
    return _describe(broker, topic, with_operations), True


def _refused(name: str | None, topic_id: uuid.UUID | None) -> dict[str, Any]:
    answer = _missing(name or "", ErrorCode.invalid_request)
    return {**answer, "topic_id": topic_id, "topic_authorized_operations": NOT_ASKED}


def _missing(name: str, code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": ()}


def _describe(broker: "Broker", topic: Topic, with_operations: bool) -> dict[str, Any]:
    nodes = (broker.directory.node_id,)
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": broker.is_internal(topic.name),
        "topic_authorized_operations": TOPIC_OPERATIONS if with_operations else NOT_ASKED,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": number,
                "leader_id": nodes[0],
                "leader_epoch": 0,
                "replica_nodes": nodes,
                "isr_nodes": nodes,
                "offline_replicas": (),
            }
            for number in range(len(topic.partitions))
        ],
    }


def describe_topic_partitions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Topics page by page (KIP-966)."""
    names = sorted({topic.name for topic in request.topics}) or sorted(broker.directory.topics)
    limit = min(max(request.response_partition_limit, 1), LARGEST_PAGE)
    start = ("", 0)
    if request.cursor is not None:
        start = (request.cursor.topic_name, request.cursor.partition_index)
        if start[1] < 0 or (request.topics and start[0] not in names):
            refused = [_missing(topic.name, ErrorCode.invalid_request) for topic in request.topics]
            return {"topics": refused, "next_cursor": None}
        names = [name for name in names if name >= start[0]]
    topics: list[dict[str, Any]] = []
    for name in names:
        topic = broker.directory.topics.get(name)
        if topic is None:
            operations = {"topic_authorized_operations": TOPIC_OPERATIONS}
            try:
                check_topic_name(name)
                topics.append(_missing(name, ErrorCode.unknown_topic_or_partition) | operations)
            except HeadwaterError as fault:
                topics.append(_missing(name, error(fault.kafka_code)) | operations)
            continue
        if limit <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        described = _describe(broker, topic, with_operations=True)
        first = start[1] if name == start[0] else 0
        partitions = described["partitions"][first:]
        # Java's client fails on null for these two.
        replicas: dict[str, Any] = {"eligible_leader_replicas": (), "last_known_elr": ()}
        described["partitions"] = [partition | replicas for partition in partitions[:limit]]
        topics.append(described)
        if len(partitions) > limit:
            cursor = {"topic_name": name, "partition_index": first + limit}
            return {"topics": topics, "next_cursor": cursor}
        limit -= len(partitions)
    return {"topics": topics, "next_cursor": None}


serve(3, 0, 13, metadata)
serve(75, 0, 0, describe_topic_partitions)
