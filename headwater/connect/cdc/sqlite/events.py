"""Rows and changes of SQLite as change events. Pure."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from headwater import __version__
from headwater.connect.cdc import outbox
from headwater.connect.cdc.envelope import NULL, deleted, envelope
from headwater.connect.cdc.options import CdcOptions
from headwater.connect.cdc.sqlite.schema import Table
from headwater.connect.cdc.sqlite.values import json_object
from headwater.connect.source import Record

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_EPOCH = 2440587.5  # 1970-01-01 as SQLite's julianday


def nanoseconds(julian: float) -> int:
    """A time as the triggers note it; SQLite's clock counts milliseconds.

    >>> nanoseconds(2460000.5)
    1677283200000000000
    """
    return round((julian - _EPOCH) * 86_400_000) * 1_000_000


class TableEvents:
    """The events of a table in one shape."""

    def __init__(self, options: CdcOptions, table: Table) -> None:
        self.table = table
        self.topic = options.table_topic("main", table.name)
        self.width = len(table.columns)
        self.is_outbox = table.name == options.outbox
        if self.is_outbox:
            outbox.check_columns(table.name, dict.fromkeys(table.names))
        self.is_bag = self.is_outbox or not table.key  # whether a row that comes twice is two
        self._names = table.names
        self._key_names = table.key
        self._key_places = [table.names.index(name) for name in table.key]
        self._source = _source_template(options, table.name)
        # Nearly every key is one integer.
        self._place = self._key_places[0] if len(self._key_places) == 1 else None
        self._integer_key = b"{%b:%%d}" % (_text(table.key[0]) if table.key else b"")

    def change(
        self, op: str, before: Sequence[Any], after: Sequence[Any], sequence: int, at: float
    ) -> list[Record]:
        """The records of one change; what it lacks of the rows is empty."""
        if self.is_outbox:
            return [self._outbox(after)] if op == "c" else []
        when = nanoseconds(at)
        source = self.source(when, b"false", sequence)
        now = time.time_ns()
        old = json_object(self._names, before) if before else NULL
        new = json_object(self._names, after) if after else NULL
        if op == "c":
            return [Record(self.topic, self._key(after), envelope(b"c", NULL, new, source, now), None)]
        old_key = self._key(before)
        if op == "d":
            return deleted(self.topic, old_key, envelope(b"d", old, NULL, source, now), ())
        key = self._key(after)
        if key == old_key:
            return [Record(self.topic, key, envelope(b"u", old, new, source, now), None)]
        gone = deleted(self.topic, old_key, envelope(b"d", old, NULL, source, now), [(NEW_KEY, key)])
        return [*gone, Record(self.topic, key, envelope(b"c", NULL, new, source, now), [(OLD_KEY, old_key)])]

    def read(self, row: Sequence[Any], marker: bytes, sequence: int, when: int) -> Record:
        """The record of a row that a snapshot has read."""
        if self.is_outbox:
            return self._outbox(row)
        value = envelope(b"r", NULL, json_object(self._names, row), self.source(when, marker, sequence), when)
        return Record(self.topic, self._key(row), value, None)

    def swept(self, key: bytes, sequence: int) -> list[Record]:
        """The records for a row that is in the topic and no longer in the table; only its key is known."""
        now = time.time_ns()
        known: Mapping[str, Any] = orjson.loads(key)
        before = orjson.dumps({name: known.get(name) for name in self._names})
        source = self.source(now, b"incremental", sequence)
        return deleted(self.topic, key, envelope(b"d", before, NULL, source, now), ())

    def truncated(self, sequence: int) -> Record:
        """Says that all rows so far are void, in a topic without keys."""
        now = time.time_ns()
        value = envelope(b"t", NULL, NULL, self.source(now, b"incremental", sequence), now)
        return Record(self.topic, None, value, None)

    def source(self, when: int, marker: bytes, sequence: int) -> bytes:
        """The block ``source`` of the envelope."""
        return self._source % (when // 1_000_000, marker, sequence, when // 1_000, when, sequence)

    def _key(self, row: Sequence[Any]) -> bytes | None:
        if self._place is not None and type(number := row[self._place]) is int:
            key: bytes = self._integer_key % number
            return key
        if not self._key_places:
            return None
        return json_object(self._key_names, [row[place] for place in self._key_places])

    def _outbox(self, row: Sequence[Any]) -> Record:
        return outbox.event({name: _as_bytes(value) for name, value in zip(self._names, row, strict=True)})


def schema_event(
    options: CdcOptions, name: str, table: Table | None, ddl: str | None, sequence: int
) -> Record:
    """Says what a table is like from now on; without columns when it is gone."""
    now = time.time_ns()
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "key": table is not None and column.name in table.key,
            "nullable": column.nullable,
            "default": column.default,
            "generated": column.generated,
        }
        for column in (table.columns if table is not None else ())
    ]
    source = _source_template(options, name) % (
        now // 1_000_000, b"false", sequence, now // 1_000, now, sequence
    )  # fmt: skip
    value = b'{"source":%b,"table":%b,"columns":%b,"ddl":%b,"ts_ms":%d}' % (
        source,
        orjson.dumps(name),
        orjson.dumps(columns) if table is not None else NULL,
        orjson.dumps(ddl),
        now // 1_000_000,
    )
    return Record(options.topic("schema"), orjson.dumps({"table": name}), value, None)


def _source_template(options: CdcOptions, table: str) -> bytes:
    return (
        b'{"version":%b,"connector":"sqlite","name":%b,"ts_ms":%%d,"snapshot":"%%b","db":%b,'
        b'"sequence":"[null,\\"%%d\\"]","ts_us":%%d,"ts_ns":%%d,"table":%b,"change":%%d}'
        % (_text(__version__), _text(options.logical_name), _text(options.path_name), _text(table))
    )


def _text(value: str) -> bytes:
    """JSON for a template."""
    return orjson.dumps(value).replace(b"%", b"%%")


def _as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
