"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as requests and responses."""

import asyncio
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.context import RequestContext
from headwater.broker.groups.classic_group import ClassicGroup
from headwater.broker.groups.classic_messages import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.limits import check_size, check_texts
from headwater.broker.groups.refusals import Refusal, code_of
from headwater.broker.messages import Fields, milliseconds
from headwater.errors import HeadwaterError


async def join_group(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Join a group, or join it again for a rebalance; answered when the rebalance has its members."""
    session_ms = milliseconds(request.session_timeout)
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id or "",
        client_host=context.client_host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=milliseconds(getattr(request, "rebalance_timeout", request.session_timeout)),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        needs_known_id=context.version >= 4,
        can_skip_assignment=context.version >= 9,
    )
    settings = groups.settings
    if not join.group_id:
        answer = JoinAnswer(ErrorCode.invalid_group_id, join.member_id)
    elif not settings.min_session_timeout_ms <= session_ms <= settings.max_session_timeout_ms:
        answer = JoinAnswer(ErrorCode.invalid_session_timeout, join.member_id)
    else:
        answer = await _join(groups, join)
    # Before version 7 the protocol's name cannot be null.
    name = answer.protocol_name if context.version >= 7 else answer.protocol_name or ""
    return {
        "error_code": answer.code,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in answer.members
        ],
    }


async def _join(groups: GroupCoordinator, join: JoinRequest) -> JoinAnswer:
    ledger = groups.registry.ledger
    try:
        check_texts(join.group_id, join.instance_id, join.client_id, join.protocol_type)
        check_texts(*(name for name, _ in join.protocols))
        check_size(metadata for _, metadata in join.protocols)
        while True:
            # The lock waits for a change under way that could turn the group into another: a deletion, say.
            async with ledger.lock(join.group_id):
                group = groups.registry.groups.get(join.group_id)
                if not isinstance(group, ConsumerGroup):
                    outcome = groups.classic.join(join)
                    break
            if not group.is_empty:
                outcome = await groups.migration.join(join)
                break
            await ledger.change(join.group_id, partial(groups.consumer.plan_making_room, join.group_id))
    except (Refusal, HeadwaterError) as error:
        return JoinAnswer(code_of(error), join.member_id)
    # A held request belongs to the group: the end of its connection must not cancel it.
    return outcome if isinstance(outcome, JoinAnswer) else await asyncio.shield(outcome)


async def sync_group(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Bring the assignment (the leader), and get one's own; answered when the leader has brought it."""
    sync = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments={item.member_id: bytes(item.assignment) for item in request.assignments},
    )
    try:
        if context.version >= 5 and (sync.protocol_type is None or sync.protocol_name is None):
            raise Refusal(ErrorCode.inconsistent_group_protocol)
        if not sync.group_id:
            raise Refusal(ErrorCode.invalid_group_id)
        mixed = groups.registry.consumer(sync.group_id) is not None
        outcome = groups.migration.sync(sync) if mixed else groups.classic.sync(sync)
        answer = outcome if isinstance(outcome, SyncAnswer) else await asyncio.shield(outcome)
    except Refusal as refusal:
        answer = SyncAnswer(refusal.code)
    return {
        "error_code": answer.code,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": answer.assignment,
    }


async def heartbeat(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Say that one lives, and learn whether the group rebalances."""
    code = ErrorCode.none
    try:
        if not request.group_id:
            raise Refusal(ErrorCode.invalid_group_id)
        instance_id = getattr(request, "group_instance_id", None)
        mixed = groups.registry.consumer(request.group_id) is not None
        protocol = groups.migration if mixed else groups.classic
        protocol.heartbeat(request.group_id, request.generation_id, request.member_id, instance_id)
    except Refusal as refusal:
        code = refusal.code
    return {"error_code": code}


async def leave_group(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Leave a group; from version 3 on, also take others out of it."""
    if not request.group_id:
        return {"error_code": ErrorCode.invalid_group_id}
    members: list[tuple[str, str | None]]
    if context.version < 3:
        members = [(request.member_id, None)]
    else:
        members = [(member.member_id, member.group_instance_id) for member in request.members]
    try:
        answers = await _leave(groups, request.group_id, members)
    except HeadwaterError as error:
        return {"error_code": code_of(error)}
    if context.version < 3:
        return {"error_code": answers[0][2]}
    return {
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for member_id, instance_id, code in answers
        ],
    }


async def _leave(
    groups: GroupCoordinator, group_id: str, members: list[tuple[str, str | None]]
) -> list[tuple[str, str | None, ErrorCode]]:
    async with groups.registry.ledger.lock(group_id):
        group = groups.registry.groups.get(group_id)
        if group is None:
            unknown = ErrorCode.unknown_member_id
            return [(member_id, instance_id, unknown) for member_id, instance_id in members]
        answers = groups.classic.leave(group, members) if isinstance(group, ClassicGroup) else None
    if answers is None:
        return await groups.consumer.leave(group_id, members)
    await groups.registry.ledger.caught_up(group_id)
    return answers
