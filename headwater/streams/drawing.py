"""The graph of an application as text and as SVG. Pure."""

from collections.abc import Mapping
from html import escape

from headwater.streams.declarations import Files, Node, Stream, Table, Topic, View
from headwater.streams.graph import Graph

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 210, 54, 70, 22, 24
_COLOURS = {
    "source": "#c05621",
    "stream": "#2b6cb0",
    "table": "#6b46c1",
    "view": "#2f855a",
    "topic": "#b7791f",
    "files": "#4a5568",
    "sink": "#97266d",
}


def detail(node: Node) -> str:
    """What a box says below the name.

    >>> from headwater.streams.declarations import Format
    >>> detail(Stream("clicks", "shop.clicks", "page string", Format("json"), time="at"))
    'topic shop.clicks, time at'
    """
    if isinstance(node, Stream):
        return f"topic {node.topic}" + (f", time {node.time}" if node.time else "")
    if isinstance(node, Table):
        return f"topic {node.topic}, key {', '.join(node.key)}"
    if isinstance(node, View):
        return f"key {', '.join(node.key)}" + (f", version {node.version}" if node.version > 1 else "")
    if isinstance(node, Topic):
        return f"topic {node.topic}" + (", real time" if node.realtime else "")
    assert isinstance(node, Files)
    return f"files {node.path}"


def as_text(name: str, graph: Graph) -> str:
    """A line for each node, with what it reads.

    >>> from headwater.streams.declarations import Format
    >>> print(as_text("shop", Graph.of([Stream("clicks", "clicks", "page string", Format("json"))])))
    shop
      stream  clicks    topic clicks
    """
    names = [*graph.nodes, *graph.sources, *graph.sinks]
    width = max((len(each) for each in names), default=0) + 2
    lines = [name]
    lines += [f"  {'source':<6}  {each.name:<{width}}  {each.describe()}" for each in graph.sources.values()]
    for node in graph.nodes.values():
        inputs = [*graph.feeding(node), *node.inputs]
        reads = f"   <- {', '.join(inputs)}" if inputs else ""
        lines.append(f"  {node.kind:<6}  {node.name:<{width}}  {detail(node)}{reads}")
    for sink in graph.sinks.values():
        lines.append(f"  {'sink':<6}  {sink.name:<{width}}  {sink.describe()}   <- topic {sink.topic}")
    return "\n".join(lines)


def layers(graph: Graph) -> dict[str, int]:
    """How far each node is from the inputs.

    >>> from headwater.streams.declarations import Format
    >>> layers(Graph.of([Stream("clicks", "clicks", "page string", Format("json"))]))
    {'clicks': 0}
    """
    depth: dict[str, int] = {}
    for node in graph.nodes.values():
        depth[node.name] = max((depth[source] + 1 for source in node.inputs), default=0)
    return depth


def as_svg(name: str, graph: Graph, notes: Mapping[str, str] | None = None) -> str:
    """Boxes from left to right, inputs first. `notes` are a further line in a box: a rate, a lag."""
    columns: dict[int, list[str]] = {}
    if graph.sources:
        columns[0] = [_box(source) for source in graph.sources]
    for name_of_node, layer in layers(graph).items():
        columns.setdefault(layer + bool(graph.sources), []).append(name_of_node)
    if graph.sinks:
        columns[max(columns, default=-1) + 1] = [_box(sink, "sink") for sink in graph.sinks]
    place = {
        each: (MARGIN + layer * (WIDTH + GAP_X), MARGIN + 28 + row * (HEIGHT + GAP_Y))
        for layer, names in columns.items()
        for row, each in enumerate(names)
    }
    right = max((x + WIDTH for x, _ in place.values()), default=WIDTH) + MARGIN
    bottom = max((y + HEIGHT for _, y in place.values()), default=HEIGHT) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right}" height="{bottom}" '
        f'viewBox="0 0 {right} {bottom}" font-family="system-ui, sans-serif">',
        '<defs><marker id="arrow" markerWidth="9" markerHeight="7" refX="8" refY="3.5" orient="auto">'
        '<path d="M0,0 L9,3.5 L0,7 z" fill="#a0aec0"/></marker></defs>',
        f'<text x="{MARGIN}" y="{MARGIN + 6}" font-size="15" font-weight="600" fill="#4a5568">'
        f"{escape(name)}</text>",
    ]
    feeds = [(_box(source), node.name) for node in graph.nodes.values() for source in graph.feeding(node)]
    follows = [
        (followed, _box(sink.name, "sink"))
        for sink in graph.sinks.values()
        for followed in graph.followed(sink) or _sources(graph, sink.topic)
    ]
    for source, reader in [*feeds, *graph.edges(), *follows]:
        (x1, y1), (x2, y2) = place[source], place[reader]
        begin, end = (x1 + WIDTH, y1 + HEIGHT // 2), (x2 - 2, y2 + HEIGHT // 2)
        middle = (begin[0] + end[0]) // 2
        parts.append(
            f'<path d="M{begin[0]},{begin[1]} C{middle},{begin[1]} {middle},{end[1]} {end[0]},{end[1]}" '
            'fill="none" stroke="#a0aec0" stroke-width="1.5" marker-end="url(#arrow)"/>'
        )
    parts += [
        _drawn(each.name, "source", each.describe(), *place[_box(each.name)])
        for each in graph.sources.values()
    ]
    parts += [
        _drawn(each.name, "sink", each.describe(), *place[_box(each.name, "sink")])
        for each in graph.sinks.values()
    ]
    for node in graph.nodes.values():
        note = (notes or {}).get(node.name, detail(node))
        parts.append(_drawn(node.name, node.kind, note, *place[node.name]))
    parts.append("</svg>")
    return "\n".join(parts)


def _box(name: str, kind: str = "source") -> str:
    """The place of a source or a sink; no node is called so."""
    return f"{kind} {name}"


def _sources(graph: Graph, topic: str) -> list[str]:
    return [_box(name) for name, source in graph.sources.items() if source.feeds(topic)]


def _drawn(name: str, kind: str, note: str, x: int, y: int) -> str:
    colour = _COLOURS[kind]
    return (
        f'<g><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="#fff" '
        f'stroke="{colour}" stroke-width="1.5"/>'
        f'<text x="{x + 12}" y="{y + 22}" font-size="13" font-weight="600" fill="#1a202c">'
        f"{escape(_short(name, 22))}</text>"
        f'<text x="{x + WIDTH - 12}" y="{y + 22}" font-size="11" text-anchor="end" fill="{colour}">'
        f"{kind}</text>"
        f'<text x="{x + 12}" y="{y + 41}" font-size="11" fill="#718096">'
        f"{escape(_short(note, 34))}</text></g>"
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
