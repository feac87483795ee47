"""Where boxes and lines go."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.declarations import Format, Stream, View
from headwater.streams.graph import Graph
from headwater.ui.diagram import HEIGHT, WIDTH, Box, Diagram, draw
from headwater.ui.picture import Picture
from tests.ui.shop import app


def overlap(one: Box, other: Box) -> bool:
    return abs(one.x - other.x) < WIDTH and abs(one.y - other.y) < HEIGHT


def check(diagram: Diagram) -> None:
    boxes = {box.id: box for box in diagram.boxes}
    for number, one in enumerate(diagram.boxes):
        assert one.x >= 0 and one.y >= 0
        assert one.x + WIDTH <= diagram.width and one.y + HEIGHT <= diagram.height
        assert not any(overlap(one, other) for other in diagram.boxes[number + 1 :])
    for line in diagram.lines:
        assert boxes[line.source].x + WIDTH <= boxes[line.target].x
        assert boxes[line.source].x + WIDTH < line.label[0] < boxes[line.target].x


def test_the_shop_reads_from_left_to_right() -> None:
    diagram = draw(app.graph())
    check(diagram)
    places = {box.id: box.x for box in diagram.boxes}
    assert places["source shop"] < places["users"] < places["clicks_by_country"]
    assert places["users"] < places["sink shop.users.redis"]
    assert ("source shop", "users") in {(line.source, line.target) for line in diagram.lines}


@given(st.integers(1, 24), st.integers())
def test_no_boxes_overlap_whatever_the_graph(size: int, seed: int) -> None:
    chance = random.Random(seed)
    nodes: list[Stream | View] = [Stream("n0", "n0", "a int", Format("json"))]
    for number in range(1, size):
        if chance.random() < 0.2:
            nodes.append(Stream(f"n{number}", f"n{number}", "a int", Format("json")))
            continue
        inputs = chance.sample([node.name for node in nodes], min(len(nodes), chance.randrange(1, 4)))
        nodes.append(View(f"n{number}", lambda: None, tuple(inputs), ("a",)))  # type: ignore[arg-type,return-value]
    check(draw(Graph.of(nodes)))


def test_a_picture_without_facts_is_whole() -> None:
    from headwater.ui.broker import BrokerFacts
    from headwater.ui.facts import Facts, Locals

    picture = Picture(app, "/ui")
    facts = Facts("shop", Locals(), BrokerFacts(), {}, {}, {})
    boxes = {box["id"]: box for box in picture.boxes(facts)}
    assert boxes["clicks"]["note"] == "no topic yet"
    assert boxes["source shop"]["tone"] == "warn"
    assert all(line["texts"] == [] for line in picture.lines(facts))
