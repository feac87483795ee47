"""The cluster as clients see it: API versions, nodes, coordinators, log directories. It has one node."""

import shutil
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import API_VERSIONS, APIS, serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields
from headwater.broker.rights import CLUSTER_OPERATIONS, NOT_ASKED

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

GROUP, TRANSACTION = 0, 1
BROKERS, CONTROLLERS = 1, 2

# name -> (lowest, highest, in force)
FEATURES = {
    "group.version": (0, 1, 1),
    "transaction.version": (0, 2, 2),
}


def api_versions(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Which APIs there are, in which versions, and which features are on."""
    return {
        "error_code": ErrorCode.none,
        "api_keys": [
            {"api_key": api.key, "min_version": api.low, "max_version": api.high}
            for api in sorted(APIS.values())
        ],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high, _) in FEATURES.items()
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


def describe_log_dirs(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The data directory and the size of what is in it."""
    wanted = None
    if request.topics is not None:
        wanted = {topic.topic: set(topic.partitions) for topic in request.topics}
    topics = []
    for topic in broker.directory.topics.values():
        if wanted is not None and topic.name not in wanted:
            continue
        partitions = [
            {
                "partition_index": log.partition,
                "partition_size": log.size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for log in topic.partitions
            if wanted is None or log.partition in wanted[topic.name]
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    usage = shutil.disk_usage(broker.directory.path)
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": str(broker.directory.path.resolve()),
                "topics": topics,
                "total_bytes": usage.total,
                "usable_bytes": usage.free,
            }
        ],
    }


def elect_leaders(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The one node leads every partition already."""
    if request.topic_partitions is None:
        return {"error_code": ErrorCode.none, "replica_election_results": []}
    results = []
    for topic in request.topic_partitions:
        partitions = []
        for partition in topic.partitions:
            known = broker.find_log(topic.topic, partition) is not None
            code = ErrorCode.election_not_needed if known else ErrorCode.unknown_topic_or_partition
            message = "the leader is the preferred one" if known else "there is no such partition"
            partitions.append({"partition_id": partition, "error_code": code, "error_message": message})
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {"error_code": ErrorCode.none, "replica_election_results": results}


def list_partition_reassignments(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Nothing ever moves on one node."""
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}


def describe_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """There are no access control lists here, as on a Kafka without an authorizer."""
    return {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER, "resources": []}


def create_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """See ``describe_acls``."""
    refused = {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER}
    return {"results": [refused for _ in request.creations]}


def delete_acls(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """See ``describe_acls``."""
    refused = {"error_code": ErrorCode.security_disabled, "error_message": NO_AUTHORIZER, "matching_acls": []}
    return {"filter_results": [refused for _ in request.filters]}


def describe_client_quotas(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """No quotas are set."""
    return {"error_code": ErrorCode.none, "error_message": None, "entries": []}


NO_AUTHORIZER = "No Authorizer is configured."

serve(API_VERSIONS, 0, 4, api_versions)
serve(10, 0, 6, find_coordinator)
serve(29, 1, 3, describe_acls)
serve(30, 1, 3, create_acls)
serve(31, 1, 3, delete_acls)
serve(35, 1, 4, describe_log_dirs)
serve(43, 0, 2, elect_leaders)
serve(46, 0, 0, list_partition_reassignments)
serve(48, 0, 1, describe_client_quotas)
serve(60, 0, 2, describe_cluster)
