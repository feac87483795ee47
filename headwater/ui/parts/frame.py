"""What all pages have around them: the bar at the top, the theme, and what is wrong."""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from nicegui import ui
from nicegui.element import Element

from headwater.ui.facts import Facts, Gatherer
from headwater.ui.parts.elements import Notices, anchor, box, link, said
from headwater.ui.problems import Problem, problems

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


def title_of(page: str, application: str) -> str:
    """What the window is called: of many tabs of a browser only the beginning is seen.

    >>> title_of("clicks_by_country", "shop")
    'clicks_by_country · shop · Headwater'
    """
    return " · ".join(filter(None, (page, application, "Headwater")))


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
            with anchor("hw-pill", link()) as self._pill:
                self._dot = box("hw-dot", "span")
                self._state = said("", "", "span").props('data-engine=""')
            with (
                box("hw-icon", "button")
                .props('type="button" title="Light or dark" aria-label="Light or dark"')
                .on("click", js_handler="() => headwaterTheme()")
            ):
                ui.icon("contrast", size="18px")

    def moved(self, path: str) -> None:
        """Marks where one is, and says so in the title of the window."""
        first, _, rest = path.split("?")[0].strip("/").partition("/")
        for page, element in self._navigation.items():
            is_here = page == first
            element.classes(add="is-here" if is_here else "", remove="" if is_here else "is-here")
            element.props("aria-current=page") if is_here else element.props(remove="aria-current")
        ui.page_title(title_of(unquote(rest) or dict(PAGES).get(first, ""), self._gatherer.serving.app.name))

    def refresh(self, facts: Facts) -> None:
        """Shows whether all is well, else what is worst."""
        wrong = problems_of(facts, self._gatherer)
        tone, text = (wrong[0].tone, wrong[0].short) if wrong else ("ok", "running")
        self._state.set_text(text + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""))
        self._dot.classes(replace=f"hw-dot is-{tone}")
        title = "\n".join(each.what for each in wrong) or "All is well"
        if self._pill.props.get("title") != title:
            self._pill.props["title"] = title
            self._pill.update()


class Page:
    """The body of a page: kept up to date each second by what `refresh` does."""

    def __init__(self, gatherer: Gatherer, about: Callable[[str], bool]) -> None:
        """``about`` says of a problem's page whether the problem matters here, so that this page says it, too."""
        self.gatherer, self._about = gatherer, about
        self.content = box("hw-page", "main")
        with self.content:
            self._notices = Notices()

    def every_second(self, refresh: Callable[[Facts], Any]) -> None:
        """Calls `refresh` now and then each second, until the page is left."""

        def look() -> None:
            facts = self.gatherer.facts()
            self._notices.show(items=self._wrong(facts))
            refresh(facts)

        look()
        ui.timer(1.0, look, immediate=False)

    def _wrong(self, facts: Facts) -> list[dict[str, str]]:
        """What is wrong, as the banner takes it."""
        here = ui.context.client.sub_pages_router.current_path.strip("/")
        return [
            {
                "tone": problem.tone,
                "what": problem.what,
                "why": problem.why,
                "next": problem.next_step,
                "href": link(*problem.link.split("/")) if problem.link not in ("", here) else "",
            }
            for problem in problems_of(facts, self.gatherer)
            if self._about(problem.link)
        ]


def problems_of(facts: Facts, gatherer: Gatherer) -> list[Problem]:
    """All that is wrong with the application, worst first."""
    return problems(facts, frozenset(each.name for each in gatherer.serving.app.connectors))


def heading(title: str, lead: str = "", *, above: tuple[str, str] | None = None) -> ui.label:
    """The title of a page, with the page above it; gives the label of the text beside."""
    with box("hw-head"):
        if above is not None:
            anchor("hw-crumb", link(above[0]), f"{above[1]} /")
        said(title, "", "h1")
        return said(lead, "hw-lead", "span")
