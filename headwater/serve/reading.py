"""Views to read: ``GET /views``, ``GET /views/{view}``, ``GET /views/{view}/{key}``.

A read of one row does not pass Starlette's routing: the server hands it to ``Reads.row_at`` when the path says
so. With SQLite it is a matter of microseconds and done on the event loop; everything else goes to threads.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes, urlencode

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from headwater.errors import BadInput, NotFound, NotInTime, NotReady, UnknownView
from headwater.serve.answers import as_json
from headwater.serve.keys import Keys, describe_key
from headwater.serve.openapi import serving_schemas
from headwater.serve.parameters import Parameters
from headwater.serve.reading_api import describe_reading
from headwater.serve.serving import Serving, declared_views, unknown_view
from headwater.serve.standing import standing_headers, standing_of, topic_offsets
from headwater.serve.through import Through
from headwater.serve.tokens import covered, parse_token, topics_behind
from headwater.serve.waiting import Waiting
from headwater.serve.where import parse_order, parse_where
from headwater.views.filters import Every, Filter, Where
from headwater.views.model import Reading, ViewSchema

PAGE = 1000  # rows in an answer, unless somebody says how many
FARTHEST = 10**12  # rows to skip
WAIT = 10.0  # seconds for a view to cover a token, unless somebody says how long
AT_LEAST = b"headwater-at-least"
NOT_ROWS = frozenset((b"changes",))  # what else lies under a view
ROW = "/views/{view}/{key}"

_PATH = ("at_least", "wait")
_QUERY = ("where", "order", "limit", "offset", "key", *_PATH)


class Reads:
    """The part of the server that reads views."""

    def __init__(self, serving: Serving) -> None:
        self._serving, self._store = serving, serving.store
        self._views = declared_views(serving.app)
        self._graph = serving.app.graph()
        self._names = {name.encode(): name for name in self._views}
        self._keys = Keys()
        self._waiting = Waiting(serving.store)
        self._through = Through(serving)
        self._standing: dict[str, tuple[Reading, list[tuple[bytes, bytes]]]] = {}

    def routes(self) -> Sequence[BaseRoute]:
        """The list, the rows of a view, and one row."""
        return [
            Route("/views", self._list),
            Route("/views/{view}", self._rows),
            Route("/views/{view}/{key:path}", self._row),
        ]

    def describe(self) -> dict[str, Any]:
        """Its paths, a view at a time."""
        schemas = serving_schemas(self._serving)
        topics = {name: topics_behind(self._graph, name) for name in schemas}
        return describe_reading(schemas, topics, self._serving.limits)

    async def start(self) -> None:
        """Nothing: what it needs is made when somebody waits."""

    async def stop(self) -> None:
        """Lets those go who wait."""
        await self._waiting.stop()

    # -- the list ----------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        Parameters(request.scope["query_string"], ())
        found = {info.name: info for info in await run_in_threadpool(self._store.views)}
        return as_json(
            {
                "application": self._serving.app.name,
                "views": [standing_of(node, found.get(name)) for name, node in self._views.items()],
            }
        )

    # -- rows --------------------------------------------------------------------------------------

    async def _rows(self, request: Request) -> Response:
        view = self._known(request.path_params["view"])
        given = Parameters(request.scope["query_string"], _QUERY)
        limit = given.number("limit", 1, self._serving.limits.rows, min(PAGE, self._serving.limits.rows))
        offset = given.number("offset", 0, FARTHEST, 0)
        where, order, key = given.text("where"), given.text("order"), given.text("key")
        await self._cover(view, given, request.scope)

        def condition(schema: ViewSchema) -> Filter:
            parts = [] if where is None else [parse_where(where, schema)]
            return Every((*parts, *([] if key is None else self._of_key(schema, key))))

        def read() -> Reading:
            if key is not None and where is None and order is None and offset == 0:
                return self._store.look_up(view, lambda schema: self._keys.of_json(schema, key))
            return self._store.page(
                view,
                where=condition if where is not None or key is not None else None,
                order=None if order is None else lambda schema: parse_order(order, schema),
                limit=limit + 1,  # one more, to see whether there are more
                offset=offset,
            )

        found = await self._read(view, read)
        rows = found.rows[:limit]
        headers = dict(standing_headers(found))
        following = None
        if len(found.rows) > limit:
            named = {"where": where, "order": order, "key": key, "limit": str(limit)}
            query = {name: value for name, value in named.items() if value is not None}
            following = f"/views/{view}?{urlencode({**query, 'offset': offset + limit})}"
            headers["Link"] = f'<{following}>; rel="next"'
        if "application/x-ndjson" in request.headers.get("accept", ""):
            body = "".join(f"{row}\n" for row in rows)
            return Response(body, headers=headers, media_type="application/x-ndjson")
        head = orjson.dumps({"view": view, "version": found.schema.version, "next": following})
        body = head.decode()[:-1] + ',"rows":[' + ",".join(rows) + "]}"
        return Response(body, headers=headers, media_type="application/json")

    def _of_key(self, schema: ViewSchema, key: str) -> list[Filter]:
        """The condition that a row has this key."""
        # A number is compared as the text that it is: a float would not hold a decimal.
        given = json.loads(self._keys.of_json(schema, key), parse_float=str, parse_int=str)
        return [
            Where(name, "is null") if given[name] is None else Where(name, "=", _as_text(given[name]))
            for name in schema.key
        ]

    # -- one row -----------------------------------------------------------------------------------

    def wants(self, path: bytes) -> tuple[str, bytes] | None:
        """The view and the key of a path, as it was sent, that names a row of a view of the application."""
        parts = path.split(b"/")
        if len(parts) != 4 or parts[1] != b"views" or parts[3] in NOT_ROWS:
            return None
        view = self._names.get(parts[2])
        return None if view is None or (b"%" in parts[3] and _is_else(parts[3])) else (view, parts[3])

    async def row_at(self, scope: Scope, view: str, key: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """A row as JSON, and the headers of the answer; an error when there is none."""
        if scope["query_string"] or any(name == AT_LEAST for name, _ in scope["headers"]):
            await self._cover(view, Parameters(scope["query_string"], _PATH), scope)

        def text(schema: ViewSchema) -> str:
            return self._keys.of_path(schema, key)

        try:
            if self._store.reads_at_once:
                found = self._store.look_up(view, text)
            else:
                found = await run_in_threadpool(self._store.look_up, view, text)
        except UnknownView:
            raise _not_ready(view) from None
        if not found.rows:
            shown = unquote_to_bytes(key).decode("utf-8", "replace")
            step = f"The key is {describe_key(found.schema)}; see /views/{view} for the rows that there are."
            raise NotFound("find", f"{shown!r} in the view {view}", "it has no row with this key", step)
        body = found.rows[0].encode()
        known = self._standing.get(view)
        if (
            known is None
            or known[0].progress is not found.progress
            or known[0].last_change != found.last_change
        ):
            headers = [(b"content-type", b"application/json")]
            headers += [(name.lower().encode(), value.encode()) for name, value in standing_headers(found)]
            known = self._standing[view] = (found, headers)
        return body, [*known[1], (b"content-length", b"%d" % len(body))]

    async def _row(self, request: Request) -> Response:
        """What comes here has not taken the short way: other names of views, slashes in keys, HEAD."""
        view = self._known(request.path_params["view"])
        parts = raw_path(request.scope).split(b"/")
        if len(parts) != 4:
            cause = "a row's address has two parts after /views"
            raise NotFound("find", request.scope["path"], cause, "Write a slash in a key as %2F.")
        body, headers = await self.row_at(request.scope, view, parts[3])
        return _Raw(body, headers)

    # -- what they share ---------------------------------------------------------------------------

    def _known(self, name: str) -> str:
        if name not in self._views:
            raise unknown_view("read", self._serving.app, name)
        return name

    async def _read(self, view: str, read: Any) -> Reading:
        try:
            found: Reading = await run_in_threadpool(read)
        except UnknownView:
            raise _not_ready(view) from None
        return found

    async def _cover(self, view: str, given: Parameters, scope: Scope) -> None:
        """Waits until the view covers the token of the request, if it has one."""
        seconds = given.seconds("wait", self._serving.limits.wait_seconds, WAIT)
        text = given.text("at_least")
        for name, value in scope["headers"]:
            if name == AT_LEAST and text is None:
                text = value.decode("latin-1")
        if text is None:
            return
        places = parse_token(text)
        topics = topics_behind(self._graph, view)
        for place in places:
            if place.topic not in topics:
                cause = f"it does not read the topic {place.topic}; it reads {', '.join(sorted(topics))}"
                raise BadInput("wait for", f"the view {view}", cause, "Give a token of one of these topics.")
        began = time.monotonic()
        places = await self._through.translated(self._graph, view, places, seconds)
        left = max(0.0, seconds - (time.monotonic() - began))
        progress = await self._waiting.until(view, places, left)
        if progress is None:
            raise _not_ready(view)
        missing = [place for place in places if covered(progress.offsets, place) <= place.offset]
        if not missing:
            return
        cause = "; ".join(
            f"of {place.topic} {place.partition} it has taken what is before {covered(progress.offsets, place)}, "
            f"and {place.offset} was asked for"
            for place in missing[:10]
        )
        late = NotInTime("wait for", f"the view {view}", f"after {seconds:g} s {cause}")
        late.details = {"wanted": [str(place) for place in missing], "offsets": topic_offsets(progress)}
        raise late


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent, where the server tells."""
    raw: bytes | None = scope.get("raw_path")
    return raw or scope["path"].encode()


class _Raw(Response):
    """A body with all its headers."""

    def __init__(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        super().__init__(body)
        self.raw_headers = headers


def _not_ready(view: str) -> NotReady:
    return NotReady("read", f"the view {view}", "it has no rows yet: nobody has begun to fill it")


def _is_else(key: bytes) -> bool:
    """Whether a part of a path is, decoded, the name of something that is no row."""
    return unquote_to_bytes(key) in NOT_ROWS


def _as_text(value: Any) -> Any:
    """A value of JSON as one that the store reads by the column's type."""
    return orjson.dumps(value).decode() if isinstance(value, Mapping | list) else value
