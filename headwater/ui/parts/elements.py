"""The dashboard's own elements. What changes is sent only when it has changed, and is drawn in place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from nicegui import ui
from nicegui.element import Element
from nicegui.elements import echart as _charts  # noqa: F401  lets the browser find ECharts under its name
from nicegui.events import GenericEventArguments

from headwater.ui.histories import History

Cell = Mapping[str, Any] | str | float | None
Row = dict[str, Any]  # id, cells, and perhaps tone and href

BASE = "/ui"
RESENT = 4000  # milliseconds of samples that are sent again, in case the browser was not ready for them


def link(*path: str) -> str:
    """The address of a page of the dashboard.

    >>> link("topics", "shop.clicks")
    '/ui/topics/shop.clicks'
    """
    return "/".join((BASE, *(quote(part, safe="") for part in path))) if path else f"{BASE}/"


class _Live(Element):
    """An element that tells the browser of a change only when there is one."""

    def show(self, **props: Any) -> None:
        """Gives it new properties."""
        changed = {name: value for name, value in props.items() if self._props.get(name) != value}
        if changed:
            self._props.update(changed)
            self.update()


class Sheet(_Live, component="sheet.js"):
    """A table. See sheet.js for what a cell can be."""

    def __init__(
        self,
        columns: Sequence[Mapping[str, Any]],
        *,
        empty: str,
        hint: str = "",
        height: str = "",
        dense: bool = False,
        flash: bool = False,
        on_pick: Callable[[str], Any] | None = None,
        on_sort: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__()
        self._props.update(
            columns=list(columns),
            rows=[],
            empty=empty,
            hint=hint,
            height=height,
            dense=dense,
            flash=flash,
            pickable=on_pick is not None,
            chosen="",
        )
        if on_pick is not None:
            self.on("pick", lambda event: on_pick(_argument(event)))
        if on_sort is not None:
            self.on("sort", lambda event: on_sort(_argument(event)))

    def rows(self, rows: Sequence[Row]) -> None:
        """Shows these rows."""
        self.show(rows=list(rows))


class Flow(_Live, component="flow.js"):
    """The graph of an application."""

    def __init__(self, label: str, max_height: int) -> None:
        super().__init__()
        self._props.update(label=label, maxHeight=max_height, boxes=[], lines=[], width=0, height=0)


class Tiles(_Live, component="tiles.js"):
    """Headline figures: name, label, value, and perhaps unit, sub, tone, points and title of each."""

    def __init__(self) -> None:
        super().__init__()
        self._props["tiles"] = []


class Notices(_Live, component="notices.js"):
    """What is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self._props["items"] = []


class Detail(_Live, component="detail.js"):
    """A text set like code; JSON is coloured."""

    def __init__(self, text: str = "", coloured: bool = False) -> None:
        super().__init__()
        self._props.update(text=text, coloured=coloured)


class Plot(_Live, component="plot.js"):
    """A chart."""

    def __init__(
        self,
        kind: Literal["line", "area", "bar", "pie"],
        *,
        time: bool = False,
        unit: str = "",
        stacked: bool = False,
        names: Sequence[str] = (),
        rows: Sequence[Sequence[Any]] = (),
        colours: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._props.update(kind=kind, time=time, unit=unit, stacked=stacked, colours=list(colours))
        self._props["table"] = {"names": list(names), "rows": list(rows)}


class Trend:
    """A chart of some figures of a history, which goes on as the history does."""

    def __init__(
        self,
        kind: Literal["line", "area", "bar"],
        history: History,
        figures: Mapping[str, str],
        *,
        unit: str = "",
        stacked: bool = False,
        colours: Sequence[str] = (),
    ) -> None:
        """`figures` gives the label of each of the history's figures that is shown."""
        self._history = history
        self._places = [0, *(history.names.index(name) + 1 for name in figures)]
        rows = self._chosen(history.rows())
        self._last = rows[-1][0] if rows else 0
        self.plot = Plot(
            kind,
            time=True,
            unit=unit,
            stacked=stacked,
            names=list(figures.values()),
            rows=rows,
            colours=colours,
        )

    def go_on(self) -> None:
        """Sends what is new."""
        rows = self._chosen(self._history.rows(after=max(0, self._last - RESENT)))
        if rows and rows[-1][0] > self._last:
            self._last = rows[-1][0]
            self.plot.run_method("add", rows)

    def _chosen(self, samples: Sequence[Sequence[float | None]]) -> list[list[Any]]:
        return [[_rounded(sample[place]) for place in self._places] for sample in samples]


def _rounded(value: float | None) -> float | None:
    return value if value is None or value == int(value) else round(value, 3)


def _argument(event: GenericEventArguments) -> str:
    return str(event.args)


def box(classes: str, tag: str = "div") -> Element:
    """A plain element."""
    return ui.element(tag).classes(classes)


def anchor(classes: str, href: str, text: str = "") -> Element:
    """A link to a page. (The address is set, not parsed: a name in it may hold anything.)"""
    element = box(classes, "a")
    element.props["href"] = href
    if text:
        with element:
            said(text, "", "span")
    return element


def button(text: str, action: Callable[[], Any], mark: str) -> tuple[Element, ui.label]:
    """A button, and the label in it. It is found by `mark`, an attribute of its own."""
    element = box("hw-button", "button").on("click", action)
    element.props.update({"type": "button", mark: ""})
    with element:
        label = said(text, "", "span")
    return element, label


def said(text: str, classes: str = "hw-note", tag: str = "div") -> ui.label:
    """A text that may change."""
    label = ui.label(text).classes(classes)
    label.tag = tag
    return label


def card(title: str = "", note: str = "") -> tuple[Element, ui.label | None]:
    """A card, and the label in its head for what changes."""
    outer = box("hw-card")
    label = None
    if title:
        with outer, box("hw-card-head"):
            said(title, "", "span")
            label = said(note, "hw-note", "span")
    return outer, label


def body() -> Element:
    """The padded inside of a card."""
    return box("hw-card-body")
