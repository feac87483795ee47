"""`headwater graph`: draw an application."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.output import print_json, say
from headwater.cli.stream_options import Application


def register(app: typer.Typer) -> None:
    app.command("graph", short_help="Draw what an application reads and computes.")(graph)


def graph(
    application: Application,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Draw it into an SVG file; - for standard output."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a node.")] = False,
) -> None:
    """Draw the graph of an application as text or SVG; it also checks it.

    \b
    Examples:
      headwater graph shop.py
      headwater graph shop.py --svg shop.svg
    """
    from headwater.errors import BadInput
    from headwater.streams.drawing import as_svg, as_text, detail
    from headwater.streams.loading import load_app

    app = load_app(application)
    checked = app.graph()
    if svg is not None:
        drawing = as_svg(app.name, checked)
        if str(svg) == "-":
            say(drawing)
        else:
            try:
                svg.write_text(drawing, "utf-8")
            except OSError as error:
                cause = (error.strerror or str(error)).lower()
                raise BadInput("draw into", str(svg), cause, "Name a file that can be written to.") from error
    elif json:
        for source in checked.sources.values():
            print_json({"name": source.name, "kind": "source", "inputs": [], "detail": source.describe()})
        for node in checked.nodes.values():
            inputs = [*checked.feeding(node), *node.inputs]
            print_json({"name": node.name, "kind": node.kind, "inputs": inputs, "detail": detail(node)})
        for sink in checked.sinks.values():
            topic, place = sink.topic, sink.describe()
            print_json({"name": sink.name, "kind": "sink", "inputs": [topic], "detail": place})
    else:
        say(as_text(app.name, checked))
