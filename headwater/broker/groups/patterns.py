"""Topic patterns of the new group protocol, matched in time linear in the topic's name.

Kafka takes these patterns from clients and gives them to RE2, because a backtracking matcher would let one
client's pattern stop the broker. Here a pattern becomes a nondeterministic automaton, and the sets of states
that names lead to are remembered as they are met. A pattern matches whole names.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.broker.groups.pattern_syntax import (
    Accepts,
    Anchor,
    Character,
    Choice,
    InvalidPattern,
    Repeat,
    Sequence,
    Tree,
    parse,
)

__all__ = ["InvalidPattern", "TopicPattern"]

MAX_LENGTH = 1_000
MAX_STATES = 2_000  # bounds the time for a character of a name
MAX_REMEMBERED = 2_000
_ACCEPT = 0  # the number of the accepting state


@dataclass(slots=True)
class _State:
    """Reads a character that ``accepts`` allows and goes to ``then``; goes to ``free`` without reading."""

    accepts: Accepts | None = None
    then: int = _ACCEPT
    free: list[int] = field(default_factory=list)
    anchor: Anchor | None = None  # ``free`` may only be taken there


class TopicPattern:
    """A compiled pattern.

    >>> pattern = TopicPattern("(orders|clicks)-[0-9]+")
    >>> pattern.matches("orders-17"), pattern.matches("orders-17-late")
    (True, False)
    >>> TopicPattern("a(")
    Traceback (most recent call last):
        ...
    headwater.broker.groups.pattern_syntax.InvalidPattern: missing closing )
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_LENGTH:
            raise InvalidPattern(f"longer than {MAX_LENGTH} characters")
        self.source = source
        self._states = [_State()]
        self._entry, last = self._compile(parse(source))
        self._states[last].free.append(_ACCEPT)
        self._first = self._closure([self._entry], at_start=True)
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern matches all of ``name``."""
        if not name:
            return _ACCEPT in self._closure([self._entry], at_start=True, at_end=True)
        current = self._first
        for character in name[:-1]:
            current = self._step(current, character)
            if not current:
                return False
        return _ACCEPT in self._closure(self._read(current, name[-1]), at_end=True)

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        known = self._remembered.get((current, character))
        if known is None:
            known = self._closure(self._read(current, character))
            if len(self._remembered) < MAX_REMEMBERED:
                self._remembered[current, character] = known
        return known

    def _read(self, current: Iterable[int], character: str) -> list[int]:
        states = (self._states[number] for number in current)
        return [state.then for state in states if state.accepts is not None and state.accepts(character)]

    def _closure(self, numbers: list[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """The states reachable from ``numbers`` without reading."""
        seen, waiting = set(numbers), list(numbers)
        while waiting:
            state = self._states[waiting.pop()]
            if state.anchor is not None and not (at_start if state.anchor.at_start else at_end):
                continue
            new = [number for number in state.free if number not in seen]
            seen.update(new)
            waiting += new
        return frozenset(seen)

    def _add(self) -> int:
        if len(self._states) >= MAX_STATES:
            raise InvalidPattern("expression too large")
        self._states.append(_State())
        return len(self._states) - 1

    def _link(self, start: int, end: int) -> None:
        self._states[start].free.append(end)

    def _chain(self, start: int, tree: Tree) -> int:
        """Compile ``tree`` behind the state ``start``; the state it ends in."""
        first, last = self._compile(tree)
        self._link(start, first)
        return last

    def _compile(self, tree: Tree) -> tuple[int, int]:
        """The first and the last state of the automaton for ``tree``."""
        first = self._add()
        match tree:
            case Character(accepts):
                last = self._add()
                self._states[first].accepts, self._states[first].then = accepts, last
            case Anchor():
                last = self._add()
                self._states[first].anchor = tree
                self._link(first, last)
            case Sequence(parts):
                last = first
                for part in parts:
                    last = self._chain(last, part)
            case Choice(branches):
                last = self._add()
                for branch in branches:
                    self._link(self._chain(first, branch), last)
            case Repeat(part, least, most):
                last = self._compile_repeat(first, part, least, most)
        return first, last

    def _compile_repeat(self, first: int, part: Tree, least: int, most: int | None) -> int:
        last = first
        for _ in range(least):
            last = self._chain(last, part)
        end = self._add()
        if most is None:
            loop = self._add()
            self._link(last, loop)
            self._link(self._chain(loop, part), loop)
            self._link(loop, end)
            return end
        for _ in range(most - least):
            self._link(last, end)
            last = self._chain(last, part)
        self._link(last, end)
        return end
