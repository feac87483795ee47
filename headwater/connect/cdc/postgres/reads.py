"""Reading tables beside the stream: jobs, chunks that are held, tables without a key, and what a topic has too much."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import psycopg

from headwater.connect.cdc.postgres import session as sessions
from headwater.connect.cdc.postgres.catalog import TableInfo, ask
from headwater.connect.cdc.postgres.changes import OWN_MESSAGES, truncate_event
from headwater.connect.cdc.postgres.chunk import Held, copied_rows, in_json
from headwater.connect.cdc.postgres.filling import Filler
from headwater.connect.cdc.postgres.jobs import begin, named
from headwater.connect.cdc.postgres.plan import Plan, snapshot_source
from headwater.connect.cdc.postgres.reading import (
    NotYet,
    TableGone,
    View,
    close_view,
    open_view,
    read_bag,
    read_chunk,
)
from headwater.connect.cdc.postgres.session import Session
from headwater.connect.signals import from_json
from headwater.connect.source import Record, Step

RETRY_SECONDS = 0.1  # after a table that could not be read


class TableReads:
    """The tables that are being read."""

    def __init__(self, session: Session, filler: Filler) -> None:
        self._session, self._filler = session, filler
        self._held_large: list[tuple[bytes, dict[str, bytes]]] = []
        self._barrier = 0  # transactions up to here have to end before anything is read
        self._read_after = 0.0
        self.table_gone = False  # somebody should look at the catalogue

    @property
    def can_go_on(self) -> bool:
        """Whether there is something to read, now or soon."""
        session = self._session
        return (
            not session.paused
            and session.changes.held is None
            and session.changes.between
            and session.jobs.next() is not None
        )

    @property
    def is_ready(self) -> bool:
        return self.can_go_on and time.monotonic() >= self._read_after

    def wait_for_open_transactions(self) -> None:
        """What has begun by now has to end before anything is read.

        A snapshot does not tell what has begun: it ends at the last transaction that has ended, and one that waits
        for a synchronous standby, in the log and not visible, may lie behind that. A new number lies behind all.
        """
        [[number]] = ask(self._session.database, "SELECT pg_current_xact_id()::text")
        self._barrier = int(number)

    def add_parts(self, info: TableInfo, numbers: Sequence[int]) -> None:
        """Parts have come to a partitioned table: they alone are read, unless all of it is to be read anyway."""
        if not self._session.tables.is_keyed(info) or info.full_name in self._session.jobs.all:
            self.add(info, "again")
            return
        rows = ask(
            self._session.database,
            "SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(%s::oid[])",
            list(numbers),
        )
        self.add(info, "again", parts=[name for [name] in rows])

    def add(
        self, info: TableInfo, kind: str, where: str | None = None, parts: Sequence[str] | None = None
    ) -> None:
        name = info.full_name
        keyed = self._session.tables.is_keyed(info)
        if kind == "again" and name == self._session.tables.outbox:
            if name not in self._session.jobs.all:
                note = f"{name} is not read again: its rows are events, which would come twice"
                self._session.notes[name] = note
            return
        if where is not None and not keyed:
            self._session.notes[name] = f"{name} has no key: a part of it cannot be read again"
            return
        if where is not None and name in self._session.jobs.all:
            where = None  # what is left of the read that is under way must not be forgotten
            self._session.notes[name] = f"{name} was being read: all of it is read again, not a part"
        clears = keyed and where is None and parts is None and self._session.source.keys is not None
        total = info.estimate if parts is None else None
        self._session.jobs.put(name, begin(kind, keyed, total, clears=clears, where=where, parts=parts))
        if self._session.changes.held is not None and self._session.changes.held.plan.full_name == name:
            self._session.changes.drop_held()
        if self._session.changes.track is None:
            self._session.changes.track = set()
            if hasattr(self._session, "replication"):
                self.wait_for_open_transactions()
        self._hide(name)

    def _hide(self, name: str) -> None:
        for plan in self._session.changes.plans.values():
            if plan is not None and plan.full_name == name:
                plan.hidden = self._session.jobs.hidden(name)

    def end(self, name: str, done: bool = True) -> None:
        self._session.jobs.remove(name, done)
        self._hide(name)
        if not self._session.jobs:
            self._session.changes.track = None
            self._session.begun = False

    def signals(self) -> Iterator[Step]:
        """Does what was asked."""
        signals, self._session.asked = self._session.asked, ()
        for signal in map(from_json, signals):
            topics = {
                name: self._session.tables.topic(info.schema, info.name)
                for name, info in self._session.tables.infos.items()
            }
            chosen = named(signal.tables, self._session.tables.infos, topics)
            if signal.kind == "snapshot":
                if not chosen:
                    self._session.notes["signal"] = f"no captured table is called {', '.join(signal.tables)}"
                for name in chosen:
                    self.add(self._session.tables.infos[name], "again", signal.where)
            elif signal.kind == "stop-snapshot":
                for name in chosen:
                    if name in self._session.jobs.all and self._session.jobs.all[name].get("state") is None:
                        if (
                            self._session.changes.held is not None
                            and self._session.changes.held.plan.full_name == name
                        ):
                            self._session.changes.drop_held()
                        self.end(name, done=False)
            elif signal.kind in ("pause", "resume"):
                self._session.paused = signal.kind == "pause"
        if signals:
            yield self._session.step([])

    def go_on(self) -> Iterator[Step]:
        """The next piece of a table that is to be read, if it can be had now."""
        name = self._session.jobs.next()
        changes = self._session.changes
        if name is None or self._session.paused or changes.held is not None or not changes.between:
            return
        info = self._session.tables.infos.get(name)
        if info is None:
            self.end(name, done=False)
            return
        if self._session.jobs.all[name].get("sweep"):
            yield from self._sweep(name, info)
            return
        if time.monotonic() < self._read_after:
            return
        if self._session.jobs.all[name].get("clears"):
            yield from self._note_ends()
            return
        assert changes.track is not None
        try:
            view = open_view(self._session.reader, info, self._barrier, changes.track)
        except NotYet as reason:
            self._session.notes["waiting"] = str(reason)
            self._read_after = time.monotonic() + RETRY_SECONDS
            return
        except TableGone:
            self.end(name, done=False)
            self.table_gone = True
            return
        self._session.notes.pop("waiting", None)
        changes.track.clear()
        self._session.tables.infos[name] = view.info
        plan = self._session.tables.plan(view.info)
        if self._session.jobs.all[name].get("state") is not None:
            yield from self._read_bag(name, view, plan)
            return
        try:
            job = self._session.jobs.all[name]
            held, lines = read_chunk(self._session.reader, view, plan, job, self._session.options.chunk_rows)
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            if job.get("parts") is not None and isinstance(error, psycopg.errors.UndefinedTable):
                self.end(name, done=False)  # the part is gone again
                self.table_gone = True
                return
            if job.get("where") is None:
                raise
            self._session.notes[name] = (
                f"{name} was not read again, its condition does not hold water: {error}"
            )
            self.end(name, done=False)
            return
        finally:
            self._close_view()
        self._held_large = _large(plan, held, lines) if plan.apart else []
        changes.held = held
        self._hurry(view)

    def _note_ends(self) -> Iterator[Step]:
        """Where the topics of tables end that are read next, once all that was written for them is in the log.

        A record that is on its way there now is of before the read, though its place is behind the end of now.
        """
        session = self._session
        assert session.source.keys is not None
        yield from session.settled()
        for name in session.jobs.that_clear():
            info = session.tables.infos.get(name)
            ends = session.source.keys.ends(session.tables.topic(info.schema, info.name)) if info else {}
            session.jobs.update(name, clears=None, since=ends if any(ends.values()) else None)

    def _hurry(self, view: View) -> None:
        """Has the stream pass the mark of a read soon.

        What nobody has committed stays in memory, for seconds on a quiet server, and is not streamed. A commit of
        our own brings it to disk; its message is dropped when it arrives.
        """
        if view.flushed:
            self._session.replication.tell(ask=True)
        else:
            ask(self._session.database, f"SELECT pg_logical_emit_message(true, '{OWN_MESSAGES}', '')::text")

    def _close_view(self) -> None:
        with contextlib.suppress(psycopg.Error):
            close_view(self._session.reader)

    def release(self, out: list[Record]) -> None:
        """Writes a chunk that the stream has passed."""
        held = self._session.changes.held
        if held is None or self._session.reached() < held.mark:
            return
        name = held.plan.full_name
        job = self._session.jobs.all[name]
        initial = job["kind"] == "initial"
        last = first = None
        if initial:
            if not job["rows"]:
                first = "first_in_data_collection" if self._session.begun else "first"
            if not held.more:
                last = "last" if self._session.jobs.is_last(name) else "last_in_data_collection"

        def source(marker: str) -> bytes:
            shown = marker if initial else "incremental"
            return snapshot_source(
                self._session.names,
                held.plan,
                shown,
                held.nanoseconds,
                held.mark,
                self._session.changes.last,
                held.seen.xmax,
            )

        now = time.time_ns()
        tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
        out.extend(held.release(source, first, last, tail))
        self._session.begun = True
        for key, values in self._held_large:
            if key in held.rows:
                self._session.cache.put(
                    name.encode(), key, self._session.changes.commit or self._session.changes.lsn, 0, values
                )
        self._held_large = []
        self._session.changes.drop_held()
        if held.more:
            self._session.jobs.update(name, rows=job["rows"] + held.count, after=held.after)
        elif job.get("since"):
            self._session.jobs.update(
                name, rows=job["rows"] + held.count, after=held.after or None, sweep=True
            )
        else:
            self._session.jobs.update(name, rows=job["rows"] + held.count)
            self.end(name)

    def _sweep(self, name: str, info: TableInfo) -> Iterator[Step]:
        """Deletes what the topic has and the table has not: keys of which nothing was written since the job began."""
        keys = self._session.source.keys
        job = self._session.jobs.all[name]
        if keys is not None:
            yield from self._session.settled()
            plan = self._session.tables.plan(info)
            source = snapshot_source(
                self._session.names,
                plan,
                "incremental",
                time.time_ns(),
                self._session.changes.lsn,
                self._session.changes.last,
                None,
            )
            yield from self.take_out(plan, keys.live(plan.topic, job["since"]), source)
        self.end(name)
        yield self._session.step([])

    def take_out(self, plan: Plan, keys: Iterator[bytes], source: bytes | None) -> Iterator[Step]:
        out: list[Record] = []
        for key in keys:
            if key != b"null":
                self._session.changes.key_deleted(plan, key, out, source)
            if len(out) >= sessions.STEP_RECORDS:
                yield self._session.step(out)
                out = []
                self._session.replication.keep_alive()
        if out:
            yield self._session.step(out)

    def _read_bag(self, name: str, view: View, plan: Plan) -> Iterator[Step]:
        """A table without a key, in one snapshot; its changes that the snapshot shows are kept back."""
        try:
            job = self._session.jobs.all[name]
            is_outbox = name == self._session.tables.outbox
            initial = job["kind"] == "initial"
            out: list[Record] = []
            now = time.time_ns()
            source = snapshot_source(
                self._session.names,
                plan,
                "true" if initial else "incremental",
                now,
                view.mark,
                self._session.changes.last,
                view.seen.xmax,
            )
            tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
            if (job["state"] == "reading" or not initial) and not is_outbox:
                out.append(truncate_event(plan, source, b"null", tail))
            end = b',"source":%b,"transaction":null,"op":"r",%b' % (source, tail)
            self._session.jobs.update(name, state="reading", rows=0)
            for rows in read_bag(self._session.reader, view, plan, job):
                if is_outbox:
                    out.extend(self._filler.outbox_event(plan, row) for row in rows)
                elif rows:
                    for fragments in in_json(rows, plan.all_converters):
                        value = b'{"before":null,"after":%b%b' % (plan.shape.object(fragments), end)
                        out.append(Record(plan.topic, plan.shape.key(fragments), value, None))
                self._session.jobs.update(name, rows=self._session.jobs.all[name]["rows"] + len(rows))
                if len(out) >= sessions.STEP_RECORDS and not is_outbox:
                    yield self._session.step(out)
                    out = []
                self._session.replication.keep_alive()
            self._session.jobs.update(name, state="cut", seen=str(view.seen), mark=view.mark)
            self._hurry(view)
            self._hide(name)
            yield self._session.step(out)
        finally:
            self._close_view()


def _large(plan: Plan, held: Held, lines: Sequence[bytes]) -> list[tuple[bytes, dict[str, bytes]]]:
    """The values of large rows in a chunk, for the cache."""
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
