"""The query of an address: each parameter known, at most once, and of its type. Pure."""

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

from headwater.client.faults import did_you_mean
from headwater.errors import BadInput

LONGEST = 64_000  # bytes
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,30})?([eE][+-]?\d{1,4})?\Z", re.ASCII)


class Parameters:
    """What stands behind the question mark.

    >>> given = Parameters(b"limit=10&order=-n", ("limit", "order", "where"))
    >>> given.number("limit", 1, 100, 50), given.text("order"), given.text("where")
    (10, '-n', None)
    """

    def __init__(self, query: bytes, known: Sequence[str]) -> None:
        self._values: dict[str, str] = {}
        if not query:
            return
        if len(query) > LONGEST:
            raise BadInput("read", "the query", f"it has more than {LONGEST} bytes", "Ask for less.")
        try:
            pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="strict")
        except ValueError:
            raise BadInput("read", "the query", "it is not UTF-8", "Encode it so.") from None
        for name, value in pairs:
            subject = f"the parameter {name!r}"
            if name not in known:
                listed = f"There are {', '.join(known)}." if known else "There are none."
                raise BadInput(
                    "use", subject, "there is no such parameter", did_you_mean(name, known, listed)
                )
            if name in self._values:
                raise BadInput("use", subject, "it is given twice", "Give it once.")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """The value of a parameter, or None."""
        return self._values.get(name)

    def number(self, name: str, least: int, most: int, otherwise: int) -> int:
        """A whole number between two others."""
        text = self._values.get(name)
        if text is None:
            return otherwise
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            step = f"Give a whole number from {least} to {most}."
            raise BadInput("use", f"{name}={text}", "it is not one that there can be", step)
        return int(text)

    def seconds(self, name: str, most: float, otherwise: float) -> float:
        """A length of time in seconds.

        >>> Parameters(b"wait=2.5", ["wait"]).seconds("wait", 30, 10)
        2.5
        """
        text = self._values.get(name)
        if text is None:
            return min(otherwise, most)
        if not _NUMBER.match(text) or not 0 <= float(text) <= most:
            step = f"Give seconds from 0 to {most:g}."
            raise BadInput("use", f"{name}={text}", "it is not a length of time that there can be", step)
        return float(text)
