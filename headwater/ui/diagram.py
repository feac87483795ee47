"""Where the boxes and lines of an application's graph go. Pure.

Boxes stand in columns from left to right, each behind what it reads. A line that passes a column gets a place in
it like a box, so that it does not run through one. The order within columns is that of neighbours' mean (Sugiyama's
method), which keeps crossings few.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.streams.graph import Graph

WIDTH, HEIGHT = 196, 57
GAP_X, GAP_Y = 150, 18
PASSAGE = 34  # the height that a passing line takes in a column
MARGIN = 14
LABEL = (120, 36)  # of a line's figures
SWEEPS = 6


@dataclass(frozen=True)
class Box:
    """A node. ``id`` is its name; of sources and sinks ``source NAME`` and ``sink NAME``."""

    id: str
    name: str
    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """An edge: its path as SVG draws it, and where its figures stand."""

    source: str
    target: str
    path: str
    label: tuple[float, float]


@dataclass(frozen=True)
class Diagram:
    """A whole drawing."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def source_id(name: str) -> str:
    """How a source is called among boxes; no node has a space in its name."""
    return f"source {name}"


def sink_id(name: str) -> str:
    """How a sink is called among boxes."""
    return f"sink {name}"


def edges_of(graph: Graph) -> list[tuple[str, str]]:
    """Who gives to whom, sources and sinks among them."""
    edges = [
        (source_id(source), node.name) for node in graph.nodes.values() for source in graph.feeding(node)
    ]
    edges += graph.edges()
    for sink in graph.sinks.values():
        followed = graph.followed(sink) or [
            source_id(name) for name, source in graph.sources.items() if source.feeds(sink.topic)
        ]
        edges += [(name, sink_id(sink.name)) for name in followed]
    return list(dict.fromkeys(edges))


def draw(graph: Graph) -> Diagram:
    """The drawing of an application.

    >>> from headwater.streams.declarations import Format, Stream
    >>> [box.name for box in draw(Graph.of([Stream("clicks", "clicks", "page string", Format("json"))])).boxes]
    ['clicks']
    """
    named = {source_id(name): (name, "source") for name in graph.sources}
    named |= {node.name: (node.name, node.kind) for node in graph.nodes.values()}
    named |= {sink_id(name): (name, "sink") for name in graph.sinks}
    edges = edges_of(graph)
    depth = columns_of(named, edges)
    place: dict[str, tuple[float, float]] = {}
    chains: dict[tuple[str, str], Chain] = {}
    bottom = 0.0
    for part in _parts(named, edges):  # what has nothing to do with each other stands one below the other
        own = _chains([edge for edge in edges if edge[0] in part], depth)
        found = _placed(_ordered(part, {name: depth[name] for name in part}, own), own)
        place |= {name: (x, y + bottom) for name, (x, y) in found.items()}
        bottom = max(y + _height(name) for name, (_, y) in place.items()) + GAP_Y - MARGIN
        chains |= own
    boxes = tuple(Box(name, label, kind, *place[name]) for name, (label, kind) in named.items())
    columns = max(depth.values(), default=-1) + 1
    return Diagram(
        width=2 * MARGIN + columns * WIDTH + max(0, columns - 1) * GAP_X,
        height=bottom - GAP_Y + 2 * MARGIN,
        boxes=boxes,
        lines=_lines(chains, place),
    )


def _parts(names: Iterable[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The names in groups that lines hold together."""
    group = {name: name for name in names}
    for source, target in edges:
        old, new = group[target], group[source]
        if old != new:
            group = {name: new if each == old else each for name, each in group.items()}
    return [[name for name in group if group[name] == each] for each in dict.fromkeys(group.values())]


def columns_of(names: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The column of each node: behind all that it reads, and as near to its readers as that allows.

    >>> columns_of("abcd", [("a", "b"), ("b", "c"), ("d", "c")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 1}
    """
    depth = dict.fromkeys(names, 0)
    for _ in depth:
        for source, target in edges:
            depth[target] = max(depth[target], depth[source] + 1)
    sources = {target for _, target in edges}
    for name in depth:
        readers = [depth[target] for source, target in edges if source == name]
        if name not in sources and readers:  # what nothing feeds can move
            depth[name] = min(readers) - 1
    return depth


Chain = tuple[str, ...]


def _chains(edges: Sequence[tuple[str, str]], depth: Mapping[str, int]) -> dict[tuple[str, str], Chain]:
    """Each edge as the places that it goes through; one such as ``a > b @ 2`` is its passage through column 2."""
    return {
        (source, target): (
            source,
            *(f"{source} > {target} @ {column}" for column in range(depth[source] + 1, depth[target])),
            target,
        )
        for source, target in edges
    }


def _is_passage(name: str) -> bool:
    return " @ " in name


def _height(name: str) -> float:
    return PASSAGE if _is_passage(name) else HEIGHT


def _ordered(
    names: Iterable[str], depth: Mapping[str, int], chains: Mapping[tuple[str, str], Chain]
) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]  # some may be empty
    for name in names:
        columns[depth[name]].append(name)
    for chain in chains.values():
        for passage in chain[1:-1]:
            columns[int(passage.rpartition(" @ ")[2])].append(passage)
    before, after = _neighbours(chains)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for column in columns if forward else columns[::-1]:
            rank = {name: row for each in columns for row, name in enumerate(each)}
            size = {name: len(each) for each in columns for name in each}
            column.sort(
                key=lambda name, rank=rank, size=size, near=neighbours: (  # type: ignore[misc]
                    sum((rank[other] + 0.5) / size[other] for other in near[name]) / len(near[name])
                    if near.get(name)
                    else (rank[name] + 0.5) / size[name]
                )
            )
    return columns


def _neighbours(chains: Mapping[tuple[str, str], Chain]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for chain in chains.values():
        for left, right in pairwise(chain):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    return before, after


def _placed(
    columns: Sequence[Sequence[str]], chains: Mapping[tuple[str, str], Chain]
) -> dict[str, tuple[float, float]]:
    """Each at the mean height of its neighbours, as far as the order and the distances allow."""
    before, after = _neighbours(chains)
    top: dict[str, float] = {}
    for column in columns:
        y = 0.0
        for name in column:
            top[name] = y
            y += _height(name) + GAP_Y
    for sweep in range(2 * SWEEPS):
        near = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            wanted = [
                sum(top[other] + _height(other) / 2 for other in near[name]) / len(near[name])
                - _height(name) / 2
                if near.get(name)
                else top[name]
                for name in column
            ]
            top.update(zip(column, _apart(wanted, [_height(name) for name in column]), strict=True))
    least = min(top.values(), default=0.0)
    return {
        name: (MARGIN + number * (WIDTH + GAP_X), MARGIN + top[name] - least)
        for number, column in enumerate(columns)
        for name in column
    }


def _apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Tops near those wanted, in order, none closer than the gap: pushed down, then the surplus shared upwards."""
    tops: list[float] = []
    for number, want in enumerate(wanted):
        tops.append(max(want, tops[-1] + heights[number - 1] + GAP_Y) if tops else want)
    shift = sum(want - top for want, top in zip(wanted, tops, strict=True)) / len(tops) if tops else 0.0
    return [top + shift for top in tops]


def _lines(
    chains: Mapping[tuple[str, str], Chain], place: Mapping[str, tuple[float, float]]
) -> tuple[Line, ...]:
    taken: list[tuple[float, float]] = []
    lines = []
    for (source, target), chain in chains.items():
        curves = [_curve(place[left], left, place[right], right) for left, right in pairwise(chain)]
        path = " ".join(
            f"M{a[0]:.0f},{a[1]:.0f} C{m:.0f},{a[1]:.0f} {m:.0f},{b[1]:.0f} {b[0]:.0f},{b[1]:.0f}"
            for a, m, b in curves
        )
        for passage in chain[1:-1]:
            x, y = place[passage]
            path += f" M{x:.0f},{y + PASSAGE / 2:.0f} L{x + WIDTH:.0f},{y + PASSAGE / 2:.0f}"
        label = _label(curves[-1], taken)
        taken.append(label)
        lines.append(Line(source, target, path, label))
    return tuple(lines)


Curve = tuple[tuple[float, float], float, tuple[float, float]]


def _curve(start: tuple[float, float], left: str, stop: tuple[float, float], right: str) -> Curve:
    begin = (start[0] + WIDTH, start[1] + _height(left) / 2)
    end = (stop[0] - (0 if _is_passage(right) else 5), stop[1] + _height(right) / 2)
    return begin, (begin[0] + end[0]) / 2, end


def _label(curve: Curve, taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """On the middle of the curve, or as near to it as other labels allow."""
    begin, middle, end = curve
    best, least = (middle, (begin[1] + end[1]) / 2), float("inf")
    for share in (0.5, 0.58, 0.42, 0.66, 0.34, 0.74, 0.26, 0.85, 0.15):
        back = 1 - share
        y = begin[1] * (back**3 + 3 * back**2 * share) + end[1] * (3 * back * share**2 + share**3)
        overlap = sum(
            max(0.0, LABEL[1] - abs(y - other[1])) for other in taken if abs(other[0] - middle) < LABEL[0]
        )
        if overlap < least:
            best, least = (middle, y), overlap
        if not overlap:
            break
    return best
