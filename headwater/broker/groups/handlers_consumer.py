"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, as requests and responses."""

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.context import RequestContext
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.handlers_admin import with_rights
from headwater.broker.groups.heartbeats import UNCHANGED, Heartbeat
from headwater.broker.groups.limits import check_size, check_texts
from headwater.broker.groups.records import Assignment
from headwater.broker.groups.refusals import Refusal, code_of
from headwater.broker.messages import Fields, duration, milliseconds
from headwater.errors import HeadwaterError


async def consumer_group_heartbeat(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Join (epoch 0), report, leave (-1), or leave for a while (-2)."""
    owned = request.topic_partitions
    beat = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None if owned is None else _owned(owned),
        client_id=context.client_id or "",
        client_host=context.client_host,
    )
    try:
        _validate(beat, context.version, groups.settings.consumer_assignors)
        answer = await groups.consumer.heartbeat(beat)
    except Refusal as refusal:
        return {"error_code": refusal.code, "error_message": refusal.message}
    except HeadwaterError as error:
        return {"error_code": code_of(error), "error_message": error.cause}
    assignment = None
    if answer.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in answer.assignment.items()
            ]
        }
    return {
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": duration(answer.interval_ms),
        "assignment": assignment,
    }


def _owned(topics: Any) -> Assignment:
    merged: dict[uuid.UUID, tuple[int, ...]] = {}
    for topic in topics:
        key = topic.topic_id if topic.topic_id is not None else uuid.UUID(int=0)
        merged[key] = merged.get(key, ()) + tuple(topic.partitions)
    return merged


def _validate(beat: Heartbeat, version: int, assignors: tuple[str, ...]) -> None:
    """Refuse requests that make no sense, in Kafka's words."""

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise Refusal(ErrorCode.invalid_request, message)

    # Version 0 lets the coordinator choose the id of a member that joins.
    if version >= 1 or beat.member_epoch > 0 or beat.member_epoch == -1:
        require(beat.member_id != "", "MemberId can't be empty.")
    require(beat.group_id != "", "GroupId can't be empty.")
    require(beat.instance_id != "", "InstanceId can't be empty.")
    require(beat.rack_id != "", "RackId can't be empty.")
    if beat.member_epoch == 0:
        provided = beat.rebalance_timeout_ms != UNCHANGED
        require(provided, "RebalanceTimeoutMs must be provided in first request.")
        require(beat.owned == {}, "TopicPartitions must be empty when (re-)joining.")
        require(
            beat.topics is not None or beat.pattern is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif beat.member_epoch == -2:
        require(beat.instance_id is not None, "InstanceId can't be null.")
    else:
        require(beat.member_epoch >= -1, "MemberEpoch is invalid.")
    check_texts(beat.group_id, beat.member_id, beat.instance_id, beat.rack_id, *(beat.topics or ()))
    check_size(beat.topics or ())
    if beat.assignor is not None and beat.assignor not in assignors:
        supported = ", ".join(assignors)
        raise Refusal(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {supported}.",
        )


async def consumer_group_describe(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Members, epochs and assignments of groups of the new protocol."""
    described = [_describe(groups, group_id) for group_id in request.group_ids]
    return {"groups": with_rights(described) if request.include_authorized_operations else described}


def _describe(groups: GroupCoordinator, group_id: str) -> dict[str, Any]:
    group = groups.registry.groups.get(group_id)
    if not group_id:
        return {"error_code": ErrorCode.invalid_group_id, "group_id": group_id}
    if not isinstance(group, ConsumerGroup):
        known = isinstance(group, ClassicGroup)
        message = f"Group {group_id} is not a consumer group." if known else f"Group {group_id} not found."
        code = ErrorCode.group_id_not_found
        return {"error_code": code, "error_message": message, "group_id": group_id}
    return {
        "group_id": group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.preferred_assignor(groups.settings.consumer_assignors),
        "members": [_describe_member(groups, group, member) for member in group.members.values()],
    }


def _describe_member(groups: GroupCoordinator, group: ConsumerGroup, member: ConsumerMember) -> Fields:
    told = member.told
    return {
        "member_id": member.member_id,
        "instance_id": told.instance_id,
        "rack_id": told.rack_id,
        "member_epoch": member.epoch,
        "client_id": told.client_id,
        "client_host": told.client_host,
        "subscribed_topic_names": told.topics,
        "subscribed_topic_regex": told.pattern,
        "assignment": _named(groups, member.current.assigned),
        "target_assignment": _named(groups, group.target(member.member_id)),
        "member_type": 0 if member.is_classic else 1,
    }


def _named(groups: GroupCoordinator, assignment: Assignment) -> Fields:
    """An assignment with topic names; topics that are gone are left out."""
    listed = []
    for topic_id, partitions in assignment.items():
        name = groups.topics.topic_name(topic_id)
        if name is not None:
            listed.append({"topic_id": topic_id, "topic_name": name, "partitions": partitions})
    return {"topic_partitions": listed}
