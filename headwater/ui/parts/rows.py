"""The rows of a view, live: filter, order and pages; what changes lights up."""

from typing import Any

import orjson
from nicegui import ui
from nicegui.run import io_bound

from headwater.errors import HeadwaterError
from headwater.serve.where import parse_where
from headwater.ui import texts
from headwater.ui.facts import Gatherer
from headwater.ui.parts.elements import Sheet, box, button, said
from headwater.ui.reading import RowsData
from headwater.views.filters import Filter, Order
from headwater.views.model import ViewSchema

LIMIT = 100
LOOK_SECONDS = 0.25
_NUMBERS = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal")


class RowsPanel:
    """What somebody looks at in a view."""

    def __init__(self, gatherer: Gatherer, view: str) -> None:
        self._gatherer, self._view = gatherer, view
        self._schema: ViewSchema | None = None
        self._where: Filter | None = None
        self._order: tuple[Order, ...] = ()
        self._offset = 0
        self._shown: RowsData | None = None
        self._busy = self._wrong = False
        with box("hw-tools"):
            self._filter = (
                ui.input(placeholder="Filter")
                .props('dense outlined data-filter="" aria-label=Filter')
                .classes("hw-filter")
                .style("max-width: 620px")
            )
            self._filter.on("keydown.enter", self._filtered)
            button("Apply", self._filtered, "data-apply")
            self._said = said("", "hw-note").props('data-said=""')
            box("hw-grow")
            self._before, _ = button("← Before", lambda: self._turn(-LIMIT), "data-before")
            self._next, _ = button("Next →", lambda: self._turn(LIMIT), "data-next")
        self._sheet = Sheet(
            (), empty="No rows.", height="640px", dense=True, flash=True, on_sort=self._sorted
        )

    def start(self) -> None:
        """Follows the view until the page is left."""
        ui.timer(LOOK_SECONDS, self._look)

    def columns(self, schema: ViewSchema) -> None:
        """Takes the columns that the view has now."""
        if schema == self._schema:
            return
        self._schema = schema
        example = next(
            (column for column in schema.columns if column.type.startswith(_NUMBERS)), schema.columns[0]
        )
        text = f"{example.name} > 10" if example.type.startswith(_NUMBERS) else f"{example.name} = 'a'"
        first = schema.key[0] if schema.key else ""
        if not self._order and _is_window(schema.types.get(first, "")):
            self._order = (Order(f"{first}.start", descending=True),)  # what changes is at the top
        self._filter.props["placeholder"] = f"Filter, such as: {text}"
        self._filter.update()
        self._show_columns()

    def _show_columns(self) -> None:
        if self._schema is None:
            return
        chosen = {order.column: "descending" if order.descending else "ascending" for order in self._order}
        self._sheet.show(
            columns=[
                {
                    "name": column.name,
                    "label": column.name,
                    "title": column.type,
                    "align": "right" if column.type.startswith(_NUMBERS) else "left",
                    "mono": column.type.startswith(("struct<", "array<", "map<"))
                    and not _is_window(column.type),
                    "sortable": True,
                    "sort": chosen.get(_sorted_by(column.name, column.type)),
                }
                for column in self._schema.columns
            ]
        )

    # -- controls ------------------------------------------------------------------------------------

    def _filtered(self) -> None:
        text = (self._filter.value or "").strip()
        try:
            self._where = parse_where(text, self._schema) if text else None
        except HeadwaterError as error:
            self._wrong = True
            self._say(f"{error.cause[0].upper()}{error.cause[1:]}. {error.next_step}", bad=True)
            return
        self._wrong, self._offset, self._shown = False, 0, None

    def _sorted(self, name: str) -> None:
        """Up, down, and as the key says."""
        if self._schema is None or name not in self._schema.types:
            return
        column = _sorted_by(name, self._schema.types[name])
        before = next((order for order in self._order if order.column == column), None)
        if before is None:
            self._order = (Order(column, descending=True),)
        elif before.descending:
            self._order = (Order(column),)
        else:
            self._order = ()
        self._offset, self._shown = 0, None
        self._show_columns()

    def _turn(self, by: int) -> None:
        self._offset = max(0, self._offset + by)
        self._shown = None

    # -- rows ----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        if self._busy or self._schema is None:
            return
        self._busy = True
        asked = (self._where, self._order, self._offset)
        try:
            data = await io_bound(self._gatherer.reads.rows, self._view, *asked, LIMIT)
        finally:
            self._busy = False
        if data is None or data is self._shown or asked != (self._where, self._order, self._offset):
            return
        self._shown = data
        if self._sheet.is_deleted:
            return
        if data.cause:
            self._say(data.cause, bad=True)
            return
        key = self._schema.key
        self._sheet.rows([{"id": _id(row, key), "cells": _cells(row)} for row in data.rows])
        if not self._wrong:
            self._say(self._summary(data))
        self._enable(self._before, self._offset > 0)
        self._enable(self._next, data.has_more)

    def _summary(self, data: RowsData) -> str:
        if not data.rows:
            return "No row passes the filter." if self._where is not None else "No rows yet."
        first, last = self._offset + 1, self._offset + len(data.rows)
        if self._where is None and data.version is not None:
            return f"{first:,} to {last:,} of {data.version.progress.rows:,}"
        return f"{first:,} to {last:,}" + (", and more" if data.has_more else "")

    def _say(self, text: str, bad: bool = False) -> None:
        self._said.set_text(text)
        self._said.classes(replace="hw-said is-bad" if bad else "hw-note")

    def _enable(self, button: Any, is_enabled: bool) -> None:
        if is_enabled == ("disabled" in button.props):
            button.props(remove="disabled") if is_enabled else button.props("disabled")


def _id(row: dict[str, Any], key: tuple[str, ...]) -> str:
    return orjson.dumps([row.get(name) for name in key], default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> dict[str, Any] | str:
    if value is None:
        return {"text": "null", "tone": "muted"}
    text = texts.shortened(texts.value(value), 300)
    return {"text": text, "title": str(value)} if isinstance(value, float) and text != str(value) else text


def _is_window(kind: str) -> bool:
    return kind.startswith("struct<start:timestamp")


def _sorted_by(name: str, kind: str) -> str:
    return f"{name}.start" if _is_window(kind) else name
