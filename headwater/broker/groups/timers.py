"""Deadlines by name: many of them, pushed back often, for the cost of one handle of the event loop.

A heartbeat only moves a deadline, which is an assignment: the heap is touched when the old deadline comes up.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)


class _Timer:
    __slots__ = ("callback", "deadline", "queued")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline: float | None = deadline  # None: cancelled or fired
        self.callback = callback
        self.queued = float("inf")  # the earliest time at which the heap holds this timer


class Timers:
    """Named timers on the running loop. A callback runs once, at its deadline or just after.

    >>> async def example():
    ...     timers, fired = Timers(), []
    ...     timers.schedule("a", 0.01, lambda: fired.append("a"))
    ...     timers.schedule("b", 0.01, lambda: fired.append("b"))
    ...     timers.schedule("c", 0.01, lambda: fired.append("c"))
    ...     timers.schedule("b", 5, lambda: fired.append("late"))  # replaces the first "b"
    ...     timers.cancel("c")
    ...     await asyncio.sleep(0.03)
    ...     timers.close()
    ...     return fired
    >>> asyncio.run(example())
    ['a']
    """

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[float, int, Hashable, _Timer]] = []
        self._order = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._armed = 0.0  # for when; uvloop's handles of a moment that has passed do not say
        self._closed = False

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def schedule(self, name: Hashable, delay: float, callback: Callable[[], None]) -> None:
        """Run ``callback`` in ``delay`` seconds, instead of what was scheduled under ``name``."""
        if self._closed:
            return
        deadline = asyncio.get_running_loop().time() + max(delay, 0.0)
        timer = self._timers.get(name)
        if timer is None:
            timer = self._timers[name] = _Timer(deadline, callback)
        else:
            timer.deadline, timer.callback = deadline, callback
        if timer.queued > deadline:
            self._queue(name, timer, deadline)
            self._arm()

    def cancel(self, name: Hashable) -> None:
        """Forget the timer ``name``, if there is one."""
        timer = self._timers.pop(name, None)
        if timer is None:
            return
        timer.deadline = None
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._timers):
            self._compact()

    def close(self) -> None:
        """Forget all timers and take no new ones."""
        self._closed = True
        self._timers.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _queue(self, name: Hashable, timer: _Timer, at: float) -> None:
        timer.queued = at
        heapq.heappush(self._heap, (at, next(self._order), name, timer))

    def _compact(self) -> None:
        """Without this, timers cancelled long before their time would pile up in the heap."""
        self._heap.clear()
        for name, timer in self._timers.items():
            assert timer.deadline is not None
            self._queue(name, timer, timer.deadline)
        self._arm()

    def _arm(self) -> None:
        if not self._heap:
            return
        first = self._heap[0][0]
        if self._handle is not None:
            if self._armed <= first:
                return
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_at(first, self._run)
        self._armed = first

    def _run(self) -> None:
        self._handle = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            at, _, name, timer = heapq.heappop(self._heap)
            if at != timer.queued or timer.deadline is None:
                continue  # an entry that another one has replaced, or a cancelled timer
            timer.queued = float("inf")
            if timer.deadline > now:
                self._queue(name, timer, timer.deadline)
                continue
            timer.deadline = None
            if self._timers.get(name) is timer:
                del self._timers[name]
            try:
                timer.callback()
            except Exception:
                log.exception("the timer %r failed", name)
        self._arm()
