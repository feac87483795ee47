"""What a DDL statement does to tables, read as far as columns and keys go; pure.

It follows tables whose log has no column names (``binlog_row_metadata`` is not FULL). What it cannot read it says
(`Unclear`), and the table is then looked up in the server.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from headwater.connect.cdc.mysql.alterations import (
    Extra,
    add_column,
    add_key,
    apply_all,
    change_column,
    convert,
    drop_column,
    rename_column,
    with_charset,
    with_versioning,
    without_versioning,
)
from headwater.connect.cdc.mysql.definitions import (
    KEY_WORDS,
    OF_TABLE,
    Defaults,
    DefinitionReader,
    Name,
    NotUnderstood,
    charset_of_collation,
    in_charset,
)
from headwater.connect.cdc.mysql.schema import Column, Table
from headwater.connect.cdc.mysql.tokens import tokens


class Created(NamedTuple):
    """A table came to be; `table` is None when its columns could not be read. `replaces`: whatever was there."""

    name: Name
    table: Table | None
    like: Name | None = None
    if_not_exists: bool = False


class Altered(NamedTuple):
    """Columns or keys of a table changed; `change` makes the new table of the old one, or None when unclear.

    `touches_rows` when rows came, went or have other values by it: of that the log has nothing. `asks_key` when an
    index came or went that may be the key: which one is, the server knows best. `freed` are columns that may be NULL
    now, and so are in no key any more, unless it is the primary one.
    """

    name: Name
    change: Callable[[Table], Table | None]
    touches_rows: bool = False
    asks_key: bool = False
    freed: frozenset[str] = frozenset()


class Renamed(NamedTuple):
    """A table has another name."""

    old: Name
    new: Name


class Dropped(NamedTuple):
    name: Name


class Truncated(NamedTuple):
    name: Name


class DatabaseDropped(NamedTuple):
    database: str


class Unclear(NamedTuple):
    """A statement about tables that was not understood."""

    text: str


Effect = Created | Altered | Renamed | Dropped | Truncated | DatabaseDropped | Unclear


def effects(statement: str, defaults: Defaults) -> list[Effect]:
    """What a statement does to tables, in order; nothing for what is no DDL of tables.

    >>> effects("drop table if exists a, other.b", Defaults("shop"))
    [Dropped(name=('shop', 'a')), Dropped(name=('other', 'b'))]
    """
    reader = _Statements(tokens(statement, defaults.ansi_quotes), defaults)
    try:
        return reader.statement()
    except (NotUnderstood, IndexError):
        return [Unclear(statement)]


class _Statements(DefinitionReader):
    """Reads one statement."""

    touches_rows = False
    asks_key = False
    freed: frozenset[str] = frozenset()

    def statement(self) -> list[Effect]:
        if self.accept("SET", "STATEMENT"):  # MariaDB: SET STATEMENT a=1 FOR ALTER TABLE ...
            while not self.accept("FOR"):
                self.take()
        if self.accept("CREATE"):
            return self._create()
        if self.accept("ALTER"):
            while self.peek().word in ("ONLINE", "OFFLINE", "IGNORE"):
                # What does not fit is left out or made to fit, rows that are twice in a new key among it.
                self.touches_rows = self.take().word == "IGNORE" or self.touches_rows
            return self._alter() if self.accept("TABLE") else []
        if self.accept("RENAME"):
            return self._rename() if self.accept("TABLE") or self.accept("TABLES") else []
        if self.accept("DROP"):
            return self._drop()
        if self.accept("TRUNCATE"):
            self.accept("TABLE")
            return [Truncated(self.table_name())]
        return []

    def _create(self) -> list[Effect]:
        self.accept("OR", "REPLACE")
        if self.accept("TEMPORARY"):
            return []
        words = {self.peek(n).word for n in range(4)}
        if "INDEX" in words or "KEY" in words:
            return self._index()
        if not self.accept("TABLE"):
            return []
        unless_there = self.accept("IF", "NOT", "EXISTS")
        name = self.table_name()
        if self.accept("LIKE") or (self.peek(1).word == "LIKE" and self.accept("(", "LIKE")):
            return [Created(name, None, self.table_name(), unless_there)]
        if self.peek().text != "(":
            return [Created(name, None, None, unless_there)]
        body = self.sub(self.brackets())
        if body.peek().word == "LIKE":
            body.take()
            return [Created(name, None, body.table_name(), unless_there)]
        charset, engine, versioned, selects = self._options()
        if selects:  # columns of a SELECT; row-based logs have it written out, so this is a surprise
            return [Created(name, None, None, unless_there)]
        charset = charset or self._defaults.charset
        table = body.columns(Table(*name, (), (), engine or "InnoDB", charset=charset), charset)
        return [Created(name, with_versioning(table) if versioned else table, None, unless_there)]

    def _options(self) -> tuple[str | None, str | None, bool, bool]:
        """The table's options: character set, engine, system versioning, and whether a SELECT follows."""
        charset = engine = None
        versioned = selects = False
        while self.peek().kind != "end":
            if self.accept("CHARSET") or self.accept("CHARACTER", "SET"):
                self.accept("=")
                charset = self.take().text.strip("'\"").lower()
            elif self.accept("COLLATE"):
                self.accept("=")
                collation = self.take().text.strip("'\"").lower()
                charset = charset or charset_of_collation(collation)
            elif self.accept("ENGINE"):
                self.accept("=")
                engine = self.take().text.strip("'\"")
            elif self.accept("WITH", "SYSTEM", "VERSIONING"):
                versioned = True
            elif self.peek().word in ("SELECT", "AS", "VALUES"):
                selects = True
                self.take()
            elif self.peek().text == "(" and self.peek().kind == "sign":
                self.brackets()
            else:
                self.take()
        return charset, engine, versioned, selects

    def _alter(self) -> list[Effect]:
        self.accept("IF", "EXISTS")
        name = self.table_name()
        while self.accept("WAIT") or self.accept("NOWAIT"):
            if self.peek().kind == "number":
                self.take()
        changes: list[Callable[[Table], Table]] = []
        found: list[Effect] = []
        renamed: Name | None = None
        touches_rows, asks_key, freed = self.touches_rows, False, self.freed
        while self.peek().kind != "end":
            part = self.sub(self.rest_of_part())
            self.accept(",") or self.accept(";")
            if part.accept("RENAME"):
                if part.peek().word in ("COLUMN", "INDEX", "KEY"):
                    if part.take().word == "COLUMN":
                        part.accept("IF", "EXISTS")
                        old = part.identifier()
                        part.accept("TO")
                        changes.append(rename_column(old, part.identifier()))
                    continue
                part.accept("TO") or part.accept("AS") or part.accept("=")
                renamed = part.table_name()
                continue
            found += part._swapped()
            changes += part._alteration()
            touches_rows = touches_rows or part.touches_rows
            asks_key = asks_key or part.asks_key
            freed |= part.freed
        if changes or touches_rows or asks_key:
            altered = Altered(name, lambda table: apply_all(changes, table), touches_rows, asks_key, freed)
            found.insert(0, altered)
        if renamed is not None:
            found.append(Renamed(name, renamed))
        return found

    def _swapped(self) -> list[Effect]:
        """What a part of ALTER TABLE does to another table, whose rows it takes or gives."""
        words = [token.word for token in self._tokens]
        if words[:1] in (["TRUNCATE"], ["IMPORT"]) or words[:2] == ["DROP", "PARTITION"]:
            self.touches_rows = True
        elif words[:1] in (["EXCHANGE"], ["CONVERT"]) and "PARTITION" in words and "TABLE" in words:
            self.touches_rows = True
            self._at = words.index("TABLE") + 1
            other = self.table_name()
            if words[:2] == ["CONVERT", "TABLE"]:
                return [Dropped(other)]
            return [Altered(other, lambda table: table, True)]
        return []

    def _alteration(self) -> list[Callable[[Table], Table]]:
        """One part of ALTER TABLE as changes of a table; none for what matters to nobody here."""
        if self.accept("ADD"):
            if self.accept("SYSTEM", "VERSIONING"):
                return [with_versioning]
            if self.peek().word in KEY_WORDS and not self.is_column_named_like_a_keyword():
                kind, names = self.key_definition()
                return [add_key(kind, names)] if kind else []
            if self.peek().word in ("PARTITION",):
                return []
            self.accept("COLUMN")
            self.accept("IF", "NOT", "EXISTS")
            if self.peek().text == "(" and self.peek().kind == "sign":
                inside = self.sub(self.brackets())
                self.touches_rows = True  # to tell which of them have a default is not worth the while
                body = inside.columns(Table("", "", (), ()), OF_TABLE)
                return [self._with_charset(add_column, column, Extra()) for column in body.columns]
            column, extra = self.column(OF_TABLE)
            self.touches_rows = extra.filled
            return [self._with_charset(add_column, column, extra)]
        if self.accept("DROP"):
            if self.accept("SYSTEM", "VERSIONING"):
                return [without_versioning]
            if self.accept("PRIMARY", "KEY"):
                self.asks_key = True  # a unique index may be the key now
                return []
            if self.peek().word in ("PARTITION", "FOREIGN", "CHECK", "PERIOD"):
                return []
            if self.peek().word in ("INDEX", "KEY", "CONSTRAINT"):  # a unique index is a constraint, too
                self.asks_key = True  # it may have been the key
                return []
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            return [drop_column(self.identifier())]
        if self.accept("MODIFY"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            column, extra = self.column(OF_TABLE)
            self.touches_rows = extra.computed
            self.freed = frozenset([column.name] if column.nullable else [])
            return [self._with_charset(partial(change_column, column.name), column, extra)]
        if self.accept("CHANGE"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            old = self.identifier()
            column, extra = self.column(OF_TABLE)
            self.touches_rows = extra.computed
            self.freed = frozenset([old] if column.nullable else [])
            return [self._with_charset(partial(change_column, old), column, extra)]
        if self.peek().word == "CONVERT" and self.peek(1).word != "TO":
            return []
        if self.accept("CONVERT", "TO"):
            self.accept("CHARACTER", "SET") or self.accept("CHARSET")
            return [convert(self._charset())]
        if self.accept("ENGINE"):
            self.accept("=")
            engine = self.take().text
            return [lambda table: replace(table, engine=engine)]
        self.accept("DEFAULT")
        if self.accept("CHARACTER", "SET") or self.accept("CHARSET"):
            self.accept("=")
            return [with_charset(self._charset())]
        if self.accept("COLLATE"):
            self.accept("=")
            return [with_charset(charset_of_collation(self.take().text.strip("'\"").lower()))]
        return []

    def _charset(self) -> str:
        token = self.take()
        return self._defaults.charset if token.word == "DEFAULT" else token.text.strip("'\"").lower()

    def _with_charset(
        self, make: Callable[[Column, Extra], Callable[[Table], Table]], column: Column, extra: Extra
    ) -> Callable[[Table], Table]:
        """A change of a column that may have the table's character set, which is known when the change is made."""
        return lambda table: make(in_charset(column, table.charset or self._defaults.charset), extra)(table)

    def _index(self) -> list[Effect]:
        """CREATE and DROP INDEX: it may have been the key, or become it."""
        while self.peek().kind != "end" and not self.accept("ON"):
            self.take()
        return [Altered(self.table_name(), lambda table: table, asks_key=True)]

    def _rename(self) -> list[Effect]:
        found: list[Effect] = []
        self.accept("IF", "EXISTS")
        while True:
            old = self.table_name()
            while self.accept("WAIT") or self.accept("NOWAIT"):
                if self.peek().kind == "number":
                    self.take()
            if not self.accept("TO"):
                raise NotUnderstood
            found.append(Renamed(old, self.table_name()))
            if not self.accept(","):
                return found

    def _drop(self) -> list[Effect]:
        if self.accept("TEMPORARY"):
            return []
        if self.accept("DATABASE") or self.accept("SCHEMA"):
            self.accept("IF", "EXISTS")
            return [DatabaseDropped(self.identifier())]
        if self.accept("INDEX"):
            return self._index()
        if not (self.accept("TABLE") or self.accept("TABLES")):
            return []
        self.accept("IF", "EXISTS")
        found: list[Effect] = [Dropped(self.table_name())]
        while self.accept(","):
            found.append(Dropped(self.table_name()))
        return found
