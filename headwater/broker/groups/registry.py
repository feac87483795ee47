"""The groups there are, and the services that all of them use."""

import time
from collections.abc import Callable
from typing import TypeAlias

from headwater.broker.groups.classic_group import ClassicGroup, ClassicState
from headwater.broker.groups.consumer_group import ConsumerGroup
from headwater.broker.groups.ledger import Ledger
from headwater.broker.groups.offsets import OffsetStore
from headwater.broker.groups.own_settings import OwnSettings
from headwater.broker.groups.ports import Journal, Topics
from headwater.broker.groups.settings import GroupSettings
from headwater.broker.groups.timers import Timers

Group: TypeAlias = ClassicGroup | ConsumerGroup


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Registry:
    """Groups by name. A name belongs to one group, of one protocol."""

    def __init__(
        self,
        journal: Journal,
        topics: Topics,
        settings: GroupSettings,
        own_settings: OwnSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self.topics = topics
        self.settings = settings
        self.own_settings = own_settings
        self.now_ms = now_ms
        self.ledger = Ledger(journal)
        self.timers = Timers()
        self.offsets = OffsetStore()
        self.groups: dict[str, Group] = {}

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def ensure(self, group_id: str) -> Group:
        """The group; a simple one, made now, if there is none: it is what offsets alone make."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, state_ms=self.now_ms())
        return group

    def drop(self, group_id: str) -> None:
        """Forget a group, with its timers; its offsets are the offset store's."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        if isinstance(group, ClassicGroup):
            group.become(ClassicState.DEAD, self.now_ms())
            self.timers.cancel(("join", group_id))
            self.timers.cancel(("sync", group_id))
            members = (*group.members, *group.pending_joins)
        else:
            members = tuple(group.members)
        for member_id in members:
            self.cancel_timers(group_id, member_id)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        for what in ("session", "rebalance", "rejoin", "resync"):
            self.timers.cancel((what, group_id, member_id))

    def drop_if_void(self, group_id: str) -> None:
        """Forget a group of which nothing is worth keeping: no member, no offset, nothing in the journal.

        Otherwise requests with made-up names would fill the memory.
        """
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.is_empty
            and not group.in_journal
            and not group.members
            and not group.pending_joins
            and self.offsets.is_empty(group_id)
        ):
            self.drop(group_id)
