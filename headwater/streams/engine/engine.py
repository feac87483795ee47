"""The engine: everything between an application's declarations and its running queries.

Start: the graph is checked, Spark starts, every function is called and what it gives is checked; only then
are topics and views made and queries started. Stop: queries end (a batch under way is left, and repeated at
the next start), then what follows from the views is brought up to them.
"""

import logging
import threading
import time
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.marked import prepare_marks
from headwater.connect.writing import LARGEST_RECORD
from headwater.errors import EngineLost, HeadwaterError
from headwater.streams import loading, realtime
from headwater.streams.app import App
from headwater.streams.aside import Aside, dead_topic, late_topic
from headwater.streams.declarations import Changes, Stream, Table, TableView, Topic, View
from headwater.streams.engine import sharing
from headwater.streams.engine.catalogue import Catalogue
from headwater.streams.engine.changelog import Changelog
from headwater.streams.engine.checkpoint import Checkpoint
from headwater.streams.engine.finding import with_found_columns
from headwater.streams.engine.liveness import NOTICE_SECONDS, Liveness
from headwater.streams.engine.recompute import Recompute
from headwater.streams.engine.running import Member, RunningQuery
from headwater.streams.engine.session import shuffle_partitions, start_session
from headwater.streams.engine.shipping import send_by_value
from headwater.streams.engine.status import Meter, OutputStatus, StatusFile, document_of, with_failure
from headwater.streams.engine.ticking import Ticking
from headwater.streams.inputs import events
from headwater.streams.planning import Plan, plan
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.files import FileSink
from headwater.streams.sinks.tables import TableSink
from headwater.streams.sinks.topics import TopicSink
from headwater.streams.sinks.views import ViewSink
from headwater.streams.sources.jars import find_jars
from headwater.views.model import ViewInfo
from headwater.views.store import ViewStore, open_store

logger = logging.getLogger("headwater.streams")

TICK_SECONDS = 1.0
LAG_SECONDS = 2.0
SWEEP_SECONDS = 10.0
CAUGHT_UP = 1000  # records behind at most when a new build takes over

# A table's topic that is not there yet is made as a capture would make it.
TABLE_TOPIC = {"cleanup.policy": "compact", "max.message.bytes": str(LARGEST_RECORD)}


class Engine:
    """A running application."""

    spark: SparkSession
    store: ViewStore
    catalogue: Catalogue

    def __init__(
        self,
        app: App,
        settings: StreamSettings,
        spark: SparkSession | None = None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loss` is told when Spark has ended by itself; `loss` says why, and `stop` is left to do."""
        self.app, self.settings = app, settings
        self._on_loss = on_loss
        self._liveness: Liveness | None = None
        self.graph = app.graph()
        self.connection = Connection(settings.bootstrap, settings.properties)
        self.status: dict[str, OutputStatus] = {}
        self._given_spark = spark
        self._queries: dict[str, RunningQuery] = {}
        self._replayed: list[sharing.Member] = []  # builds that were made and are yet to be begun
        self._dead_owners: set[str] = set()
        self._followers: list[Recompute | Changelog | Aside] = []
        self._file = StatusFile(settings.data, app.name)
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self._admin: Admin | None = None
        self._measured = 0.0
        self._ends: dict[tuple[str, int], int] = {}
        self._swept: list[Stream] = []  # streams whose dead values no query counts
        self._swept_at = 0.0

    # -- start ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Checks everything, then starts everything."""
        self._jars = find_jars(self.settings)
        quick = [output for output in self.graph.outputs() if isinstance(output, Topic) and output.realtime]
        for output in quick:
            realtime.require_connector(self._jars, output)
        # Spark takes seconds to start; nobody should wait for these.
        self.connection.require_listener()
        self.graph = with_found_columns(self.graph, self.settings.store, self.connection)
        self.spark = self._given_spark or start_session(
            self.settings, self.app.name, jars=self._jars, slots=self._slots(quick)
        )
        if self._given_spark is None:
            self._liveness = Liveness(self.spark, self.app.name, self._on_loss)
        try:
            self._start()
        except (Py4JError, OSError) as error:
            raise self.loss(NOTICE_SECONDS) or error from error

    def loss(self, seconds: float = 0.0) -> EngineLost | None:
        """The error for a Spark that has ended by itself, now or within these seconds."""
        return self._liveness.lost(seconds) if self._liveness is not None else None

    def _start(self) -> None:
        send_by_value(loading.folders)
        planned = plan(self.spark, self.graph, self._open)
        self._make_topics(planned)
        self.store = open_store(self.settings.store)
        self.catalogue = Catalogue(
            self.spark, self.app, self.graph, self.settings, self.store, planned, self._open
        )
        queries = self.catalogue.choose()
        for name in self.catalogue.recomputed:
            build = self.catalogue.builds[name].number
            self.status[name] = OutputStatus(name, "view", state="running", build=build)

        self._aside = Aside(self.spark, self.settings, self.app.name)
        changelogs = {
            node.name: f"{self.app.name}.{node.name}"
            for node in self.graph.outputs()
            if isinstance(node, View) and node.changelog
        }
        self._changelog = Changelog(self.store, self.connection, changelogs, self.app.name)
        self._recompute = Recompute(
            self.spark,
            self.store,
            planned.recomputed,
            self.catalogue.schemas(),
            self.catalogue.builds,
            lambda name: self._changelog.news(),
        )
        # In the order in which they end: each takes what those before it leave.
        self._followers = [self._recompute, self._changelog, self._aside]
        for follower in self._followers:
            follower.begin()
        for members in queries:
            self._begin(members)
        self._ticker.start()

    def _slots(self, quick: list[Topic]) -> int | None:
        """How many tasks have to run at once, where there are queries that run in real time."""
        if not quick:
            return None
        # A topic that is there may have more partitions than are declared: those without a slot would not be read.
        there = {topic.name: topic.partitions for topic in Admin(self.connection).topics()}
        partitions = {
            node.name: there.get(node.topic, node.partitions)
            for node in self.graph.nodes.values()
            if isinstance(node, Stream | Topic)
        }
        reads = [sum(partitions.get(name, 1) for name in topic.inputs) for topic in quick]
        return realtime.slots(reads, shuffle_partitions())

    def _open(self, stream: Stream, quick: bool, ticks: str | None = None) -> DataFrame:
        connector = quick or self.settings.source == "connector"
        return events(self.spark, stream, self.settings, connector=connector, realtime=quick, ticks=ticks)

    def _make_topics(self, planned: Plan) -> None:
        admin = self._admin = Admin(self.connection)
        prepare_marks(self.connection)
        there = {topic.name for topic in admin.topics()}
        wanted: dict[str, tuple[int, dict[str, str]]] = {}
        for stream in planned.streams.values():
            wanted[stream.topic] = (stream.partitions, TABLE_TOPIC if isinstance(stream, Changes) else {})
            wanted[dead_topic(stream.name)] = (1, {})
        for output in self.graph.outputs():
            if isinstance(output, Topic):
                wanted[output.topic] = (output.partitions, {})
            if isinstance(output, View) and output.changelog:
                wanted[f"{self.app.name}.{output.name}"] = (1, {"cleanup.policy": "compact"})
        for pipeline in planned.pipelines:
            if any(stream.time is not None for stream in pipeline.streams):
                wanted[late_topic(pipeline.output.name)] = (1, {})
        for name, (partitions, configs) in wanted.items():
            if name not in there:
                admin.create_topic(name, partitions, configs=configs, exist_ok=True)

    # -- queries -------------------------------------------------------------------------------------

    def _begin(self, members: tuple[sharing.Member, ...]) -> None:
        query = sharing.query_name(members)
        checkpoint = self.catalogue.checkpoint(query)
        ticking = self._prepare_ticks(members[0])
        running = [self._member(member, query, checkpoint) for member in members]
        first = running[0].pipeline
        if not isinstance(first.output, View) and checkpoint.definition() is None:
            checkpoint.define(first.fingerprint)
        streams = running[0].pipeline.streams
        own = [stream for stream in streams if stream.name not in self._dead_owners]
        for stream in own:
            self._dead_owners.add(stream.name)
            self._aside.follow(stream)
        changed = self._view_changed if isinstance(running[0].pipeline.output, View) else lambda: None
        started = RunningQuery(
            self.app.name, self.settings, running, checkpoint, self._aside, own, changed, ticking
        )
        self._queries[query] = started
        if started.is_realtime:
            self._swept += own
        started.begin()

    def _prepare_ticks(self, member: sharing.Member) -> Ticking | None:
        topics = self.catalogue.tick_topics(member)
        if not topics:
            return None
        assert self._admin is not None
        for topic in topics.values():
            self._admin.create_topic(topic, 1, configs={"retention.ms": "-1"}, exist_ok=True)
        self.catalogue.reopen(member.name, topics)
        return Ticking(self.connection, self.catalogue.pipelines[member.name].streams, topics)

    def _member(self, member: sharing.Member, query: str, checkpoint: Checkpoint) -> Member:
        pipeline = self.catalogue.pipelines[member.name]
        output = pipeline.output
        status = self.status[member.name] = OutputStatus(member.name, output.kind, build=member.build)
        sink: ViewSink | TopicSink | FileSink | realtime.RealtimeSink
        if isinstance(output, TableView):
            sink = TableSink(self.store, output.name, member.build, output.key)
        elif isinstance(output, View):
            whole = pipeline.mode == "complete"
            sink = ViewSink(self.store, output.name, member.build, whole=whole)
        elif isinstance(output, Topic) and output.realtime:
            sink, status.guarantee = realtime.RealtimeSink(output, self.settings), realtime.GUARANTEE
        elif isinstance(output, Topic):
            name, spread = f"{self.app.name}.{query}", not self.settings.is_local
            sink = TopicSink(self.connection, name, output.topic, output.key, checkpoint, spread=spread)
        else:
            sink = FileSink(output.path, output.partition_by, checkpoint)
        return Member(pipeline, member.build, sink, Meter(status))

    def _view_changed(self) -> None:
        self._changelog.news()
        self._recompute.news()

    # -- each second ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self._look()
            except HeadwaterError as error:
                logger.warning("%s", error)
            except Exception:
                if self.loss(NOTICE_SECONDS):
                    return
                logger.exception("cannot tell the status of %s", self.app.name)

    def _look(self) -> None:
        for query in list(self._queries.values()):
            query.refresh()
        for name, error in self._recompute.errors.items():
            if error and error != self.status[name].error:
                self.status[name].failures = with_failure(self.status[name].failures, error)
            self.status[name].error = error
            for figure, value in vars(self._recompute.done[name]).items():
                setattr(self.status[name], figure, value)
        if time.monotonic() - self._measured > LAG_SECONDS:
            self.measure_lag()
            self._sweep()
            for query in list(self._queries.values()):
                if query.ticking is not None and query.watch.state == "running":
                    query.ticking.look(self._ends)
            self._replay_views()
            self._switch_builds()
            for node in self.graph.nodes.values():
                if isinstance(node, Table) or (isinstance(node, View) and not node.changelog):
                    self._changelog.trim(node.name)
        self._file.write(document_of(self.app.name, list(self.status.values())))

    def measure_lag(self) -> None:
        """Compares what each output covers with the ends of its topics."""
        topics = {
            stream.topic for pipeline in self.catalogue.pipelines.values() for stream in pipeline.streams
        }
        self._measured = time.monotonic()
        try:
            admin = self._admin = self._admin or Admin(self.connection)
            ends = self._ends = admin.latest(
                [(topic, number) for topic in topics for number in admin.partitions(topic)]
            )
        except HeadwaterError as error:
            logger.debug("no lag: %s", error)
            return
        for name, pipeline in self.catalogue.pipelines.items():
            covered, read = self.status[name].offsets, {stream.topic for stream in pipeline.streams}
            self.status[name].lag = sum(
                max(0, end - covered.get(topic, {}).get(number, 0))
                for (topic, number), end in ends.items()
                if topic in read
            )

    def _sweep(self) -> None:
        """Looks for dead values in streams that only real-time queries read: those do not count them."""
        if not self._swept or time.monotonic() - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = time.monotonic()
        for stream in self._swept:
            ends = {number: end for (topic, number), end in self._ends.items() if topic == stream.topic}
            self._aside.dead(stream, {}, {stream.topic: ends}, 1)

    def caught_up(self) -> bool:
        """Whether every output covers what is in the log now."""
        for query in list(self._queries.values()):
            query.refresh()
        self.measure_lag()
        return all(self.status[name].lag == 0 for name in self.catalogue.pipelines)

    def _replay_views(self) -> None:
        """Begins a new build of each view for which somebody asked.

        What fails is tried again the next time, and keeps none back that was made before it.
        """
        self._begin_replayed()
        for member in self.catalogue.begin_replays():
            self._replayed.append(member)
            self._begin_replayed()

    def _begin_replayed(self) -> None:
        while self._replayed:
            member = self._replayed[0]
            if member.name in self.catalogue.recomputed:
                self.status[member.name].build = member.build
                self._recompute.news()
            else:
                self._begin((member,))
            del self._replayed[0]

    def _switch_builds(self) -> None:
        """A build that has caught up takes the view's name, and the builds before it go."""
        for info in self.store.views():
            build = self.catalogue.builds.get(info.name)
            if build is None:
                continue
            if info.serving != build.number:
                if not self._has_caught_up(info, build.number):
                    continue
                self._retire(info.name, build.number)
                self.store.activate(info.name, build.number)
                logger.info("the view %s is now served by build %s", info.name, build.number)
                self._view_changed()
            for version in info.versions:  # also those that a kill has left behind
                if version.version < build.number:
                    self.store.drop(info.name, version.version)

    def _has_caught_up(self, info: ViewInfo, build: int) -> bool:
        found = next((each for each in info.versions if each.version == build), None)
        if found is None or found.progress.batch is None:
            return False
        if info.name in self.catalogue.recomputed:  # a batch of it is of all that its inputs hold
            return True
        lag = self.status[info.name].lag
        return lag is not None and lag <= CAUGHT_UP

    def _retire(self, view: str, build: int) -> None:
        """Ends what fills older builds of a view; a query that fills others as well leaves this one out."""
        for name, query in list(self._queries.items()):
            older = [each for each in query.members if each.name == view and each.build != build]
            for member in older:
                if isinstance(member.sink, ViewSink):
                    member.sink.retired = True
            if older and len(query.members) == len(older):
                query.end()
                del self._queries[name]
                for heir in self._queries.values():  # somebody has to count the dead values that it counted
                    if (view, build) in [(each.name, each.build) for each in heir.members]:
                        heir.dead_streams = [*heir.dead_streams, *query.dead_streams]

    # -- stop ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends the queries and what follows them; nothing is lost or torn."""
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join(10)
        if self.loss() is not None:
            self._abandon()
            return
        threads = [threading.Thread(target=query.end) for query in self._queries.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for follower in self._followers:
            follower.end()
        for query in self._queries.values():
            query.refresh()
        self._write_end()
        if hasattr(self, "store"):
            self.store.close()
        if self._liveness is not None:
            self._liveness.give_up()
            self.spark.stop()

    def _write_end(self) -> None:
        for status in self.status.values():
            status.state = "stopped" if status.state == "running" else status.state
        if self.status:
            self._file.write(document_of(self.app.name, list(self.status.values()), stopped=True))

    def _abandon(self) -> None:
        """Without Spark there is nothing to stop; what was under way is repeated at the next start."""
        self._write_end()
        if hasattr(self, "store"):
            self.store.close()
