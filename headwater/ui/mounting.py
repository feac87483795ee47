"""The dashboard inside the server of an application."""

from pathlib import Path
from typing import Any

from nicegui import app as pages
from nicegui import ui
from nicegui.run import io_bound
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headwater.serve.serving import Serving
from headwater.ui.facts import Gatherer
from headwater.ui.pages import connect, overview, queries, query, topic, topics, view, views
from headwater.ui.parts.elements import BASE, box
from headwater.ui.parts.frame import THEME_SCRIPT, Frame, heading

_WAVE = "c3-3 6-3 9 0s6 3 9 0"
_FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#1f6feb" stroke-width="2.4" '
    f'stroke-linecap="round"><path d="M3 7{_WAVE}M3 13{_WAVE}M3 19{_WAVE}"/></svg>'
)


def mount(app: Starlette, serving: Serving) -> None:
    """Adds the dashboard of an application under /ui. NiceGUI allows for one in a process."""
    gatherer = Gatherer(serving)
    style = (Path(__file__).parent / "look.css").read_text()
    ui.add_head_html(f"<style>{style}</style><script>{THEME_SCRIPT}</script>", shared=True)
    pages.on_shutdown(gatherer.stop)

    async def root() -> None:
        await _root(gatherer)

    app.router.routes.append(Route(BASE, _to_root))
    run_with: Any = ui.run_with  # its types say FastAPI; it uses what Starlette has
    run_with(
        app,
        root=root,
        mount_path=BASE,
        title=f"{serving.app.name} · Headwater",
        favicon=_FAVICON,
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,  # nothing here is bound
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )


class _Pages(ui.sub_pages):
    """The pages, and what stands where there is none."""

    def _render_404(self) -> None:
        with box("hw-page", "main"):
            path = ui.context.client.sub_pages_router.current_path
            heading("There is no such page", path.split("?")[0], above=("", "Overview"))


async def _to_root(request: Request) -> Response:
    return RedirectResponse(f"{BASE}/")


async def _root(gatherer: Gatherer) -> None:
    await io_bound(gatherer.fresh)
    frame = Frame(gatherer)
    router = ui.context.client.sub_pages_router
    frame.moved(router.current_path)
    router.on_path_changed(frame.moved)
    frame.refresh(gatherer.facts())
    ui.timer(1.0, lambda: frame.refresh(gatherer.facts()))
    _Pages(
        {
            "/": lambda: overview.build(gatherer),
            "/queries": lambda: queries.build(gatherer),
            "/queries/{name}": lambda name: query.build(gatherer, name),
            "/topics": lambda: topics.build(gatherer),
            "/topics/{name}": lambda name: topic.build(gatherer, name),
            "/views": lambda: views.build(gatherer),
            "/views/{name}": lambda name: view.build(gatherer, name),
            "/connect": lambda: connect.build(gatherer),
        }
    )
