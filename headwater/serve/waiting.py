"""Waiting until views cover what somebody has written: one watcher for all who wait, at work only while they do."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from headwater.errors import HeadwaterError
from headwater.serve.tokens import Place, covers
from headwater.views.database import Watch
from headwater.views.model import Progress
from headwater.views.store import ViewStore

Result = TypeVar("Result")
_Waiter = tuple[str, Sequence[Place], "asyncio.Future[None]"]


class Waiting:
    """Looks whether something was committed, as often as that costs next to nothing, and then who is served by it."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store
        self._waiters: list[_Waiter] = []
        self._fresh = False  # somebody has come since the last look
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def until(self, view: str, places: Sequence[Place], seconds: float) -> tuple[bool, Progress]:
        """Whether the version that serves covers these records after at most so long, and how far it is then."""
        progress = await self._call(lambda: self._store.progress(view))
        if seconds <= 0 or covers(progress.offsets, places):
            return covers(progress.offsets, places), progress
        waiter: _Waiter = (view, places, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._fresh = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(waiter[2], seconds)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        progress = await self._call(lambda: self._store.progress(view))
        return covers(progress.offsets, places), progress

    async def stop(self) -> None:
        """Lets all who wait go, and gives back what it holds."""
        for _, _, done in self._waiters:
            if not done.done():
                done.set_result(None)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def _run(self) -> None:
        while self._waiters:
            try:
                if self._watch is None:
                    self._watch = await self._call(self._store.watch)
                changed = await self._call(self._watch.changed)
                if changed or self._fresh:
                    self._fresh = False
                    await self._serve()
                await asyncio.sleep(self._watch.pause)
            except HeadwaterError as error:
                for _, _, done in self._waiters:
                    if not done.done():
                        done.set_exception(error)
                self._waiters.clear()

    async def _serve(self) -> None:
        for view in {waiter[0] for waiter in self._waiters}:
            progress = await self._call(lambda view=view: self._store.progress(view))  # type: ignore[misc]
            for each, places, done in self._waiters:
                if each == view and not done.done() and covers(progress.offsets, places):
                    done.set_result(None)

    async def _call(self, work: Callable[[], Result]) -> Result:
        return work() if self._store.reads_at_once else await asyncio.to_thread(work)
