"""The changes of some rows of a view: those for which a condition holds.

Nobody keeps which rows a client has: a row for which the condition does not hold is sent as a delete, whether it
held before or not. So every change of the view is one event here as well, with the same number, and who comes
back is served as of the whole view. A delete is small, and a client that does not have the row leaves it aside.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from headwater.serve.feed import Content, ViewFeed
from headwater.serve.ring import Ring
from headwater.serve.sse import changed_row
from headwater.views.model import ViewSchema

Encoded = tuple[list[str | None], list[bytes], int]  # keys, events, and how many of these are changes
Matches = Callable[[bytes], bool]  # a row as JSON


def reduced(
    keys: Sequence[str | None], events: Sequence[bytes], numbered: int, matches: Matches
) -> list[bytes]:
    """The events with deletes in place of rows that do not match.

    >>> events = [b'id: 4\\nevent: upsert\\ndata: {"w":"a","n":1}\\n\\n', b'event: progress\\ndata: {}\\n\\n']
    >>> reduced(['{"w":"a"}', "progress"], events, 1, lambda row: False)[0]
    b'id: 4\\nevent: delete\\ndata: {"w":"a"}\\n\\n'
    """
    found = list(events)
    for place in range(numbered):
        kind, row = changed_row(events[place])
        if kind == "upsert" and not matches(row):
            identity = events[place][: events[place].index(b"\n") + 1]
            found[place] = b"%sevent: delete\ndata: %s\n\n" % (identity, (keys[place] or "").encode())
    return found


class Filtered(ViewFeed):
    """Made of the changes of a whole view, in the event loop."""

    def __init__(self, whole: ViewFeed, matches: Matches, read: Callable[[], Awaitable[Content]]) -> None:
        ring = Ring(
            number=whole.ring.first_number,
            most_events=whole.ring.most_events,
            most_bytes=whole.ring.most_bytes,
        )
        super().__init__(ring, read)
        self._whole, self._matches = whole, matches
        self.built: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: list[Encoded] | None = []  # what came before the ring was built

    async def build(
        self, in_thread: Callable[[Callable[[], list[Encoded]]], Awaitable[list[Encoded]]]
    ) -> None:
        """Try what the ring of the whole view holds, so that who was there before can go on."""
        chunks = self._whole.ring.chunks()

        def work() -> list[Encoded]:
            return [
                (list(one.keys), reduced(one.keys, one.events(), one.numbered, self._matches), one.numbered)
                for one in chunks
            ]

        built = await in_thread(work)
        waiting, self._waiting = self._waiting or [], None
        for keys, events, numbered in built:
            self.ring.append(keys, events, numbered)
        self.take_in(waiting)

    def take_in(self, chunks: Sequence[Encoded]) -> None:
        """What was published of the whole view."""
        if self._waiting is not None:
            self._waiting.extend(chunks)
            return
        for keys, events, numbered in chunks:
            self.ring.append(keys, reduced(keys, events, numbered, self._matches), numbered)
        self.published()

    @property
    def schema(self) -> ViewSchema | None:
        return self._whole.schema

    async def fresh(self) -> None:
        await self._whole.fresh()

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._whole.__exit__()
        super().__exit__()
