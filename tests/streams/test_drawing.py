"""The picture of an application."""

import xml.etree.ElementTree as ET
from itertools import combinations

import headwater as hw
from headwater.streams.drawing import HEIGHT, WIDTH, as_svg, as_text, layers

SPACE = "{http://www.w3.org/2000/svg}"


def shop() -> hw.App:
    app = hw.App("shop")
    app.stream("clicks", "page string")
    app.stream("answers", "page string")

    @app.topic("a-topic-with-a-name-that-is-longer-than-its-box-is-wide", key="page")
    def both(clicks, answers): ...  # type: ignore[no-untyped-def]

    @app.view(key="page")
    def pages(clicks): ...  # type: ignore[no-untyped-def]

    @app.view(key="page")
    def joined(both): ...  # type: ignore[no-untyped-def]

    return app


def test_a_node_stands_right_of_all_its_inputs() -> None:
    graph = shop().graph()
    depth = layers(graph)
    assert depth == {"clicks": 0, "answers": 0, "both": 1, "pages": 1, "joined": 2}
    assert all(depth[source] < depth[reader] for source, reader in graph.edges())


def test_boxes_lie_within_the_picture_and_not_upon_each_other() -> None:
    root = ET.fromstring(as_svg("shop", shop().graph()))
    boxes = [(int(box.get("x", "")), int(box.get("y", ""))) for box in root.iter(f"{SPACE}rect")]
    assert len(boxes) == 5
    for (x1, y1), (x2, y2) in combinations(boxes, 2):
        assert abs(x1 - x2) >= WIDTH or abs(y1 - y2) >= HEIGHT
    for x, y in boxes:
        assert x + WIDTH <= int(root.get("width", "")) and y + HEIGHT <= int(root.get("height", ""))


def test_texts_are_escaped_shortened_and_replaced_by_notes() -> None:
    drawing = as_svg("a <b> & c", shop().graph(), notes={"pages": "1,000 rows/s & rising"})
    texts = [text.text or "" for text in ET.fromstring(drawing).iter(f"{SPACE}text")]
    assert texts[0] == "a <b> & c"
    assert "1,000 rows/s & rising" in texts
    assert any(text.startswith("topic a-topic-with") and text.endswith("…") for text in texts)
    assert max(map(len, texts)) <= 34


def test_an_application_without_anything_has_a_picture_too() -> None:
    empty = hw.App("empty").graph()
    assert as_text("empty", empty) == "empty"
    assert ET.fromstring(as_svg("empty", empty)).tag == f"{SPACE}svg"
