"""Reads for those who pass rows on as JSON: one row by its key, or a page of rows, and the view at that moment.

A row has the same text that a change of it has in the outbox. One row is turned into text value by value, since
Arrow, which does so with columns, costs more than the whole rest for a single one.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from headwater.errors import UnknownView
from headwater.views.activation import stored_array
from headwater.views.catalog import PROGRESS, progress_of
from headwater.views.database import Connection, Database
from headwater.views.encoding import without_nul
from headwater.views.filters import Filter, Order
from headwater.views.model import Progress, Reading, ViewSchema
from headwater.views.queries import condition, order_by
from headwater.views.texts import joined_objects, json_texts
from headwater.views.types import arrow_type, is_nested
from headwater.views.writer import KEY, table_name

Texter = Callable[[Any], str]


@dataclass(frozen=True)
class _Known:
    """A view as it was at the last look, and what was made of its definition."""

    found: tuple[Any, ...]
    schema: ViewSchema
    progress: Progress
    last_change: int
    by_key: str
    texters: list[tuple[str, Texter]]


class Lookups:
    """Reads inside the transactions of a store. What it keeps between them is checked in each."""

    def __init__(self, database: Database) -> None:
        self._database = database
        columns = ", ".join(f"n.{name.strip()}" for name in PROGRESS.split(","))
        self._current = (
            f"SELECT v.last_change, n.definition, {columns} FROM headwater_views v "
            "JOIN headwater_versions n ON n.view = v.name AND n.version = v.serving "
            f"WHERE v.name = {database.mark}"
        )
        self._known: dict[str, _Known] = {}

    def row(self, connection: Connection, view: str, key: Callable[[ViewSchema], str]) -> Reading:
        """The row whose key has the text that ``key`` gives for the schema."""
        now = self._now(connection, view)
        text = key(now.schema)
        if not self._database.keeps_nul:
            text = without_nul(now.schema, text)
        found = connection.execute(now.by_key, (text,)).fetchone()
        if found is None:
            return Reading(now.schema, [], now.progress, now.last_change)
        parts = [
            name + ("null" if value is None else texter(value))
            for (name, texter), value in zip(now.texters, found, strict=True)
        ]
        return Reading(now.schema, ["{" + ",".join(parts) + "}"], now.progress, now.last_change)

    def page(
        self,
        connection: Connection,
        view: str,
        where: Callable[[ViewSchema], Filter] | None,
        order: Callable[[ViewSchema], Sequence[str | Order]] | None,
        limit: int,
        offset: int,
    ) -> Reading:
        """Rows in the order asked for, and among equals in the order of the key."""
        now = self._now(connection, view)
        schema = now.schema
        sql, bound = self._select(schema), ()  # type: tuple[str, tuple[Any, ...]]
        if where is not None:
            condition_sql, bound = condition(self._database, schema, where(schema))
            sql += f" WHERE {condition_sql}"
        order_sql, order_bound = order_by(self._database, schema, () if order is None else order(schema))
        sql += f" ORDER BY {order_sql} LIMIT {int(limit)} OFFSET {int(offset)}"
        found = connection.execute(sql, bound + order_bound).fetchall()
        return Reading(schema, self._texts(schema, found), now.progress, now.last_change)

    def _now(self, connection: Connection, view: str) -> "_Known":
        found = connection.execute(self._current, (view,)).fetchone()
        if found is None:
            raise UnknownView("read", view, "there is no such view")
        known = self._known.get(view)
        if known is None or known.found != found:
            last, definition, version, *_ = found
            if known is None or known.found[1:3] != found[1:3]:
                schema = ViewSchema.from_json(view, version, definition)
                by_key = f"{self._select(schema)} WHERE {KEY} = {self._database.mark}"
                texters = [
                    (orjson.dumps(column.name).decode() + ":", self._texter(arrow_type(column.type)))
                    for column in schema.columns
                ]
            else:
                schema, by_key, texters = known.schema, known.by_key, known.texters
            known = _Known(found, schema, progress_of(found[2:]), last, by_key, texters)
            self._known[view] = known
        return known

    def _select(self, schema: ViewSchema) -> str:
        quote = self._database.quote
        columns = ", ".join(quote(column.name) for column in schema.columns)
        return f"SELECT {columns} FROM {quote(table_name(schema.name, schema.version))}"

    def _texter(self, kind: pa.DataType) -> Texter:
        """What turns a stored value that is not null into JSON."""
        if is_nested(kind) or pa.types.is_integer(kind):
            return str  # nested values are kept as JSON
        if pa.types.is_boolean(kind):
            return lambda value: "true" if value else "false"
        if pa.types.is_string(kind):
            return lambda value: orjson.dumps(value).decode()
        if pa.types.is_binary(kind):
            return lambda value: f'"{base64.b64encode(value).decode()}"'
        if self._database.keeps_texts and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return lambda value: f'"{value}"'
        if self._database.keeps_texts and pa.types.is_decimal(kind):
            return str
        if pa.types.is_float64(kind):
            return self._float
        return lambda value: self._by_arrow(value, kind)

    def _float(self, value: Any) -> str:
        # Between these both write the same; outside one has exponents where the other has zeros.
        if isinstance(value, float) and (1e-4 <= value < 1e10 or -1e10 < value <= -1e-4):
            return repr(value)
        return self._by_arrow(value, pa.float64())

    def _by_arrow(self, value: Any, kind: pa.DataType) -> str:
        text: str = json_texts(stored_array(self._database, (value,), kind))[0].as_py()
        return text

    def _texts(self, schema: ViewSchema, rows: list[Any]) -> list[str]:
        if not rows:
            return []
        columns: dict[str, pa.Array] = {}
        for column, stored in zip(schema.columns, zip(*rows, strict=True), strict=True):
            kind = arrow_type(column.type)
            if is_nested(kind):
                columns[column.name] = pa.array(["null" if v is None else v for v in stored], pa.string())
            else:
                columns[column.name] = json_texts(stored_array(self._database, stored, kind))
        texts: list[str] = joined_objects(columns).to_pylist()
        return texts
