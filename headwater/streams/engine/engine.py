"""The engine: everything between an application's declarations and its running queries.

Start: the graph is checked, Spark starts, every function is called and what it gives is checked; only then
are topics and views made and queries started. Stop: queries end (a batch under way is left, and repeated at
the next start), then what follows from the views is brought up to them.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.marked import prepare_marks
from headwater.errors import HeadwaterError, RecordsMissed, ViewChanged
from headwater.streams.app import App
from headwater.streams.aside import Aside, dead_topic, late_topic
from headwater.streams.declarations import Stream, Topic, View
from headwater.streams.engine.builds import Build, choose_build, needs_rebuild
from headwater.streams.engine.changelog import Changelog
from headwater.streams.engine.checkpoint import Checkpoint, Offsets, merge
from headwater.streams.engine.recompute import Recompute
from headwater.streams.engine.session import start_session
from headwater.streams.engine.status import (
    Meter,
    OutputStatus,
    StatusFile,
    document_of,
    dropped_by_watermark,
)
from headwater.streams.engine.watch import Watch
from headwater.streams.inputs import dead_metric, events
from headwater.streams.planning import Pipeline, Plan, plan
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.files import FileSink
from headwater.streams.sinks.topics import TopicSink
from headwater.streams.sinks.views import ViewSink, view_schema
from headwater.views.model import ViewInfo
from headwater.views.store import ViewStore, open_store

logger = logging.getLogger("headwater.streams")

TICK_SECONDS = 1.0
LAG_SECONDS = 2.0
CAUGHT_UP = 1000  # records behind at most when a new build takes over
FINAL = (RecordsMissed, ViewChanged)

Sink = Callable[[DataFrame, int], None]


class Engine:
    """A running application."""

    def __init__(self, app: App, settings: StreamSettings, spark: SparkSession | None = None) -> None:
        self.app, self.settings = app, settings
        self.graph = app.graph()
        self.connection = Connection(settings.bootstrap, settings.properties)
        self._own_spark = spark is None
        self._given_spark = spark
        self.store: ViewStore | None = None
        self.status: dict[str, OutputStatus] = {}
        self._meters: dict[str, Meter] = {}
        self._watches: dict[str, Watch] = {}
        self._sinks: dict[str, Any] = {}
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self._file = StatusFile(settings.data, app.name)
        self._pipelines: dict[str, Pipeline] = {}
        self._builds: dict[str, Build] = {}
        self._dead_owner: dict[str, str] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._ends_at = 0.0
        self._admin: Admin | None = None

    # -- start ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Checks everything, then starts everything."""
        self.spark = self._given_spark or start_session(self.settings, self.app.name)
        planned = plan(self.spark, self.graph, self._open)
        self.connection.require_listener()
        self._make_topics(planned)
        store = self.store = open_store(self.settings.store)
        known = {info.name: info for info in store.views()}
        for pipeline in planned.pipelines:
            self._pipelines[pipeline.output.name] = pipeline
            self._define(pipeline, known)
        schemas = self._define_recomputed(planned, known)

        self._aside = Aside(self.spark, self.settings, self.app.name)
        for pipeline in planned.pipelines:
            for stream in pipeline.streams:
                if self._dead_owner.setdefault(stream.name, pipeline.output.name) == pipeline.output.name:
                    self._aside.follow(stream)
        changelogs = {
            node.name: f"{self.app.name}.{node.name}"
            for node in self.graph.outputs()
            if isinstance(node, View) and node.changelog
        }
        self._changelog = Changelog(store, self.connection, changelogs, self.app.name)
        builds = {name: build.number for name, build in self._builds.items()}
        self._recompute = Recompute(
            self.spark, store, planned.recomputed, schemas, builds, lambda name: self._changelog.news()
        )
        self._aside.begin()
        self._changelog.begin()
        self._recompute.begin()
        for pipeline in planned.pipelines:
            self._begin(pipeline)
        self._ticker.start()

    def _open(self, stream: Stream, realtime: bool) -> DataFrame:
        return events(self.spark, stream, self.settings, connector=realtime)

    def _make_topics(self, planned: Plan) -> None:
        admin = Admin(self.connection)
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

    # -- views and their builds ----------------------------------------------------------------------

    def _define(self, pipeline: Pipeline, known: dict[str, ViewInfo]) -> None:
        output = pipeline.output
        if not isinstance(output, View):
            return
        info = known.get(output.name)
        build = choose_build(output.name, output.version, pipeline.fingerprint, info)
        if build.reason == "same" and info is not None:
            last = self._checkpoint(output.name, build.number).last_finished()
            mismatch = needs_rebuild(info.versions[-1], last)
            if mismatch is not None:
                logger.warning("the view %s is built anew: %s", output.name, mismatch)
                build = Build(build.number + 1, pipeline.fingerprint, mismatch)
        self._builds[output.name] = build
        assert self.store is not None
        self.store.define(
            view_schema(output.name, build.number, pipeline.frame.schema, output.key), build.fingerprint
        )

    def _define_recomputed(self, planned: Plan, known: dict[str, ViewInfo]) -> dict[str, StructType]:
        assert self.store is not None
        schemas = {
            pipeline.output.name: pipeline.frame.schema
            for pipeline in planned.pipelines
            if isinstance(pipeline.output, View)
        }
        for view in planned.recomputed:
            name = view.output.name
            build = choose_build(name, view.output.version, view.fingerprint, known.get(name))
            self._builds[name] = build
            schemas[name] = view.schema
            self.store.define(
                view_schema(name, build.number, view.schema, view.output.key), build.fingerprint
            )
            self.status[name] = OutputStatus(name, "view", state="running", build=build.number)
            self._meters[name] = Meter(self.status[name])
        return schemas

    # -- queries -------------------------------------------------------------------------------------

    def _checkpoint_location(self, name: str, build: int) -> str:
        return f"{self.settings.checkpoints}/{self.app.name}/{name}/{build}"

    def _checkpoint(self, name: str, build: int) -> Checkpoint:
        return Checkpoint(self._checkpoint_location(name, build), self.spark)

    def _begin(self, pipeline: Pipeline) -> None:
        output = pipeline.output
        name = output.name
        build = self._builds[name].number if isinstance(output, View) else output.version
        checkpoint = self._checkpoint(name, build)
        status = self.status[name] = OutputStatus(name, output.kind, build=build)
        self._meters[name] = Meter(status)
        query = f"{self.app.name}.{name}.{build}"
        sink = self._sinks[name] = self._sink(pipeline, build, query, checkpoint)
        watch = Watch(
            query,
            lambda: self._start_query(pipeline, query, checkpoint, sink, watch),
            lambda progress: self._progressed(pipeline, query, checkpoint, progress),
            FINAL,
        )
        self._watches[name] = watch
        self._catch_up_late(pipeline, query, checkpoint)
        watch.begin()

    def _sink(self, pipeline: Pipeline, build: int, query: str, checkpoint: Checkpoint) -> Any:
        output = pipeline.output
        assert self.store is not None
        if isinstance(output, View):
            whole = pipeline.mode == "complete"
            return ViewSink(self.store, output.name, build, checkpoint, whole=whole)
        if isinstance(output, Topic):
            spread = not self.settings.is_local
            return TopicSink(self.connection, query, output.topic, output.key, checkpoint, spread=spread)
        return FileSink(output.path, output.partition_by)

    def _start_query(
        self, pipeline: Pipeline, query: str, checkpoint: Checkpoint, sink: Sink, watch: Watch
    ) -> StreamingQuery:
        def each(frame: DataFrame, number: int) -> None:
            watch.begun = number
            try:
                sink(frame, number)
            except BaseException as error:
                watch.note(error)
                raise
            if isinstance(pipeline.output, View):
                self._changelog.news()
                self._recompute.news()

        return (
            pipeline.frame.writeStream.queryName(query)
            .outputMode(pipeline.mode)
            .option("checkpointLocation", checkpoint.location)
            .foreachBatch(each)
            .start()
        )

    # -- what follows a batch ------------------------------------------------------------------------

    def _progressed(
        self, pipeline: Pipeline, query: str, checkpoint: Checkpoint, progress: dict[str, Any]
    ) -> None:
        name = pipeline.output.name
        self._meters[name].take(progress)
        self.status[name].rows_out = self._sinks[name].rows
        observed = progress.get("observedMetrics", {})
        for stream in pipeline.streams:
            if self._dead_owner.get(stream.name) != name:
                continue
            counted = observed.get(dead_metric(stream.name))
            start, end = _source_offsets(progress, "startOffset"), _source_offsets(progress, "endOffset")
            if counted is not None and stream.topic in end:
                self.status[name].dead += int(counted["dead"])
                self._aside.dead(stream, start, end, int(counted["dead"]))
        if dropped_by_watermark(progress):
            self._late(pipeline, query, checkpoint, progress["batchId"])

    def _late(self, pipeline: Pipeline, query: str, checkpoint: Checkpoint, batch: int) -> None:
        self._aside.late(pipeline.output.name, query, pipeline.streams, pipeline.windows, checkpoint, batch)

    def _catch_up_late(self, pipeline: Pipeline, query: str, checkpoint: Checkpoint) -> None:
        """Batches whose counts nobody has seen, because the process was killed, are looked at again."""
        last = checkpoint.last_finished()
        if last is None or all(stream.time is None for stream in pipeline.streams):
            return
        for batch in range(max(self._aside.late_position(query), last - 49, 1), last + 1):
            self._late(pipeline, query, checkpoint, batch)

    def _tick(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self._look()
            except Exception:
                logger.exception("cannot tell the status of %s", self.app.name)

    def _look(self) -> None:
        for name, watch in self._watches.items():
            watch.take()
            status = self.status[name]
            status.state, status.error, status.restarts = watch.state, watch.error, watch.restarts
            status.late = self._aside.counts.late.get(name, 0)
            self._meters[name].refresh()
        for name, error in self._recompute.errors.items():
            self.status[name].error = error
            self.status[name].batches = self._recompute.batches[name]
        if time.monotonic() - self._ends_at > LAG_SECONDS:
            self._measure_lag()
            self._switch_builds()
        self._file.write(document_of(self.app.name, list(self.status.values())))

    def _measure_lag(self) -> None:
        topics = {stream.topic for pipeline in self._pipelines.values() for stream in pipeline.streams}
        try:
            admin = self._admin = self._admin or Admin(self.connection)
            places = [(topic, number) for topic in topics for number in admin.partitions(topic)]
            self._ends = admin.latest(places)
        except HeadwaterError as error:
            logger.debug("no lag: %s", error)
            return
        self._ends_at = time.monotonic()
        for name, pipeline in self._pipelines.items():
            known = self.status[name].offsets
            self.status[name].lag = sum(
                max(0, end - known.get(topic, {}).get(number, 0))
                for (topic, number), end in self._ends.items()
                if any(stream.topic == topic for stream in pipeline.streams)
            )

    def _switch_builds(self) -> None:
        """A build that has caught up takes the view's name, and the builds before it go."""
        assert self.store is not None
        for info in self.store.views():
            build = self._builds.get(info.name)
            status = self.status.get(info.name)
            if build is None or status is None or info.serving == build.number:
                continue
            if status.lag is not None and status.lag <= CAUGHT_UP and status.batches:
                self.store.activate(info.name, build.number)
                for version in info.versions:
                    if version.version != build.number:
                        self.store.drop(info.name, version.version)
                logger.info("the view %s is now served by build %s", info.name, build.number)
                self._changelog.news()
                self._recompute.news()

    # -- stop ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ends the queries and what follows them; nothing is lost or torn."""
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join(10)
        threads = [threading.Thread(target=watch.end) for watch in self._watches.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._recompute.end()
        self._changelog.end()
        self._aside.end()
        for sink in self._sinks.values():
            if hasattr(sink, "close"):
                sink.close()
        for name, watch in self._watches.items():
            self.status[name].state = watch.state
        self._file.write(document_of(self.app.name, list(self.status.values()), stopped=True))
        if self.store is not None:
            self.store.close()
        if self._own_spark:
            self.spark.stop()

    def caught_up(self) -> bool:
        """Whether every output covers what was in the log when this was asked."""
        self._measure_lag()
        return all(status.lag == 0 for name, status in self.status.items() if name in self._pipelines)


def _source_offsets(progress: dict[str, Any], which: str) -> Offsets:
    offsets: Offsets = {}
    for source in progress.get("sources", []):
        found = source.get(which)
        found = json.loads(found) if isinstance(found, str) else found
        if isinstance(found, dict):
            merge(offsets, found)
    return offsets
