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
    quick: Annotated[
        bool, typer.Option("--quick", help="Check checksums and indexes, but do not open the batches.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Verify a data directory, without a broker and without changing anything.

    Reads every record batch and index entry and names each fault with its file and position. Exits with 1
    when there is one. A warning is no fault: a killed broker leaves a torn end, for one, and the next start
    cuts it off. While a broker writes to the directory, the end of a file may look torn as well.

    \b
    Examples:
      headwater log check .headwater
      headwater log check /var/lib/headwater --json
    """
    from headwater.client.settings import load_settings
    from headwater.log.check import WARNING, check_directory

    path = load_settings(data=directory).data
    faults = warnings = 0
    rows = []
    for finding in check_directory(path, deep=not quick):
        is_warning = finding.severity == WARNING
        faults, warnings = faults + (not is_warning), warnings + is_warning
        position = finding.position if finding.position >= 0 else None
        if json:
            print_json(
                {
                    "path": str(finding.path),
                    "position": position,
                    "severity": finding.severity,
                    "kind": finding.kind,
                    "message": finding.message,
                }
            )
        else:
            rows.append((finding.path, position, finding.severity, finding.kind, finding.message))
    if rows:
        print_table(("file", "position", "severity", "kind", "message"), rows)
    sys.stdout.flush()
    told = [_count(faults, "fault")] if faults else ["no fault"]
    told += [_count(warnings, "warning")] if warnings else []
    note(f"{path}: {', '.join(told)} found")
    if faults:
        raise typer.Exit(1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
