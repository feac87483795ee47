"""The cluster as clients see it: API versions, features, nodes, coordinators. It has one node."""

import re
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import API_VERSIONS, APIS, PRODUCE, serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields
from headwater.broker.rights import CLUSTER_OPERATIONS, NOT_ASKED

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

GROUP, TRANSACTION = 0, 1
BROKERS, CONTROLLERS = 1, 2

# name -> (lowest, highest, in force). metadata.version is by what tools know the version of a cluster: 4.1.
FEATURES = {
    "group.version": (0, 1, 1),
    "metadata.version": (7, 27, 27),
    "transaction.version": (0, 2, 2),
}
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_TOPIC = "__cluster_metadata"

# Advertised as Kafka does, though the oldest that is served is 3: some versions of librdkafka take a broker
# that does not have the first versions for one without compression.
OLDEST_ADVERTISED = {PRODUCE: 0}
FEATURES_FROM_ZERO = 4  # the version of ApiVersions whose clients take a feature that begins at 0
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Which APIs there are, in which versions, and which features are on."""
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return {"error_code": ErrorCode.invalid_request, "api_keys": ()}
    lowest = 0 if context.version >= FEATURES_FROM_ZERO else 1
    return {
        "error_code": ErrorCode.none,
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": OLDEST_ADVERTISED.get(api.key, api.low),
                "max_version": api.high,
            }
            for api in sorted(APIS.values())
        ],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high, _) in FEATURES.items()
            if low >= lowest
        ],
        "finalized_features_epoch": 1,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, (_, _, level) in FEATURES.items()
        ],
    }


def describe_cluster(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The one node."""
    endpoint = getattr(request, "endpoint_type", BROKERS)
    if endpoint != BROKERS:
        return {
            "error_code": ErrorCode.mismatched_endpoint_type
            if endpoint == CONTROLLERS
            else ErrorCode.unsupported_endpoint_type,
            "error_message": "this is the brokers' endpoint",
            "endpoint_type": BROKERS,
            "cluster_id": "",
        }
    node = broker.directory.node_id
    asked = request.include_cluster_authorized_operations
    return {
        "endpoint_type": BROKERS,
        "cluster_id": broker.directory.cluster_id,
        "controller_id": node,
        "brokers": [
            {"broker_id": node, "host": broker.host, "port": broker.port, "rack": None, "is_fenced": False}
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NOT_ASKED,
    }


def find_coordinator(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Every group and every transactional id is coordinated here."""
    kind = getattr(request, "key_type", GROUP)
    node = {"node_id": broker.directory.node_id, "host": broker.host, "port": broker.port}
    nobody = {"node_id": -1, "host": "", "port": -1}
    known = kind in (GROUP, TRANSACTION)
    if context.version >= 4:
        answers = []
        for key in request.coordinator_keys:
            answer = {"key": key, "error_code": ErrorCode.none, "error_message": "", **node}
            if not known:
                answer |= {
                    "error_code": ErrorCode.invalid_request,
                    "error_message": "no such kind of key",
                    **nobody,
                }
            answers.append(answer)
        return {"coordinators": answers}
    if not known:
        return {"error_code": ErrorCode.invalid_request, "error_message": "no such kind of key", **nobody}
    return {"error_code": ErrorCode.none, "error_message": "NONE", **node}


def describe_quorum(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The quorum that agrees on topics: this node with itself."""
    node = broker.directory.node_id
    topics = []
    for topic in request.topics:
        partitions: list[Fields] = []
        for partition in topic.partitions:
            number = partition.partition_index
            if topic.topic_name != METADATA_TOPIC or number != 0:
                unknown = {"partition_index": number, "error_code": ErrorCode.unknown_topic_or_partition}
                partitions.append(unknown)
                continue
            # What Kafka keeps in this topic is our catalog, and each of its states one record.
            voter = {"replica_id": node, "log_end_offset": broker.generation}
            partitions.append(
                {
                    "partition_index": 0,
                    "error_code": ErrorCode.none,
                    "leader_id": node,
                    "leader_epoch": 1,
                    "high_watermark": broker.generation,
                    "current_voters": [voter],
                    "observers": (),
                }
            )
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
    listener = {"name": "CONTROLLER", "host": broker.host, "port": broker.port}
    return {
        "error_code": ErrorCode.none,
        "topics": topics,
        "nodes": [{"node_id": node, "listeners": [listener]}],
    }


def update_features(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Every feature has the level that it will always have."""
    results = []
    for update in request.feature_updates:
        levels = FEATURES.get(update.feature)
        kind_is_known = getattr(update, "upgrade_type", UPGRADE) in (
            UPGRADE,
            SAFE_DOWNGRADE,
            UNSAFE_DOWNGRADE,
        )
        if levels is None or update.max_version_level != levels[2] or not kind_is_known:
            message = f"{update.feature} is not for changing"
            if levels is not None:
                message += f": its level is {levels[2]}"
            return {"error_code": ErrorCode.invalid_update_version, "error_message": message, "results": ()}
        results.append({"feature": update.feature, "error_code": ErrorCode.none})
    return {"error_code": ErrorCode.none, "results": results}


def unregister_broker(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The only broker stays."""
    if request.broker_id != broker.directory.node_id:
        message = f"there is no broker {request.broker_id}"
        return {"error_code": ErrorCode.broker_id_not_registered, "error_message": message}
    return {"error_code": ErrorCode.invalid_request, "error_message": "it is the one that is asked"}


serve(API_VERSIONS, 0, 4, api_versions)
serve(10, 0, 6, find_coordinator)
serve(60, 0, 2, describe_cluster)
serve(55, 0, 2, describe_quorum)
serve(57, 0, 2, update_features)
serve(64, 0, 0, unregister_broker)
