"""The syntax of topic patterns: RE2's, read into a tree.

Not supported, as in RE2: look-around, back references. Not supported, unlike RE2: Unicode classes ``\\p``,
``\\C``, and word boundaries ``\\b`` and ``\\B``, which mean little in topic names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

MAX_REPEAT = 1_000  # as RE2
MAX_DEPTH = 100

Accepts: TypeAlias = Callable[[str], bool]


class InvalidPattern(ValueError):
    """A pattern that is not RE2's, or is too large."""


@dataclass(frozen=True, slots=True)
class Character:
    """One character that ``accepts`` allows."""

    accepts: Accepts


@dataclass(frozen=True, slots=True)
class Anchor:
    """Nothing, at the start of the text or at its end."""

    at_start: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    branches: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Tree"
    least: int
    most: int | None  # None: without end


Tree: TypeAlias = Character | Anchor | Sequence | Choice | Repeat

_CLASSES: dict[str, Accepts] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in "\t\n\f\r ",
}
_POSIX: dict[str, Accepts] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "digit": _CLASSES["d"],
    "lower": lambda c: "a" <= c <= "z",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _CLASSES["w"],
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


def parse(source: str) -> Tree:
    """The tree of a pattern; raises ``InvalidPattern``, in RE2's words.

    >>> parse("a**")
    Traceback (most recent call last):
        ...
    headwater.broker.groups.pattern_syntax.InvalidPattern: invalid nested repetition operator
    """
    return _Parser(source).parse()


class _Parser:
    """Recursive descent over the pattern."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0
        self._fold = False  # (?i)

    def parse(self) -> Tree:
        tree = self._alternation()
        if self._at < len(self._source):
            raise InvalidPattern("unexpected )")
        return tree

    def _peek(self) -> str:
        return self._source[self._at] if self._at < len(self._source) else ""

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _alternation(self) -> Tree:
        fold = self._fold
        branches = [self._sequence()]
        while self._peek() == "|":
            self._take()
            branches.append(self._sequence())
        self._fold = fold  # a flag set within a group ends with the group
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self._peek() not in ("", "|", ")"):
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return Sequence(tuple(parts))

    def _repeated(self, part: Tree) -> Tree:
        repeated = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return part
            if repeated:
                raise InvalidPattern("invalid nested repetition operator")
            repeated = True
            if self._peek() == "?":  # lazy: the same language
                self._take()
            part = Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        match self._peek():
            case "*":
                self._take()
                return 0, None
            case "+":
                self._take()
                return 1, None
            case "?":
                self._take()
                return 0, 1
            case "{":
                return self._counted()
        return None

    def _counted(self) -> tuple[int, int | None] | None:
        end = self._source.find("}", self._at)
        body = self._source[self._at + 1 : end] if end > 0 else ""
        low, comma, high = body.partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None  # RE2 takes such a brace literally
        self._at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
            raise InvalidPattern("bad repetition operator")
        return least, most

    def _atom(self) -> Tree | None:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return Character(self._bracket())
            case ".":
                return Character(lambda c: c != "\n")
            case "^" | "$":
                return Anchor(at_start=character == "^")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise InvalidPattern("missing argument to repetition operator")
        return Character(self._literal(character))

    def _literal(self, character: str) -> Accepts:
        return self._folded(lambda c: c == character)

    def _folded(self, accepts: Accepts) -> Accepts:
        if not self._fold:
            return accepts
        return lambda c: accepts(c) or accepts(c.swapcase())

    def _group(self) -> Tree | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern("expression nests too deeply")
        outer = self._fold
        if self._peek() == "?":
            self._take()
            if self._flags_only():
                self._depth -= 1
                return None
        tree = self._alternation()
        if self._take() != ")":
            raise InvalidPattern("missing closing )")
        self._fold = outer
        self._depth -= 1
        return tree

    def _flags_only(self) -> bool:
        """Read what follows ``(?``; true when it was flags for the rest of the enclosing group."""
        rest = self._source[self._at :]
        if rest.startswith(("P<", "<")) and not rest.startswith(("<=", "<!")):
            name, closed, _ = rest.partition("<")[2].partition(">")
            if not closed or not name.isidentifier():
                raise InvalidPattern("invalid named capture")
            self._at += rest.index(">") + 1
            return False
        value = True
        while True:
            match self._take():
                case "i":
                    self._fold = value
                case "m" | "s" | "U":
                    pass  # topic names have no line ends, and greed does not change what matches
                case "-" if value:
                    value = False
                case ":":
                    return False
                case ")":
                    return True
                case _:
                    raise InvalidPattern("invalid or unsupported Perl syntax")

    def _escape(self) -> Tree:
        character = self._peek()
        if character in ("A", "z"):
            self._take()
            return Anchor(at_start=character == "A")
        if character == "Q":
            return self._quoted()
        if character.lower() in _CLASSES:
            return Character(self._shorthand())
        return Character(self._literal(self._escaped()))

    def _quoted(self) -> Tree:
        self._take()
        text, ended, _ = self._source[self._at :].partition("\\E")
        self._at += len(text) + (2 if ended else 0)
        return Sequence(tuple(Character(self._literal(character)) for character in text))

    def _shorthand(self) -> Accepts:
        character = self._take()
        accepts = _CLASSES[character.lower()]
        return accepts if character.islower() else lambda c: not accepts(c)

    def _escaped(self) -> str:
        """The character that an escape stands for."""
        character = self._take()
        if not character:
            raise InvalidPattern("trailing \\ at end of expression")
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "x":
            return self._hex()
        if character.isascii() and not character.isalnum():
            return character
        raise InvalidPattern(f"invalid escape sequence: `\\{character}`")

    def _hex(self) -> str:
        if self._peek() == "{":
            digits, closed, _ = self._source[self._at + 1 :].partition("}")
            self._at += len(digits) + 2
        else:
            digits, closed = self._source[self._at : self._at + 2], "}"
            self._at += 2
        try:
            if not closed or not digits.isalnum():
                raise ValueError
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise InvalidPattern("invalid escape sequence: `\\x`") from None

    def _bracket(self) -> Accepts:
        negated = self._peek() == "^"
        if negated:
            self._take()
        choices = list(self._choices())
        listed = self._folded(lambda c: any(choice(c) for choice in choices))
        return (lambda c: not listed(c)) if negated else listed

    def _choices(self) -> Iterator[Accepts]:
        first = True
        while True:
            character = self._peek()
            if not character:
                raise InvalidPattern("missing closing ]")
            if character == "]" and not first:
                self._take()
                return
            first = False
            if self._source.startswith("[:", self._at):
                yield self._posix()
                continue
            if character == "\\" and self._source[self._at + 1 : self._at + 2].lower() in _CLASSES:
                self._take()
                yield self._shorthand()
                continue
            low = self._member()
            high = low
            if self._peek() == "-" and self._source[self._at + 1 : self._at + 2] not in ("]", ""):
                self._take()
                high = self._member()
                if high < low:
                    raise InvalidPattern("invalid character class range")
            yield lambda c, low=low, high=high: low <= c <= high  # type: ignore[misc]

    def _member(self) -> str:
        character = self._take()
        return self._escaped() if character == "\\" else character

    def _posix(self) -> Accepts:
        end = self._source.find(":]", self._at)
        name = self._source[self._at + 2 : end] if end > 0 else ""
        negated = name.startswith("^")
        accepts = _POSIX.get(name.removeprefix("^"))
        if accepts is None:
            raise InvalidPattern("invalid character class range")
        self._at = end + 2
        return (lambda c: not accepts(c)) if negated else accepts
