"""The command `headwater`: its verbs, and how it fails."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from headwater import __version__
from headwater.cli import (
    broker,
    connect,
    consume,
    doctor,
    graph,
    groups,
    jars,
    log,
    produce,
    replay,
    running,
    serve,
    status,
    topics,
    views,
)
from headwater.cli.output import complain, drop_output, finish_output, hold_standard_streams, note
from headwater.errors import HeadwaterError

USAGE, INTERRUPTED = 2, 130

# What all usage errors are; later versions of Typer carry their own copy of Click.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="headwater",
    help="A log that speaks Kafka's protocol, and everything derived from it.\n\n"
    "Start a broker with `headwater broker`, then try `headwater topics`, `produce` and `consume` in another "
    "terminal. All verbs but `broker` and `log` work on any Kafka: name it with --bootstrap.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


broker.register(app)
topics.register(app)
produce.register(app)
consume.register(app)
groups.register(app)
log.register(app)
running.register(app)
status.register(app)
graph.register(app)
views.register(app)
replay.register(app)
jars.register(app)
connect.register(app)
doctor.register(app)
serve.register(app)


def run() -> NoReturn:
    """The entry point: every failure is one line on standard error and a non-zero exit."""
    hold_standard_streams()
    code: object
    try:
        code = app(standalone_mode=False)
        finish_output()
    except HeadwaterError as error:
        complain(str(error))
        code = 1
    except _ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group of verbs without one of them
            note(error.format_message())  # type: ignore[attr-defined]
        else:
            complain(_usage(error))
        code = USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if os.environ.get("HEADWATER_DEBUG"):
            raise
        complain(f"internal error: {type(error).__name__}: {error}. Set HEADWATER_DEBUG=1 to see where.")
        code = 1
    drop_output()
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> str:
    message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "headwater"
    return f"{message}. See `{path} --help`."


if __name__ == "__main__":
    run()
