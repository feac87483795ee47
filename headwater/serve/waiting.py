"""Waiting until views cover what somebody has written: one watcher for all who wait, at work only while they do."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from headwater.errors import HeadwaterError, UnknownView
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

    async def until(self, view: str, places: Sequence[Place], seconds: float) -> Progress | None:
        """How far the version that serves is, once it covers these records, or after so long.

        None when there is none by then: a view that nobody has begun to fill is waited for as well.
        """
        progress = await self._progress(view)
        if seconds <= 0 or (progress is not None and covers(progress.offsets, places)):
            return progress
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
        return await self._progress(view)

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
            progress = await self._progress(view)
            for each, places, done in self._waiters:
                if (
                    progress is not None
                    and each == view
                    and covers(progress.offsets, places)
                    and not done.done()
                ):
                    done.set_result(None)

    async def _progress(self, view: str) -> Progress | None:
        try:
            return await self._call(lambda: self._store.progress(view))
        except UnknownView:
            return None

    async def _call(self, work: Callable[[], Result]) -> Result:
        return work() if self._store.reads_at_once else await asyncio.to_thread(work)
