"""`headwater serve`: the HTTP API and the dashboard of an application."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note, say
from headwater.cli.stream_options import Application, Data, Store, stream_settings

if TYPE_CHECKING:
    from headwater.streams.settings import StreamSettings

LEASH = "HEADWATER_SERVE_LEASH"  # as the server calls it; to import it from there would cost its start


def register(app: typer.Typer) -> None:
    app.command("serve", short_help="Serve an application's views, topics and dashboard over HTTP.")(serve)


def serve(
    application: Application,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", metavar="PORT", min=0, max=65535, help="The port; 0 is a free one. [8080]"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="The address; one that others can reach needs a token and TLS. [127.0.0.1]",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Ask for the token in this file. Else HEADWATER_TOKEN."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin",
            metavar="ORIGIN",
            help="Let pages of this origin read and write, such as https://shop.example. May be repeated.",
        ),
    ] = None,
    ui: Annotated[
        bool | None,
        typer.Option("--ui/--no-ui", help="Whether the dashboard is served, too. [--ui]", show_default=False),
    ] = None,
    data: Data = None,
    store: Store = None,
    bootstrap: options.Bootstrap = None,
    properties: options.Properties = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="Stop by itself after so many seconds.")
    ] = None,
) -> None:
    """Serve the views, the topics and the dashboard of an application over HTTP, until it is interrupted.

    It reads the view store and the log that `headwater run` writes; /openapi.json describes what it answers.
    `headwater up` does all of it at once.

    \b
    Examples:
      headwater serve shop.py
      headwater serve shop.py --listen 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem
    """
    from headwater.serve.running import run
    from headwater.serve.settings import load_serve_settings
    from headwater.streams.loading import load_app

    logging.basicConfig(level=logging.WARNING, format="headwater: %(message)s", stream=sys.stderr)
    logging.getLogger("headwater.client.librdkafka").setLevel(logging.CRITICAL)
    app = load_app(application)
    app.graph()
    settings = load_serve_settings(
        listen=listen,
        port=port,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        origins=origin or (),
        dashboard=ui,
    )

    def ready(url: str) -> None:
        if os.environ.get(LEASH):  # beside others, whose standard output is not ours
            note(f"{app.name} is served at {url}")
        else:
            say(f"headwater serve ready at {url}")
            sys.stdout.flush()

    streams = stream_settings(application, data, store, None, bootstrap, properties)
    run(app, streams, settings, ready, seconds)


@contextmanager
def served(
    application: str, settings: "StreamSettings", properties: list[str], port: int | None
) -> Iterator[None]:
    """The server runs beside what the block does, which neither waits for it nor fails with it."""
    from headwater.cli.children import keep

    command = ["serve", application, "--data", str(settings.data)]
    command += ["--port", str(port)] if port is not None else []
    command += ["--store", settings.store, "--bootstrap", settings.bootstrap]
    for each in properties:
        command += ["-X", each]
    stopping = threading.Event()
    keeper = threading.Thread(target=keep, args=("the server", command, LEASH, stopping), name="server")
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.join()
