"""The state machine of the stream: events of the log in, records out. Pure.

The log holds groups of events, each a transaction, in the order of their commits. A group may be larger than memory:
records go out as rows come in, and a position inside a group counts the changes of it that are out. Where something has
to be asked of the outside (keys to delete, rows of an XA transaction), the machine stops with a `pause`, and goes on
when it has been dealt with.
"""

import struct
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.mysql import binlog as log
from headwater.connect.cdc.mysql import changes, ddl
from headwater.connect.cdc.mysql.changes import Captured, Naming
from headwater.connect.cdc.mysql.history import Consequence, History
from headwater.connect.cdc.mysql.schema import Table
from headwater.connect.cdc.mysql.state import LogState, Place, before
from headwater.connect.cdc.mysql.tablemap import TableMap
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.source import Record
from headwater.errors import ChangesMissed, ConnectionLost

HELD_BYTES = 16 << 20  # of a group with non-transactional tables, whose end decides what of it counts
_HEADER = log.HEADER.unpack_from
_NOT_DDL = {
    "GRANT",
    "REVOKE",
    "FLUSH",
    "ANALYZE",
    "OPTIMIZE",
    "CHECK",
    "REPAIR",
    "SET",
    "USE",
    "INSTALL",
    "#",
}
_DML = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}


class EndOfStream(Exception):
    """The server sent an error, or the end, in the place of an event."""

    def __init__(self, packet: bytes) -> None:
        super().__init__("the server ended the stream")
        self.packet = packet


class DdlPause(NamedTuple):
    """A statement that means something for captured tables. `position` is before it."""

    consequences: Sequence[Consequence]
    position: dict[str, Any]
    first_time: bool  # False when a part of the group is in the log of a former run already


class ReplayPause(NamedTuple):
    """Rows that lie elsewhere in the log belong here: those of an XA transaction, or of a group read twice."""

    start: Place
    dropped: frozenset[int] = frozenset()  # events whose rows in transactional tables were rolled back


Pause = DdlPause | ReplayPause


class Stream:
    """Reads events. `records` are for the log, to be taken away by the caller; `position` goes with them."""

    def __init__(
        self,
        naming: Naming,
        history: History,
        state: LogState,
        resume: tuple[str, int] | None = None,
        defaults: Callable[[str], ddl.Defaults] = ddl.Defaults,
        checksummed: bool = False,  # whether the server's events have checksums, before the first file says so
    ) -> None:
        self.naming, self.history, self.state = naming, history, state
        self.records: list[Any] = []
        self.pause: Pause | None = None
        self.hold: Place | Callable[[], bool] | None = None  # stop before the first group that begins there
        self.touched: set[bytes] | None = None  # keys changed in `touched_topic`, when asked for
        self.touched_topic = ""
        # Tables without a key that are yet to be read as a whole: their changes until then will be in what is read.
        self.left_out: set[tuple[str, str]] = set()
        self.when = 0  # seconds of the newest event
        self.seen: Place = (state.file, state.place)
        self._resume = resume
        self._defaults = defaults
        self._options = naming.options
        outbox = self._options.outbox
        self._outbox = None if outbox is None else (
            tuple(outbox.split(".", 1)) if "." in outbox else (self._options.path_name, outbox)
        )  # fmt: skip
        self._checksummed = checksummed
        self._maps: dict[bytes, tuple[bytes, Captured | None]] = {}
        self._tables: dict[bytes, Captured | None] = {}
        self._stamp = b""
        # the group under way
        self.in_group = False
        self._open = False  # explicitly begun: it ends with XID, COMMIT or ROLLBACK
        self._group = ""  # its GTID
        self._gtid_json = NULL
        self._file_json = NULL
        self._start: Place = ("", 0)
        self._add: tuple[Any, ...] = ()
        self._items = self._skip = 0
        self._thread = NULL
        self._waiting_xa = False  # its rows count when it is committed, later
        self._xid = ""
        self._held: list[bytes] | None = None
        self._held_bytes = 0
        self._ordinal = 0
        self._dropping: frozenset[int] = frozenset()
        self._held_spans: list[tuple[str, int]] = []
        self._counts: dict[str, int] = {}
        self._schema_changes: tuple[str, Sequence[Consequence]] = ("", ())

    # -- positions

    def position(self) -> dict[str, Any]:
        """Where to go on after `records`."""
        found = self.state.to_json()
        if self.in_group and self._items:
            found["group"] = {"gtid": self._group, "rows": max(self._items, self._skip)}
        found["tables"] = self.history.encoded()
        return found

    # -- events

    def feed(self, data: bytes, spans: Sequence[tuple[int, int]], first: int = 0) -> int:
        """Reads packets from the `first` on, up to a pause or a hold; the number of the next one."""
        self._stamp = changes.stamp(time.time_ns())
        checksummed, verify = self._checksummed, zlib.crc32
        for number in range(first, len(spans)):
            start, end = spans[number]
            if data[start]:
                raise EndOfStream(data[start:end])
            at = start + 1
            kind = data[at + 4]
            if kind == log.FORMAT_DESCRIPTION:
                checksummed = self._format(data[at + log.HEADER_SIZE : end])
            elif checksummed:
                end -= log.CHECKSUM_SIZE
                if verify(data[at:end]) != int.from_bytes(data[end : end + 4], "little"):
                    cause = f"an event in {self.state.file} does not match its checksum"
                    raise ConnectionLost("read the log in", self.naming.options.shown_url, cause)
            if not self.in_group and self.hold is not None and self._is_held(kind, data, at):
                return number
            self._event(kind, data, at, end)
            if self.pause is not None:
                return number + 1
        return len(spans)

    def _is_held(self, kind: int, data: bytes, at: int) -> bool:
        if kind not in (log.MARIA_GTID, log.MYSQL_GTID, log.MYSQL_ANONYMOUS):
            return False
        if callable(self.hold):
            return self.hold()
        _, _, _, length, place, _ = _HEADER(data, at)
        return self.hold is not None and not before((self.state.file, place - length), self.hold)

    def is_at(self, place: Place) -> bool:
        """Whether all groups before a place have been read."""
        return not self.in_group and not before(self.seen, place)

    def _event(self, kind: int, data: bytes, at: int, end: int) -> None:
        when, _, server, length, place, flags = _HEADER(data, at)
        body = at + log.HEADER_SIZE
        rows = log.ROWS.get(kind)
        if self._held is not None and kind not in (log.ROTATE, log.HEARTBEAT):
            self._hold_event(kind, data, at, end)
        elif rows is not None:
            if not self._waiting_xa:
                self._rows(rows, data, body, end, when, server, place - length)
        elif kind == log.TABLE_MAP:
            self._table_map(data[body:end])
        elif kind == log.MARIA_GTID:
            gtid = log.MariaGtid.of(data[body:end])
            self._begin_maria(gtid, server, place - length)
        elif kind == log.XID:
            self._end(place)
        elif kind == log.QUERY or kind == log.QUERY_COMPRESSED:
            self.when = when or self.when
            self._query(log.Query.of(data[body:end], kind == log.QUERY_COMPRESSED), when, server, place)
        elif kind in (log.MYSQL_GTID, log.MYSQL_ANONYMOUS):
            self._begin_mysql(kind, log.MySQLGtid.of(data[body:end]), place - length)
        elif kind == log.TRANSACTION_PAYLOAD:
            for event in log.payload_events(data[body:end]):
                inner = bytearray(event)
                struct.pack_into("<I", inner, 13, place)  # inside, positions are relative to nothing
                self._event(event[4], bytes(inner), 0, len(inner))
        elif kind == log.XA_PREPARE:
            self._prepared(log.XaPrepare.of(data[body:end]), place)
        else:
            self._other(kind, data[body:end], place, flags)
        if when and self.in_group is False:
            self.when = when

    def _other(self, kind: int, body: bytes, place: int, flags: int) -> None:
        if kind == log.ROTATE:
            rotate = log.Rotate.of(body)
            if rotate.file != self.state.file or not flags & log.ARTIFICIAL:
                self._at_file(rotate.file, rotate.position if rotate.position > 4 else 0)
        elif kind in (log.HEARTBEAT, log.HEARTBEAT_2):
            file, inside = log.heartbeat_position(body, kind == log.HEARTBEAT_2)
            if not self.in_group:
                if file and file != self.state.file:
                    self._at_file(file, 0)
                self._move(inside if inside is not None else place)
        elif kind == log.INCIDENT:
            raise ChangesMissed(
                "read the log of", self._options.shown_url, "the server notes that it lost events"
            )
        elif kind == log.MYSQL_GTID_TAGGED:
            cause = "it has transactions with tagged ids, which are not read yet"
            raise ChangesMissed("read the log of", self._options.shown_url, cause)
        elif not self.in_group and place and not flags & log.ARTIFICIAL:
            self._move(place)

    def _format(self, body: bytes) -> bool:
        self._checksummed = log.FormatDescription.of(body).checksummed
        self._tables.clear()
        return self._checksummed

    def _at_file(self, file: str, place: int) -> None:
        self.state.file, self.state.place = file, place
        self._file_json = quoted(file)
        self.seen = (file, place)

    def _move(self, place: int) -> None:
        if place > self.state.place:
            self.state.place = place
            self.seen = (self.state.file, place)

    # -- groups

    def _begin_maria(self, gtid: log.MariaGtid, server: int, place: int) -> None:
        text = f"{gtid.domain}-{server}-{gtid.sequence}"
        self._begin(text, place, not gtid.flags & log.STANDALONE)
        self._add = (gtid.domain, server, gtid.sequence)
        self._waiting_xa = bool(gtid.flags & log.PREPARED_XA)
        self._xid = gtid.xid.hex()
        if not gtid.flags & (log.TRANSACTIONAL | log.STANDALONE | log.PREPARED_XA):
            self._held, self._held_bytes, self._held_spans = [], 0, []

    def _begin_mysql(self, kind: int, gtid: log.MySQLGtid, place: int) -> None:
        text = f"{gtid.source}:{gtid.number}" if kind == log.MYSQL_GTID else ""
        self._begin(text, place, False)
        self._add = (gtid.source, gtid.number) if text else ()

    def _begin(self, text: str, place: int, is_open: bool) -> None:
        self.in_group, self._open = True, is_open
        self._group = text
        self._gtid_json = quoted(text) if text else NULL
        self._start = (self.state.file, place)
        self._items = self._ordinal = 0
        self._skip = 0
        if self._resume is not None:
            if self._resume[0] == text:
                self._skip = self._resume[1]
            self._resume = None
        self._waiting_xa = False
        self._thread = NULL
        self._counts = {}

    def _end(self, place: int) -> None:
        """After the last event of a group."""
        if not self.in_group:  # a server without GTIDs from the middle of a file on
            self._move(place)
            return
        if self._options.transactions and self._counts:
            self._transaction_end()
        self.in_group = self._open = self._waiting_xa = False
        if self._add:
            self.state.gtids.add(*self._add)
        self._move(place)

    def _query(self, query: log.Query, when: int, server: int, place: int) -> None:
        text = query.text.lstrip()
        word = text[:24].upper()
        if word == "BEGIN":
            self._open, self._thread = True, b"%d" % query.thread
            if not self.in_group:
                self._begin("", place, True)
        elif word in ("COMMIT", "ROLLBACK"):
            self._end(place)
        elif word.startswith("XA "):
            self._xa(text, place)
        elif word.startswith(("SAVEPOINT", "ROLLBACK TO", "RELEASE SAVEPOINT")):
            pass
        else:
            self._statement(query, text, when, server, place)

    def _statement(self, query: log.Query, text: str, when: int, server: int, place: int) -> None:
        first = text.split(None, 1)[0].upper() if text else "#"
        if first in _DML:
            self._check_statement(text)
        effects = [] if first in _NOT_DDL and "STATEMENT" not in text[:20].upper() else self._effects(query)
        if effects:
            position = self.position()
            consequences = self.history.apply(effects)
            if consequences:
                self._maps.clear()
                self._tables.clear()
                self._schema_changes = (query.text, consequences)
                self._ddl_place = (when, server, place)
                self.pause = DdlPause(consequences, position, self._skip == 0)
                return
        if not self._open:
            self._end(place)

    def _effects(self, query: log.Query) -> list[ddl.Effect]:
        if query.error:
            return []  # the statement failed, half-way on a non-transactional table
        return ddl.effects(query.text, self._defaults(query.database))

    def _check_statement(self, text: str) -> None:
        lowered = text.lower()
        for database, table in self.history.tables:
            if table.lower() in lowered:
                cause = f"a change of {database}.{table} is in the log as a statement, not as rows"
                step = "Set binlog_format=ROW for all sessions, and read the table again by a snapshot."
                raise ChangesMissed("capture", f"{database}.{table}", cause, step)

    def finish_statement(self) -> None:
        """After a DdlPause: the events of the schema, and on."""
        assert isinstance(self.pause, DdlPause)
        self.pause = None
        text, consequences = self._schema_changes
        when, server, place = self._ddl_place
        for name in dict.fromkeys(each.name for each in consequences):
            self._items += 1
            if self._items > self._skip:
                self.records.append(self._schema_record(name, text, when, server, place))
        if not self._open:
            self._end(place)

    def _schema_record(self, name: tuple[str, str], text: str, when: int, server: int, place: int) -> Record:
        table = self.history.tables.get(name)
        shown = table or Table(*name, (), ())
        source = self.naming.source(shown, b'"false"')
        columns = [
            {"name": c.name, "type": c.type, "key": c.name in shown.key, "nullable": c.nullable}
            for c in shown.visible
        ]
        head = source % (
            when * 1000, when * 1_000_000, when * 1_000_000_000, server, self._gtid_json, self._file_json, place
        )  # fmt: skip
        value = b'{"source":%b0,"thread":%b,"query":null},"table":%b,"columns":%b,"ddl":%b,"ts_ms":%d}' % (
            head,
            self._thread,
            quoted(f"{name[0]}.{name[1]}"),
            orjson.dumps(columns) if table is not None else NULL,
            quoted(text),
            time.time_ns() // 1_000_000,
        )
        key = orjson.dumps({"table": f"{name[0]}.{name[1]}"})
        return Record(self._options.topic("schema"), key, value)

    # -- XA

    def _xa(self, text: str, place: int) -> None:
        words = text.split(None, 2)
        verb = words[1].upper()
        if verb == "START":  # MySQL; MariaDB says it in the GTID event
            self._open = self._waiting_xa = True
        elif verb in ("COMMIT", "ROLLBACK"):
            xid = log.xid_of_statement(text)
            start = self.state.prepared.pop(xid.hex() if xid is not None else self._xid, None)
            if verb == "COMMIT":
                if start is None:
                    cause = "an XA transaction was committed that was prepared before capture began"
                    raise ChangesMissed("read the log of", self._options.shown_url, cause)
                self._replay_end = place
                self.pause = ReplayPause(start)
                return
            self._end(place)

    def _prepared(self, prepare: log.XaPrepare, place: int) -> None:
        if prepare.one_phase:
            self._waiting_xa, self._replay_end = False, place
            self.pause = ReplayPause(self._start)
            return
        self.state.prepared[prepare.xid.hex()] = self._start
        self._end(place)

    def replay(self, data: bytes, spans: Sequence[tuple[int, int]]) -> bool:
        """Reads packets that begin at a ReplayPause's start; True when its group has been read."""
        assert isinstance(self.pause, ReplayPause)
        pause, checksummed = self.pause, self._checksummed
        for start, end in spans:
            at = start + 1
            kind = data[at + 4]
            if kind == log.FORMAT_DESCRIPTION:
                checksummed = log.FormatDescription.of(data[at + log.HEADER_SIZE : end]).checksummed
                self._replay_checksummed = checksummed
                continue
            end -= log.CHECKSUM_SIZE if getattr(self, "_replay_checksummed", checksummed) else 0
            body = at + log.HEADER_SIZE
            when, _, server, length, place, _ = _HEADER(data, at)
            if kind in log.ROWS:
                self._ordinal += 1
                self._replay_rows(pause, log.ROWS[kind], data, body, end, when, server, place - length)
            elif kind == log.TABLE_MAP:
                self._ordinal += 1
                self._table_map(data[body:end])
            elif kind in (log.XID, log.XA_PREPARE):
                return self._replayed()
            elif kind in (log.QUERY, log.QUERY_COMPRESSED):
                self._ordinal += 1
                text = log.Query.of(data[body:end], kind == log.QUERY_COMPRESSED).text.upper()
                if text in ("COMMIT", "ROLLBACK"):
                    return self._replayed()
        return False

    def _replay_rows(self, pause: ReplayPause, kind: log.RowsKind, data: bytes, at: int, *rest: int) -> None:
        captured = self._tables.get(data[at : at + 6])
        if captured is None:
            return
        if self._ordinal in pause.dropped and captured.table.is_transactional:
            return
        self._rows(kind, data, at, *rest)

    def _replayed(self) -> bool:
        self.pause = None
        self._tables.clear()
        self._end(self._replay_end)
        return True

    # -- groups with non-transactional tables, of which a part may have been rolled back

    def _hold_event(self, kind: int, data: bytes, at: int, end: int) -> None:
        """Keeps events until the end of their group tells which count; notes how it is divided."""
        assert self._held is not None
        self._ordinal += 1
        last = kind in (log.XID, log.XA_PREPARE)
        if kind in (log.QUERY, log.QUERY_COMPRESSED):
            query = log.Query.of(data[at + log.HEADER_SIZE : end], kind == log.QUERY_COMPRESSED)
            text = query.text.strip()
            self._held_spans.append((text, self._ordinal))
            last = text.upper() in ("COMMIT", "ROLLBACK")
        self._held_bytes += end - at
        if self._held_bytes <= HELD_BYTES:
            self._held.append(data[at:end])
        if not last:
            return
        held, dropped = self._held, frozenset(rolled_back(self._held_spans, self._ordinal))
        self._held = None
        if self._held_bytes > HELD_BYTES:
            self._ordinal, self._replay_end = 0, _HEADER(data, at)[4]
            self.pause = ReplayPause(self._start, dropped)
            return
        for number, event in enumerate(held, start=1):
            if number in dropped and event[4] in log.ROWS:
                captured = self._tables.get(event[log.HEADER_SIZE : log.HEADER_SIZE + 6])
                if captured is not None and captured.table.is_transactional:
                    continue
            self._event(event[4], event, 0, len(event))

    # -- rows

    def _table_map(self, body: bytes) -> None:
        found = self._maps.get(body)
        if found is None:
            written = TableMap.of(body)
            table = self.history.resolve(written)
            captured = None
            if table is not None:
                is_outbox = (table.database, table.name) == self._outbox
                captured = Captured(self.naming, table, written.columns, is_outbox)
            if len(self._maps) > 10_000:
                self._maps.clear()
            found = self._maps[body] = (body[:6], captured)
        self._tables[found[0]] = found[1]

    def _rows(
        self, kind: log.RowsKind, data: bytes, at: int, end: int, when: int, server: int, place: int
    ) -> None:
        captured = self._tables.get(data[at : at + 6])
        if captured is None:
            return
        at += 8
        if kind.has_extra:
            at += data[at] | data[at + 1] << 8
        count, at = log.length_encoded(data, at)
        size = (count + 7) // 8
        images = data[at : at + size]
        at += size
        second = images
        if kind.operation == "u":
            second = data[at : at + size]
            at += size
        if kind.compressed:
            data = log.decompressed(data[at:end])
            at, end = 0, len(data)
        rows: list[Any] = []
        if images == captured.whole and second == captured.whole and not kind.partial:
            captured.decode(data, at, end, rows.append)
        else:
            self._partial_rows(captured, kind, data, at, end, images, second, rows)
        skipped = 0
        if self.left_out and (captured.table.database, captured.table.name) in self.left_out:
            self._items += len(rows) // (2 if kind.operation == "u" else 1)
            return
        if self._items < self._skip:
            width = 2 if kind.operation == "u" else 1
            skipped = min(self._skip - self._items, len(rows) // width)
            rows = rows[skipped * width :]
            self._items += skipped
            if self._options.transactions:
                self._counts[captured.collection] = self._counts.get(captured.collection, 0) + skipped
            if not rows:
                return
        head = captured.source % (
            when * 1000, when * 1_000_000, when * 1_000_000_000, server, self._gtid_json, self._file_json, place
        )  # fmt: skip
        self._write(captured, kind.operation, rows, head, skipped)
        self._items += len(rows) // (2 if kind.operation == "u" else 1)

    def _partial_rows(
        self,
        captured: Captured,
        kind: log.RowsKind,
        data: bytes,
        at: int,
        end: int,
        first: bytes,
        second: bytes,
        rows: list[Any],
    ) -> None:
        if kind.partial:
            raise ChangesMissed(
                "capture",
                captured.collection,
                "its log has changes of parts of JSON values (binlog_row_value_options=PARTIAL_JSON)",
                "Set binlog_row_value_options='' and read the table again by a snapshot.",
            )
        found = captured.images(first, second)
        if kind.operation != "d" and not found.after_is_whole:
            raise ChangesMissed(
                "capture",
                captured.collection,
                "a change in its log lacks columns (binlog_row_image was not FULL)",
                "Set binlog_row_image=FULL for all sessions, and read the table again by a snapshot.",
            )
        while at < end:
            at = found.before(data, at, end, rows.append)
            if kind.operation == "u":
                at = found.after(data, at, end, rows.append)

    def _write(self, captured: Captured, operation: str, rows: list[Any], head: bytes, first: int) -> None:
        if captured.versioned:
            operation_rows = _current(operation, rows)
            for op, some in operation_rows:
                self._write_rows(captured, op, some, head, first)
        elif captured.is_outbox:
            self._write_outbox(captured, operation, rows)
        else:
            self._write_rows(captured, operation, rows, head, first)

    def _write_rows(
        self, captured: Captured, operation: str, rows: list[Any], head: bytes, number: int
    ) -> None:
        append, topic, thread, now = self.records.append, captured.topic, self._thread, self._stamp
        transaction: bytes = NULL
        has_transactions = self._options.transactions
        if self.touched is not None and topic == self.touched_topic:
            self.touched.update(row[0] for row in rows)
        if operation == "u":
            pairs = iter(rows)
            for (old_key, old), (key, row) in zip(pairs, pairs, strict=True):
                if has_transactions:
                    transaction = self._in_transaction(captured)
                if old_key == key:
                    append(
                        (
                            topic,
                            key,
                            changes.UPDATED % (old, row, head, number, thread, transaction, now),
                            None,
                        )
                    )
                else:
                    headers = [("__debezium.newkey", key)]
                    value = changes.DELETED % (old, head, number, thread, transaction, now)
                    append((topic, old_key, value, headers))
                    append((topic, old_key, None, headers))
                    value = changes.CREATED % (row, head, number, thread, transaction, now)
                    append((topic, key, value, [("__debezium.oldkey", old_key)]))
                number += 1
        elif operation == "c":
            for key, row in rows:
                if has_transactions:
                    transaction = self._in_transaction(captured)
                append((topic, key, changes.CREATED % (row, head, number, thread, transaction, now), None))
                number += 1
        else:
            for key, row in rows:
                if has_transactions:
                    transaction = self._in_transaction(captured)
                append((topic, key, changes.DELETED % (row, head, number, thread, transaction, now), None))
                append((topic, key, None, None))
                number += 1

    def _write_outbox(self, captured: Captured, operation: str, rows: list[Any]) -> None:
        if operation != "c":
            return  # rows are deleted when they have been written; updates of events are no events
        self.records += [outbox_record(orjson.loads(row)) for _, row in rows]

    # -- transactions as Debezium tells them

    def _transaction_id(self) -> str:
        return self._group or f"file={self._start[0]},pos={self._start[1]}"

    def _in_transaction(self, captured: Captured) -> bytes:
        if not self._counts:
            self._boundary("BEGIN", None)
        count = self._counts[captured.collection] = self._counts.get(captured.collection, 0) + 1
        total = sum(self._counts.values())
        identity = quoted(self._transaction_id())
        return b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (identity, total, count)

    def _transaction_end(self) -> None:
        self._boundary("END", self._counts)

    def _boundary(self, status: str, counts: dict[str, int] | None) -> None:
        identity = self._transaction_id()
        value = {
            "status": status,
            "id": identity,
            "event_count": sum(counts.values()) if counts is not None else None,
            "data_collections": None
            if counts is None
            else [{"data_collection": name, "event_count": count} for name, count in counts.items()],
            "ts_ms": time.time_ns() // 1_000_000,
        }
        key = orjson.dumps({"id": identity})
        self.records.append(Record(self._options.topic("transaction"), key, orjson.dumps(value)))


def rolled_back(statements: Sequence[tuple[str, int]], last: int) -> set[int]:
    """The numbers of events that a rollback to a savepoint, or of all, has undone.

    >>> sorted(rolled_back([("SAVEPOINT `a`", 2), ("ROLLBACK TO `a`", 5), ("COMMIT", 7)], 7))
    [3, 4]
    """
    savepoints: dict[str, int] = {}
    dropped: set[int] = set()
    for text, number in statements:
        words = text.split()
        verb = " ".join(words[:2]).upper()
        if words[0].upper() == "SAVEPOINT":
            savepoints[words[-1]] = number
        elif verb == "ROLLBACK TO":
            dropped.update(range(savepoints.get(words[-1], 0) + 1, number))
        elif text.upper() == "ROLLBACK":
            dropped.update(range(1, last))
    return dropped


def _current(operation: str, rows: list[Any]) -> list[tuple[str, list[Any]]]:
    """Changes of a table with system versioning as changes of its current rows: history is left out."""
    if operation != "u":
        return [(operation, [(key, row) for key, row, current in rows if current])]
    found: list[tuple[str, list[Any]]] = []
    pairs = iter(rows)
    for (old_key, old, was), (key, row, is_current) in zip(pairs, pairs, strict=True):
        if was and is_current:
            found.append(("u", [(old_key, old), (key, row)]))
        elif was:
            found.append(("d", [(old_key, old)]))
        elif is_current:
            found.append(("c", [(key, row)]))
    return found


def outbox_record(row: dict[str, Any]) -> Record:
    """A row of the outbox table as the event it holds, like Debezium's event router."""
    headers = [("id", str(row.get("id")).encode())]
    payload = row.get("payload")
    key = row.get("aggregateid")
    return Record(
        f"outbox.event.{row.get('aggregatetype')}",
        None if key is None else str(key).encode(),
        None
        if payload is None
        else (payload if isinstance(payload, str) else orjson.dumps(payload).decode()).encode(),
        headers,
    )
