"""What the view store is told and what it answers. Plain data; nothing here touches a database."""

import functools
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson
import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """A column of a view. ``type`` is Spark's simple type string, such as ``bigint`` or ``array<string>``."""

    name: str
    type: str


@dataclass(frozen=True)
class ViewSchema:
    """The columns of one version of a view, and those of them that identify a row.

    >>> schema = ViewSchema("words", 1, (Column("word", "string"), Column("n", "bigint")), ("word",))
    >>> ViewSchema.from_json("words", 1, schema.to_json()) == schema
    True
    """

    name: str
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @functools.cached_property
    def types(self) -> dict[str, str]:
        """The type of each column, by name."""
        return {column.name: column.type for column in self.columns}

    def to_json(self) -> str:
        """Columns and key as the store keeps them; equal texts mean equal tables."""
        columns = [[column.name, column.type] for column in self.columns]
        return orjson.dumps({"columns": columns, "key": self.key}).decode()

    @classmethod
    def from_json(cls, name: str, version: int, text: str) -> "ViewSchema":
        """The reverse of ``to_json``."""
        kept = orjson.loads(text)
        columns = tuple(Column(column, kind) for column, kind in kept["columns"])
        return cls(name, version, columns, tuple(kept["key"]))


@dataclass(frozen=True)
class Batch:
    """What one micro-batch does to a view.

    Of several rows with one key the last in table order counts. A key that is among ``deleted_keys`` and
    has a row as well keeps the row: deletes come first.
    """

    id: int
    rows: pa.Table
    deleted_keys: pa.Table | None = None  # the key's columns
    offsets: dict[str, Any] = field(default_factory=dict)  # of the inputs, after this batch; kept as JSON
    watermark: datetime | None = None


@dataclass(frozen=True)
class Progress:
    """How far one version of a view has come."""

    version: int
    batch: int | None  # None before the first
    offsets: dict[str, Any]
    watermark: datetime | None
    committed: datetime | None  # when the batch was committed
    rows: int


@dataclass(frozen=True)
class VersionInfo:
    """One version of a view, as ``ViewStore.views`` lists it."""

    schema: ViewSchema
    fingerprint: str
    state: Literal["building", "serving"]
    progress: Progress

    @property
    def version(self) -> int:
        """Its number."""
        return self.schema.version


@dataclass(frozen=True)
class ViewInfo:
    """A view and its versions, oldest first."""

    name: str
    serving: int | None  # the version that the name shows
    last_change: int
    versions: tuple[VersionInfo, ...]


@dataclass(frozen=True)
class Change:
    """One entry of a view's outbox: a row that appeared or became another, or a key that went.

    ``key`` is a JSON object of the key's columns and ``value`` one of all columns, both as a changelog
    topic gets them; the same key always has the same text. Times are ISO 8601 in UTC, binary is base64,
    decimals are numbers, NaN and the infinities are strings.
    """

    number: int
    batch: int | None  # None when a switch of versions made it before the new one had a batch
    op: Literal["upsert", "delete"]
    key: str
    value: str | None = None

    @property
    def row(self) -> dict[str, Any] | None:
        """The row in JSON's types; None for a delete.

        >>> Change(7, 3, "upsert", '{"word":"a"}', '{"word":"a","n":2}').row
        {'word': 'a', 'n': 2}
        """
        return None if self.value is None else orjson.loads(self.value)


@dataclass(frozen=True)
class Snapshot:
    """A view at one moment: what ``changes(view, last_change, ...)`` returns later follows on these rows."""

    schema: ViewSchema
    rows: list[dict[str, Any]]
    progress: Progress
    last_change: int


@dataclass(frozen=True)
class Reading:
    """Rows of a view as JSON, with the version they are of and how far it had come at that moment."""

    schema: ViewSchema
    rows: list[str]
    progress: Progress
    last_change: int


@dataclass(frozen=True)
class News:
    """What was read of a view's outbox, and how the view stood at that moment.

    When the last of the changes has the number ``last_change`` (or there is none to come), ``progress`` is of
    just the content that they lead to.
    """

    schema: ViewSchema
    progress: Progress
    last_change: int
    changes: list[Change]
