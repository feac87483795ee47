"""What an application declares: streams, tables, views, topics and files. Plain data; nothing here runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[..., "DataFrame"]

# What a view or a topic shows of a window: every change of it, or its last state once it is closed.
Emit = Literal["updates", "final"]

# How a chart of a view is drawn.
ChartKind = Literal["line", "area", "bar", "pie", "number"]

# What a pipeline does when retention has removed records that it had yet to read.
OnGap = Literal["fail", "continue"]

LOG_TIME = "_timestamp"
PROCESSING_TIME = "_processed"


@dataclass(frozen=True)
class Stream:
    """A topic read as events."""

    name: str
    topic: str
    schema: str  # of the values, as DDL; empty for a format that brings its own
    format: "Format"
    time: str | None = None
    lateness: int = 0  # microseconds
    on_gap: OnGap = "fail"
    start: str = "earliest"
    partitions: int = 1
    metadata: bool = False
    idle: int = 60_000_000  # microseconds without a record until the others' time goes on alone
    max_rows: int | None = None

    kind = "stream"
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A topic of changes read as current state: the newest row of every key, kept in the view store."""

    name: str
    topic: str
    key: tuple[str, ...]
    schema: str = ""  # of the rows, as DDL; empty until the columns are found at a start
    format: "Format" = field(default_factory=lambda: Format("auto"))
    version: int = 1

    kind = "table"
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes(Stream):
    """The stream of a table's changes, as the engine reads it; no function sees it."""

    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """How values are written: ``json``, ``avro``, ``protobuf``, ``debezium`` or ``raw``, with what that needs.

    Of a table, ``auto`` tells change events and plain rows apart by their looks.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, key: str, default: Any = None) -> Any:
        """One of the options.

        >>> Format("avro", (("schema", "{}"),)).option("schema")
        '{}'
        """
        return dict(self.options).get(key, default)


@dataclass(frozen=True)
class View:
    """A table that a function computes, kept in the view store."""

    name: str
    function: Function = field(repr=False, compare=False)
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    version: int = 1
    emit: Emit | None = None
    changelog: bool = True

    kind = "view"


@dataclass(frozen=True)
class TableView(View):
    """A table as the view that the engine keeps of it."""

    kind = "table"


@dataclass(frozen=True)
class Topic:
    """A topic that a function fills."""

    name: str
    topic: str
    function: Function = field(repr=False, compare=False)
    inputs: tuple[str, ...]
    key: tuple[str, ...] = ()
    version: int = 1
    emit: Emit | None = None
    realtime: bool = False
    checkpoint: int = 300_000_000  # of a query in real time: every so many microseconds
    partitions: int = 1

    kind = "topic"


@dataclass(frozen=True)
class Files:
    """A directory of Parquet files that a function fills."""

    name: str
    path: str
    function: Function = field(repr=False, compare=False)
    inputs: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    version: int = 1

    kind = "files"


@dataclass(frozen=True)
class Chart:
    """A live chart of a view or a table, for the dashboard."""

    view: str
    x: str | None
    y: str
    by: str | None = None
    title: str = ""
    kind: ChartKind = "line"
    points: int = 120  # of x, at most; of bars and slices the largest, of lines the last


Input = Stream | Table
Output = View | Topic | Files
Node = Input | Output
