"""What is known of tables: columns, keys, character sets. Pure; catalog.py reads it from a server."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

# MySQL's names of character sets to Python's. latin1 is cp1252 there, with its five holes filled (see `decoder`).
CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "dec8": "latin1",
    "hp8": "hp_roman8",
    "swe7": "ascii",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "big5",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "tis620": "tis_620",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}

TEXTUAL = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
GEOMETRIES = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
}


class Type(NamedTuple):
    """A column's type in parts: ``int(10) unsigned`` is ("int", "10", True)."""

    base: str
    arguments: str = ""
    unsigned: bool = False

    @property
    def numbers(self) -> list[int]:
        """The arguments as numbers: precision and scale, length, digits of a second."""
        return [int(part) for part in self.arguments.split(",") if part.strip().isdigit()]


def parse_type(text: str) -> Type:
    """From what information_schema.columns has as COLUMN_TYPE.

    >>> parse_type("decimal(10,2) unsigned zerofill")
    Type(base='decimal', arguments='10,2', unsigned=True)
    """
    text = re.sub(r"/\*.*?\*/", "", text) if not text.startswith(("enum", "set")) else text
    base, bracket, rest = text.partition("(")
    if not bracket:
        words = base.split()
        return Type(words[0].lower(), "", "unsigned" in words or "zerofill" in words)
    arguments, _, flags = rest.rpartition(")")
    return Type(base.strip().lower(), arguments, "unsigned" in flags or "zerofill" in flags)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a", "b": "\b"}
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)


def parse_labels(arguments: str) -> list[str]:
    r"""The labels of an enum or a set.

    >>> parse_labels(r"'a,b','it''s','back\\slash'")
    ['a,b', "it's", 'back\\slash']
    """

    def plain(label: str) -> str:
        return re.sub(
            r"''|\\(.)",
            lambda m: "'" if m[0] == "''" else _ESCAPES.get(m[1], m[1]),
            label,
            flags=re.DOTALL,
        )

    return [plain(label) for label in _LABEL.findall(arguments)]


class Column(NamedTuple):
    """One column, in the order of the table."""

    name: str
    type: str  # as in information_schema, without comments
    charset: str | None = None  # of texts, enums and sets
    hidden: bool = False  # not part of the table that people see: the implicit columns of system versioning
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table as it is at one point of the binary log."""

    database: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    engine: str = "InnoDB"
    row_end: str = ""  # the column that says until when a row is valid, in a table with system versioning
    dropped: tuple[str, ...] = ()  # columns that rows in the topic may have, and the table has no more
    charset: str | None = None  # of texts in columns to come; positions of earlier versions do not say it

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that events have."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def is_transactional(self) -> bool:
        """Whether a rollback undoes changes of it."""
        return self.engine.lower() in ("innodb", "rocksdb", "tokudb", "ndb", "ndbcluster", "spider", "")

    def renamed(self, database: str, name: str) -> "Table":
        return replace(self, database=database, name=name)

    def to_json(self) -> list[Any]:
        """Short, for positions."""
        columns = [[c.name, c.type, c.charset, int(c.hidden), int(c.nullable)] for c in self.columns]
        more: list[Any] = [list(self.dropped)] if self.dropped or self.charset else []
        more += [self.charset] if self.charset else []
        return [self.database, self.name, columns, list(self.key), self.engine, self.row_end, *more]

    @classmethod
    def from_json(cls, parts: list[Any]) -> "Table":
        database, name, columns, key, engine, row_end, *more = parts
        made = tuple(Column(n, t, c, bool(h), bool(u)) for n, t, c, h, u in columns)
        dropped, charset = (more + [(), None][len(more) :])[:2]
        return cls(database, name, made, tuple(key), engine, row_end, tuple(dropped), charset)


_SYSTEM = {"mysql", "information_schema", "performance_schema", "sys"}


class Filter:
    """Which tables are captured: names of the URL's database, or ``other.table``; None is all of the database.

    >>> Filter("shop", ("users", "stock.items")).captures("stock", "items")
    True
    """

    def __init__(
        self,
        database: str,
        tables: Iterable[str] | None,
        topic: Callable[[str, str], str] = lambda database, table: f"{database}.{table}",
    ) -> None:
        self.database, self._topic = database, topic
        self._first: dict[str, tuple[str, str]] = {}
        self.notes: tuple[str, ...] = ()
        self._tables: set[tuple[str, str]] | None = None
        if tables is not None:
            pairs = (name.split(".", 1) if "." in name else (database, name) for name in tables)
            self._tables = {(pair[0], pair[1]) for pair in pairs}

    @property
    def databases(self) -> set[str]:
        return {database for database, _ in self._tables} if self._tables is not None else {self.database}

    @property
    def named(self) -> set[tuple[str, str]]:
        """The tables that were asked for by name."""
        return self._tables or set()

    def captures(self, database: str, table: str) -> bool:
        if self._tables is not None:
            wanted = (database, table) in self._tables
        else:
            wanted = database == self.database and database not in _SYSTEM
        return wanted and self.taken_by(database, table) is None

    def taken_by(self, database: str, table: str) -> tuple[str, str] | None:
        """The table whose topic would be that of this one, which is left out then."""
        first = self._first.setdefault(self._topic(database, table), (database, table))
        if first == (database, table):
            return None
        note = f"{database}.{table} is left out: its topic would be that of {'.'.join(first)}"
        self.notes = self.notes if note in self.notes else (*self.notes, note)
        return first
