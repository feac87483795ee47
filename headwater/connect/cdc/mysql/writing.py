"""Changes as records: envelopes, transaction events, schema events and the outbox. Pure."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from headwater.connect.cdc.envelope import NULL
from headwater.connect.cdc.mysql import changes
from headwater.connect.cdc.mysql.changes import Captured, Naming
from headwater.connect.cdc.mysql.schema import Table
from headwater.connect.cdc.mysql.values import quoted
from headwater.connect.cdc.outbox import event as outbox_event
from headwater.connect.source import Record


class ChangeWriter:
    """Makes records of the changes of one group of events after the other."""

    def __init__(self, naming: Naming) -> None:
        self.naming = naming
        self.records: list[Any] = []
        self.touched: set[bytes] | None = None  # keys changed in `touched_topic`, when asked for
        self.touched_topic = ""
        self.stamp = b""
        self.gtid = NULL
        self.file = b""  # as it stands in a source: "file":"binlog.000001","pos":
        self.thread = NULL
        self.identity = b""  # of the transaction, in JSON
        self._counts: dict[str, int] = {}
        self._has_transactions = naming.options.transactions

    def begin(self, gtid: bytes, file: str, place: int) -> None:
        """Of a group."""
        self.gtid, self.thread = gtid, NULL
        if self._has_transactions:
            self.identity = gtid if gtid != NULL else quoted(f"file={file},pos={place}")
            self._counts = {}

    def at_file(self, file: str) -> None:
        self.file = b',"file":%b,"pos":' % quoted(file)

    def count(self, captured: Captured, operation: str, rows: list[Any]) -> None:
        """Changes that are in the log of a former run already, for the numbers of those that follow."""
        if not self._has_transactions:
            return
        events = len(rows)
        if operation == "u":
            pairs = iter(rows)
            events = sum(1 if old[0] == new[0] else 2 for old, new in zip(pairs, pairs, strict=True))
        self._counts[captured.collection] = self._counts.get(captured.collection, 0) + events

    def rows(
        self,
        captured: Captured,
        operation: str,
        rows: list[Any],
        when: int,
        server: int,
        place: int,
        first: int,
    ) -> None:
        """The changes of one event; for updates, the rows before and after in turn."""
        if captured.when != when or captured.server != server:
            captured.at_moment(when, server)
        if not captured.is_special:
            self._write(captured, operation, rows, place, first)
        elif captured.versioned:
            for some_operation, some in _of_current_rows(operation, rows):
                self._write(captured, some_operation, some, place, first)
        elif (
            operation == "c"
        ):  # the outbox: rows are usually deleted at once; updates of events are no events
            self.records += [_outbox_record(orjson.loads(row)) for _, row in rows]

    def _write(self, captured: Captured, operation: str, rows: list[Any], place: int, number: int) -> None:
        append, topic, thread, stamp = self.records.append, captured.topic, self.thread, self.stamp
        prefix, gtid, file = captured.prefix, self.gtid, self.file
        transaction: bytes = NULL
        counted = self._has_transactions
        if self.touched is not None and topic == self.touched_topic:
            self.touched.update(row[0] for row in rows)
        if operation == "c":
            for key, row in rows:
                if counted:
                    transaction = self._in_transaction(captured)
                head = (row, prefix, gtid, file, place, number, thread, transaction, stamp)
                append((topic, key, changes.CREATED % head, None))
                number += 1
        elif operation == "u":
            pairs = iter(rows)
            for (old_key, old), (key, row) in zip(pairs, pairs, strict=True):
                if counted:
                    transaction = self._in_transaction(captured)
                tail = (prefix, gtid, file, place, number, thread, transaction, stamp)
                if old_key == key:
                    append((topic, key, changes.UPDATED % (old, row, *tail), None))
                else:
                    headers = [("__debezium.newkey", key)]
                    append((topic, old_key, changes.DELETED % (old, *tail), headers))
                    append((topic, old_key, None, headers))
                    if counted:  # Debezium counts two events
                        transaction = self._in_transaction(captured)
                        tail = (prefix, gtid, file, place, number, thread, transaction, stamp)
                    append((topic, key, changes.CREATED % (row, *tail), [("__debezium.oldkey", old_key)]))
                number += 1
        else:
            for key, row in rows:
                if counted:
                    transaction = self._in_transaction(captured)
                head = (row, prefix, gtid, file, place, number, thread, transaction, stamp)
                append((topic, key, changes.DELETED % head, None))
                append((topic, key, None, None))
                number += 1

    # -- transactions as Debezium tells them

    def _in_transaction(self, captured: Captured) -> bytes:
        if not self._counts:
            self._boundary("BEGIN", None)
        count = self._counts[captured.collection] = self._counts.get(captured.collection, 0) + 1
        total = sum(self._counts.values())
        return b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (self.identity, total, count)

    def end(self) -> None:
        """Of a group."""
        if self._has_transactions and self._counts:
            self._boundary("END", self._counts)

    def _boundary(self, status: str, counts: dict[str, int] | None) -> None:
        value = {
            "status": status,
            "id": orjson.Fragment(self.identity),
            "event_count": None if counts is None else sum(counts.values()),
            "data_collections": None
            if counts is None
            else [{"data_collection": name, "event_count": count} for name, count in counts.items()],
            "ts_ms": time.time_ns() // 1_000_000,
        }
        topic = self.naming.options.topic("transaction")
        self.records.append(Record(topic, b'{"id":%b}' % self.identity, orjson.dumps(value)))

    # -- tables

    def schema(
        self, name: tuple[str, str], table: Table | None, text: str | None, when: int, server: int, place: int
    ) -> None:
        """A table that was found, without a text; or changed by a statement, or is gone."""
        shown = table or Table(*name, (), ())
        columns = [
            {"name": c.name, "type": c.type, "key": c.name in shown.key, "nullable": c.nullable}
            for c in shown.visible
        ]
        value = {
            "source": orjson.Fragment(self.source(shown, when, server, place)),
            "table": f"{name[0]}.{name[1]}",
            "columns": columns if table is not None else None,
            "ddl": text,
            "ts_ms": time.time_ns() // 1_000_000,
        }
        key = orjson.dumps({"table": f"{name[0]}.{name[1]}"})
        self.records.append(Record(self.naming.options.topic("schema"), key, orjson.dumps(value)))

    def source(self, table: Table, when: int, server: int, place: int) -> bytes:
        """A whole source block."""
        prefix = self.naming.source(table, b'"false"') % moment(when, server)
        return changes.SOURCE % (prefix, self.gtid, self.file, place, 0, self.thread)


def moment(when: int, server: int) -> tuple[int, int, int, int]:
    """What fills the template of a source: a time in seconds in three units, and the server's number."""
    return when * 1000, when * 1_000_000, when * 1_000_000_000, server


def _of_current_rows(operation: str, rows: Sequence[Any]) -> list[tuple[str, list[Any]]]:
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


def _outbox_record(row: dict[str, Any]) -> Record:
    def text(value: Any) -> bytes | None:
        if value is None:
            return None
        return value.encode() if isinstance(value, str) else orjson.dumps(value)

    return outbox_event({name: text(value) for name, value in row.items()})
