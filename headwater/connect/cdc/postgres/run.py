"""One life of a capture: from connecting to the end of the connection. It turns the stream and the reads into steps."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.connect.cdc.postgres import session as sessions
from headwater.connect.cdc.postgres import slot as slots
from headwater.connect.cdc.postgres.catalog import TableInfo, ask, lost, type_contents
from headwater.connect.cdc.postgres.changes import Changes
from headwater.connect.cdc.postgres.filling import Filler
from headwater.connect.cdc.postgres.jobs import Jobs
from headwater.connect.cdc.postgres.lsn import last_record_end, lsn_number, lsn_text
from headwater.connect.cdc.postgres.pgoutput import Relation
from headwater.connect.cdc.postgres.plan import Plan, fields_of, key_of
from headwater.connect.cdc.postgres.reads import RETRY_SECONDS, TableReads
from headwater.connect.cdc.postgres.replication import Replication
from headwater.connect.cdc.postgres.session import Session
from headwater.connect.cdc.postgres.toast import ValueCache
from headwater.connect.cdc.postgres.transactions import TransactionEvents
from headwater.connect.signals import as_json, from_json
from headwater.connect.source import QUIET_SECONDS, Record, Signal, Step
from headwater.errors import ChangesMissed, ConnectionLost

if TYPE_CHECKING:
    from headwater.connect.cdc.postgres.source import PostgresSource

LOOK_SECONDS = 5.0  # between two looks at the catalogue, for DDL that no change follows
STATUS_SECONDS = 1.0
TELL_SECONDS = 0.2  # between two acknowledgements to the server
# A position that nothing but the server's other work has moved is written when it is this old, or has moved so far.
IDLE_SECONDS, IDLE_BYTES = 5.0, 4 << 20


class Run(Filler):
    """A capture between two interruptions, and the helper of its changes: see changes.Helper."""

    def __init__(self, source: "PostgresSource", position: Mapping[str, Any] | None) -> None:
        with lost("capture", source.options.url):
            super().__init__(Session(source, position or {}))
        self._begun_with = position
        self._reads = TableReads(self._session, self)
        self._look_after = self._status_after = self._tell_after = self._idle_after = (
            self._heartbeat_after
        ) = 0.0
        self._looked: tuple[list[TableInfo], int] | None = None
        self._told: object = None
        self._is_asked_for_all = False  # whether it begins with a signal that all tables are to be read again

    def signal(self, signal: Signal) -> None:
        """Takes a signal: it is in the next position, and followed when the step at hand is done."""
        self._session.asked = (*self._session.asked, as_json(signal))

    def steps(self) -> Iterator[Step]:
        """All steps until something fails."""
        url = self._session.options.url
        with lost("capture", url):
            yield self._session.step(self._open())
            try:
                while True:
                    yield from self._reads.signals()
                    yield from self._reads.go_on()
                    yield from self._stream()
                    self._acknowledge()
                    self._look()
                    self._report()
            except ConnectionLost as error:
                if slots.lacks_publication(error.cause, self._session.slot):
                    source = self._session.source
                    source.gap = slots.NO_PUBLICATION
                    source.gap_is_to_be_closed = self._is_asked_for_all and bool(self._session.jobs)
                raise

    def _open(self) -> list[Record]:
        session = self._session
        position = self._begun_with
        self._session.changes = self._make_changes()
        self._is_asked_for_all = any(from_json(each).asks_for_all for each in session.asked)
        found = self._session.tables.look()
        self._session.tables.check(found)
        self._session.tables.set(found)
        out: list[Record] = []
        if position is None:
            self._begin(out, "initial")
        else:
            why = slots.missed(slots.slot_state(session.database, session.slot), session.server, position)
            if why is None and not slots.has_publication(session.database, session.slot):
                why = slots.NO_PUBLICATION
            why = why or session.source.gap
            if why is not None:
                self._repair(why, out)
            else:
                self._go_on(position, out)
        slots.release_slot(session.database, session.slot)
        # From here on nothing is missed: what had begun before, and may be half told, must have ended before a read.
        self._reads.wait_for_open_transactions()
        changes = session.changes
        session.replication = Replication(session.options.url, session.slot, session.slot, changes.lsn)
        session.cache = ValueCache(session.source.directory / "values", (changes.lsn, changes.skipped))
        if session.jobs:
            changes.track = set()
        for info in session.tables.infos.values():
            self._note_topic(info)
        return out

    def _note_topic(self, info: TableInfo) -> None:
        """A topic of a table without a key is made otherwise."""
        tables = self._session.tables
        if not tables.is_keyed(info):
            self._session.source.without_key.add(tables.topic(info.schema, info.name))

    def _make_changes(self) -> Changes:
        topic = self._session.options.topic
        transactions = TransactionEvents(topic("transaction")) if self._session.options.transactions else None
        messages = Plan(0, "", "", topic("message"), [], [], self._session.types, self._session.names)
        messages.full_name = "LOGICAL_DECODING_MESSAGE"
        changes = Changes(self, messages, transactions)
        changes.outbox_table = self._session.tables.outbox
        return changes

    def _begin(self, out: list[Record], kind: str) -> None:
        """A slot from now on, and all tables to be read."""
        slots.drop_slot(self._session.database, self._session.slot)
        infos = list(self._session.tables.infos.values())
        unread = [info for info in infos if self._is_unread(info)]
        types = type_contents(self._session.database, infos)
        slots.ensure_publication(self._session.database, self._session.slot, infos)
        lsn = slots.create_slot(self._session.options.url, self._session.slot)
        self._session.changes.begin_at(lsn, b"null", 0, 0)
        self._session.jobs = Jobs()
        for info in infos:
            self._session.tables.changed(
                info.schema, info.name, fields_of(info), key_of(info), info, lsn, out
            )
            self._session.tables.remade(info, types)
            if kind == "again" or self._session.options.snapshot == "initial":
                self._reads.add(info, "initial" if info in unread else kind)
        self._session.tables.save()

    def _repair(self, why: str, out: list[Record]) -> None:
        session, source = self._session, self._session.source
        if not (session.options.on_gap == "snapshot" or self._is_asked_for_all or source.gap_is_to_be_closed):
            raise ChangesMissed("go on with the capture of", source.name, why)
        # What was asked about reading was asked before, and all is read now.
        session.asked = tuple(each for each in session.asked if from_json(each).kind in ("pause", "resume"))
        session.notes["gap"] = f"changes were missed, all tables are read again: {why}"
        source.gap, source.gap_is_to_be_closed = None, False
        self._begin(out, "again")

    def _go_on(self, position: Mapping[str, Any], out: list[Record]) -> None:
        commit = lsn_number(position["commit"]) if "commit" in position else 0
        last = position.get("last")
        last_bytes = b"null" if last is None else b'\\"%d\\"' % lsn_number(last)
        self._session.changes.begin_at(
            lsn_number(position["lsn"]), last_bytes, commit, position.get("done", 0)
        )
        self._publish(list(self._session.tables.infos.values()), out)

    def _publish(self, found: list[TableInfo], out: list[Record]) -> None:
        """Brings the publication up to date; tables that are new, or have been made anew, are read."""
        added = {
            info.oid for info in slots.ensure_publication(self._session.database, self._session.slot, found)
        }
        for info in found:
            name = info.full_name
            if name in self._session.tables.known and info.oid not in added:
                continue
            is_unread = self._is_unread(info)
            self._session.tables.changed(
                info.schema, info.name, fields_of(info), key_of(info), info, self._session.changes.lsn, out
            )
            self._note_topic(info)
            if self._session.options.snapshot == "initial":
                self._reads.add(info, "initial" if is_unread else "again")

    def _is_unread(self, info: TableInfo) -> bool:
        """Whether a table has rows that nobody has seen: it is new, or an outbox whose rows were not written yet."""
        tables, name = self._session.tables, info.full_name
        if name not in tables.known or name != tables.outbox:
            return name not in tables.known
        state = self._session.jobs.all.get(name, {}).get("state")
        return tables.is_another(info) or state in ("waiting", "reading")

    def _stream(self) -> Iterator[Step]:
        changes = self._session.changes
        eager = self._reads.is_ready
        seconds = 0.0 if eager else RETRY_SECONDS if self._reads.can_go_on else QUIET_SECONDS
        messages = self._session.replication.receive(seconds)
        at = 0
        while at < len(messages):
            out: list[Record] = []
            at = changes.process(messages, at, sessions.STEP_RECORDS, out)
            if changes.truncated:
                yield self._session.step(out)
                yield from self._truncate()
                continue
            self._passed(out)
            yield self._session.step(out)
        if not messages:
            out = []
            self._idle()
            self._passed(out)
            self._beat(out)
            if out or not eager:
                yield self._session.step(out)

    def _passed(self, out: list[Record]) -> None:
        """What the stream has passed: chunks that were held, reads of tables without a key, DDL."""
        self._reads.release(out)
        for name in self._session.jobs.passed(self._session.reached()):
            self._reads.end(name)
        if (
            self._looked is not None
            and self._session.changes.between
            and self._looked[1] <= self._session.reached()
        ):
            found, _ = self._looked
            self._looked = None
            self._take_look(found, out)

    def _idle(self) -> None:
        """Takes the server's word for it that there is nothing up to some place."""
        changes, sent = self._session.changes, self._session.replication.sent
        if not changes.between or sent <= changes.lsn:
            return
        now = time.monotonic()
        if self._session.jobs or now > self._idle_after or sent - changes.lsn > IDLE_BYTES:
            changes.lsn = sent
            self._idle_after = now + IDLE_SECONDS

    def _truncate(self) -> Iterator[Step]:
        """A topic whose table was truncated is emptied key by key: one who reads it later finds nothing either."""
        changes = self._session.changes
        while changes.truncated:
            plan = changes.truncated[0]
            if plan.key and self._session.source.keys is not None and not changes.is_truncate_done():
                yield from self._session.settled()
                yield from self._reads.take_out(plan, self._session.source.keys.live(plan.topic), None)
            out: list[Record] = []
            changes.emit_truncate(out)
            yield self._session.step(out)

    def _beat(self, out: list[Record]) -> None:
        every = self._session.options.heartbeat
        if every is not None and time.monotonic() >= self._heartbeat_after:
            self._heartbeat_after = time.monotonic() + every
            value = b'{"ts_ms":%d}' % (time.time_ns() // 1_000_000)
            key = b'{"serverName":"%b"}' % self._session.source.name.encode()
            out.append(Record(self._session.options.topic("heartbeat"), key, value, None))

    def relation(self, relation: Relation, out: list[Record]) -> Plan | None:
        if not self._session.tables.is_wanted(relation.schema, relation.table):
            return None
        plan, info = self._session.tables.plan_of(relation)
        plan.hidden = self._session.jobs.hidden(plan.full_name)
        if not plan.key:
            self._session.source.without_key.add(plan.topic)
        change = self._session.tables.changed(
            relation.schema, relation.table, plan.fields, plan.key, info, self._session.changes.lsn, out
        )
        if change == "read" and info is not None and self._session.options.snapshot == "initial":
            self._reads.add(info, "again")
        return plan

    def _look(self) -> None:
        """Looks at the catalogue; what is found counts when the stream has come as far."""
        now = time.monotonic()
        if self._reads.table_gone:
            self._reads.table_gone, self._look_after = False, 0.0
        if now < self._look_after or self._looked is not None or not self._session.changes.between:
            return
        self._look_after = now + LOOK_SECONDS
        if not slots.has_publication(self._session.database, self._session.slot):
            raise ConnectionLost("capture", f"slot {self._session.slot}", slots.NO_PUBLICATION)
        found = self._session.tables.look()
        [[text]] = ask(self._session.database, "SELECT pg_current_wal_flush_lsn()::text")
        self._looked = found, last_record_end(lsn_number(text))

    def _take_look(self, found: list[TableInfo], out: list[Record]) -> None:
        tables = self._session.tables
        before = tables.infos
        usable = [info for info in found if info.can_be_published and (info.ours or info.published)]
        self._session.tables.set(usable)
        self._publish(usable, out)
        types = type_contents(self._session.database, usable)
        for info in usable:
            self._session.changes.take_up(info.oid, out)
            change = tables.changed(
                info.schema, info.name, fields_of(info), key_of(info), info, self._session.changes.lsn, out
            )
            self._note_topic(info)
            kind = "initial" if self._is_unread(info) else "again"
            difference = tables.remade(info, types)
            if difference == "read":
                tables.types.forget()
            if difference == "read" or self._session.changes.has_other_key(info.oid, key_of(info)):
                self._session.changes.renew(info.oid, tables.plan(info))
            if self._session.options.snapshot != "initial":
                continue
            if change == "read" or difference == "read":
                self._reads.add(info, kind)
            elif isinstance(difference, tuple):
                self._reads.add_parts(info, difference)
        tables.save()
        for name in before.keys() - self._session.tables.infos.keys():
            self._session.tables.forget(name)
            self._reads.end(name, done=False)
            self._session.notes[name] = (
                f"{name} is not there any more, or cannot be captured; its topic stays as it is"
            )

    def _acknowledge(self) -> None:
        """Lets the server forget what is durable in the log."""
        position = self._session.source.acknowledged
        now = time.monotonic()
        if position is None or position is self._told or now < self._tell_after:
            return
        self._told, self._tell_after = position, now + TELL_SECONDS
        lsn = lsn_number(position["lsn"])
        if lsn > self._session.replication.confirmed:
            self._session.replication.confirmed = lsn
            self._session.replication.tell()
            if self._session.cache is not None:
                self._session.cache.durable(lsn)

    def _report(self) -> None:
        now = time.monotonic()
        if now < self._status_after:
            return
        self._status_after = now + STATUS_SECONDS
        [[text]] = ask(self._session.database, "SELECT pg_current_wal_lsn()::text")
        idle = self._session.changes.between and self._session.replication.caught_up
        behind = (
            0.0
            if idle or not self._session.changes.microseconds
            else time.time() - self._session.changes.microseconds / 1e6
        )
        self._session.source.show(
            position=lsn_text(self._session.changes.lsn),
            lag_bytes=max(0, lsn_number(text) - self._session.replication.confirmed),
            lag_seconds=max(0.0, behind),
            snapshot=self._session.jobs.progress(),
            notes=(
                *self._session.tables.notes.values(),
                *self._session.notes.values(),
                *(["paused"] if self._session.paused else []),
            ),
        )

    def close(self) -> None:
        """Lets go of everything."""
        self._session.close()
