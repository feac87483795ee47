"""The view store in SQL, for every database behind the interface of ``database.py``.

Tables, for a view ``clicks`` with versions 1 and 2 of which the first serves::

    headwater_views     clicks, serving 1, last change 42
    headwater_versions  clicks 1 and clicks 2: definition, fingerprint, batch, offsets, watermark, rows
    clicks@1, clicks@2  the rows: the columns of the view, and __key, the key's canonical text
    clicks@changes      the outbox
    clicks              an SQL view of what serves, for people and programs that read the database themselves
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headwater.errors import BadInput, StoreFailed
from headwater.views.activation import record_difference, stored_array
from headwater.views.catalog import Catalog, Held
from headwater.views.database import Connection, Database, Watch
from headwater.views.definitions import check, check_same
from headwater.views.encoding import encode_key, encode_keys, encode_rows, without_nul
from headwater.views.filters import Filter, Order
from headwater.views.lookups import Lookups
from headwater.views.model import Batch, Change, News, Progress, Reading, Snapshot, ViewInfo, ViewSchema
from headwater.views.queries import condition, order_by
from headwater.views.store import ViewStore
from headwater.views.texts import json_objects
from headwater.views.types import arrow_type
from headwater.views.writer import KEY, VersionWriter, outbox_name, table_name

_PIECE = 5000  # rows turned into JSON at a time


class SqlStore(ViewStore):
    """A view store in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._catalog = Catalog(database)
        self._lookups = Lookups(database)
        # Only a new store is written to: opening one must not wait for who writes there.
        if not database.read("open", "the view store", self._catalog.ready):
            database.write("prepare", "the view store", self._catalog.prepare)

    # -- versions ----------------------------------------------------------------------------------

    def define(self, schema: ViewSchema, fingerprint: str) -> None:
        check(schema)
        quote, mark = self._database.quote, self._database.mark
        subject = f"{schema.name} version {schema.version}"

        def work(connection: Connection) -> None:
            execute = connection.execute
            execute(
                f"INSERT INTO headwater_views (name, serving, last_change) VALUES ({mark}, NULL, 0) "
                "ON CONFLICT (name) DO NOTHING",
                (schema.name,),
            )
            row = execute(
                f"SELECT serving FROM headwater_views WHERE name = {mark}{self._database.lock}",
                (schema.name,),
            ).fetchone()
            built = execute(
                "SELECT definition, fingerprint FROM headwater_versions "
                f"WHERE view = {mark} AND version = {mark}",
                (schema.name, schema.version),
            ).fetchone()
            if built is not None:
                check_same(schema, fingerprint, *built)
                return
            columns = ", ".join(
                f"{quote(c.name)} {self._database.column_type(arrow_type(c.type))}" for c in schema.columns
            )
            text, integer = map(self._database.column_type, (pa.string(), pa.int64()))
            table = quote(table_name(schema.name, schema.version))
            execute(
                f"CREATE TABLE {table} ({KEY} {text} NOT NULL PRIMARY KEY, {columns})"
                f"{self._database.table_options}"
            )
            execute(
                f"CREATE TABLE IF NOT EXISTS {quote(outbox_name(schema.name))} (number {integer} NOT NULL, "
                "batch BIGINT, op TEXT NOT NULL, key TEXT NOT NULL, value TEXT, PRIMARY KEY (number))"
            )
            execute(
                "INSERT INTO headwater_versions (view, version, definition, fingerprint, offsets, rows) "
                f"VALUES ({mark}, {mark}, {mark}, {mark}, '{{}}', 0)",
                (schema.name, schema.version, schema.to_json(), fingerprint),
            )
            if row[0] is None:
                self._catalog.show(connection, schema)

        self._database.write("define the view", subject, work)
        self._catalog.remember(schema)

    def note(self, view: str, version: int, fingerprint: str) -> None:
        mark = self._database.mark

        def work(connection: Connection) -> None:
            self._catalog.hold(connection, "note the fingerprint of", view, version)
            connection.execute(
                f"UPDATE headwater_versions SET fingerprint = {mark} WHERE view = {mark} AND version = {mark}",
                (fingerprint, view, version),
            )

        self._database.write("note the fingerprint of", f"{view} version {version}", work)

    def activate(self, view: str, version: int) -> None:
        subject = f"{view} version {version}"

        def work(connection: Connection) -> None:
            # All versions are held before the view, the order in which batches take them.
            self._catalog.lock_versions(connection, view)
            held = self._catalog.hold(connection, "activate", view, version, with_view=True)
            if held.serving == version:
                return
            new = ViewSchema.from_json(view, version, held.definition)
            old = None if held.serving is None else self._catalog.schema(connection, view, held.serving)
            last = record_difference(self._database, connection, old, new, held.batch, held.last_change)
            self._catalog.keep_last_change(connection, view, last)
            self._catalog.show(connection, new)

        self._database.write("activate", subject, work)

    def drop(self, view: str, version: int) -> None:
        mark, quote = self._database.mark, self._database.quote

        def work(connection: Connection) -> None:
            execute = connection.execute
            versions = self._catalog.lock_versions(connection, view)
            held = self._catalog.hold(connection, "drop", view, version, with_view=True)
            if held.serving == version:
                if len(versions) > 1:
                    step = "Activate another version first."
                    raise StoreFailed("drop", f"{view} version {version}", "it is the one that serves", step)
                old = ViewSchema.from_json(view, version, held.definition)
                last = record_difference(self._database, connection, old, None, held.batch, held.last_change)
                self._catalog.keep_last_change(connection, view, last)
                execute(f"DROP VIEW IF EXISTS {quote(view)}")
                execute(f"UPDATE headwater_views SET serving = NULL WHERE name = {mark}", (view,))
            execute(f"DROP TABLE {quote(table_name(view, version))}")
            execute(
                f"DELETE FROM headwater_versions WHERE view = {mark} AND version = {mark}", (view, version)
            )

        self._database.write("drop", f"{view} version {version}", work)
        self._catalog.forget(view, version)

    # -- writing -----------------------------------------------------------------------------------

    def apply(self, view: str, version: int, batch: Batch) -> bool:
        return self._commit(view, version, batch, whole=False)

    def replace(self, view: str, version: int, batch: Batch) -> bool:
        return self._commit(view, version, batch, whole=True)

    def restart(self, view: str, version: int, *, clear: bool = False) -> None:
        def work(connection: Connection) -> None:
            held = self._catalog.hold(connection, "restart", view, version)
            rows = held.rows
            if clear:
                schema = ViewSchema.from_json(view, version, held.definition)
                nothing = pa.table({c.name: pa.array([], arrow_type(c.type)) for c in schema.columns})
                writer = self._writer(connection, schema, held, held.batch)
                writer.replace(encode_rows(schema, nothing))
                rows = writer.rows
                if writer.last_change is not None:
                    self._catalog.keep_last_change(connection, view, writer.last_change)
            self._catalog.forget_batch(connection, view, version, rows)

        self._database.write("restart", f"{view} version {version}", work)

    def _commit(self, view: str, version: int, batch: Batch, *, whole: bool) -> bool:
        operation, subject = "apply a batch to", f"{view} version {version}"
        keeps_nul = self._database.keeps_nul
        # Encoding comes before the transaction, so that other writers do not wait for it.
        schema = self._catalog.known_schema(view, version)
        encoded = encode_rows(schema, batch.rows, keeps_nul=keeps_nul)

        def work(connection: Connection) -> bool:
            held = self._catalog.hold(connection, operation, view, version)
            if held.batch is not None and batch.id <= held.batch:
                return False
            rows, defined = encoded, schema
            if defined.to_json() != held.definition:
                defined = ViewSchema.from_json(view, version, held.definition)
                self._catalog.remember(defined)
                rows = encode_rows(defined, batch.rows, keeps_nul=keeps_nul)
            writer = self._writer(connection, defined, held, batch.id)
            if whole:
                writer.replace(rows)
            else:
                gone = encode_keys(defined, batch.deleted_keys, rows.keys, keeps_nul=keeps_nul)
                writer.delete(gone)
                writer.upsert(rows)
            self._catalog.keep_batch(connection, view, version, batch, writer)
            return True

        return self._database.write(operation, subject, work)

    def _writer(
        self, connection: Connection, schema: ViewSchema, held: Held, batch: int | None
    ) -> VersionWriter:
        last = held.last_change if held.serving == schema.version else None
        return VersionWriter(
            self._database, connection, schema, batch=batch, rows=held.rows, last_change=last
        )

    # -- reading -----------------------------------------------------------------------------------

    def progress(self, view: str, version: int | None = None) -> Progress:
        def work(connection: Connection) -> Progress:
            return self._catalog.progress(connection, self._catalog.chosen(connection, view, version))

        return self._database.read("read the progress of", view, work)

    def views(self) -> list[ViewInfo]:
        return self._database.read("list", "the views", self._catalog.views)

    def get(self, view: str, key: Sequence[Any], version: int | None = None) -> dict[str, Any] | None:
        def work(connection: Connection) -> dict[str, Any] | None:
            schema = self._catalog.chosen(connection, view, version)
            sql = f"{self._select(schema)} WHERE {KEY} = {self._database.mark}"
            text = encode_key(schema, key)
            if not self._database.keeps_nul:
                text = without_nul(schema, text)
            row = connection.execute(sql, (text,)).fetchone()
            return None if row is None else self._decoded(schema, [row])[0]

        return self._database.read("read a row of", view, work)

    def rows(
        self,
        view: str,
        *,
        where: Filter | None = None,
        order: Sequence[str | Order] = (),
        limit: int | None = None,
        offset: int = 0,
        version: int | None = None,
    ) -> list[dict[str, Any]]:
        if offset < 0 or (limit is not None and limit < 0):
            raise BadInput("read the view", view, "limit and offset are not negative", "Correct them.")

        def work(connection: Connection) -> list[dict[str, Any]]:
            schema = self._catalog.chosen(connection, view, version)
            sql, bound = self._select(schema), ()  # type: tuple[str, tuple[Any, ...]]
            if where is not None:
                condition_sql, bound = condition(self._database, schema, where)
                sql += f" WHERE {condition_sql}"
            order_sql, order_bound = order_by(self._database, schema, order)
            sql += f" ORDER BY {order_sql}"
            bound += order_bound
            if limit is not None or offset:
                sql += f" LIMIT {2**62 if limit is None else limit} OFFSET {offset}"
            return self._decoded(schema, connection.execute(sql, bound).fetchall())

        return self._database.read("read the view", view, work)

    @property
    def reads_at_once(self) -> bool:
        return self._database.reads_at_once

    def look_up(self, view: str, key: Callable[[ViewSchema], str]) -> Reading:
        return self._database.read("read a row of", view, lambda c: self._lookups.row(c, view, key))

    def page(
        self,
        view: str,
        *,
        where: Callable[[ViewSchema], Filter] | None = None,
        order: Callable[[ViewSchema], Sequence[str | Order]] | None = None,
        limit: int,
        offset: int = 0,
    ) -> Reading:
        return self._database.read(
            "read the view", view, lambda c: self._lookups.page(c, view, where, order, limit, offset)
        )

    def snapshot(self, view: str) -> Snapshot:
        def work(connection: Connection) -> Snapshot:
            schema = self._catalog.chosen(connection, view, None)
            order_sql, bound = order_by(self._database, schema, ())
            rows = connection.execute(f"{self._select(schema)} ORDER BY {order_sql}", bound).fetchall()
            (last,) = connection.execute(
                f"SELECT last_change FROM headwater_views WHERE name = {self._database.mark}", (view,)
            ).fetchone()
            return Snapshot(
                schema, self._decoded(schema, rows), self._catalog.progress(connection, schema), last
            )

        return self._database.read("read the view", view, work)

    # -- the outbox --------------------------------------------------------------------------------

    def changes(self, view: str, after: int, limit: int = 1000) -> list[Change]:
        def work(connection: Connection) -> list[Change]:
            self._catalog.last_change(connection, "read the changes of", view)
            return self._changes(connection, view, after, limit)

        return self._database.read("read the changes of", view, work)

    def news(self, view: str, after: int, limit: int = 1000) -> News:
        def work(connection: Connection) -> News:
            schema = self._catalog.chosen(connection, view, None)
            last = self._catalog.last_change(connection, "read the changes of", view)
            progress = self._catalog.progress(connection, schema)
            changes = self._changes(connection, view, after, limit) if after < last else []
            return News(schema, progress, last, changes)

        return self._database.read("read the changes of", view, work)

    def snapshot_texts(
        self, view: str, each: Callable[[list[str]], None], *, where: Filter | None = None
    ) -> News:
        def work(connection: Connection) -> News:
            schema = self._catalog.chosen(connection, view, None)
            last = self._catalog.last_change(connection, "read the view", view)
            progress = self._catalog.progress(connection, schema)
            sql, bound = self._select(schema), ()  # type: tuple[str, tuple[Any, ...]]
            if where is not None:
                condition_sql, bound = condition(self._database, schema, where)
                sql += f" WHERE {condition_sql}"
            for rows in self._database.stream(connection, f"{sql} ORDER BY {KEY}", _PIECE, bound):
                arrays = {
                    column.name: stored_array(self._database, stored, arrow_type(column.type))
                    for column, stored in zip(schema.columns, zip(*rows, strict=True), strict=True)
                }
                each(json_objects(arrays).to_pylist())
            return News(schema, progress, last, [])

        return self._database.read("read the view", view, work)

    def watch(self) -> Watch:
        return self._database.watch()

    def _changes(self, connection: Connection, view: str, after: int, limit: int) -> list[Change]:
        mark, outbox = self._database.mark, self._database.quote(outbox_name(view))
        rows = connection.execute(
            f"SELECT number, batch, op, key, value FROM {outbox} WHERE number > {mark} "
            f"ORDER BY number LIMIT {mark}",
            (after, limit),
        ).fetchall()
        return [Change(*row) for row in rows]

    def trim_changes(self, view: str, *, up_to: int | None = None, keep: int | None = None) -> int:
        if (up_to is None) == (keep is None):
            raise BadInput(
                "trim the changes of", view, "give up_to or keep, one of the two", "Correct the call."
            )
        outbox, mark = self._database.quote(outbox_name(view)), self._database.mark

        def work(connection: Connection) -> int:
            last = self._catalog.last_change(connection, "trim the changes of", view)
            bound = up_to if up_to is not None else last - max(0, keep or 0)
            return connection.execute(f"DELETE FROM {outbox} WHERE number <= {mark}", (bound,)).rowcount

        return self._database.write("trim the changes of", view, work)

    def close(self) -> None:
        self._database.close()

    def _select(self, schema: ViewSchema) -> str:
        quote = self._database.quote
        columns = ", ".join(quote(column.name) for column in schema.columns)
        return f"SELECT {columns} FROM {quote(table_name(schema.name, schema.version))}"

    def _decoded(self, schema: ViewSchema, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        names = [column.name for column in schema.columns]
        columns: list[Sequence[Any]] = []
        for column, values in zip(schema.columns, zip(*rows, strict=True), strict=False):
            decode = self._database.decoder(arrow_type(column.type))
            columns.append(
                values if decode is None else [None if value is None else decode(value) for value in values]
            )
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
