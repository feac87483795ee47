"""From the stream's messages to records: the state machine of transactions, changes and positions. No I/O of its own.

What needs the database (a value that is stored apart and was not sent, generated columns, a table that was
truncated) is asked of a `Helper`.
"""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Protocol

import orjson

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.postgres import pgoutput
from headwater.connect.cdc.postgres.chunk import Held
from headwater.connect.cdc.postgres.pgoutput import UNCHANGED, Relation, Values
from headwater.connect.cdc.postgres.plan import Plan
from headwater.connect.cdc.postgres.transactions import TransactionEvents
from headwater.connect.source import Record

_position = Struct(">q").unpack_from
_HEADER = 25
OWN_MESSAGES = "headwater"  # the prefix of messages that only hurry the stream
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


class Helper(Protocol):
    """What the stream itself does not tell."""

    def relation(self, relation: Relation, out: list[Record]) -> Plan | None:
        """The plan for a relation; None if it is not captured."""

    def fill(
        self, plan: Plan, old_key: bytes | None, values: Values, old: Values | None, at: int, number: int
    ) -> None:
        """Replaces UNCHANGED in the values of an update."""

    def keep(self, plan: Plan, key: bytes | None, values: Values, at: int, number: int) -> None:
        """Remembers the values of a large row."""

    def generate(self, plan: Plan, values: Values) -> Sequence[bytes | None]:
        """The generated columns of a row."""

    def gone(self, plan: Plan, key: bytes | None, at: int, number: int) -> None:
        """A row was deleted, or has another key now."""

    def outbox(self, plan: Plan, values: Values, out: list[Record]) -> None:
        """A row of the outbox table was inserted."""


class Changes:
    """Where the stream is, and what comes of its messages."""

    def __init__(self, helper: Helper, messages: Plan, transactions: TransactionEvents | None) -> None:
        self._helper, self._messages, self._transactions = helper, messages, transactions
        self.lsn = 0  # everything that was committed before is done
        self.last = NULL  # the commit before, as source.sequence shows it
        self.commit = 0  # the commit of the transaction in hand; 0 between transactions
        self.done = 0  # changes of it that are done
        self.xid = 0
        self.microseconds = 0
        self._times = (0, 0, 0)
        self._skip = 0  # changes of it that were written before
        self._skip_commit = 0
        self._plans: dict[int, Plan | None] = {}
        self._passed_over: dict[int, Relation] = {}  # tables that were described and not captured then
        self.held: Held | None = None  # a chunk that waits for the stream
        self._watch: Held | None = None  # the same, while a transaction that it does not show goes by
        self.track: set[int] | None = None  # xids that went by, while somebody wants to know
        self.truncated: list[Plan] = []  # to be dealt with by the caller before it goes on
        self.outbox_table: str | None = None
        self._tail = b""
        self._truncate_lsn = 0

    def begin_at(self, lsn: int, last: bytes, commit: int, done: int) -> None:
        """Goes on at a position; with `commit` in the middle of a transaction."""
        self.lsn, self.last = lsn, last
        self._skip_commit, self._skip = commit, done

    @property
    def skipped(self) -> int:
        """How many changes of the transaction at hand, or of the next, were written before."""
        return self._skip

    @property
    def place(self) -> tuple[int, int]:
        """The transaction in hand and how many of its changes are done, those included that were written before."""
        if self.commit:
            return self.commit, max(self.done, self._skip)
        return self._skip_commit if self._skip else 0, self._skip

    def drop_held(self) -> None:
        self.held = self._watch = None

    @property
    def between(self) -> bool:
        return not self.commit

    @property
    def plans(self) -> Mapping[int, Plan | None]:
        return self._plans

    def has_other_key(self, oid: int, key: tuple[str, ...]) -> bool:
        """Whether records are keyed otherwise than they should be from now on."""
        plan = self._plans.get(oid)
        return plan is not None and plan.key != key

    def take_up(self, oid: int, out: list[Record]) -> None:
        """A table that is captured from here on. If the stream has described it, it does not before it is altered."""
        relation = self._passed_over.pop(oid, None)
        if relation is not None:
            self._describe(relation, out)

    def renew(self, oid: int, plan: Plan) -> None:
        """Takes another plan for what the stream does not tell: generated columns, attributes of types."""
        known = self._plans.get(oid)
        if known is not None and known.streams_like(plan):
            plan.hidden = known.hidden
            self._plans[oid] = plan

    def process(self, messages: Sequence[bytes], at: int, limit: int, out: list[Record]) -> int:
        """Handles messages from a place on; returns where it stopped: at the limit, a truncated table, or the end."""
        now = time.time_ns()
        self._tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
        handlers = self._handlers()
        count = len(messages)
        while at < count:
            data = messages[at]
            at += 1
            handler = handlers.get(data[_HEADER])
            if handler is not None:
                handler(_position(data, 1)[0], data, out)
                if len(out) >= limit or self.truncated:
                    break
        return at

    def _handlers(self) -> dict[int, Callable[[int, bytes, list[Record]], None]]:
        return {
            pgoutput.BEGIN: self._begin,
            pgoutput.COMMIT: self._commit,
            pgoutput.RELATION: self._relation,
            pgoutput.INSERT: self._insert,
            pgoutput.UPDATE: self._update,
            pgoutput.DELETE: self._delete,
            pgoutput.TRUNCATE: self._truncate,
            pgoutput.MESSAGE: self._message,
        }

    # -- transactions ------------------------------------------------------------------------------

    def _begin(self, lsn: int, data: bytes, out: list[Record]) -> None:
        self.commit, us, self.xid = pgoutput.begin(data, _HEADER)
        self.microseconds = us
        self._times = (us // 1000, us, us * 1000)
        self.done = 0
        if self.commit != self._skip_commit:
            self._skip = 0
        if self.track is not None:
            self.track.add(self.xid)
        held = self.held
        self._watch = held if held is not None and not held.seen.shows(self.xid) else None
        if self._transactions is not None:
            self._transactions.begin(self.xid, lsn, us, written=self._skip > 0)

    def _commit(self, lsn: int, data: bytes, out: list[Record]) -> None:
        _, end, _ = pgoutput.commit(data, _HEADER)
        if self._transactions is not None:
            self._transactions.end(out)
        self.lsn, self.last = end, b'\\"%d\\"' % end
        self.commit = self.done = self._skip = 0
        self._watch = None

    def _next(self, plan: Plan | None, out: list[Record]) -> bytes | None:
        """Counts a change. None if it was written before, else the transaction block of its envelope."""
        self.done += 1
        if plan is None or (plan.hidden is not None and plan.hidden.hides(self.xid)):
            return None
        block = NULL if self._transactions is None else self._transactions.event(plan.full_name, out)
        return None if self.done <= self._skip else block

    def _relation(self, lsn: int, data: bytes, out: list[Record]) -> None:
        self._describe(pgoutput.relation(data, _HEADER), out)

    def _describe(self, relation: Relation, out: list[Record]) -> None:
        plan = self._plans[relation.oid] = self._helper.relation(relation, out)
        if plan is None:
            self._passed_over[relation.oid] = relation
        else:
            self._passed_over.pop(relation.oid, None)

    # -- rows --------------------------------------------------------------------------------------

    def _row(self, plan: Plan, values: Values) -> list[bytes]:
        row = plan.fragments(values)
        if plan.generated:
            plan.with_generated(row, self._helper.generate(plan, values))
        return row

    def _insert(self, lsn: int, data: bytes, out: list[Record]) -> None:
        plan = self._plans.get(pgoutput.relation_oid(data, _HEADER))
        block = self._next(plan, out)
        if block is None or plan is None:
            return
        values = pgoutput.insert_values(data, _HEADER)
        if plan.full_name == self.outbox_table:
            self._helper.outbox(plan, values, out)
            return
        row = self._row(plan, values)
        key = plan.shape.key(row)
        if self._watch is not None:
            self._watch.changed(plan.oid, key)
        if len(data) > plan.smallest_apart:
            self._helper.keep(plan, key, values, self.commit, self.done)
        source = plan.source(self._times, self.last, lsn, self.xid)
        value = b'{"before":null,"after":%b,"source":%b,"transaction":%b,"op":"c",%b' % (
            plan.shape.object(row), source, block, self._tail,
        )  # fmt: skip
        out.append((plan.topic, key, value, None))  # type: ignore[arg-type]

    def _update(self, lsn: int, data: bytes, out: list[Record]) -> None:
        plan = self._plans.get(pgoutput.relation_oid(data, _HEADER))
        block = self._next(plan, out)
        if block is None or plan is None or plan.full_name == self.outbox_table:
            self._count_moved(plan, data, out)
            return
        _, key_values, old_values, values = pgoutput.update(data, _HEADER)
        shape = plan.shape
        old_row = None
        old_key = None
        if old_values is not None:
            old_row = self._row(plan, old_values)
            old_key = shape.key(old_row)
        elif key_values is not None:
            old_row = plan.fragments(key_values)
            old_key = shape.key(old_row)
        if key_values is not None:
            # A long key may be stored apart too: then it comes as the old key, and the row says that it is unchanged.
            for place in plan.key_places:
                if values[place] is UNCHANGED:
                    values[place] = key_values[place]
        unchanged = UNCHANGED in values
        if unchanged:
            known = old_key
            if known is None:
                known = shape.key(plan.fragments([None if value is UNCHANGED else value for value in values]))
            self._helper.fill(plan, known, values, old_values, self.commit, self.done)
        row = self._row(plan, values)
        key = shape.key(row)
        if self._watch is not None:
            self._watch.changed(plan.oid, key)
            if old_key is not None:
                self._watch.changed(plan.oid, old_key)
        moved = old_key is not None and old_key != key
        if unchanged or len(data) > plan.smallest_apart:
            self._helper.keep(plan, key, values, self.commit, self.done)
            if moved:
                self._helper.gone(plan, old_key, self.commit, self.done)
        source = plan.source(self._times, self.last, lsn, self.xid)
        after = shape.object(row)
        if moved:
            assert old_row is not None
            self._deleted(plan, old_key, shape.object(old_row), source, block, [(NEW_KEY, key)], out)
            if self._transactions is not None:
                block = self._transactions.event(plan.full_name, out)
            value = b'{"before":null,"after":%b,"source":%b,"transaction":%b,"op":"c",%b' % (
                after, source, block, self._tail,
            )  # fmt: skip
            out.append(Record(plan.topic, key, value, [(OLD_KEY, old_key)]))
            return
        before = NULL if old_values is None or old_row is None else shape.object(old_row)
        value = b'{"before":%b,"after":%b,"source":%b,"transaction":%b,"op":"u",%b' % (
            before, after, source, block, self._tail,
        )  # fmt: skip
        out.append((plan.topic, key, value, None))  # type: ignore[arg-type]

    def _count_moved(self, plan: Plan | None, data: bytes, out: list[Record]) -> None:
        """A change of key is two events of its transaction, also when both were written before."""
        if self._transactions is None or plan is None or self.done > self._skip:
            return
        _, key_values, old_values, values = pgoutput.update(data, _HEADER)
        old = key_values if old_values is None else old_values
        if old is None:
            return
        new = [before if value is UNCHANGED else value for value, before in zip(values, old, strict=True)]
        if plan.shape.key(plan.fragments(old)) != plan.shape.key(plan.fragments(new)):
            self._transactions.event(plan.full_name, out)

    def _delete(self, lsn: int, data: bytes, out: list[Record]) -> None:
        plan = self._plans.get(pgoutput.relation_oid(data, _HEADER))
        block = self._next(plan, out)
        if block is None or plan is None or plan.full_name == self.outbox_table:
            return
        _, key_values, old_values = pgoutput.delete(data, _HEADER)
        if old_values is not None:
            row = self._row(plan, old_values)
        else:
            assert key_values is not None
            row = plan.fragments(key_values)
        key = plan.shape.key(row)
        if self._watch is not None:
            self._watch.changed(plan.oid, key)
        self._helper.gone(plan, key, self.commit, self.done)
        source = plan.source(self._times, self.last, lsn, self.xid)
        self._deleted(plan, key, plan.shape.object(row), source, block, None, out)

    def _deleted(
        self,
        plan: Plan,
        key: bytes | None,
        before: bytes,
        source: bytes,
        block: bytes,
        headers: list[tuple[str, bytes | None]] | None,
        out: list[Record],
    ) -> None:
        value = b'{"before":%b,"after":null,"source":%b,"transaction":%b,"op":"d",%b' % (
            before, source, block, self._tail,
        )  # fmt: skip
        out.append(Record(plan.topic, key, value, headers))
        out.append(Record(plan.topic, key, None, headers))

    # -- the rest ----------------------------------------------------------------------------------

    def _truncate(self, lsn: int, data: bytes, out: list[Record]) -> None:
        """The caller takes the keys out first (see `truncated`), then lets `emit_truncate` count and write it."""
        for oid in pgoutput.truncate(data, _HEADER).oids:
            plan = self._plans.get(oid)
            if plan is not None and self._watch is not None:
                self._watch.truncated(oid)
            self._truncate_one(plan, lsn, out)

    def _truncate_one(self, plan: Plan | None, lsn: int, out: list[Record]) -> None:
        if plan is None or plan.full_name == self.outbox_table:
            self._next(None, out)
            return
        self.truncated.append(plan)
        self._truncate_lsn = lsn

    def emit_truncate(self, out: list[Record]) -> None:
        """Writes the event of the next truncated table, after its keys were taken out."""
        plan = self.truncated.pop(0)
        block = self._next(plan, out)
        if block is not None:
            source = plan.source(self._times, self.last, self._truncate_lsn, self.xid)
            out.append(truncate_event(plan, source, block, self._tail))

    def is_truncate_done(self) -> bool:
        """Whether the next truncated table was dealt with before, or shows nothing yet."""
        hidden = self.truncated[0].hidden
        return self.done + 1 <= self._skip or (hidden is not None and hidden.hides(self.xid))

    def key_deleted(self, plan: Plan, key: bytes, out: list[Record], source: bytes | None = None) -> None:
        """A delete of a row of which only the key is known, and a tombstone."""
        now = time.time_ns()
        self._tail = b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now // 1_000_000, now // 1000, now)
        known = orjson.loads(key)
        row = [orjson.dumps(known[field.name]) if field.name in known else NULL for field in plan.fields]
        if source is None:
            source = plan.source(self._times, self.last, self._truncate_lsn, self.xid)
        self._deleted(plan, key, plan.shape.object(row), source, NULL, None, out)

    def _message(self, lsn: int, data: bytes, out: list[Record]) -> None:
        found = pgoutput.message(data, _HEADER)
        if found.prefix == OWN_MESSAGES:
            self._next(None, out)
            return
        plan = self._messages
        block: bytes | None = NULL
        times, xid = self._times, self.xid
        if found.transactional:
            block = self._next(plan, out)
        else:
            # They come between transactions, and again when the stream begins at or before their position.
            if found.lsn < self.lsn:
                return
            now = time.time_ns()
            times, xid = (now // 1_000_000, now // 1000, now), 0
            self.lsn = found.lsn + 1
        if block is None:
            return
        source = plan.source(times, self.last, found.lsn, xid)
        if not xid:
            source = source.replace(b'"txId":0,', b'"txId":null,')
        prefix, content = orjson.dumps(found.prefix), base64.b64encode(found.content)
        value = b'{"op":"m","source":%b,"transaction":%b,"message":{"prefix":%b,"content":"%b"},%b' % (
            source, block, prefix, content, self._tail,
        )  # fmt: skip
        out.append(Record(plan.topic, b'{"prefix":%b}' % prefix, value, None))


def truncate_event(plan: Plan, source: bytes, block: bytes, tail: bytes) -> Record:
    """Debezium's event has no key; a compacted topic takes none without, so its key is JSON's null."""
    value = b'{"before":null,"after":null,"source":%b,"transaction":%b,"op":"t",%b' % (source, block, tail)
    return Record(plan.topic, NULL if plan.key else None, value, None)
