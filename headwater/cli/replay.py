"""`headwater replay`: build a view again from the log."""

from typing import Annotated

import typer

from headwater.cli.output import say
from headwater.cli.stream_options import Data, Store, has_store, no_store, stream_settings


def register(app: typer.Typer) -> None:
    app.command("replay", short_help="Build a view again from the log.")(replay)


def replay(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view's name.")],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Where to begin: 'beginning', an ISO 8601 time, or an age such as '2 hours ago'.",
        ),
    ] = "beginning",
    data: Data = None,
    store: Store = None,
) -> None:
    """Ask for a view to be computed anew from the log.

    The running application (or the next start of it) builds the view beside the old one, which serves until
    the new one has caught up. Begun later than the beginning, it holds what the log gives from there on.

    \b
    Examples:
      headwater replay clicks_by_page
      headwater replay clicks_by_page --from 2026-11-01T00:00:00Z
    """
    from headwater.cli.moments import iso, parse_moment
    from headwater.errors import UnknownView
    from headwater.streams.engine.replays import Replays
    from headwater.views.store import open_store

    settings = stream_settings(data=data, store=store)
    if not has_store(settings):
        raise no_store("replay", view, settings)
    with open_store(settings.store) as opened:
        names = [info.name for info in opened.views()]
    if view not in names:
        known = ", ".join(names) or "none"
        raise UnknownView("replay", view, f"the views of the store are: {known}")
    start = "earliest" if from_ == "beginning" else iso(parse_moment(from_, "--from"))
    Replays(settings.data).ask(view, start)
    say(f"{view} will be built anew from {'the beginning' if start == 'earliest' else start}")
