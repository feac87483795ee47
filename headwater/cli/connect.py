"""`headwater connect`: run the sources and sinks of an application, watch them, and ask things of them."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli import options
from headwater.cli.output import note, print_json, print_table, say
from headwater.cli.sources import Only, run_sources
from headwater.cli.stream_options import Application, Data, Metrics, Seconds, stream_settings


class _Group(TyperGroup):
    """`headwater connect app.py` is short for `headwater connect run app.py`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, cls=_Group)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="connect")


@app.callback()
def connect() -> None:
    """Run the sources and sinks of an application: `headwater connect app.py`; watch them, and ask things of them."""


@app.command("run")
def run(
    application: Application,
    only: Only = None,
    data: Data = None,
    bootstrap: options.Bootstrap = None,
    properties: options.Properties = None,
    metrics_port: Metrics = None,
    seconds: Seconds = None,
) -> None:
    """Bring what happens outside into the log, and what is in the log to what follows it, until it is interrupted.

    Each source and each sink keeps its position with what it writes: it may be stopped or killed at any moment, and
    goes on where it was. Of several each gets a process of its own.

    \b
    Examples:
      headwater connect shop.py
      headwater connect run shop.py --source shop --bootstrap kafka1:9092
    """
    from headwater.streams.loading import load_app

    settings = stream_settings(application, data, None, None, bootstrap, properties)
    run_sources(application, load_app(application), settings, only, properties or [], metrics_port, seconds)


@app.command("status")
def status(
    application: Annotated[
        str | None,
        typer.Argument(metavar="[APP.PY]", help="The application; else all in the data directory."),
    ] = None,
    data: Data = None,
    json: options.Json = False,
) -> None:
    """Show where each source and each sink is: position, lag, rate, and how far snapshots are.

    It reads what they write, while they run, into the data directory twice a second.

    \b
    Examples:
      headwater connect status shop.py
      headwater connect status --data /var/lib/shop --json
    """
    from headwater.connect.status import read_sink_statuses, read_statuses
    from headwater.errors import BadInput

    settings = stream_settings(application, data)
    documents, sinks = read_statuses(settings.data), read_sink_statuses(settings.data)
    if application is not None:
        from headwater.streams.loading import load_app

        names = {connector.name for connector in load_app(application).connectors}
        documents = [document for document in documents if document["name"] in names]
        sinks = [document for document in sinks if document["name"] in names]
    if not documents and not sinks:
        cause = f"no source and no sink has run with the data in {settings.data}"
        step = "Start it with `headwater connect APP.PY` or `headwater up`, or name its --data."
        raise BadInput("show the status of", application or str(settings.data), cause, step)
    if json:
        for document in [*documents, *sinks]:
            print_json(document)
        return
    if documents:
        print_table(COLUMNS, [_cells(document) for document in documents], kind="source")
        _show_snapshots(documents)
    if sinks:
        print_table(SINK_COLUMNS, [_sink_cells(document) for document in sinks], kind="sink")
    for document in [*documents, *sinks]:
        if document["error"]:
            note(f"{document['name']}: {document['error']}")
        for remark in document.get("notes") or document.get("source", {}).get("notes", ()):
            note(f"{document['name']}: {remark}")


COLUMNS = ("source", "state", "position", "records", "rate", "lag s", "lag bytes", "restarts")


SINK_COLUMNS = ("sink", "state", "topic", "offset", "records", "rate", "lag", "lag s", "dead", "restarts")


def _state(document: dict[str, Any]) -> str:
    over = document["state"] in ("failed", "stopped")
    return str(document["state"]) if document["running"] or over else "gone"


def _sink_cells(document: dict[str, Any]) -> tuple[Any, ...]:
    lag = document["lag_seconds"]
    return (
        document["name"],
        _state(document),
        document["topic"],
        document["position"] or None,
        document["counts"]["records"],
        round(document["rate"]),
        document["lag_records"],
        None if lag is None else round(lag, 3),
        document["counts"]["dead"],
        document["restarts"],
    )


def _cells(document: dict[str, Any]) -> tuple[Any, ...]:
    source = document["source"]
    lag = source["lag_seconds"]
    return (
        document["name"],
        _state(document),
        source["position"] or None,
        document["records"],
        round(document["rate"]),
        None if lag is None else round(lag, 3),
        source["lag_bytes"],
        document["restarts"],
    )


def _show_snapshots(documents: list[dict[str, Any]]) -> None:
    """A bar a table on a terminal, a line a table elsewhere."""
    import sys

    tables = [(document["name"], each) for document in documents for each in document["source"]["snapshot"]]
    if not sys.stdout.isatty():
        rows = [
            (name, each["table"], each["rows"], each["total"], "done" if each["done"] else "reading")
            for name, each in tables
        ]
        print_table(("source", "table", "rows", "of", "state"), rows, kind="snapshot")
        return
    if not tables:
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        auto_refresh=False,
    )
    for name, each in tables:
        total = each["rows"] if each["done"] else each["total"]
        bars.add_task(
            f"{name}.{each['table']}",
            total=max(total, each["rows"]) if total else None,
            completed=each["rows"],
        )
    Console().print(bars.get_renderable())


@app.command("signal")
def signal(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="snapshot, stop-snapshot, pause or resume.")],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", "-t", metavar="TABLE", help="The table it is about; may be repeated. Else all."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Read only rows for which this condition holds."),
    ] = None,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Ask a source to read tables again, or to pause with that; changes flow all the while.

    The signal lies in the log: a source that is not running takes it when it starts, and each is taken once.

    \b
    Examples:
      headwater connect signal shop snapshot --table orders --where "id > 1000"
      headwater connect signal shop pause
    """
    from headwater.connect.positions import POSITIONS, all_standings
    from headwater.connect.signals import KINDS, send_signal
    from headwater.connect.source import Signal
    from headwater.errors import BadInput, UnknownTopic

    if kind not in KINDS:
        raise BadInput(
            "send", f"the signal {kind}", "there is no such signal", f"Use one of {', '.join(KINDS)}."
        )
    if where and (kind != "snapshot" or not tables):
        raise BadInput(
            "send", f"the signal {kind}", "--where needs a snapshot of named tables", "Add --table."
        )
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin

    admin = Admin(connection)
    try:
        known = all_standings(connection, admin)
    except UnknownTopic:
        known = {}
    if source not in known:
        names = ", ".join(sorted(known)) or "none"
        cause = f"{POSITIONS} has no such source; it has {names}"
        raise BadInput("send a signal to", source, cause, "Start the source once, or correct the name.")
    send_signal(connection, source, Signal(kind, tuple(tables or ()), where))  # type: ignore[arg-type]
    say(f"sent {kind} to {source}")


@app.command("remove")
def remove(
    application: Application,
    only: Only = None,
    yes: options.Yes = False,
) -> None:
    """Take out of the databases what capture has made there: slots, publications, triggers and changelogs.

    The topics stay as they are. A source that is started afterwards reads its tables from the beginning.

    \b
    Examples:
      headwater connect remove shop.py
      headwater connect remove shop.py --source shop --yes
    """
    from headwater.cli.sources import chosen
    from headwater.connect.cdc.factory import Capture
    from headwater.streams.loading import load_app

    sources = [source for source in chosen(load_app(application), only) if isinstance(source, Capture)]
    if not sources:
        from headwater.errors import BadInput

        cause = "nothing of it captures a database"
        raise BadInput("remove", only or application, cause, "Name a source that does.")
    names = ", ".join(source.name for source in sources)
    options.confirm(f"Remove the capture of {names}? Changes from now on are not seen.", yes)
    from headwater.connect.cdc.removal import remove_capture

    for source in sources:
        there = remove_capture(source.options)
        say(f"removed {source.name}" if there else f"{source.name}: nothing was there")
