"""All outputs of the application, and how each is doing."""

from typing import Any

from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Sheet, card, link
from headwater.ui.parts.frame import Page, heading
from headwater.ui.problems import split_error

COLUMNS = (
    {"name": "query", "label": "Query"},
    {"name": "kind", "label": "Gives"},
    {"name": "state", "label": "State"},
    {"name": "rate", "label": "Processed", "align": "right"},
    {"name": "lag", "label": "Lag", "align": "right"},
    {"name": "batch", "label": "Last batch", "align": "right"},
    {"name": "gap", "label": "Watermark", "align": "right"},
    {"name": "state_rows", "label": "State rows", "align": "right"},
    {"name": "aside", "label": "Late / dead", "align": "right"},
    {"name": "restarts", "label": "Restarts", "align": "right"},
    {"name": "error", "label": "", "wide": True},
)


def build(gatherer: Gatherer) -> None:
    """The page."""
    page = Page(gatherer, lambda link: not link or link == "topics" or link.startswith("queries/"))
    with page.content:
        lead = heading("Queries")
        outer, _ = card()
        with outer:
            sheet = Sheet(COLUMNS, empty="No query has run yet.", hint="headwater up APP.PY")

    def refresh(facts: Facts) -> None:
        sheet.rows([_row(facts, output) for output in facts.outputs.values()])
        lead.set_text(
            f"{texts.counted(len(facts.outputs), 'output')}, kept up to date" if facts.outputs else ""
        )

    page.every_second(refresh)


def state_cell(facts: Facts, output: Any) -> dict[str, Any]:
    """The state of an output as a badge."""
    state = output["state"] if facts.engine == "running" or output["state"] != "running" else "not running"
    tone = "bad" if output["error"] else "ok" if state == "running" else "warn"
    return {
        "text": "failing" if output["error"] and state != "failed" else state,
        "badge": True,
        "tone": tone,
    }


def _row(facts: Facts, output: dict[str, Any]) -> dict[str, Any]:
    name = output["name"]
    return {
        "id": name,
        "href": link("queries", name),
        "cells": {
            "query": {"text": name, "href": link("queries", name)},
            "kind": {"text": output["kind"], "tone": "muted"},
            "state": state_cell(facts, output),
            "rate": texts.rate(facts.row_rates.get(name)),
            "lag": texts.count(output["lag"]),
            "batch": texts.span(output["batch_ms"] / 1000) if output["batches"] else texts.NONE,
            "gap": texts.span(gap) if (gap := facts.gap(output)) is not None else texts.NONE,
            "state_rows": texts.count(output["state_rows"]),
            "aside": f"{texts.count(output['late'])} / {texts.count(output['dead'])}",
            "restarts": output["restarts"],
            "error": {"text": split_error(output["error"])[0], "tone": "bad"} if output["error"] else "",
        },
    }
