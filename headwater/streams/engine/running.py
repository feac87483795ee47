"""A query and the outputs that it computes, while they run."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import HeadwaterError, OrderUnknown, RecordsMissed, UnknownView, ViewChanged
from headwater.streams.aside import Aside, as_text
from headwater.streams.declarations import Stream, View
from headwater.streams.engine.checkpoint import Checkpoint, Offsets, merge
from headwater.streams.engine.status import Meter, dropped_by_watermark, source_offsets
from headwater.streams.engine.ticking import Ticking
from headwater.streams.engine.watch import Watch
from headwater.streams.inputs import dead_metric, read_of
from headwater.streams.planning import Pipeline
from headwater.streams.realtime import RealtimeSink
from headwater.streams.settings import StreamSettings
from headwater.streams.sinks.files import FileSink
from headwater.streams.sinks.topics import TopicSink
from headwater.streams.sinks.views import ViewSink, ViewsSink, together
from headwater.streams.sources import gaps

logger = logging.getLogger("headwater.streams")

# Starting again would not help.
FINAL = (RecordsMissed, ViewChanged, UnknownView, OrderUnknown)

KEPT_BATCHES = 49  # of which a checkpoint has the offsets for certain

Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Member:
    """An output of a running query."""

    pipeline: Pipeline
    build: int
    sink: ViewSink | TopicSink | FileSink | RealtimeSink
    meter: Meter

    @property
    def name(self) -> str:
        return self.pipeline.output.name


class RunningQuery:
    """Starts a query, and does what follows each of its batches."""

    def __init__(
        self,
        application: str,
        settings: StreamSettings,
        members: Sequence[Member],
        checkpoint: Checkpoint,
        aside: Aside,
        dead_streams: Sequence[Stream],
        changed: Callable[[], None],
        ticking: Ticking | None = None,
    ) -> None:
        self.members, self.checkpoint = members, checkpoint
        self._application, self._aside = application, aside
        self.dead_streams = dead_streams  # whose dead values are this query's to count
        self._changed = changed
        self.ticking = ticking
        first = members[0]
        if isinstance(first.pipeline.output, View):
            sinks = [member.sink for member in members if isinstance(member.sink, ViewSink)]
            self._sink: Sink = ViewsSink(sinks, checkpoint)
        else:
            assert len(members) == 1 and not isinstance(first.sink, ViewSink)
            if not isinstance(first.sink, RealtimeSink):
                self._sink = first.sink
        self._settings = settings
        self.watch = Watch(
            f"{application}.{checkpoint.name}", self._start, self._progressed, FINAL, self._explained
        )

    @property
    def streams(self) -> Sequence[Stream]:
        """What the query reads: all members of a query read the same."""
        return self.members[0].pipeline.streams

    @property
    def is_realtime(self) -> bool:
        """Whether Spark passes rows on by itself, without batches."""
        return isinstance(self.members[0].sink, RealtimeSink)

    def begin(self) -> None:
        """Starts it; and looks again at dead values and late events that nobody has copied, because of a kill."""
        last = self.checkpoint.last_finished()
        record = self.checkpoint.batch(last) if last is not None else None
        if record is not None:  # what is read already is no lag, also before the first batch
            for member in self.members:
                member.meter.begin(record.offsets)
            for stream in self.dead_streams:  # what the last run has left out may not be copied yet
                self._aside.dead(stream, {}, record.offsets, 1)
        if last is not None and any(stream.time is not None for stream in self.streams):
            # What uses no window leaves nothing out.
            for member in (member for member in self.members if member.pipeline.windows):
                known = self._aside.late_position(self._late_name(member))
                unseen = range(max(known, last - KEPT_BATCHES, 1), last + 1)
                if unseen:
                    self._late(member, unseen)
        self.watch.begin()

    def end(self) -> None:
        """Stops it."""
        self.watch.end()
        for member in self.members:
            if isinstance(member.sink, TopicSink):
                member.sink.close()

    def refresh(self) -> None:
        """Brings the status of its members up to date."""
        self.watch.take(always=self.is_realtime)
        for member in self.members:
            status = member.meter.status
            status.state, status.error, status.restarts = (
                self.watch.state,
                self.watch.error,
                self.watch.restarts,
            )
            status.failures = self.watch.failures
            status.rows_out = member.sink.rows
            status.late = self._aside.counts.late.get(member.name, 0)
            member.meter.refresh()

    def _start(self) -> StreamingQuery:
        if self.ticking is not None:
            self.ticking.started()
        frame = together([member.pipeline.frame for member in self.members])
        sink = self.members[0].sink
        if isinstance(sink, RealtimeSink):
            named = sink.writer(frame).queryName(self.watch.name)
            return named.option("checkpointLocation", self.checkpoint.location).start()
        if isinstance(sink, TopicSink):
            frame = sink.prepared(frame)
        return (
            frame.writeStream.queryName(self.watch.name)
            .outputMode(self.members[0].pipeline.mode)
            .option("checkpointLocation", self.checkpoint.location)
            .foreachBatch(self._batch)
            .start()
        )

    def _batch(self, frame: DataFrame, number: int) -> None:
        self.watch.begun = number
        try:
            self._sink(frame, number)
        except BaseException as error:
            self.watch.note(error)
            raise
        self._changed()

    def _explained(self, error: BaseException) -> BaseException:
        """What Spark says when records are gone, in our words, with how many they are."""
        last = self.checkpoint.last_finished()
        record = self.checkpoint.batch(last) if last is not None else None
        for stream in self.streams:
            known = record.offsets.get(stream.topic) if record is not None else None
            start = as_text(stream.topic, known) if known else None
            try:
                found = gaps.in_words(error, read_of(stream, self._settings), start)
            except HeadwaterError:
                continue  # the broker is away as well
            if found is not None:
                return found
        return error

    def _progressed(self, progress: dict[str, Any]) -> None:
        for member in self.members:
            member.meter.take(progress)
        observed = progress.get("observedMetrics", {})
        start, end = all_offsets(progress, "startOffset"), all_offsets(progress, "endOffset")
        for stream in self.dead_streams:
            counted = observed.get(dead_metric(stream.name))
            if counted is not None and stream.topic in end:
                for member in self.members:
                    member.meter.status.dead += int(counted["dead"])
                self._aside.dead(stream, start, end, int(counted["dead"]))
        self._count_missed(start, end)
        if self.ticking is not None:
            for stream in self.streams:
                self.ticking.read(stream.name, observed.get(dead_metric(stream.name)) or {}, end)
        self._count_late(progress)

    def _count_late(self, progress: dict[str, Any]) -> None:
        dropped = dropped_by_watermark(progress)
        if not dropped:
            return
        # Of views that share a query, those without a window have left nothing out.
        for member in [each for each in self.members if each.pipeline.windows] or self.members:
            if any(stream.time is not None for stream in self.streams):
                self._late(member, range(progress["batchId"], progress["batchId"] + 1))
            else:  # by a time that the function computes: which ones they were cannot be told afterwards
                late = self._aside.counts.late
                late[member.name] = late.get(member.name, 0) + dropped

    def _count_missed(self, start: Offsets, end: Offsets) -> None:
        """What retention took before it was read, of streams that go on all the same."""
        for stream in self.streams:
            if stream.on_gap != "continue" or stream.topic not in start:
                continue
            begun, ended = (as_text(stream.topic, side[stream.topic]) for side in (start, end))
            lost = sum(gaps.missed(read_of(stream, self._settings), begun, ended).values())
            if lost:
                logger.warning("%s records of %s were removed before they were read", lost, stream.name)
                for member in self.members:
                    member.meter.status.missed += lost

    def _late_name(self, member: Member) -> str:
        return f"{self._application}.{member.name}.{member.build}"

    def _late(self, member: Member, batches: range) -> None:
        self._aside.late(
            member.name,
            self._late_name(member),
            self.streams,
            member.pipeline.windows,
            self.checkpoint,
            batches,
        )


def all_offsets(progress: dict[str, Any], which: str) -> Offsets:
    """The offsets of all sources in a progress report.

    >>> all_offsets({"sources": [{"endOffset": {"clicks": {"0": 7}}}]}, "endOffset")
    {'clicks': {0: 7}}
    """
    offsets: Offsets = {}
    for source in progress.get("sources", []):
        merge(offsets, source_offsets(source.get(which)))
    return offsets
