"""Conversations with a group coordinator, noted in a form in which two coordinators can be compared."""

import asyncio
import re
import struct
import uuid
from typing import Any

from headwater.broker.messages import duration
from tests.broker.groups.calling import Caller, plain

# What a coordinator makes up: <client>-<uuid>, or a UUID in base 64.
_MADE_UP = re.compile(r"^(.*-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$|^[\w-]{22}$")


class Script:
    """Makes requests and notes the answers, in the order in which the requests were made."""

    def __init__(self, call: Caller, topic_ids: dict[str, uuid.UUID], prefix: str) -> None:
        self._call = call
        self.ids = topic_ids
        self._prefix = prefix
        self._notes: list[list[Any]] = []

    def group(self, name: str) -> str:
        return self._prefix + name

    async def __call__(self, api: str, version: int, **fields: Any) -> Any:
        """Make a request and note the answer."""
        note: list[Any] = [api, version, _brief(fields), None]
        self._notes.append(note)
        response = await self._call(api, version, **fields)
        note[3] = plain(response)
        return response

    async def quietly(self, api: str, version: int, **fields: Any) -> Any:
        """Make a request whose answer is not compared."""
        return await self._call(api, version, **fields)

    def note(self, api: str, asked: dict[str, Any], response: Any, only: str) -> None:
        """Note the groups of a list whose names begin with ``only``."""
        groups = [group for group in plain(response)["groups"] if group["group_id"].startswith(only)]
        self._notes.append([api, 0, {key: list(value) for key, value in asked.items()}, {"groups": groups}])

    def begin(self, api: str, version: int, **fields: Any) -> "asyncio.Task[Any]":
        """Make a request that may be held."""
        return asyncio.create_task(self(api, version, **fields))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- common requests ---------------------------------------------------------------------------

    def join_fields(self, group: str, **changes: Any) -> dict[str, Any]:
        return {
            "group_id": self.group(group),
            "session_timeout": duration(10_000),
            "rebalance_timeout": duration(3_000),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("alpha")}],
            **changes,
        }

    async def join(self, group: str, version: int = 9, **changes: Any) -> Any:
        """Join as a new member: with the id that the coordinator gives."""
        response = await self("JoinGroup", version, **self.join_fields(group, **changes))
        if response.error_code.name == "member_id_required":
            known = self.join_fields(group, **{**changes, "member_id": response.member_id})
            response = await self("JoinGroup", version, **known)
        return response

    async def sync(self, group: str, joined: Any, assignments: dict[str, bytes], **changes: Any) -> Any:
        fields = {
            "group_id": self.group(group),
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": getattr(joined, "protocol_type", None),
            "protocol_name": joined.protocol_name,
            "assignments": [{"member_id": m, "assignment": a} for m, a in assignments.items()],
            **changes,
        }
        return await self("SyncGroup", 5, **fields)

    async def heartbeat(self, group: str, joined: Any, **changes: Any) -> Any:
        fields = {
            "group_id": self.group(group),
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            **changes,
        }
        return await self("Heartbeat", 4, **fields)

    async def beat(self, group: str, member_id: str, epoch: int, version: int = 1, **changes: Any) -> Any:
        """A heartbeat of the new protocol; epoch 0 joins with a subscription to alpha."""
        fields: dict[str, Any] = {"instance_id": None, "rack_id": None, "topic_partitions": None}
        if epoch == 0:
            fields |= {
                "rebalance_timeout": duration(3_000),
                "subscribed_topic_names": ("alpha",),
                "topic_partitions": (),
            }
        else:
            fields |= {"rebalance_timeout": duration(-1), "subscribed_topic_names": None}
        fields |= {"group_id": self.group(group), "member_id": member_id, "member_epoch": epoch}
        return await self("ConsumerGroupHeartbeat", version, **{**fields, **changes})

    def owned(self, **topics: tuple[int, ...]) -> list[dict[str, Any]]:
        return [{"topic_id": self.ids[name], "partitions": p} for name, p in topics.items()]

    async def commit(self, group: str, version: int, generation: int, member_id: str, **changes: Any) -> Any:
        return await self(
            "OffsetCommit",
            version,
            group_id=self.group(group),
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[committed("alpha", 0, 5)],
            **changes,
        )

    async def describe(self, *groups: str) -> None:
        """How both describe requests see the groups."""
        names = tuple(self.group(group) for group in groups)
        await self("DescribeGroups", 6, groups=names)
        await self("ConsumerGroupDescribe", 1, group_ids=names)

    # -- comparing ---------------------------------------------------------------------------------

    def notes(self) -> list[Any]:
        """The conversation, without what differs by chance: made-up ids, topic ids, orders of lists."""
        names: dict[str, str] = {}
        for _, _, _, answer in self._notes:
            member_id = answer.get("member_id") if isinstance(answer, dict) else None
            if isinstance(member_id, str) and _MADE_UP.match(member_id):
                names.setdefault(member_id, f"<member {len(names) + 1}>")
        topics = {str(topic_id): f"<{name}>" for name, topic_id in self.ids.items()}
        return [self._settled(note, names | topics) for note in self._notes]

    def _settled(self, value: Any, names: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {key: self._settled(item, names) for key, item in value.items()}
        if isinstance(value, list):
            settled = [self._settled(item, names) for item in value]
            is_note = len(value) == 4 and isinstance(value[1], int) and isinstance(value[2], dict)
            return settled if is_note else sorted(settled, key=repr)
        if isinstance(value, bytes):
            return value.hex()
        if value is None or isinstance(value, (int, bool)):
            return value
        text = str(value)
        return names.get(text, text.replace(self._prefix, "") if self._prefix else text)


def _brief(fields: dict[str, Any]) -> dict[str, Any]:
    """What tells one request from another in a report."""
    shown = ("group_id", "member_id", "member_epoch", "generation_id", "generation_id_or_member_epoch")
    return {name: fields[name] for name in shown if name in fields}


def subscription(*topics: str) -> bytes:
    """A consumer's subscription (version 1), owning nothing."""
    listed = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + listed + struct.pack(">ii", -1, 0)


def assignment(topic: str, *partitions: int) -> bytes:
    """A consumer's assignment (version 1) in one topic."""
    listed = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 1, 1, len(topic)) + topic.encode() + listed + struct.pack(">i", -1)


def committed(topic: str, partition: int, offset: int, metadata: str | None = "m") -> dict[str, Any]:
    """A topic of an OffsetCommit or TxnOffsetCommit request."""
    position = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }
    return {"name": topic, "partitions": [position]}
