"""The flags that the verbs of applications share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headwater.errors import HeadwaterError
    from headwater.streams.settings import StreamSettings

Application = Annotated[
    str,
    typer.Argument(metavar="APP.PY", help="The application's file; FILE:NAME when it holds several."),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Where checkpoints, views and the embedded log are kept. "
        "Else HEADWATER_DATA, `data` in headwater.toml, .headwater beside the application.",
    ),
]
Metrics = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve Prometheus metrics on this port of loopback.",
    ),
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", metavar="N", help="Stop by itself after so many seconds.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The view store: sqlite:///FILE or postgresql://... Else HEADWATER_STORE, views.db in the data.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="The Spark master. Else HEADWATER_SPARK_MASTER, this process."
    ),
]


def stream_settings(
    application: str | None = None,
    data: Path | None = None,
    store: str | None = None,
    master: str | None = None,
    bootstrap: str | None = None,
    properties: list[str] | None = None,
) -> "StreamSettings":
    """The settings that flags, environment and headwater.toml ask for."""
    from headwater.streams.settings import load_stream_settings

    file = Path(application.partition(":")[0]).resolve() if application else None
    return load_stream_settings(
        application=file,
        data=data,
        store=store,
        master=master,
        bootstrap=bootstrap,
        properties=properties or (),
    )


def has_store(settings: "StreamSettings") -> bool:
    """Whether the view store is there. To open one that is not would make it, and who only looks should not."""
    file = settings.store.removeprefix("sqlite:///")
    return file == settings.store or Path(file).exists()


def no_store(operation: str, view: str, settings: "StreamSettings") -> "HeadwaterError":
    """The error for a view that is asked for where no store is."""
    from headwater.errors import UnknownView

    cause = f"no application has kept views in {settings.store}"
    return UnknownView(operation, view, cause, "Start it with `headwater up`, or name its --data or --store.")
