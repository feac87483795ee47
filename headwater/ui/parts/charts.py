"""A card with a live chart of a view."""

import logging
from collections.abc import Sequence

from nicegui import ui
from nicegui.run import io_bound

from headwater.streams.declarations import Chart
from headwater.ui import charting
from headwater.ui.facts import Gatherer
from headwater.ui.parts.elements import Plot, anchor, body, box, link, said
from headwater.ui.reading import ChartData

logger = logging.getLogger("headwater.ui")


class ChartCard:
    """Reads the view when it has changed, for all pages that show the chart together, and draws it."""

    def __init__(self, gatherer: Gatherer, chart: Chart, *, with_link: bool = True) -> None:
        self._gatherer, self._chart = gatherer, chart
        self._drawn: ChartData | None = None
        self._plot: Plot | None = None
        self._reading = False
        self.card = box("hw-card")
        self.card.props["data-chart"] = chart.title
        with self.card:
            with box("hw-card-head"):
                if with_link:
                    anchor("", link("views", chart.view), chart.title)
                else:
                    said(chart.title, "", "span")
                self._note = said("", "hw-note", "span")
            with body() as self._body:
                self._said = said("Waiting for the view …", "hw-empty")
                if chart.kind == "number":
                    self._number = said("", "hw-number")

    async def refresh(self) -> None:
        """Draws what is new."""
        if self._reading:
            return
        self._reading = True
        try:
            data = await io_bound(self._gatherer.reads.chart, self._chart)
        finally:
            self._reading = False
        if data is None or data is self._drawn or self.card.is_deleted:
            return
        self._drawn = data
        self._said.set_text(
            data.cause or ("" if data.points.rows or data.total is not None else "No rows yet.")
        )
        self._said.set_visibility(bool(self._said.text))
        if self._chart.kind == "number":
            self._number.set_text("" if data.cause else f"{data.total or 0:,.10g}")
            self._note.set_text(f"of the first {charting.MOST_ROWS:,} rows only" if data.is_part else "")
            return
        if data.cause:
            return
        left = data.points.left_out
        self._note.set_text(
            f"the {charting.MOST_NAMES} largest of {left + charting.MOST_NAMES}" if left else ""
        )
        names, rows = list(data.points.names), [list(row) for row in data.points.rows]
        if self._plot is None:
            if not data.points.rows:
                return
            with self._body:
                kind = self._chart.kind
                self._plot = Plot(
                    kind,
                    time=data.points.is_time,
                    stacked=kind in ("bar", "area") and self._chart.by is not None,
                    names=names,
                    rows=rows,
                )
            return
        self._plot.show(table={"names": names, "rows": rows}, time=data.points.is_time)

    def fail(self, error: Exception) -> None:
        """Says why it cannot be drawn, until it can."""
        cause = f"The chart cannot be drawn: {type(error).__name__}: {error}"
        if self._said.text != cause:
            logger.error("cannot draw the chart %r", self._chart.title, exc_info=error)
        self._drawn = None
        self._said.set_text(cause)
        self._said.set_visibility(True)


def start(cards: list[ChartCard]) -> None:
    """Keeps charts up to date until the page is left."""
    ui.timer(1.0, lambda: draw(cards))


async def draw(cards: Sequence[ChartCard]) -> None:
    """Draws what is new in each of them; one that cannot be drawn says so and holds up none of the others."""
    for card in list(cards):
        try:
            await card.refresh()
        except Exception as error:
            card.fail(error)
