"""One life of the source: its connections, the stream, and the jobs beside it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from headwater.connect.cdc.livekeys import TopicKeys
from headwater.connect.cdc.mysql.begin import check_position, check_server, place_to_begin
from headwater.connect.cdc.mysql.catalog import charsets_of_collations, database_charset, read_tables
from headwater.connect.cdc.mysql.changes import Naming, topic_of
from headwater.connect.cdc.mysql.connection import SILENT_SECONDS, Database, dump_failed
from headwater.connect.cdc.mysql.definitions import Defaults
from headwater.connect.cdc.mysql.history import History
from headwater.connect.cdc.mysql.jobs import TableJobs, is_paused
from headwater.connect.cdc.mysql.packets import Packets
from headwater.connect.cdc.mysql.pauses import DdlPause, EndOfStream, ReplayPause
from headwater.connect.cdc.mysql.schema import Filter, Table
from headwater.connect.cdc.mysql.snapshot import log_status
from headwater.connect.cdc.mysql.state import LogState, before
from headwater.connect.cdc.mysql.stream import Stream
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import QUIET_SECONDS, Position, Record, Signal, SourceStatus, Step
from headwater.errors import ChangesMissed, ConnectionLost

_MEASURE_SECONDS = 2.0


class Run:
    """From a position on until it fails or is closed."""

    def __init__(
        self,
        options: CdcOptions,
        keys: TopicKeys | None,
        position: Position | None,
        waiting: Sequence[Signal] = (),
    ) -> None:
        """`waiting` are signals that came before."""
        self.options, self._keys, self._position = options, keys, position
        self._waiting = waiting
        self._chosen = Filter(options.path_name, options.tables, partial(topic_of, options))
        self._asking: Database | None = None  # for questions
        self._dumping: Database | None = None
        self._packets: Packets | None = None
        self._stream: Stream | None = None
        self._jobs: TableJobs | None = None
        self._heard = 0.0
        self._lag_bytes: int | None = None
        self._measured = 0.0
        self._next_heartbeat = 0.0
        self._notes: list[str] = []

    @property
    def stream(self) -> Stream:
        assert self._stream is not None
        return self._stream

    @property
    def jobs(self) -> TableJobs:
        assert self._jobs is not None
        return self._jobs

    def acknowledge(self, position: Position) -> None:
        if self._jobs is not None:
            self._jobs.acknowledged = position

    # -- beginning

    def steps(self) -> Iterator[Step]:
        """All steps; the first says where it began."""
        asking = self._asking = Database(self.options.url)
        check_server(asking, self.options)
        missed: ChangesMissed | None = None
        is_asked_for_all = any(signal.asks_for_all for signal in self._waiting)
        while True:
            try:
                if missed is None:
                    self._begin(asking)
                else:
                    self._begin_anew(asking, missed)
                self._connect()
                for signal in self._waiting:
                    # What was asked about reading before a gap was found has no say in closing it.
                    if missed is None or signal.kind in ("pause", "resume"):
                        self.jobs.signal(signal)
                self._waiting = ()
                yield self.jobs.step()
                yield from self._follow()
            except ChangesMissed as error:
                # A signal counts until what it asks for is read.
                is_due = is_asked_for_all and (bool(self._waiting) or bool(self.jobs.jobs))
                if self.options.on_gap != "snapshot" and not is_due:
                    raise
                missed = error

    def _begin(self, asking: Database) -> None:
        position = self._position
        if position is None:
            state, tables = place_to_begin(asking, self._chosen)
            self._make(asking, state, tables, None)
            self._tell_tables(asking, tables)
            if self.options.snapshot == "initial":
                for name in sorted(tables):
                    self.jobs.add(name)
            return
        known = History.decoded(position["tables"])
        for name in known:  # they have their topics, whatever comes
            self._chosen.captures(*name)
        state = LogState.from_json(position, asking.is_mariadb)
        check_position(asking, state, self.options)
        group = position.get("group")
        resume = (group["gtid"], group["rows"]) if group else None
        self._make(asking, state, known, resume)
        self.jobs.load(position)
        self.jobs.acknowledged = position
        self._take_new_tables(asking)

    def _begin_anew(self, asking: Database, missed: ChangesMissed) -> None:
        """After a gap: from now on, with all tables read again and what is gone from them deleted."""
        self._notes.append(f"{missed.cause}: all tables are read again")
        if self._stream is not None:
            known = dict(self._stream.history.tables)
        else:
            known = History.decoded(self._position["tables"]) if self._position else {}
        acknowledged = self._jobs.acknowledged if self._jobs is not None else self._position
        paused = self._jobs.is_paused if self._jobs is not None else is_paused(self._position or {})
        self._close_streams()
        state, tables = place_to_begin(asking, self._chosen)
        self._make(asking, state, tables, None)
        self._tell_tables(asking, tables)
        self.jobs.acknowledged, self.jobs.is_paused = acknowledged, paused
        for name in sorted(set(known) - set(tables)):  # dropped meanwhile: their rows are to be deleted too
            self.jobs.add_gone(known[name])
        for name in sorted(tables):
            self.jobs.add(name, replaces=True)

    def _make(
        self,
        asking: Database,
        state: LogState,
        tables: dict[tuple[str, str], Table],
        resume: tuple[str, int] | None,
    ) -> None:
        charsets: dict[str, str] = {}

        def lookup(name: tuple[str, str]) -> Table | None:
            return read_tables(asking, self._chosen, only=name).get(name)

        def defaults(database: str) -> Defaults:
            if database not in charsets:
                charsets[database] = database_charset(asking, database)
            return Defaults(database, charsets[database], asking.is_mariadb)

        naming = Naming(self.options, "mariadb" if asking.is_mariadb else "mysql")
        history = History(self._chosen, tables, lookup, charsets_of_collations(asking))
        checksummed = (asking.variable("binlog_checksum") or "").upper() == "CRC32"
        self._stream = Stream(naming, history, state, resume, defaults, checksummed)
        self._jobs = TableJobs(self.options, self._keys, self._stream, asking)

    def _take_new_tables(self, asking: Database) -> None:
        """Tables that are asked for now and were not before are read from the beginning."""
        history = self.stream.history
        found = read_tables(asking, self._chosen)
        new = sorted(set(found) - set(history.tables))
        for name in new:
            history.keep(found[name])
            history.found_now.add(name)
            if self.options.snapshot == "initial":
                self.jobs.add(name)
        self._tell_tables(asking, new)

    def _tell_tables(self, asking: Database, names: Iterable[tuple[str, str]]) -> None:
        self.stream.tell_tables(names, int(asking.variable("server_id") or 0))

    def _connect(self) -> None:
        """Begins to read the log where the state is."""
        state = self.stream.state
        self._dumping = Database(self.options.url)
        if state.uses_gtids:
            number = self.options.setting("server_id")
            self._packets = self._dumping.dump_from_gtids(str(state.gtids), number)
        else:
            self._packets = self._dumping.dump_from_place(state.file, state.place)
        self._heard = time.monotonic()

    # -- following

    def _follow(self) -> Iterator[Step]:
        stream, jobs = self.stream, self.jobs
        while True:
            jobs.tell_stream()
            if jobs.may_begin:
                yield from jobs.begin()
            if jobs.is_reached:
                yield from jobs.read()
                continue
            data, spans = self._receive()
            number = 0
            while number < len(spans):
                try:
                    number = stream.feed(data, spans, number)
                except EndOfStream as end:
                    raise dump_failed(end.packet, self._subject) from end
                if stream.pause is not None:
                    yield from self._handle_pause()
                    jobs.tell_stream()
                elif number < len(spans):  # a chunk waits for this place
                    yield from jobs.read()
            self._measure()
            self._add_heartbeat()
            if stream.writer.records or not spans:
                yield jobs.step()

    def _receive(self) -> tuple[bytes, Sequence[tuple[int, int]]]:
        assert self._packets is not None
        try:
            data, spans = self._packets.receive(QUIET_SECONDS)
        except OSError as error:
            raise ConnectionLost("read the log of", self._subject, str(error)) from error
        now = time.monotonic()
        if not self._packets.is_quiet:
            self._heard = now
        elif now - self._heard > SILENT_SECONDS:
            cause = f"nothing came for {SILENT_SECONDS:.0f} seconds, not even a heartbeat"
            raise ConnectionLost("read the log of", self._subject, cause)
        return data, spans

    @property
    def _subject(self) -> str:
        return self.options.shown_url

    def _add_heartbeat(self) -> None:
        """Records that show that nothing happened, when they are asked for."""
        if self.options.heartbeat is None or time.monotonic() < self._next_heartbeat:
            return
        self._next_heartbeat = time.monotonic() + self.options.heartbeat
        key = b'{"serverName":"%b"}' % self.options.logical_name.encode()
        value = b'{"ts_ms":%d}' % (time.time_ns() // 1_000_000)
        self.stream.writer.records.append(Record(self.options.topic("heartbeat"), key, value))

    # -- pauses

    def _handle_pause(self) -> Iterator[Step]:
        pause = self.stream.pause
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
                if packets.is_quiet:
                    raise ConnectionLost("read the log of", self._subject, "the server sends nothing")
                for start, end in spans:
                    if data[start]:
                        raise dump_failed(data[start:end], self._subject)
                done = self.stream.replay(data, spans)
                if self.stream.writer.records and not done:
                    yield self.jobs.step()
        except OSError as error:
            raise ConnectionLost("read the log of", self._subject, str(error)) from error
        finally:
            database.close()

    def _statement(self, pause: DdlPause) -> Iterator[Step]:
        """A statement about captured tables: what they held is deleted before what follows."""
        stream, jobs = self.stream, self.jobs
        emptied = [each.emptied for each in pause.consequences if each.emptied is not None]
        if emptied and pause.first_time:

            def position() -> Position:
                return jobs.complete(dict(pause.position))

            yield Step(stream.take(), position())
            for table in emptied:
                if table.key and jobs.knows_keys:
                    yield from jobs.delete_all(table, position)
                elif not jobs.is_outbox((table.database, table.name)):
                    stream.writer.records.append(jobs.truncated(table))
        for each in pause.consequences:
            jobs.drop_chunk(each.name)
            if each.fresh or each.name not in stream.history.tables:
                jobs.remove(each.name)
            if each.reload and self.options.snapshot == "initial":
                jobs.remove(each.name)
                jobs.add(each.name, replaces=True)
        stream.finish_statement()

    # -- from outside

    def signal(self, signal: Signal) -> None:
        if self._jobs is not None:
            self._jobs.signal(signal)

    def status(self) -> SourceStatus:
        """May be called from another thread."""
        stream, jobs = self._stream, self._jobs
        if stream is None or jobs is None:
            return SourceStatus(notes=tuple(self._notes))
        state = stream.state
        behind = max(0.0, time.time() - stream.when) if stream.when and self._lag_bytes else 0.0
        gtid = str(state.gtids) if state.uses_gtids else ""
        text = f"{gtid} {state.file}:{state.place}".strip()
        paused = ["reading of tables is paused"] if jobs.is_paused else []
        about_jobs = (*list(jobs.notes.values()), *paused)
        notes = (*self._notes, *stream.history.notes, *self._chosen.notes, *about_jobs)
        return SourceStatus(text, self._lag_bytes, behind, jobs.progress(), notes)

    def _measure(self) -> None:
        """Asks the server how far its log is, now and then."""
        now = time.monotonic()
        if self._asking is None or now - self._measured < _MEASURE_SECONDS:
            return
        self._measured = now
        state = self.stream.state
        status = log_status(self._asking)
        file, end = str(status[0]), int(status[1])
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
        return stream is not None and any(
            not table.key and stream.naming.topic(table) == topic
            for table in list(stream.history.tables.values())
        )

    def _close_streams(self) -> None:
        if self._dumping is not None:
            self._dumping.close()
        if self._jobs is not None:
            self._jobs.close()
        self._dumping = None

    def close(self) -> None:
        self._close_streams()
        if self._asking is not None:
            self._asking.close()
