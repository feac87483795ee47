"""A followed topic inside the server.

Those at the end of the topic share one reader: a thread that waits for records and encodes each once into a
ring. Who begins further back, or has fallen behind the ring, reads the log by itself up to a place of the ring,
and goes on there. The log has everything, so nobody loses a record that retention has not taken.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.client.bare_requests import EARLIEST, LATEST
from headwater.client.connection import Connection
from headwater.client.fetcher import Fetcher
from headwater.client.secured_fetcher import SecuredFetcher, is_secured
from headwater.errors import HeadwaterError, OffsetOutOfRange, UnknownTopic
from headwater.serve.feed import Feed
from headwater.serve.hub import BEAT_SECONDS, LINGER_SECONDS, RETRY_SECONDS
from headwater.serve.ring import PIECE, Ring
from headwater.serve.sse import COMMENT_KEY, PROGRESS_KEY, comment, event
from headwater.serve.topic_records import From, Offsets, last_id, parse_offsets, progress_event, record_events

logger = logging.getLogger("headwater.serve")

KEPT = 20_000  # records in the ring
KEPT_BYTES = 16 << 20
WAIT_SECONDS = 1.0  # for which the broker holds a question for records
LOOK_SECONDS = 5.0  # between looks for partitions that are new
PATIENCE_SECONDS = 5.0  # without a broker, before those who wait hear of it
HISTORY_BYTES = 256 << 10  # read at a time for somebody who is behind

Result = TypeVar("Result")


def open_fetcher(connection: Connection, **options: Any) -> Fetcher | SecuredFetcher:
    """A reader of batches for this cluster."""
    if is_secured(connection):
        return SecuredFetcher(connection, patience=PATIENCE_SECONDS)
    return Fetcher(connection, patience=PATIENCE_SECONDS, **options)


class TopicHub(Feed):
    """The end of a topic. Everything but the thread's own methods is called in the event loop."""

    def __init__(self, topic: str, connection: Connection, leave: Callable[["TopicHub"], None]) -> None:
        super().__init__(Ring(most_events=KEPT, most_bytes=KEPT_BYTES))
        self.topic = topic
        self.offsets: Offsets = {}  # behind the newest event in the ring
        self.ready = asyncio.Event()
        self.failure: HeadwaterError | None = None
        self._places: deque[tuple[int, Offsets]] = deque()  # places between chunks of the ring, oldest first
        self._connection, self._leave = connection, leave
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._failing = False  # which is logged once, until a round succeeds
        self._thread = threading.Thread(target=self._run, name=f"headwater-topic-{topic}", daemon=True)
        self._thread.start()

    # -- in the event loop -------------------------------------------------------------------------

    def place_of(self, offsets: Offsets) -> int | None:
        """The position in the ring that has all that follows a place, and nothing before it."""
        for position, known in reversed(self._places):
            if position < self.ring.start:
                break
            if known == offsets:
                return position
        return None

    def _publish(self, keys: list[str | None], events: list[bytes], offsets: Offsets) -> None:
        self.ring.append(keys, events, 0)
        self.offsets = offsets
        self._places.append((self.ring.end, offsets))
        while self._places[0][0] < self.ring.start:
            self._places.popleft()
        self.published()

    def _begin(self, offsets: Offsets) -> None:
        self.ring.clear(0)
        self.offsets = offsets
        self._places.clear()
        self._places.append((self.ring.end, offsets))
        self.ready.set()
        self.published()

    def _fail(self, error: HeadwaterError) -> None:
        if not self.ready.is_set():
            self.failure = error
            self.ready.set()
        self.stop(event("error", {"why": str(error)}))

    def _look_away(self) -> None:
        if not self.readers and time.monotonic() - self.left > LINGER_SECONDS:
            self.stop(comment("nobody listens"))

    def stop(self, last: bytes) -> None:
        """End the thread and all who read."""
        self._stopped = True
        self._leave(self)
        self.end(last)
        self.ready.set()

    # -- in the thread -----------------------------------------------------------------------------

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run(self) -> None:
        offsets: Offsets | None = None
        with contextlib.closing(open_fetcher(self._connection)) as fetcher:
            while not self._stopped:
                try:
                    if offsets is None:
                        ends = fetcher.offsets(fetcher.partitions([self.topic]), LATEST)
                        offsets = {partition: offset for (_, partition), offset in ends.items()}
                        self._post(self._begin, dict(offsets))
                    offsets = self._follow(fetcher, offsets)
                except UnknownTopic as error:
                    self._post(self._fail, error)
                    return
                except Exception as error:  # whatever it is: this thread is the only one that reads
                    if offsets is None and isinstance(error, HeadwaterError):
                        self._post(self._fail, error)
                        return
                    if not self._failing:
                        logger.warning("those who follow %s wait: %s", self.topic, error)
                    self._failing = True
                    if offsets is not None:
                        signs: list[bytes] = [comment(_cause(error))]
                        self._post(self._publish, [COMMENT_KEY], signs, dict(offsets))
                    time.sleep(RETRY_SECONDS)

    def _follow(self, fetcher: Fetcher | SecuredFetcher, offsets: Offsets) -> Offsets | None:
        """Publish what comes; None when the topic holds this place no more."""
        beat = time.monotonic() + BEAT_SECONDS
        look = time.monotonic() + LOOK_SECONDS
        while not self._stopped:
            places = {(self.topic, partition): offset for partition, offset in offsets.items()}
            ends = fetcher.await_records(places, WAIT_SECONDS)
            for place, end in ends.items():
                partition = place[1]
                if end is None:
                    return None
                if end <= offsets[partition]:
                    continue
                try:
                    for columns in fetcher.columns(place, offsets[partition], end):
                        for chunk in _chunks(record_events(partition, columns, offsets)):
                            behind = parse_offsets(last_id(chunk[-1], ""), self.topic)
                            self._post(self._publish, [None] * len(chunk), chunk, behind)
                            beat = time.monotonic() + BEAT_SECONDS
                except OffsetOutOfRange:
                    return None
                if offsets[partition] < end:  # by markers of transactions, which are no records
                    offsets[partition] = end
                    beat = 0.0
            self._failing = False
            now = time.monotonic()
            if now >= look:
                look = now + LOOK_SECONDS
                self._add_partitions(fetcher, offsets)
                self._post(self._look_away)
            if now >= beat:
                beat = now + BEAT_SECONDS
                self._post(self._publish, [PROGRESS_KEY], [progress_event(offsets)], dict(offsets))
        return offsets

    def _add_partitions(self, fetcher: Fetcher | SecuredFetcher, offsets: Offsets) -> None:
        places = fetcher.partitions([self.topic])
        new = [place for place in places if place[1] not in offsets]
        if new:
            firsts = fetcher.offsets(new, EARLIEST)
            offsets.update({partition: offset for (_, partition), offset in firsts.items()})
            self._post(self._publish, [PROGRESS_KEY], [progress_event(offsets)], dict(offsets))


def _cause(error: Exception) -> str:
    """What those who follow are told of a failure."""
    if isinstance(error, HeadwaterError):
        return error.cause
    return f"the server failed ({type(error).__name__}); its log says how"


def _chunks(events: list[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for one in events:
        chunk.append(one)
        size += len(one)
        if size >= PIECE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class Histories:
    """Reads of the log for those who are behind. Few at a time, and little at once for each."""

    def __init__(self, connection: Connection, at_once: int = 32) -> None:
        self._connection = connection
        self._threads = ThreadPoolExecutor(4, "headwater-history")
        self._slots = asyncio.Semaphore(at_once)

    async def resolve(self, topic: str, start: From) -> tuple[Offsets, str | None]:
        """Where a client begins, and why that is not where it wanted to, if so."""
        return await self._in_thread(lambda: self._resolve(topic, start))

    def _resolve(self, topic: str, start: From) -> tuple[Offsets, str | None]:
        with contextlib.closing(open_fetcher(self._connection)) as fetcher:
            places = fetcher.partitions([topic])
            ends = {partition: both for (_, partition), both in fetcher.ends(places).items()}
            if start.kind == "beginning":
                return {partition: first for partition, (first, _) in ends.items()}, None
            if start.kind == "time":
                found = fetcher.offsets(places, start.value)
                return {
                    partition: ends[partition][1] if offset < 0 else offset
                    for (_, partition), offset in found.items()
                }, None
            if start.kind == "offset":
                return {p: min(max(start.value, first), last) for p, (first, last) in ends.items()}, None
            if start.kind == "last":
                return {p: max(first, last - start.value) for p, (first, last) in ends.items()}, None
            if start.kind == "end":
                return {partition: last for partition, (_, last) in ends.items()}, None
            return _held(dict(start.offsets), ends)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Fetcher | SecuredFetcher]:
        """A reader of the log, when it is one's turn."""
        async with self._slots:
            options = {} if is_secured(self._connection) else {"fetch_bytes": HISTORY_BYTES}
            fetcher = open_fetcher(self._connection, **options)
            try:
                yield fetcher
            finally:
                await asyncio.shield(self._in_thread(fetcher.close))

    async def read(
        self, fetcher: Fetcher | SecuredFetcher, topic: str, offsets: Offsets, up_to: Offsets
    ) -> AsyncIterator[list[bytes]]:
        """The records from one place up to another; ``offsets`` moves on with them."""
        for partition in sorted(up_to):
            offsets.setdefault(partition, 0)
            if offsets[partition] >= up_to[partition]:
                continue
            batches = fetcher.columns((topic, partition), offsets[partition], up_to[partition])
            try:
                while (columns := await self._in_thread(lambda it=batches: next(it, None))) is not None:  # type: ignore[misc]
                    for chunk in _chunks(record_events(partition, columns, offsets)):
                        yield chunk
            finally:
                await asyncio.shield(self._in_thread(batches.close))  # type: ignore[attr-defined]
            offsets[partition] = up_to[partition]

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """When whoever waits is cancelled, the thread goes on with it: then its end is waited for all the same, so
        that a reader is not closed while it reads."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait((future,))
            _ = future.cancelled() or future.exception()  # nobody is left whom it concerns
            raise


def _held(wanted: Offsets, ends: dict[int, tuple[int, int]]) -> tuple[Offsets, str | None]:
    """A place that a client was at, as far as the topic still has it.

    >>> _held({0: 5, 1: 2}, {0: (0, 9), 1: (4, 6), 2: (0, 3)})
    ({0: 5, 1: 4, 2: 0}, 'records after offset 2 of partition 1 are no longer there')
    """
    why = None
    found: Offsets = {}
    for partition, (first, last) in ends.items():
        offset = wanted.get(partition, first)
        if offset > last:
            why = f"partition {partition} ends at offset {last}; was the topic made anew?"
            offset = first
        elif offset < first:
            why = f"records after offset {offset} of partition {partition} are no longer there"
            offset = first
        found[partition] = offset
    if not wanted.keys() <= ends.keys():
        why = "the topic has fewer partitions; was it made anew?"
    return found, why
