"""One life of a capture: from connecting to the end of the connection. It turns the stream and the reads into steps."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from headwater import __version__
from headwater.connect.cdc.postgres import slot as slots
from headwater.connect.cdc.postgres.catalog import ask, connect, look_up_types, lost
from headwater.connect.cdc.postgres.changes import OWN_MESSAGES, Changes, truncate_event
from headwater.connect.cdc.postgres.chunk import Held, in_json
from headwater.connect.cdc.postgres.jobs import Jobs, begin, named
from headwater.connect.cdc.postgres.lsn import last_record_end, lsn_number, lsn_text
from headwater.connect.cdc.postgres.pgoutput import UNCHANGED, Relation, Values
from headwater.connect.cdc.postgres.plan import Names, Plan, fields_of, key_of, snapshot_source
from headwater.connect.cdc.postgres.questions import Generator, values_now
from headwater.connect.cdc.postgres.reading import (
    NotYet,
    TableGone,
    View,
    close_view,
    open_view,
    read_bag,
    read_chunk,
)
from headwater.connect.cdc.postgres.replication import Replication
from headwater.connect.cdc.postgres.tables import Tables
from headwater.connect.cdc.postgres.toast import ValueCache
from headwater.connect.cdc.postgres.transactions import TransactionEvents
from headwater.connect.cdc.postgres.types import Types
from headwater.connect.source import QUIET_SECONDS, Record, Step
from headwater.errors import ChangesMissed

if TYPE_CHECKING:
    from headwater.connect.cdc.postgres.catalog import TableInfo
    from headwater.connect.cdc.postgres.source import PostgresSource

STEP_RECORDS = 10_000
LOOK_SECONDS = 5.0  # between two looks at the catalogue, for DDL that no change follows
STATUS_SECONDS = 1.0
TELL_SECONDS = 0.2  # between two acknowledgements to the server
RETRY_SECONDS = 0.1  # after a table that could not be read
FLUSH_SECONDS = 0.5  # between two requests that the server write its log out
# A position that nothing but the server's other work has moved is written when it is this old, or has moved so far.
IDLE_SECONDS, IDLE_BYTES = 5.0, 4 << 20


class Run:
    """A capture between two interruptions. It is its own helper: see changes.Helper."""

    def __init__(self, source: "PostgresSource", position: dict[str, Any] | None) -> None:
        self._source, self._options = source, source.options
        self._begun_with = position
        self._slot = slots.slot_name(source.name)
        self._database: psycopg.Connection[tuple[Any, ...]] | None = None
        self._reader: psycopg.Connection[tuple[Any, ...]] | None = None
        self._replication: Replication | None = None
        self._cache: ValueCache | None = None
        self.jobs = Jobs((position or {}).get("snapshot"))
        self.paused = bool((position or {}).get("paused"))
        self.begun = bool((position or {}).get("begun"))  # whether a row of the first read was written
        self.notes: dict[str, str] = {}
        self._held_large: list[tuple[bytes, dict[str, bytes]]] = []
        self._barrier = 0  # transactions up to here have to end before anything is read
        self._read_after = self._look_after = self._status_after = self._tell_after = self._idle_after = 0.0
        self._flush_after = 0.0
        self._looked: tuple[list[TableInfo], int] | None = None
        self._heartbeat_after = 0.0
        self._written: tuple[Any, ...] = ()
        self._position_now: dict[str, Any] = {}
        self._told: object = None
        self._current_lsn = 0

    # -- beginning ---------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """All steps until something fails."""
        url = self._options.url
        with lost("capture", url):
            yield self._step(self._open())
            while True:
                yield from self._signals()
                yield from self._read_on()
                yield from self._stream()
                self._acknowledge()
                self._look()
                self._report()

    def _open(self) -> list[Record]:
        url = self._options.url
        self.server = slots.identify(url)
        self.names = Names(__version__, self._source.name, self.server.database)
        self._database, self._reader = connect(url), connect(url)
        database = self._database
        self.types = Types(lambda oids: look_up_types(database, oids))
        position = self._begun_with
        known = (position or {}).get("tables", {})
        self.tables = Tables(
            database, self._options, self._slot, self.names, self.types, self._source.directory, known
        )
        self.changes = self._make_changes()
        found = self.tables.look()
        self.tables.check(found)
        self.tables.set(found)
        out: list[Record] = []
        if position is None:
            self._begin(out, "initial")
        else:
            why = slots.missed(slots.slot_state(database, self._slot), self.server, position)
            if why is not None:
                self._repair(why, out)
            else:
                self._go_on(position, out)
        self._generator = Generator(database)
        slots.release_slot(database, self._slot)
        # From here on nothing is missed: what had begun before, and may be half told, must have ended before a read.
        self._wait_for_open_transactions()
        self._replication = Replication(url, self._slot, self._slot, self.changes.lsn)
        self._cache = ValueCache(self._source.directory / "values", (self.changes.lsn, self.changes.skipped))
        if self.jobs:
            self.changes.track = set()
        for name, info in self.tables.infos.items():
            if not self.tables.is_keyed(info):
                self._source.without_key.add(self.tables.topic(*name.split(".", 1)))
        return out

    def _make_changes(self) -> Changes:
        topic = self._options.topic
        transactions = TransactionEvents(topic("transaction")) if self._options.transactions else None
        messages = Plan(0, "", "", topic("message"), [], [], self.types, self.names)
        messages.full_name = "LOGICAL_DECODING_MESSAGE"
        changes = Changes(self, messages, transactions)
        changes.outbox_table = self.tables.outbox
        return changes

    def _begin(self, out: list[Record], kind: str) -> None:
        """A slot from now on, and all tables to be read."""
        assert self._database is not None
        slots.drop_slot(self._database, self._slot)
        infos = list(self.tables.infos.values())
        slots.ensure_publication(self._database, self._slot, infos)
        lsn = slots.create_slot(self._options.url, self._slot)
        self.changes.begin_at(lsn, b"null", 0, 0)
        self.jobs = Jobs()
        for info in infos:
            self.tables.changed(info.schema, info.name, fields_of(info), key_of(info), info, lsn, out)
            if kind == "again" or self._options.snapshot == "initial":
                self._add_job(info, kind)

    def _repair(self, why: str, out: list[Record]) -> None:
        allowed = self._options.on_gap == "snapshot" or any(
            each.kind == "snapshot" for each in self._source.signals
        )
        if not allowed:
            raise ChangesMissed("go on with the capture of", self._source.name, why)
        self._source.signals = [each for each in self._source.signals if each.kind != "snapshot"]
        self.notes["gap"] = f"changes were missed, all tables are read again: {why}"
        self._begin(out, "again")

    def _go_on(self, position: Mapping[str, Any], out: list[Record]) -> None:
        assert self._database is not None
        commit = lsn_number(position["commit"]) if "commit" in position else 0
        last = position.get("last")
        last_bytes = b"null" if last is None else b'\\"%d\\"' % lsn_number(last)
        self.changes.begin_at(lsn_number(position["lsn"]), last_bytes, commit, position.get("done", 0))
        self._publish(list(self.tables.infos.values()), out)

    def _publish(self, found: "list[TableInfo]", out: list[Record]) -> None:
        """Brings the publication up to date; tables that are new, or have been made anew, are read."""
        assert self._database is not None
        added = {info.oid for info in slots.ensure_publication(self._database, self._slot, found)}
        for info in found:
            name = info.full_name
            if name in self.tables.known and info.oid not in added:
                continue
            is_new = name not in self.tables.known
            self.tables.changed(
                info.schema, info.name, fields_of(info), key_of(info), info, self.changes.lsn, out
            )
            if not self.tables.is_keyed(info):
                self._source.without_key.add(self.tables.topic(info.schema, info.name))
            if self._options.snapshot == "initial":
                self._add_job(info, "initial" if is_new else "again")

    def _wait_for_open_transactions(self) -> None:
        """What has begun by now has to end before anything is read.

        A snapshot does not tell what has begun: it ends at the last transaction that has ended, and one that waits
        for a synchronous standby, in the log and not visible, may lie behind that. A new number lies behind all.
        """
        assert self._database is not None
        [[number]] = ask(self._database, "SELECT pg_current_xact_id()::text")
        self._barrier = int(number)

    # -- jobs --------------------------------------------------------------------------------------

    def _add_job(self, info: "TableInfo", kind: str, where: str | None = None) -> None:
        name = info.full_name
        keyed = self.tables.is_keyed(info)
        if where is not None and not keyed:
            self.notes[name] = f"{name} has no key: a part of it cannot be read again"
            return
        topic = self.tables.topic(info.schema, info.name)
        since = None
        if keyed and where is None and self._source.keys is not None:
            since = self._source.keys.ends(topic)
            since = since if any(since.values()) else None
        self.jobs.put(name, begin(kind, keyed, info.estimate, since, where=where))
        if self.changes.held is not None and self.changes.held.plan.full_name == name:
            self.changes.drop_held()
        if self.changes.track is None:
            self.changes.track = set()
            if self._replication is not None:
                self._wait_for_open_transactions()
        self._hide(name)

    def _hide(self, name: str) -> None:
        for plan in self.changes.plans.values():
            if plan is not None and plan.full_name == name:
                plan.hidden = self.jobs.hidden(name)

    def _end_job(self, name: str, done: bool = True) -> None:
        self.jobs.remove(name, done)
        self._hide(name)
        if not self.jobs:
            self.changes.track = None
            self.begun = False

    def _signals(self) -> Iterator[Step]:
        signals, self._source.signals = self._source.signals, []
        for signal in signals:
            topics = {
                name: self.tables.topic(info.schema, info.name) for name, info in self.tables.infos.items()
            }
            chosen = named(signal.tables, self.tables.infos, topics)
            if signal.kind == "snapshot":
                if not chosen:
                    self.notes["signal"] = f"no captured table is called {', '.join(signal.tables)}"
                for name in chosen:
                    if name != self.tables.outbox:
                        self._add_job(self.tables.infos[name], "again", signal.where)
            elif signal.kind == "stop-snapshot":
                for name in chosen:
                    if name in self.jobs.all and self.jobs.all[name].get("state") is None:
                        if self.changes.held is not None and self.changes.held.plan.full_name == name:
                            self.changes.drop_held()
                        self._end_job(name, done=False)
            elif signal.kind in ("pause", "resume"):
                self.paused = signal.kind == "pause"
        if signals:
            yield self._step([])

    # -- reading -----------------------------------------------------------------------------------

    def _read_on(self) -> Iterator[Step]:
        """The next piece of a table that is to be read, if it can be had now."""
        name = self.jobs.next()
        changes = self.changes
        if name is None or self.paused or changes.held is not None or not changes.between:
            return
        info = self.tables.infos.get(name)
        if info is None:
            self._end_job(name, done=False)
            return
        if self.jobs.all[name].get("sweep"):
            yield from self._sweep(name, info)
            return
        if time.monotonic() < self._read_after:
            return
        assert self._reader is not None and self._replication is not None and changes.track is not None
        try:
            view = open_view(self._reader, info, self._barrier, changes.track)
        except NotYet as reason:
            self.notes["waiting"] = str(reason)
            self._read_after = time.monotonic() + RETRY_SECONDS
            return
        except TableGone:
            self._end_job(name, done=False)
            self._look_after = 0.0
            return
        self.notes.pop("waiting", None)
        changes.track.clear()
        self.tables.infos[name] = view.info
        plan = self.tables.plan(view.info)
        if self.jobs.all[name].get("state") is not None:
            yield from self._read_bag(name, view, plan)
            return
        try:
            held, lines = read_chunk(self._reader, view, plan, self.jobs.all[name], self._options.chunk_rows)
        finally:
            self._close_view()
        self._held_large = _large(plan, held, lines) if plan.apart else []
        changes.held = held
        self._hurry(view)

    def _hurry(self, view: View) -> None:
        """Has the stream pass the mark of a read soon.

        What nobody has committed stays in memory, for seconds on a quiet server, and is not streamed. A commit of
        our own brings it to disk; its message is dropped when it arrives.
        """
        assert self._replication is not None and self._database is not None
        if view.flushed:
            self._replication.tell(ask=True)
        else:
            ask(self._database, f"SELECT pg_logical_emit_message(true, '{OWN_MESSAGES}', '')::text")

    def _close_view(self) -> None:
        assert self._reader is not None
        with contextlib.suppress(psycopg.Error):
            close_view(self._reader)

    def _release(self, out: list[Record]) -> None:
        """Writes a chunk that the stream has passed."""
        held = self.changes.held
        if held is None or self._reached() < held.mark:
            return
        name = held.plan.full_name
        job = self.jobs.all[name]
        initial = job["kind"] == "initial"
        last = first = None
        if initial:
            if not job["rows"]:
                first = "first_in_data_collection" if self.begun else "first"
            if not held.more:
                last = "last" if self.jobs.is_last(name) else "last_in_data_collection"

        def source(marker: str) -> bytes:
            shown = marker if initial else "incremental"
            return snapshot_source(
                self.names, held.plan, shown, held.nanoseconds, held.mark, self.changes.last, held.seen.xmax
            )

        now = time.time_ns()
        tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
        out.extend(held.release(source, first, last, tail))
        self.begun = True
        assert self._cache is not None
        for key, values in self._held_large:
            if key in held.rows:
                self._cache.put(name.encode(), key, self.changes.commit or self.changes.lsn, 0, values)
        self._held_large = []
        self.changes.drop_held()
        if held.more:
            self.jobs.update(name, rows=job["rows"] + held.count, after=held.after)
        elif job.get("since"):
            self.jobs.update(name, rows=job["rows"] + held.count, after=held.after or None, sweep=True)
        else:
            self.jobs.update(name, rows=job["rows"] + held.count)
            self._end_job(name)

    def _sweep(self, name: str, info: "TableInfo") -> Iterator[Step]:
        """Deletes what the topic has and the table has not: keys of which nothing was written since the job began."""
        keys = self._source.keys
        job = self.jobs.all[name]
        if keys is not None:
            yield from self._settled()
            plan = self.tables.plan(info)
            source = snapshot_source(
                self.names, plan, "incremental", time.time_ns(), self.changes.lsn, self.changes.last, None
            )
            yield from self._take_out(plan, keys.live(plan.topic, job["since"]), source)
        self._end_job(name)
        yield self._step([])

    def _take_out(self, plan: Plan, keys: Iterator[bytes], source: bytes | None) -> Iterator[Step]:
        assert self._replication is not None
        out: list[Record] = []
        for key in keys:
            if key != b"null":
                self.changes.key_deleted(plan, key, out, source)
            if len(out) >= STEP_RECORDS:
                yield self._step(out)
                out = []
                self._replication.keep_alive()
        if out:
            yield self._step(out)

    def _settled(self) -> Iterator[Step]:
        """Waits until the log has all that was handed over."""
        assert self._replication is not None
        position = self._position()
        while self._source.acknowledged != position:
            yield Step((), position)
            self._replication.keep_alive()
            if self._source.acknowledged != position:
                time.sleep(0.005)

    def _read_bag(self, name: str, view: View, plan: Plan) -> Iterator[Step]:
        """A table without a key, in one snapshot; its changes that the snapshot shows are kept back."""
        assert self._reader is not None and self._replication is not None
        try:
            job = self.jobs.all[name]
            is_outbox = name == self.tables.outbox
            initial = job["kind"] == "initial"
            out: list[Record] = []
            now = time.time_ns()
            source = snapshot_source(
                self.names,
                plan,
                "true" if initial else "incremental",
                now,
                view.mark,
                self.changes.last,
                view.seen.xmax,
            )
            tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
            if (job["state"] == "reading" or not initial) and not is_outbox:
                out.append(truncate_event(plan, source, b"null", tail))
            end = b',"source":%b,"transaction":null,"op":"r",%b' % (source, tail)
            self.jobs.update(name, state="reading", rows=0)
            for rows in read_bag(self._reader, view, plan, job):
                if is_outbox:
                    out.extend(self._outbox_event(plan, row) for row in rows)
                elif rows:
                    for fragments in in_json(rows, plan.all_converters):
                        value = b'{"before":null,"after":%b%b' % (plan.shape.object(fragments), end)
                        out.append(Record(plan.topic, plan.shape.key(fragments), value, None))
                self.jobs.update(name, rows=self.jobs.all[name]["rows"] + len(rows))
                if len(out) >= STEP_RECORDS and not is_outbox:
                    yield self._step(out)
                    out = []
                self._replication.keep_alive()
            self.jobs.update(name, state="cut", seen=str(view.seen), mark=view.mark)
            self._hurry(view)
            self._hide(name)
            yield self._step(out)
        finally:
            self._close_view()

    # -- the stream --------------------------------------------------------------------------------

    def _reached(self) -> int:
        """All that was committed before this place has gone by."""
        assert self._replication is not None
        if self.changes.commit:
            return self.changes.commit
        return max(self.changes.lsn, self._replication.sent)

    def _stream(self) -> Iterator[Step]:
        assert self._replication is not None
        changes = self.changes
        could_read = self.jobs and changes.held is None and not self.paused and changes.between
        eager = could_read and time.monotonic() >= self._read_after and self.jobs.next() is not None
        messages = self._replication.receive(0.0 if eager else RETRY_SECONDS if could_read else QUIET_SECONDS)
        at = 0
        while at < len(messages):
            out: list[Record] = []
            at = changes.process(messages, at, STEP_RECORDS, out)
            if changes.truncated:
                yield self._step(out)
                yield from self._truncate()
                continue
            self._passed(out)
            yield self._step(out)
        if not messages:
            out = []
            self._idle()
            self._passed(out)
            self._beat(out)
            if out or not eager:
                yield self._step(out)

    def _passed(self, out: list[Record]) -> None:
        """What the stream has passed: chunks that were held, reads of tables without a key, DDL."""
        self._release(out)
        for name in self.jobs.passed(self._reached()):
            self._end_job(name)
        if self._looked is not None and self.changes.between and self._looked[1] <= self._reached():
            found, _ = self._looked
            self._looked = None
            self._take_look(found, out)

    def _idle(self) -> None:
        """Takes the server's word for it that there is nothing up to some place."""
        assert self._replication is not None
        changes, sent = self.changes, self._replication.sent
        self._let_it_flush()
        if not changes.between or sent <= changes.lsn:
            return
        now = time.monotonic()
        if self.jobs or now > self._idle_after or sent - changes.lsn > IDLE_BYTES:
            changes.lsn = sent
            self._idle_after = now + IDLE_SECONDS

    def _let_it_flush(self) -> None:
        """Has the server write out what we wait for.

        It sends nothing that is not flushed, and flushes what no transaction waits for (reading a page may tidy it up,
        which is logged) only when there is more. A number for a transaction that does nothing else is enough of a
        reason; the stream does not show it.
        """
        now = time.monotonic()
        waits = self.changes.held is not None or self._looked is not None or self.jobs
        if waits and now > self._flush_after and self._database is not None:
            self._flush_after = now + FLUSH_SECONDS
            ask(self._database, "SELECT pg_current_xact_id()::text")

    def _truncate(self) -> Iterator[Step]:
        """A topic whose table was truncated is emptied key by key: one who reads it later finds nothing either."""
        changes = self.changes
        while changes.truncated:
            plan = changes.truncated[0]
            if plan.key and self._source.keys is not None and not changes.is_truncate_done():
                yield from self._settled()
                yield from self._take_out(plan, self._source.keys.live(plan.topic), None)
            out: list[Record] = []
            changes.emit_truncate(out)
            yield self._step(out)

    def _beat(self, out: list[Record]) -> None:
        every = self._options.heartbeat
        if every is not None and time.monotonic() >= self._heartbeat_after:
            self._heartbeat_after = time.monotonic() + every
            value = b'{"ts_ms":%d}' % (time.time_ns() // 1_000_000)
            key = b'{"serverName":"%b"}' % self._source.name.encode()
            out.append(Record(self._options.topic("heartbeat"), key, value, None))

    # -- what the stream does not tell: see changes.Helper -------------------------------------------

    def relation(self, relation: Relation, out: list[Record]) -> Plan | None:
        if not self.tables.is_wanted(relation.schema, relation.table):
            return None
        plan, info = self.tables.plan_of(relation)
        plan.hidden = self.jobs.hidden(plan.full_name)
        change = self.tables.changed(
            relation.schema, relation.table, plan.fields, plan.key, info, self.changes.lsn, out
        )
        if change == "read" and info is not None and self._options.snapshot == "initial":
            self._add_job(info, "again")
        return plan

    def generate(self, plan: Plan, values: Values) -> Sequence[bytes | None]:
        return self._generator.compute(plan, values)

    def fill(
        self, plan: Plan, key: bytes | None, values: Values, old: Values | None, at: int, number: int
    ) -> None:
        missing = [place for place, value in enumerate(values) if value is UNCHANGED]
        if old is not None:
            for place in missing:
                values[place] = old[place]
            return
        assert self._cache is not None and self._database is not None
        cached = self._cache.get(plan.full_name.encode(), key, at, number) if key is not None else None
        if cached is not None:
            for place in missing:
                values[place] = cached.get(plan.streamed[place].name, UNCHANGED)
            missing = [place for place in missing if values[place] is UNCHANGED]
        if missing:
            found = values_now(self._database, plan, values, missing)
            for number_of, place in enumerate(missing):
                values[place] = None if found is None else found[number_of]

    def keep(self, plan: Plan, key: bytes | None, values: Values, at: int, number: int) -> None:
        if key is None or not plan.apart:
            return
        assert self._cache is not None
        large = {plan.streamed[place].name: values[place] for place in plan.apart}
        kept = {name: value for name, value in large.items() if isinstance(value, bytes)}
        self._cache.put(plan.full_name.encode(), key, at, number, kept)

    def gone(self, plan: Plan, key: bytes | None, at: int, number: int) -> None:
        if key is not None and plan.apart:
            assert self._cache is not None
            self._cache.gone(plan.full_name.encode(), key, at, number)

    def outbox(self, plan: Plan, values: Values, out: list[Record]) -> None:
        out.append(self._outbox_event(plan, values))

    def _outbox_event(self, plan: Plan, values: Sequence[Any]) -> Record:
        from headwater.connect.cdc.postgres.outbox import event

        fields = plan.streamed if len(values) == len(plan.streamed) else plan.fields
        row = {field.name: value for field, value in zip(fields, values, strict=True)}
        payload = next(field for field in fields if field.name == "payload")
        if self.types.row(payload.type_oid).name == "bytea" and row["payload"] is not None:
            row["payload"] = bytes.fromhex(row["payload"][2:].decode())
        return event(row)

    # -- DDL that no change follows -----------------------------------------------------------------

    def _look(self) -> None:
        """Looks at the catalogue; what is found counts when the stream has come as far."""
        now = time.monotonic()
        if now < self._look_after or self._looked is not None or not self.changes.between:
            return
        assert self._database is not None
        self._look_after = now + LOOK_SECONDS
        found = self.tables.look()
        [[text]] = ask(self._database, "SELECT pg_current_wal_flush_lsn()::text")
        self._looked = found, last_record_end(lsn_number(text))

    def _take_look(self, found: "list[TableInfo]", out: list[Record]) -> None:
        before = self.tables.infos
        usable = [info for info in found if info.can_be_published]
        self.tables.set(usable)
        self._publish(usable, out)
        for info in usable:
            name = info.full_name
            change = self.tables.changed(
                info.schema, info.name, fields_of(info), key_of(info), info, self.changes.lsn, out
            )
            was = before.get(name)
            moved = was is not None and info.partitioned and was.partitions != info.partitions
            if (change == "read" or moved) and self._options.snapshot == "initial":
                self._add_job(info, "again")
        for name in before.keys() - self.tables.infos.keys():
            self.tables.forget(name)
            self._end_job(name, done=False)
            self.notes[name] = (
                f"{name} is not there any more, or cannot be captured; its topic stays as it is"
            )

    # -- positions and acknowledgements --------------------------------------------------------------

    def _step(self, out: list[Record]) -> Step:
        if self._cache is not None:
            self._cache.seen(self.changes.lsn, self.changes.done)
        return Step(out, self._position())

    def _position(self) -> dict[str, Any]:
        changes = self.changes
        # A position before the part that is skipped says what was done before.
        commit, done = changes.place
        state = (changes.lsn, commit, done, self.tables.known, self.jobs.all, self.paused, self.begun)
        if state != self._written:
            self._written = state
            position: dict[str, Any] = {
                "system": self.server.system,
                "timeline": self.server.timeline,
                "slot": self._slot,
                "lsn": lsn_text(changes.lsn),
            }
            if changes.last != b"null":
                position["last"] = lsn_text(int(changes.last.strip(b'\\"')))
            if done:
                position |= {"commit": lsn_text(commit), "done": done}
            position["tables"] = self.tables.known
            if self.jobs:
                position["snapshot"] = self.jobs.all
            if self.paused:
                position["paused"] = True
            if self.begun and self.jobs:
                position["begun"] = True
            self._position_now = position
        return self._position_now

    def _acknowledge(self) -> None:
        """Lets the server forget what is durable in the log."""
        assert self._replication is not None
        position = self._source.acknowledged
        now = time.monotonic()
        if position is None or position is self._told or now < self._tell_after:
            return
        self._told, self._tell_after = position, now + TELL_SECONDS
        lsn = lsn_number(position["lsn"])
        if lsn > self._replication.confirmed:
            self._replication.confirmed = lsn
            self._replication.tell()
            if self._cache is not None:
                self._cache.durable(lsn)

    def _report(self) -> None:
        now = time.monotonic()
        if now < self._status_after:
            return
        assert self._database is not None and self._replication is not None
        self._status_after = now + STATUS_SECONDS
        [[text]] = ask(self._database, "SELECT pg_current_wal_lsn()::text")
        idle = self.changes.between and self._replication.caught_up
        behind = (
            0.0 if idle or not self.changes.microseconds else time.time() - self.changes.microseconds / 1e6
        )
        self._source.show(
            position=lsn_text(self.changes.lsn),
            lag_bytes=max(0, lsn_number(text) - self._replication.confirmed),
            lag_seconds=max(0.0, behind),
            snapshot=self.jobs.progress(),
            notes=(*self.tables.notes.values(), *self.notes.values(), *(["paused"] if self.paused else [])),
        )

    def close(self) -> None:
        """Lets go of everything."""
        if self._replication is not None:
            self._replication.close()
        for connection in (self._database, self._reader):
            if connection is not None:
                connection.close()
        if self._cache is not None:
            self._cache.close()


def _large(plan: Plan, held: Held, lines: Sequence[bytes]) -> list[tuple[bytes, dict[str, bytes]]]:
    """The values of large rows in a chunk, for the cache."""
    from headwater.connect.cdc.postgres.chunk import copied_rows

    if max(map(len, lines), default=0) <= plan.smallest_apart:
        return []
    names = [field.name for field in plan.fields]
    apart = {plan.streamed[place].name for place in plan.apart}
    keys = list(held.rows)
    found = []
    for key, line in zip(keys, lines, strict=True):
        if len(line) > plan.smallest_apart:
            [row] = copied_rows([line])
            found.append(
                (key, {n: v for n, v in zip(names, row, strict=True) if v is not None and n in apart})
            )
    return found
