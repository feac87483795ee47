"""Changing the rows of one version of a view inside a transaction, with the outbox beside it.

The rows of a batch are loaded into a temporary table, those that change nothing are taken out of it, and
what is left goes to the outbox and to the view in one statement each. So the work is done by the database
in bulk, and an unchanged row costs one look-up.
"""

import hashlib

import numpy as np
import pyarrow as pa

from headwater.views.database import Connection, Database
from headwater.views.encoding import EncodedRows
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type

# Columns of ours have names that no view may use.
KEY = "__key"  # the canonical text of the key
NUMBER = "__number"  # the place of a row in its batch
TEXT = "__text"  # the row as a JSON object

PIECE = 100_000  # rows staged at a time


def table_name(view: str, version: int) -> str:
    """The table that keeps a version of a view."""
    return f"{view}@{version}"


def outbox_name(view: str) -> str:
    """The table that keeps the changes of a view."""
    return f"{view}@changes"


class VersionWriter:
    """Applies rows and deletes, counting rows and changes; the caller keeps the counts with the batch id."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        schema: ViewSchema,
        *,
        batch: int | None,
        rows: int,
        last_change: int | None,
    ) -> None:
        self._database = database
        self._connection = connection
        self._schema = schema
        self._batch = batch
        self._table = database.quote(table_name(schema.name, schema.version))
        self._outbox = database.quote(outbox_name(schema.name))
        self.rows = rows
        self.last_change = last_change  # None while another version serves: then nothing is recorded

    def upsert(self, rows: EncodedRows) -> None:
        """Write rows; keys are unique."""
        for piece in rows.pieces(PIECE):
            self._merge(self._stage(piece))

    def replace(self, rows: EncodedRows) -> None:
        """Let these rows be the whole content."""
        staged = self._stage(rows)
        gone = self._scratch("gone", {NUMBER: pa.int64(), KEY: pa.string()})
        self._connection.execute(
            f"INSERT INTO {gone} ({NUMBER}, {KEY}) SELECT row_number() OVER (ORDER BY t.{KEY}), t.{KEY} "
            f"FROM {self._table} t LEFT JOIN {staged} s ON s.{KEY} = t.{KEY} WHERE s.{KEY} IS NULL"
        )
        self._remove(gone)
        self._merge(staged)

    def delete(self, keys: pa.Array) -> None:
        """Delete rows by the texts of their keys; keys without a row do nothing."""
        if len(keys) == 0:
            return
        gone = self._scratch("gone", {NUMBER: pa.int64(), KEY: pa.string()})
        numbers = pa.array(np.arange(len(keys)))
        self._database.load(self._connection, gone, {NUMBER: numbers, KEY: keys})
        self._connection.execute(
            f"DELETE FROM {gone} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self._table} t WHERE t.{KEY} = {gone}.{KEY})"
        )
        self._remove(gone)

    def _stage(self, rows: EncodedRows) -> str:
        kinds = {column.name: arrow_type(column.type) for column in self._schema.columns}
        staged = self._scratch("rows", {NUMBER: pa.int64(), KEY: pa.string(), **kinds, TEXT: pa.string()})
        if len(rows):
            columns = {NUMBER: pa.array(np.arange(len(rows))), KEY: rows.keys, **rows.columns}
            if self.last_change is not None:
                columns[TEXT] = rows.texts
            self._database.load(self._connection, staged, columns)
        return staged

    def _merge(self, staged: str) -> None:
        quote = self._database.quote
        names = [quote(column.name) for column in self._schema.columns]
        beside_key = [quote(c.name) for c in self._schema.columns if c.name not in self._schema.key]
        execute = self._connection.execute
        differ = "1 = 0"
        if beside_key:
            new = "(" + ", ".join(f"{staged}.{name}" for name in beside_key) + ")"
            old = "(" + ", ".join(f"t.{name}" for name in beside_key) + ")"
            differ = self._database.differ(new, old)
        same = f"t.{KEY} = {staged}.{KEY}"
        total, present, changed = execute(
            f"SELECT count(*), count(t.{KEY}), count(CASE WHEN t.{KEY} IS NOT NULL AND {differ} THEN 1 END) "
            f"FROM {staged} LEFT JOIN {self._table} t ON {same}"
        ).fetchone()
        if changed < present:
            unchanged = f"{same} AND NOT ({differ})"
            execute(f"DELETE FROM {staged} WHERE EXISTS (SELECT 1 FROM {self._table} t WHERE {unchanged})")
        self._record("upsert", staged, TEXT, dense=changed == present)
        chosen = ", ".join([KEY, *names])
        insert = f"INSERT INTO {self._table} ({chosen}) SELECT {chosen} FROM {staged}"
        if present == 0:
            execute(insert)
        elif self._database.upserts_well and beside_key:
            # The condition that always holds keeps SQLite from reading ON CONFLICT as a join's ON.
            update = ", ".join(f"{name} = excluded.{name}" for name in beside_key)
            execute(f"{insert} WHERE 1 = 1 ON CONFLICT ({KEY}) DO UPDATE SET {update}")
        else:
            if changed:
                update = ", ".join(f"{name} = {staged}.{name}" for name in beside_key)
                execute(f"UPDATE {self._table} AS t SET {update} FROM {staged} WHERE {same}")
            if total > present:
                execute(f"{insert} WHERE NOT EXISTS (SELECT 1 FROM {self._table} t WHERE {same})")
        execute(f"DELETE FROM {staged}")
        self.rows += total - present

    def _remove(self, gone: str) -> None:
        self._record("delete", gone, "NULL", dense=False)
        removed = self._connection.execute(
            f"DELETE FROM {self._table} WHERE {KEY} IN (SELECT {KEY} FROM {gone})"
        ).rowcount
        self._connection.execute(f"DELETE FROM {gone}")
        self.rows -= removed

    def _record(self, op: str, source: str, text: str, *, dense: bool) -> None:
        """Enter the rows of a scratch table into the outbox; ``dense`` when they are numbered 0, 1, 2, ..."""
        if self.last_change is None:
            return
        mark = self._database.mark
        place = f"1 + {NUMBER}" if dense else f"row_number() OVER (ORDER BY {NUMBER})"  # which sorts: slow
        self.last_change += self._connection.execute(
            f"INSERT INTO {self._outbox} (number, batch, op, key, value) "
            f"SELECT {self.last_change} + {place}, {mark}, '{op}', {KEY}, {text} FROM {source}",
            (self._batch,),
        ).rowcount

    def _scratch(self, purpose: str, columns: dict[str, pa.DataType]) -> str:
        """An empty temporary table of this connection. Its name has its layout in it: layouts may change."""
        quote = self._database.quote
        layout = ", ".join(
            f"{name if name in (NUMBER, KEY, TEXT) else quote(name)} {self._database.column_type(kind)}"
            for name, kind in columns.items()
        )
        name = f"headwater_{purpose}_{hashlib.sha256(layout.encode()).hexdigest()[:16]}"
        self._connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ({layout}){self._database.temporary}"
        )
        return name
