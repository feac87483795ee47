"""From rows to records: the envelopes of one table, formatted from templates. Pure.

The templates give what `envelope.envelope` would, with as much as possible filled in beforehand: per table, then per
event, so that a row costs one formatting.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from headwater import __version__
from headwater.connect.cdc.mysql.binlog import RowsKind
from headwater.connect.cdc.mysql.rows import RowPlan, compile_log_rows, compile_result_rows
from headwater.connect.cdc.mysql.schema import Table
from headwater.connect.cdc.mysql.tablemap import WrittenColumn
from headwater.connect.cdc.mysql.types import binary_piece, text_piece
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Record
from headwater.errors import ChangesMissed

# A source: up to the gtid (see Naming.source), the gtid, the file, the place, the row's number, the thread.
SOURCE = b'%b%b%b%d,"row":%d,"thread":%b,"query":null}'
_REST = b',"source":' + SOURCE + b',"transaction":%b,"op":"'
CREATED = b'{"before":null,"after":%b' + _REST + b'c",%b}'
READ = b'{"before":null,"after":%b' + _REST + b'r",%b}'
UPDATED = b'{"before":%b,"after":%b' + _REST + b'u",%b}'
DELETED = b'{"before":%b,"after":null' + _REST + b'd",%b}'
TRUNCATED = b'{"before":null,"after":null' + _REST + b't",%b}'


def stamp(nanoseconds: int) -> bytes:
    """When an event was captured, as the end of an envelope."""
    return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (
        nanoseconds // 1_000_000,
        nanoseconds // 1_000,
        nanoseconds,
    )


def topic_of(options: CdcOptions, database: str, table: str) -> str:
    """`<name>.<table>`, with the database between for tables of another one than the URL names."""
    if database == options.path_name:
        return options.table_topic(database, table)
    return options.topic(database, table)


class Naming(NamedTuple):
    """How topics and sources are called."""

    options: CdcOptions
    connector: str  # mariadb or mysql

    def topic(self, table: Table) -> str:
        return topic_of(self.options, table.database, table.name)

    def source(self, table: Table, snapshot: bytes) -> bytes:
        """A template for the `source` up to the gtid: times and server are yet to be filled in."""
        name = quoted(self.options.logical_name)
        fixed = (quoted(__version__), quoted(self.connector), name)
        escaped = [part.replace(b"%", b"%%") for part in fixed]
        database, table_name = (quoted(p).replace(b"%", b"%%") for p in (table.database, table.name))
        head = b'{"version":%b,"connector":%b,"name":%b,"ts_ms":%%d,"snapshot":%b,"db":%b,"sequence":null,'
        rest = b'"ts_us":%%d,"ts_ns":%%d,"table":%b,"server_id":%%d,"gtid":'
        return (head % (*escaped, snapshot.replace(b"%", b"%%"), database)) + rest % table_name


class Captured:
    """A captured table in one shape, as the log writes it."""

    def __init__(
        self, naming: Naming, table: Table, written: Sequence[WrittenColumn], is_outbox: bool = False
    ) -> None:
        self.table = table
        self.topic = naming.topic(table)
        self._source = naming.source(table, b'"false"')
        self.when = self.server = -1  # of `prefix`, in seconds
        self.prefix = b""  # the source up to the gtid
        self.collection = f"{table.database}.{table.name}"
        self.plan = row_plan(table, [binary_piece(c, w) for c, w in zip(table.columns, written, strict=True)])
        self.versioned = self.plan.row_end is not None
        self.is_special = self.versioned or is_outbox
        count = len(table.columns)
        self.count = count
        self.count_size = 1 if count < 251 else 3  # of the number of columns before the bitmaps
        self.bitmap_size = (count + 7) // 8
        self.whole = ((1 << count) - 1).to_bytes(self.bitmap_size, "little")
        self.decode = compile_log_rows(self.plan)
        self._images: dict[bytes, Any] = {}

    def at_moment(self, when: int, server: int) -> None:
        """Fills the source for events of one second."""
        self.when, self.server = when, server
        self.prefix = self._source % (when * 1000, when * 1_000_000, when * 1_000_000_000, server)

    def decode_images(
        self, kind: RowsKind, data: bytes, at: int, end: int, before: bytes, after: bytes, rows: list[Any]
    ) -> None:
        """Rows whose images lack columns: for deletes the key is enough, anything else cannot be made whole."""
        if kind.partial:
            cause = "its log has changes of parts of JSON values (binlog_row_value_options=PARTIAL_JSON)"
            step = "Set binlog_row_value_options='' and read the table again by a snapshot."
            raise ChangesMissed("capture", self.collection, cause, step)
        if kind.operation != "d" and after != self.whole:
            cause = "a change in its log lacks columns (binlog_row_image was not FULL)"
            step = "Set binlog_row_image=FULL for all sessions, and read the table again by a snapshot."
            raise ChangesMissed("capture", self.collection, cause, step)
        decode_before, decode_after = self._single(before), self._single(after)
        while at < end:
            at = decode_before(data, at, end, rows.append)
            if kind.operation == "u":
                at = decode_after(data, at, end, rows.append)

    def _single(self, bitmap: bytes) -> Any:
        found = self._images.get(bitmap)
        if found is None:
            found = self._images[bitmap] = compile_log_rows(self.plan, self._present(bitmap), single=True)
        return found

    def _present(self, bitmap: bytes) -> list[int]:
        bits = int.from_bytes(bitmap, "little")
        return [place for place in range(self.count) if bits >> place & 1]


def row_plan(table: Table, pieces: Sequence[Any]) -> RowPlan:
    """What is made of a table's rows."""
    names = [column.name for column in table.columns]
    shown = [place for place, column in enumerate(table.columns) if not column.hidden]
    key = [names.index(name) for name in table.key]
    row_end = names.index(table.row_end) if table.row_end else None
    return RowPlan(names, pieces, shown, key, row_end)


class SnapshotTable:
    """A captured table as a result set of its visible columns has it."""

    def __init__(self, naming: Naming, table: Table) -> None:
        self.table = table
        self.topic = naming.topic(table)
        self._naming = naming
        columns = table.visible
        names = [column.name for column in columns]
        key = [names.index(name) for name in table.key]
        pieces = [text_piece(column) for column in columns]
        self.decode = compile_result_rows(RowPlan(names, pieces, list(range(len(names))), key))

    def source(self, snapshot: str) -> bytes:
        return self._naming.source(self.table, quoted(snapshot))


def tombstone(topic: str, key: bytes | None, headers: Any = None) -> Record:
    """What lets compaction forget a key."""
    return Record(topic, key, None, headers)


def empty_row_with_key(table: Table, key: bytes) -> bytes:
    """A row of which only the key is known, as JSON: what a delete has before it when no more is known."""
    known = orjson.loads(key)
    columns = table.visible
    return orjson.dumps({column.name: known.get(column.name) for column in columns})
