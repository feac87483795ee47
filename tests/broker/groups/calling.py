"""Requests by name: to a coordinator in this process, or to a broker at an address, in the same words."""

import asyncio
import dataclasses
import enum
import io
import itertools
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headwater.broker.context import RequestContext
from headwater.broker.groups import handlers_admin, handlers_classic, handlers_consumer, handlers_offsets
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.messages import request_type, response_type, shape
from headwater.errors import HeadwaterError

API_KEYS = {
    "Metadata": 3, "OffsetCommit": 8, "OffsetFetch": 9, "FindCoordinator": 10, "JoinGroup": 11,
    "Heartbeat": 12, "LeaveGroup": 13, "SyncGroup": 14, "DescribeGroups": 15, "ListGroups": 16,
    "CreateTopics": 19, "InitProducerId": 22, "AddOffsetsToTxn": 25, "EndTxn": 26, "TxnOffsetCommit": 28,
    "DeleteGroups": 42, "OffsetDelete": 47, "ConsumerGroupHeartbeat": 68, "ConsumerGroupDescribe": 69,
}  # fmt: skip

Handler = Callable[[GroupCoordinator, Any, RequestContext], Awaitable[Mapping[str, Any]]]
HANDLERS: dict[str, Handler] = {
    "OffsetCommit": handlers_offsets.offset_commit,
    "OffsetFetch": handlers_offsets.offset_fetch,
    "OffsetDelete": handlers_offsets.offset_delete,
    "TxnOffsetCommit": handlers_offsets.txn_offset_commit,
    "JoinGroup": handlers_classic.join_group,
    "SyncGroup": handlers_classic.sync_group,
    "Heartbeat": handlers_classic.heartbeat,
    "LeaveGroup": handlers_classic.leave_group,
    "DescribeGroups": handlers_admin.describe_groups,
    "ListGroups": handlers_admin.list_groups,
    "DeleteGroups": handlers_admin.delete_groups,
    "ConsumerGroupHeartbeat": handlers_consumer.consumer_group_heartbeat,
    "ConsumerGroupDescribe": handlers_consumer.consumer_group_describe,
}


class Caller(Protocol):
    """``await call("JoinGroup", 9, group_id=...)`` gives kio's response entity of that version."""

    async def __call__(self, api: str, version: int, **fields: Any) -> Any: ...


def encoded(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


class InProcess:
    """Calls the handlers of a coordinator. What goes in and out is encoded and read back, as on the wire."""

    def __init__(self, groups: GroupCoordinator, client_id: str = "probe") -> None:
        self.groups = groups
        self.client_id = client_id

    async def __call__(self, api: str, version: int, **fields: Any) -> Any:
        request = shape(request_type(API_KEYS[api], version), fields)
        request, _ = entity_reader(type(request))(encoded(request), 0)
        context = RequestContext(API_KEYS[api], version, 1, self.client_id, "/127.0.0.1")
        answer = await HANDLERS[api](self.groups, request, context)
        response = shape(response_type(API_KEYS[api], version), answer)
        response, _ = entity_reader(type(response))(encoded(response), 0)
        return response


class OverTheWire:
    """Calls a broker. Each request has its own connection, because a held JoinGroup blocks one."""

    def __init__(self, port: int, client_id: str = "probe") -> None:
        self.port = port
        self.client_id = client_id
        self._numbers = itertools.count(1)

    async def __call__(self, api: str, version: int, **fields: Any) -> Any:
        body = shape(request_type(API_KEYS[api], version), fields)
        header = shape(
            type(body).__header_schema__,
            {
                "request_api_key": API_KEYS[api],
                "request_api_version": version,
                "correlation_id": next(self._numbers),
                "client_id": self.client_id,
            },
        )
        frame = encoded(header) + encoded(body)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        finally:
            writer.close()
        response = response_type(API_KEYS[api], version)
        _, start = entity_reader(response.__header_schema__)(answer, 0)
        return entity_reader(response)(answer, start)[0]


def plain(entity: Any) -> Any:
    """An entity as dictionaries, lists and values; errors by name."""
    if dataclasses.is_dataclass(entity):
        return {field.name: plain(getattr(entity, field.name)) for field in dataclasses.fields(entity)}
    if isinstance(entity, (tuple, list)):
        return [plain(item) for item in entity]
    return entity.name if isinstance(entity, enum.Enum) else entity


def codes(response: Any) -> Any:
    """All error codes of a response: one, or a list when there are several."""

    def collect(value: Any) -> list[ErrorCode]:
        if isinstance(value, ErrorCode):
            return [value]
        if isinstance(value, (tuple, list)):
            return [code for item in value for code in collect(item)]
        if dataclasses.is_dataclass(value):
            return [
                code for field in dataclasses.fields(value) for code in collect(getattr(value, field.name))
            ]
        return []

    found = [code.name for code in collect(response)]
    return found[0] if len(found) == 1 else found


class MemoryJournal:
    """A journal in memory: durable after ``delay`` seconds, and made to fail with ``failure``."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bytes | None, tuple[int, int] | None]] = []
        self.delay = 0.0
        self.failure: HeadwaterError | None = None
        self.appends = 0

    async def append(
        self,
        group_id: str,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> None:
        assert records, "an empty batch"
        self.appends += 1
        failure = self.failure
        if failure is None:
            self.entries += [(key, value, producer) for key, value in records]
        await asyncio.sleep(self.delay)
        if failure is not None:
            raise failure
