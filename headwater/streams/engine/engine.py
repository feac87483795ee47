"""The engine: everything between an application's declarations and its running queries.

Start: the graph is checked, Spark starts, every function is called and what it gives is checked; only then
are topics and views made and queries started. Stop: queries end (a batch under way is left, and repeated at
the next start), then what follows from the views is brought up to them.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.marked import prepare_marks
from headwater.errors import EngineLost, HeadwaterError, ViewChanged
from headwater.streams import realtime
from headwater.streams.app import App
from headwater.streams.aside import Aside, dead_topic, late_topic
from headwater.streams.declarations import Stream, Topic, View
from headwater.streams.engine import sharing
from headwater.streams.engine.builds import Build, choose_build, needs_rebuild
from headwater.streams.engine.changelog import Changelog
from headwater.streams.engine.checkpoint import Checkpoint
from headwater.streams.engine.fingerprint import same_definition
from headwater.streams.engine.liveness import NOTICE_SECONDS, Liveness
from headwater.streams.engine.recompute import Recompute
from headwater.streams.engine.replays import Replays
from headwater.streams.engine.running import Member, RunningQuery
from headwater.streams.engine.session import shuffle_partitions, start_session
from headwater.streams.engine.status import Meter, OutputStatus, StatusFile, document_of
from headwater.streams.engine.ticking import Ticking, can_tick, ticks_topic
from headwater.streams.inputs import events
from headwater.streams.planning import Pipeline, Plan, plan
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.files import FileSink
from headwater.streams.sinks.topics import TopicSink
from headwater.streams.sinks.views import ViewSink, view_schema
from headwater.streams.sources.jars import find_jars
from headwater.views.model import ViewInfo
from headwater.views.store import ViewStore, open_store

logger = logging.getLogger("headwater.streams")

TICK_SECONDS = 1.0
LAG_SECONDS = 2.0
SWEEP_SECONDS = 10.0
CAUGHT_UP = 1000  # records behind at most when a new build takes over


class Engine:
    """A running application."""

    spark: SparkSession
    store: ViewStore

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
        self._pipelines: dict[str, Pipeline] = {}
        self._builds: dict[str, Build] = {}
        self._dead_owners: set[str] = set()
        self._followers: list[Recompute | Changelog | Aside] = []
        self._file = StatusFile(settings.data, app.name)
        self._replays = Replays(settings.data)
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self._admin: Admin | None = None
        self._measured = 0.0
        self._ends: dict[tuple[str, int], int] = {}
        self._swept: list[Stream] = []  # streams whose dead values no query counts
        self._swept_at = 0.0
        self._starts: dict[str, str] = {}  # where the streams of an output begin that is replayed

    # -- start ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Checks everything, then starts everything."""
        self.connection.require_listener()  # Spark takes seconds to start; nobody should wait for this
        self._jars = find_jars(self.settings)
        quick = [output for output in self.graph.outputs() if isinstance(output, Topic) and output.realtime]
        for output in quick:
            realtime.require_connector(self._jars, output)
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
        planned = plan(self.spark, self.graph, self._open)
        self._make_topics(planned)
        self.store = open_store(self.settings.store)
        known = {info.name: info for info in self.store.views()}
        self._pipelines = {pipeline.output.name: pipeline for pipeline in planned.pipelines}
        queries = self._choose_builds(known)
        schemas = self._define_recomputed(planned, known)

        self._aside = Aside(self.spark, self.settings, self.app.name)
        changelogs = {
            node.name: f"{self.app.name}.{node.name}"
            for node in self.graph.outputs()
            if isinstance(node, View) and node.changelog
        }
        self._changelog = Changelog(self.store, self.connection, changelogs, self.app.name)
        builds = {name: build.number for name, build in self._builds.items()}
        self._recompute = Recompute(
            self.spark, self.store, planned.recomputed, schemas, builds, lambda name: self._changelog.news()
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
        partitions = {
            node.name: node.partitions
            for node in self.graph.nodes.values()
            if isinstance(node, Stream | Topic)
        }
        reads = [(topic, sum(partitions.get(name, 1) for name in topic.inputs)) for topic in quick]
        return realtime.slots(reads, shuffle_partitions()) if quick else None

    def _open(self, stream: Stream, quick: bool, ticks: str | None = None) -> DataFrame:
        connector = quick or self.settings.source == "connector"
        return events(self.spark, stream, self.settings, connector=connector, realtime=quick, ticks=ticks)

    def _make_topics(self, planned: Plan) -> None:
        admin = self._admin = Admin(self.connection)
        prepare_marks(self.connection)
        there = {topic.name for topic in admin.topics()}
        wanted: dict[str, tuple[int, dict[str, str]]] = {}
        for stream in planned.streams.values():
            wanted[stream.topic] = (stream.partitions, {})
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

    # -- builds of views, and who shares a query -------------------------------------------------------

    def _choose_builds(self, known: Mapping[str, ViewInfo]) -> list[tuple[sharing.Member, ...]]:
        existing = [name for name in self._checkpoint("").children() if sharing.members_of(name)]
        homes = {member: name for name in existing for member in sharing.members_of(name)}
        for name, pipeline in self._pipelines.items():
            if isinstance(pipeline.output, View):
                self._builds[name] = self._choose_build(pipeline, pipeline.output, known.get(name), homes)
            else:
                self._refuse_changed(pipeline)
        for name in sharing.torn(self._wanted(), existing):
            number = self._builds[name].number + 1
            self._builds[name] = Build(number, self._pipelines[name].fingerprint, "shared query changed")
        for name, build in self._builds.items():
            if build.reason not in ("first", "same"):
                logger.warning("the view %s is built anew: %s", name, build.reason)
            self._define(self._pipelines[name], build)
        queries = sharing.queries(self._wanted(), existing)
        self._remove_checkpoints(set(existing) - {sharing.query_name(members) for members in queries})
        return queries

    def _refuse_changed(self, pipeline: Pipeline) -> None:
        """A topic or files go on only with the definition that they were begun with."""
        output = pipeline.output
        begun = self._checkpoint(f"{output.name}.{output.version}").definition()
        if begun is not None and not same_definition(begun, pipeline.fingerprint):
            raise ViewChanged(
                "run",
                f"the {output.kind} {output.name}",
                f"its definition is not the one that version {output.version} was begun with",
                f"Declare it with version={output.version + 1}: it then begins anew, and writes everything again.",
            )

    def _choose_build(
        self,
        pipeline: Pipeline,
        view: View,
        info: ViewInfo | None,
        homes: Mapping[sharing.Member, str],
    ) -> Build:
        build = choose_build(view.name, view.version, pipeline.fingerprint, info)
        if build.reason != "same" or info is None:
            return build
        home = homes.get(sharing.Member(view.name, build.number))
        last = self._checkpoint(home).last_finished() if home is not None else None
        mismatch = needs_rebuild(info.versions[-1], last)
        if mismatch is not None:
            return Build(build.number + 1, pipeline.fingerprint, mismatch)
        start = self._replays.waiting().get(view.name)
        if start is not None:
            self._restart_from(pipeline, start)
            return Build(build.number + 1, pipeline.fingerprint, "replay")
        return build

    def _restart_from(self, pipeline: Pipeline, start: str) -> None:
        """Replaces a pipeline by one that reads its streams from another position."""

        self._starts[pipeline.output.name] = start
        self._reopen(pipeline.output.name)
        self._replays.done(pipeline.output.name)

    def _reopen(self, name: str, ticks: Mapping[str, str] | None = None) -> None:
        """Calls an output's function again, on inputs that begin elsewhere, or have topics of ticks."""
        start = self._starts.get(name)

        def opened(stream: Stream, quick: bool) -> DataFrame:
            begun = stream if start is None else replace(stream, start=start)
            return self._open(begun, quick, (ticks or {}).get(stream.name))

        again = plan(self.spark, self.graph, opened)
        (found,) = [each for each in again.pipelines if each.output.name == name]
        self._pipelines[name] = replace(found, fingerprint=self._pipelines[name].fingerprint)

    def _tick_topics(self, member: sharing.Member) -> dict[str, str]:
        """Of an output that reads several streams by time, the topic of ticks of each."""
        streams = self._pipelines[member.name].streams
        if len(streams) < 2 or not all(can_tick(stream) for stream in streams):
            return {}
        return {
            stream.name: ticks_topic(self.app.name, member.name, member.build, stream.name)
            for stream in streams
        }

    def _wanted(self) -> list[sharing.Wanted]:
        wanted = []
        for name, pipeline in self._pipelines.items():
            output = pipeline.output
            if not isinstance(output, View):
                wanted.append(sharing.Wanted(sharing.Member(name, output.version)))
                continue
            build = self._builds[name]
            shares = self.app.share and len(pipeline.streams) == 1 and pipeline.mode != "complete"
            share = (pipeline.streams[0].name, pipeline.mode) if shares and build.reason != "replay" else None
            wanted.append(sharing.Wanted(sharing.Member(name, build.number), share))
        return wanted

    def _define(self, pipeline: Pipeline, build: Build) -> None:
        output = pipeline.output
        assert isinstance(output, View)
        schema = view_schema(output.name, build.number, pipeline.frame.schema, output.key)
        self.store.define(schema, build.fingerprint)

    def _define_recomputed(self, planned: Plan, known: Mapping[str, ViewInfo]) -> dict[str, StructType]:
        schemas = {
            name: pipeline.frame.schema
            for name, pipeline in self._pipelines.items()
            if isinstance(pipeline.output, View)
        }
        for view in planned.recomputed:
            name = view.output.name
            build = choose_build(name, view.output.version, view.fingerprint, known.get(name))
            self._builds[name], schemas[name] = build, view.schema
            schema = view_schema(name, build.number, view.schema, view.output.key)
            self.store.define(schema, build.fingerprint)
            self.status[name] = OutputStatus(name, "view", state="running", build=build.number)
        return schemas

    # -- queries -------------------------------------------------------------------------------------

    def _checkpoint(self, query: str) -> Checkpoint:
        return Checkpoint(f"{self.settings.checkpoints}/{self.app.name}/{query}", self.spark)

    def _remove_checkpoints(self, names: set[str]) -> None:
        """Of builds that are in the store no more; older builds that still serve keep theirs."""
        held = {
            sharing.Member(info.name, version.version)
            for info in self.store.views()
            for version in info.versions
        }
        for name in names:
            members = sharing.members_of(name)
            if not held & set(members) and all(member.name in self._builds for member in members):
                self._checkpoint(name).remove()

    def _begin(self, members: tuple[sharing.Member, ...]) -> None:
        query = sharing.query_name(members)
        checkpoint = self._checkpoint(query)
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
        topics = self._tick_topics(member)
        if not topics:
            return None
        assert self._admin is not None
        for topic in topics.values():
            self._admin.create_topic(topic, 1, configs={"retention.ms": "-1"}, exist_ok=True)
        self._reopen(member.name, topics)
        return Ticking(self.connection, self._pipelines[member.name].streams, topics)

    def _member(self, member: sharing.Member, query: str, checkpoint: Checkpoint) -> Member:
        pipeline = self._pipelines[member.name]
        output = pipeline.output
        status = self.status[member.name] = OutputStatus(member.name, output.kind, build=member.build)
        sink: ViewSink | TopicSink | FileSink | realtime.RealtimeSink
        if isinstance(output, View):
            whole = pipeline.mode == "complete"
            sink = ViewSink(self.store, output.name, member.build, whole=whole)
        elif isinstance(output, Topic) and output.realtime:
            sink, status.guarantee = realtime.RealtimeSink(output, self.settings), realtime.GUARANTEE
        elif isinstance(output, Topic):
            name, spread = f"{self.app.name}.{query}", not self.settings.is_local
            sink = TopicSink(self.connection, name, output.topic, output.key, checkpoint, spread=spread)
        else:
            sink = FileSink(output.path, output.partition_by)
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
            self.status[name].error = error
            self.status[name].batches = self._recompute.batches[name]
        if time.monotonic() - self._measured > LAG_SECONDS:
            self.measure_lag()
            self._sweep()
            for query in list(self._queries.values()):
                if query.ticking is not None and query.watch.state == "running":
                    query.ticking.look(self._ends)
            self._replay_views()
            self._switch_builds()
            for output in self.graph.outputs():
                if isinstance(output, View) and not output.changelog:
                    self._changelog.trim(output.name)
        self._file.write(document_of(self.app.name, list(self.status.values())))

    def measure_lag(self) -> None:
        """Compares what each output covers with the ends of its topics."""
        topics = {stream.topic for pipeline in self._pipelines.values() for stream in pipeline.streams}
        self._measured = time.monotonic()
        try:
            admin = self._admin = self._admin or Admin(self.connection)
            ends = self._ends = admin.latest(
                [(topic, number) for topic in topics for number in admin.partitions(topic)]
            )
        except HeadwaterError as error:
            logger.debug("no lag: %s", error)
            return
        for name, pipeline in self._pipelines.items():
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
        return all(self.status[name].lag == 0 for name in self._pipelines)

    def _replay_views(self) -> None:
        """Begins a new build of each view for which somebody asked."""
        for name, start in self._replays.waiting().items():
            pipeline = self._pipelines.get(name)
            if pipeline is None or not isinstance(pipeline.output, View):
                continue
            self._restart_from(pipeline, start)
            build = Build(self._builds[name].number + 1, pipeline.fingerprint, "replay")
            self._builds[name] = build
            self._define(self._pipelines[name], build)
            self._begin((sharing.Member(name, build.number),))

    def _switch_builds(self) -> None:
        """A build that has caught up takes the view's name, and the builds before it go."""
        for info in self.store.views():
            build, status = self._builds.get(info.name), self.status.get(info.name)
            if build is None or status is None or info.serving == build.number:
                continue
            current = next(each for each in info.versions if each.version == build.number)
            caught_up = info.name not in self._pipelines or (
                status.lag is not None and status.lag <= CAUGHT_UP
            )
            if caught_up and current.progress.batch is not None:
                self._retire(info.name, build.number)
                self.store.activate(info.name, build.number)
                for version in info.versions:
                    if version.version != build.number:
                        self.store.drop(info.name, version.version)
                logger.info("the view %s is now served by build %s", info.name, build.number)
                self._view_changed()

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
        if self.status:
            self._file.write(document_of(self.app.name, list(self.status.values()), stopped=True))
        if hasattr(self, "store"):
            self.store.close()
        if self._liveness is not None:
            self._liveness.give_up()
            self.spark.stop()

    def _abandon(self) -> None:
        """Without Spark there is nothing to stop; what was under way is repeated at the next start."""
        if self.status:
            self._file.write(document_of(self.app.name, list(self.status.values()), stopped=True))
        if hasattr(self, "store"):
            self.store.close()
