"""Sources and sinks: state, position, lag, and how far snapshots are."""

from collections.abc import Mapping
from typing import Any

from headwater.connect.status import share_read
from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Sheet, card, link
from headwater.ui.parts.frame import Page, heading
from headwater.ui.problems import split_error

SOURCES = (
    {"name": "name", "label": "Source"},
    {"name": "state", "label": "State"},
    {"name": "from", "label": "From"},
    {"name": "position", "label": "Position", "mono": True},
    {"name": "lag", "label": "Lag", "align": "right"},
    {"name": "rate", "label": "Rate", "align": "right"},
    {"name": "records", "label": "Records", "align": "right", "title": "Since its process started"},
    {"name": "restarts", "label": "Restarts", "align": "right"},
    {"name": "notes", "label": "", "wide": True},
)
SNAPSHOTS = (
    {"name": "source", "label": "Source"},
    {"name": "table", "label": "Table"},
    {"name": "rows", "label": "Rows read", "align": "right"},
    {"name": "total", "label": "Of about", "align": "right"},
    {"name": "share", "label": "Progress", "wide": True},
)
SINKS = (
    {"name": "name", "label": "Sink"},
    {"name": "state", "label": "State"},
    {"name": "topic", "label": "Follows"},
    {"name": "target", "label": "To"},
    {"name": "position", "label": "Position", "mono": True},
    {"name": "lag", "label": "Lag", "align": "right"},
    {"name": "rate", "label": "Rate", "align": "right"},
    {"name": "records", "label": "Records", "align": "right"},
    {"name": "restarts", "label": "Restarts", "align": "right"},
    {"name": "notes", "label": "", "wide": True},
)


def build(gatherer: Gatherer) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link in ("", "topics", "connect"))
    graph = gatherer.serving.app.graph()
    with page.content:
        heading("Connect", "what brings events in, and what takes results out")
        outer, _ = card("Sources")
        with outer:
            sources = Sheet(
                SOURCES,
                empty="The application declares no source. One for a database is a line:",
                hint='app.source(hw.cdc("sqlite:///shop.db", tables=["users"]))',
            )
        snapshot_card, _ = card("Snapshots", "tables that are read as a whole before their changes follow")
        with snapshot_card:
            snapshots = Sheet(SNAPSHOTS, empty="None.", dense=True)
        outer, _ = card("Sinks")
        with outer:
            sinks = Sheet(
                SINKS,
                empty="The application declares no sink. One for Redis is a line:",
                hint='app.sink(hw.redis("redis://localhost", topic="shop.users", key="user:{id}"))',
            )

    def refresh(facts: Facts) -> None:
        known = {document["name"]: document for document in (*facts.locals.sources, *facts.locals.sinks)}
        sources.rows(
            [_source_row(name, source.describe(), known.get(name)) for name, source in graph.sources.items()]
        )
        read = [row for name in graph.sources for row in _snapshot_rows(known.get(name))]
        snapshots.rows(read)
        snapshot_card.set_visibility(bool(read))
        sinks.rows(
            [
                _sink_row(name, sink.topic, sink.describe(), known.get(name))
                for name, sink in graph.sinks.items()
            ]
        )

    page.every_second(refresh)


def _state(document: Mapping[str, Any] | None) -> dict[str, Any]:
    if document is None:
        return {"text": "never ran", "badge": True, "tone": "warn"}
    if document["state"] == "failed":
        return {"text": "failed", "badge": True, "tone": "bad"}
    if not document["running"]:
        return {"text": "not running", "badge": True, "tone": "warn"}
    well = document["state"] == "running" and not document["error"]
    return {"text": document["state"], "badge": True, "tone": "ok" if well else "warn"}


def _notes(document: Mapping[str, Any], notes: Any) -> dict[str, Any] | str:
    if document["error"] and (document["running"] or document["state"] == "failed"):
        return {"text": split_error(document["error"])[0], "tone": "bad", "title": document["error"]}
    return {"text": "; ".join(notes), "tone": "muted"} if notes else ""


def _source_row(name: str, described: str, document: Mapping[str, Any] | None) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "name": name,
        "state": _state(document),
        "from": {"text": described, "tone": "muted"},
    }
    if document is not None:
        inner = document["source"]
        seconds, size = inner["lag_seconds"], inner["lag_bytes"]
        cells |= {
            "position": texts.shortened(inner["position"], 40),
            "lag": texts.span(seconds) if seconds is not None else texts.size(size),
            "rate": texts.rate(document["rate"]),
            "records": texts.count(document["records"]),
            "restarts": document["restarts"],
            "notes": _notes(document, inner["notes"]),
        }
    return {"id": name, "cells": cells}


def _snapshot_rows(document: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    rows = []
    for table in document["source"]["snapshot"] if document is not None else ():
        share = share_read(table)
        done = table["done"]
        text = "done" if done else f"{share:.0%}" if share is not None else "reading"
        rows.append(
            {
                "id": f"{document['name']} {table['table']}" if document is not None else "",
                "cells": {
                    "source": document["name"] if document is not None else "",
                    "table": table["table"],
                    "rows": f"{table['rows']:,}",
                    "total": texts.count(table["total"]),
                    "share": {"text": text, "tone": "ok" if done else ""}
                    | ({"bar": share} if share is not None else {}),
                },
            }
        )
    return rows


def _sink_row(name: str, topic: str, described: str, document: Mapping[str, Any] | None) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "name": name,
        "state": _state(document),
        "topic": {"text": topic, "href": link("topics", topic)},
        "target": {"text": described, "tone": "muted"},
    }
    if document is not None:
        lag = document["lag_records"]
        cells |= {
            "position": texts.shortened(document["position"], 40),
            "lag": texts.count(lag),
            "rate": texts.rate(document["rate"]),
            "records": texts.count(document["counts"]["records"]),
            "restarts": document["restarts"],
            "notes": _notes(document, document["notes"]),
        }
    return {"id": name, "cells": cells}
