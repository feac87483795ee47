"""``POST /topics/{topic}``: events over HTTP into the log, acknowledged when the broker has them.

What an application declares as a stream or a table of plain JSON takes events here. They are checked as the stream's
own reader would check them; what does not fit goes to the dead-letter topic, and the answer says so. Nothing is
dropped silently: what the server cannot hold or the broker does not take is refused with 429 or 503 and Retry-After.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import orjson
from prometheus_client import Counter, Gauge
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.client.admin import Admin
from headwater.errors import (
    BadInput,
    BatchTooLarge,
    HeadwaterError,
    KeyReused,
    NotDelivered,
    NotJson,
    Overloaded,
    TooLarge,
)
from headwater.serve import receipts
from headwater.serve.answers import problem
from headwater.serve.bodies import ENCODINGS, Shape, Unpacked, events_of, shape_of
from headwater.serve.delivery import DELIVERY_SECONDS, PlainDelivery, Record
from headwater.serve.fitting import Fitting, Fittings, refuse_topic
from headwater.serve.idempotency import Answer, KeyedDelivery, KeyedRequest
from headwater.serve.ingest_api import describe_writing
from headwater.serve.parameters import Parameters
from headwater.serve.serving import Serving
from headwater.streams.aside import dead_topic
from headwater.streams.declarations import Table
from headwater.streams.sources.json_rules import Misfit

READ_SECONDS = 30.0  # for a body to arrive
ANSWER_SECONDS = DELIVERY_SECONDS + 4.0
EVENT_OVERHEAD = 256  # bytes of memory of an event besides its own
INLINE_BYTES = 16 << 10  # a body up to this size is parsed on the event loop, in less than a millisecond
RETRY_SECONDS = 1
LONGEST_KEY = 255

TOKEN = "Headwater-Token"
REPEATED = "Idempotent-Replayed"


class Room:
    """The bytes of events that are on their way to the broker, of all requests together."""

    def __init__(self, limit: int) -> None:
        self._limit, self.held = limit, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there was room; an only request always finds some.

        >>> room = Room(100)
        >>> room.take(80), room.take(30), room.held
        (True, False, 80)
        """
        with self._lock:
            if self.held and self.held + size > self._limit:
                return False
            self.held += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.held -= size


class _Hold:
    """What one request holds of the room; given back once, by whoever has it last."""

    def __init__(self, room: Room, topic: str) -> None:
        self._room, self._topic = room, topic
        self.size = 0
        self.is_passed_on = False

    def grow(self, size: int) -> None:
        if not self._room.take(size):
            cause = f"{self._room.held:,} bytes are on their way to the broker already"
            raise Overloaded("write to", self._topic, cause)
        self.size += size

    def release(self) -> None:
        self._room.give_back(self.size)
        self.size = 0


class Ingest:
    """The part of the server that takes events."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._fittings = Fittings(serving.app, serving.store)
        self._room = Room(serving.limits.waiting_bytes)
        self._plain = PlainDelivery(serving.connection, serving.limits.waiting_bytes)
        self._keyed = KeyedDelivery(serving.connection, serving.app.name, serving.settings.data)
        self._ready: set[str] = set()  # topics that are known to be there
        self._ready_lock = threading.Lock()
        registry = serving.registry
        self._events = Counter(
            "headwater_ingest_events",
            "Events by what became of them",
            ["topic", "outcome"],
            registry=registry,
        )
        self._bytes = Counter(
            "headwater_ingest_bytes", "Bytes of request bodies", ["topic"], registry=registry
        )
        waiting = Gauge(
            "headwater_ingest_waiting_bytes", "Bytes on their way to the broker", registry=registry
        )
        waiting.set_function(lambda: self._room.held)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/topics/{topic}", self._post, methods=["POST"])]

    def describe(self) -> dict[str, Any]:
        """Of each topic its own address, with its events."""
        return describe_writing(self._fittings.current().values())

    async def start(self) -> None:
        self._plain.start()
        self._keyed.start()

    async def stop(self) -> None:
        await run_in_threadpool(self._plain.stop)
        await run_in_threadpool(self._keyed.stop)

    # -- a request ---------------------------------------------------------------------------------

    async def _post(self, request: Request) -> Response:
        topic = str(request.path_params["topic"])
        fitting = self._fittings.get(topic)
        if fitting is None:
            known = await run_in_threadpool(self._fittings.current)
            return problem(refuse_topic(self._serving.app, topic, sorted(known)))
        hold = _Hold(self._room, topic)
        try:
            if fitting.awaits_columns:
                fitting = (await run_in_threadpool(self._fittings.current))[topic]
            return await self._take(request, fitting, hold)
        except HeadwaterError as error:
            return _refusal(error)
        finally:
            if not hold.is_passed_on:
                hold.release()

    async def _take(self, request: Request, fitting: Fitting, hold: _Hold) -> Response:
        topic = fitting.topic
        shape = shape_of(request.headers.get("content-type", ""))
        if shape is None:
            said = request.headers.get("content-type")
            cause = f"its content type is {said!r}" if said else "it has no content type"
            raise NotJson("write to", topic, cause)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        if encoding not in ENCODINGS:
            cause = f"its content encoding is {encoding!r}"
            raise NotJson("write to", topic, cause, "Send it as it is, or with gzip.")
        columns = _columns(request, fitting)
        key = _idempotency_key(request, topic)
        body = await self._read(request, Unpacked(encoding, topic), topic, hold)
        self._bytes.labels(topic).inc(len(body))
        if len(body) <= INLINE_BYTES:
            records, problems = self._records(body, shape, fitting, columns)
        else:
            records, problems = await run_in_threadpool(self._records, body, shape, fitting, columns)
        hold.grow(EVENT_OVERHEAD * len(records))
        if not {each.topic for each in records} <= self._ready:
            await run_in_threadpool(self._prepare, fitting)
        if key is None:
            return await self._without_key(topic, records, problems, hold)
        fingerprint = hashlib.sha256(b"\0".join([shape.encode(), ",".join(columns).encode(), body]))
        waiting = KeyedRequest(
            key=f"{topic} {key}",
            fingerprint=fingerprint.hexdigest(),
            topic=topic,
            records=records,
            compose=lambda places: receipts.receipt(topic, problems, places),
            size=hold.size,
            deadline=time.monotonic() + ANSWER_SECONDS / 2,
        )
        hold.is_passed_on = True
        waiting.done.add_done_callback(lambda _: hold.release())
        try:
            answer = await _in_time(self._keyed.submit(waiting), topic)
        except HeadwaterError:
            self._look_for_topics()
            raise
        if not answer.is_repeated:
            self._count(topic, problems)
        return _response(answer)

    async def _without_key(
        self, topic: str, records: list[Record], problems: list[str | None], hold: _Hold
    ) -> Response:
        future = await run_in_threadpool(self._plain.send, records)
        hold.is_passed_on = True
        future.add_done_callback(lambda _: hold.release())
        outcomes = await _in_time(future, topic)
        error = receipts.failed(topic, outcomes)
        if error is None:
            self._count(topic, problems)
            places = [outcome for outcome in outcomes if not isinstance(outcome, HeadwaterError)]
            return _response(receipts.receipt(topic, problems, places))
        self._look_for_topics()
        lost = sum(isinstance(outcome, HeadwaterError) for outcome in outcomes)
        self._events.labels(topic, "failed").inc(lost)
        return _refusal(error, **receipts.failure(topic, problems, outcomes))

    async def _read(self, request: Request, unpacked: Unpacked, topic: str, hold: _Hold) -> bytes:
        limit = self._serving.limits.body_bytes
        length = request.headers.get("content-length", "")
        said = int(length) if length.isdigit() else 0
        if said > limit:
            raise TooLarge("write to", topic, f"the body has {said:,} bytes, and {limit:,} are taken")
        hold.grow(said)
        parts, size, came = [], 0, 0
        try:
            async with asyncio.timeout(READ_SECONDS):
                async for sent in request.stream():
                    part = unpacked.take(sent, limit - size)
                    size, came = size + len(part), came + len(sent)
                    if max(size, came) > limit:
                        raise TooLarge("write to", topic, f"the body has more than {limit:,} bytes")
                    if size > hold.size:
                        hold.grow(size - hold.size)
                    parts.append(part)
        except TimeoutError:
            cause = f"the body did not arrive within {READ_SECONDS:.0f} s"
            raise BadInput("write to", topic, cause, "Send it in smaller parts.") from None
        unpacked.end()
        return b"".join(parts)

    def _records(
        self, body: bytes, shape: Shape, fitting: Fitting, columns: Sequence[str]
    ) -> tuple[list[Record], list[str | None]]:
        """A record for every event, in the topic or among the dead letters, and the problem of each."""
        limits, topic = self._serving.limits, fitting.topic
        events = events_of(body, shape, topic)
        if len(events) > limits.events:
            cause = f"the body holds {len(events):,} events, and {limits.events:,} are taken at once"
            raise TooLarge("write to", topic, cause)
        records, problems = [], []
        for number, value in enumerate(events):
            reason, key = fitting.problem(value), None
            if reason is None:
                try:
                    key = fitting.key_of(value, columns)
                except Misfit as misfit:
                    reason = f"it cannot be keyed: {misfit}"
            if reason is None:
                record = Record(topic, value, key)
            else:
                headers = [("headwater.topic", topic.encode()), ("headwater.reason", reason.encode())]
                headers.append(("headwater.from", b"http"))
                record = Record(dead_topic(fitting.name), value, None, headers)
            if record.size > limits.event_bytes:
                cause = f"event {number} has {record.size:,} bytes, and {limits.event_bytes:,} are taken"
                raise TooLarge("write to", topic, cause, "Send smaller events.")
            records.append(record)
            problems.append(reason)
        return records, problems

    def _prepare(self, fitting: Fitting) -> None:
        """Makes the topics, as the engine would, where they are not there yet."""
        admin = Admin(self._serving.connection)
        there = {each.name for each in admin.topics()}
        node, dead = fitting.node, dead_topic(fitting.name)
        partitions, configs = 1, dict[str, str]()
        if isinstance(node, Table):
            from headwater.streams.engine.engine import TABLE_TOPIC  # which takes Spark along

            configs = TABLE_TOPIC
        else:
            partitions = node.partitions
        if fitting.topic not in there:
            admin.create_topic(fitting.topic, partitions, configs=configs, exist_ok=True)
        if dead not in there:
            admin.create_topic(dead, 1, exist_ok=True)
        with self._ready_lock:
            self._ready |= {fitting.topic, dead}

    def _look_for_topics(self) -> None:
        """Something was not written: a topic may have been deleted."""
        with self._ready_lock:
            self._ready.clear()

    def _count(self, topic: str, problems: Sequence[str | None]) -> None:
        refused = sum(each is not None for each in problems)
        self._events.labels(topic, "taken").inc(len(problems) - refused)
        if refused:
            self._events.labels(topic, "refused").inc(refused)


async def _in_time(future: Any, topic: str) -> Any:
    """What the thread found out; it goes on with its work when nobody waits any more."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), ANSWER_SECONDS)
    except TimeoutError:
        cause = f"the broker has not acknowledged it within {ANSWER_SECONDS:.0f} s"
        step = "Send it again; with the same Idempotency-Key nothing is written twice."
        raise NotDelivered("write to", topic, cause, step) from None


def _columns(request: Request, fitting: Fitting) -> tuple[str, ...]:
    said = Parameters(request.scope["query_string"], ("key",)).text("key")
    if said is None:
        return fitting.key
    columns = tuple(column.strip() for column in said.split(","))
    if fitting.key and columns != fitting.key:
        cause = f"the table's key is {', '.join(fitting.key)}"
        raise BadInput("write to", fitting.topic, cause, "Leave ?key= out.")
    fitting.require_columns(columns)
    return columns


def _idempotency_key(request: Request, topic: str) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= LONGEST_KEY or not (key.isascii() and key.isprintable()):
        cause = f"its Idempotency-Key is not 1 to {LONGEST_KEY} printable ASCII characters"
        raise BadInput("write to", topic, cause, "Use a UUID.")
    return key


_STATUSES: dict[type[HeadwaterError], int] = {
    TooLarge: 413,
    BatchTooLarge: 413,
    NotJson: 415,
    KeyReused: 422,
    Overloaded: 429,
    BadInput: 400,
}


def _refusal(error: HeadwaterError, **more: Any) -> Response:
    """Whatever is not the client's to mend passes by itself: 503, to be sent again."""
    status = _STATUSES.get(type(error), 503)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    if status == 415:
        headers["Accept-Encoding"] = "gzip"
    return problem(error, status, headers, **more)


def _response(answer: Answer) -> Response:
    headers = {REPEATED: "true"} if answer.is_repeated else {}
    if token := orjson.loads(answer.body)["token"]:
        headers[TOKEN] = token
    kind = "application/problem+json" if answer.status >= 400 else "application/json"
    return Response(answer.body, answer.status, headers, kind)
