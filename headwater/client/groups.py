"""Consumer groups: who is in them, what they have read, and how to move them (the replay)."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from headwater.client.admin import REQUEST_SECONDS, Admin
from headwater.client.faults import did_you_mean, in_words
from headwater.errors import BadInput, GroupActive, HeadwaterError, UnknownGroup

PartitionId = tuple[str, int]

_COORDINATOR_TO_COME = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_LOOK_AGAIN_SECONDS = 0.3

# confluent-kafka's names in Kafka's own spelling
_STATES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.UNKNOWN: "Unknown",
}


@dataclass(frozen=True)
class GroupSummary:
    name: str
    state: str
    type: str  # "classic" or "consumer" (the protocol of KIP-848)
    members: int


@dataclass(frozen=True)
class Member:
    id: str
    client: str
    host: str
    instance: str | None  # group.instance.id of a static member
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True)
class Group:
    name: str
    state: str
    type: str
    assignor: str
    members: tuple[Member, ...]

    @property
    def is_active(self) -> bool:
        return bool(self.members)


@dataclass(frozen=True)
class Progress:
    """How far a group is in one partition. ``committed`` is None where it never committed."""

    topic: str
    partition: int
    committed: int | None
    end: int
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Offsets between the commit and the end; records, where nothing was compacted away.

        >>> Progress("orders", 0, committed=7, end=10, member=None).lag
        3
        """
        return None if self.committed is None else max(0, self.end - self.committed)


def require_name(name: str, operation: str) -> None:
    """Kafka knows the group with the empty name, but its clients do not agree on what it means."""
    if not name:
        raise BadInput(operation, "a group", "its name is empty", "Name the group.")


class Groups:
    """The consumer groups of a cluster."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def names(self) -> list[str]:
        try:
            result = self.admin.client.list_consumer_groups(request_timeout=REQUEST_SECONDS).result()
        except KafkaException as error:
            raise in_words(error, "list", "groups") from error
        if result.errors:
            raise in_words(result.errors[0], "list", "groups")
        return sorted(listing.group_id for listing in result.valid)

    def summaries(self) -> list[GroupSummary]:
        """All consumer groups by name. A group that goes while it is asked about is left out."""
        summaries = []
        for group in self._describe(self.names()):
            if isinstance(group, Group):
                summaries.append(GroupSummary(group.name, group.state, group.type, len(group.members)))
            elif not isinstance(group, UnknownGroup):
                raise group
        return summaries

    def get(self, name: str, operation: str = "describe") -> Group:
        """One group; UnknownGroup names those that look like it."""
        require_name(name, operation)
        (group,) = self._describe([name], operation)
        if isinstance(group, HeadwaterError) and not isinstance(group, UnknownGroup):
            raise group
        # Older brokers, and older versions of the request, answer "Dead" for a group that never was.
        if isinstance(group, UnknownGroup) or group.state == "Dead":
            raise self.unknown(name, operation)
        return group

    def unknown(self, name: str, operation: str) -> UnknownGroup:
        step = did_you_mean(name, self.names(), "See `headwater groups list`.")
        return UnknownGroup(operation, f"group {name}", "there is no such group", step)

    def _describe(
        self, names: Iterable[str], operation: str = "describe", deadline: float | None = None
    ) -> list[Group | HeadwaterError]:
        """The groups, or why not. A new cluster is given time to find coordinators for them."""
        deadline = time.monotonic() + REQUEST_SECONDS if deadline is None else deadline
        wanted = list(names)
        if not wanted:
            return []
        try:
            futures = self.admin.client.describe_consumer_groups(wanted, request_timeout=REQUEST_SECONDS)
        except (ValueError, TypeError) as error:
            raise BadInput(operation, f"group {wanted[0]!r}", str(error)) from error
        found: list[Group | HeadwaterError] = []
        for name in wanted:
            try:
                description = futures[name].result()
            except KafkaException as error:
                if error.args[0].code() in _COORDINATOR_TO_COME and time.monotonic() < deadline:
                    time.sleep(_LOOK_AGAIN_SECONDS)
                    return self._describe(wanted, operation, deadline)
                found.append(in_words(error, operation, f"group {name}"))
                continue
            found.append(
                Group(
                    name=name,
                    state=_STATES.get(description.state, str(description.state.name)),
                    type=description.type.name.lower(),
                    assignor=description.partition_assignor,
                    members=tuple(
                        Member(
                            id=member.member_id,
                            client=member.client_id,
                            host=member.host.lstrip("/"),
                            instance=member.group_instance_id,
                            partitions=tuple(
                                (partition.topic, partition.partition)
                                for partition in member.assignment.topic_partitions
                            ),
                        )
                        for member in description.members
                    ),
                )
            )
        return found

    def committed(self, name: str) -> dict[PartitionId, int]:
        """The offsets that a group has committed; empty for a group that never was."""
        require_name(name, "read the offsets of")
        # Asked for offsets while the group has no coordinator yet, librdkafka (2.16) crashes the process.
        (group,) = self._describe([name], "read the offsets of")
        if isinstance(group, HeadwaterError) and not isinstance(group, UnknownGroup):
            raise group
        request = [ConsumerGroupTopicPartitions(name)]
        try:
            futures = self.admin.client.list_consumer_group_offsets(request, request_timeout=REQUEST_SECONDS)
            result = futures[name].result()
        except KafkaException as error:
            fault = in_words(error, "read the offsets of", f"group {name}")
            if isinstance(fault, UnknownGroup):
                return {}
            raise fault from error
        return {
            (partition.topic, partition.partition): partition.offset
            for partition in result.topic_partitions
            if partition.error is None and partition.offset >= 0
        }

    def progress(self, group: Group) -> list[Progress]:
        """Where a group stands in every partition that it has committed for, or that a member holds."""
        committed = self.committed(group.name)
        holders = {partition: member for member in group.members for partition in member.partitions}
        partitions = sorted(committed.keys() | holders.keys())
        existing = self._existing(partitions)
        ends = self.admin.latest(existing)
        return [
            Progress(*partition, committed.get(partition), ends[partition], holders.get(partition))
            for partition in existing
        ]

    def _existing(self, partitions: Iterable[PartitionId]) -> list[PartitionId]:
        """Commits outlive their topic for a while; only what is still there has an end."""
        counts = {topic.name: topic.partitions for topic in self.admin.topics(internal=True)}
        return [(topic, number) for topic, number in partitions if number < counts.get(topic, 0)]

    def set_offsets(self, name: str, offsets: Mapping[PartitionId, int]) -> None:
        """Move a group without members to ``offsets``."""
        require_name(name, "reset")
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(name, wanted)]
        try:
            futures = self.admin.client.alter_consumer_group_offsets(request, request_timeout=REQUEST_SECONDS)
            result = futures[name].result()
        except KafkaException as error:
            raise in_words(error, "reset", f"group {name}") from error
        for partition in result.topic_partitions:
            if partition.error is not None:
                raise in_words(partition.error, "reset", f"{partition.topic}-{partition.partition} of {name}")

    def refuse_if_active(self, name: str, operation: str) -> None:
        """Raise GroupActive when the group has members; a group that never was is fine."""
        try:
            group = self.get(name, operation)
        except UnknownGroup:
            return
        if group.is_active:
            hosts = ", ".join(sorted({f"{member.client} on {member.host}" for member in group.members}))
            count = len(group.members)
            cause = f"it has {count} active member{'s' if count > 1 else ''} ({hosts})"
            raise GroupActive(operation, f"group {name}", cause)

    def delete(self, name: str) -> None:
        """Forget a group and its offsets."""
        try:
            futures = self.admin.client.delete_consumer_groups([name], request_timeout=REQUEST_SECONDS)
            futures[name].result()
        except KafkaException as error:
            fault = in_words(error, "delete", f"group {name}")
            raise (self.unknown(name, "delete") if isinstance(fault, UnknownGroup) else fault) from error
