"""The tables that are read beside the stream, one after the other, and what a topic has to forget."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.livekeys import TopicKeys
from headwater.connect.cdc.mysql import changes
from headwater.connect.cdc.mysql.catalog import read_tables
from headwater.connect.cdc.mysql.changes import SnapshotTable
from headwater.connect.cdc.mysql.connection import Database, StatementFailed
from headwater.connect.cdc.mysql.gtid import MySQLGtids
from headwater.connect.cdc.mysql.schema import Table
from headwater.connect.cdc.mysql.snapshot import CHANGED, NO_SUCH_TABLE, ChunkQuery, ChunkReader, Job
from headwater.connect.cdc.mysql.state import Place, before
from headwater.connect.cdc.mysql.stream import Stream
from headwater.connect.cdc.mysql.unproven import Unproven
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.mysql.writing import moment
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Position, Record, Signal, Step, TableProgress
from headwater.errors import CaptureImpossible, ConnectionLost

Name = tuple[str, str]
Packet = tuple[bytes, list[tuple[int, int]]]

_DELETES_A_STEP = 2_000
_CHUNK_BYTES = 32 << 20
_FIRST_ROW_BYTES = 8192  # until rows of a table have been weighed
_FAILURES = 5
_DURABLE_SECONDS = 120.0
# A snapshot that lacks what the stream has brought: how long the stream stands still for a better one at first, and at
# most, and how long it goes on before the next try.
_VISIBLE_SECONDS, _VISIBLE_LONGEST = 1.0, 16.0
_VISIBLE_AGAIN = 0.02
_BETWEEN_SECONDS = 1.0
_UNPROVEN_AGAIN = 0.2


class TableJobs:
    """Jobs in their order; the first is under way. They are a part of every position."""

    def __init__(self, options: CdcOptions, keys: TopicKeys | None, stream: Stream, asking: Database) -> None:
        self.options, self.stream = options, stream
        self.jobs: list[Job] = []
        self.is_paused = False
        self.notes: dict[str, str] = {}  # what became of signals, by table
        self.acknowledged: Position | None = None  # what is durable in the log
        self._keys, self._asking = keys, asking
        self._first_rows = True  # of the whole snapshot
        self._reader: ChunkReader | None = None
        self._chunk: tuple[Job, Place | MySQLGtids] | None = None
        self._began = self._begin_after = 0.0
        self._visible_seconds = _VISIBLE_SECONDS
        self._unproven = Unproven()
        self._totals: dict[Name, int | None] = {}
        self._row_bytes: dict[Name, float] = {}
        # Reads of a table in a row that failed, with the definition that they went by.
        self._failures: dict[Name, tuple[int, Table | None]] = {}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    # -- positions

    def load(self, position: Mapping[str, Any]) -> None:
        """The jobs of a position."""
        snapshot = position.get("snapshot") or {}
        self.jobs = [Job.from_json(job) for job in snapshot.get("jobs", ())]
        self.is_paused = is_paused(position)
        self._first_rows = not snapshot.get("begun", True)

    def complete(self, position: dict[str, Any]) -> dict[str, Any]:
        """A position of the stream with the jobs."""
        snapshot: dict[str, Any] = {}
        if self.jobs:
            snapshot["jobs"] = [job.to_json() for job in self.jobs]
            if self._first_rows:
                snapshot["begun"] = False
        if self.is_paused:
            snapshot["paused"] = True
        if snapshot:
            position["snapshot"] = snapshot
        return position

    def step(self) -> Step:
        """What the stream has given since the last one."""
        return Step(self.stream.take(), self._position())

    def _position(self) -> dict[str, Any]:
        return self.complete(self.stream.position())

    # -- what is to be read

    def is_outbox(self, name: Name) -> bool:
        outbox = self.options.outbox
        return outbox is not None and outbox in (name[1], ".".join(name))

    def add(self, name: Name, replaces: bool = False, where: str | None = None) -> None:
        """A table to be read, in place of an earlier wish of the same kind."""
        if not self.is_outbox(name):
            self.jobs = [job for job in self.jobs if job.name != name or job.where != where]
            self.jobs.append(Job(*name, where=where, replaces=replaces))

    def add_gone(self, table: Table) -> None:
        """A table that is no more: what its topic holds is to be deleted."""
        self.jobs.append(Job(table.database, table.name, replaces=True, deleting=True, gone=table.to_json()))

    def remove(self, name: Name) -> None:
        self.jobs = [job for job in self.jobs if job.name != name]

    def signal(self, signal: Signal) -> None:
        """Takes a signal; what came of it is in the next position."""
        if signal.kind in ("pause", "resume"):
            self.is_paused = signal.kind == "pause"
            return
        known = self.stream.history.tables
        asked = [_split(name, self.options.path_name) for name in signal.tables]
        for name in asked or sorted(known):
            shown = ".".join(name)
            self.notes.pop(shown, None)
            if name not in known:
                self.notes[shown] = f"no captured table is called {shown}"
            elif signal.kind == "stop-snapshot":
                self.remove(name)
            elif signal.where is not None and not known[name].key:
                self.notes[shown] = f"{shown} has no key: a part of it cannot be read again"
            else:
                self.add(name, replaces=signal.where is None, where=signal.where)

    def tell_stream(self) -> None:
        """Which tables are yet to be read."""
        self.stream.left_out = {job.name for job in self.jobs if self._covers_changes(job)}
        self.stream.yet_to_read = {job.name for job in self.jobs if not job.begun and not job.where}

    def _covers_changes(self, job: Job) -> bool:
        """Whether changes before a table is read need not be told: without a key they could not be told twice."""
        table = self._table(job)
        return table is not None and not table.key and not job.begun and not job.replaces and not job.where

    def _table(self, job: Job) -> Table | None:
        if job.gone is not None:
            return Table.from_json(job.gone)
        return self.stream.history.tables.get(job.name)

    def progress(self) -> tuple[TableProgress, ...]:
        """May be called from another thread."""
        return tuple(
            TableProgress(f"{job.database}.{job.table}", job.rows, self._totals.get(job.name), False)
            for job in list(self.jobs)
        )

    # -- chunks

    @property
    def may_begin(self) -> bool:
        waits = self.is_paused or time.monotonic() < self._begin_after
        return bool(self.jobs) and not waits and self._chunk is None and not self.stream.in_group

    def begin(self) -> Iterator[Step]:
        """The next chunk of the first job; or its end, when only deletes are left."""
        job = self.jobs[0]
        table = self._table(job)
        if table is None:
            self.jobs.remove(job)
            return
        if job.replaces and job.ends is None and self._keys is not None and table.key and job.where is None:
            yield self.step()
            yield from self._until_durable(self._position)
            job.ends = self._keys.ends(self.stream.naming.topic(table))
        if job.deleting:
            yield from self._finish(job)
        else:
            yield from self._begin_chunk(job, table)

    def _begin_chunk(self, job: Job, table: Table) -> Iterator[Step]:
        if self._reader is None:
            self._reader = ChunkReader(self.options.url)
        if job.name not in self._totals:
            self._totals[job.name] = self._reader.estimate(job.name)
        place = yield from self._open_snapshot(job, table, self._reader)
        if place is None:
            return
        self._chunk = (job, place)
        stream = self.stream
        stream.hold = place if isinstance(place, tuple) else lambda: _has(stream, place)
        if table.key and not self._reader.says_place:
            stream.writer.touched, stream.writer.touched_topic = set(), stream.naming.topic(table)

    def _open_snapshot(
        self, job: Job, table: Table, reader: ChunkReader
    ) -> Generator[Step, None, Place | MySQLGtids | None]:
        """The place of a snapshot that has all that the stream has brought; None when there is none yet.

        The stream stands still for the while: where commits wait for a standby, one after the other, it would always
        be ahead. It does so for longer from time to time: nobody knows how long they wait.
        """
        stream, end = self.stream, time.monotonic() + self._visible_seconds
        while True:
            self._began = time.monotonic()
            try:
                place = reader.begin(table)
            except StatementFailed as failed:
                if failed.code not in CHANGED:
                    raise self._unreadable(job, failed) from failed
                self.jobs.remove(job)  # it is gone; the log will say how
                return None
            if reader.shows(place, stream.state, stream.groups_end):
                self._visible_seconds = _VISIBLE_SECONDS
                if stream.groups_end is None and isinstance(place, tuple):
                    # What earlier lives have brought is not proven by a place to which a rotation has moved since.
                    is_rotated = stream.began[0] not in ("", place[0]) and before(stream.began, place)
                    stream.groups_end = stream.began if is_rotated else place
                return place
            reader.end()
            if time.monotonic() > end:
                self._begin_after = time.monotonic() + _BETWEEN_SECONDS
                self._visible_seconds = min(_VISIBLE_LONGEST, 2 * self._visible_seconds)
                return None
            yield self.step()
            time.sleep(_VISIBLE_AGAIN)
            if self.is_paused or not self.jobs or self.jobs[0] is not job:
                return None

    @property
    def is_reached(self) -> bool:
        """Whether the stream is where the chunk under way was begun."""
        if self._chunk is None or self.stream.in_group:
            return False
        place = self._chunk[1]
        return self.stream.is_at(place) if isinstance(place, tuple) else _has(self.stream, place)

    def read(self) -> Iterator[Step]:
        """The rows of the chunk, now that the stream is where it was begun."""
        assert self._chunk is not None
        job, place = self._chunk
        stream, table = self.stream, self._table(job)
        touched = stream.writer.touched or set()
        if table is None or self.jobs[:1] != [job]:
            self.drop_chunk()
            return
        if not self._is_proven(place):
            self.drop_chunk()
            self._begin_after = time.monotonic() + _UNPROVEN_AGAIN
            return
        if stream.writer.records:
            yield self.step()
        if not table.key and (
            job.begun or job.replaces
        ):  # what an interrupted try has left is to be forgotten
            job.rows = 0
            stream.writer.records.append(self.truncated(table))
        job.begun = True
        stream.left_out.discard(job.name)
        try:
            finished = yield from self._rows(job, table, self._limit(job, table), touched)
        except StatementFailed as failed:
            self.drop_chunk()
            if failed.code in CHANGED:
                self._look_again(job, failed)
            elif job.where is None:
                raise self._unreadable(job, failed) from failed
            else:
                self._give_up(job, failed)
            if job not in self.jobs:
                yield self.step()
            return
        self._failures.pop(job.name, None)
        if finished:
            job.deleting = True
            yield from self._finish(job)

    def _is_proven(self, place: Place | MySQLGtids) -> bool:
        """Whether the snapshot has all groups before its place, also those at the end of a file of the log."""
        assert self._reader is not None
        if self._reader.is_proven(place, self.stream.groups_end):
            self._unproven.forget()
            return True
        return self._unproven.is_over(self.stream.groups_end, self._began, time.monotonic())

    def drop_chunk(self, name: Name | None = None) -> None:
        """Ends the transaction of the chunk under way, if it is of this table."""
        if self._chunk is None or (name is not None and self._chunk[0].name != name):
            return
        if self._reader is not None:
            self._reader.end()
        self._chunk = None
        self.stream.hold = self.stream.writer.touched = None

    def _limit(self, job: Job, table: Table) -> int | None:
        """How many rows a chunk may have: what fits into memory, and one more, to know whether it is the end."""
        if not table.key:
            return None
        room = int(_CHUNK_BYTES / max(1.0, self._row_bytes.get(job.name, _FIRST_ROW_BYTES)))
        return max(2, min(self.options.chunk_rows, room)) + 1

    def _rows(
        self, job: Job, table: Table, limit: int | None, touched: set[bytes]
    ) -> Generator[Step, None, bool]:
        """Writes the rows of a chunk; gives whether the table is at its end.

        The last row of all is marked. So the last of a chunk is left to the next one, when there may be one. A
        chunk is taken from the server as a whole, so that its transaction ends at once, whoever waits for what:
        DDL would have to wait for it. Of a table without a key there is but one chunk, which is not held in memory.
        """
        assert self._reader is not None
        shape, query = SnapshotTable(self.stream.naming, table), ChunkQuery(table)
        packets: Iterable[Packet] = self._reader.rows(query.text(job, limit))
        if limit is not None:
            packets = list(packets)
            self.drop_chunk()
            self._weigh(job, packets)
        held: tuple[Any, list[str] | None] | None = None
        count = 0
        for data, spans in packets:
            rows: list[Any] = [] if held is None else [held[0]]
            shape.decode(data, spans, rows.append)
            count += len(spans)
            last_out = held[1] if held is not None else None
            if len(spans) > 1 and query.key:
                last_out = query.key_of(data, spans[-2][0])
            held = (rows.pop(), query.key_of(data, spans[-1][0]) if query.key else None)
            if rows:
                self._write(job, shape, rows, touched, last=False)
                job.after = last_out
                yield self.step()
        if limit is not None and count >= limit:
            return False
        self.drop_chunk()
        if held is not None:
            self._write(job, shape, [held[0]], touched, last=True)
            job.after = held[1]
        return True

    def _weigh(self, job: Job, packets: Sequence[Packet]) -> None:
        rows = sum(len(spans) for _, spans in packets)
        if rows:
            self._row_bytes[job.name] = (
                sum(end - start for _, spans in packets for start, end in spans) / rows
            )

    def _write(
        self, job: Job, shape: SnapshotTable, rows: list[Any], touched: set[bytes], last: bool
    ) -> None:
        """Rows as events; the first and the last of a table and of all are marked."""
        marks = {}
        if job.rows == 0:
            marks[0] = "first" if self._first_rows else "first_in_data_collection"
        if last:
            marks[len(rows) - 1] = "last" if len(self.jobs) == 1 else "last_in_data_collection"
        self._first_rows = False
        job.rows += len(rows)
        append, read, topic = self.stream.writer.records.append, changes.READ, shape.topic
        tail = (0, NULL, NULL, changes.stamp(time.time_ns()))
        plain = self._head(shape.table, "true") + tail
        marked = {place: self._head(shape.table, mark) + tail for place, mark in marks.items()}
        if marked or touched:
            for place, (key, row) in enumerate(rows):
                if key not in touched:
                    append((topic, key, read % (row, *marked.get(place, plain)), None))
        else:
            for key, row in rows:
                append((topic, key, read % (row, *plain), None))

    def _finish(self, job: Job) -> Iterator[Step]:
        """After the last row: what the topic holds from before and nobody wrote again is not in the table."""
        table = self._table(job)
        if job.replaces and table is not None and job.where is None:
            if table.key and self._keys is not None:
                yield self.step()
                yield from self._until_durable(self._position)
                gone = self._keys.live(self.stream.naming.topic(table), job.ends or {})
                yield from self._delete(table, gone, self._position)
            elif job.gone is not None:
                self.stream.writer.records.append(self.truncated(table))
        if job in self.jobs:
            self.jobs.remove(job)
        yield self.step()

    def _look_again(self, job: Job, failed: StatementFailed) -> None:
        """The table changed while it was about to be read. The log says how: the next try comes after it."""
        if failed.code == NO_SUCH_TABLE:
            self.remove(job.name)
            return
        tried = self._table(job)
        count, last = self._failures.get(job.name, (0, None))
        count = count + 1 if tried == last else 1  # what the log has said meanwhile may be why
        self._failures[job.name] = count, tried
        if count >= _FAILURES and job.where is not None:
            self._give_up(job, failed)
        elif count >= _FAILURES:
            chosen = self.stream.history.chosen
            found = read_tables(self._asking, chosen, only=job.name).get(job.name)
            if found is not None:  # what was read of the DDL was wrong
                self.stream.history.keep(found)

    def _give_up(self, job: Job, failed: StatementFailed) -> None:
        """A part of a table that cannot be read, by a condition that somebody sent: all else goes on."""
        shown = ".".join(job.name)
        self.notes[shown] = f"{shown} was not read again, its condition does not hold water: {failed}"
        self._failures.pop(job.name, None)
        self.jobs.remove(job)

    def _unreadable(self, job: Job, failed: StatementFailed) -> CaptureImpossible:
        return CaptureImpossible("read", ".".join(job.name), str(failed))

    # -- what is gone

    def delete_all(self, table: Table, position: Callable[[], Position]) -> Iterator[Step]:
        """Deletes for all that the topic of a table with a key holds: it is empty now.

        The position of each step is made for it, since signals that came before are in it.
        """
        if self._keys is not None and table.key and not self.is_outbox((table.database, table.name)):
            yield from self._until_durable(position)
            yield from self._delete(table, self._keys.live(self.stream.naming.topic(table)), position)

    def truncated(self, table: Table) -> Record:
        """The event that says that a table is empty, for topics without keys."""
        parts = (*self._head(table), 0, NULL, NULL, changes.stamp(time.time_ns()))
        return Record(self.stream.naming.topic(table), None, changes.TRUNCATED % parts)

    @property
    def knows_keys(self) -> bool:
        """Whether the log can be asked which keys a topic holds."""
        return self._keys is not None

    def _delete(
        self, table: Table, keys: Iterator[bytes], position: Callable[[], Position]
    ) -> Iterator[Step]:
        records: list[Record] = []
        topic, head = self.stream.naming.topic(table), self._head(table)
        for key in keys:
            row = changes.empty_row_with_key(table, key)
            now = changes.stamp(time.time_ns())
            value = changes.DELETED % (row, *head, 0, NULL, NULL, now)
            records += [Record(topic, key, value), changes.tombstone(topic, key)]
            if len(records) >= _DELETES_A_STEP:
                yield Step(records, position())
                records = []
        if records:
            yield Step(records, position())

    def _head(self, table: Table, snapshot: str = "false") -> tuple[bytes, bytes, bytes, int]:
        """The source of an event that has no rows event of its own, in parts, up to the row's number."""
        stream = self.stream
        server = int(stream.state.server) if stream.in_group and stream.state.server.isdigit() else 0
        gtid = stream.writer.gtid if stream.in_group else NULL
        prefix = stream.naming.source(table, quoted(snapshot)) % moment(int(time.time()), server)
        return prefix, gtid, stream.writer.file, stream.state.place

    def _until_durable(self, position: Callable[[], Position]) -> Iterator[Step]:
        """Waits until all that is out is in the log, so that the log can be asked what it holds."""
        end = time.monotonic() + _DURABLE_SECONDS
        while self.acknowledged != (now := position()):
            if time.monotonic() > end:
                raise ConnectionLost("wait for", self.options.logical_name, "the log commits nothing")
            yield Step([], now)
            if self.acknowledged != now:
                time.sleep(0.01)


def is_paused(position: Mapping[str, Any]) -> bool:
    """Whether the reading of tables is paused, by a position."""
    return bool((position.get("snapshot") or {}).get("paused"))


def _has(stream: Stream, gtids: MySQLGtids) -> bool:
    return isinstance(stream.state.gtids, MySQLGtids) and gtids <= stream.state.gtids


def _split(name: str, database: str) -> Name:
    first, dot, rest = name.partition(".")
    return (first, rest) if dot else (database, name)
