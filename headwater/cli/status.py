"""`headwater status`: how the outputs of running applications are doing."""

from types import SimpleNamespace
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.live import COLUMNS, cells
from headwater.cli.output import note, print_heading, print_json, print_table
from headwater.cli.stream_options import Data, stream_settings


def register(app: typer.Typer) -> None:
    app.command("status", short_help="Show how the outputs of an application are doing.")(status)


def status(
    application: Annotated[
        str | None,
        typer.Argument(metavar="[APP.PY]", help="The application; else all in the data directory."),
    ] = None,
    data: Data = None,
    json: options.Json = False,
) -> None:
    """Show batches, rates, lag, watermark, late and dead of every output.

    It reads what the running application writes into its data directory each second.

    \b
    Examples:
      headwater status shop.py
      headwater status --data /var/lib/shop --json
    """
    from headwater.errors import BadInput
    from headwater.streams.engine.status import StatusFile

    settings = stream_settings(application, data)
    folder = settings.data / "status"
    names = sorted(path.stem for path in folder.glob("*.json"))
    if application is not None:
        from headwater.streams.loading import load_app

        names = [name for name in names if name == load_app(application).name]
    if not names:
        raise BadInput(
            "show the status of",
            application or str(settings.data),
            f"no application has run with the data in {settings.data}",
            "Start it with `headwater up`, or name its --data.",
        )
    for name in names:
        document = StatusFile(settings.data, name).read()
        if document is None:
            continue
        running = "running" if document["running"] else "not running"
        if json:
            for output in document["outputs"]:
                print_json({"application": name, "running": document["running"], **output})
            continue
        print_heading(f"{name}: {running}")
        outputs = [SimpleNamespace(**output) for output in document["outputs"]]
        print_table(
            (*COLUMNS, "guarantee"), [(*cells(output), output.guarantee) for output in outputs], kind=name
        )
        for output in outputs:
            if output.error:
                note(f"{output.name}: {output.error}")
