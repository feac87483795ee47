"""`headwater views`: the views in the store, and the rows of one."""

from datetime import date, datetime
from json import loads
from typing import Annotated, Any

import typer

from headwater.cli import options
from headwater.cli.output import note, print_json, print_table, say
from headwater.cli.stream_options import Data, Store, has_store, no_store, stream_settings


def register(app: typer.Typer) -> None:
    app.command("views", short_help="List views, or the rows of one.")(views)


def views(
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help="The view; without one, the list.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many rows.")
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option("--order", "-o", metavar="COLUMN", help="Sort by a column; -COLUMN the largest first."),
    ] = None,
    json: options.Json = False,
    data: Data = None,
    store: Store = None,
) -> None:
    """List the views of the store, or print the rows of one.

    \b
    Examples:
      headwater views
      headwater views word_count --order -count --limit 10
      headwater views word_count --json | jq -c .
    """
    from headwater.views.store import open_store
    from headwater.views.values import to_json

    settings = stream_settings(data=data, store=store)
    if not has_store(settings):
        if view is not None:
            raise no_store("show", view, settings)
        note(f"no views in {settings.store}; start an application with `headwater up`, or name its --data")
        return
    with open_store(settings.store) as opened:
        if view is None:
            _list(opened, json)
            return
        rows = opened.rows(view, order=order or (), limit=limit)
        if json:
            for row in rows:
                say(to_json(row))
        elif rows:
            print_table(tuple(rows[0]), [[_shown(value) for value in row.values()] for row in rows])
        else:
            note(f"{view} has no rows")


def _list(store: Any, json: bool) -> None:
    found = store.views()
    names = ("view", "kind", "build", "state", "rows", "batch", "committed")
    rows = []
    for info in found:
        for version in info.versions:
            progress = version.progress
            row = (
                info.name,
                _kind(version.fingerprint),
                version.version,
                version.state,
                progress.rows,
                progress.batch,
                progress.committed,
            )
            if json:
                print_json({**dict(zip(names, row, strict=True)), "offsets": progress.offsets})
            rows.append(row)
    if json:
        return
    if rows:
        print_table(names, [[*map(_shown, row)] for row in rows])
    else:
        note("no views yet; start an application with `headwater up`")


def _kind(fingerprint: str) -> str:
    """Whether the engine computes it, or keeps it as the state of a topic."""
    try:
        return str(loads(fingerprint).get("kind", "view"))
    except ValueError:  # not the engine's
        return "view"


def _shown(value: Any) -> Any:
    """A value for people: a window by its start and end, a time without what is always the same."""
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{_shown(value['start'])} to {_shown(value['end'])}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S") + (f".{value.microsecond:06d}".rstrip("0").rstrip("."))
    if isinstance(value, bytes):  # sketches, mostly
        return f"{len(value)} bytes"
    if isinstance(value, date):
        return str(value)
    return value
