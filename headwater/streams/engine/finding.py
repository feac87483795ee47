"""Finding the columns of tables that declare none, when an application starts.

In this order: what the table's build has (a restart changes nothing), what the database says that a source of the
application captures into the topic, and what the topic shows: a schema beside its values, the schema events of our
capture, or the values themselves. Whatever is found first is the table's definition until it gets a new version.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import orjson

from headwater.client.admin import Admin, both_ends
from headwater.client.connection import Connection
from headwater.client.reader import BEGINNING, Reader, Start
from headwater.connect.cdc.options import SCHEMES
from headwater.connect.columns import Reading
from headwater.connect.declaration import KnowsColumns, SourceDeclaration
from headwater.errors import ApplicationInvalid, HeadwaterError, UnknownTopic
from headwater.streams.columns import FIND, Found, kept_columns, with_columns
from headwater.streams.declarations import Table
from headwater.streams.formats.changes import Shape
from headwater.streams.graph import Graph
from headwater.streams.inference import Record, Sample
from headwater.streams.tables import OWN
from headwater.views.model import ViewInfo
from headwater.views.store import open_store

logger = logging.getLogger("headwater.streams")

OLDEST = NEWEST = 1000  # records that are looked at, of all partitions together
LOOKED_AFTER = 200  # of the newest, when a table is built already
MOST_PARTITIONS = 16


def with_found_columns(graph: Graph, store: str, connection: Connection) -> Graph:
    """The graph with the columns of all its tables; ApplicationInvalid says of which none are to be found."""
    bare = [node for node in graph.nodes.values() if isinstance(node, Table) and not node.schema]
    if not bare:
        return graph
    with open_store(store) as opened:
        known = {info.name: info for info in opened.views()}
    finder = Finder(graph, connection)
    nodes = dict(graph.nodes)
    for table in bare:
        nodes[table.name] = finder.described(table, known.get(table.name))
    return replace(graph, nodes=nodes)


class Finder:
    """Asks the sources of an application and its topics."""

    def __init__(self, graph: Graph, connection: Connection) -> None:
        self._graph, self._connection = graph, connection

    def described(self, table: Table, known: ViewInfo | None) -> Table:
        """The table with its columns."""
        kept = kept_columns(table, known)
        if kept is not None and known is not None:
            names = {*known.versions[-1].schema.types, *OWN}
            look = threading.Thread(
                target=self._look_for_more, args=(table, names), name="columns", daemon=True
            )
            look.start()  # nobody waits for a database that is away
            return kept
        return with_columns(table, self._find(table), OWN)

    def _find(self, table: Table) -> Found:
        reasons = []
        for source in self._sources(table):
            try:
                found = _asked(source, table)
            except HeadwaterError as error:
                # Concluded from the topic, the types would be others, and would stay so.
                raise ApplicationInvalid(
                    FIND,
                    f"the table {table.name}",
                    f"the source {source.name} cannot be asked: {error.cause}",
                    f"{_declare(table)}, or start when it can be asked.",
                ) from error
            if found is not None:
                return found
            reasons.append(f"the source {source.name} has no table for the topic {table.topic}")
        if not reasons:
            reasons.append(f"no source of the application fills the topic {table.topic}")
        try:
            found = self._from_topic(table, OLDEST, NEWEST)
        except UnknownTopic:
            found, reason = None, "the topic is not there"
        else:
            reason = "the topic has no row"
        if found is not None:
            return found
        raise ApplicationInvalid(
            FIND,
            f"the table {table.name}",
            f"{'; '.join(reasons)}, and {reason}",
            f"{_declare(table)}, or start when the first row is there.",
        )

    def _sources(self, table: Table) -> list[SourceDeclaration]:
        if table.format.name == "json":  # and capture writes change events
            return []
        return [self._graph.sources[name] for name in self._graph.feeding(table)]

    def _from_topic(self, table: Table, oldest: int, newest: int) -> Found | None:
        shape: Shape = table.format.name  # type: ignore[assignment]
        sample = Sample(_records(self._connection, table.topic, oldest, newest), shape)
        told = None
        if sample.source and sample.rows and not sample.brings_schema:
            # Somebody else's topic may have the name; what is not told is concluded.
            with suppress(HeadwaterError, ImportError, LookupError, TypeError):
                told = _schema_event(self._connection, sample)
        return sample.found(table.key, f"the topic {table.topic}", told)

    def _look_for_more(self, table: Table, names: set[str]) -> None:
        """Says which columns there are by now that a built table lacks."""
        try:
            asked = [_asked(source, table) for source in self._sources(table)]
            found = next(filter(None, asked), None) or self._from_topic(table, 0, LOOKED_AFTER)
        except HeadwaterError as error:
            logger.debug("whether %s has new columns is not known: %s", table.name, error)
            return
        new = [name for name in found.names if name not in names] if found is not None else []
        if found is not None and new:
            logger.warning(
                "the table %s lacks columns that %s has by now: %s. Declare it with version=%s to have them.",
                table.name,
                found.where,
                ", ".join(new),
                table.version + 1,
            )


def _declare(table: Table) -> str:
    key = ", ".join(f"{name} ..." for name in table.key)
    return f'Declare the schema: app.table("{table.topic}", "{key}, ...")'


def _asked(source: SourceDeclaration, table: Table) -> Found | None:
    columns = source.columns(table.topic) if isinstance(source, KnowsColumns) else None
    return None if columns is None else Found(tuple(columns), f"the source {source.name}")


def _records(connection: Connection, topic: str, oldest: int, newest: int) -> Iterator[Record]:
    """The oldest and the newest committed records of a topic, each once, partition by partition."""
    admin = Admin(connection)
    partitions = [(topic, number) for number in admin.partitions(topic)][:MOST_PARTITIONS]
    ends = both_ends(admin, partitions, committed=True)
    first, last = oldest // len(partitions), newest // len(partitions)
    for _, number in partitions:
        begin, end = ends[topic, number]
        is_short = end - begin <= first + last
        starts = [BEGINNING] if is_short else [BEGINNING, Start.before_end(last)]
        for start, most in zip(starts, [end - begin] if is_short else [first, last], strict=True):
            if most:
                yield from _read(admin, topic, number, start, most)


def _read(admin: Admin, topic: str, partition: int, start: Start, most: int) -> Iterator[Record]:
    left = most
    with Reader(
        admin.connection, [topic], start=start, partitions=[partition], to_end=True, admin=admin
    ) as reader:
        for batch in reader.batches():
            for message in batch[:left]:
                yield Record(message.key(), message.value())
            left -= len(batch)
            if left <= 0:
                return


def _schema_event(connection: Connection, sample: Sample) -> Mapping[str, Reading | None] | None:
    """What our capture said of the table last."""
    source = sample.source
    database = {"postgresql": "postgres", "mariadb": "mysql"}.get(source["connector"], source["connector"])
    if database not in SCHEMES.values():
        return None
    parts = {"postgres": ("schema", "table"), "mysql": ("db", "table")}.get(database, ("table",))
    name = ".".join(str(source.get(part)) for part in parts)
    newest: Any = None
    for record in _records(connection, f"{source['name']}.schema", OLDEST, NEWEST):
        with suppress(ValueError):
            event = orjson.loads(record.value or b"null")
            if isinstance(event, dict) and event.get("table") == name and event.get("columns"):
                newest = event
    if newest is None:
        return None
    reading_of = import_module(f"headwater.connect.cdc.{database}.columns").reading_of
    return {
        column["name"]: reading_of(column["type"], sample.values(column["name"]))
        for column in newest["columns"]
    }
