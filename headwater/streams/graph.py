"""The graph of an application: who reads whom, in an order in which every node comes after its inputs. Pure."""

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.connect.declaration import SourceDeclaration
from headwater.connect.sinks.declaration import SinkDeclaration
from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Files, Function, Node, Output, Stream, Table, Topic, View


@dataclass(frozen=True)
class Graph:
    """A valid graph; ``Graph.of`` refuses any other."""

    nodes: Mapping[str, Node]  # inputs before those who read them
    sources: Mapping[str, SourceDeclaration] = field(default_factory=dict)  # what fills topics from outside
    sinks: Mapping[str, SinkDeclaration] = field(default_factory=dict)  # what follows topics outside

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        sources: Iterable[SourceDeclaration] = (),
        sinks: Iterable[SinkDeclaration] = (),
    ) -> "Graph":
        """Checks names, inputs, cycles and keys.

        >>> from headwater.streams.declarations import Format
        >>> Graph.of([Stream("clicks", "clicks", "page string", Format("json"))]).order()
        ['clicks']
        """
        named = {node.name: node for node in nodes}
        for node in named.values():
            _check_inputs(node, named)
            _check_key(node)
        return cls(
            {name: named[name] for name in _ordered(named)},
            {each.name: each for each in sources},
            {each.name: each for each in sinks},
        )

    def order(self) -> list[str]:
        """The names, each after its inputs."""
        return list(self.nodes)

    def outputs(self) -> Iterator[Output]:
        """What is computed."""
        for node in self.nodes.values():
            if isinstance(node, View | Topic | Files):
                yield node

    def has_work(self) -> bool:
        """Whether there is anything for an engine to do: something to compute, or a table to keep.

        >>> Graph.of([Table("users", "shop.users", ("id",), "id long")]).has_work()
        True
        """
        return any(not isinstance(node, Stream) for node in self.nodes.values())

    def readers(self, name: str) -> list[str]:
        """Who reads this node."""
        return [node.name for node in self.nodes.values() if name in node.inputs]

    def feeding(self, node: Node) -> list[str]:
        """The sources that fill the topic of a stream or a table."""
        if not isinstance(node, Stream | Table):
            return []
        return [name for name, source in self.sources.items() if source.feeds(node.topic)]

    def followed(self, sink: SinkDeclaration) -> list[str]:
        """The nodes whose topic a sink follows."""
        return [
            node.name
            for node in self.nodes.values()
            if isinstance(node, Stream | Table | Topic) and node.topic == sink.topic
        ]

    def edges(self) -> Iterator[tuple[str, str]]:
        """Pairs (input, reader)."""
        for node in self.nodes.values():
            for source in node.inputs:
                yield source, node.name


def inputs_of(function: Function) -> tuple[str, ...]:
    """A function's parameters without a default are its inputs.

    >>> inputs_of(lambda clicks, users, limit=10: clicks)
    ('clicks', 'users')
    """
    subject = describe(function)
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ApplicationInvalid(
                "declare",
                subject,
                f"the parameter {str(parameter)!r} names no input",
                "Name each input: a parameter's name is the name of a stream, a table, a view or a topic.",
            )
        if parameter.default is parameter.empty:
            names.append(parameter.name)
    if not names:
        raise ApplicationInvalid(
            "declare", subject, "it has no parameters, so it has no input", "Name a stream as its parameter."
        )
    return tuple(names)


def describe(function: Function) -> str:
    """How errors name a function: ``the function top_pages (app.py, line 12)``."""
    name = getattr(function, "__name__", repr(function))
    code = getattr(function, "__code__", None)
    if code is None:
        return f"the function {name}"
    file = code.co_filename.rsplit("/", 1)[-1]
    return f"the function {name} ({file}, line {code.co_firstlineno})"


def _check_inputs(node: Node, named: Mapping[str, Node]) -> None:
    for name in node.inputs:
        source = named.get(name)
        if source is None:
            close = difflib.get_close_matches(name, named, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            known = ", ".join(sorted(set(named) - {node.name})) or "nothing"
            raise ApplicationInvalid(
                "wire",
                _subject(node),
                f"it wants the input {name!r}, and the application declares {known}",
                f"Declare it with app.stream, app.table, app.view or app.topic, or rename the parameter.{hint}",
            )
        if isinstance(source, Files):
            raise ApplicationInvalid(
                "wire",
                _subject(node),
                f"it wants the input {name!r}, which is written to files and cannot be followed",
                f"Read what {name!r} reads.",
            )


def _check_key(node: Node) -> None:
    if isinstance(node, View | Table) and not node.key:
        raise ApplicationInvalid(
            "declare",
            _subject(node),
            "it has no key",
            "Say key=... : the columns by which a row is found and replaced.",
        )


def _subject(node: Node) -> str:
    if isinstance(node, Stream | Table):
        return f"the {node.kind} {node.name}"
    return describe(node.function)


def _ordered(named: Mapping[str, Node]) -> list[str]:
    """Depth first, in the order of declaration, so that the same application always gives the same order."""
    done: list[str] = []
    finished: set[str] = set()
    writers: dict[str, list[str]] = {}  # of each topic
    for node in named.values():
        if isinstance(node, Topic):
            writers.setdefault(node.topic, []).append(node.name)

    def before(node: Node) -> Iterator[str]:
        yield from node.inputs
        if isinstance(node, Stream | Table):  # of a topic that this application fills by another name
            yield from writers.get(node.topic, ())

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in finished:
            return
        if name in path:
            inside = path[path.index(name) :]
            circle = " -> ".join([*inside, name])
            computing = [each for each in inside if not isinstance(named[each], Stream | Table)]
            raise ApplicationInvalid(
                "wire",
                _subject(named[(computing or [name])[0]]),
                f"its input depends on its own output: {circle}",
                "Break the circle: let one of them read a topic of its own.",
            )
        for source in before(named[name]):
            visit(source, (*path, name))
        finished.add(name)
        done.append(name)

    for name in named:
        visit(name, ())
    return done
