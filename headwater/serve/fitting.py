"""Whether an event fits a topic: the rules of the stream's or table's own reader, asked before the event is written.

What is taken here is an event to Spark as well, and what is refused here would have been a dead letter there. A
schema with a type that these rules do not know (an interval, a variant) is Spark's to judge: then an event has to
be a JSON object, and no more is asked of it here. Of a topic that several streams read, an event has to fit one. A
table that declares no columns takes any object with its key, until it is built; from then on it has columns.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as spark

from headwater.errors import BadInput, UnknownTopic
from headwater.serve.ddl import UnknownType, struct_of
from headwater.serve.record_keys import Keyed, json_object, keyed
from headwater.streams.app import App
from headwater.streams.columns import kept_columns
from headwater.streams.declarations import LOG_TIME, PROCESSING_TIME, Node, Stream, Table
from headwater.streams.formats.changes import ChangeReader
from headwater.streams.required import lacking_in
from headwater.streams.sources.json_objects import Odd, fitted, fitter
from headwater.streams.sources.json_rules import Misfit, can_convert, converter, parse, text_of
from headwater.views.store import ViewStore

LOOK_SECONDS = 1.0  # between looks whether a table has been built

ZONE = "UTC"  # of timestamps without one; the engine's sessions have it too
LONGEST_REASON = 500
LONGEST_LIST = 10


class Fitting:
    """The events of one topic.

    >>> clicks = Fitting(App("shop").stream("clicks", "page string, n long, at timestamp", time="at"))
    >>> clicks.problem(b'{"page": "/", "at": "2026-01-05T10:00:00Z"}')
    >>> clicks.problem(b'{"page": "/", "n": "x", "at": "2026-01-05T10:00:00Z"}')
    'n: "x" is not a long'
    >>> clicks.problem(b'{"page": "/"}')
    "the event time 'at' is missing"
    >>> Fitting(App("shop").stream("carts", "id long NOT NULL")).problem(b"{}")
    "'id' is missing, and the schema says NOT NULL"
    """

    def __init__(self, node: Stream | Table, *others: Stream | Table) -> None:
        self.topic, self.name = node.topic, node.name
        self.node, self.nodes = node, (node, *others)
        self._readers = [_Reader(each) for each in (node, *others)]
        self.columns = tuple(dict.fromkeys(name for each in self._readers for name in each.columns))
        self.key: tuple[str, ...] = next((each.key for each in self._readers if each.key), ())

    @property
    def awaits_columns(self) -> bool:
        """Whether a table of it declares none, and none were found yet."""
        return any(isinstance(node, Table) and not node.schema for node in self.nodes)

    def problem(self, value: bytes) -> str | None:
        """Why the value is no event of the topic; None when it is one."""
        first: str | None = None
        for reader in self._readers:
            found = reader.problem(value)
            if found is None:
                return None
            first = first or found
        return first[:LONGEST_REASON] if first is not None else None

    def require_columns(self, columns: Sequence[str]) -> None:
        """Refuses columns that events of the topic do not have."""
        for column in columns:
            if self.columns and column not in self.columns:
                raise BadInput(
                    "write to",
                    self.topic,
                    f"the key is to be {column!r}, and the columns are {', '.join(self.columns)}",
                    "Name one of them in ?key=.",
                )

    def key_of(self, value: bytes, columns: Sequence[str]) -> bytes | None:
        """The key of a record: of a stream's one column its text, else a JSON object of the columns.

        Misfit when the values are none of the columns' types.

        >>> Fitting(App("shop").stream("clicks", "user long")).key_of(b'{"user": 7}', ["user"])
        b'7'
        >>> Fitting(App("shop").table("users", "id long", key="id")).key_of(b'{"id": 7, "n": 1}', ["id"])
        b'{"id":7}'
        """
        if not columns:
            return None
        first: Misfit | None = None
        for reader in self._readers:
            try:
                return reader.key_of(value, tuple(columns))
            except Misfit as misfit:
                first = first or misfit
        assert first is not None
        raise first


class _Reader:
    """What one stream or table makes of a value."""

    def __init__(self, node: Stream | Table) -> None:
        self.key: tuple[str, ...] = node.key if isinstance(node, Table) else ()
        try:
            schema = struct_of(node.schema)
        except UnknownType:
            schema = spark.StructType()
        self._schema = schema
        self._keys: dict[tuple[str, ...], Keyed] = {}  # by their columns
        self._is_table = isinstance(node, Table)
        self.columns = tuple(schema.fieldNames())
        is_known = bool(self.columns) and can_convert(schema)
        self._fit = fitter(schema, ZONE) if is_known else None
        self._rules = converter(schema, ZONE) if is_known else None
        self._time = node.time if isinstance(node, Stream) else None
        if self._time in (LOG_TIME, PROCESSING_TIME):
            self._time = None
        self._changes: ChangeReader | None = None
        if isinstance(node, Table):
            types = {field.name: field.dataType.simpleString() for field in schema.fields}
            self._changes = ChangeReader(types, node.key, "json" if node.format.name == "json" else "auto")

    def problem(self, value: bytes) -> str | None:
        try:
            row = self._row(value)
            if self._time is not None and row.get(self._time) is None:
                return f"the event time {self._time!r} is missing"
            if self._fit is not None and not self._is_table:
                missing = lacking_in(row, self._schema)
                if missing is not None:
                    return missing
            for column in self.key:
                if row.get(column) is None:
                    return f"it has no {column!r}, which is the table's key"
            if self._changes is not None:
                change = self._changes.read(None, value)
                if change is None or change.kind != "upsert":
                    return "it is a change event, and rows are wanted"
        except ValueError as error:  # of which Misfit is one
            return str(error)
        return None

    def key_of(self, value: bytes, columns: tuple[str, ...]) -> bytes | None:
        find = self._keys.get(columns)
        if find is None:
            as_object = self._is_table or len(columns) > 1
            find = keyed(self._schema, columns, ZONE, as_object=as_object)
            if self.columns:  # else anybody could name as many as they like
                self._keys[columns] = find
        return find(value)

    def _row(self, value: bytes) -> dict[str, Any]:
        if self._fit is None or self._rules is None:
            return json_object(value)
        try:
            return fitted(value, self._fit)
        except Odd:
            return parse(text_of(value), self._rules)


def fittings(app: App) -> dict[str, Fitting]:
    """The topics of an application that take events over HTTP: streams and tables of plain JSON, unless a source
    fills them.

    >>> app = App("shop")
    >>> declared = app.stream("clicks", "page string"), app.stream("frames", format="raw")
    >>> list(fittings(app))
    ['clicks']
    """
    nodes: dict[str, list[Stream | Table]] = {}
    for node in app.nodes:
        if isinstance(node, Stream | Table) and _why_not(app, node) is None:
            nodes.setdefault(node.topic, []).append(node)
    return {topic: Fitting(*found) for topic, found in nodes.items()}


class Fittings:
    """The topics of an application, with the columns that tables have got since they were built."""

    def __init__(self, app: App, store: ViewStore) -> None:
        self._store = store
        self._known = fittings(app)
        self._looked = 0.0
        self._lock = threading.Lock()

    def get(self, topic: str) -> Fitting | None:
        """What is known of a topic; None when it takes no events."""
        return self._known.get(topic)

    def current(self) -> dict[str, Fitting]:
        """All topics, with what the store says by now of tables whose columns were not known."""
        with self._lock:
            waiting = [each for each in self._known.values() if each.awaits_columns]
            if waiting and time.monotonic() - self._looked > LOOK_SECONDS:
                infos = {info.name: info for info in self._store.views()}
                for fitting in waiting:
                    nodes = [
                        (kept_columns(node, infos.get(node.name)) or node)
                        if isinstance(node, Table) and not node.schema
                        else node
                        for node in fitting.nodes
                    ]
                    if nodes != list(fitting.nodes):
                        self._known[fitting.topic] = Fitting(*nodes)
                self._looked = time.monotonic()
            return dict(self._known)


def _why_not(app: App, node: Node) -> str | None:
    if not isinstance(node, Stream | Table):
        return f"it is what the {node.kind} {node.name} computes"
    if node.format.name not in ("json", "auto"):
        return f"its values are {node.format.name}, and events over HTTP are JSON"
    for source in app.sources:
        if source.feeds(node.topic):
            return f"the source {source.name} fills it"
    return None


def refuse_topic(app: App, topic: str, known: Sequence[str]) -> UnknownTopic:
    """Why a topic takes no events over HTTP, and what to do."""
    step = (
        f"Write to one that does: {', '.join(known[:LONGEST_LIST])}."
        if known
        else "Declare it: app.stream(topic, schema)."
    )
    step += " A Kafka client can write to any topic."
    for node in app.nodes:
        if getattr(node, "topic", None) == topic and (why := _why_not(app, node)) is not None:
            return UnknownTopic("write to", topic, f"it takes no events over HTTP: {why}", step)
    return UnknownTopic("write to", topic, f"{app.name} declares no stream and no table of it", step)
