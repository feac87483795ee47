"""Tokens for reading one's own writes: which offsets of which topics a view has to cover. Pure.

A token is ``topic:partition:offset``, several with commas between them. Whoever writes an event gets one, and
reads with ``?at_least=TOKEN`` (or the header ``Headwater-At-Least``) what the event has led to.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import BadInput
from headwater.streams.declarations import Stream, Table, Topic
from headwater.streams.graph import Graph

LONGEST = 20_000  # characters
PLACES = 1000  # in one token
_PLACE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})\Z", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A record of the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def make_token(places: Iterable[Place]) -> str:
    """The token for these records: of each partition the last counts.

    >>> make_token([Place("clicks", 0, 7), Place("clicks", 1, 3), Place("clicks", 0, 9)])
    'clicks:0:9,clicks:1:3'
    """
    last: dict[tuple[str, int], int] = {}
    for place in places:
        key = (place.topic, place.partition)
        last[key] = max(place.offset, last.get(key, 0))
    return ",".join(str(Place(topic, partition, offset)) for (topic, partition), offset in last.items())


def parse_token(text: str) -> tuple[Place, ...]:
    """The records of a token.

    >>> parse_token("clicks:0:9,clicks:1:3")
    (Place(topic='clicks', partition=0, offset=9), Place(topic='clicks', partition=1, offset=3))
    >>> parse_token("clicks")
    Traceback (most recent call last):
    headwater.errors.BadInput: cannot understand the token clicks: 'clicks' is not topic:partition:offset. ...
    """
    step = "Give the token that writing has returned."
    parts = text.split(",") if len(text) <= LONGEST else []
    if not 0 < len(parts) <= PLACES:
        cause = f"it is longer than {LONGEST} characters or names more than {PLACES} records"
        raise BadInput("understand", "the token", cause, step)
    places = []
    for part in parts:
        match = _PLACE.match(part)
        if match is None:
            cause = f"{part!r} is not topic:partition:offset"
            raise BadInput("understand", f"the token {text}", cause, step)
        places.append(Place(match[1], int(match[2]), int(match[3])))
    return tuple(places)


def covers(offsets: Mapping[str, Any], places: Sequence[Place]) -> bool:
    """Whether a view whose batches end at these offsets has taken all these records.

    >>> covers({"clicks": {"0": 10}}, parse_token("clicks:0:9"))
    True
    >>> covers({"clicks": {"0": 9}}, parse_token("clicks:0:9"))
    False
    """
    return all(covered(offsets, place) > place.offset for place in places)


def covered(offsets: Mapping[str, Any], place: Place) -> int:
    """The offset up to which a view has taken the partition of a record.

    >>> covered({"clicks": {"0": 10}}, Place("clicks", 1, 0))
    0
    """
    partitions = offsets.get(place.topic)
    return int(partitions.get(str(place.partition), 0)) if isinstance(partitions, Mapping) else 0


def topics_read(graph: Graph, name: str) -> set[str]:
    """The topics whose offsets a view covers: those of the streams and tables it is made of.

    A view over views covers what those cover. What an application writes to a topic and reads again from there
    counts by the offsets of that topic, not by those of what it was made of.

    >>> from headwater.streams.declarations import Format, View
    >>> clicks = Stream("clicks", "shop.clicks", "page string", Format("json"))
    >>> pages = View("pages", lambda clicks: clicks, ("clicks",), ("page",))
    >>> top = View("top", lambda pages: pages, ("pages",), ("page",))
    >>> topics_read(Graph.of([clicks, pages, top]), "top")
    {'shop.clicks'}
    """
    return {node.topic for node in _read_by(graph, name)}


def topics_between(graph: Graph, name: str, topic: str) -> list[Topic]:
    """The topics of the application that a view reads and that are made, in the end, of another topic.

    >>> from headwater.streams.declarations import Format, View
    >>> clicks = Stream("clicks", "shop.clicks", "page string", Format("json"))
    >>> alerts = Topic("alerts", "shop.alerts", lambda clicks: clicks, ("clicks",))
    >>> alarm = View("alarm", lambda alerts: alerts, ("alerts",), ("page",))
    >>> [node.topic for node in topics_between(Graph.of([clicks, alerts, alarm]), "alarm", "shop.clicks")]
    ['shop.alerts']
    """
    made = [node for node in _read_by(graph, name) if isinstance(node, Topic)]
    return [
        node
        for node in made
        if topic in topics_read(graph, node.name) or topics_between(graph, node.name, topic)
    ]


def topics_behind(graph: Graph, name: str) -> set[str]:
    """All topics that a view is made of, also through topics of the application."""
    found = topics_read(graph, name)
    for node in _read_by(graph, name):
        if isinstance(node, Topic):
            found |= topics_behind(graph, node.name)
    return found


def _read_by(graph: Graph, name: str) -> list[Stream | Table | Topic]:
    """The nodes with a topic that a node reads, itself or through views."""
    found: list[Stream | Table | Topic] = []
    waiting, seen = list(graph.nodes[name].inputs) if name in graph.nodes else [], {name}
    if isinstance(graph.nodes.get(name), Stream | Table):
        waiting.append(name)
        seen.clear()
    while waiting:
        each = waiting.pop()
        if each in seen or each not in graph.nodes:
            continue
        seen.add(each)
        node = graph.nodes[each]
        if isinstance(node, Stream | Table | Topic):
            found.append(node)
        else:
            waiting.extend(node.inputs)
    return found
