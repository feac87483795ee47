"""A turn of a capture of SQLite: in one state of the database, the changes that are new, and perhaps a chunk."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.connect.cdc.livekeys import TopicKeys
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite import triggers as sql
from headwater.connect.cdc.sqlite.database import Database, Shape
from headwater.connect.cdc.sqlite.events import TableEvents, nanoseconds, schema_event
from headwater.connect.cdc.sqlite.jobs import Job, chunk_query, estimate_query, marker
from headwater.connect.cdc.sqlite.schema import Table
from headwater.connect.cdc.sqlite.state import State
from headwater.connect.source import Position, Record, TableProgress
from headwater.errors import ConnectionLost

CHANGES_AT_ONCE = 10_000
CHANGES_AT_ONCE_LOCKING = 2_000  # while we read, writers wait, unless the journal is a write-ahead log
STEP_BYTES = 4 << 20

_HEAD = len(sql.HEAD)


class Turns:
    """Reads on from a state, which it moves."""

    def __init__(
        self,
        options: CdcOptions,
        database: Database,
        keys: TopicKeys | None,
        state: State,
        note: Callable[[str], None],
    ) -> None:
        self.options, self.database, self.state, self._keys, self._note = options, database, state, keys, note
        self.shapes: Mapping[str, Shape] = {}  # of our tables, as they are now
        self.version = -1  # of the schema that the shapes are of
        self.without_key: set[str] = set()  # topics
        self.lag = 0.0  # seconds
        self.done: dict[str, TableProgress] = {}
        self.is_beginning = False  # until the tables that were there at first are known
        self.reads_first_tables = True
        self.has_outbox_read = False  # before a gap: its rows are events, which would come twice
        self._events: dict[int, TableEvents | None] = {}  # by shape; None for a table that is not ours
        self._left_out: set[str] = set()  # tables that have no topic of their own
        self._has_first = False  # whether a first row of a first snapshot was written
        self._at_once = CHANGES_AT_ONCE if database.is_wal() else CHANGES_AT_ONCE_LOCKING

    # -- shapes ------------------------------------------------------------------------------------

    def captured(self) -> list[str] | None:
        """The tables asked for."""
        tables, outbox = self.options.tables, self.options.outbox
        return None if tables is None else sorted({*tables, *([outbox] if outbox else [])})

    def synchronise(self) -> None:
        """Makes triggers fit tables, and takes note of them; inside of a writing transaction."""
        before = self.database.version()
        found = self.database.synchronise()
        wanted = self.captured()
        self._left_out = self._without_topic([name for name in found if wanted is None or name in wanted])
        self.shapes = {
            name: shape
            for name, shape in found.items()
            if (wanted is None or name in wanted) and name not in self._left_out
        }
        self.version = self.database.version()
        stable = {
            name: shape.table.has_stable_rowid or shape.table.rowid is None for name, shape in found.items()
        }
        self.state.follow_version(before, self.version, stable)
        if missing := sorted(set(wanted or ()) - set(found)):
            self._note(f"there is no table {', '.join(missing)}")

    def _without_topic(self, names: Sequence[str]) -> set[str]:
        """Of tables that would share a topic the one is captured that was there first."""
        first: dict[str, str] = {}
        left_out = set()
        for name in sorted(names, key=lambda each: (each not in self.state.known, each)):
            taken = first.setdefault(self.options.table_topic("main", name), name)
            if taken != name:
                left_out.add(name)
                self._note(f"{name} is left out: its topic would be that of {taken}")
        return left_out

    def events(self, shape: Shape) -> TableEvents:
        """How the events of a table look."""
        events = self._events.get(shape.id)
        if events is None:
            events = self._events[shape.id] = TableEvents(self.options, shape.table)
            if events.is_bag:
                self.without_key.add(events.topic)
        return events

    def _events_of(self, number: int, records: list[Record]) -> TableEvents | None:
        """The same by a shape's number, when its first change comes."""
        shape = self.database.shape(number)
        wanted = self.captured()
        if (wanted is not None and shape.table.name not in wanted) or shape.table.name in self._left_out:
            self._events[number] = None
            return None
        if self.state.known.get(shape.table.name, 0) < number:
            self._learn(shape, records)
        return self.events(shape)

    def _learn(self, shape: Shape, records: list[Record]) -> None:
        """A table is new, or another than its topic knows."""
        name, state = shape.table.name, self.state
        known = state.known.get(name)
        before = self.database.shape(known).table if known is not None else None
        self.events(shape)
        if before is None or (before.columns, before.key) != (shape.table.columns, shape.table.key):
            text = self._definition(name)
            records.append(schema_event(self.options, name, shape.table, text, state.sequence))
        if known is None and name == self.options.outbox and self.has_outbox_read:
            self._note(f"{name} is not read again: its rows are events, which would come twice")
            reads = self.has_outbox_read = False
        elif known is None:
            reads = not self.is_beginning or self.reads_first_tables
        else:
            reads = self.database.reads_again_after(name, known) and name != self.options.outbox
        if reads:
            initial = known is None and self.is_beginning
            state.jobs = (*state.without(name), Job(name, initial, version=self.version))
        state.known = {**state.known, name: shape.id}

    def _definition(self, name: str) -> str | None:
        row = self.database.connection.execute(
            "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)
        ).fetchone()
        return row[0] if row is not None else None

    def _learn_all(self, records: list[Record]) -> None:
        for name, shape in self.shapes.items():
            if self.state.known.get(name) != shape.id:
                self._learn(shape, records)
        self.is_beginning = False
        for name in [name for name in self.state.known if name not in self.shapes]:
            if self._definition(name) is None:
                records.append(schema_event(self.options, name, None, None, self.state.sequence))
            self.state.jobs = self.state.without(name)
            self.state.known = {each: number for each, number in self.state.known.items() if each != name}

    # -- a turn ------------------------------------------------------------------------------------

    def turn(self, acknowledged: Position | None) -> tuple[list[Record], bool]:
        """The records that are due, and whether there is more to do at once."""
        database, records = self.database, list[Record]()
        self._start_job(acknowledged, records)
        with database.reading() as connection:
            is_known = database.version() == self.version
            if is_known:
                if database.token(self.options.logical_name) not in self.state.tokens:
                    raise ConnectionLost("read", str(database.path), "the file was replaced")
                if not self._read_changes(connection, records):
                    return records, True
                job = self._current("reading")
                if job is not None:
                    self._read_chunk(connection, job, records)
                self._learn_all(records)
                return records, job is not None
        with database.writing("make triggers in"):
            self.synchronise()
        return records, True

    def _read_changes(self, connection: sqlite3.Connection, records: list[Record]) -> bool:
        """Takes changes; False when there are more."""
        state, known = self.state, self._events
        count = size = 0
        at = 0.0
        rows = connection.execute(
            f"SELECT * FROM {sql.CHANGES} WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (state.sequence, self._at_once),
        )
        for row in rows:
            sequence, number, op, at, before_row, after_row = row[:_HEAD]
            events = known[number] if number in known else self._events_of(number, records)
            if events is not None:
                width = events.width
                before = row[_HEAD : _HEAD + width] if op != "c" else ()
                start = _HEAD + width if op == "u" else _HEAD
                after = row[start : start + width] if op != "d" else ()
                if events.is_bag and (job := state.job(events.table.name)) is not None:
                    op, before, after = _as_read(job, op, before, after, before_row, after_row)
                if op:
                    new = events.change(op, before, after, sequence, at)
                    records += new
                    size += len(new[0][2] or b"") if new else 0
            state.sequence = sequence
            count += 1
            if size > STEP_BYTES:
                break
        is_end = count < self._at_once and size <= STEP_BYTES
        self.lag = 0.0 if is_end else max(0.0, time.time() - nanoseconds(at) / 1e9)
        return is_end

    # -- chunks ------------------------------------------------------------------------------------

    def _current(self, stage: str) -> Job | None:
        """The job at hand, when it is at this stage."""
        job = self.state.jobs[0] if self.state.jobs and not self.state.paused else None
        return job if job is not None and job.stage == stage and job.table in self.shapes else None

    def _start_job(self, acknowledged: Position | None, records: list[Record]) -> None:
        """Notes where the topic ends before the first row is read: records from before may be of rows long gone."""
        job = self._current("new")
        if job is None:
            return
        shape = self.shapes[job.table]
        events = self.events(shape)
        ends: Mapping[str, int] = {}
        if self._keys is not None and not events.is_outbox:
            if not is_acknowledged(job, acknowledged):
                return  # what was written before must be in the topic
            ends = self._keys.ends(events.topic)
        with self.database.explained("read"):
            total = self.database.number(estimate_query(shape.table))
        has_content = any(ends.values()) or (self._keys is None and not job.initial)
        if not shape.table.key and not events.is_outbox and has_content:
            records.append(events.truncated(self.state.sequence))
        sweeps = bool(shape.table.key) and job.where is None and any(ends.values())
        self.state.put(replace(job, stage="reading", total=total, ends=ends if sweeps else None))

    def _read_chunk(self, connection: sqlite3.Connection, job: Job, records: list[Record]) -> None:
        shape = self.shapes[job.table]
        events, limit = self.events(shape), self.options.chunk_rows
        identity = len(shape.table.identity)
        is_last_job = len(self.state.jobs) == 1
        query, parameters = chunk_query(shape.table, job, limit + 1)
        when, count, size = time.time_ns(), 0, 0
        held: tuple[Any, ...] | None = None  # a row is written when it is known whether it is the last

        def write(row: tuple[Any, ...], is_last: bool) -> int:
            mark = marker(job, count == 0 and job.rows == 0, not self._has_first, is_last, is_last_job)
            record = events.read(row[identity:], mark, self.state.sequence, when)
            records.append(record)
            return len(record.value or b"")

        after = job.after
        is_end = True
        try:
            for row in connection.execute(query, parameters):
                if held is not None:
                    size += write(held, False)
                    after, count = held[:identity], count + 1
                    if count >= limit or size > STEP_BYTES:
                        is_end = False
                        break
                held = row
        except sqlite3.OperationalError as error:
            if job.where is None or "decode" in str(error):
                raise
            self._note(f"{job.table} was not read again: {error}")
            self.state.jobs = self.state.without(job.table)
            return
        if is_end and held is not None:
            write(held, True)
            after, count = held[:identity], count + 1
        self._has_first = self._has_first or count > 0
        job = replace(job, after=after, rows=job.rows + count)
        if not is_end:
            self.state.put(job)
        elif job.ends:
            self.state.put(replace(job, stage="sweeping"))
        else:
            self.finish(job)

    def finish(self, job: Job) -> None:
        """A table is read."""
        self.state.jobs = self.state.without(job.table)
        self.done = {**self.done, job.table: job.progress(done=True)}

    def table(self, name: str) -> Table:
        """One of our tables."""
        return self.shapes[name].table


def is_acknowledged(job: Job, acknowledged: Position | None) -> bool:
    """Whether all that was written before the job came to its stage is in the log."""
    jobs = (acknowledged or {}).get("jobs") or ()
    return any(
        (each["table"], each["stage"], each.get("version", 0)) == (job.table, job.stage, job.version)
        for each in jobs
    )


def _as_read(
    job: Job,
    op: str,
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    before_row: int | None,
    after_row: int | None,
) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """A change of a table without a key that is being read: what a later chunk will have is left out."""
    had, has = bool(before) and job.covers(before_row), bool(after) and job.covers(after_row)
    if had and has:
        return op, before, after
    if had:
        return "d", before, ()
    return ("c", (), after) if has else ("", (), ())
