"""A followed view inside the server, and the thread that reads what is new.

One thread, the tailer, looks for commits of all views that somebody follows; all else happens in the event loop.
Changes are encoded once, whoever gets them.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson

from headwater.errors import HeadwaterError, NotReady, UnknownView
from headwater.serve.feed import MISSED, ViewFeed, read_content
from headwater.serve.filtered import Encoded, Filtered
from headwater.serve.matching import matcher
from headwater.serve.ring import PIECE, Ring
from headwater.serve.sse import COMMENT_KEY, PROGRESS_KEY, change_event, comment, event, progress_event
from headwater.views.filters import Filter
from headwater.views.model import Change, News, Progress, ViewSchema
from headwater.views.store import ViewStore

logger = logging.getLogger("headwater.serve")

KEPT = 10_000  # changes; as many as stay in the store behind a changelog
KEPT_BYTES = 16 << 20  # of them
AT_ONCE = 1000  # changes read from the store in one go
CHUNK = 200  # changes sent together at most
BEAT_SECONDS = 10.0  # of silence, after which the view's progress is told again
LINGER_SECONDS = 30.0  # for which a view that nobody follows any more is kept at hand
RETRY_SECONDS = 1.0  # after the store failed
SEND_SECONDS = 25e-6  # that a send to one reader takes, about
LONGEST_WAIT = 0.1  # seconds for which changes are gathered for many readers
CONDITIONS = 32  # that a view is followed with at a time; each is tried on every change

OTHER_COLUMNS = "the view has a new version with other columns"
LEFT = "nobody listens"  # but who was on the way, and comes again

Result = TypeVar("Result")


def encode(changes: list[Change], progress: Progress | None) -> list[Encoded]:
    """Changes in chunks, the last one with the progress that they lead to."""
    chunks: list[Encoded] = []
    keys: list[str | None] = []
    events: list[bytes] = []
    size = 0
    for change in changes:
        keys.append(change.key)
        events.append(change_event(change))
        size += len(events[-1])
        if size >= PIECE or len(events) == CHUNK:
            chunks.append((keys, events, len(events)))
            keys, events, size = [], [], 0
    if progress is not None:
        chunks.append(([*keys, PROGRESS_KEY], [*events, progress_event(progress)], len(events)))
    elif events:
        chunks.append((keys, events, len(events)))
    return chunks


class Hub(ViewFeed):
    """A view that somebody follows. The tailer calls ``look``; all else is called in the event loop."""

    def __init__(self, view: str, store: ViewStore, tailer: "Tailer") -> None:
        super().__init__(
            Ring(most_events=KEPT, most_bytes=KEPT_BYTES),
            lambda: tailer.in_thread(lambda: read_content(store, view, None)),
        )
        self.view = view
        self.progress: Progress | None = None
        self.ready = asyncio.Event()
        self.failure: HeadwaterError | None = None  # why it could not begin
        self._schema: ViewSchema | None = None
        self._filtered: dict[str, Filtered] = {}  # by their conditions
        self._store, self._tailer = store, tailer
        # Of the tailer:
        self._read: News | None = None  # the last one
        self._after = 0  # the last change read
        self._beat = 0.0  # when to tell the progress again
        self._due = False  # something was committed
        self._not_before = 0.0
        self._asked: list[asyncio.Future[None]] = []  # who waits for a look that begins now or later
        self._lock = threading.Lock()

    # -- in the tailer's thread --------------------------------------------------------------------

    def look(self, now: float, changed: bool) -> None:
        """Read what is new, when there may be something, and hand it to the event loop."""
        with self._lock:
            asked, self._asked = self._asked, []
        beat = now >= self._beat
        self._due = self._due or changed or self._read is None
        try:
            if asked or beat or (self._due and now >= self._not_before):
                self._due = False
                # Many readers get larger pieces less often: each piece costs a wake-up and a send for each.
                self._not_before = now + min(LONGEST_WAIT, self.readers * SEND_SECONDS)
                self._read_on(beat)
        except UnknownView as error:
            self._tailer.post(self._gone, error)
        except HeadwaterError as error:
            self._due = True
            if self._read is None:
                self._tailer.post(self._fail, error)
            elif beat:
                self._beat = now + BEAT_SECONDS
                self._tailer.post(self._publish, [([COMMENT_KEY], [comment("the store does not answer")], 0)])
            raise
        finally:
            if asked:
                self._tailer.post(_answer, asked)

    def _read_on(self, beat: bool) -> None:
        if self._read is None:
            newest = self._store.news(self.view, 1 << 62, 1)
            self._after = max(0, newest.last_change - KEPT)
        while True:
            news = self._store.news(self.view, self._after, AT_ONCE)
            self._take_in(news, beat)
            if self._after >= news.last_change:
                break
        self._tailer.post(self.ready.set)

    def _take_in(self, news: News, beat: bool) -> None:
        before, self._read = self._read, news
        changes = news.changes
        first = changes[0].number if changes else news.last_change + 1
        if before is None:
            self._after = first - 1  # of a trimmed outbox the ring begins with what is left
            self._tailer.post(self.ring.clear, self._after)
        elif _other_columns(before.schema, news.schema) or first != self._after + 1:
            why = MISSED if before.schema == news.schema else OTHER_COLUMNS
            self._after, changes = news.last_change, []
            self._tailer.post(self._reset, why, news)
        if not self.ready.is_set() and (others := _of_another_key(changes, news.schema.key)):
            self._after, changes = changes[others - 1].number, changes[others:]
            self._tailer.post(self.ring.clear, self._after)  # who has rows of that key starts over
        if changes:
            self._after = changes[-1].number
        at_head = self._after == news.last_change
        told = at_head and (beat or changes or before is None or before.progress != news.progress)
        chunks = encode(changes, news.progress if told else None)
        if chunks:
            self._beat = time.monotonic() + BEAT_SECONDS
            self._tailer.post(self._state, news.schema, news.progress)
            self._tailer.post(self._publish, chunks)

    # -- in the event loop -------------------------------------------------------------------------

    @property
    def schema(self) -> ViewSchema | None:
        return self._schema

    def _state(self, schema: ViewSchema, progress: Progress) -> None:
        self._schema, self.progress = schema, progress

    def _publish(self, chunks: list[Encoded]) -> None:
        for keys, events, numbered in chunks:
            self.ring.append(keys, events, numbered)
        self.published()
        for where, feed in list(self._filtered.items()):
            if feed.readers or time.monotonic() - feed.left < LINGER_SECONDS:
                feed.take_in(chunks)
            else:
                self._filtered.pop(where).end(comment(LEFT))

    def _reset(self, why: str, news: News) -> None:
        self._state(news.schema, news.progress)
        self.clear(why, news.last_change)
        filtered, self._filtered = self._filtered, {}
        for feed in filtered.values():
            feed.end(comment(why))  # who comes back is asked whether its condition fits the columns

    async def filtered(self, where: Filter) -> Filtered:
        """The changes of the rows for which a condition holds."""
        assert self._schema is not None
        condition = repr(where)
        feed = self._filtered.get(condition)
        if feed is None:
            idle = [one for one, feed in self._filtered.items() if not feed.readers and feed.built.done()]
            if len(self._filtered) >= CONDITIONS:
                if not idle:
                    cause = f"it is followed with {CONDITIONS} other conditions already"
                    step = "Ask again later, or without a condition."
                    raise NotReady("follow", f"the view {self.view}", cause, step)
                self._filtered.pop(idle[0]).end(comment(LEFT))
            feed = Filtered(
                self,
                matcher(self._schema, where),
                lambda: self._tailer.in_thread(lambda: read_content(self._store, self.view, where)),
            )
            self._filtered[condition] = feed
            feed.built = asyncio.create_task(feed.build(self._tailer.in_thread))
        feed.left = time.monotonic()
        await asyncio.shield(feed.built)
        feed.left = self.left = time.monotonic()
        return feed

    def _fail(self, error: HeadwaterError) -> None:
        self.failure = error
        self.ready.set()

    def _gone(self, error: UnknownView) -> None:
        if not self.ready.is_set():
            self._fail(error)
        self._tailer.forget(self)
        self.end(event("error", {"why": str(error)}))

    async def fresh(self) -> None:
        """Until a look that began after this call has been taken in."""
        if self.over is not None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._asked.append(waiter)
        self._tailer.wake()
        await waiter

    def end(self, last: bytes) -> None:
        super().end(last)
        for feed in self._filtered.values():
            feed.end(last)
        self.ready.set()
        with self._lock:
            asked, self._asked = self._asked, []
        _answer(asked)


def _other_columns(before: ViewSchema, after: ViewSchema) -> bool:
    return before.version != after.version and (before.columns, before.key) != (after.columns, after.key)


def _of_another_key(changes: list[Change], key: tuple[str, ...]) -> int:
    """How many changes there are up to the last one of before the view had this key, in this order."""
    for at in range(len(changes), 0, -1):
        if tuple(orjson.loads(changes[at - 1].key)) != key:
            return at
    return 0


def _answer(waiters: list["asyncio.Future[None]"]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class Tailer:
    """The thread that looks for commits while there are hubs, and the hubs by view."""

    def __init__(self, store: ViewStore) -> None:
        self._store = store
        self._hubs: dict[str, Hub] = {}
        self._loop = asyncio.get_running_loop()
        self._wakened = threading.Event()
        self._stopped = False
        self._threads = ThreadPoolExecutor(2, "headwater-snapshots")
        self._thread = threading.Thread(target=self._run, name="headwater-tailer", daemon=True)
        self._thread.start()

    async def hub(self, view: str) -> Hub:
        """The hub of a view, ready to be read; UnknownView when there is no such view."""
        hub = self._hubs.get(view)
        if hub is None and not self._stopped:
            hub = self._hubs[view] = Hub(view, self._store, self)
            self.wake()
        if hub is not None:
            hub.left = time.monotonic()
            await hub.ready.wait()
            if hub.failure is not None:
                self.forget(hub)
                raise hub.failure
        if hub is None or hub.schema is None:
            raise NotReady("follow", f"the view {view}", "the server stops", "Ask again in a moment.")
        return hub

    @property
    def hubs(self) -> list[Hub]:
        return list(self._hubs.values())

    def forget(self, hub: Hub) -> None:
        """Read no more of this view."""
        if self._hubs.get(hub.view) is hub:
            del self._hubs[hub.view]

    def wake(self) -> None:
        """Let it look now."""
        self._wakened.set()

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call something in the event loop, in the order of these calls."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(call, *arguments)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run something that waits for the store."""
        return await self._loop.run_in_executor(self._threads, work)

    def stop(self) -> None:
        """End all hubs and the thread."""
        self._stopped = True
        self.wake()
        for hub in self.hubs:
            hub.end(comment("the server stops"))
        self._hubs.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        watch = None
        failing = False
        while not self._stopped:
            pause = RETRY_SECONDS
            try:
                if not self._hubs:
                    self._wakened.wait()
                if self._stopped:
                    break  # the store may be closed by now
                if watch is None:
                    watch = self._store.watch()
                self._wakened.clear()
                changed, now = watch.changed(), time.monotonic()
                for hub in list(self._hubs.values()):
                    if not hub.readers and now - hub.left > LINGER_SECONDS:
                        self.post(self._leave, hub)
                    else:
                        hub.look(now, changed or failing)
                pause, failing = watch.pause, False
            except Exception as error:  # whatever it is: this thread is the only one that reads changes
                if not failing:
                    logger.warning("those who follow views wait: %s", error)
                failing = True
                for hub in list(self._hubs.values()):
                    if not hub.ready.is_set() and isinstance(error, HeadwaterError):
                        self.post(hub._fail, error)
            self._wakened.wait(pause)
        if watch is not None:
            watch.close()

    def _leave(self, hub: Hub) -> None:
        if not hub.readers and time.monotonic() - hub.left > LINGER_SECONDS:
            self.forget(hub)
            hub.end(comment(LEFT))
