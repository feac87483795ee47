"""Committed offsets: what each group has consumed, and what open transactions would make of it."""

import itertools
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from headwater.broker.groups.records import NO_TIMESTAMP, OffsetKey, OffsetValue, Record

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Where a group stands in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # only clients before 2.1 say; -1: the broker's retention counts
    topic_id: uuid.UUID | None
    order: int  # position in the journal relative to other commits

    def to_value(self) -> OffsetValue:
        return OffsetValue(
            self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms, self.topic_id
        )

    def is_expired(self, base_ms: int, retention_ms: int, now_ms: int) -> bool:
        """Whether it may go: ``retention_ms`` after ``base_ms``, or when its client said."""
        if self.expire_ms != NO_TIMESTAMP:
            return now_ms >= self.expire_ms
        return now_ms - base_ms >= retention_ms


Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of all groups. Changes here are the effects of writes that the journal has.

    >>> store = OffsetStore()
    >>> store.put("g", ("t", 0), store.stamp(OffsetValue(5, -1, "", 0)), producer_id=7)  # in a transaction
    >>> store.committed("g"), store.is_unstable("g", ("t", 0))
    (mappingproxy({}), True)
    >>> store.complete(7, committed=True)
    >>> store.committed("g")["t", 0].offset, store.is_unstable("g", ("t", 0))
    (5, False)
    """

    def __init__(self) -> None:
        self._committed: dict[str, Offsets] = {}
        self._pending: dict[str, dict[int, Offsets]] = {}  # group -> producer -> offsets
        self._open: dict[int, set[str]] = {}  # producer -> groups
        self._order = itertools.count()

    def stamp(self, value: OffsetValue) -> CommittedOffset:
        """The offset of a value that is being written now, after all that were stamped before it."""
        return CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_ms, value.expire_ms,
            value.topic_id, next(self._order),
        )  # fmt: skip

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """What the group has committed, by (topic, partition)."""
        return MappingProxyType(self._committed.get(group_id, {}))

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction would change it."""
        pending = self._pending.get(group_id)
        return pending is not None and any(partition in offsets for offsets in pending.values())

    def is_empty(self, group_id: str) -> bool:
        """Whether nothing is known of the group, not even in a transaction."""
        return group_id not in self._committed and group_id not in self._pending

    def pending_groups(self, producer_id: int) -> frozenset[str]:
        """The groups that the producer's open transaction has offsets of."""
        return frozenset(self._open.get(producer_id, ()))

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """All partitions with an offset, committed or pending; may repeat."""
        yield from self._committed.get(group_id, ())
        for offsets in self._pending.get(group_id, {}).values():
            yield from offsets

    def groups(self) -> Iterator[str]:
        """All groups with an offset, committed or pending; may repeat."""
        yield from self._committed
        yield from self._pending

    def put(
        self,
        group_id: str,
        partition: TopicPartition,
        offset: CommittedOffset,
        producer_id: int | None = None,
    ) -> None:
        """A commit; with ``producer_id`` one that waits for the end of that producer's transaction."""
        partition = (sys.intern(partition[0]), partition[1])
        if producer_id is None:
            offsets = self._committed.setdefault(group_id, {})
        else:
            self._open.setdefault(producer_id, set()).add(group_id)
            offsets = self._pending.setdefault(group_id, {}).setdefault(producer_id, {})
        known = offsets.get(partition)
        if known is None or known.order < offset.order:
            offsets[partition] = offset

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """A tombstone: it takes back pending commits too."""
        committed = self._committed.get(group_id)
        if committed is not None:
            committed.pop(partition, None)
            if not committed:
                del self._committed[group_id]
        for producer_id, offsets in list(self._pending.get(group_id, {}).items()):
            offsets.pop(partition, None)
            if not offsets:
                self._drop_pending(group_id, producer_id)

    def complete(self, producer_id: int, committed: bool) -> None:
        """The producer's transaction has ended: its offsets become visible, or vanish."""
        for group_id in self._open.get(producer_id, set()).copy():
            self.complete_group(producer_id, group_id, committed)

    def complete_group(self, producer_id: int, group_id: str, committed: bool) -> None:
        """As ``complete``, for the offsets of one group."""
        offsets = self._drop_pending(group_id, producer_id)
        if committed:
            for partition, offset in offsets.items():
                # A commit outside of the transaction that was written later than this one stays.
                self.put(group_id, partition, offset)

    def _drop_pending(self, group_id: str, producer_id: int) -> Offsets:
        of_group = self._pending.get(group_id, {})
        offsets = of_group.pop(producer_id, {})
        if not of_group:
            self._pending.pop(group_id, None)
        groups = self._open.get(producer_id, set())
        groups.discard(group_id)
        if not groups:
            self._open.pop(producer_id, None)
        return offsets


def tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[Record]:
    """The records that delete these offsets."""
    return [(OffsetKey(group_id, topic, partition), None) for topic, partition in dict.fromkeys(partitions)]
