"""An event loop in which waiting takes no time: when nothing is ready the clock jumps to the next timer.

Sessions of 45 seconds and retention of a week pass in milliseconds, in the same order as they would. A
program that waits for something that no timer will bring fails at once, instead of hanging.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingWillHappen(AssertionError):
    """Everybody waits, and no timer is set."""


class _Selector:
    def __init__(self, loop: "VirtualLoop", real: Any) -> None:
        self._loop, self._real = loop, real

    def select(self, timeout: float | None) -> Any:
        if timeout is None:
            raise NothingWillHappen("the program waits for something that never comes")
        self._loop.now += timeout
        return self._real.select(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at time 0 (of the loop, and of ``now_ms``, 1 January 2026)."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Selector(self, self._selector)  # type: ignore[has-type]

    def time(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 1_767_225_600_000 + round(self.now * 1000)


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run ``program`` in virtual time."""
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(program)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_ended(asyncio.all_tasks(loop)))
        asyncio.set_event_loop(None)
        loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
