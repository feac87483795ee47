"""`headwater log`: the files of the log, offline."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note, print_json, print_table

app = typer.Typer(
    help="Look after the files of the log.", no_args_is_help=True, rich_markup_mode=None
)  # fmt: skip


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="log")


@app.callback()
def log() -> None:
    """Look after the files of the log."""


@app.command("check")
def check(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="The data directory. Else HEADWATER_DATA, headwater.toml, .headwater."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Verify a data directory, without a broker and without changing anything.

    Reads every record batch and index entry and names each fault with its file and position. Exits with 0
    when there is none and with 1 otherwise. While a broker writes to the directory, the end of a file may
    look torn.

    \b
    Examples:
      headwater log check .headwater
      headwater log check /var/lib/headwater --json
    """
    from headwater.client.settings import load_settings
    from headwater.errors import BadInput
    from headwater.log.check import check_directory

    path = load_settings(data=directory).data
    if not path.is_dir():
        raise BadInput("check", str(path), "there is no such directory", "Name a data directory.")
    findings = 0
    rows = []
    for finding in check_directory(path):
        findings += 1
        if json:
            print_json(
                {
                    "path": str(finding.path),
                    "position": finding.position,
                    "severity": str(finding.severity),
                    "kind": str(finding.kind),
                    "message": finding.message,
                }
            )
        else:
            rows.append((finding.path, finding.position, finding.severity, finding.kind, finding.message))
    if rows:
        print_table(("file", "position", "severity", "kind", "message"), rows)
    sys.stdout.flush()
    if findings:
        note(f"{path}: {findings} fault{'s' if findings > 1 else ''} found")
        raise typer.Exit(1)
    note(f"{path}: no fault found")
