"""``hw.redis``, ``hw.search`` and ``hw.parquet``: what follows a topic, as sinks of an application."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from headwater.connect.sinks.changes import ChangeReader, Format
from headwater.connect.sinks.http import HttpAddress
from headwater.connect.sinks.identity import Identity
from headwater.connect.sinks.resp import RedisAddress
from headwater.connect.sinks.sink import OnGap, Sink
from headwater.errors import ApplicationInvalid

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")


@dataclass(frozen=True)
class Common:
    """What all sinks have."""

    topic: str
    name: str
    format: Format = "auto"
    on_gap: OnGap = "fail"

    kind = "sink"

    def __post_init__(self) -> None:
        for what, text in (("topic", self.topic), ("name", self.name)):
            if not _NAME.match(text):
                step = "Use letters, digits, dots, underscores and dashes."
                raise ApplicationInvalid(
                    "declare", f"the sink {self.name!r}", f"its {what} is {text!r}", step
                )
        self._one_of("format", get_args(Format))
        self._one_of("on_gap", get_args(OnGap))

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        if (value := getattr(self, name)) not in allowed:
            step = f"Say {' or '.join(repr(each) for each in allowed)}."
            raise ApplicationInvalid("declare", f"the sink {self.name}", f"{name} is {value!r}", step)


@dataclass(frozen=True)
class RedisFollower(Common):
    """A declared cache; nothing is connected before it runs."""

    url: str = field(default="", repr=False)  # it may have a password
    key: str | None = None
    form: Literal["json", "hash"] = "json"
    ttl: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._one_of("form", ("json", "hash"))
        RedisAddress(self.url)
        Identity(self.key)
        if self.ttl is not None and not 0.001 <= self.ttl < math.inf:
            step = "Give seconds, or leave it out."
            raise ApplicationInvalid("declare", f"the sink {self.name}", f"ttl is {self.ttl!r}", step)

    def describe(self) -> str:
        """A few words for the graph."""
        return f"{RedisAddress(self.url).shown}, {self.key or self.topic + ':{key}'}"

    def make(self, data: Path) -> Sink:
        """The sink, not yet connected."""
        from headwater.connect.sinks.redis import RedisSink

        reader = ChangeReader(Identity(self.key, f"{self.topic}:"), self.format)
        ttl_ms = None if self.ttl is None else round(self.ttl * 1000)
        return RedisSink(
            RedisAddress(self.url),
            self.name,
            self.topic,
            reader,
            form=self.form,
            ttl_ms=ttl_ms,
            on_gap=self.on_gap,
        )


def redis(
    url: str,
    *,
    topic: str,
    key: str | None = None,
    form: Literal["json", "hash"] = "json",
    ttl: float | None = None,
    format: Format = "auto",
    on_gap: OnGap = "fail",
    name: str | None = None,
) -> RedisFollower:
    """Keeps the rows of a topic in Redis, for ``app.sink``.

    `key` is a template of the key's columns, ``"user:{id}"``; without one a row is called by its topic and its key,
    ``shop.users:7``. `form` is "json", a string a row, or "hash", a field a column (those that are null are left out).
    `ttl` lets rows expire, so many seconds after they were last written.

    >>> redis("redis://localhost:6379", topic="shop.users", key="user:{id}").name
    'shop.users.redis'
    """
    return RedisFollower(
        topic=topic,
        name=name or f"{topic}.redis",
        format=format,
        on_gap=on_gap,
        url=url,
        key=key,
        form=form,
        ttl=ttl,
    )


@dataclass(frozen=True)
class SearchFollower(Common):
    """A declared search index; nothing is connected before it runs."""

    url: str = field(default="", repr=False)  # it may have a password
    index: str = ""
    id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        HttpAddress(self.url)
        Identity(self.id)

    def describe(self) -> str:
        """A few words for the graph."""
        return f"{HttpAddress(self.url).shown}/{self.index}"

    def make(self, data: Path) -> Sink:
        """The sink, not yet connected."""
        from headwater.connect.sinks.search import SearchSink

        address = HttpAddress(self.url, self.headers, self.ca)
        reader = ChangeReader(Identity(self.id), self.format)
        return SearchSink(address, self.name, self.topic, reader, index=self.index, on_gap=self.on_gap)


def search(
    url: str,
    *,
    topic: str,
    index: str | None = None,
    id: str | None = None,
    headers: Mapping[str, str] | None = None,
    ca: str | None = None,
    format: Format = "auto",
    on_gap: OnGap = "fail",
    name: str | None = None,
) -> SearchFollower:
    """Keeps the rows of a topic in an index of OpenSearch or Elasticsearch, for ``app.sink``.

    `index` is called like the topic unless given; make it beforehand to choose its mapping. `id` is a template of the
    key's columns; without one a document's id is the key, ``7``. `headers` go with each request (an API key), `ca` is
    a file of certificates to trust.

    >>> search("http://localhost:9200", topic="shop.users").describe()
    'http://localhost:9200/shop.users'
    """
    return SearchFollower(
        topic=topic,
        name=name or f"{topic}.search",
        format=format,
        on_gap=on_gap,
        url=url,
        index=index or topic.lower(),
        id=id,
        headers=dict(headers or {}),
        ca=ca,
    )


@dataclass(frozen=True)
class ParquetFollower(Common):
    """Declared files; nothing is written before it runs."""

    directory: str = ""
    rows: int = 0
    size: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("rows", "size", "seconds"):
            if not getattr(self, what) > 0:
                cause = f"{what} is {getattr(self, what)!r}"
                step = "Let it be more than nothing."
                raise ApplicationInvalid("declare", f"the sink {self.name}", cause, step)

    def describe(self) -> str:
        """A few words for the graph."""
        return str(Path(self.directory) / self.topic)

    def make(self, data: Path) -> Sink:
        """The sink, with nothing open yet."""
        from headwater.connect.sinks.parquet import ParquetSink

        return ParquetSink(
            Path(self.directory),
            self.name,
            self.topic,
            rows=self.rows,
            size=self.size,
            seconds=self.seconds,
            format=self.format,
            on_gap=self.on_gap,
        )


def parquet(
    directory: str,
    *,
    topic: str,
    rows: int = 500_000,
    size: int = 128 * 1024 * 1024,
    seconds: float = 60.0,
    format: Format = "auto",
    on_gap: OnGap = "fail",
    name: str | None = None,
) -> ParquetFollower:
    """Writes the history of a topic to Parquet files in ``<directory>/<topic>``, for ``app.sink``.

    A file is closed when it has so many `rows`, or values of `size` bytes together, or after `seconds`.

    >>> parquet("warehouse/", topic="shop.users").describe()
    'warehouse/shop.users'
    """
    return ParquetFollower(
        topic=topic,
        name=name or f"{topic}.parquet",
        format=format,
        on_gap=on_gap,
        directory=directory,
        rows=rows,
        size=size,
        seconds=seconds,
    )
