"""What all pages have around them: the bar at the top, the theme, and what is wrong."""

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.element import Element

from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Notices, anchor, box, link, said
from headwater.ui.problems import problems

PAGES = (
    ("", "Overview"),
    ("queries", "Queries"),
    ("topics", "Topics"),
    ("views", "Views"),
    ("connect", "Connect"),
)

_LOGO = (
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.1" stroke-linecap="round" '
    'aria-hidden="true"><path d="M3 7c3-3 6-3 9 0s6 3 9 0M3 13c3-3 6-3 9 0s6 3 9 0M3 19c3-3 6-3 9 0s6 3 9 0"/></svg>'
)

# The chosen theme is the browser's to remember; until one is chosen the system's holds.
THEME_SCRIPT = """
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("headwater-theme") || "auto";
  const isDark = () => chosen() === "dark" || (chosen() === "auto" && system.matches);
  const apply = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    if (window.Quasar && document.body) Quasar.Dark.set(isDark());
  };
  window.headwaterTheme = () => {
    localStorage.setItem("headwater-theme", isDark() ? "light" : "dark");
    apply();
  };
  system.addEventListener("change", apply);
  apply();
  const wait = setInterval(() => {
    if (window.Quasar && document.querySelector(".hw-top")) { clearInterval(wait); apply(); }
  }, 15);
})();
"""

_STATES = {
    "running": ("ok", "running"),
    "stuck": ("bad", "does not answer"),
    "stopped": ("warn", "stopped"),
    "ended": ("bad", "gone"),
    "never": ("warn", "not running"),
}


class Frame:
    """The top bar, which stays while pages change below it."""

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer
        self._navigation: dict[str, Element] = {}
        app = gatherer.serving.app
        with box("hw-top", "header"):
            with anchor("hw-brand", link()):
                ui.html(_LOGO, sanitize=False).style("display: flex")
                said("Headwater", "", "span")
                said(app.name, "hw-app", "small")
            for path, name in PAGES:
                here = anchor("hw-nav", link(path) if path else link(), name)
                here.props["data-page"] = path
                self._navigation[path] = here
            box("hw-grow")
            with box("hw-pill"):
                self._dot = box("hw-dot", "span")
                self._state = said("", "", "span").props('data-engine=""')
            with (
                box("hw-icon", "button")
                .props('type="button" title="Light or dark" aria-label="Light or dark"')
                .on("click", js_handler="() => headwaterTheme()")
            ):
                ui.icon("contrast", size="18px")

    def moved(self, path: str) -> None:
        """Marks where one is."""
        first = path.split("?")[0].strip("/").split("/")[0]
        for page, element in self._navigation.items():
            element.classes(add="is-here" if page == first else "", remove="" if page == first else "is-here")

    def refresh(self, facts: Facts) -> None:
        """Shows how the engine is."""
        tone, text = _STATES[facts.engine]
        if facts.engine == "running" and any(output["error"] for output in facts.outputs.values()):
            tone, text = "bad", "a query fails"
        if facts.broker_error is not None:
            tone, text = "bad", "no broker"
        self._state.set_text(text)
        self._dot.classes(replace=f"hw-dot is-{tone}")


class Page:
    """The body of a page: kept up to date each second by what `refresh` does."""

    def __init__(self, gatherer: Gatherer, *, notices: bool = False) -> None:
        self.gatherer = gatherer
        self._notices: Notices | None = None
        self.content = box("hw-page", "main")
        if notices:
            with self.content:
                self._notices = Notices()

    def every_second(self, refresh: Callable[[Facts], Any]) -> None:
        """Calls `refresh` now and then each second, until the page is left."""

        def look() -> None:
            facts = self.gatherer.facts()
            if self._notices is not None:
                self._notices.show(items=notices_of(facts, self.gatherer))
            refresh(facts)

        look()
        ui.timer(1.0, look, immediate=False)


def notices_of(facts: Facts, gatherer: Gatherer) -> list[dict[str, str]]:
    """What is wrong, as the banner takes it."""
    known = frozenset(each.name for each in gatherer.serving.app.connectors)
    return [
        {
            "tone": problem.tone,
            "what": problem.what,
            "why": problem.why,
            "next": problem.next_step,
            "href": link(*problem.link.split("/")) if problem.link else "",
        }
        for problem in problems(facts, known)
    ]


def heading(title: str, lead: str = "", *, above: tuple[str, str] | None = None) -> ui.label:
    """The title of a page, with the page above it; gives the label of the text beside."""
    with box("hw-head"):
        if above is not None:
            anchor("hw-crumb", link(above[0]), f"{above[1]} /")
        said(title, "", "h1")
        return said(lead, "hw-lead", "span")
