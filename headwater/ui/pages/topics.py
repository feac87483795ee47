"""All topics: partitions, records, sizes, rates, and who is behind."""

from typing import Any

from nicegui import ui

from headwater.streams.declarations import Stream, Table, Topic
from headwater.ui import texts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Sheet, box, card, link
from headwater.ui.parts.frame import Page, heading

COLUMNS = (
    {"name": "topic", "label": "Topic"},
    {"name": "use", "label": "Use"},
    {"name": "partitions", "label": "Partitions", "align": "right"},
    {
        "name": "records",
        "label": "Records",
        "align": "right",
        "title": "Offsets between the first and the last",
    },
    {"name": "size", "label": "Size", "align": "right"},
    {"name": "rate", "label": "Rate", "align": "right"},
    {"name": "readers", "label": "Read by"},
    {"name": "lag", "label": "Lag", "align": "right", "title": "Of the slowest query that reads it"},
)


def build(gatherer: Gatherer) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link == "topics")
    uses = topic_uses(gatherer)
    state = {"internal": False, "text": ""}
    with page.content:
        lead = heading("Topics")
        outer, _ = card()
        with outer:
            with box("hw-tools"):
                find = (
                    ui.input(placeholder="Find a topic")
                    .props('dense outlined clearable aria-label="Find a topic"')
                    .classes("hw-filter")
                )
                internal = ui.switch("Kafka's own").props("dense size=xs")
            sheet = Sheet(
                COLUMNS,
                empty="There are no topics yet.",
                hint="headwater topics create orders",
            )

    def refresh(facts: Facts) -> None:
        shown = [
            topic
            for topic in facts.broker.topics.values()
            if (state["internal"] or not topic.internal) and str(state["text"]).lower() in topic.name.lower()
        ]
        sheet.rows([_row(facts, topic.name, _use(gatherer, uses, topic.name)) for topic in shown])
        size = sum(topic.size or 0 for topic in shown)
        lead.set_text(texts.counted(len(shown), "topic") + (f", {texts.size(size)}" if size else ""))
        if state["text"] and not shown:
            sheet.show(empty=f"No topic has “{state['text']}” in its name.", hint="")

    def changed() -> None:
        state.update(internal=bool(internal.value), text=find.value or "")
        refresh(gatherer.facts())

    find.on_value_change(changed)
    internal.on_value_change(changed)
    page.every_second(refresh)


def topic_uses(gatherer: Gatherer) -> dict[str, str]:
    """What the application uses its topics for."""
    app = gatherer.serving.app
    named: dict[str, list[str]] = {}
    uses = {
        "headwater.marks": "what was written once",
        "headwater.positions": "how far sources are",
        "headwater.signals": "what sources are asked to do",
        f"headwater.ingest.{app.name}": "answers to requests with keys",
    }
    for node in app.nodes:
        if isinstance(node, Stream | Table | Topic):
            named.setdefault(node.topic, []).append(f"{node.kind} {node.name}")
        uses.setdefault(f"{node.name}.dead", f"dead values of {node.name}")
        uses.setdefault(f"{app.name}.{node.name}", f"changes of {node.name}")
        uses.setdefault(f"{node.name}.late", f"late events of {node.name}")
    return uses | {topic: ", ".join(users) for topic, users in named.items()}


def _use(gatherer: Gatherer, uses: dict[str, str], topic: str) -> str:
    """What a topic is used for; of one that only a source fills, by which."""
    if topic in uses:
        return uses[topic]
    return next((f"from {each.name}" for each in gatherer.serving.app.sources if each.feeds(topic)), "")


def _row(facts: Facts, name: str, use: str) -> dict[str, Any]:
    topic = facts.broker.topics[name]
    readers = facts.readers(name)
    lags = [reader.lag(topic) for reader in readers]
    lag = max(lags, default=None)
    return {
        "id": name,
        "cells": {
            "topic": {"text": name, "href": link("topics", name)},
            "use": {"text": use, "tone": "muted"},
            "partitions": topic.partitions,
            "records": texts.count(topic.records),
            "size": texts.size(topic.size),
            "rate": texts.rate(topic.rate),
            "readers": ", ".join(reader.name for reader in readers) or {"text": texts.NONE, "tone": "muted"},
            "lag": texts.count(lag),
        },
    }
