"""Following a view: ``GET /views/{view}/changes``.

A client gets a snapshot and then every change, or, when it names the last event it got, what has changed since.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.errors import BadInput, HeadwaterError, NotReady, UnknownView
from headwater.serve.answers import problem
from headwater.serve.event_stream import LONGEST_SECONDS, Emit, EventStream
from headwater.serve.feed import TOO_SLOW, ViewFeed
from headwater.serve.follow_metrics import FollowMetrics
from headwater.serve.hub import BEAT_SECONDS, Tailer
from headwater.serve.openapi import events, problems, serving_schemas
from headwater.serve.parameters import Parameters
from headwater.serve.reading_api import condition_schema
from headwater.serve.serving import Serving, declared_views, unknown_view
from headwater.serve.sse import change_number, columns_event, comment, last_seen, reset_event
from headwater.serve.where import parse_where
from headwater.views.model import ViewSchema

LOOK_SECONDS = 0.5  # between looks for a view that nobody has begun to fill
BEGUN_BY_NOBODY = "nobody has begun to fill the view"
BEGUN = "the view has its first rows"


class ViewChanges:
    """The part of the server that lets clients follow views."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._declared = declared_views(serving.app)
        self._tailer: Tailer | None = None
        self._resets: Counter[str] = Counter()
        self._metrics = FollowMetrics("view", lambda: self.followers, self._resets)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/views/{view}/changes", self._changes, methods=["GET"])]

    async def start(self) -> None:
        self._tailer = Tailer(self._serving.store)
        self._serving.registry.register(self._metrics)

    async def stop(self) -> None:
        """Ends all streams; clients come back by themselves when a server is there again."""
        if self._tailer is not None:
            self._tailer.stop()
            self._tailer = None
            self._serving.registry.unregister(self._metrics)

    @property
    def followers(self) -> Mapping[str, int]:
        """How many follow each view."""
        return {hub.view: hub.readers for hub in self._tailer.hubs} if self._tailer else {}

    async def _changes(self, request: Request) -> Response:
        view = request.path_params["view"]
        subject = f"the view {view}"
        try:
            if view not in self._declared:
                raise unknown_view("follow", self._serving.app, view)
            if self._tailer is None:
                raise NotReady("follow", subject, "the server stops", "Ask again in a moment.")
            given = Parameters(request.scope["query_string"], ("after", "where", "seconds"))
            seen = last_seen(request.headers.get("last-event-id"), given.text("after"), subject)
            after = None if seen is None else change_number(seen, subject)
            seconds = given.seconds("seconds", LONGEST_SECONDS, LONGEST_SECONDS)
            where = given.text("where")
            try:
                feed = await self._feed(view, where)
            except UnknownView:
                if where is not None:
                    parse_where(where)
                # No error: a browser would never come again.
                return EventStream(lambda emit: self._await(view, where, emit), None, seconds)
        except HeadwaterError as error:
            return problem(error)
        assert feed.schema is not None
        headers = {
            "headwater-view-version": str(feed.schema.version),
            "headwater-key": json.dumps(feed.schema.key, separators=(",", ":")),  # in ASCII, as headers are
        }
        return EventStream(lambda emit: self._follow(view, feed, after, emit), headers, seconds)

    async def _feed(self, view: str, where: str | None) -> ViewFeed:
        """A view, or the rows of it for which a condition holds; UnknownView while nobody has begun to fill it."""
        assert self._tailer is not None
        hub = await self._tailer.hub(view)
        return hub if where is None else await hub.filtered(parse_where(where, hub.schema))

    async def _follow(self, view: str, feed: ViewFeed, after: int | None, emit: Emit) -> None:
        def reset(why: str) -> bytes:
            self._resets[view] += 1
            return reset_event(why)

        await follow(feed, after, emit, reset)

    async def _await(self, view: str, where: str | None, emit: Emit) -> None:
        """Signs of life until somebody has begun to fill the view, and then what there is to follow."""
        beat = 0.0
        while self._tailer is not None:
            try:
                feed = await self._feed(view, where)
            except BadInput as error:
                await emit(comment(error.cause))
                return  # who comes back is told that its condition does not fit the columns
            except HeadwaterError as error:
                if time.monotonic() >= beat:
                    beat = time.monotonic() + BEAT_SECONDS
                    await emit(comment(BEGUN_BY_NOBODY if isinstance(error, UnknownView) else error.cause))
                # Until the same moment for all who wait, so that one look serves them.
                await asyncio.sleep(LOOK_SECONDS - time.monotonic() % LOOK_SECONDS)
            else:
                await emit(reset_event(BEGUN))
                await self._follow(view, feed, None, emit)
                return

    def describe(self) -> dict[str, Any]:
        """Of each view its own address, for conditions on its columns."""
        return {
            f"/views/{name}/changes": {"get": _described(schema)}
            for name, schema in serving_schemas(self._serving).items()
        }


async def follow(
    hub: ViewFeed, after: int | None, emit: Emit, reset: Callable[[str], bytes] = reset_event
) -> None:
    """Emit a snapshot, or what came after a change, and then changes as they come."""
    with hub:
        position: int | None = None
        if after is not None:
            position = await hub.resume(after)
            if position is None:
                await emit(reset(hub.why_not(after)))
            elif hub.schema is not None and (columns := columns_event(hub.schema.types)):
                await emit(columns)
        while hub.over is None:
            if position is None:
                try:
                    position = await _emit_snapshot(hub, emit)
                except UnknownView:
                    await hub.fresh()  # which ends the hub
                    continue
                except HeadwaterError as error:
                    await emit(comment(error.cause))
                    return  # the client comes again, after a while
            if position is None:
                await emit(reset(TOO_SLOW))  # for the snapshot
                continue
            taken = hub.ring.take(position)
            if taken is None:
                await emit(reset(hub.why_lost(position)))
                position = None
            elif taken[0]:
                position = taken[1]
                await emit(taken[0])
            else:
                await hub.wait()
        await emit(hub.over)


async def _emit_snapshot(hub: ViewFeed, emit: Emit) -> int | None:
    """The position behind the snapshot; None when so much changed meanwhile that it is void."""
    content = await hub.content()
    for piece in content.pieces:
        if hub.ring.after(content.number) is None:
            return None
        await emit(piece)
    return hub.ring.after(content.number)


_DESCRIPTION: dict[str, Any] = {
    "operationId": "followView",
    "tags": ["views"],
    "summary": "Follow a view: its rows, then every change, as server-sent events",
    "description": (
        "Events: `snapshot` (an array of rows), `snapshot-end`, `upsert` (a row), `delete` (a key), `progress` "
        "(with every batch, and every ten seconds in silence), `reset` (forget everything: a snapshot follows), "
        "`error` (the view is gone); before rows with decimals `columns` (the types of the columns). Who comes back "
        "with the id of the last event gets what has changed since. Who is behind gets only the last change of each "
        "key. Of a view that nobody has begun to fill nothing comes until somebody has, and then a `reset` and its "
        "first rows."
    ),
    "parameters": [
        {
            "name": "after",
            "in": "query",
            "description": (
                "The id of the last event that the client got. The header Last-Event-ID, which browsers send when "
                "they come back, says the same and is stronger."
            ),
            "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
        },
        {
            "name": "where",
            "in": "query",
            "description": (
                "Only rows for which this holds, written as for a read; a row for which it does not, or not any "
                "more, is a `delete`, be it known to the client or not."
            ),
            "schema": {},  # of the view: see below
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
            "headers": {
                "Headwater-View-Version": {"schema": {"type": "string"}},
                "Headwater-Key": {
                    "description": "The columns of the key, as JSON.",
                    "schema": {"type": "string"},
                },
            },
            "content": events(
                "columns", "snapshot", "snapshot-end", "upsert", "delete", "progress", "reset", "error"
            ),
        },
        **problems(
            {
                400: "The number, the condition or the length of time is none.",
                404: "There is no such view.",
                503: "The view store does not answer, or the server stops.",
            }
        ),
    },
}


def _described(schema: ViewSchema) -> dict[str, Any]:
    parameters = [
        {**each, "schema": condition_schema(schema)} if each["name"] == "where" else each
        for each in _DESCRIPTION["parameters"]
    ]
    return {**_DESCRIPTION, "operationId": f"follow_{schema.name}", "parameters": parameters}
