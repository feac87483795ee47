"""An application: what it reads, what it computes, and what comes out, as functions of DataFrames.

::

    app = hw.App("shop")
    clicks = app.stream("clicks", "user_id long, page string, at timestamp", time="at", lateness="30 seconds")

    @app.view(key=["window", "page"])
    def clicks_by_page(clicks):
        return clicks.groupBy(hw.tumbling("at", "1 minute"), "page").count()

A function's parameters name its inputs. The decorators give the function back as it was, with its declaration
as the attribute ``headwater``, so that a test calls it like any other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, get_args

from headwater.connect.declaration import SourceDeclaration
from headwater.connect.sinks.declaration import SinkDeclaration
from headwater.errors import ApplicationInvalid
from headwater.streams.arguments import (
    TABLE_FORMATS,
    TOPIC,
    at_least_one,
    column_names,
    known_emit,
    known_format,
    output_name,
    parameter_name,
    refuse_bare,
    refuse_same_place,
    topic_name,
)
from headwater.streams.declarations import (
    Chart,
    ChartKind,
    Emit,
    Files,
    Format,
    Function,
    Node,
    OnGap,
    Stream,
    Table,
    Topic,
    View,
)
from headwater.streams.durations import Duration, microseconds
from headwater.streams.graph import Graph, describe, inputs_of
from headwater.streams.schema import Schema, to_ddl

_F = TypeVar("_F", bound=Function)
_N = TypeVar("_N", Stream, Table, View, Topic, Files)

MOST_POINTS = 500  # of a chart


class App:
    """The declarations of an application, in the order in which they were made."""

    def __init__(self, name: str, *, share: bool = True) -> None:
        """`share` lets views of the same stream share a query, which is cheaper; else each has its own."""
        if not TOPIC.match(name):
            raise ApplicationInvalid(
                "declare",
                f"the application {name!r}",
                "its name becomes part of topics' names",
                "Use letters, digits, dots, underscores and dashes.",
            )
        self.name, self.share = name, share
        self._nodes: dict[str, Node] = {}
        self._sources: dict[str, SourceDeclaration] = {}
        self._sinks: dict[str, SinkDeclaration] = {}
        self._charts: list[Chart] = []

    def stream(
        self,
        topic: str,
        schema: Schema = "",
        *,
        name: str | None = None,
        format: str | Format = "json",
        time: str | None = None,
        lateness: Duration = "0 seconds",
        on_gap: OnGap = "fail",
        start: str = "earliest",
        partitions: int = 1,
        metadata: bool = False,
        idle: Duration = "1 minute",
        max_rows: int | None = None,
    ) -> Stream:
        """Declares a topic as a stream of events.

        `time` is the column of the event time; LOG_TIME is when the log took the record, PROCESSING_TIME
        when Spark reads it. `lateness` is how long a window takes corrections. `metadata` adds the columns _key,
        _topic, _partition, _offset, _timestamp and _headers. `idle` is how long the stream may be silent until
        streams joined with it go on without it. `max_rows` bounds a batch. The topic is made, with so many
        `partitions`, when it is not there.

        >>> App("shop").stream("shop.clicks", "page string, at timestamp", time="at").name
        'clicks'
        """
        subject = f"the stream {topic}"
        kind = known_format(format, subject)
        stream = Stream(
            name=parameter_name(name, topic, subject),
            topic=topic_name(topic, subject),
            schema=to_ddl(schema, subject),
            format=kind,
            time=time,
            lateness=microseconds(lateness, use=f"the lateness of {topic}", zero=True),
            on_gap=on_gap,
            start=start,
            partitions=at_least_one(partitions, "partitions", subject),
            metadata=metadata,
            idle=microseconds(idle, use=f"the idle time of {topic}"),
            max_rows=None if max_rows is None else at_least_one(max_rows, "max_rows", subject),
        )
        if not stream.schema and (
            kind.name == "json" or (kind.name == "debezium" and not kind.option("row"))
        ):
            raise ApplicationInvalid(
                "declare", subject, "its values have no schema", "Say it: 'user_id long, page string'."
            )
        if on_gap not in ("fail", "continue"):
            raise ApplicationInvalid("declare", subject, f"on_gap is {on_gap!r}", "Say 'fail' or 'continue'.")
        return self._add(stream, subject)

    def table(
        self,
        topic: str,
        schema: Schema = "",
        *,
        key: str | Sequence[str],
        name: str | None = None,
        format: str | Format = "auto",
        version: int = 1,
    ) -> Table:
        """Declares a topic of changes as a table: the newest row of every key, kept in the view store.

        Values are Debezium's change events or plain rows as JSON objects ("auto" tells them apart; "json" and
        "debezium" say it, and ``hw.debezium`` says more); a record without a value deletes its key. `schema`
        has the columns that the table is to have, those of the `key` among them. Without one they are found when
        the application starts first: in the database that a source of the application captures, else in the topic.

        >>> App("shop").table("shop.users", "id long, name string", key="id").key
        ('id',)
        """
        subject = f"the table {topic}"
        kind = known_format(format, subject, TABLE_FORMATS)
        table = Table(
            name=parameter_name(name, topic, subject),
            topic=topic_name(topic, subject),
            key=column_names(key),
            schema=to_ddl(schema, subject) or str(kind.option("row", "")),
            format=kind,
            version=at_least_one(version, "version", subject),
        )
        return self._add(table, subject)

    def source(self, declaration: SourceDeclaration) -> SourceDeclaration:
        """Declares what fills topics from outside; ``hw.cdc`` gives one for a database.

        >>> from headwater.connect.cdc.factory import cdc
        >>> App("shop").source(cdc("sqlite:///shop.db", tables=["users"])).name
        'shop'
        """
        if not isinstance(declaration, SourceDeclaration):
            raise ApplicationInvalid(
                "declare",
                f"the source {declaration!r}",
                "it is none",
                "Give what hw.cdc(...) returns.",
            )
        self._require_new(declaration.name, f"the source {declaration.describe()}")
        self._sources[declaration.name] = declaration
        return declaration

    def sink(self, declaration: SinkDeclaration) -> SinkDeclaration:
        """Declares what follows a topic outside: ``hw.redis``, ``hw.search`` and ``hw.parquet`` give one.

        >>> from headwater.connect.sinks.factory import redis
        >>> App("shop").sink(redis("redis://localhost", topic="shop.users", key="user:{id}")).name
        'shop.users.redis'
        """
        if not isinstance(declaration, SinkDeclaration):
            raise ApplicationInvalid(
                "declare",
                f"the sink {declaration!r}",
                "it is none",
                "Give what hw.redis(...), hw.search(...) or hw.parquet(...) returns.",
            )
        self._require_new(declaration.name, f"the sink {declaration.describe()}")
        self._sinks[declaration.name] = declaration
        return declaration

    def _require_new(self, name: str, subject: str) -> None:
        """Sources and sinks share a space of names: by these they are run and watched."""
        if name in self._sources or name in self._sinks:
            raise ApplicationInvalid(
                "declare",
                subject,
                f"the application has a {'source' if name in self._sources else 'sink'} named {name!r} already",
                "Give one of them another name with name=...",
            )

    def view(
        self,
        key: str | Sequence[str] = (),
        *,
        name: str | None = None,
        version: int = 1,
        emit: Emit | None = None,
        changelog: bool = True,
    ) -> Callable[[_F], _F]:
        """Keeps what the function computes in the view store, a row a key.

        `emit` says whether a window shows while it is open ("updates", where Spark can) or once it is closed
        ("final"). `changelog` writes every change to the topic <application>.<view>.
        """
        refuse_bare(key, "it has no key", "@app.view(key=...)")

        def declare(function: _F) -> _F:
            subject = describe(function)
            view = View(
                name=output_name(name, function, subject),
                function=function,
                inputs=inputs_of(function),
                key=column_names(key),
                version=at_least_one(version, "version", subject),
                emit=known_emit(emit, subject),
                changelog=changelog,
            )
            return self._attach(function, self._add(view, subject))

        return declare

    def topic(
        self,
        topic: str,
        *,
        key: str | Sequence[str] | None = None,
        name: str | None = None,
        version: int = 1,
        emit: Emit | None = None,
        realtime: bool = False,
        checkpoint: Duration = "5 minutes",
        partitions: int = 1,
    ) -> Callable[[_F], _F]:
        """Writes what the function computes to a topic, as JSON, each row exactly once.

        `realtime` runs it on Spark's real-time mode: a row does not wait for a batch, and arrives at least once.
        Every `checkpoint` it then notes how far it is, for which its rows wait a second or two: what it wrote since
        is what it writes again after a failure.
        """
        refuse_bare(topic, "it names no topic", '@app.topic("shop.clicks")')

        def declare(function: _F) -> _F:
            subject = describe(function)
            output = Topic(
                name=output_name(name, function, subject),
                topic=topic_name(topic, subject),
                function=function,
                inputs=inputs_of(function),
                key=column_names(key) if key is not None else (),
                version=at_least_one(version, "version", subject),
                emit=known_emit(emit, subject),
                realtime=realtime,
                checkpoint=microseconds(checkpoint, use=f"the checkpoint of {topic}"),
                partitions=at_least_one(partitions, "partitions", subject),
            )
            return self._attach(function, self._add(output, subject))

        return declare

    def files(
        self,
        path: str,
        *,
        name: str | None = None,
        partition_by: str | Sequence[str] = (),
        version: int = 1,
    ) -> Callable[[_F], _F]:
        """Writes what the function computes to Parquet files in a directory, each row exactly once."""
        refuse_bare(path, "it names no directory", '@app.files("warehouse/clicks")')

        def declare(function: _F) -> _F:
            subject = describe(function)
            files = Files(
                name=output_name(name, function, subject),
                path=path,
                function=function,
                inputs=inputs_of(function),
                partition_by=column_names(partition_by),
                version=at_least_one(version, "version", subject),
            )
            return self._attach(function, self._add(files, subject))

        return declare

    def chart(
        self,
        view: str,
        x: str | None = None,
        y: str | None = None,
        *,
        by: str | None = None,
        title: str | None = None,
        kind: ChartKind = "line",
        points: int | None = None,
    ) -> Chart:
        """Declares a live chart of a view or a table for the dashboard.

        `x` and `y` are columns of it; a window stands for its start, and ``window.end`` for its end. `by` draws a
        line, or a part of each bar, for each of its values. `kind` is "line", "area", "bar", "pie" or "number";
        a number is the sum of `y` and needs no `x`. At most `points` values of `x` are drawn: of lines and areas
        the last ones, of bars and slices the largest.

        >>> App("shop").chart("clicks_by_country", x="window", y="count", by="country").title
        'clicks_by_country: count by country'
        """
        subject = f"a chart of {view}"
        if kind not in get_args(ChartKind):
            step = f"Say one of {', '.join(map(repr, get_args(ChartKind)))}."
            raise ApplicationInvalid("declare", subject, f"its kind is {kind!r}", step)
        if y is None or (x is None and kind != "number"):
            raise ApplicationInvalid(
                "declare",
                subject,
                "it lacks a column",
                'Name both: app.chart("sales", x="window", y="total").',
            )
        few = {"bar": 20, "pie": 8}.get(kind, 120)
        chart = Chart(
            view=view,
            x=x,
            y=y,
            by=by,
            title=title or f"{view}: {y}" + (f" by {by}" if by else ""),
            kind=kind,
            points=min(MOST_POINTS, at_least_one(points or few, "points", subject)),
        )
        self._charts.append(chart)
        return chart

    def graph(self) -> Graph:
        """Who reads whom; refuses an application that cannot run."""
        for chart in self._charts:
            self._check_chart(chart)
        return Graph.of(self._nodes.values(), self._sources.values(), self._sinks.values())

    @property
    def nodes(self) -> Iterable[Node]:
        """The declarations, in the order in which they were made."""
        return self._nodes.values()

    @property
    def sources(self) -> Iterable[SourceDeclaration]:
        """What fills topics from outside, in the order in which it was declared."""
        return self._sources.values()

    @property
    def sinks(self) -> Iterable[SinkDeclaration]:
        """What follows topics outside, in the order in which it was declared."""
        return self._sinks.values()

    @property
    def connectors(self) -> list[SourceDeclaration | SinkDeclaration]:
        """Sources and sinks: what `headwater connect` runs."""
        return [*self._sources.values(), *self._sinks.values()]

    @property
    def charts(self) -> Sequence[Chart]:
        """The charts of the dashboard, in the order in which they were declared."""
        return tuple(self._charts)

    def _check_chart(self, chart: Chart) -> None:
        """The view may be declared after its chart, so this waits for the start. Columns are known later still."""
        kept = [node.name for node in self._nodes.values() if isinstance(node, View | Table)]
        if chart.view not in kept:
            raise ApplicationInvalid(
                "draw",
                f"the chart {chart.title!r}",
                f"there is no view or table {chart.view!r}",
                f"Name one of {', '.join(sorted(kept))}." if kept else "Declare a view.",
            )

    def _add(self, node: _N, subject: str) -> _N:
        if node.name in self._nodes:
            raise ApplicationInvalid(
                "declare",
                subject,
                f"the application has a {self._nodes[node.name].kind} named {node.name!r} already",
                "Give one of them another name with name=...",
            )
        for other in self._nodes.values():
            refuse_same_place(node, other, subject)
        self._nodes[node.name] = node
        return node

    def _attach(self, function: _F, node: Node) -> _F:
        function.headwater = node  # type: ignore[attr-defined]
        function.headwater_app = self  # type: ignore[attr-defined]
        return function
