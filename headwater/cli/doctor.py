"""`headwater doctor`: whether a database is ready for capture, and how to mend what is not."""

from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note, print_json, print_table


def register(app: typer.Typer) -> None:
    app.command("doctor", short_help="Check whether a database is ready for capture.")(doctor)


def doctor(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="The database: postgresql://, mysql://, mariadb:// or sqlite:///FILE."
        ),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="TABLE", help="A table to look at; may be repeated. Else all."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The name of the capture, if it has another.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check everything that capture needs of a database, and say how to mend what is missing.

    It changes nothing. The exit code is 1 when something stands in the way.

    \b
    Examples:
      headwater doctor postgresql://app@db/shop
      headwater doctor sqlite:///shop.db --table users --json
    """
    from headwater.connect.cdc.factory import examine
    from headwater.connect.cdc.options import CdcOptions

    checks = examine(CdcOptions(url, tables=tuple(tables) if tables else None, name=name))
    if json:
        for check in checks:
            print_json(
                {
                    "what": check.what,
                    "verdict": check.verdict,
                    "found": check.found,
                    "mend": check.mend or None,
                }
            )
    else:
        print_table(
            ("what", "verdict", "found", "mend"),
            [(check.what, check.verdict, check.found, check.mend or None) for check in checks],
        )
    wrong = [check for check in checks if check.stands_in_the_way]
    if wrong:
        note(f"{len(wrong)} of {len(checks)} checks stand in the way of capture")
        raise typer.Exit(1)
    if not json:
        note("capture can begin")
