"""The flags that many verbs share, and what becomes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headwater.client.connection import Connection

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Where the broker is; several addresses with commas. "
        "Else HEADWATER_BOOTSTRAP, `bootstrap` in headwater.toml, 127.0.0.1:9092.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        metavar="FILE",
        help="Client properties as key=value lines, for secured clusters. Else HEADWATER_CONFIG_FILE.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--property",
        metavar="KEY=VALUE",
        help="A client property by librdkafka's name; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def connect(bootstrap: str | None, config_file: Path | None, properties: list[str] | None) -> "Connection":
    """The connection that flags, environment and headwater.toml ask for."""
    from headwater.client.connection import Connection
    from headwater.client.settings import load_settings

    settings = load_settings(bootstrap=bootstrap, config_file=config_file, properties=properties or ())
    return Connection(settings.bootstrap, settings.properties)


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere nobody could answer, and a script means what it says."""
    import sys

    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(question, abort=True, err=True)
