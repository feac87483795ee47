"""One query: rates, batches by phase, watermark, state, what it has left out, and its failures."""

from typing import Any

from headwater.streams.declarations import Files, Node, Stream, Table, Topic, View
from headwater.streams.drawing import detail
from headwater.streams.graph import describe
from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.pages.queries import state_cell
from headwater.ui.parts.elements import Sheet, Tiles, Trend, anchor, body, box, card, link, said
from headwater.ui.parts.frame import Page
from headwater.ui.problems import split_error

PHASES = {
    "read": "look for records",
    "plan": "plan",
    "run": "compute and write",
    "commit": "commit",
    "other": "other",
}
FAILURES = (
    {"name": "at", "label": "When (UTC)", "mono": True},
    {"name": "ago", "label": ""},
    {"name": "cause", "label": "Cause", "mono": True, "wide": True},
)
INPUTS = (
    {"name": "topic", "label": "Topic"},
    {"name": "partition", "label": "Partition", "align": "right"},
    {"name": "read", "label": "Read up to", "align": "right"},
    {"name": "end", "label": "End", "align": "right"},
    {"name": "lag", "label": "Lag", "align": "right"},
    {"name": "share", "label": "", "width": "170px"},
)


def build(gatherer: Gatherer, name: str) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link in ("", "topics", f"queries/{name}"))
    node = next((node for node in gatherer.serving.app.nodes if node.name == name), None)
    history = gatherer.history(name)
    with page.content:
        state = _heading(name, node)
        tiles = Tiles()
        trends: list[Trend] = []
        charts = _charts()
        for classes, group in (("hw-pair", charts[:2]), ("hw-grid", charts[2:5]), ("hw-pair", charts[5:])):
            with box(classes):
                for title, note, arguments in group:
                    outer, _ = card(title, note)
                    with outer, body():
                        trends.append(Trend(history=history, **arguments))
        with box("hw-pair"):
            outer, _ = card("Failures and restarts", "the last ones since the start of the application")
            with outer:
                failures = Sheet(FAILURES, empty="None since the start.", dense=True, height="300px")
            outer, _ = card("What it reads")
            with outer:
                inputs = Sheet(INPUTS, empty="It has not read anything yet.", dense=True, height="300px")

    def refresh(facts: Facts) -> None:
        output = facts.outputs.get(name)
        if output is None:
            state.set_text("has not run yet" if node is not None else "is not a query of this application")
            return
        shown = state_cell(facts, output)
        state.set_text(shown["text"])
        state.classes(replace=f"hw-badge is-{shown['tone']}")
        tiles.show(tiles=_tiles(facts, output))
        failures.rows(_failures(facts, output))
        inputs.rows(_inputs(facts, output))
        for trend in trends:
            trend.go_on()

    page.every_second(refresh)


def _heading(name: str, node: Node | None) -> Any:
    with box("hw-head"):
        anchor("hw-crumb", link("queries"), "Queries /")
        said(name, "", "h1")
        state = said("", "hw-badge", "span").props('data-state=""')
        if node is not None:
            said(_described(node), "hw-lead", "span")
        box("hw-grow")
        if isinstance(node, View | Table):
            anchor("hw-button", link("views", name), "Rows")
        if isinstance(node, Stream | Table | Topic):
            anchor("hw-button", link("topics", node.topic), "Messages")
    return state


def _described(node: Node) -> str:
    words = f"{node.kind}, {detail(node)}"
    if isinstance(node, View | Topic | Files):
        place = describe(node.function).partition(" (")[2].rstrip(")")
        return f"{words} · from {', '.join(node.inputs)}" + (f" · {place}" if place else "")
    return words


def _charts() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (
            "Input and processed",
            "records a second",
            {"kind": "line", "figures": {"input": "arriving", "processed": "processed"}, "unit": "/s"},
        ),
        (
            "Batch duration by phase",
            "of the last batch",
            {
                "kind": "area",
                "figures": PHASES,
                "unit": "ms",
                "stacked": True,
                "colours": ("c5", "c3", "c0", "c2", "c9"),
            },
        ),
        (
            "Lag",
            "records that are not in the result yet",
            {"kind": "area", "figures": {"lag": "lag"}, "colours": ("c2",)},
        ),
        (
            "Watermark gap",
            "how far event time is behind the clock",
            {"kind": "line", "figures": {"gap": "gap"}, "unit": "s", "colours": ("c3",)},
        ),
        (
            "Late and dead",
            "records left out since the start",
            {"kind": "line", "figures": {"late": "late", "dead": "dead"}, "colours": ("c2", "c4")},
        ),
        (
            "State rows",
            "what Spark keeps between batches",
            {"kind": "area", "figures": {"state_rows": "rows"}, "colours": ("c1",)},
        ),
        (
            "State size",
            "memory that they take",
            {"kind": "area", "figures": {"state_bytes": "size"}, "unit": "bytes", "colours": ("c5",)},
        ),
    ]


def _tiles(facts: Facts, output: dict[str, Any]) -> list[dict[str, Any]]:
    gap = facts.gap(output)
    restarts = output["restarts"]
    return [
        {
            "name": "rate",
            "label": "Processed",
            "value": texts.rate(facts.row_rates.get(output["name"])).removesuffix("/s"),
            "unit": "/s",
            "sub": f"{texts.count(output['rows_in'])} in, {texts.count(output['rows_out'])} out",
        },
        {"name": "lag", "label": "Lag", "value": texts.count(output["lag"]), "sub": "records yet to be read"},
        {
            "name": "batch",
            "label": "Last batch",
            "value": texts.span(output["batch_ms"] / 1000) if output["batches"] else texts.NONE,
            "sub": f"{texts.count(output['batches'])} since the start",
        },
        {
            "name": "gap",
            "label": "Watermark",
            "value": texts.span(gap) if gap is not None else texts.NONE,
            "sub": "behind the clock" if gap is not None else "no event time yet",
        },
        {
            "name": "state",
            "label": "State",
            "value": texts.count(output["state_rows"]),
            "unit": "rows",
            "sub": texts.size(output["state_bytes"]),
        },
        {
            "name": "aside",
            "label": "Late / dead",
            "value": f"{texts.count(output['late'])} / {texts.count(output['dead'])}",
            "sub": f"{texts.count(output['missed'])} lost to retention" if output["missed"] else "left out",
            "tone": "warn" if output["dead"] or output["missed"] else "plain",
        },
        {
            "name": "guarantee",
            "label": "Guarantee",
            "value": output["guarantee"],
            "sub": texts.counted(restarts, "restart"),
            "tone": "plain",
        },
    ]


def _failures(facts: Facts, output: dict[str, Any]) -> list[dict[str, Any]]:
    found = output.get("failures", [])
    return [
        {
            "id": str(failure["at"]),
            "cells": {
                "at": texts.clock(failure["at"]),
                "ago": {"text": texts.ago(failure["at"], facts.at), "tone": "muted"},
                "cause": split_error(failure["cause"])[0],
            },
        }
        for failure in reversed(found)
    ]


def _inputs(facts: Facts, output: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for topic, partitions in output["offsets"].items():
        for number, read in sorted(partitions.items(), key=lambda pair: int(pair[0])):
            end = facts.broker.end(topic, int(number))
            share = min(1.0, read / end) if end else 1.0
            rows.append(
                {
                    "id": f"{topic} {number}",
                    "cells": {
                        "topic": {"text": topic, "href": link("topics", topic)},
                        "partition": number,
                        "read": f"{read:,}",
                        "end": texts.NONE if end is None else f"{end:,}",
                        "lag": texts.NONE if end is None else f"{max(0, end - read):,}",
                        "share": {"text": f"{share:.0%}", "bar": share},
                    },
                }
            )
    return rows
