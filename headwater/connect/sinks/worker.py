"""Runs a sink: hands it the committed records of its topic from its own position on, again after every failure.

What passes by itself (a broker or a Redis that restarts, a topic that is yet to be made) is tried again with growing
pauses; any other error of the catalogue stops the sink and is shown until somebody acts.
"""

import logging
import threading
import time
from dataclasses import dataclass

from headwater.client.admin import Admin
from headwater.client.bare_requests import EARLIEST, Place
from headwater.client.connection import Connection
from headwater.client.fetcher import Fetcher
from headwater.client.secured_fetcher import SecuredFetcher
from headwater.connect.sinks.reading import fetcher_for
from headwater.connect.sinks.sink import Sink, SinkCounts, shown
from headwater.connect.source import QUIET_SECONDS
from headwater.connect.worker import FIRST_PAUSE, PASSING, State
from headwater.errors import ConnectionLost, HeadwaterError, OffsetOutOfRange, RecordsMissed, UnknownTopic

TURN = 50_000  # offsets of one partition before the others have their turn
LONGEST_PAUSE, TOPIC_PAUSE = 5.0, 1.0  # before another try; for a topic that is yet to be made
LOOK_SECONDS = 10.0  # between two looks whether the topic has more partitions, or is another one
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of topics of brokers before Kafka 2.8

logger = logging.getLogger("headwater.connect")


@dataclass(frozen=True)
class SinkWorkerStatus:
    """How a sink is doing, for people and metrics."""

    name: str
    state: State
    topic: str
    target: str
    counts: SinkCounts
    position: str = ""
    lag_records: int | None = None  # offsets between its position and the end of the topic
    lag_seconds: float | None = None  # the age of the last record taken, while there are more
    restarts: int = 0
    error: str = ""
    notes: tuple[str, ...] = ()
    kind: str = "sink"

    @property
    def records(self) -> int:
        """Records taken since the start of the process."""
        return self.counts.records


class SinkWorker:
    """One sink and its topic. `run` returns when it is told to stop, and raises what does not pass."""

    def __init__(self, connection: Connection, sink: Sink, last_seen: float | None = None) -> None:
        """`last_seen` is when the sink was at work before, in seconds, if that is known."""
        self.connection, self.sink = connection, sink
        self._last_seen = last_seen
        sink.attach(connection)
        self._admin: Admin | None = None
        self._state: State = "starting"
        self._error = ""
        self._restarts = 0
        self._notes: tuple[str, ...] = ()
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._last_time = 0  # of the last record taken, in milliseconds

    def run(self, stopping: threading.Event) -> None:
        """Follows the topic until `stopping` is set."""
        pause = FIRST_PAUSE
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._run_once(stopping)
            except PASSING as error:
                self._note(error)
                longest = TOPIC_PAUSE if isinstance(error, UnknownTopic) else LONGEST_PAUSE
            except BaseException as error:
                self._state, self._error = "failed", str(error)
                raise
            else:
                break
            if time.monotonic() - began > 4 * LONGEST_PAUSE:
                pause = FIRST_PAUSE
            stopping.wait(pause)
            pause = min(longest, pause * 2)
        self._state = "stopped"

    def status(self) -> SinkWorkerStatus:
        """How it is doing. May be called from another thread."""
        positions, ends = dict(self._positions), dict(self._ends)
        lag = sum(max(0, end - positions.get(place, 0)) for place, end in ends.items()) if ends else None
        seconds = 0.0 if lag == 0 else None
        if lag and self._last_time:
            seconds = max(0.0, time.time() - self._last_time / 1000)
        return SinkWorkerStatus(
            name=self.sink.name,
            state=self._state,
            topic=self.sink.topic,
            target=self.sink.describe(),
            counts=self.sink.counts(),
            position=shown(positions),
            lag_records=lag,
            lag_seconds=seconds,
            restarts=self._restarts,
            error=self._error,
            notes=self._notes,
        )

    # -- one life ----------------------------------------------------------------------------------

    def _run_once(self, stopping: threading.Event) -> None:
        in_order = False
        try:
            with fetcher_for(self.connection) as fetcher:
                self._begin(fetcher)
                self._follow(fetcher, stopping)
            in_order = True
        finally:
            self.sink.close(in_order=in_order)

    def _begin(self, fetcher: Fetcher | SecuredFetcher) -> None:
        self.sink.topic_id = self._topic_id()
        places = fetcher.partitions([self.sink.topic])
        known = self.sink.open(places)
        first = fetcher.offsets(places, EARLIEST)
        self._positions = {place: known.get(place, first[place]) for place in places}
        self._ends = fetcher.offsets(places)
        if known and self._last_seen is not None:
            self._look_for_lost_deletes(time.time() - self._last_seen)
        self._last_seen = None

    def _follow(self, fetcher: Fetcher | SecuredFetcher, stopping: threading.Event) -> None:
        look = time.monotonic() + LOOK_SECONDS
        while not stopping.is_set():
            ends = fetcher.await_records(self._positions, QUIET_SECONDS)
            for place, end in ends.items():
                if end is None:
                    self._over_gap(fetcher, place)
                elif end > self._positions[place]:
                    self._ends[place] = end
                    self._read(fetcher, place, min(end, self._positions[place] + TURN), stopping)
            self.sink.idle()
            self._state, self._error = "running", ""
            if time.monotonic() > look:
                look = time.monotonic() + LOOK_SECONDS
                self._look_for_another_topic()
                self._look_for_partitions(fetcher)

    def _read(
        self, fetcher: Fetcher | SecuredFetcher, place: Place, end: int, stopping: threading.Event
    ) -> None:
        records = fetcher.columns(place, self._positions[place], end)
        try:
            for columns in records:
                after = int(columns.offsets[-1]) + 1
                self.sink.take(place, columns, after)
                self._positions[place] = after
                self._last_time = int(columns.timestamps[-1])
                self.sink.idle()
                if stopping.is_set():
                    return
        except OffsetOutOfRange:
            self._over_gap(fetcher, place)
            return
        finally:
            records.close()  # type: ignore[attr-defined]
        # Behind the last record there may be the marks of transactions, and what was compacted away.
        self._positions[place] = end

    def _look_for_partitions(self, fetcher: Fetcher | SecuredFetcher) -> None:
        for place in fetcher.partitions([self.sink.topic]):
            if place not in self._positions:
                self._positions[place] = fetcher.offsets([place], EARLIEST)[place]

    def _look_for_another_topic(self) -> None:
        """The sink is opened again then, and says what is to be done."""
        if self._topic_id() != self.sink.topic_id:
            raise ConnectionLost("follow", self.sink.topic, "it was made anew", "The sink looks at it again.")

    def _topic_id(self) -> str:
        found = self._ask_admin().topic(self.sink.topic, "follow").id
        return "" if found == _NO_ID else found

    def _ask_admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.connection)
        return self._admin

    def _look_for_lost_deletes(self, away: float) -> None:
        """A compacted topic forgets deletes after a while: who was away for longer may never hear of some."""
        configs = {each.name: each.value or "" for each in self._ask_admin().configs(self.sink.topic)}
        kept = int(configs.get("delete.retention.ms") or 0) / 1000
        if "compact" in configs.get("cleanup.policy", "") and away > kept:
            self._remark(
                f"it was away for {away / 3600:.1f} hours, and {self.sink.topic} keeps deletes for "
                f"{kept / 3600:.1f}: rows may be left that are deleted"
            )

    def _remark(self, text: str) -> None:
        logger.warning("%s: %s", self.sink.name, text)
        self._notes = (*self._notes[-9:], text)

    def _over_gap(self, fetcher: Fetcher | SecuredFetcher, place: Place) -> None:
        """The log does not hold the position: retention was quicker, or it is another topic now."""
        first, last = fetcher.ends([place])[place]
        at, subject = self._positions[place], f"{place[0]}-{place[1]}"
        if first <= at <= last:
            return  # it does after all: a leader that was behind
        if at > last:
            self._look_for_another_topic()
            cause = f"it ends at offset {last}, and the sink {self.sink.name} has followed it up to {at}"
            step = (
                "The topic was made anew, or lost its end: remove what the sink has written and its position."
            )
            raise RecordsMissed("follow", subject, cause, step)
        missed = f"records {at} to {first - 1} of {subject} were removed before they were read"
        if self.sink.on_gap == "fail":
            step = "Say on_gap='continue' on the sink to go on from the earliest record that is left."
            raise RecordsMissed("follow", subject, missed, step)
        self._remark(missed)
        self._positions[place] = first

    def _note(self, error: HeadwaterError) -> None:
        self._restarts += 1
        if str(error) != self._error:
            logger.warning("%s: %s", self.sink.name, error)
        self._state, self._error = "waiting", str(error)
