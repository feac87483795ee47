"""`headwater up` and `headwater run`: run an application, with an embedded broker or on any Kafka."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note
from headwater.cli.stream_options import (
    Application,
    Data,
    Master,
    Metrics,
    Seconds,
    Store,
    stream_settings,
)

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.settings import StreamSettings

BROKER_SECONDS = 30.0
LEASH = "HEADWATER_BROKER_LEASH"  # as the broker calls it; to import it from there would cost its start


def register(app: typer.Typer) -> None:
    app.command("up", short_help="Run an application, and an embedded broker with it.")(up)
    app.command("run", short_help="Run an application on a Kafka that is there.")(run)


def up(
    application: Application,
    port: Annotated[
        int,
        typer.Option(
            "--port", "-p", metavar="PORT", min=0, max=65535, help="The port of the embedded broker."
        ),
    ] = 9092,
    data: Data = None,
    store: Store = None,
    master: Master = None,
    bootstrap: options.Bootstrap = None,
    properties: options.Properties = None,
    metrics_port: Metrics = None,
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65535,
            help="The port of the HTTP server; 0 is a free one. [8080]",
        ),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve/--no-serve",
            help="Whether the HTTP server is started, too. [--serve]",
            show_default=False,
        ),
    ] = True,
    seconds: Seconds = None,
) -> None:
    """Run everything that an application declares, until it is interrupted.

    A broker is started with it, unless --bootstrap, HEADWATER_BOOTSTRAP or headwater.toml names one. Its log
    is kept in the directory `log` of the data. The application's sources and sinks run in
    processes of their own, and so does its HTTP server, as `headwater serve` describes it.

    \b
    Examples:
      headwater up shop.py
      headwater up shop.py --data /var/lib/shop --port 9092 --http 8080
    """
    app = _load(application)
    settings = stream_settings(application, data, store, master, bootstrap, properties)

    def run_here(settings: "StreamSettings") -> None:
        with _server(application, settings, properties or [], http) if serve else nullcontext():
            _run_all(application, app, settings, properties, metrics_port, seconds)

    if _names_a_broker(bootstrap):
        run_here(settings)
        return
    with embedded_broker(settings.data / "log", port) as address:
        run_here(stream_settings(application, data, store, master, address, properties))


def run(
    application: Application,
    data: Data = None,
    store: Store = None,
    master: Master = None,
    bootstrap: options.Bootstrap = None,
    properties: options.Properties = None,
    metrics_port: Metrics = None,
    seconds: Seconds = None,
) -> None:
    """Run the streams of an application, on any Kafka and any Spark, until it is interrupted.

    Its sources and sinks are run by `headwater connect`.

    \b
    Examples:
      headwater run shop.py --bootstrap kafka1:9092,kafka2:9092
      headwater run shop.py --master spark://10.0.0.1:7077 --store postgresql://db/views
    """
    settings = stream_settings(application, data, store, master, bootstrap, properties)
    _run(_load(application), settings, metrics_port, seconds)


def _run_all(
    application: str,
    app: "App",
    settings: "StreamSettings",
    properties: list[str] | None,
    metrics_port: int | None,
    seconds: float | None,
) -> None:
    """Sources and streams; each in a process of its own, since a source takes all of what Python gives a process."""
    from headwater.cli.sources import beside, run_sources

    if not app.connectors:
        _run(app, settings, metrics_port, seconds)
    elif not app.graph().has_work():
        run_sources(application, app, settings, None, properties or [], metrics_port, seconds)
    else:
        with beside(application, settings, properties or []):
            _run(app, settings, metrics_port, seconds)


def _server(
    application: str, settings: "StreamSettings", properties: list[str], port: int | None
) -> AbstractContextManager[None]:
    """The HTTP server in a process of its own; what it cannot start with is refused here, before anything runs."""
    from headwater.cli.serve import served
    from headwater.serve.settings import load_serve_settings

    load_serve_settings(port=port)
    return served(application, settings, properties, port)


def _names_a_broker(bootstrap: str | None) -> bool:
    from headwater.client.settings import BOOTSTRAP_VARIABLE, FILE, read_toml

    document = read_toml(Path.cwd() / FILE)
    return bool(bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or document.get("bootstrap"))


def _load(application: str) -> "App":
    """The application, refused before anything starts when it cannot run."""
    from headwater.streams.loading import load_app

    app = load_app(application)
    app.graph()
    return app


def _run(app: "App", settings: "StreamSettings", metrics_port: int | None, seconds: float | None) -> None:
    from headwater.cli.live import Display
    from headwater.streams.engine.engine import Engine

    logging.basicConfig(level=logging.WARNING, format="headwater: %(message)s", stream=sys.stderr)
    # They tell of every failed call and connection; what cannot go on says so itself, in one line.
    logging.getLogger("headwater.client.librdkafka").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: "py4j" not in record.pathname)
    stopping = threading.Event()
    _stop_on_signals(stopping)
    engine = Engine(app, settings, on_loss=stopping.set)
    note(f"starting {engine.app.name} on {settings.bootstrap}")
    try:
        engine.start()
        _stop_on_signals(stopping)  # again: Spark has put a handler of its own in place, which cancels jobs
        if metrics_port is not None:
            from headwater.streams.engine.metrics import serve_metrics

            serve_metrics(engine, metrics_port)
        print(f"headwater {engine.app.name} ready on {settings.bootstrap}", flush=True)
        Display(engine).show(stopping, seconds)
        if (loss := engine.loss()) is not None:
            raise loss
    finally:
        note(f"stopping {engine.app.name}")
        engine.stop()


def _stop_on_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())


@contextmanager
def embedded_broker(data: Path, port: int) -> Iterator[str]:
    """A broker in a process of its own, which ends with the block, or with this process; gives its address."""
    command = [sys.executable, "-m", "headwater.cli.main", "broker", "--data", str(data), "--port", str(port)]
    # In a group of its own: Ctrl-C reaches the streams first, and the broker ends after them.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, LEASH: "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.search(r"ready at (\S+:\d+)", line)
        if ready is None:
            from headwater.errors import EngineMissing

            process.wait(BROKER_SECONDS)
            raise EngineMissing(
                "start",
                f"a broker on port {port}",
                "it ended at once; its reason is above",
                "Choose another --port, or name a running broker with --bootstrap.",
            )
        yield ready[1]
    finally:
        process.terminate()
        try:
            process.wait(BROKER_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
