"""The state machine of the stream: events of the log in, records out. Pure.

The log holds groups of events, each a transaction, in the order of their commits. A group may be larger than memory:
records go out as rows come in, and a position inside a group counts the changes of it that are out. Where something has
to be asked of the outside (keys to delete, rows of an XA transaction), the machine stops with a `pause`, and goes on
when it has been dealt with.
"""

import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.mysql import binlog as log
from headwater.connect.cdc.mysql import changes, ddl
from headwater.connect.cdc.mysql.changes import Captured, Naming
from headwater.connect.cdc.mysql.definitions import Defaults
from headwater.connect.cdc.mysql.held import HeldGroup
from headwater.connect.cdc.mysql.history import History
from headwater.connect.cdc.mysql.pauses import DdlPause, EndOfStream, Pause, ReplayPause
from headwater.connect.cdc.mysql.state import LogState, Place, before
from headwater.connect.cdc.mysql.tablemap import TableMap
from headwater.connect.cdc.mysql.types import UnknownType
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.mysql.writing import ChangeWriter
from headwater.errors import CaptureImpossible, ChangesMissed, ConnectionLost

_HEADER = log.HEADER.unpack_from
_PLACE = struct.Struct("<II").unpack_from  # length of an event and the place after it, at 9 in its header
_GTID = struct.Struct("<QIB").unpack_from
_CHECKED = 0x2144DF1C  # the CRC-32 of anything that ends with its own CRC-32
_PLAIN_GTIDS = {log.MARIA_GTID, log.MYSQL_GTID, log.MYSQL_ANONYMOUS}
_PLAIN_ROWS = {23, 24, 25, 30, 31, 32}
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
_MAPS = 10_000  # remembered


class Stream:
    """Reads events. `take` gives the records for the log; `position` goes with them."""

    def __init__(
        self,
        naming: Naming,
        history: History,
        state: LogState,
        resume: tuple[str, int] | None = None,
        defaults: Callable[[str], Defaults] = Defaults,
        checksummed: bool = False,  # whether the server's events have checksums, before the first file says so
    ) -> None:
        self.naming, self.history, self.state = naming, history, state
        self.writer = ChangeWriter(naming)
        self.pause: Pause | None = None
        self.hold: Place | Callable[[], bool] | None = None  # stop before the first group that begins there
        # Tables without a key that are yet to be read as a whole: their changes until then will be in what is read.
        self.left_out: set[tuple[str, str]] = set()
        self.yet_to_read: set[tuple[str, str]] = set()  # all tables that are
        self.when = 0  # seconds of the newest event
        self.groups_end: Place | None = None  # no group that was read ends behind it; None: not known
        self.began: Place = state.file, state.place  # groups of earlier lives end here, or before
        self._resume, self._defaults, self._checksummed = resume, defaults, checksummed
        self._outbox = _outbox_name(naming)
        self._maps: dict[bytes, tuple[bytes, Captured | None]] = {}
        self._tables: dict[bytes, Captured | None] = {}
        # the group under way
        self.in_group = False
        self._open = False  # explicitly begun: it ends with XID, COMMIT or ROLLBACK
        self._group = NULL  # its GTID, in JSON
        self._start: Place = ("", 0)
        self._add: tuple[Any, ...] = ()  # what its end adds to the state
        self._items = self._skip = 0  # changes of it that were read, and how many of them are out already
        self._waiting_xa = False  # its rows count when it is committed, later
        self._xid = ""
        self._held: HeldGroup | None = None
        self._ordinal = 0
        self._replay_checksummed = checksummed
        self.writer.at_file(state.file)

    def tell_tables(self, names: Iterable[tuple[str, str]], server: int) -> None:
        """An event of the schema for each of these tables, as they are now; the outbox is none for readers."""
        when = int(time.time())
        for name in sorted(set(names) - {self._outbox}):
            self.writer.schema(name, self.history.tables[name], None, when, server, self.state.place)

    # -- positions

    def take(self) -> list[Any]:
        """The records since the last call."""
        records, self.writer.records = self.writer.records, []
        return records

    def position(self) -> dict[str, Any]:
        """Where to go on after them."""
        found = self.state.to_json()
        if self.in_group and self._items:
            found["group"] = {"gtid": _text(self._group), "rows": max(self._items, self._skip)}
        found["tables"] = self.history.encoded()
        return found

    def is_at(self, place: Place) -> bool:
        """Whether all groups before a place have been read."""
        return not self.in_group and not before((self.state.file, self.state.place), place)

    # -- events

    def feed(self, data: bytes, spans: Sequence[tuple[int, int]], first: int = 0) -> int:
        """Reads packets from the `first` on, up to a pause or a hold; the number of the next one."""
        self.writer.stamp = changes.stamp(time.time_ns())
        checksummed, checksum, maps, tables = self._checksummed, zlib.crc32, self._maps, self._tables
        for number in range(first, len(spans)):
            start, end = spans[number]
            if data[start]:
                raise EndOfStream(data[start:end])
            at = start + 1
            kind = data[start + 5]
            if kind == log.FORMAT_DESCRIPTION:
                checksummed = self._format(data[at + log.HEADER_SIZE : end])
            elif checksummed:
                if checksum(data[at:end]) != _CHECKED:
                    cause = f"an event in {self.state.file} does not match its checksum"
                    raise ConnectionLost("read the log in", self.naming.options.shown_url, cause)
                end -= log.CHECKSUM_SIZE
            if self._held is None:  # what most events are, without a call for each
                if kind == log.TABLE_MAP:
                    found = maps.get(data[start + 20 : end])
                    if found is not None:
                        tables[found[0]] = found[1]
                        continue
                elif kind == log.XID:
                    self._end(_PLACE(data, start + 10)[1])
                    continue
                elif kind in _PLAIN_ROWS and not self._waiting_xa:
                    when, _, server, length, place, _ = _HEADER(data, at)
                    self._rows(log.ROWS[kind], data, start + 20, end, when, server, place - length)
                    continue
                elif kind in _PLAIN_GTIDS and self.hold is not None and self._is_held(data, at):
                    return number
            self._event(kind, data, at, end)
            if self.pause is not None:
                return number + 1
        return len(spans)

    def _is_held(self, data: bytes, at: int) -> bool:
        if callable(self.hold):
            return self.hold()
        length, place = _PLACE(data, at + 9)
        return self.hold is not None and not before((self.state.file, place - length), self.hold)

    def _event(self, kind: int, data: bytes, at: int, end: int) -> None:
        when, _, server, length, place, flags = _HEADER(data, at)
        body = at + log.HEADER_SIZE
        rows = log.ROWS.get(kind)
        if self._held is not None and kind not in (log.ROTATE, log.HEARTBEAT, log.HEARTBEAT_2):
            self._hold_event(kind, data, at, end)
        elif rows is not None:
            if not self._waiting_xa:
                self._rows(rows, data, body, end, when, server, place - length)
        elif kind == log.MARIA_GTID:
            self.when = when
            self._begin_maria(data, body, end, server, place - length)
        elif kind == log.TABLE_MAP:
            self._table_map(data[body:end])
        elif kind == log.XID:
            self._end(place)
        elif kind == log.QUERY or kind == log.QUERY_COMPRESSED:
            self._query(log.Query.of(data[body:end], kind == log.QUERY_COMPRESSED), when, server, place)
        elif kind in (log.MYSQL_GTID, log.MYSQL_ANONYMOUS):
            self.when = when
            self._begin_mysql(kind, log.MySQLGtid.of(data[body:end]), place - length)
        elif kind == log.TRANSACTION_PAYLOAD:
            for event in log.payload_events(data[body:end]):
                inner = bytearray(event)
                struct.pack_into("<I", inner, 13, place)  # inside, positions mean nothing
                self._event(event[4], bytes(inner), 0, len(inner))
        elif kind == log.XA_PREPARE:
            self._prepared(log.XaPrepare.of(data[body:end]), place)
        else:
            self._other(kind, data[body:end], place, flags)

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
            raise self._missed("the server notes that it lost events")
        elif kind == log.MYSQL_GTID_TAGGED:
            raise self._missed("it has transactions with tagged ids, which are not read yet")
        elif not self.in_group and place and not flags & log.ARTIFICIAL:
            self._move(place)

    def _missed(self, cause: str) -> ChangesMissed:
        return ChangesMissed("read the log of", self.naming.options.shown_url, cause)

    def _format(self, body: bytes) -> bool:
        self._checksummed = log.FormatDescription.of(body).checksummed
        self._tables.clear()
        return self._checksummed

    def _at_file(self, file: str, place: int) -> None:
        self.state.file, self.state.place = file, place
        self.writer.at_file(file)

    def _move(self, place: int) -> None:
        if place > self.state.place:
            self.state.place = place

    # -- groups

    def _begin_maria(self, data: bytes, body: int, end: int, server: int, place: int) -> None:
        sequence, domain, flags = _GTID(data, body)
        gtid = b'"%d-%d-%d"' % (domain, server, sequence)
        self._begin(gtid, place, not flags & log.STANDALONE)
        self._add = (domain, server, sequence)
        if flags & (log.PREPARED_XA | log.COMPLETED_XA):
            self._waiting_xa = bool(flags & log.PREPARED_XA)
            self._xid = log.MariaGtid.of(data[body:end]).xid.hex()
        elif not flags & (log.TRANSACTIONAL | log.STANDALONE | log.DDL):
            # A table that is made of a SELECT is a group as well, of which no part is rolled back alone.
            self._held = HeldGroup()

    def _begin_mysql(self, kind: int, gtid: log.MySQLGtid, place: int) -> None:
        text = f"{gtid.source}:{gtid.number}" if kind == log.MYSQL_GTID else ""
        self._begin(quoted(text) if text else NULL, place, False)
        self._add = (gtid.source, gtid.number) if text else ()

    def _begin(self, gtid: bytes, place: int, is_open: bool) -> None:
        self.in_group, self._open = True, is_open
        self._group = gtid
        self._start = (self.state.file, place)
        self._items = self._ordinal = self._skip = 0
        if self._resume is not None:
            if self._resume[0] == _text(gtid):
                self._skip = self._resume[1]
            self._resume = None
        self._waiting_xa = False
        self.writer.begin(gtid, self.state.file, place)

    def _end(self, place: int) -> None:
        """After the last event of a group."""
        if not self.in_group:  # a server without GTIDs, from the middle of a file on
            self._move(place)
            return
        self.writer.end()
        self.in_group = self._open = self._waiting_xa = False
        if self._add:
            self.state.gtids.add(*self._add)
        if place > self.state.place:
            self.state.place = place
        self.groups_end = (self.state.file, self.state.place)

    # -- statements

    def _query(self, query: log.Query, when: int, server: int, place: int) -> None:
        text = query.text.lstrip()
        word = text[:24].upper()
        if word == "BEGIN":
            if not self.in_group:
                self._begin(NULL, place, True)
            self._open, self.writer.thread = True, b"%d" % query.thread
        elif word in ("COMMIT", "ROLLBACK"):
            self._end(place)
        elif word.startswith("XA "):
            self._xa(text, place)
        elif not word.startswith(("SAVEPOINT", "ROLLBACK TO", "RELEASE SAVEPOINT")):
            self._statement(query, text, when, server, place)

    def _statement(self, query: log.Query, text: str, when: int, server: int, place: int) -> None:
        first = text.split(None, 1)[0].upper() if text else "#"
        if first in _DML:
            self._check_statement(text)
        for effects in self._effects(query, first):
            position = self.position()
            consequences = self.history.apply(effects)
            if consequences:
                self._maps.clear()
                self._tables.clear()
                fresh = self._skip == 0
                self.pause = DdlPause(consequences, position, fresh, query.text, when, server, place)
                return
        if not self._open:
            self._end(place)

    def _effects(self, query: log.Query, first: str) -> list[list[ddl.Effect]]:
        if first in _NOT_DDL and "STATEMENT" not in query.text[:20].upper():
            return []
        if query.error:
            return []  # the statement failed, half-way on a non-transactional table
        found = ddl.effects(query.text, self._defaults(query.database))
        return [found] if found else []

    def _check_statement(self, text: str) -> None:
        for database, table in self.history.tables:
            # The name as a whole: a table `t` is not meant wherever there is a letter t.
            if re.search(rf"(?<![\w$]){re.escape(table)}(?![\w$])", text, re.IGNORECASE):
                cause = f"a change of {database}.{table} is in the log as a statement, not as rows"
                step = "Set binlog_format=ROW for all sessions, and read the table again by a snapshot."
                raise ChangesMissed("capture", f"{database}.{table}", cause, step)

    def finish_statement(self) -> None:
        """After a DdlPause: the events of the schema, and on."""
        pause, self.pause = self.pause, None
        assert isinstance(pause, DdlPause)
        for name in dict.fromkeys(each.name for each in pause.consequences):
            self._items += 1
            if self._items > self._skip:
                table = self.history.tables.get(name)
                self.writer.schema(name, table, pause.text, pause.when, pause.server, pause.place)
        if not self._open:
            self._end(pause.place)

    # -- XA

    def _xa(self, text: str, place: int) -> None:
        verb = text.split(None, 2)[1].upper()
        if verb == "START":  # MySQL; MariaDB says it in the GTID event
            self._open = self._waiting_xa = True
        elif verb in ("COMMIT", "ROLLBACK"):
            xid = log.xid_of_statement(text)
            start = self.state.prepared.pop(xid.hex() if xid is not None else self._xid, None)
            if verb == "ROLLBACK":
                self._end(place)
            elif start is None:
                raise self._missed("an XA transaction was committed that was prepared before capture began")
            else:
                self.pause = ReplayPause(start, place)

    def _prepared(self, prepare: log.XaPrepare, place: int) -> None:
        if prepare.one_phase:
            self._waiting_xa = False
            self.pause = ReplayPause(self._start, place)
            return
        self.state.prepared[prepare.xid.hex()] = self._start
        self._end(place)

    def replay(self, data: bytes, spans: Sequence[tuple[int, int]]) -> bool:
        """Reads packets that begin at a ReplayPause's start; True when its group has been read."""
        pause = self.pause
        assert isinstance(pause, ReplayPause)
        self.writer.stamp = changes.stamp(time.time_ns())
        for start, end in spans:
            at = start + 1
            kind = data[at + 4]
            if kind == log.FORMAT_DESCRIPTION:
                description = log.FormatDescription.of(data[at + log.HEADER_SIZE : end])
                self._replay_checksummed = description.checksummed
                continue
            end -= log.CHECKSUM_SIZE if self._replay_checksummed else 0
            if self._replay_event(pause, kind, data, at, end):
                self.pause = None
                self._tables.clear()
                self._end(pause.end)
                return True
        return False

    def _replay_event(self, pause: ReplayPause, kind: int, data: bytes, at: int, end: int) -> bool:
        """Whether it is the last of its group."""
        body = at + log.HEADER_SIZE
        when, _, server, length, place, _ = _HEADER(data, at)
        if kind in (log.XID, log.XA_PREPARE):
            return True
        if kind in log.ROWS:
            self._ordinal += 1
            captured = self._tables.get(data[body : body + 6])
            undone = (
                captured is not None and captured.table.is_transactional and self._ordinal in pause.dropped
            )
            if not undone:
                self._rows(log.ROWS[kind], data, body, end, when, server, place - length)
        elif kind == log.TABLE_MAP:
            self._ordinal += 1
            self._table_map(data[body:end])
        elif kind in (log.QUERY, log.QUERY_COMPRESSED):
            self._ordinal += 1
            text = log.Query.of(data[body:end], kind == log.QUERY_COMPRESSED).text.upper()
            return text in ("COMMIT", "ROLLBACK")
        return False

    # -- groups with non-transactional tables, of which a part may have been rolled back

    def _hold_event(self, kind: int, data: bytes, at: int, end: int) -> None:
        assert self._held is not None
        if not self._held.add(kind, data, at, end):
            return
        held, self._held = self._held, None
        dropped = held.rolled_back()
        if held.overflowed:
            self._ordinal = 0
            self.pause = ReplayPause(self._start, _HEADER(data, at)[4], frozenset(dropped))
            return
        for number, event in enumerate(held.events, start=1):
            if number in dropped and event[4] in log.ROWS:
                captured = self._tables.get(event[log.HEADER_SIZE : log.HEADER_SIZE + 6])
                if captured is not None and captured.table.is_transactional:
                    continue
            self._event(event[4], event, 0, len(event))

    # -- rows

    def _table_map(self, body: bytes) -> None:
        found = self._maps.get(body)
        if found is None:
            written = TableMap.of(body, self.state.is_mariadb)
            try:
                table = self.history.resolve(written)
            except CaptureImpossible:
                if (written.database, written.table) not in self.yet_to_read:
                    raise
                self._tables[body[:6]] = None  # what it was before does not matter: it will be read as it is
                return
            captured = None
            if table is not None:
                is_outbox = (table.database, table.name) == self._outbox
                try:
                    captured = Captured(self.naming, table, written.columns, is_outbox)
                except UnknownType as error:
                    step = "Convert the column (to utf8mb4), or name the tables without this one."
                    name = f"{table.database}.{table.name}"
                    raise CaptureImpossible("read rows of", name, str(error), step) from error
            if len(self._maps) > _MAPS:
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
        at += captured.count_size
        size = captured.bitmap_size
        first = second = data[at : at + size]
        at += size
        operation = kind.operation
        if operation == "u":
            second = data[at : at + size]
            at += size
        if kind.compressed:
            data = log.decompressed(data[at:end])
            at, end = 0, len(data)
        rows: list[Any] = []
        if first == second == captured.whole and not kind.partial:
            captured.decode(data, at, end, rows.append)
        else:
            captured.decode_images(kind, data, at, end, first, second, rows)
        count = len(rows) // 2 if operation == "u" else len(rows)
        skipped = 0
        if self.left_out and (captured.table.database, captured.table.name) in self.left_out:
            self._items += count
            return
        if self._items < self._skip:
            skipped = min(self._skip - self._items, count)
            width = 2 if operation == "u" else 1
            self.writer.count(captured, operation, rows[: skipped * width])
            rows = rows[skipped * width :]
        if rows:
            self.writer.rows(captured, operation, rows, when, server, place, skipped)
        self._items += count


def _text(gtid: bytes) -> str:
    return "" if gtid == NULL else gtid[1:-1].decode()


def _outbox_name(naming: Naming) -> tuple[str, str] | None:
    name = naming.options.outbox
    if name is None:
        return None
    database, dot, table = name.partition(".")
    return (database, table) if dot else (naming.options.path_name, name)
