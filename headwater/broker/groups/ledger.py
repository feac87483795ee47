"""Writes to the journal, and when they take effect.

Memory changes only after the journal has the change, and in the journal's order: so that what a client is
told survives a crash, and what replay finds is what was there. A write goes on when the request that made it
is cancelled, because the journal may have it already.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from headwater.broker.groups.ports import Journal
from headwater.broker.groups.records import Record, encode

log = logging.getLogger(__name__)

T = TypeVar("T")


def nothing() -> None:
    """The effect of a change that has none."""


class Plan(NamedTuple, Generic[T]):
    """A change that has been worked out: the answer, what to write, and what follows from that."""

    result: T
    records: Sequence[Record] = ()
    effect: Callable[[], None] = nothing
    undo: Callable[[], None] = nothing


class Ledger:
    """The one way by which groups change the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last: dict[str, asyncio.Future[None]] = {}  # per group: done when its last write took effect
        self._writes: set[asyncio.Task[None]] = set()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def lock(self, group_id: str) -> asyncio.Lock:
        """Held while a change of the group is worked out and written that other changes could upset.

        It is per name and not per group, because a group may be deleted or replaced meanwhile.
        """
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = asyncio.Lock()
        return lock

    def submit(
        self,
        group_id: str,
        records: Sequence[Record],
        effect: Callable[[], None],
        producer: tuple[int, int] | None = None,
    ) -> "asyncio.Task[None]":
        """Write ``records``, then run ``effect``. The task fails, without the effect, when the write fails.

        Writes of a group take effect in the order of these calls. Await the task through ``asyncio.shield``.
        """
        before = self._last.get(group_id)
        done = self._last[group_id] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._write(group_id, records, effect, producer, before, done))
        self._writes.add(task)
        task.add_done_callback(self._finished)
        return task

    async def write(
        self,
        group_id: str,
        records: Sequence[Record],
        effect: Callable[[], None],
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Write ``records`` and return when ``effect`` has run."""
        await asyncio.shield(self.submit(group_id, records, effect, producer))

    async def change(self, group_id: str, work_out: Callable[[], Plan[T]]) -> T:
        """Work out a change while no other one is under way, and make it.

        The lock is kept until the change has taken effect, even if the caller is cancelled before.
        """
        lock = self.lock(group_id)
        await lock.acquire()
        try:
            plan = work_out()
            if not plan.records:
                plan.effect()
        except BaseException:
            lock.release()
            raise
        if not plan.records:
            lock.release()
            return plan.result
        task = self.submit(group_id, plan.records, plan.effect)

        def ended(task: "asyncio.Task[None]") -> None:
            if task.cancelled() or task.exception() is not None:
                plan.undo()
            lock.release()

        task.add_done_callback(ended)
        await asyncio.shield(task)
        return plan.result

    def is_writing(self, group_id: str) -> bool:
        """Whether a write of the group has not taken effect yet."""
        return group_id in self._last

    async def caught_up(self, group_id: str) -> None:
        """Return when the writes of the group so far have taken effect or failed."""
        last = self._last.get(group_id)
        if last is not None:
            await asyncio.shield(last)

    def after(self, group_id: str, effect: Callable[[], None]) -> None:
        """Run ``effect`` once the writes of the group so far have taken effect: now, if there are none."""
        last = self._last.get(group_id)
        if last is None:
            effect()
        else:
            last.add_done_callback(lambda _: effect())

    async def settled(self) -> None:
        """Return when no write is under way."""
        while self._writes:
            await asyncio.wait(set(self._writes))

    async def _write(
        self,
        group_id: str,
        records: Sequence[Record],
        effect: Callable[[], None],
        producer: tuple[int, int] | None,
        before: "asyncio.Future[None] | None",
        done: "asyncio.Future[None]",
    ) -> None:
        try:
            try:
                await self._journal.append(group_id, [encode(record) for record in records], producer)
            finally:
                if before is not None:
                    await before
            effect()
        finally:
            done.set_result(None)
            if self._last.get(group_id) is done:
                del self._last[group_id]

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._writes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a group's change was not written: %s", error)
