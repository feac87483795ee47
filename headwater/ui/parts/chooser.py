"""A quick chart of a view: the columns are chosen on the page, and nothing is declared."""

from typing import Any, cast

from nicegui import ui
from nicegui.element import Element

from headwater.streams.declarations import Chart, ChartKind
from headwater.ui.facts import Gatherer
from headwater.ui.parts.charts import ChartCard, start
from headwater.ui.parts.elements import box, said
from headwater.views.model import ViewSchema

NONE = "–"
_NUMBERS = ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal")


class Chooser:
    """Selects for x, y, by and kind, and the chart of them."""

    def __init__(self, gatherer: Gatherer, view: str) -> None:
        self._gatherer, self._view = gatherer, view
        self._schema: ViewSchema | None = None
        self._cards: list[ChartCard] = []
        self._quiet = False
        self._outer = box("hw-card")
        with self._outer:
            with box("hw-tools").style("border: 0"):
                said("Chart", "hw-card-title", "b")
                self._kind = self._select("kind", [NONE, "line", "area", "bar", "pie"])
                self._x, self._y, self._by = (self._select(name, [NONE]) for name in ("x", "y", "by"))
                self._code = (
                    said("", "hw-note is-mono", "code").props('data-code=""').style("user-select: all")
                )
            self._place: Element = box("hw-chosen")
        self._outer.set_visibility(False)
        start(self._cards)

    def columns(self, schema: ViewSchema) -> None:
        """Takes the columns that the view has now."""
        if schema == self._schema:
            return
        self._schema = schema
        self._outer.set_visibility(True)
        numbers = [column.name for column in schema.columns if column.type.startswith(_NUMBERS)]
        others = [column.name for column in schema.columns if column.name not in numbers]
        window = next(
            (column.name for column in schema.columns if column.type.startswith("struct<start:")), None
        )
        self._quiet = True
        x = window or next(iter(others), next(iter(schema.types), NONE))
        self._x.set_options(list(schema.types), value=x)
        self._y.set_options(
            numbers or list(schema.types), value=next(iter(numbers), next(iter(schema.types)))
        )
        by = next((name for name in others if name not in (x, window) and name in schema.key), NONE)
        self._by.set_options([NONE, *others], value=by)
        self._quiet = False

    def _select(self, label: str, options: list[str]) -> ui.select:
        select = ui.select(options, value=options[0]).props(
            f'dense outlined options-dense prefix="{label}:" data-{label}=""'
        )
        select.props["aria-label"] = label
        select.on_value_change(self._chosen)
        return select

    def _chosen(self, event: Any = None) -> None:
        if self._quiet or self._schema is None:
            return
        self._cards.clear()
        self._place.clear()
        kind = str(self._kind.value)
        if kind == NONE:
            self._code.set_text("")
            return
        by = None if self._by.value == NONE else str(self._by.value)
        chart = Chart(
            view=self._view,
            x=str(self._x.value),
            y=str(self._y.value),
            by=by,
            title=f"{self._y.value}" + (f" by {by}" if by else ""),
            kind=cast(ChartKind, kind),
            points={"bar": 20, "pie": 8}.get(kind, 120),
        )
        more = (f', by="{by}"' if by else "") + (f', kind="{kind}"' if kind != "line" else "")
        self._code.set_text(f'app.chart("{self._view}", x="{chart.x}", y="{chart.y}"{more})')
        with self._place:
            self._cards.append(ChartCard(self._gatherer, chart, with_link=False))
