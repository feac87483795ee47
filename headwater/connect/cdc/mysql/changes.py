"""From rows to records: the envelopes of one table, formatted from templates. Pure.

The templates give what `envelope.envelope` would, with as much as possible filled in beforehand: per table, then per
event, so that a row costs one formatting.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from headwater import __version__
from headwater.connect.cdc.mysql.rows import RowPlan, RowsDecoder, compile_log_rows, compile_result_rows
from headwater.connect.cdc.mysql.schema import Table
from headwater.connect.cdc.mysql.tablemap import WrittenColumn
from headwater.connect.cdc.mysql.types import binary_piece, text_piece
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.source import Record

# before/after, source up to the row's number, the number, thread, transaction, times
_REST = b',"source":%b%d,"thread":%b,"query":null},"transaction":%b,"op":"'
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


class Naming(NamedTuple):
    """How topics and sources are called."""

    options: CdcOptions
    connector: str  # mariadb or mysql

    def topic(self, table: Table) -> str:
        """`<name>.<table>`, with the database between for tables of another one than the URL names."""
        if table.database == self.options.path_name:
            return self.options.topic(table.name)
        return self.options.topic(table.database, table.name)

    def source(self, table: Table, snapshot: bytes) -> bytes:
        """A template for the `source` up to the row's number: times, server, gtid, file, pos."""
        name = quoted(self.options.logical_name)
        fixed = (quoted(__version__), quoted(self.connector), name)
        escaped = [part.replace(b"%", b"%%") for part in fixed]
        database, table_name = (quoted(p).replace(b"%", b"%%") for p in (table.database, table.name))
        head = b'{"version":%b,"connector":%b,"name":%b,"ts_ms":%%d,"snapshot":%b,"db":%b,"sequence":null,'
        rest = b'"ts_us":%%d,"ts_ns":%%d,"table":%b,"server_id":%%d,"gtid":%%b,"file":%%b,"pos":%%d,"row":'
        return (head % (*escaped, snapshot.replace(b"%", b"%%"), database)) + rest % table_name


class Images(NamedTuple):
    """How the two images of a rows event are decoded."""

    both: RowsDecoder | None  # when all images have all columns
    before: Any = None
    after: Any = None
    after_is_whole: bool = True


class Captured:
    """A captured table in one shape, as the log writes it."""

    def __init__(
        self, naming: Naming, table: Table, written: Sequence[WrittenColumn], is_outbox: bool = False
    ) -> None:
        self.table = table
        self.topic = naming.topic(table)
        self.source = naming.source(table, b'"false"')
        self.is_outbox = is_outbox
        self.collection = f"{table.database}.{table.name}"
        self.plan = row_plan(table, [binary_piece(c, w) for c, w in zip(table.columns, written, strict=True)])
        self.versioned = self.plan.row_end is not None
        count = len(table.columns)
        self.count = count
        self.bitmap_size = (count + 7) // 8
        self._whole = (1 << count) - 1
        self.whole = self._whole.to_bytes(self.bitmap_size, "little")
        self.decode = compile_log_rows(self.plan)
        self._images: dict[tuple[bytes, bytes], Images] = {}

    def images(self, before: bytes, after: bytes) -> Images:
        """Decoders for images that lack columns (``binlog_row_image`` is not FULL)."""
        found = self._images.get((before, after))
        if found is None:
            parts = [self._present(bitmap) for bitmap in (before, after)]
            decoders = [compile_log_rows(self.plan, present, single=True) for present in parts]
            found = Images(None, decoders[0], decoders[1], len(parts[1]) == self.count)
            self._images[before, after] = found
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
