"""Which build of each view is computed, by which query, from which checkpoint.

Decided at the start from what is declared, what the view store holds, and which checkpoints there are; and
again when somebody asks for a replay.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.errors import ViewChanged
from headwater.streams.app import App
from headwater.streams.declarations import Stream, TableView, View
from headwater.streams.engine import sharing, tombstones
from headwater.streams.engine.builds import Build, choose_build, needs_rebuild
from headwater.streams.engine.checkpoint import Checkpoint
from headwater.streams.engine.fingerprint import same_definition, start_of, with_application, with_start
from headwater.streams.engine.replays import Replays
from headwater.streams.engine.ticking import can_tick, ticks_topic
from headwater.streams.graph import Graph
from headwater.streams.planning import Pipeline, Plan, Recomputed, plan
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.views import view_schema
from headwater.views.model import ViewInfo
from headwater.views.store import ViewStore

logger = logging.getLogger("headwater.streams")

# Opens a stream: whether for a query in real time, and with which topic of ticks.
Open = Callable[[Stream, bool, str | None], DataFrame]


class Catalogue:
    """The pipelines of an application, and the builds that they fill."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        graph: Graph,
        settings: StreamSettings,
        store: ViewStore,
        planned: Plan,
        open: Open,
    ) -> None:
        self.spark, self.app, self.graph, self.settings = spark, app, graph, settings
        self.store, self.planned, self.open = store, planned, open
        self.pipelines = {
            each.output.name: replace(each, fingerprint=with_application(each.fingerprint, app.name))
            for each in planned.pipelines
        }
        self.recomputed = {
            each.output.name: replace(each, fingerprint=with_application(each.fingerprint, app.name))
            for each in planned.recomputed
        }
        self.builds: dict[str, Build] = {}
        self.replays = Replays(settings.data)
        self._starts: dict[str, str] = {}  # where the streams of an output begin that is replayed

    def checkpoint(self, query: str) -> Checkpoint:
        """The checkpoint of a query; without a name, the directory of them all."""
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
            if not held & set(members) and all(member.name in self.builds for member in members):
                self.checkpoint(name).remove()

    def choose(self) -> list[tuple[sharing.Member, ...]]:
        """Chooses a build for every view, and makes those that are new; the queries to run."""
        known = {info.name: info for info in self.store.views()}
        for name, view in self.recomputed.items():
            self.builds[name] = self._choose_recomputed(view, known.get(name))
        existing = [name for name in self.checkpoint("").children() if sharing.members_of(name)]
        homes = {member: name for name in existing for member in sharing.members_of(name)}
        for name, pipeline in self.pipelines.items():
            if isinstance(pipeline.output, View):
                self.builds[name] = self._choose_build(pipeline, pipeline.output, known.get(name), homes)
            else:
                self._refuse_changed(pipeline)
        for member in homes:
            build = self.builds.get(member.name)
            if build is not None and build.reason != "same" and build.number <= member.build:
                # The checkpoint is of a store that is gone: it would go on in the middle.
                reason = "store lost" if build.reason == "first" else build.reason
                self.builds[member.name] = replace(build, number=member.build + 1, reason=reason)
        for name in sharing.torn(self._wanted(), existing):
            # Behind all that have a checkpoint, as one of a store that came later than this one may.
            number = max(member.build for member in homes if member.name == name) + 1
            self.builds[name] = Build(number, self.pipelines[name].fingerprint, "shared query changed")
        # Whatever is refused is refused before any view is made.
        for name, build in self.builds.items():
            if build.reason == "same" and known[name].versions[-1].fingerprint != build.fingerprint:
                self.store.note(name, build.number, build.fingerprint)
            if build.reason not in ("first", "same"):
                logger.warning("the view %s is built anew: %s", name, build.reason)
            self._define(name, build)
        queries = sharing.queries(self._wanted(), existing)
        self._remove_checkpoints(set(existing) - {sharing.query_name(members) for members in queries})
        return queries

    def _refuse_changed(self, pipeline: Pipeline) -> None:
        """A topic or files go on only with the definition that they were begun with."""
        output = pipeline.output
        begun = self.checkpoint(f"{output.name}.{output.version}").definition()
        if begun is not None and not same_definition(begun, pipeline.fingerprint):
            raise ViewChanged(
                "run",
                f"the {output.kind} {output.name}",
                f"its definition is not the one that version {output.version} was begun with",
                f"Declare it with version={output.version + 1}: it then begins anew, and writes everything again.",
            )

    def _choose_recomputed(self, view: Recomputed, info: ViewInfo | None) -> Build:
        build = choose_build(view.output.name, view.output.version, view.fingerprint, info)
        if build.reason == "same" and view.output.name in self.replays.waiting():
            return Build(build.number + 1, view.fingerprint, "replay")
        return build

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
        kept = self.checkpoint(home) if home is not None else None
        last = (kept.last_finished(), kept.last_planned()) if kept is not None else (None, None)
        mismatch = needs_rebuild(info.versions[-1], *last)
        if mismatch is not None:
            return Build(build.number + 1, pipeline.fingerprint, mismatch)
        if isinstance(view, TableView) and self._deletes_gone(pipeline, info):
            return Build(build.number + 1, pipeline.fingerprint, "deletes may have gone by")
        start = self.replays.waiting().get(view.name)
        if start is not None:
            self._restart_from(pipeline, start)
            return Build(build.number + 1, with_start(pipeline.fingerprint, start), "replay")
        _, planned = last
        start = start_of(build.fingerprint)
        if planned is None and start is not None:  # a replay that a kill has kept from its first batch
            self._restart_from(pipeline, start)
        return build

    def _deletes_gone(self, pipeline: Pipeline, info: ViewInfo) -> bool:
        admin = Admin(Connection(self.settings.bootstrap, self.settings.properties))
        return tombstones.may_be_gone(admin, pipeline.streams[0].topic, info.versions[-1].progress)

    def begin_replays(self) -> Iterator[sharing.Member]:
        """New builds of the views for which somebody has asked since, each as soon as it is made."""
        for name, start in self.replays.waiting().items():
            pipeline, view = self.pipelines.get(name), self.recomputed.get(name)
            if view is not None:  # it has no place to begin at: it is of all that its inputs hold
                fingerprint = view.fingerprint
            elif pipeline is not None and isinstance(pipeline.output, View):
                fingerprint = with_start(pipeline.fingerprint, start)
                self._restart_from(pipeline, start)
            else:  # of another application that has this data directory
                continue
            build = Build(self.builds[name].number + 1, fingerprint, "replay")
            self._define(name, build)
            self.builds[name] = build  # once the store has it: what computes views over views reads this
            yield sharing.Member(name, build.number)

    def _restart_from(self, pipeline: Pipeline, start: str) -> None:
        """Replaces a pipeline by one that reads its streams from another position."""
        if isinstance(pipeline.output, TableView):
            start = "earliest"  # the newest row of a key may be as old as the log
        self._starts[pipeline.output.name] = start
        self.reopen(pipeline.output.name)

    def reopen(self, name: str, ticks: Mapping[str, str] | None = None) -> None:
        """Calls an output's function again, on inputs that begin elsewhere, or have topics of ticks."""
        start = self._starts.get(name)

        def opened(stream: Stream, quick: bool) -> DataFrame:
            begun = stream if start is None else replace(stream, start=start)
            return self.open(begun, quick, (ticks or {}).get(stream.name))

        again = plan(self.spark, self.graph, opened)
        (found,) = [each for each in again.pipelines if each.output.name == name]
        self.pipelines[name] = replace(found, fingerprint=self.pipelines[name].fingerprint)

    def tick_topics(self, member: sharing.Member) -> dict[str, str]:
        """Of an output that reads several streams by time, the topic of ticks of each."""
        streams = self.pipelines[member.name].streams
        if len(streams) < 2 or not all(can_tick(stream) for stream in streams):
            return {}
        return {
            stream.name: ticks_topic(self.app.name, member.name, member.build, stream.name)
            for stream in streams
        }

    def _wanted(self) -> list[sharing.Wanted]:
        wanted = []
        for name, pipeline in self.pipelines.items():
            output = pipeline.output
            if not isinstance(output, View):
                wanted.append(sharing.Wanted(sharing.Member(name, output.version)))
                continue
            build = self.builds[name]
            shares = self.app.share and len(pipeline.streams) == 1 and pipeline.mode != "complete"
            share = (pipeline.streams[0].name, pipeline.mode) if shares and name not in self._starts else None
            wanted.append(sharing.Wanted(sharing.Member(name, build.number), share))
        return wanted

    def schemas(self) -> dict[str, StructType]:
        """Of all views."""
        found = {name: view.schema for name, view in self.recomputed.items()}
        for name, pipeline in self.pipelines.items():
            if isinstance(pipeline.output, View):
                found[name] = pipeline.schema
        return found

    def _define(self, name: str, build: Build) -> None:
        built = self.recomputed.get(name) or self.pipelines[name]
        assert isinstance(built.output, View)
        schema = view_schema(name, build.number, built.schema, built.output.key)
        self.store.define(schema, build.fingerprint)
        if build.reason == "replay":
            self.replays.done(name)
