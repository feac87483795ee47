"""What the arguments of declarations may be; whatever else is refused where it is written."""

import re
from collections.abc import Sequence

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Emit, Files, Format, Function, Node, Table, View
from headwater.streams.graph import describe

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,47}\Z")  # as the view store has it, for tables' names
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
FORMATS = ("json", "avro", "protobuf", "debezium", "raw")
TABLE_FORMATS = ("auto", "json", "debezium")


def parameter_name(name: str | None, topic: str, subject: str) -> str:
    """The name by which functions take an input: the last part of its topic's unless another is given."""
    chosen = name or topic.rsplit(".", 1)[-1].replace("-", "_")
    if not _NAME.match(chosen):
        raise ApplicationInvalid(
            "declare", subject, f"{chosen!r} cannot be the name of a parameter", "Give it one with name=..."
        )
    return chosen


def output_name(name: str | None, function: Function, subject: str) -> str:
    """The name of an output, which becomes part of the names of topics, tables and directories."""
    chosen = name or str(getattr(function, "__name__", ""))
    if not _OUTPUT.match(chosen):
        raise ApplicationInvalid(
            "declare",
            subject,
            f"its output cannot be called {chosen!r}",
            "Give it a name with name=... : at most 48 letters of ASCII, digits, '_', '.' and '-', with a letter "
            "or '_' first.",
        )
    return chosen


def refuse_bare(argument: object, cause: str, wanted: str) -> None:
    """A decorator without its parentheses would take the function for its argument, and declare nothing."""
    if callable(argument):
        raise ApplicationInvalid("declare", describe(argument), cause, f"Write {wanted} above it.")


def refuse_same_place(node: Node, other: Node, subject: str) -> None:
    """Two that would write over each other."""
    kept = isinstance(node, View | Table) and isinstance(other, View | Table)
    if kept and node.name.lower() == other.name.lower():
        raise ApplicationInvalid(
            "declare",
            subject,
            f"the {other.kind} {other.name!r} has its name but for the case of letters, which SQL does not look at",
            "Give one of them another name with name=...",
        )
    if isinstance(node, Files) and isinstance(other, Files) and node.path == other.path:
        raise ApplicationInvalid(
            "declare",
            subject,
            f"{other.name!r} writes to the directory {node.path} already",
            "Name another one.",
        )


def topic_name(topic: str, subject: str) -> str:
    """A name that topics can have."""
    if not TOPIC.match(topic):
        raise ApplicationInvalid(
            "declare",
            subject,
            f"{topic!r} cannot be the name of a topic",
            "Use up to 249 letters, digits, dots, underscores and dashes.",
        )
    return topic


def known_format(format: str | Format, subject: str, known: tuple[str, ...] = FORMATS) -> Format:
    """A format that values may have."""
    kind = Format(format) if isinstance(format, str) else format
    if kind.name not in known:
        raise ApplicationInvalid(
            "declare", subject, f"{kind.name!r} is not a format of it", f"Use one of {', '.join(known)}."
        )
    return kind


def column_names(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a key: one, several or none."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())


def at_least_one(number: int, what: str, subject: str) -> int:
    """A number of something."""
    if not isinstance(number, int) or number < 1:
        raise ApplicationInvalid(
            "declare", subject, f"{what} is {number!r}", f"Let {what} be a whole number from 1 on."
        )
    return number


def known_emit(emit: Emit | None, subject: str) -> Emit | None:
    """What is shown of a window."""
    if emit not in (None, "updates", "final"):
        raise ApplicationInvalid("declare", subject, f"emit is {emit!r}", "Say 'updates' or 'final'.")
    return emit
