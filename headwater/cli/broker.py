"""`headwater broker`: run the embedded broker."""

from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


def register(app: typer.Typer) -> None:
    app.command("broker", short_help="Run the embedded broker.")(broker)


def broker(
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Where the log is kept; made when it is not there. "
            "Else HEADWATER_DATA, `data` in headwater.toml, .headwater.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="HOST", help=f"The address to listen on and to be reached at. [{DEFAULT_HOST}]"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            metavar="PORT",
            min=0,
            max=65535,
            help=f"The port; 0 for any free one. [{DEFAULT_PORT}]",
        ),
    ] = None,
    auto_create: Annotated[
        bool | None,
        typer.Option(
            "--auto-create/--no-auto-create",
            help="Whether a client makes a topic by using it. [--auto-create]",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, help="Partitions of a topic when nobody says how many. [1]"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A broker property by Kafka's name, such as log.retention.hours=24; may be repeated.",
        ),
    ] = None,
) -> None:
    """Run the broker until it is interrupted.

    It prints one line with its address when it is ready. SIGTERM or Ctrl-C finishes what is in flight and
    closes the log.

    \b
    Examples:
      headwater broker
      headwater broker --data /var/lib/headwater --port 9092 --set log.retention.hours=24
    """
    from headwater.broker.server import run
    from headwater.broker.settings import BrokerSettings
    from headwater.client.settings import flatten, load_settings, parse_pairs
    from headwater.errors import BadInput

    if data == "":
        raise BadInput("use", "--data", "it is empty", "Name a directory; '.' is the one you are in.")
    settings = load_settings(data=None if data is None else Path(data))
    table = settings.broker

    def chosen(flag: Any, key: str, kind: type, default: Any) -> Any:
        value = flag if flag is not None else table.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            cause = f"'broker.{key}' must be of type {kind.__name__}"
            raise BadInput("read", "headwater.toml", cause, "Correct the file.")
        return value

    run(
        BrokerSettings(
            data=settings.data,
            host=chosen(host, "host", str, DEFAULT_HOST),
            port=chosen(port, "port", int, DEFAULT_PORT),
            auto_create_topics=chosen(auto_create, "auto_create_topics", bool, True),
            default_partitions=chosen(partitions, "default_partitions", int, 1),
            overrides=flatten(chosen(None, "settings", dict, {})) | parse_pairs(set_ or (), "--set"),
        )
    )
