"""The conditions of reads, such as ``country = 'CH' and (n > 10 or n is null)``. Pure.

::

    condition   a or b, a and b, not a, (a)         `and` binds closer than `or`, `not` closer than both
    a           NAME = VALUE        also != < <= > >=
                NAME in (VALUE, ...), NAME not in (VALUE, ...)
                NAME is null, NAME is not null
    NAME        a column, or a member of a struct: window.start; in backticks when it is no plain word
    VALUE       'text' or "text" (a quote inside is doubled), a number, true, false
                times are texts in ISO 8601: '2026-01-02T03:04:05Z'

Words are the same in small and large letters. A condition becomes a ``Filter`` of the view store, which binds
the values; no part of the text gets into SQL. As in SQL a comparison with null holds for no row, under ``not``
neither.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa

from headwater.errors import ConditionInvalid
from headwater.views.filters import Either, Every, Filter, Operator, Order, Where
from headwater.views.model import ViewSchema
from headwater.views.types import arrow_type, member_type
from headwater.views.values import one_value

LONGEST = 4000  # characters
DEEPEST = 32  # brackets and `not` inside each other
VALUES = 500  # in one condition; databases limit how many they bind
ORDERS = 20

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*' | "(?:[^"]|"")*")
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>(?:[^\W\d]\w*|`(?:[^`]|``)+`)(?:\.(?:[^\W\d]\w*|`(?:[^`]|``)+`))*)
    | (?P<sign><=|>=|!=|=|<|>|\(|\)|,|-)
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_PART = re.compile(r"[^\W\d]\w*|`(?:[^`]|``)+`")
_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_OPPOSITE: dict[str, Operator] = {
    "=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "is null": "is not null", "is not null": "is null",
}  # fmt: skip
WORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))
_EXAMPLE = "Write it like this: country = 'CH' and (n > 10 or n is null)."


def parse_where(text: str, schema: ViewSchema | None = None) -> Filter:
    """The condition that a text says; with a schema, its columns and the types of its values are checked.

    >>> parse_where("word = 'a' and n > 2")
    Every(parts=(Where(column='word', operator='=', value='a'), Where(column='n', operator='>', value=2)))
    >>> parse_where("not (n in (1, 2) or n is null)")
    Every(parts=(Every(parts=(Where(...), Where(...))), Where(column='n', operator='is not null', value=None)))
    >>> parse_where("word == 'a'")
    Traceback (most recent call last):
    headwater.errors.ConditionInvalid: cannot understand where: at character 7 a value was expected, not '='...
    """
    return _Parser(text, "where", schema, _EXAMPLE).condition()


def parse_order(text: str, schema: ViewSchema | None = None) -> tuple[Order, ...]:
    """The columns to sort by.

    >>> parse_order("-n, word")
    (Order(column='n', descending=True), Order(column='word', descending=False))
    """
    return _Parser(text, "order", schema, "Write it like this: -n,word.").orders()


@dataclass(frozen=True)
class _Token:
    kind: str  # text, number, name, word, sign, end
    text: str
    at: int  # the first character has number 1

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(_shown(self.text))


class _Parser:
    def __init__(self, text: str, what: str, schema: ViewSchema | None, hint: str) -> None:
        self._what, self._schema, self._hint = what, schema, hint
        if len(text) > LONGEST:
            self._refuse(LONGEST + 1, f"it has {len(text)} characters, and {LONGEST} is the most")
        self._tokens = list(self._split(text))
        self._next = 0
        self._depth = 0
        self._values = 0

    # -- the language ------------------------------------------------------------------------------

    def condition(self) -> Filter:
        found = self._either(False)
        if self._peek().kind != "end":
            self._expected("`and`, `or` or the end")
        return found

    def orders(self) -> tuple[Order, ...]:
        found: list[Order] = []
        while True:
            descending = self._takes("-")
            name = self._name()
            self._type_of(name)
            found.append(Order(_column(name.text), descending))
            if len(found) > ORDERS:
                self._refuse(name.at, f"there are more than {ORDERS} columns")
            if self._peek().kind == "end":
                return tuple(found)
            if not self._takes(","):
                self._expected("a comma or the end")

    def _either(self, negated: bool) -> Filter:
        parts = [self._every(negated)]
        while self._takes("or"):
            parts.append(self._every(negated))
        return _joined(Every if negated else Either, parts)

    def _every(self, negated: bool) -> Filter:
        parts = [self._one(negated)]
        while self._takes("and"):
            parts.append(self._one(negated))
        return _joined(Either if negated else Every, parts)

    def _one(self, negated: bool) -> Filter:
        token = self._peek()
        if token.text in ("not", "(") and token.kind in ("word", "sign"):
            self._depth += 1
            if self._depth > DEEPEST:
                self._refuse(token.at, f"more than {DEEPEST} brackets and `not` are inside each other")
            self._next += 1
            if token.text == "not":
                found = self._one(not negated)
            else:
                found = self._either(negated)
                self._require(")", "`and`, `or` or a closing bracket")
            self._depth -= 1
            return found
        return self._comparison(negated)

    def _comparison(self, negated: bool) -> Filter:
        name = self._name()
        kind, column = self._type_of(name), _column(name.text)
        if self._takes("is"):
            operator: Operator = "is not null" if self._takes("not") else "is null"
            self._require("null", "`null` or `not null`")
            return Where(column, _OPPOSITE[operator] if negated else operator)
        if self._takes("not"):
            negated = not negated
            self._require("in", "`in`")
            return self._among(column, kind, negated)
        if self._takes("in"):
            return self._among(column, kind, negated)
        sign = self._peek()
        if sign.text not in _COMPARISONS or sign.kind != "sign":
            self._expected("one of = != < <= > >=, `in` or `is`")
        self._next += 1
        operator = sign.text  # type: ignore[assignment]
        return Where(column, _OPPOSITE[operator] if negated else operator, self._value(kind))

    def _among(self, column: str, kind: pa.DataType | None, negated: bool) -> Filter:
        self._require("(", "an opening bracket")
        values = [self._value(kind)]
        while self._takes(","):
            values.append(self._value(kind))
        self._require(")", "a comma or a closing bracket")
        if negated:
            return _joined(Every, [Where(column, "!=", value) for value in values])
        return Where(column, "in", tuple(values))

    def _name(self) -> _Token:
        token = self._peek()
        if token.kind != "name":
            quoted = " (names stand without quotes, or in backticks)" if token.kind == "text" else ""
            self._expected("the name of a column" + quoted)
        self._next += 1
        return token

    def _value(self, kind: pa.DataType | None) -> Any:
        token = self._peek()
        value: Any
        if token.kind == "text":
            quote = token.text[0]
            value = token.text[1:-1].replace(quote * 2, quote)
        elif token.kind == "number":
            value = Decimal(token.text) if any(c in token.text for c in ".eE") else _whole(token.text)
        elif token.kind == "word" and token.text in ("true", "false"):
            value = token.text == "true"
        elif token.kind == "word" and token.text == "null":
            self._refuse(token.at, "nothing equals null; ask with `is null` or `is not null`")
        elif token.kind == "name":
            self._expected("a value (texts stand in quotes)")
        else:
            self._expected("a value")
        self._next += 1
        self._values += 1
        if self._values > VALUES:
            self._refuse(token.at, f"there are more than {VALUES} values")
        if kind is None:
            return float(value) if isinstance(value, Decimal) else value
        try:
            return _fitting(value, kind)
        except ValueError:
            self._refuse(token.at, f"{_shown(token.text)} is not a value of the type {kind}")

    def _type_of(self, name: _Token) -> pa.DataType | None:
        if self._schema is None:
            return None
        column = _column(name.text)
        types = self._schema.types
        if column in types:
            return arrow_type(types[column])
        first, *path = column.split(".")
        kind = member_type(arrow_type(types[first]), tuple(path)) if first in types else None
        if kind is None:
            self._refuse(name.at, f"there is no column {_shown(column)!r}; there are {', '.join(types)}")
        return kind

    # -- tokens ------------------------------------------------------------------------------------

    def _split(self, text: str) -> Iterator[_Token]:
        at = 0
        while True:
            match = _TOKEN.match(text, at)
            if match is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                if text[start] in "'\"`":
                    self._refuse(start + 1, f"the {text[start]} has no second one")
                self._refuse(start + 1, f"{text[start]!r} has no meaning here")
            kind = match.lastgroup or "end"
            found = match[kind]
            if kind == "name" and found.lower() in WORDS:
                kind, found = "word", found.lower()
            yield _Token(kind, found, match.start(match.lastgroup or 0) + 1)
            if kind == "end":
                return
            at = match.end()

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, text: str) -> bool:
        token = self._peek()
        if token.text != text or token.kind not in ("word", "sign"):
            return False
        self._next += 1
        return True

    def _require(self, text: str, expected: str) -> None:
        if not self._takes(text):
            self._expected(expected)

    def _expected(self, what: str) -> NoReturn:
        token = self._peek()
        self._refuse(token.at, f"{what} was expected, not {token}")

    def _refuse(self, at: int, cause: str) -> NoReturn:
        error = ConditionInvalid("understand", self._what, f"at character {at} {cause}", self._hint)
        error.position = at
        raise error


def _joined(kind: type[Every] | type[Either], parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _column(name: str) -> str:
    """
    >>> _column("window.`the start`")
    'window.the start'
    """
    parts = _PART.findall(name)
    return ".".join(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts)


def _shown(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:50]}..."


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= 40 else Decimal(text)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """The value as the store takes it for such a column; ValueError when it is not of the type."""
    if isinstance(value, bool):
        fits = pa.types.is_boolean(kind)
    elif not isinstance(value, int | Decimal):
        fits = True  # a text, which may stand for anything
    elif pa.types.is_floating(kind):
        value = float(value)
        fits = math.isfinite(value)
    elif pa.types.is_decimal(kind):
        value, fits = Decimal(value), True
    else:
        fits = pa.types.is_integer(kind) and isinstance(value, int)
    if not fits:
        raise ValueError(value)
    one_value(value, kind)
    return value
