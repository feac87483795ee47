"""Who reads whom: the order of an application, and what is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format, Node, Stream, View
from headwater.streams.graph import Graph, describe, inputs_of


def stream(name: str) -> Stream:
    return Stream(name, name, "v long", Format("json"))


def view(name: str, *inputs: str, key: tuple[str, ...] = ("v",)) -> View:
    return View(name, lambda: None, inputs, key)  # type: ignore[arg-type, return-value]


@st.composite
def applications(draw: st.DrawFn) -> list[Node]:
    """Any graph without circles, declared in any order."""
    size = draw(st.integers(1, 12))
    nodes: list[Node] = []
    for number in range(size):
        below = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=4)) if number else []
        name = f"n{number}"
        nodes.append(view(name, *(f"n{each}" for each in below)) if below else stream(name))
    random.Random(draw(st.integers())).shuffle(nodes)
    return nodes


@given(applications())
def test_every_node_comes_once_and_after_its_inputs(nodes: list[Node]) -> None:
    graph = Graph.of(nodes)
    order = graph.order()
    assert sorted(order) == sorted(node.name for node in nodes)
    for node in nodes:
        for source in node.inputs:
            assert order.index(source) < order.index(node.name)
            assert node.name in graph.readers(source)
    assert len(list(graph.edges())) == sum(len(node.inputs) for node in nodes)
    assert Graph.of(nodes).order() == order


def test_without_need_the_order_is_that_of_the_declarations() -> None:
    assert Graph.of([stream("b"), stream("a"), view("x", "a", "b")]).order() == ["b", "a", "x"]
    assert Graph.of([view("x", "a"), stream("a")]).order() == ["a", "x"]


@pytest.mark.parametrize(
    ("nodes", "circle"),
    [
        ([view("a", "a")], "a -> a"),
        ([stream("s"), view("a", "s", "c"), view("b", "a"), view("c", "b")], "a -> c -> b -> a"),
    ],
)
def test_a_circle_is_named(nodes: list[Node], circle: str) -> None:
    with pytest.raises(ApplicationInvalid) as refused:
        Graph.of(nodes)
    assert f"depends on its own output: {circle}." in str(refused.value)


def test_an_unknown_input_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ApplicationInvalid, match=r"wants the input 'click', .* declares clicks, users\."):
        Graph.of([stream("clicks"), stream("users"), view("pages", "click")])
    with pytest.raises(ApplicationInvalid, match=r"Did you mean 'clicks'\?"):
        Graph.of([stream("clicks"), view("pages", "click")])
    with pytest.raises(ApplicationInvalid) as refused:
        Graph.of([stream("clicks"), view("pages", "zebra")])
    assert "Did you mean" not in str(refused.value)


def test_parameters_with_a_default_are_no_inputs() -> None:
    def function(clicks: object, users: object, limit: int = 10, *, flag: bool = False) -> None: ...

    assert inputs_of(function) == ("clicks", "users")  # type: ignore[arg-type]

    def takes_all(*frames: object) -> None: ...

    with pytest.raises(ApplicationInvalid, match=r"the parameter '\*frames.*' names no input"):
        inputs_of(takes_all)  # type: ignore[arg-type]


def test_errors_name_a_function_by_file_and_line() -> None:
    def here(clicks: object) -> None: ...

    line = here.__code__.co_firstlineno
    assert describe(here) == f"the function here (test_graph.py, line {line})"  # type: ignore[arg-type]
    assert describe(len) == "the function len"  # type: ignore[arg-type]


def test_declarations_keep_the_function_as_it_was() -> None:
    app = hw.App("shop")
    app.stream("shop.clicks-raw", "page string")

    def pages(clicks_raw: object) -> str:
        return f"called with {clicks_raw}"

    assert app.view(key="page")(pages) is pages  # type: ignore[type-var]
    assert pages("x") == "called with x"
    node = pages.headwater  # type: ignore[attr-defined]
    assert (node.name, node.inputs, node.key) == ("pages", ("clicks_raw",), ("page",))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"partitions": 0}, "partitions is 0"),
        ({"max_rows": -1}, "max_rows is -1"),
        ({"on_gap": "ignore"}, "on_gap is 'ignore'"),
        ({"format": "xml"}, "'xml' is not a format"),
        ({"name": "not a name"}, "'not a name' cannot be the name of a parameter"),
        ({"idle": "0 seconds"}, "it has to be longer than nothing"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(Exception, match=why):
        hw.App("shop").stream("clicks", "page string", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 250])
def test_a_name_that_topics_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(ApplicationInvalid):
        hw.App(name)
    with pytest.raises(ApplicationInvalid):
        hw.App("shop").stream(name, "page string", name="clicks")
