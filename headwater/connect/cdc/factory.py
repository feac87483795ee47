"""``hw.cdc``: a database's changes as a source of an application."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from headwater.connect.cdc.options import CHUNK_ROWS, CdcOptions, Database, OnGap, SnapshotMode
from headwater.connect.columns import Column
from headwater.connect.doctor import Check
from headwater.connect.source import Source

# Where each database's source is; imported when it is needed, with the driver that it needs.
_SOURCES: dict[Database, tuple[str, str]] = {
    "postgres": ("headwater.connect.cdc.postgres.source", "PostgresSource"),
    "mysql": ("headwater.connect.cdc.mysql.source", "MySQLSource"),
    "sqlite": ("headwater.connect.cdc.sqlite.source", "SQLiteSource"),
}


@dataclass(frozen=True)
class Capture:
    """A declared capture; nothing is connected before it runs."""

    options: CdcOptions

    kind = "source"

    @property
    def name(self) -> str:
        """Its identity in the log, and what stands in front of its topics."""
        return self.options.logical_name

    def describe(self) -> str:
        """A few words for the graph."""
        tables = self.options.tables
        return f"{self.options.shown_url}, {'all tables' if tables is None else ', '.join(tables)}"

    def feeds(self, topic: str) -> bool:
        """Whether it may write to a topic: whether it is called like one of its tables."""
        if topic in self.options.own_topics:
            return True
        if self.options.tables is None:
            return topic.startswith(f"{self.name}.")
        return any(topic in _names(self.options, table) for table in self.options.tables)

    def make(self, data: Path) -> Source:
        """The source, not yet connected."""
        module, name = _SOURCES[self.options.database]
        source: Source = getattr(import_module(module), name)(replace(self.options, data=data))
        return source

    def columns(self, topic: str) -> Sequence[Column] | None:
        """What the database says of the table that becomes this topic; None when it has no such table."""
        module = import_module(f"headwater.connect.cdc.{self.options.database}.columns")
        found: Sequence[Column] | None = module.read_columns(self.options, topic)
        return found


def cdc(
    url: str,
    tables: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    snapshot: SnapshotMode = "initial",
    transactions: bool = False,
    on_gap: OnGap = "fail",
    outbox: str | None = None,
    chunk_rows: int = CHUNK_ROWS,
    heartbeat: float | None = None,
    **settings: Any,
) -> Capture:
    """Captures the changes of a database, each of them once, for ``app.source``.

    Every table becomes a topic ``<name>.<table>`` of change events in Debezium's envelope, keyed by its primary key;
    `name` is the database's unless given. `tables` are all unless named. ``snapshot="initial"`` begins with the rows
    that are there, "never" with the changes from now on. `transactions` adds Debezium's transaction metadata. `on_gap`
    is what happens when the database no longer has changes that were yet to be read. `outbox` is a table whose rows
    are events. Further `settings` belong to one kind of database; docs/connect.md has them.

    >>> capture = cdc("sqlite:///shop.db", tables=["users", "orders"])
    >>> capture.name, capture.feeds("shop.users"), capture.feeds("shop.visits")
    ('shop', True, False)
    """
    return Capture(
        CdcOptions(
            url=url,
            tables=_tables(tables),
            name=name,
            snapshot=snapshot,
            transactions=transactions,
            on_gap=on_gap,
            outbox=outbox,
            chunk_rows=chunk_rows,
            heartbeat=heartbeat,
            settings=settings,
        )
    )


def examine(options: CdcOptions) -> list[Check]:
    """What the database needs for capture, checked one by one."""
    module = import_module(f"headwater.connect.cdc.{options.database}.doctor")
    checks: list[Check] = module.examine(options)
    return checks


def _tables(tables: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if tables is None:
        return None
    return (tables,) if isinstance(tables, str) else tuple(tables)


def _names(options: CdcOptions, table: str) -> set[str]:
    """What the topic of a table may be called: PostgreSQL leaves its schema `public` out."""
    schema, dot, bare = table.partition(".")
    names = {options.topic(table)}
    if dot and (schema == "public" or options.database == "mysql"):
        names.add(options.topic(bare))
    homes = {"postgres": "public", "mysql": options.path_name, "sqlite": "main"}
    return names | {options.table_topic(homes[options.database], table)}
