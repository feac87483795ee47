"""One view: its rows as they change, with filter and order, and charts of it."""

from typing import Any

from headwater.streams.declarations import Chart
from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.pages.views import serving, version_cell
from headwater.ui.parts.charts import ChartCard, start
from headwater.ui.parts.chooser import Chooser
from headwater.ui.parts.elements import Tiles, anchor, box, link, said
from headwater.ui.parts.frame import Page
from headwater.ui.parts.rows import RowsPanel


def build(gatherer: Gatherer, name: str) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link in ("", "views", f"queries/{name}"))
    app = gatherer.serving.app
    declared: list[Chart] = [chart for chart in app.charts if chart.view == name]
    with page.content:
        _heading(name, any(node.name == name for node in app.nodes))
        tiles = Tiles()
        if declared:
            with box("hw-grid"):
                start([ChartCard(gatherer, chart, with_link=False) for chart in declared])
        chooser = Chooser(gatherer, name)
        with box("hw-card"):
            rows = RowsPanel(gatherer, name)

    def refresh(facts: Facts) -> None:
        info = facts.views.get(name)
        version = serving(info)
        tiles.show(tiles=_tiles(facts, name))
        if version is not None:
            rows.columns(version.schema)
            chooser.columns(version.schema)

    page.every_second(refresh)
    rows.start()


def _heading(name: str, is_declared: bool) -> None:
    with box("hw-head"):
        anchor("hw-crumb", link("views"), "Views /")
        said(name, "", "h1")
        box("hw-grow")
        if is_declared:
            anchor("hw-button", link("queries", name), "Query")


def _tiles(facts: Facts, name: str) -> list[dict[str, Any]]:
    info = facts.views.get(name)
    version = serving(info)
    if info is None or version is None:
        return [
            {
                "name": "rows",
                "label": "View",
                "value": "not there yet",
                "sub": "it appears with its first batch"
                if facts.engine == "running"
                else "the engine is not running",
                "tone": "warn",
            }
        ]
    progress = version.progress
    watermark = progress.watermark.timestamp() if progress.watermark else None
    cell = version_cell(facts, info)
    building = isinstance(cell, dict)
    return [
        {
            "name": "rows",
            "label": "Rows",
            "value": f"{progress.rows:,}",
            "sub": f"key {', '.join(version.schema.key)}",
        },
        {
            "name": "changes",
            "label": "Changes",
            "value": texts.rate(facts.change_rates.get(name)).removesuffix("/s"),
            "unit": "/s",
            "sub": f"{info.last_change:,} in all",
        },
        {
            "name": "version",
            "label": "Version",
            "value": str(version.version),
            "sub": f"{cell['text']} ({cell.get('sub', '…')})" if isinstance(cell, dict) else "serves",
            "tone": "warn" if building else "plain",
        },
        {
            "name": "watermark",
            "label": "Watermark",
            "value": texts.span(facts.at - watermark) if watermark and watermark > 86_400 else texts.NONE,
            "sub": "behind the clock" if watermark and watermark > 86_400 else "no event time",
        },
        {
            "name": "committed",
            "label": "Last batch",
            "value": texts.ago(progress.committed.timestamp() if progress.committed else None, facts.at),
            "sub": f"batch {progress.batch}" if progress.batch is not None else "none yet",
        },
    ]
