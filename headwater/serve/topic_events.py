"""Following a topic: ``GET /topics/{topic}/events``.

A client gets the records that come, or, when it says so or was away, those since some place in the log.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.errors import HeadwaterError, NotReady, OffsetOutOfRange
from headwater.serve.answers import problem
from headwater.serve.event_stream import LONGEST_SECONDS, Emit, EventStream
from headwater.serve.follow_metrics import FollowMetrics
from headwater.serve.openapi import events, problems
from headwater.serve.parameters import Parameters
from headwater.serve.serving import Serving
from headwater.serve.sse import comment, event, last_seen
from headwater.serve.topic_hub import Histories, TopicHub
from headwater.serve.topic_records import From, Offsets, last_id, offsets_text, parse_from, parse_offsets

SLOW_SECONDS = 30.0  # in which a client that reads the log takes a piece, or has to come again


class TopicEvents:
    """The part of the server that lets clients follow topics."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._hubs: dict[str, TopicHub] = {}
        self._histories: Histories | None = None
        self._resets: Counter[str] = Counter()
        self._metrics = FollowMetrics("topic", lambda: self.followers, self._resets)
        self._stopped = False

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/topics/{topic}/events", self._events, methods=["GET"])]

    async def start(self) -> None:
        self._histories = Histories(self._serving.connection)
        self._serving.registry.register(self._metrics)

    async def stop(self) -> None:
        """Ends all streams; clients come back by themselves when a server is there again."""
        for hub in list(self._hubs.values()):
            hub.stop(comment("the server stops"))
        if self._histories is not None and not self._stopped:
            self._histories.stop()
            self._serving.registry.unregister(self._metrics)
        self._stopped = True

    @property
    def followers(self) -> Mapping[str, int]:
        """How many follow each topic."""
        return {topic: hub.readers for topic, hub in list(self._hubs.items())}

    async def _events(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        subject = f"the topic {topic}"
        assert self._histories is not None, "start() was not called"
        try:
            given = Parameters(request.scope["query_string"], ("from", "after", "seconds"))
            wanted = given.text("from")
            start = parse_from("end" if wanted is None else wanted, subject)
            seen = last_seen(request.headers.get("last-event-id"), given.text("after"), subject)
            if seen is not None:
                start = From("offsets", offsets=tuple(parse_offsets(seen, subject).items()))
            seconds = given.seconds("seconds", LONGEST_SECONDS, LONGEST_SECONDS)
            hub = await self._hub(topic)
            offsets, why = dict(hub.offsets), None  # type: tuple[Offsets, str | None]
            if start.kind != "end":
                offsets, why = await self._histories.resolve(topic, start)
        except HeadwaterError as error:
            return problem(error)
        histories = self._histories

        def reset(why: str, offsets: Offsets) -> bytes:
            self._resets[topic] += 1
            return event("reset", {"why": why}, offsets_text(offsets))

        return EventStream(lambda emit: follow(hub, histories, offsets, why, emit, reset), None, seconds)

    async def _hub(self, topic: str) -> TopicHub:
        hub = self._hubs.get(topic)
        if self._stopped:
            raise NotReady("follow", f"the topic {topic}", "the server stops", "Ask again in a moment.")
        if hub is None:
            hub = self._hubs[topic] = TopicHub(topic, self._serving.connection, self._forget)
        hub.left = time.monotonic()
        await hub.ready.wait()
        if hub.failure is not None:
            raise hub.failure
        return hub

    def _forget(self, hub: TopicHub) -> None:
        if self._hubs.get(hub.topic) is hub:
            del self._hubs[hub.topic]

    def describe(self) -> dict[str, Any]:
        return {"/topics/{topic}/events": {"get": _DESCRIPTION}}


async def follow(
    hub: TopicHub,
    histories: Histories,
    offsets: Offsets,
    why_reset: str | None,
    emit: Emit,
    reset: Callable[[str, Offsets], bytes],
) -> None:
    """Emit the records from a place on, as they are in the log and then as they come."""
    with hub:
        if why_reset is not None:
            await emit(reset(why_reset, offsets))
        while hub.over is None:
            position = hub.place_of(offsets)
            if position is None:
                try:
                    position = await _catch_up(hub, histories, offsets, emit)
                except OffsetOutOfRange:
                    found, why = await histories.resolve(
                        hub.topic, From("offsets", offsets=tuple(offsets.items()))
                    )
                    offsets = found
                    await emit(reset(why or "records are gone", offsets))
                    continue
                except HeadwaterError as error:
                    await emit(comment(error.cause))
                    return  # the client comes again, after a while
            last = offsets_text(offsets)
            while hub.over is None and (taken := hub.ring.take(position)) is not None:
                if taken[0]:
                    position = taken[1]
                    last = last_id(taken[0], last)
                    await emit(taken[0])
                else:
                    await hub.wait()
            # It has fallen out of the ring: the log has what follows.
            offsets = parse_offsets(last, hub.topic)
        await emit(hub.over)


async def _catch_up(hub: TopicHub, histories: Histories, offsets: Offsets, emit: Emit) -> int:
    """Emit what the log has up to a place of the ring, which still holds it in the end."""
    async with histories.reading() as fetcher:
        while hub.over is None:
            position, up_to = hub.ring.end, dict(hub.offsets)
            async for chunk in histories.read(fetcher, hub.topic, offsets, up_to):
                try:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await emit(b"".join(chunk))
                except TimeoutError:
                    cause = "the client does not take what it asked for"
                    raise HeadwaterError("follow", f"the topic {hub.topic}", cause) from None
            if offsets == up_to:
                if hub.ring.holds(position):
                    return position
            elif up_to == hub.offsets:
                await hub.wait()  # the client knows of something that the hub has yet to hear of
        return hub.ring.end


_ID = "[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*"
_FROM = "end|beginning|-?[0-9]{1,18}|20[0-9]{2}-0[1-9]-[12][0-9]T[01][0-9]:[0-5][0-9]:[0-5][0-9]Z"

_DESCRIPTION: dict[str, Any] = {
    "operationId": "followTopic",
    "tags": ["topics"],
    "summary": "Follow a topic: its records as server-sent events",
    "description": (
        "Events: `record` (partition, offset, timestamp, key, value, headers), `progress` (every ten seconds in "
        "silence), `reset` (records in between are no longer in the log), `error` (the topic is gone). A value "
        "that is JSON is given as such, others as text or base64, which `value_encoding` says. Transactions that "
        "were rolled back are left out. Who comes back with the id of the last event gets what follows it."
    ),
    "parameters": [
        {
            "name": "topic",
            "in": "path",
            "required": True,
            "description": "The name of a topic.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}$"},
        },
        {
            "name": "from",
            "in": "query",
            "description": (
                "Where to begin: `end` (unless told otherwise), `beginning`, an offset, `-N` for the last N "
                "records, or a time in ISO 8601; the same in every partition. Or an id of an event."
            ),
            "schema": {"type": "string", "pattern": f"^({_FROM}|{_ID})$"},
        },
        {
            "name": "after",
            "in": "query",
            "description": (
                "The id of the last event that the client got. The header Last-Event-ID, which browsers send when "
                "they come back, says the same and is stronger."
            ),
            "schema": {"type": "string", "pattern": f"^{_ID}$"},
        },
        {
            "name": "seconds",
            "in": "query",
            "description": "End the stream after so many seconds.",
            "schema": {"type": "number", "minimum": 0, "maximum": LONGEST_SECONDS},
        },
    ],
    "responses": {
        "200": {
            "description": "Events, for as long as the client listens.",
            "content": events("record", "progress", "reset", "error"),
        },
        **problems(
            {
                400: "The place or the length of time is none.",
                404: "There is no such topic.",
                503: "No broker answers.",
            }
        ),
    },
}
