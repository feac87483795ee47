"""What the requests and responses of the classic protocol say, in any version."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kio.schema.errors import ErrorCode

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # name and metadata, the member's favourite first


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The content of a JoinGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool  # from version 4 on a new member is given its id first, and joins with it
    can_skip_assignment: bool  # from version 9 on a returning leader may be told to leave things as they are


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """The content of a SyncGroup request."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The content of a JoinGroup response."""

    code: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # id, instance id, metadata; for the leader only


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The content of a SyncGroup response."""

    code: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
