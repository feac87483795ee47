"""The dashboard: what runs, how it is doing, and what it has computed, in a browser."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from headwater.serve.serving import Serving


def mount(app: "Starlette", serving: "Serving") -> None:
    """Adds the dashboard of an application to its server, under /ui."""
    from headwater.ui.mounting import mount as mount_pages  # NiceGUI takes a second to import

    mount_pages(app, serving)
