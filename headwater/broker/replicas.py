"""Where partitions lie and who leads them: one directory of one node, whatever is asked for."""

import shutil
from typing import TYPE_CHECKING, Any

from headwater.broker.answers import encoded
from headwater.broker.apis import serve
from headwater.broker.context import RequestContext
from headwater.broker.messages import ErrorCode, Fields

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

PREFERRED, UNCLEAN = 0, 1


# -- directories -----------------------------------------------------------------------------------------


async def describe_log_dirs(broker: "Broker", request: Any, context: RequestContext) -> Fields | bytes:
    """The data directory and the size of what is in it."""
    wanted = None
    if request.topics is not None:
        wanted = {topic.topic: set(topic.partitions) for topic in request.topics}
    topics: list[dict[str, Any]] = []
    for topic in list(broker.directory.topics.values()):
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
    result = {
        "error_code": ErrorCode.none,
        "log_dir": _data_directory(broker),
        "topics": topics,
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
    }
    entries = sum(len(topic["partitions"]) for topic in topics)
    return await encoded(broker, context, {"error_code": ErrorCode.none, "results": [result]}, entries)


def _data_directory(broker: "Broker") -> str:
    return str(broker.directory.path.resolve())


def alter_replica_log_dirs(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """There is one directory, and all partitions are in it."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        is_ours = directory.path == _data_directory(broker)
        for topic in directory.topics:
            for number in topic.partitions:
                code = ErrorCode.none if is_ours else ErrorCode.log_dir_not_found
                if is_ours and broker.find_log(topic.name, number) is None:
                    code = ErrorCode.unknown_topic_or_partition
                codes.setdefault(topic.name, {})[number] = code
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [{"partition_index": n, "error_code": code} for n, code in of_topic.items()],
            }
            for name, of_topic in codes.items()
        ]
    }


# -- leaders and replicas --------------------------------------------------------------------------------


def elect_leaders(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """The one node leads every partition already."""
    is_known = getattr(request, "election_type", PREFERRED) in (PREFERRED, UNCLEAN)
    top = ErrorCode.none if is_known else ErrorCode.invalid_request
    results = []
    for topic in request.topic_partitions or ():
        partitions = []
        for number in topic.partitions:
            code, message = ErrorCode.election_not_needed, "the leader is the preferred one"
            if not is_known:
                code, message = ErrorCode.invalid_request, "there is no such kind of election"
            elif broker.find_log(topic.topic, number) is None:
                code, message = ErrorCode.unknown_topic_or_partition, "there is no such partition"
            partitions.append({"partition_id": number, "error_code": code, "error_message": message})
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {"error_code": top, "replica_election_results": results}


def alter_partition_reassignments(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """A partition can be moved to where it is."""
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            number, replicas = partition.partition_index, partition.replicas
            code, message = ErrorCode.none, None
            if broker.find_log(topic.name, number) is None:
                code, message = ErrorCode.unknown_topic_or_partition, "there is no such partition"
            elif replicas is None:
                code, message = ErrorCode.no_reassignment_in_progress, "it does not move"
            elif tuple(replicas) != (broker.directory.node_id,):
                code, message = ErrorCode.invalid_replica_assignment, "the cluster has one broker"
            partitions.append({"partition_index": number, "error_code": code, "error_message": message})
        responses.append({"name": topic.name, "partitions": partitions})
    change = getattr(request, "allow_replication_factor_change", True)
    return {
        "error_code": ErrorCode.none,
        "allow_replication_factor_change": change,
        "responses": responses,
    }


def list_partition_reassignments(broker: "Broker", request: Any, context: RequestContext) -> Fields:
    """Nothing ever moves on one node."""
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}


serve(34, 1, 2, alter_replica_log_dirs)
serve(35, 1, 4, describe_log_dirs)
serve(43, 0, 2, elect_leaders)
serve(45, 0, 1, alter_partition_reassignments)
serve(46, 0, 0, list_partition_reassignments)
