"""Running an application's sources and sinks: one in this process, several in a process each."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.children import EXPLAINED, keep

if TYPE_CHECKING:
    from headwater.connect.declaration import SourceDeclaration
    from headwater.connect.sinks.declaration import SinkDeclaration
    from headwater.streams.app import App
    from headwater.streams.settings import StreamSettings

Only = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Only this source or sink of the application.")
]

LEASH = "HEADWATER_CONNECT_LEASH"  # set for a child that ends when its standard input does


def chosen(app: "App", only: str | None) -> "list[SourceDeclaration | SinkDeclaration]":
    """The sources and sinks asked for."""
    from headwater.client.faults import did_you_mean
    from headwater.errors import BadInput

    sources = app.connectors
    if not sources:
        step = "Declare one: app.source(hw.cdc(...)), or app.sink(hw.redis(...))."
        raise BadInput("run the sources and sinks of", app.name, "the application has none", step)
    if only is None:
        return sources
    named = [source for source in sources if source.name == only]
    if not named:
        known = [source.name for source in sources]
        step = did_you_mean(only, known, f"It has {', '.join(known)}.")
        raise BadInput("run", f"the source {only}", f"{app.name} has no such source", step)
    return named


def run_sources(
    application: str,
    app: "App",
    settings: "StreamSettings",
    only: str | None,
    properties: list[str],
    metrics_port: int | None,
    seconds: float | None,
) -> None:
    """Runs them until a signal, or the end of a leash, says to stop."""
    from headwater.client.connection import Connection
    from headwater.connect.running import run_source

    logging.basicConfig(level=logging.WARNING, format="headwater: %(message)s", stream=sys.stderr)
    logging.getLogger("headwater.client.librdkafka").setLevel(logging.CRITICAL)
    sources = chosen(app, only)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if os.environ.get(LEASH):
        threading.Thread(target=_follow_leash, args=(stopping,), name="leash", daemon=True).start()
    if seconds is not None:
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stopping.set)
        timer.daemon = True
        timer.start()
    if metrics_port is not None:
        from headwater.connect.metrics import serve_source_metrics

        serve_source_metrics(settings.data, metrics_port)
    if len(sources) > 1:
        _run_each(application, [source.name for source in sources], settings, properties, stopping)
        return
    ready = threading.Event()
    name = f"{getattr(sources[0], 'kind', 'source')} {sources[0].name}"
    threading.Thread(target=_say_ready, args=(ready, name, settings.bootstrap), daemon=True).start()
    connection = Connection(settings.bootstrap, settings.properties)
    run_source(app.name, sources[0], connection, settings.data, stopping, ready)


def _say_ready(ready: threading.Event, name: str, bootstrap: str) -> None:
    ready.wait()
    print(f"headwater {name} ready on {bootstrap}", flush=True)


def _follow_leash(stopping: threading.Event) -> None:
    """Standard input ends with whoever holds its other end, however that ends."""
    while os.read(0, 4096):
        pass
    stopping.set()


def _command(
    application: str, settings: "StreamSettings", properties: list[str], only: str | None
) -> list[str]:
    command = ["connect", "run", application]
    command += ["--data", str(settings.data), "--bootstrap", settings.bootstrap]
    command += ["--source", only] if only is not None else []
    for each in properties:
        command += ["-X", each]
    return command


@contextmanager
def beside(application: str, settings: "StreamSettings", properties: list[str]) -> Iterator[None]:
    """The sources of an application run beside what the block does; a process that ends is started again."""
    stopping = threading.Event()
    command = _command(application, settings, properties, None)
    keeper = threading.Thread(target=keep, args=("the sources", command, LEASH, stopping), name="sources")
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.join()


def _run_each(
    application: str,
    names: list[str],
    settings: "StreamSettings",
    properties: list[str],
    stopping: threading.Event,
) -> None:
    commands = {name: _command(application, settings, properties, name) for name in names}
    keepers = [
        threading.Thread(target=keep, args=(f"source {name}", command, LEASH, stopping), name=name)
        for name, command in commands.items()
    ]
    for keeper in keepers:
        keeper.start()
    while any(keeper.is_alive() for keeper in keepers):
        time.sleep(0.1)
    if not stopping.is_set():
        raise typer.Exit(EXPLAINED)
