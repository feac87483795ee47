"""`headwater jars`: Spark's Kafka connector, fetched once."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note, print_json


def register(app: typer.Typer) -> None:
    app.command("jars", short_help="Fetch the jars of Spark's Kafka connector.")(jars)


def jars(
    repository: Annotated[
        str | None,
        typer.Option(
            "--repository",
            metavar="URL",
            help="A Maven repository. Else HEADWATER_MAVEN, Maven Central.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Where to put them, to be named with HEADWATER_JARS then. Else a cache of the user.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fetch the jars of Spark's Kafka connector that fit the installed pyspark.

    Applications work without them. With them topics can be read by Spark's own connector, which the quick
    path (realtime=True) needs. The jars are kept in a cache; what is there already is not fetched again.

    \b
    Examples:
      headwater jars
      headwater jars --repository https://maven.example.com/central
    """
    from headwater.streams.sources.jars import cache_folder, fetch_jars, pyspark_version

    def show(jar: Path, fetched: bool) -> None:
        if json:
            print_json({"jar": str(jar), "fetched": fetched})
        else:
            print(f"{'fetched' if fetched else 'kept   '}  {jar.name}", flush=True)

    found = fetch_jars(repository, folder=folder, on_jar=show)
    note(f"{len(found)} jars for Spark {pyspark_version()} in {folder or cache_folder()}")
