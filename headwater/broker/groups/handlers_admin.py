"""ListGroups, DescribeGroups and DeleteGroups, as requests and responses."""

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.context import RequestContext
from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.messages import Fields
from headwater.broker.rights import GROUP_OPERATIONS


async def list_groups(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """All groups, or those of the states and types asked for; their names count in any case."""
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {group_type.lower() for group_type in getattr(request, "types_filter", ())}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            for group in groups.overview()
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ]
    }


async def describe_groups(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Members and assignments of classic groups."""
    asked = getattr(request, "include_authorized_operations", False)
    described = [_describe(groups, name, context.version) for name in request.groups]
    return {"groups": with_rights(described) if asked else described}


def with_rights(described: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with what one may do to them, as far as they are there."""
    rights = {"authorized_operations": GROUP_OPERATIONS}
    return [group if "error_code" in group else group | rights for group in described]


def _describe(groups: GroupCoordinator, group_id: str, version: int) -> dict[str, Any]:
    group = groups.registry.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        dead = {"group_id": group_id, "group_state": ClassicState.DEAD.value}
        if version < 6:
            return dead
        problem = "not found" if group is None else "is not a classic group"
        message = f"Group {group_id} {problem}."
        return {**dead, "error_code": ErrorCode.group_id_not_found, "error_message": message}
    is_stable = group.state is ClassicState.STABLE
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol_name) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


async def delete_groups(groups: GroupCoordinator, request: Any, context: RequestContext) -> Fields:
    """Delete empty groups and their offsets."""
    return {
        "results": [
            {"group_id": group_id, "error_code": await groups.retention.delete_group(group_id)}
            for group_id in request.groups_names
        ]
    }
