"""Following a view from Python: ``hw.subscribe(url, view)``.

A subscription gives the view's events as they come, and keeps ``rows``, a copy of the view as of the last event
given. It connects again when the server goes away, and goes on where it was.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from urllib.parse import quote

import httpx
import orjson

from headwater.errors import BadInput, HeadwaterError, NotAllowed, UnknownView, Unreachable
from headwater.serve.sse import Parser

SILENCE_SECONDS = 30.0  # the server says something every ten
CONNECT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
PATIENCE_SECONDS = 60.0
EVENT_STREAM = "text/event-stream"

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = Any  # the key's value, or a tuple of values when it has several columns


@dataclass(frozen=True)
class Snapshot:
    """Some rows of the view as it was when the subscription began, or began anew."""

    rows: list[Row]


@dataclass(frozen=True)
class SnapshotEnd:
    """All rows have come; ``rows`` of the subscription shows them from now on."""

    number: int  # of the last change in them
    version: int
    columns: dict[str, str]  # Spark's types by name
    key: tuple[str, ...]


@dataclass(frozen=True)
class Upsert:
    """A row is new, or has become another."""

    number: int
    key: Key
    row: Row


@dataclass(frozen=True)
class Delete:
    """A row is gone. It may be one that was never given: who is behind gets the last change of a key only."""

    number: int
    key: Key


@dataclass(frozen=True)
class Progress:
    """What was given before is the view as of this batch. Comes with every batch, and in silence as well."""

    version: int
    batch: int | None
    watermark: str | None
    offsets: dict[str, Any]
    at: str | None  # when the batch was committed


@dataclass(frozen=True)
class Reset:
    """What was given before is void, and all rows come again."""

    why: str


ViewEvent: TypeAlias = Snapshot | SnapshotEnd | Upsert | Delete | Progress | Reset


def subscribe(
    url: str,
    view: str,
    *,
    where: str | None = None,
    token: str | None = None,
    after: int | None = None,
    verify: bool | str = True,
    patience: float | None = PATIENCE_SECONDS,
) -> "Subscription":
    """Follow a view of the server at ``url``.

    ``where`` chooses rows, as in a read. ``after`` is the number of the last change that is known already: then
    no snapshot comes, when the server still has what followed. ``verify`` is False, or a file of certificates, for
    a server whose certificate is your own. After ``patience`` seconds without a server (None: never) the
    iteration raises Unreachable.

    ::

        with hw.subscribe("http://127.0.0.1:8080", "sales") as changes:
            for event in changes:
                if isinstance(event, Progress):
                    print(event.at, changes.rows)

        async for event in hw.subscribe("http://127.0.0.1:8080", "sales"):
            ...
    """
    return Subscription(url, view, where, token, after, verify, patience)


class Copy:
    """The view as its events make it. Pure.

    >>> copy = Copy()
    >>> copy.take("snapshot", None, b'[{"word":"a","n":1}]')
    Snapshot(rows=[{'word': 'a', 'n': 1}])
    >>> copy.rows
    {}
    >>> _ = copy.take("snapshot-end", "7", b'{"version":1,"key":["word"],"columns":{}}')
    >>> copy.take("upsert", "8", b'{"word":"b","n":5}')
    Upsert(number=8, key='b', row={'word': 'b', 'n': 5})
    >>> copy.rows, copy.last
    ({'a': {'word': 'a', 'n': 1}, 'b': {'word': 'b', 'n': 5}}, 8)
    """

    def __init__(self, last: int | None = None) -> None:
        self.rows: dict[Key, Row] = {}
        self.last = last  # the number of the last change
        self.key: tuple[str, ...] = ()
        self.progress: Progress | None = None
        self._coming: list[Row] = []

    def connected(self, key: tuple[str, ...]) -> None:
        """A stream begins, of a view with this key. Of a snapshot that was cut off nothing is kept."""
        self._coming = []
        self.key = key

    def take(self, kind: str, identity: str | None, data: bytes) -> ViewEvent | None:
        """Take in an event; None when it is none that we know."""
        content = orjson.loads(data)
        if identity is not None:
            self.last = int(identity) if identity else None
        if kind == "upsert":
            key = self.key_of(content)
            self.rows[key] = content
            return Upsert(self.last or 0, key, content)
        if kind == "delete":
            key = self.key_of(content)
            self.rows.pop(key, None)
            return Delete(self.last or 0, key)
        if kind == "progress":
            members = (content[name] for name in ("version", "batch", "watermark", "offsets", "at"))
            self.progress = Progress(*members)
            return self.progress
        if kind == "snapshot":
            self._coming += content
            return Snapshot(content)
        if kind == "snapshot-end":
            self.key = tuple(content["key"])
            whole = {self.key_of(row): row for row in self._coming}
            self._coming = []
            self.rows.clear()
            self.rows.update(whole)
            return SnapshotEnd(self.last or 0, content["version"], content["columns"], self.key)
        if kind == "reset":
            self._coming = []
            return Reset(content["why"])
        return None

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """The key of a row: hashable, structs and arrays as tuples."""
        values = tuple([_hashable(row[name]) for name in self.key])
        return values[0] if len(values) == 1 else values


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_hashable, value.values()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


class Subscription:
    """The events of a view, to iterate over with ``for`` or with ``async for``. One thread or task at a time."""

    def __init__(
        self,
        url: str,
        view: str,
        where: str | None,
        token: str | None,
        after: int | None,
        verify: bool | str,
        patience: float | None,
    ) -> None:
        self._url = httpx.URL(f"{url.rstrip('/')}/views/{quote(view, safe='')}/changes")
        if self._url.scheme not in ("http", "https"):
            step = "Give the server's address, such as http://127.0.0.1:8080."
            raise BadInput("follow", view, f"{url} is not an HTTP address", step)
        if where is not None:
            self._url = self._url.copy_add_param("where", where)
        self._view, self._token, self._verify = view, token, verify
        self._copy = Copy(after)
        self._closed = False
        self._pauses = _Pauses(patience)

    @property
    def rows(self) -> dict[Key, Row]:
        """The view by key, as of the last event given; empty until the first snapshot is whole."""
        return self._copy.rows

    @property
    def last(self) -> int | None:
        """The number of the last change given: what ``after`` takes."""
        return self._copy.last

    @property
    def progress(self) -> Progress | None:
        """What the server last said of how far the view is."""
        return self._copy.progress

    def close(self) -> None:
        """End the iteration, if need be from another thread, at the next event or sign of life."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ViewEvent]:
        with httpx.Client(**self._options()) as client:
            while not self._closed:
                try:
                    with client.stream("GET", self._url, headers=self._headers()) as answer:
                        if answer.status_code != 200:
                            answer.read()
                        parser = self._begin(answer)
                        for data in answer.iter_raw():
                            yield from self._taken(parser, data)
                            if self._closed:
                                return
                    cause = "the server ended the stream"
                except httpx.HTTPError as error:
                    cause = _cause(error)
                if not self._closed:
                    time.sleep(self._pauses.next(self._view, cause))

    async def __aiter__(self) -> AsyncIterator[ViewEvent]:
        async with httpx.AsyncClient(**self._options()) as client:
            while not self._closed:
                try:
                    async with client.stream("GET", self._url, headers=self._headers()) as answer:
                        if answer.status_code != 200:
                            await answer.aread()
                        parser = self._begin(answer)
                        async for data in answer.aiter_raw():
                            for event in self._taken(parser, data):
                                yield event
                            if self._closed:
                                return
                    cause = "the server ended the stream"
                except httpx.HTTPError as error:
                    cause = _cause(error)
                if not self._closed:
                    await asyncio.sleep(self._pauses.next(self._view, cause))

    def _options(self) -> dict[str, Any]:
        verify: Any = self._verify
        if isinstance(verify, str):
            import ssl

            verify = ssl.create_default_context(cafile=verify)
        return {
            "timeout": httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            "verify": verify,
            "follow_redirects": False,
        }

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if self._copy.last is not None:
            headers["Last-Event-ID"] = str(self._copy.last)
        return headers

    def _begin(self, answer: httpx.Response) -> Parser:
        if answer.status_code != 200:
            fault = _fault(self._view, answer)
            if fault is None:
                raise httpx.RemoteProtocolError(f"the server answers with status {answer.status_code}")
            raise fault
        kind = answer.headers.get("content-type", "none").partition(";")[0]
        if kind != EVENT_STREAM:
            cause = f"the answer is of the type {kind}, and no stream of events"
            step = (
                "Is it a server of Headwater? Give its address without a path, such as http://127.0.0.1:8080."
            )
            raise BadInput("follow", f"the view {self._view}", cause, step)
        self._copy.connected(tuple(orjson.loads(answer.headers.get("headwater-key", "[]"))))
        return Parser()

    def _taken(self, parser: Parser, data: bytes) -> Iterator[ViewEvent]:
        self._pauses.reset()
        for kind, identity, content in parser.feed(data):
            if self._closed:
                return
            if kind == "error":
                raise UnknownView("follow", self._view, orjson.loads(content)["why"])
            event = self._copy.take(kind, identity, content)
            if event is not None:
                yield event


class _Pauses:
    """How long to wait before the next attempt: longer each time, and a little at random."""

    def __init__(self, patience: float | None) -> None:
        self._patience = patience
        self._pause, self._since = FIRST_PAUSE, time.monotonic()

    def reset(self) -> None:
        """Something has come."""
        self._pause, self._since = FIRST_PAUSE, time.monotonic()

    def next(self, view: str, cause: str) -> float:
        pause = self._pause * random.uniform(0.5, 1.0)
        if self._patience is not None and time.monotonic() + pause - self._since > self._patience:
            step = "Start it with `headwater serve`, or correct the address."
            raise Unreachable("follow", f"the view {view}", cause, step)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return pause


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "the server does not answer in time"
    return (str(error) or type(error).__name__).rstrip(".")


_FINAL: Mapping[int, type[HeadwaterError]] = {
    400: BadInput,
    401: NotAllowed,
    403: NotAllowed,
    404: UnknownView,
    422: BadInput,
}


def _fault(view: str, answer: httpx.Response) -> HeadwaterError | None:
    """The error that an answer stands for; None when another attempt may do better."""
    if answer.has_redirect_location:
        cause = f"the server sends one on to {answer.headers['location']}"
        return BadInput("follow", f"the view {view}", cause, "Give the address that it sends one on to.")
    kind = _FINAL.get(answer.status_code)
    if kind is None:
        return None
    try:
        said = orjson.loads(answer.content)
        return kind("follow", f"the view {view}", said["cause"], said["next_step"])
    except (ValueError, KeyError, TypeError):
        cause = f"the server answers with status {answer.status_code}"
        return kind("follow", f"the view {view}", cause, "Is it a server of Headwater?")
