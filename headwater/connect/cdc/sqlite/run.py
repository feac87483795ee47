"""One life of a capture of SQLite: from opening the file to the end."""

import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence

import orjson

from headwater.connect.cdc.livekeys import TopicKeys
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite.database import Database, file_of
from headwater.connect.cdc.sqlite.jobs import Job
from headwater.connect.cdc.sqlite.state import State
from headwater.connect.cdc.sqlite.turns import Turns, is_acknowledged
from headwater.connect.source import QUIET_SECONDS, Position, Record, Signal, SourceStatus, Step
from headwater.errors import ChangesMissed, ConnectionLost

PRUNE_SECONDS, PRUNE_CHANGES = 1.0, 10_000
SHORTEST_NAP, LONGEST_NAP = 0.002, 0.01  # between two looks for changes; longer the longer nothing comes
SWEPT_AT_ONCE = 2_000  # keys


class Run:
    """From a position on."""

    def __init__(
        self,
        options: CdcOptions,
        keys: TopicKeys | None,
        position: Position | None,
        waiting: Sequence[Signal] = (),
    ) -> None:
        """`waiting` are signals that came before."""
        self.options, self._keys, self._waiting = options, keys, waiting
        self.acknowledged: Position | None = None
        self._position = position
        self._notes: list[str] = []
        self._database = Database(file_of(options.url))
        self._state = State.of(position) if position is not None else State()
        self._turns = Turns(options, self._database, keys, self._state, self._note)
        self._pruned = 0
        self._next_prune = self._next_heartbeat = 0.0

    def close(self) -> None:
        """Lets go of the file."""
        self._database.close()

    @property
    def without_key(self) -> set[str]:
        """Topics whose records have no key."""
        return self._turns.without_key

    def signal(self, signal: Signal) -> None:
        """Takes a signal; it is in the next position."""
        state, turns = self._state, self._turns
        if signal.kind in ("pause", "resume"):
            state.paused = signal.kind == "pause"
            return
        for name in [name for name in signal.tables if name not in turns.shapes]:
            self._note(f"no captured table is called {name}")
        for name in [name for name in turns.shapes if not signal.tables or name in signal.tables]:
            if signal.kind == "snapshot":
                if name == self.options.outbox or (signal.where and not turns.table(name).key):
                    self._note(f"{name} cannot be read again, or not in part: its rows have no key")
                    continue
                where = signal.where
                if where and state.job(name) is not None:
                    where = None  # what is left of the read that is under way must not be forgotten
                    self._note(f"{name} was being read: all of it is read again, not a part")
                new = Job(name, False, where, version=turns.version)
                state.jobs = (*state.without(name), new)
            else:
                state.jobs = state.without(name)

    def status(self) -> SourceStatus:
        """Where it is. From any thread."""
        state, turns = self._state, self._turns
        progress = {**turns.done, **{job.table: job.progress() for job in state.jobs}}
        return SourceStatus(
            position=f"change {state.sequence}",
            lag_seconds=turns.lag,
            snapshot=tuple(progress.values()),
            notes=(*self._notes, *(["reading of tables is paused"] if state.paused else [])),
        )

    def _note(self, text: str) -> None:
        self._notes = [*(note for note in self._notes if note != text), text][-5:]

    # -- the loop ----------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """All that happens."""
        self._begin()
        yield self._step([])
        nap, quiet_since = SHORTEST_NAP, time.monotonic()
        seen: int | None = None  # the state of the database in which nothing was left to do
        while True:
            now = self._data_version()
            if now == seen and not self._has_work():
                if time.monotonic() - quiet_since > QUIET_SECONDS:
                    quiet_since = time.monotonic()
                    self._require_file()
                    yield self._step(self._heartbeat())
                    self._prune()
                time.sleep(nap)
                nap = min(LONGEST_NAP, nap * 1.1)
                continue
            records, more = self._turn()
            seen = None if more else now
            if records or more:
                nap, quiet_since = SHORTEST_NAP, time.monotonic()
                yield self._step(records)
            yield from self._sweep()
            self._prune()

    def _step(self, records: list[Record]) -> Step:
        return Step(records, self._state.position())

    def _data_version(self) -> int:
        with self._database.explained("read"):
            return self._database.number("PRAGMA data_version")

    def _has_work(self) -> bool:
        """Whether there is something to do without a change."""
        if not self._state.jobs or self._state.paused:
            return False
        job = self._state.jobs[0]
        return job.stage == "reading" or self._keys is None or is_acknowledged(job, self.acknowledged)

    def _turn(self) -> tuple[list[Record], bool]:
        state = self._state
        before = (state.sequence, state.known, state.jobs)
        try:
            return self._turns.turn(self.acknowledged)
        except ConnectionLost as error:
            # The default way to read texts is the quickest, and refuses what is not UTF-8.
            refused = isinstance(error.__cause__, sqlite3.OperationalError) and "decode" in error.cause
            if refused and self._database.connection.text_factory is str:
                self._database.tolerate()
                state.sequence, state.known, state.jobs = before
                return [], True
            raise

    def _require_file(self) -> None:
        if self._database.is_replaced():
            raise ConnectionLost("read", str(self._database.path), "the file was replaced or removed")

    # -- beginning ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        name, position = self.options.logical_name, self._position
        database, state, turns = self._database, self._state, self._turns
        with database.writing("begin the capture of"):
            database.prepare()
            token = database.token(name)
            gap = self._gap(position, token)
            is_asked_for_all = any(signal.asks_for_all for signal in self._waiting)
            if gap and self.options.on_gap == "fail" and not is_asked_for_all:
                raise ChangesMissed("go on with", str(database.path), gap)
            if token is None or position is None or gap:
                outbox = self.options.outbox or ""
                turns.has_outbox_read = outbox in state.known and state.job(outbox) is None
                state.sequence, state.known, state.jobs = database.last_sequence(), {}, ()
                token = database.enrol(name, turns.captured(), state.sequence)
                turns.is_beginning = not gap
                turns.reads_first_tables = self.options.snapshot == "initial"
            else:
                database.want(name, turns.captured())
            turns.synchronise()
        if gap:
            self._note(f"all tables are read again: {gap}")
        state.tokens = (token, uuid.uuid4().hex)
        self._pruned = database.acknowledged(name)
        for signal in self._waiting:
            self.signal(signal)

    def _gap(self, position: Position | None, token: str | None) -> str:
        """Why the database cannot be gone on with, if so."""
        if position is None:
            return ""
        if token is None:
            return "it has no changelog of this capture any more: it was replaced, or capture was removed"
        if token not in position["tokens"]:
            return "it is another database than the one that was read, or a copy from earlier"
        if self._database.last_sequence() < position["sequence"]:
            return "it is a copy from earlier: it has fewer changes than were read"
        if self._database.acknowledged(self.options.logical_name) > position["sequence"]:
            return "changes that were yet to be read are no longer in the changelog"
        return ""

    # -- between the turns -------------------------------------------------------------------------

    def _sweep(self) -> Iterator[Step]:
        """Deletes what is in a topic from before its table was read, and was not read: it is in the table no more."""
        job = self._state.jobs[0] if self._state.jobs and not self._state.paused else None
        if job is None or job.stage != "sweeping" or not is_acknowledged(job, self.acknowledged):
            return
        assert self._keys is not None and job.ends is not None
        events = self._turns.events(self._turns.shapes[job.table])
        records: list[Record] = []
        for key in self._keys.live(events.topic, job.ends):
            records += events.swept(key, self._state.sequence)
            if len(records) >= 2 * SWEPT_AT_ONCE:
                yield self._step(records)
                records = []
        if self._state.job(job.table) == job:  # a signal that came meanwhile asks for another read
            self._turns.finish(job)
        yield self._step(records)

    def _prune(self) -> None:
        """Drops changes that are in the log, and renews the token."""
        acknowledged, now = self.acknowledged, time.monotonic()
        if acknowledged is None or tuple(acknowledged["tokens"]) != self._state.tokens:
            return
        count = acknowledged["sequence"] - self._pruned
        if count < PRUNE_CHANGES and (not count or now < self._next_prune):
            return
        self._next_prune = now + PRUNE_SECONDS
        next_token = self._state.tokens[-1]
        try:
            self._pruned = self._database.prune(
                self.options.logical_name, acknowledged["sequence"], next_token
            )
        except ConnectionLost:
            return  # busy; there is time
        self._state.tokens = (next_token, uuid.uuid4().hex)

    def _heartbeat(self) -> list[Record]:
        now = time.monotonic()
        if self.options.heartbeat is None or now < self._next_heartbeat:
            return []
        self._next_heartbeat = now + self.options.heartbeat
        key = orjson.dumps({"serverName": self.options.logical_name})
        value = orjson.dumps({"ts_ms": time.time_ns() // 1_000_000})
        return [Record(self.options.topic("heartbeat"), key, value, None)]
