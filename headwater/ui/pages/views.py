"""All views and tables: rows, versions, changes, and how far each has come."""

from typing import Any

from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Sheet, card, link
from headwater.ui.parts.frame import Page, heading
from headwater.views.model import VersionInfo, ViewInfo

COLUMNS = (
    {"name": "view", "label": "View"},
    {"name": "kind", "label": "Kind"},
    {"name": "rows", "label": "Rows", "align": "right"},
    {"name": "changes", "label": "Changes", "align": "right"},
    {"name": "version", "label": "Version"},
    {"name": "watermark", "label": "Watermark", "align": "right"},
    {"name": "committed", "label": "Last batch", "align": "right"},
    {"name": "key", "label": "Key"},
)


def build(gatherer: Gatherer) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link in ("", "views") or link.startswith("queries/"))
    kinds = {node.name: node.kind for node in gatherer.serving.app.nodes}
    with page.content:
        lead = heading("Views")
        outer, _ = card()
        with outer:
            sheet = Sheet(COLUMNS, empty="No view has been built yet.", hint="headwater up APP.PY")

    def refresh(facts: Facts) -> None:
        sheet.rows([_row(facts, info, kinds.get(name, "")) for name, info in facts.views.items()])
        rows = sum(version.progress.rows for info in facts.views.values() if (version := serving(info)))
        lead.set_text(
            f"{texts.counted(rows, 'row')} in {texts.counted(len(facts.views), 'view')}"
            if facts.views
            else ""
        )

    page.every_second(refresh)


def serving(info: ViewInfo | None) -> VersionInfo | None:
    """The version that the name shows."""
    if info is None:
        return None
    return next((version for version in info.versions if version.version == info.serving), None)


def share_built(facts: Facts, version: VersionInfo) -> float | None:
    """How much of its inputs a version covers, from 0 to 1; None when nobody knows."""
    covered = ends = 0
    for topic, partitions in version.progress.offsets.items():
        known = facts.broker.topics.get(topic)
        if known is None or not isinstance(partitions, dict):
            continue
        for number, offset in partitions.items():
            first = known.first.get(int(number), 0)
            covered += max(0, int(offset) - first)
            ends += max(0, known.end.get(int(number), 0) - first)
    return min(1.0, covered / ends) if ends else None


def version_cell(facts: Facts, info: ViewInfo) -> dict[str, Any] | str:
    """The version that serves, and how far one that is being built has come."""
    building = [version for version in info.versions if version.version != info.serving]
    served = f"{info.serving}" if info.serving is not None else "none"
    if not building:
        return served
    share = share_built(facts, building[-1])
    text = f"{served}, building {building[-1].version}"
    return {"text": text, "tone": "warn"} | (
        {"bar": share, "sub": f"{share:.0%}"} if share is not None else {}
    )


def _row(facts: Facts, info: ViewInfo, kind: str) -> dict[str, Any]:
    version = serving(info)
    progress = version.progress if version else None
    watermark = progress.watermark.timestamp() if progress and progress.watermark else None
    committed = progress.committed.timestamp() if progress and progress.committed else None
    return {
        "id": info.name,
        "href": link("views", info.name),
        "cells": {
            "view": {"text": info.name, "href": link("views", info.name)},
            "kind": {"text": kind or "of another application", "tone": "muted"},
            "rows": texts.count(progress.rows if progress else None),
            "changes": texts.rate(facts.change_rates.get(info.name)),
            "version": version_cell(facts, info),
            "watermark": texts.ago(watermark, facts.at) if watermark and watermark > 86_400 else texts.NONE,
            "committed": texts.ago(committed, facts.at),
            "key": {"text": ", ".join(version.schema.key) if version else "", "tone": "muted"},
        },
    }
