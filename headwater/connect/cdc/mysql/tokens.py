"""SQL in tokens, as far as DDL needs it; pure.

Comments vanish, but for those that a server executes (``/*!50100 ... */``, ``/*M!100301 ... */``), whose content
stays. Names are told from keywords by their quotes only.
"""

import re
from typing import NamedTuple


class Token(NamedTuple):
    """A word, a name, a text, a number or a sign."""

    kind: str  # word, name, text, number, sign
    text: str

    @property
    def word(self) -> str:
        """In capitals, when it can be a keyword."""
        return self.text.upper() if self.kind == "word" else ""


_PARTS = re.compile(
    r"""
    (?P<space>\s+|--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/)
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<text>[xXnNbB]?'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")
  | (?P<number>\d+(?:\.\d+)?(?![\w$]))
  | (?P<word>[\w$]+)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(statement: str, ansi_quotes: bool = False) -> list[Token]:
    """The tokens of a statement.

    >>> [token.text for token in tokens("alter /* why */ table `a b` add x int(10)")]
    ['alter', 'table', 'a b', 'add', 'x', 'int', '(', '10', ')']
    """
    found = []
    for match in _PARTS.finditer(statement):
        kind, text = match.lastgroup or "", match[0]
        if kind == "space":
            continue
        if kind == "name":
            text = text[1:-1].replace("``", "`")
        elif kind == "text" and text[0] == '"' and ansi_quotes:
            kind, text = "name", text[1:-1].replace('""', '"')
        found.append(Token(kind, text))
    return found
