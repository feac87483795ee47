"""One topic: its messages, partitions, readers and configuration."""

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.run import io_bound

from headwater.client.admin import ConfigSetting
from headwater.errors import HeadwaterError
from headwater.ui import texts
from headwater.ui.broker import ReaderFacts
from headwater.ui.facts import Facts, Gatherer
from headwater.ui.pages.topics import topic_uses
from headwater.ui.parts.elements import Sheet, Tiles, box, link, said
from headwater.ui.parts.frame import Page, heading
from headwater.ui.parts.messages import MessagePanel

PARTITIONS = (
    {"name": "partition", "label": "Partition", "align": "right", "width": "90px"},
    {"name": "first", "label": "First offset", "align": "right"},
    {"name": "end", "label": "End offset", "align": "right"},
    {"name": "records", "label": "Records", "align": "right"},
    {"name": "size", "label": "Size", "align": "right"},
    {"name": "share", "label": "Share", "width": "40%"},
)
READERS = (
    {"name": "reader", "label": "Reader"},
    {"name": "kind", "label": "Kind"},
    {"name": "state", "label": "State"},
    {"name": "lag", "label": "Lag", "align": "right"},
    {"name": "offsets", "label": "Offsets by partition", "mono": True, "wide": True},
)
CONFIGS = (
    {"name": "name", "label": "Configuration", "mono": True},
    {"name": "value", "label": "Value", "mono": True},
    {"name": "meaning", "label": "", "wide": True},
    {"name": "source", "label": "Set on"},
)
SLOW_SECONDS = 5.0  # between two looks at groups and configurations


def build(gatherer: Gatherer, name: str) -> None:
    """The page."""
    page = Page(gatherer, lambda link: link == "topics")
    with page.content:
        heading(name, topic_uses(gatherer).get(name, ""), above=("topics", "Topics"))
        tiles = Tiles()
        with box("hw-card"):
            tabs = _Tabs(("Messages", "Partitions", "Readers", "Configuration"))
            with tabs.panel("Messages"):
                panel = MessagePanel(gatherer, name)
            with tabs.panel("Partitions"):
                partitions = Sheet(PARTITIONS, empty="The topic is not there.")
            with tabs.panel("Readers"):
                readers = Sheet(
                    READERS,
                    empty="Nobody has read this topic as a group, and no query of the application reads it.",
                    hint=f"headwater consume {name} --group mine",
                )
            with tabs.panel("Configuration"):
                configs = Sheet(CONFIGS, empty="The broker has not told its configuration yet.", dense=True)
    slow = _Slow(gatherer, name)

    def refresh(facts: Facts) -> None:
        topic = facts.broker.topics.get(name)
        tiles.show(tiles=_tiles(facts, name, slow))
        if topic is None:
            return
        panel.partitions(topic.partitions)
        partitions.rows(_partition_rows(facts, name))
        readers.rows([_reader_row(facts, name, reader) for reader in [*facts.readers(name), *slow.groups]])
        configs.rows([_config_row(setting) for setting in slow.configs])

    page.every_second(refresh)
    panel.start()
    ui.timer(SLOW_SECONDS, slow.look)


class _Slow:
    """What is asked for less often, and only for an open page."""

    def __init__(self, gatherer: Gatherer, name: str) -> None:
        self._gatherer, self._name = gatherer, name
        self.configs: list[ConfigSetting] = []
        self.groups: list[ReaderFacts] = []

    async def look(self) -> None:
        try:
            self.configs = await io_bound(self._gatherer.broker.configs, self._name) or []
            self.groups = await io_bound(self._gatherer.broker.groups, self._name) or []
        except HeadwaterError:
            pass  # the banner of the overview says that the broker is away; here the last answers stay

    def value(self, name: str) -> str | None:
        return next((setting.value for setting in self.configs if setting.name == name), None)


class _Tabs:
    """Tabs that keep what is in them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._buttons: dict[str, Any] = {}
        self._panels: dict[str, Any] = {}
        with box("hw-tabs").props("role=tablist"):
            for name in names:
                button = box("hw-tab", "button").props('type="button" role="tab"')
                button.on("click", self._opens(name))
                with button:
                    said(name, "", "span")
                self._buttons[name] = button
        self._first = names[0]

    def panel(self, name: str) -> Any:
        panel = self._panels[name] = box("hw-panel").props("role=tabpanel")
        panel.props["aria-label"] = name
        self._mark(name, name == self._first)
        return panel

    def _mark(self, name: str, is_here: bool) -> None:
        self._panels[name].set_visibility(is_here)
        self._buttons[name].classes(add="is-here" if is_here else "", remove="" if is_here else "is-here")
        self._buttons[name].props(f"aria-selected={str(is_here).lower()}")

    def _opens(self, name: str) -> Callable[[], None]:
        def show() -> None:
            for other in self._panels:
                self._mark(other, other == name)

        return show


def _tiles(facts: Facts, name: str, slow: _Slow) -> list[dict[str, Any]]:
    topic = facts.broker.topics.get(name)
    if topic is None:
        away = facts.broker_error is not None
        what, why = (
            ("not known", "the broker does not answer") if away else ("unknown", "it is not on the broker")
        )
        return [
            {
                "name": "records",
                "label": "Topic",
                "value": what,
                "sub": why,
                "tone": "warn",
            }
        ]
    lags = [reader.lag(topic) for reader in [*facts.readers(name), *slow.groups]]
    policy = slow.value("cleanup.policy")
    return [
        {
            "name": "records",
            "label": "Records",
            "value": f"{topic.records:,}",
            "sub": "between first and last offset",
        },
        {
            "name": "rate",
            "label": "Rate",
            "value": texts.rate(topic.rate).removesuffix("/s"),
            "unit": "/s",
            "sub": "arriving",
        },
        {"name": "partitions", "label": "Partitions", "value": str(topic.partitions), "sub": ""},
        {"name": "size", "label": "Size", "value": texts.size(topic.size), "sub": "on disk"},
        {
            "name": "retention",
            "label": "Retention",
            "value": _retention(slow.value("retention.ms")) if policy != "compact" else "newest of each key",
            "sub": f"cleanup: {policy or '…'}" + _limit(slow.value("retention.bytes")),
        },
        {
            "name": "lag",
            "label": "Lag",
            "value": texts.count(max(lags, default=None)),
            "sub": f"of the slowest of {len(lags)} {'reader' if len(lags) == 1 else 'readers'}"
            if lags
            else "nobody reads it",
        },
    ]


def _retention(milliseconds: str | None) -> str:
    if milliseconds is None:
        return texts.NONE
    return "for ever" if int(milliseconds) < 0 else texts.span(int(milliseconds) / 1000)


def _limit(number: str | None) -> str:
    return f", at most {texts.size(int(number))}" if number is not None and int(number) >= 0 else ""


def _partition_rows(facts: Facts, name: str) -> list[dict[str, Any]]:
    topic = facts.broker.topics[name]
    rows = []
    for number in range(topic.partitions):
        end, first = topic.end.get(number), topic.first.get(number)
        if end is None or first is None:
            rows.append(
                {
                    "id": str(number),
                    "cells": {"partition": number, "share": {"text": "no leader", "tone": "bad"}},
                }
            )
            continue
        share = (end - first) / topic.records if topic.records else 0.0
        rows.append(
            {
                "id": str(number),
                "cells": {
                    "partition": number,
                    "first": f"{first:,}",
                    "end": f"{end:,}",
                    "records": f"{end - first:,}",
                    "size": texts.size(topic.sizes.get(number)),
                    "share": {"text": f"{share:.0%}", "bar": share},
                },
            }
        )
    return rows


def _reader_row(facts: Facts, name: str, reader: ReaderFacts) -> dict[str, Any]:
    lag = reader.lag(facts.broker.topics[name])
    offsets = ", ".join(f"{number}: {offset:,}" for number, offset in sorted(reader.offsets.items()))
    is_query = reader.kind == "query"
    well = reader.state in ("running", "Stable")
    return {
        "id": f"{reader.kind} {reader.name}",
        "cells": {
            "reader": {"text": reader.name, "href": link("queries", reader.name)}
            if is_query
            else reader.name,
            "kind": "query" if is_query else "consumer group",
            "state": {"text": reader.state.lower(), "badge": True, "tone": "ok" if well else "muted"},
            "lag": f"{lag:,}",
            "offsets": offsets,
        },
    }


def _config_row(setting: ConfigSetting) -> dict[str, Any]:
    value = setting.value
    meaning = ""
    if value is not None and value.lstrip("-").isdigit():
        if setting.name.endswith(".ms"):
            meaning = (
                "for ever"
                if int(value) < 0
                else texts.span(int(value) / 1000)
                if int(value) < 2**60
                else "no limit"
            )
        elif setting.name.endswith(".bytes"):
            meaning = "no limit" if int(value) < 0 else texts.size(int(value))
    return {
        "id": setting.name,
        "cells": {
            "name": setting.name,
            "value": value if value is not None else "(hidden)",
            "meaning": {"text": meaning, "tone": "muted"},
            "source": {
                "text": "this topic" if setting.source == "topic" else setting.source,
                "tone": "accent" if setting.source == "topic" else "muted",
                "badge": setting.source == "topic",
            },
        },
    }
