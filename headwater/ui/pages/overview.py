"""The application at a glance: what is wrong, headline figures, its graph, and its own charts."""

from typing import Any

from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.charts import ChartCard, start
from headwater.ui.parts.elements import BASE, Flow, Tiles, box, card, said
from headwater.ui.parts.frame import Page
from headwater.ui.picture import Picture

SPARK_SAMPLES = 90  # of the last, in the small line of a tile


def build(gatherer: Gatherer) -> None:
    """The page."""
    app = gatherer.serving.app
    page = Page(gatherer, lambda _: True)
    picture = Picture(app, BASE)
    with page.content:
        tiles = Tiles()
        outer, note = card("Graph")
        with outer:
            if picture.diagram.boxes:
                flow = Flow(f"The graph of {app.name}", 640)
                flow.show(**picture.frame())
            else:
                _nothing_declared()
        if app.charts:
            with box("hw-grid"):
                charts = [ChartCard(gatherer, chart) for chart in app.charts]
        else:
            charts = []
            if any(node.kind in ("view", "table") for node in app.nodes):
                _no_charts(next(node.name for node in app.nodes if node.kind in ("view", "table")))

    def refresh(facts: Facts) -> None:
        tiles.show(tiles=headline(facts, gatherer))
        if note is not None:
            note.set_text(_counts(facts))
        if picture.diagram.boxes:
            flow.show(boxes=picture.boxes(facts), lines=picture.lines(facts))

    page.every_second(refresh)
    if charts:
        start(charts)


def headline(facts: Facts, gatherer: Gatherer) -> list[dict[str, Any]]:
    """The figures that tell whether all is well."""
    outputs = list(facts.outputs.values())
    totals = gatherer.totals
    latest = {name: values[-1] if (values := totals.column(name)) else None for name in totals.names}
    failing = [output["name"] for output in outputs if output["error"]]
    restarts = sum(output["restarts"] for output in outputs)
    late, dead = (sum(output[name] for output in outputs) for name in ("late", "dead"))
    slowest = max(
        (output for output in outputs if facts.gap(output) is not None),
        key=lambda output: facts.gap(output) or 0.0,
        default=None,
    )
    rows = sum(
        version.progress.rows
        for info in facts.views.values()
        for version in info.versions
        if version.version == info.serving
    )

    def points(name: str) -> list[float]:
        return [round(value or 0.0, 2) for value in totals.column(name)[-SPARK_SAMPLES:]]

    return [
        {
            "name": "input",
            "label": "Arriving",
            "value": texts.rate(latest["input"]).removesuffix("/s"),
            "unit": "/s",
            "sub": "records in topics it reads",
            "points": points("input"),
        },
        {
            "name": "processed",
            "label": "Processed",
            "value": texts.rate(latest["processed"]).removesuffix("/s"),
            "unit": "/s",
            "sub": f"by {texts.counted(len(outputs), 'output')}",
            "points": points("processed"),
        },
        {
            "name": "lag",
            "label": "Lag",
            "value": texts.count(latest["lag"]),
            "sub": "records yet to be read",
            "points": points("lag"),
        },
        {
            "name": "gap",
            "label": "Watermark",
            "value": texts.span(latest["gap"]),
            "sub": f"behind in {slowest['name']}" if slowest else "no event time is used",
            "points": points("gap"),
        },
        {
            "name": "rows",
            "label": "Rows in views",
            "value": texts.count(rows),
            "sub": f"{texts.rate(latest['changes'])} changes",
            "points": points("changes"),
        },
        {
            "name": "aside",
            "label": "Late / dead",
            "value": f"{texts.count(late)} / {texts.count(dead)}",
            "sub": "left out, and kept aside",
            "tone": "warn" if dead else "plain",
        },
        {
            "name": "failing",
            "label": "Queries",
            "value": f"{len(failing)} failing" if failing else "all well" if outputs else texts.NONE,
            "sub": f"{texts.counted(restarts, 'restart')} since the start",
            "tone": "bad" if failing else "ok" if outputs and facts.engine == "running" else "plain",
        },
    ]


def _counts(facts: Facts) -> str:
    brokers = facts.broker.brokers
    where = f"{texts.counted(len(facts.broker.topics), 'topic')} on {texts.counted(brokers, 'broker')}"
    return (f"{where} · " if brokers else "") + "a box opens what it stands for"


def _nothing_declared() -> None:
    with box("hw-empty"):
        said("The application declares nothing yet. Begin with a stream and a view:", "")
        said('clicks = app.stream("clicks", "page string")', "", "code")


def _no_charts(view: str) -> None:
    with box("hw-card"), box("hw-empty"):
        said("An application adds its own charts here, a line each:", "")
        said(f'app.chart("{view}", x="window", y="count")', "", "code")
