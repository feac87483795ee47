"""Following a view from Python: ``hw.subscribe(url, view)``.

A subscription gives the view's events as they come, and keeps ``rows``, a copy of the view as of the last event
given. It connects again when the server goes away, and goes on where it was.
"""

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self, TypeAlias
from urllib.parse import quote

import httpx
import orjson
import pyarrow as pa

from headwater.errors import BadInput, HeadwaterError, NotAllowed, UnknownView, Unreachable
from headwater.serve.sse import Parser
from headwater.views.types import arrow_type, member_type

SILENCE_SECONDS = 30.0  # the server says something every ten
CONNECT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
PATIENCE_SECONDS = 60.0
EVENT_STREAM = "text/event-stream"
_ADDRESS = "Give the server's address without a path, such as http://127.0.0.1:8080."

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
    a server whose certificate is your own. After ``patience`` seconds without an answer (None: never) the
    iteration raises Unreachable. A view that nobody has begun to fill is waited for, however long.

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
    """The view as its events make it; of decimals with all their digits. Pure.

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
        self._types: dict[str, pa.DataType] = {}  # of the columns, where some have decimals

    def connected(self, key: Sequence[str]) -> None:
        """A stream begins, of a view with this key. Of a snapshot that was cut off nothing is kept."""
        self._coming, self._types = [], {}
        self.key = tuple(key)

    def take(self, kind: str, identity: str | None, data: bytes) -> ViewEvent | None:
        """Take in an event; None when it is none that we know."""
        content = self._loaded(data) if kind in ("upsert", "delete", "snapshot") else orjson.loads(data)
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
            self._coming, self._types = [], {}
            return Reset(content["why"])
        if kind == "columns":
            self._types = {name: arrow_type(text) for name, text in content.items()}
        return None

    def _loaded(self, data: bytes) -> Any:
        """A row, or several."""
        if not self._types:
            return orjson.loads(data)
        found = json.loads(data, parse_float=Decimal)
        for row in found if isinstance(found, list) else [found]:
            row.update({name: _with_decimals(value, self._types.get(name)) for name, value in row.items()})
        return found

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """The key of a row: hashable, structs and arrays as tuples."""
        values = tuple([_hashable(row[name]) for name in self.key])
        return values[0] if len(values) == 1 else values


def _with_decimals(value: Any, kind: pa.DataType | None) -> Any:
    """A value of JSON in which every fraction was read as a decimal: only those of the type are left.

    A change of before the view had these columns may have any value.
    """
    if isinstance(value, int | Decimal):
        if kind is not None and pa.types.is_decimal(kind):
            return Decimal(value)
        return float(value) if isinstance(value, Decimal) else value
    if isinstance(value, dict):
        return {name: _with_decimals(each, _inner(kind, name)) for name, each in value.items()}
    return [_with_decimals(each, _inner(kind)) for each in value] if isinstance(value, list) else value


def _inner(kind: pa.DataType | None, name: str = "") -> pa.DataType | None:
    """The type of what is inside; None when there is nothing of this name."""
    if kind is None:
        return None
    if pa.types.is_map(kind):
        return kind.item_type
    return kind.value_type if pa.types.is_list(kind) else member_type(kind, (name,))


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
        self._subject = f"the view {view}"
        try:
            self._url = httpx.URL(f"{url.rstrip('/')}/views/{quote(view, safe='')}/changes")
        except httpx.InvalidURL as error:
            raise BadInput("follow", self._subject, f"{url} is not an address: {error}", _ADDRESS) from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise BadInput("follow", self._subject, f"{url} is not an HTTP address", _ADDRESS)
        if where is not None:
            self._url = self._url.copy_add_param("where", where)
        if token is not None and not (token.isascii() and token.isprintable()):
            cause = "the token has characters that no header can hold"
            raise BadInput("follow", self._subject, cause, "Give the token that the server has.")
        self._token = token
        self._verify = _context(self._subject, verify) if isinstance(verify, str) else verify
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
        self._pauses.reset()
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
                    failure = _ENDED
                except httpx.HTTPError as error:
                    failure = _failure(error)
                if not self._closed:
                    time.sleep(self._pauses.next(self._subject, failure))

    async def __aiter__(self) -> AsyncIterator[ViewEvent]:
        self._pauses.reset()
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
                    failure = _ENDED
                except httpx.HTTPError as error:
                    failure = _failure(error)
                if not self._closed:
                    await asyncio.sleep(self._pauses.next(self._subject, failure))

    def _options(self) -> dict[str, Any]:
        return {
            "timeout": httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            "verify": self._verify,
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
            raise _fault(self._subject, answer)
        kind = answer.headers.get("content-type", "none").partition(";")[0]
        if kind != EVENT_STREAM:
            cause = f"the answer is of the type {kind}, and no stream of events"
            step = f"Is it a server of Headwater? {_ADDRESS}"
            raise BadInput("follow", self._subject, cause, step)
        self._copy.connected(orjson.loads(answer.headers.get("headwater-key", "[]")))
        return Parser()

    def _taken(self, parser: Parser, data: bytes) -> Iterator[ViewEvent]:
        for kind, identity, content in parser.feed(data):
            if self._closed:
                return
            if kind == "error":
                raise UnknownView("follow", self._subject, orjson.loads(content)["why"])
            event = self._copy.take(kind, identity, content)
            if event is not None:
                yield event
        self._pauses.reset()  # not before: what the reader does with the events may take as long as it likes


class _Pauses:
    """How long to wait before the next attempt: longer each time, and a little at random."""

    def __init__(self, patience: float | None) -> None:
        self._patience = patience
        self._pause, self._since = FIRST_PAUSE, time.monotonic()

    def reset(self) -> None:
        """Something has come."""
        self._pause, self._since = FIRST_PAUSE, time.monotonic()

    def next(self, subject: str, failure: "_Failure") -> float:
        pause = self._pause * random.uniform(0.5, 1.0)
        if self._patience is not None and time.monotonic() + pause - self._since > self._patience:
            raise Unreachable("follow", subject, failure.cause, failure.next_step)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return pause


@dataclass(frozen=True)
class _Failure:
    """Why an attempt came to nothing."""

    cause: str
    next_step: str = "Start it with `headwater serve`, or correct the address."


class _NotNow(httpx.HTTPError):
    """The server says that another attempt may do better, and why this one did not."""

    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


_ENDED = _Failure("the server ended the stream")


def _failure(error: httpx.HTTPError) -> _Failure:
    if isinstance(error, _NotNow):
        return error.failure
    if isinstance(error, httpx.TimeoutException):
        return _Failure("the server does not answer in time")
    return _Failure((str(error) or type(error).__name__).rstrip("."))


def _context(subject: str, certificates: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:  # of which the errors of TLS are some
        cause = f"{certificates} cannot be read as certificates: {error.strerror or error}"
        step = "Give verify= the path of a file of certificates in PEM."
        raise BadInput("follow", subject, cause, step) from None


_FINAL: Mapping[int, type[HeadwaterError]] = {
    400: BadInput,
    401: NotAllowed,
    403: NotAllowed,
    404: UnknownView,
    422: BadInput,
}


def _fault(subject: str, answer: httpx.Response) -> HeadwaterError | _NotNow:
    """The error that an answer stands for."""
    if answer.has_redirect_location:
        cause = f"the server sends one on to {answer.headers['location']}"
        return BadInput("follow", subject, cause, "Give the address that it sends one on to.")
    kind = _FINAL.get(answer.status_code)
    try:
        said = orjson.loads(answer.content)
        failure = _Failure(said["cause"], said["next_step"])
    except (ValueError, KeyError, TypeError):
        cause = f"the server answers with status {answer.status_code}"
        failure = _Failure(cause) if kind is None else _Failure(cause, "Is it a server of Headwater?")
    return _NotNow(failure) if kind is None else kind("follow", subject, failure.cause, failure.next_step)
