"""What readers of a view wait for: a ring of its newest changes, and a snapshot that newcomers share.

A reader has a position in the ring and no queue: what it has not taken costs nothing, and a reader that was too
slow starts over with a snapshot. Everything here is used in the event loop only.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from headwater.serve.ring import PIECE, Ring
from headwater.serve.sse import columns_event, snapshot_end_event, snapshot_events
from headwater.views.filters import Filter
from headwater.views.model import ViewSchema
from headwater.views.store import ViewStore

FRESH = 200  # changes that a snapshot may be old, or as many as it has rows

TOO_SLOW = "changes came faster than they were read"
MISSED = "the store no longer has the changes after this one"
AHEAD = "the store has no change of this number; was the view rebuilt?"


@dataclass(frozen=True)
class Content:
    """A snapshot as it is sent, in pieces that all who get it share."""

    number: int  # of the last change in it
    rows: int
    pieces: tuple[bytes, ...]


class Feed:
    """What readers wait for: a ring, and a call when something is in it. Used in the event loop only."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.readers = 0
        self.over: bytes | None = None  # the event with which it has ended
        self.left = time.monotonic()  # when the last reader went
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Until something was published after the last look."""
        await self._news.wait()

    def published(self) -> None:
        """Wake all who wait."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def end(self, last: bytes) -> None:
        """Let all readers stop after this event."""
        if self.over is None:
            self.over = last
            self.published()

    def __enter__(self) -> Self:
        self.readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.readers -= 1
        self.left = time.monotonic()


class ViewFeed(Feed, ABC):
    """The changes of a view, or of some of its rows, with snapshots that they follow on."""

    def __init__(self, ring: Ring, read: Callable[[], Awaitable["Content"]]) -> None:
        super().__init__(ring)
        self._read_content = read
        self._content: Content | None = None
        self._making: asyncio.Task[Content] | None = None
        self._cleared, self._why_cleared = 0, TOO_SLOW  # up to which position, and why

    @property
    @abstractmethod
    def schema(self) -> ViewSchema | None:
        """What the rows in the ring are of; None before the first look."""

    @abstractmethod
    async def fresh(self) -> None:
        """Until a look that began after this call has been taken in."""

    async def resume(self, number: int) -> int | None:
        """The position behind this change; None when it cannot be had."""
        if number > self.ring.number:
            await self.fresh()  # another process may have seen it before us
        return self.ring.after(number)

    def why_not(self, number: int) -> str:
        """Why ``resume`` had nothing."""
        return AHEAD if number > self.ring.number else MISSED

    def why_lost(self, position: int) -> str:
        """Why a position that was once held is not any more."""
        return self._why_cleared if position < self._cleared else TOO_SLOW

    async def content(self) -> Content:
        """A snapshot that the ring follows on. It may be some changes old, and is then shared."""
        kept = self._content
        if kept is not None:
            age = self.ring.number - kept.number
            if self.ring.after(kept.number) is not None and age <= max(FRESH, kept.rows):
                return kept
        if self._making is None:
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(self._made)
        # Who goes meanwhile does not take the snapshot away from the others.
        return await asyncio.shield(self._making)

    async def _make(self) -> Content:
        content = await self._read_content()
        if content.number > self.ring.number:
            await self.fresh()
        return content

    def _made(self, task: "asyncio.Task[Content]") -> None:
        self._making = None
        if not task.cancelled() and task.exception() is None:
            self._content = task.result()

    def clear(self, why: str, number: int) -> None:
        """Let all readers start over: what comes next follows the change with this number."""
        self.ring.clear(number)
        self._cleared, self._why_cleared = self.ring.start, why
        self._content = None
        self.published()


def read_content(store: ViewStore, view: str, where: Filter | None) -> Content:
    """A snapshot, read from the store."""
    pieces: list[bytes] = []
    rows = 0

    def each(texts: list[str]) -> None:
        nonlocal rows
        rows += len(texts)
        pieces.extend(snapshot_events(texts, PIECE))

    news = store.snapshot_texts(view, each, where=where)
    end = snapshot_end_event(news)
    if pieces and len(pieces[-1]) < PIECE:
        end = pieces.pop() + end
    pieces.append(end)
    pieces[0] = columns_event(news.schema.types) + pieces[0]
    return Content(news.last_change, rows, tuple(pieces))
