"""How a row is called outside: the text of its key, by a template of the key's columns. No I/O."""

import string
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from headwater.errors import ApplicationInvalid, SinkImpossible

ONLY = "key"  # the column of a key that is not an object


class Unreadable(Exception):
    """Why a record cannot be used."""


class Identity:
    """A template such as ``user:{id}``; without one, `prefix` and the key's columns, with colons between them.

    In what is made of several columns, colons and percent signs in values are written as ``%3A`` and ``%25``: two keys
    never get the same text.

    >>> Identity("user:{id}").of_key({"id": 7}), Identity(None, "users:").of_key({"a": "x:y", "b": 1})
    ('user:7', 'users:x%3Ay:1')
    """

    def __init__(self, template: str | None = None, prefix: str = "") -> None:
        self.template, self._prefix = template, prefix
        self._parts: list[tuple[str, str | None]] = _parse(template) if template is not None else []
        self.columns = [column for _, column in self._parts if column is not None]
        self._makers: dict[tuple[str, ...], Callable[[Mapping[str, Any]], str]] = {}

    def of_key(self, key: Mapping[str, Any] | str) -> str:
        """What the row with this key is called. A template has to name all of the key's columns."""
        if isinstance(key, str):
            key = {ONLY: key}
        names = tuple(key)
        maker = self._makers.get(names)
        if maker is None:
            maker = self._makers[names] = self._maker(names)
        return maker(key)

    def of_row(self, row: Mapping[str, Any]) -> str:
        """The same for a record without a key: the template's columns are those of the row."""
        if not self.columns:
            raise Unreadable("it has no key; name columns of its row in a template to follow it all the same")
        if missing := [column for column in self.columns if column not in row]:
            raise Unreadable(f"it has no key, and its row has no column {', '.join(missing)}")
        return self.of_key({column: row[column] for column in self.columns})

    def _maker(self, names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], str]:
        parts = self._parts
        if self.template is None:
            parts = [(":" if index else self._prefix, name) for index, name in enumerate(names)]
        elif set(names) != set(self.columns):
            raise SinkImpossible(
                "name rows by",
                f"the template {self.template!r}",
                f"the key's columns are {', '.join(names)}",
                "Name each of them once, and no other: rows would get the same name.",
            )
        if len(parts) == 1 or (len(parts) == 2 and parts[1][1] is None):
            before, name = parts[0]
            behind = parts[1][0] if len(parts) == 2 else ""
            assert name is not None
            return lambda key: f"{before}{as_text(key[name])}{behind}"
        return lambda key: "".join(
            literal + (_escaped(as_text(key[column])) if column is not None else "")
            for literal, column in parts
        )


def as_text(value: Any) -> str:
    """A value as it stands in a key or a hash: texts as they are, all else as JSON.

    >>> as_text("a"), as_text(1), as_text(True), as_text({"x": [1]})
    ('a', '1', 'true', '{"x":[1]}')
    """
    kind = type(value)
    return value if kind is str else str(value) if kind is int else orjson.dumps(value).decode()


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _parse(template: str) -> list[tuple[str, str | None]]:
    subject, step = f"the template {template!r}", "Write names of key columns in braces: 'user:{id}'."
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ApplicationInvalid("use", subject, str(error), step) from error
    columns = [column for _, column, _, _ in parts if column is not None]
    if not columns or not all(columns) or len(set(columns)) != len(columns):
        raise ApplicationInvalid("use", subject, "it has to name columns, each once", step)
    if any(spec or conversion for _, _, spec, conversion in parts):
        raise ApplicationInvalid("use", subject, "it has more than names in its braces", step)
    return [(literal, column) for literal, column, _, _ in parts]
