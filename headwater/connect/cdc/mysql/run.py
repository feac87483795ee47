"""One life of the source: connections, the stream, and the tables that are read beside it."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.livekeys import TopicKeys
from headwater.connect.cdc.mysql import changes, ddl
from headwater.connect.cdc.mysql.begin import check_position, check_server, place_to_begin
from headwater.connect.cdc.mysql.catalog import charsets_of_collations, database_charset, read_tables
from headwater.connect.cdc.mysql.changes import Naming, SnapshotTable
from headwater.connect.cdc.mysql.connection import SILENT_SECONDS, Database, StatementFailed, dump_failed
from headwater.connect.cdc.mysql.gtid import MySQLGtids
from headwater.connect.cdc.mysql.history import History
from headwater.connect.cdc.mysql.packets import ConnectionClosed, Packets
from headwater.connect.cdc.mysql.schema import Filter, Table
from headwater.connect.cdc.mysql.snapshot import (
    CHANGED,
    NO_SUCH_TABLE,
    ChunkQuery,
    ChunkReader,
    Job,
    log_status,
)
from headwater.connect.cdc.mysql.state import LogState, Place, before
from headwater.connect.cdc.mysql.stream import DdlPause, EndOfStream, ReplayPause, Stream
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.mysql.writing import moment
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import (
    QUIET_SECONDS,
    Position,
    Record,
    Signal,
    SourceStatus,
    Step,
    TableProgress,
)
from headwater.errors import CaptureImpossible, ChangesMissed, ConnectionLost

_DELETES_A_STEP = 2_000
_CHUNK_BYTES = 32 << 20
_FIRST_ROW_BYTES = 8192  # until rows of a table have been weighed
_FAILURES = 5
_STATUS_SECONDS = 2.0


class Run:
    """From a position on until it fails or is closed."""

    def __init__(self, options: CdcOptions, keys: TopicKeys | None, position: Position | None) -> None:
        self.options, self._keys, self._position = options, keys, position
        self.acknowledged: Position | None = position
        self._chosen = Filter(options.path_name, options.tables)
        self._asking: Database | None = None  # for questions
        self._dumping: Database | None = None
        self._reader: ChunkReader | None = None
        self._packets: Packets | None = None
        self._stream: Stream | None = None
        self._jobs: list[Job] = []
        self._first_rows = True  # of the whole snapshot
        self._paused = False
        self._chunk: tuple[Job, Place | MySQLGtids] | None = None
        self._heard = 0.0
        self._lag_bytes: int | None = None
        self._measured = 0.0
        self._totals: dict[tuple[str, str], int | None] = {}
        self._next_heartbeat = 0.0
        self._notes: list[str] = []

    # -- beginning

    def steps(self) -> Iterator[Step]:
        """All steps; the first says where it began."""
        asking = self._asking = Database(self.options.url)
        check_server(asking, self.options)
        try:
            self._begin(asking)
            yield self._step()
            yield from self._follow()
        except ChangesMissed as missed:
            if self.options.on_gap != "snapshot":
                raise
            self._begin_anew(asking, missed)
            yield self._step()
            yield from self._follow()

    def _begin(self, asking: Database) -> None:
        naming = Naming(self.options, "mariadb" if asking.is_mariadb else "mysql")
        position = self._position
        if position is None:
            state, tables = place_to_begin(asking, self._chosen)
            self._make(naming, state, tables, None)
            if self.options.snapshot == "initial":
                self._jobs = [Job(*name) for name in sorted(tables) if not self._is_outbox(name)]
        else:
            state = LogState.from_json(position, asking.is_mariadb)
            check_position(asking, state, self.options)
            group = position.get("group")
            resume = (group["gtid"], group["rows"]) if group else None
            self._make(naming, state, History.decoded(position["tables"]), resume)
            snapshot = position.get("snapshot") or {}
            self._jobs = [Job.from_json(job) for job in snapshot.get("jobs", ())]
            self._paused = bool(snapshot.get("paused"))
            self._first_rows = not snapshot.get("begun", True)
            self._take_new_tables(asking)
        self._connect()

    def _begin_anew(self, asking: Database, missed: ChangesMissed) -> None:
        """After a gap: from now on, with all tables read again and what is gone from them deleted."""
        self._notes.append(f"{missed.cause}: all tables are read again")
        self._close_streams()
        state, tables = place_to_begin(asking, self._chosen)
        naming = Naming(self.options, "mariadb" if asking.is_mariadb else "mysql")
        known = History.decoded(self._position["tables"]) if self._position else {}
        self._make(naming, state, tables, None)
        gone = [Job(*name, replaces=True, deleting=True) for name in sorted(set(known) - set(tables))]
        for job in gone:  # tables that were dropped meanwhile: their rows are to be deleted too
            self._gone[job.name] = known[job.name]
        self._jobs = gone + [
            Job(*name, replaces=True) for name in sorted(tables) if not self._is_outbox(name)
        ]
        self._chunk = None
        self._connect()

    def _make(
        self,
        naming: Naming,
        state: LogState,
        tables: dict[tuple[str, str], Table],
        resume: tuple[str, int] | None,
    ) -> None:
        asking = self._asking
        assert asking is not None
        charsets: dict[str, str] = {}

        def lookup(name: tuple[str, str]) -> Table | None:
            return read_tables(asking, self._chosen, only=name).get(name)

        def defaults(database: str) -> ddl.Defaults:
            if database not in charsets:
                charsets[database] = database_charset(asking, database)
            return ddl.Defaults(database, charsets[database], asking.is_mariadb)

        history = History(self._chosen, tables, lookup, charsets_of_collations(asking))
        checksummed = (asking.variable("binlog_checksum") or "").upper() == "CRC32"
        self._stream = Stream(naming, history, state, resume, defaults, checksummed)
        self._gone: dict[tuple[str, str], Table] = {}
        self._row_bytes: dict[tuple[str, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}  # reads of a table in a row that its changes undid

    def _take_new_tables(self, asking: Database) -> None:
        """Tables that are asked for now and were not before are read from the beginning."""
        history = self._live.history
        found = read_tables(asking, self._chosen)
        for name in sorted(set(found) - set(history.tables)):
            history.keep(found[name])
            history.found_now.add(name)
            if self.options.snapshot == "initial" and not self._is_outbox(name):
                self._jobs.append(Job(*name))

    def _connect(self) -> None:
        """Begins to read the log where the state is."""
        state = self._live.state
        self._dumping = Database(self.options.url)
        number = self.options.setting("server_id")
        if state.uses_gtids:
            self._packets = self._dumping.dump_from_gtids(str(state.gtids), number)
        else:
            self._packets = self._dumping.dump_from_place(state.file, state.place)
        self._heard = time.monotonic()

    @property
    def _live(self) -> Stream:
        assert self._stream is not None
        return self._stream

    def _is_outbox(self, name: tuple[str, str]) -> bool:
        outbox = self.options.outbox
        return outbox is not None and outbox in (name[1], ".".join(name))

    # -- steps

    def _step(self) -> Step:
        """What has come out since the last one."""
        stream = self._live
        return Step(stream.take(), self._full_position(stream.position()))

    def _full_position(self, position: dict[str, Any]) -> dict[str, Any]:
        if self._jobs:
            position["snapshot"] = {"jobs": [job.to_json() for job in self._jobs]}
            if self._paused:
                position["snapshot"]["paused"] = True
            if self._first_rows:
                position["snapshot"]["begun"] = False
        return position

    def _follow(self) -> Iterator[Step]:
        stream = self._live
        while True:
            self._tell_jobs()
            if self._jobs and not self._paused and self._chunk is None and not stream.in_group:
                yield from self._begin_job()
            if self._chunk is not None and self._is_reached():
                yield from self._read_chunk()
                continue
            data, spans = self._receive()
            number = 0
            while number < len(spans):
                try:
                    number = stream.feed(data, spans, number)
                except EndOfStream as end:
                    raise dump_failed(end.packet, self._dump_subject) from end
                if stream.pause is not None:
                    yield from self._handle_pause()
                    self._tell_jobs()
                elif number < len(spans):  # a chunk waits for this place
                    yield self._step()
                    yield from self._read_chunk()
            self._measure()
            heartbeat = self._heartbeat()
            if stream.writer.records or heartbeat or not spans:
                stream.writer.records += heartbeat
                yield self._step()

    def _tell_jobs(self) -> None:
        """Tells the stream which tables are yet to be read."""
        stream = self._live
        stream.left_out = {job.name for job in self._jobs if self._covers_changes(job)}
        stream.yet_to_read = {job.name for job in self._jobs if not job.begun and not job.where}

    def _covers_changes(self, job: Job) -> bool:
        """Whether changes before a table is read need not be told: without a key they could not be told twice."""
        table = self._live.history.tables.get(job.name)
        return table is not None and not table.key and not job.begun and not job.replaces and not job.where

    def _receive(self) -> tuple[bytes, Sequence[tuple[int, int]]]:
        assert self._packets is not None
        try:
            data, spans = self._packets.receive(QUIET_SECONDS)
        except ConnectionClosed as error:
            raise ConnectionLost("read the log of", self._dump_subject, str(error)) from error
        except OSError as error:
            raise ConnectionLost("read the log of", self._dump_subject, str(error)) from error
        now = time.monotonic()
        if not self._packets.is_quiet:
            self._heard = now
        elif now - self._heard > SILENT_SECONDS:
            cause = f"nothing came for {SILENT_SECONDS:.0f} seconds, not even a heartbeat"
            raise ConnectionLost("read the log of", self._dump_subject, cause)
        return data, spans

    @property
    def _dump_subject(self) -> str:
        return self.options.shown_url

    def _heartbeat(self) -> list[Record]:
        """Records that show that nothing happened, when they are asked for."""
        if self.options.heartbeat is None or time.monotonic() < self._next_heartbeat:
            return []
        self._next_heartbeat = time.monotonic() + self.options.heartbeat
        now = time.time_ns() // 1_000_000
        key = b'{"serverName":"%b"}' % self.options.logical_name.encode()
        return [Record(self.options.topic("heartbeat"), key, b'{"ts_ms":%d}' % now)]

    # -- pauses

    def _handle_pause(self) -> Iterator[Step]:
        pause = self._live.pause
        if isinstance(pause, ReplayPause):
            yield from self._replay(pause)
        elif isinstance(pause, DdlPause):
            yield from self._statement(pause)

    def _replay(self, pause: ReplayPause) -> Iterator[Step]:
        """Reads a group of events from where it lies in the log, on a connection of its own."""
        database = Database(self.options.url)
        try:
            packets = database.dump_from_place(*pause.start)
            done = False
            while not done:
                data, spans = packets.receive(SILENT_SECONDS)
                for start, end in spans:
                    if data[start]:
                        raise dump_failed(data[start:end], self._dump_subject)
                done = self._live.replay(data, spans)
                if self._live.writer.records and not done:
                    yield self._step()
        except OSError as error:
            raise ConnectionLost("read the log of", self._dump_subject, str(error)) from error
        finally:
            database.close()

    def _statement(self, pause: DdlPause) -> Iterator[Step]:
        """A statement about captured tables: what they held is deleted before what follows."""
        stream = self._live
        emptied = [each.emptied for each in pause.consequences if each.emptied is not None]
        if emptied and pause.first_time:
            yield Step(stream.take(), self._full_position(dict(pause.position)))
            for table in emptied:
                yield from self._delete_all(table, pause.position)
        for each in pause.consequences:
            if each.fresh or each.name not in stream.history.tables:
                self._jobs = [job for job in self._jobs if job.name != each.name]
            if each.reload and self.options.snapshot == "initial":
                self._jobs = [job for job in self._jobs if job.name != each.name]
                self._jobs.append(Job(*each.name, replaces=True))
            if self._chunk is not None and self._chunk[0].name == each.name:
                self._drop_chunk()
        stream.finish_statement()

    def _delete_all(self, table: Table, position: Mapping[str, Any]) -> Iterator[Step]:
        """Deletes for all that the topic of a table holds: it is empty now."""
        topic = self._live.naming.topic(table)
        if self._is_outbox((table.database, table.name)):
            return
        before_it = self._full_position(dict(position))
        if not table.key or self._keys is None:
            yield Step([self._truncated(table)], before_it)
            return
        yield from self._drain(before_it)
        yield from self._delete(table, self._keys.live(topic), before_it)

    def _delete(self, table: Table, keys: Iterator[bytes], position: dict[str, Any]) -> Iterator[Step]:
        records: list[Record] = []
        topic, head = self._live.naming.topic(table), self._head(table)
        for key in keys:
            row = changes.empty_row_with_key(table, key)
            now = changes.stamp(time.time_ns())
            value = changes.DELETED % (row, *head, 0, NULL, NULL, now)
            records += [Record(topic, key, value), changes.tombstone(topic, key)]
            if len(records) >= _DELETES_A_STEP:
                yield Step(records, position)
                records = []
        if records:
            yield Step(records, position)

    def _head(
        self, table: Table, snapshot: str = "false", server: int = 0
    ) -> tuple[bytes, bytes, bytes, int]:
        """The source of an event that is not in the log, in parts, up to the row's number."""
        stream = self._live
        prefix = stream.naming.source(table, quoted(snapshot)) % moment(int(time.time()), server)
        return prefix, NULL, stream.writer.file, stream.state.place

    def _truncated(self, table: Table) -> Record:
        parts = (*self._head(table), 0, NULL, NULL, changes.stamp(time.time_ns()))
        return Record(self._live.naming.topic(table), None, changes.TRUNCATED % parts)

    def _drain(self, position: dict[str, Any]) -> Iterator[Step]:
        """Waits until all that is out is durable, so that the log can be asked what it holds."""
        if self._keys is None:
            return
        end = None
        while self.acknowledged != position:
            if end is not None:
                time.sleep(0.01)
            end = end or time.monotonic() + 120
            if time.monotonic() > end:
                raise ConnectionLost("wait for", self.options.logical_name, "the log commits nothing")
            yield Step([], position)

    # -- snapshots

    def _begin_job(self) -> Iterator[Step]:
        """The next chunk of the first job."""
        job = self._jobs[0]
        if job.replaces and job.ends is None and self._keys is not None:
            table = self._live.history.tables.get(job.name) or self._gone.get(job.name)
            if table is not None and table.key:
                step = self._step()
                yield step
                yield from self._drain(dict(step.position))
                job.ends = self._keys.ends(self._live.naming.topic(table))
        if job.deleting:
            yield from self._finish_job(job)
            return
        table = self._live.history.tables.get(job.name)
        if table is None:
            self._jobs.remove(job)
            return
        if self._reader is None:
            self._reader = ChunkReader(self.options.url)
        if job.name not in self._totals:
            self._totals[job.name] = job.total = self._reader.estimate(job.name)
        try:
            place = self._reader.begin(table)
        except StatementFailed as failed:
            if failed.code not in CHANGED:
                raise self._unreadable(job, failed) from failed
            self._jobs.remove(job)  # it is gone; the log will say how
            return
        self._chunk = (job, place)
        stream = self._live
        if isinstance(place, MySQLGtids):
            target: MySQLGtids = place
            stream.hold = lambda: target <= stream.state.gtids  # type: ignore[operator]
        else:
            stream.hold = place
        if table.key and not stream.state.is_mariadb:
            stream.writer.touched, stream.writer.touched_topic = set(), stream.naming.topic(table)

    def _is_reached(self) -> bool:
        assert self._chunk is not None
        stream, place = self._live, self._chunk[1]
        if stream.in_group:
            return False
        if isinstance(place, MySQLGtids):
            return place <= stream.state.gtids  # type: ignore[operator]
        return stream.is_at(place)

    def _read_chunk(self) -> Iterator[Step]:
        """The rows of a chunk, now that the stream is where it was begun."""
        assert self._chunk is not None and self._reader is not None
        job, _ = self._chunk
        stream = self._live
        table = stream.history.tables.get(job.name)
        touched = stream.writer.touched or set()
        if table is None or self._jobs[:1] != [job]:
            self._drop_chunk()
            return
        if stream.writer.records:
            yield self._step()
        if not table.key and (
            job.begun or job.replaces
        ):  # what an interrupted try has left is to be forgotten
            job.rows = 0
            stream.writer.records.append(self._truncated(table))
        job.begun = True
        stream.left_out.discard(job.name)
        limit = self._limit(job, table)
        finished = False
        try:
            finished = yield from self._rows(job, table, limit, touched)
        except StatementFailed as failed:
            self._drop_chunk()
            if failed.code not in CHANGED:
                raise self._unreadable(job, failed) from failed
            self._look_again(job, failed)
            return
        self._failures.pop(job.name, None)
        if finished:
            job.deleting = True
            yield from self._finish_job(job)

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
        shape, query = SnapshotTable(self._live.naming, table), ChunkQuery(table)
        packets: Iterable[tuple[bytes, list[tuple[int, int]]]] = self._reader.rows(query.text(job, limit))
        if limit is not None:
            packets = list(packets)
            self._drop_chunk()
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
                self._write_read(job, shape, rows, touched, last=False)
                job.after = last_out if query.key else None
                yield self._step()
        if limit is not None and count >= limit:
            return False
        self._drop_chunk()
        if held is not None:
            self._write_read(job, shape, [held[0]], touched, last=True)
            job.after = held[1]
        return True

    def _weigh(self, job: Job, packets: Sequence[tuple[bytes, list[tuple[int, int]]]]) -> None:
        rows = sum(len(spans) for _, spans in packets)
        if rows:
            self._row_bytes[job.name] = (
                sum(end - start for _, spans in packets for start, end in spans) / rows
            )

    def _write_read(
        self, job: Job, shape: SnapshotTable, rows: list[Any], touched: set[bytes], last: bool
    ) -> None:
        """Rows as events; the first and the last of a table and of all are marked."""
        marks = {}
        if job.rows == 0:
            marks[0] = "first" if self._first_rows else "first_in_data_collection"
        if last:
            marks[len(rows) - 1] = "last" if len(self._jobs) == 1 else "last_in_data_collection"
        self._first_rows = False
        job.rows += len(rows)
        append, read, topic = self._live.writer.records.append, changes.READ, shape.topic
        tail = (0, NULL, NULL, changes.stamp(time.time_ns()))
        plain = self._head(shape.table, "true") + tail
        marked = {place: self._head(shape.table, mark) + tail for place, mark in marks.items()}
        if 0 in marked or len(rows) - 1 in marked or touched:
            for place, (key, row) in enumerate(rows):
                if key not in touched:
                    append((topic, key, read % (row, *marked.get(place, plain)), None))
        else:
            for key, row in rows:
                append((topic, key, read % (row, *plain), None))

    def _finish_job(self, job: Job) -> Iterator[Step]:
        """After the last row: what the topic holds from before and nobody wrote again is not in the table."""
        table = self._live.history.tables.get(job.name) or self._gone.get(job.name)
        if job.replaces and table is not None and job.where is None and table.key and self._keys is not None:
            step = self._step()
            yield step
            position = dict(step.position)
            yield from self._drain(position)
            topic = self._live.naming.topic(table)
            yield from self._delete(table, self._keys.live(topic, job.ends or {}), position)
        elif job.replaces and table is not None and job.name in self._gone and not table.key:
            self._live.writer.records.append(self._truncated(table))
        if job in self._jobs:
            self._jobs.remove(job)
        yield self._step()

    def _drop_chunk(self) -> None:
        if self._chunk is not None and self._reader is not None:
            self._reader.end()
        self._chunk = None
        self._live.hold = self._live.writer.touched = None

    def _look_again(self, job: Job, failed: StatementFailed) -> None:
        """The table changed while it was about to be read. The log says how: the next try comes after it."""
        if failed.code == NO_SUCH_TABLE:
            if job in self._jobs:
                self._jobs.remove(job)
            return
        self._failures[job.name] = self._failures.get(job.name, 0) + 1
        if self._failures[job.name] >= _FAILURES and self._asking is not None:
            found = read_tables(self._asking, self._chosen, only=job.name).get(job.name)
            if found is not None:  # what was read of the DDL was wrong
                self._live.history.keep(found)

    def _unreadable(self, job: Job, failed: StatementFailed) -> CaptureImpossible:
        step = "Correct the condition of the snapshot." if job.where else None
        return CaptureImpossible("read", ".".join(job.name), str(failed), step)

    # -- from outside

    def signal(self, signal: Signal) -> None:
        """Takes a signal; the jobs are part of the next position."""
        if signal.kind in ("pause", "resume"):
            self._paused = signal.kind == "pause"
            return
        if self._stream is None:
            return
        known = self._live.history.tables
        asked = [
            (name.split(".", 1)[0], name.split(".", 1)[1]) if "." in name else (self.options.path_name, name)
            for name in signal.tables
        ]
        names = [name for name in (asked or sorted(known)) if name in known and not self._is_outbox(name)]
        if signal.kind == "stop-snapshot":
            self._jobs = [job for job in self._jobs if job.name not in names]
            return
        for name in names:
            self._jobs = [job for job in self._jobs if job.name != name or job.where != signal.where]
            self._jobs.append(Job(*name, where=signal.where, replaces=signal.where is None))

    def status(self) -> SourceStatus:
        """May be called from another thread."""
        stream = self._stream
        if stream is None:
            return SourceStatus(notes=tuple(self._notes))
        state = stream.state
        progress = tuple(
            TableProgress(f"{job.database}.{job.table}", job.rows, self._totals.get(job.name), False)
            for job in list(self._jobs)
        )
        behind = max(0.0, time.time() - stream.when) if stream.when and self._lag_bytes else 0.0
        notes = (*self._notes, *stream.history.notes)
        gtid = str(state.gtids) if state.uses_gtids else ""
        text = f"{gtid} {state.file}:{state.place}".strip()
        return SourceStatus(text, self._lag_bytes, behind, progress, notes)

    def _measure(self) -> None:
        """Asks the server how far its log is, now and then."""
        now = time.monotonic()
        if self._asking is None or now - self._measured < _STATUS_SECONDS:
            return
        self._measured = now
        state = self._live.state
        file, end = str(log_status(self._asking)[0]), int(log_status(self._asking)[1])
        if file == state.file:
            self._lag_bytes = max(0, end - state.place)
            return
        sizes = {row[0]: int(row[1]) for row in self._asking.query("show binary logs")}
        between = [n for n in sizes if before((state.file, 0), (n, 0)) and before((n, 0), (file, 0))]
        here = max(0, sizes.get(state.file, 0) - state.place)
        self._lag_bytes = here + sum(sizes[name] for name in between) + end

    def has_no_key(self, topic: str) -> bool:
        """Whether a topic is of a table without a key."""
        stream = self._stream
        if stream is None:
            return False
        return any(
            not table.key and stream.naming.topic(table) == topic
            for table in [*stream.history.tables.values(), *self._gone.values()]
        )

    def _close_streams(self) -> None:
        for database in (self._dumping, self._reader):
            if database is not None:
                database.close()
        self._dumping = self._reader = None

    def close(self) -> None:
        self._close_streams()
        if self._asking is not None:
            self._asking.close()
