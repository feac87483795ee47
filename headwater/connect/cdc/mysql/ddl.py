"""What a DDL statement does to tables, read as far as columns and keys go; pure.

It follows tables whose log has no column names (``binlog_row_metadata`` is not FULL). What it cannot read it says
(`Unclear`), and the table is then looked up in the server.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.connect.cdc.mysql.schema import TEXTUAL, Column, Table
from headwater.connect.cdc.mysql.tokens import Token, tokens

Name = tuple[str, str]  # database and table


class Created(NamedTuple):
    """A table came to be; `table` is None when its columns could not be read. `replaces`: whatever was there."""

    name: Name
    table: Table | None
    like: Name | None = None
    if_not_exists: bool = False


class Altered(NamedTuple):
    """Columns or keys of a table changed; `change` makes the new table of the old one, or None when unclear."""

    name: Name
    change: Callable[[Table], Table | None]


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


class _NotUnderstood(Exception):
    pass


@dataclass(frozen=True)
class Defaults:
    """What a statement leaves unsaid."""

    database: str
    charset: str = "utf8mb4"  # of the database
    is_mariadb: bool = True
    ansi_quotes: bool = False


def effects(statement: str, defaults: Defaults) -> list[Effect]:
    """What a statement does to tables, in order; nothing for what is no DDL of tables.

    >>> effects("drop table if exists a, other.b", Defaults("shop"))
    [Dropped(name=('shop', 'a')), Dropped(name=('other', 'b'))]
    """
    reader = _Reader(tokens(statement, defaults.ansi_quotes), defaults)
    try:
        return reader.statement()
    except (_NotUnderstood, IndexError):
        return [Unclear(statement)]


_TYPE_NAMES = {
    "INTEGER": "int", "INT4": "int", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint",
    "MIDDLEINT": "mediumint", "INT8": "bigint", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal",
    "NUMBER": "decimal", "REAL": "double", "FLOAT8": "double", "FLOAT4": "float", "CHARACTER": "char",
    "NCHAR": "char", "NVARCHAR": "varchar", "VARCHAR2": "varchar", "VARCHARACTER": "varchar", "CLOB": "longtext",
    "RAW": "varbinary",
}  # fmt: skip
_NATIONAL = {"NCHAR", "NVARCHAR", "NATIONAL"}
_KEY_WORDS = {
    "PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PERIOD",
}  # fmt: skip


class _Reader:
    """Reads one statement, token by token."""

    def __init__(self, found: list[Token], defaults: Defaults) -> None:
        self._tokens, self._at, self._defaults = found, 0, defaults

    # -- tokens

    def peek(self, ahead: int = 0) -> Token:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("end", "")

    def take(self) -> Token:
        token = self.peek()
        if token.kind == "end":
            raise _NotUnderstood
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Takes these keywords when they are next."""
        if all(self.peek(n).word == word or self.peek(n).text == word for n, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def identifier(self) -> str:
        token = self.take()
        if token.kind not in ("word", "name", "number"):
            raise _NotUnderstood
        return token.text

    def table_name(self) -> Name:
        first = self.identifier()
        if self.accept("."):
            return first, self.identifier()
        return self._defaults.database, first

    def brackets(self) -> list[Token]:
        """What is between brackets, which are next."""
        if not self.accept("("):
            raise _NotUnderstood
        depth = 1
        inside: list[Token] = []
        while True:
            token = self.take()
            depth += (token.text == "(" and token.kind == "sign") - (
                token.text == ")" and token.kind == "sign"
            )
            if not depth:
                return inside
            inside.append(token)

    def rest_of_part(self) -> list[Token]:
        """Up to the next comma that is in no brackets, which is left where it is."""
        part: list[Token] = []
        while self.peek().kind != "end" and not (self.peek().kind == "sign" and self.peek().text in ",;"):
            if self.peek().kind == "sign" and self.peek().text == "(":
                part += [Token("sign", "("), *self.brackets(), Token("sign", ")")]
            else:
                part.append(self.take())
        return part

    def sub(self, inside: list[Token]) -> "_Reader":
        return _Reader(inside, self._defaults)

    # -- statements

    def statement(self) -> list[Effect]:
        if self.accept("SET", "STATEMENT"):  # MariaDB: SET STATEMENT a=1 FOR ALTER TABLE ...
            while not self.accept("FOR"):
                self.take()
        if self.accept("CREATE"):
            return self._create()
        if self.accept("ALTER"):
            while self.peek().word in ("ONLINE", "OFFLINE", "IGNORE"):
                self.take()
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
            return self._index(added=True)
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
        table = body.columns(Table(*name, (), (), engine or "InnoDB"), charset or self._defaults.charset)
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

    def columns(self, table: Table, charset: str) -> Table:
        """The body of CREATE TABLE."""
        columns: list[Column] = []
        primary: tuple[str, ...] = ()
        uniques: list[tuple[str, ...]] = []
        row_end, versioned = "", False
        while self.peek().kind != "end":
            if self.peek().word in _KEY_WORDS and not self._is_column_named_like_a_keyword():
                kind, names = self._key_definition()
                if kind == "primary":
                    primary = names
                elif kind == "unique":
                    uniques.append(names)
            else:
                made, extra = self._column(charset)
                columns.append(made)
                if extra.primary:
                    primary = (made.name,)
                if extra.unique:
                    uniques.append((made.name,))
                row_end = made.name if extra.row_end else row_end
                versioned = versioned or extra.versioned
            if self.peek().kind != "end" and not self.accept(","):
                raise _NotUnderstood
        key = _chosen_key(columns, primary, uniques)
        made_table = replace(table, columns=_not_null(columns, primary), key=key, row_end=row_end)
        return with_versioning(made_table) if versioned and not row_end else made_table

    def _is_column_named_like_a_keyword(self) -> bool:
        """``key int`` is a column in no dialect, but ``period int`` is one."""
        return self.peek().word == "PERIOD" and self.peek(1).word != "FOR"

    def _key_definition(self) -> tuple[str, tuple[str, ...]]:
        part = self.sub(self.rest_of_part())
        if part.accept("CONSTRAINT") and part.peek().word not in _KEY_WORDS:
            part.identifier()
        kind = "primary" if part.accept("PRIMARY", "KEY") else "unique" if part.accept("UNIQUE") else ""
        if not kind:
            return "", ()
        while part.peek().text != "(":
            part.take()
        return kind, _index_columns(part.sub(part.brackets()))

    def _column(self, charset: str) -> tuple[Column, "_Extra"]:
        name = self.identifier()
        return self._column_type(name, self.sub(self.rest_of_part()), charset)

    def _column_type(self, name: str, part: "_Reader", charset: str) -> tuple[Column, "_Extra"]:
        type_text, own_charset, textual, serial = part._type(self._defaults.is_mariadb)
        extra = _Extra(primary=False, unique=serial)
        nullable = not serial
        while part.peek().kind != "end":
            if part.accept("UNSIGNED"):
                type_text += " unsigned"
            elif part.accept("ZEROFILL"):
                type_text += (" unsigned" if "unsigned" not in type_text else "") + " zerofill"
            elif part.accept("CHARACTER", "SET") or part.accept("CHARSET"):
                own_charset = part.take().text.strip("'\"").lower()
            elif part.accept("COLLATE"):
                own_charset = own_charset or charset_of_collation(part.take().text.strip("'\"").lower())
            elif part.accept("ASCII"):
                own_charset = "latin1"
            elif part.accept("UNICODE"):
                own_charset = "ucs2"
            elif part.accept("BYTE"):
                own_charset = "binary"
            elif part.accept("NOT", "NULL"):
                nullable = False
            elif part.accept("PRIMARY", "KEY") or part.accept("PRIMARY"):
                extra, nullable = extra._replace(primary=True), False
            elif part.accept("UNIQUE"):
                part.accept("KEY")
                extra = extra._replace(unique=True)
            elif part.accept("KEY"):  # alone it is short for PRIMARY KEY
                extra, nullable = extra._replace(primary=True), False
            elif part.accept("ROW", "END"):
                extra = extra._replace(row_end=True)
            elif part.accept("WITH", "SYSTEM", "VERSIONING"):
                extra = extra._replace(versioned=True)
            elif part.accept("DEFAULT") or part.accept("COMMENT"):
                if part.peek().text == "(" and part.peek().kind == "sign":
                    part.brackets()
                else:
                    part.take()
            elif part.accept("REFERENCES"):
                break
            elif part.accept("FIRST"):
                extra = extra._replace(place="")
            elif part.accept("AFTER"):
                extra = extra._replace(place=part.identifier())
            elif part.peek().text == "(" and part.peek().kind == "sign":
                part.brackets()
            else:
                part.take()
        if textual:
            own_charset = own_charset or charset
            if own_charset == "binary":
                base, bracket, rest = type_text.partition("(")
                type_text = _AS_BYTES.get(base, base) + bracket + rest
                own_charset = own_charset if base in ("enum", "set") else None
        else:
            own_charset = None
        return Column(name, type_text, own_charset, False, nullable), extra

    def _type(self, is_mariadb: bool) -> tuple[str, str | None, bool, bool]:
        """Type as information_schema has it, a character set it implies, whether it is a text, whether SERIAL."""
        word = self.take().word
        if not word:
            raise _NotUnderstood
        if word == "SERIAL":
            return "bigint(20) unsigned", None, False, True
        charset = "utf8mb3" if word in _NATIONAL else None
        if word == "NATIONAL":
            word = self.take().word
        if word in ("BOOL", "BOOLEAN"):
            return "tinyint(1)", None, False, False
        if word == "LONG":
            binary = self.accept("VARBINARY")
            self.accept("VARCHAR") or self.accept("CHAR", "VARYING")
            return ("mediumblob" if binary else "mediumtext"), None, not binary, False
        if word == "JSON":
            return ("longtext", "utf8mb4", True, False) if is_mariadb else ("json", None, False, False)
        base = _TYPE_NAMES.get(word, word.lower())
        if base == "double":
            self.accept("PRECISION")
        if base == "char" and self.accept("VARYING"):
            base = "varchar"
        arguments = ""
        if self.peek().text == "(" and self.peek().kind == "sign":
            arguments = "".join(token.text for token in self.brackets())
        text = _complete(base, arguments)
        return text, charset, text.partition("(")[0] in TEXTUAL, False

    # -- changes

    def _alter(self) -> list[Effect]:
        self.accept("IF", "EXISTS")
        name = self.table_name()
        while self.accept("WAIT") or self.accept("NOWAIT"):
            if self.peek().kind == "number":
                self.take()
        changes: list[Callable[[Table], Table]] = []
        found: list[Effect] = []
        renamed: Name | None = None
        while self.peek().kind != "end":
            part = self.sub(self.rest_of_part())
            self.accept(",") or self.accept(";")
            if part.accept("RENAME"):
                if part.peek().word in ("COLUMN", "INDEX", "KEY"):
                    if part.take().word == "COLUMN":
                        part.accept("IF", "EXISTS")
                        old = part.identifier()
                        part.accept("TO")
                        changes.append(_rename_column(old, part.identifier()))
                    continue
                part.accept("TO") or part.accept("AS") or part.accept("=")
                renamed = part.table_name()
                continue
            changes += part._alteration()
        if changes:
            found.append(Altered(name, lambda table: _all(changes, table)))
        if renamed is not None:
            found.append(Renamed(name, renamed))
        return found

    def _alteration(self) -> list[Callable[[Table], Table]]:
        """One part of ALTER TABLE as changes of a table; none for what matters to nobody here."""
        charset = self._defaults.charset
        if self.accept("ADD"):
            if self.accept("SYSTEM", "VERSIONING"):
                return [with_versioning]
            if self.peek().word in _KEY_WORDS and not self._is_column_named_like_a_keyword():
                kind, names = self._key_definition()
                return [_add_key(kind, names)] if kind else []
            if self.peek().word in ("PARTITION",):
                return []
            self.accept("COLUMN")
            self.accept("IF", "NOT", "EXISTS")
            if self.peek().text == "(" and self.peek().kind == "sign":
                body = self.sub(self.brackets()).columns(Table("", "", (), ()), charset)
                return [_add_column(column, _Extra()) for column in body.columns]
            return [_add_column(*self._column(charset))]
        if self.accept("DROP"):
            if self.accept("SYSTEM", "VERSIONING"):
                return [_without_versioning]
            if self.accept("PRIMARY", "KEY"):
                return [_drop_primary]
            if self.peek().word in ("PARTITION", "FOREIGN", "CHECK", "CONSTRAINT", "PERIOD"):
                return []
            if self.peek().word in ("INDEX", "KEY"):
                return [_unclear]  # it may have been the key
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            return [_drop_column(self.identifier())]
        if self.accept("MODIFY"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            column, extra = self._column(charset)
            return [_change_column(column.name, column, extra)]
        if self.accept("CHANGE"):
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            old = self.identifier()
            return [_change_column(old, *self._column(charset))]
        if self.accept("CONVERT", "TO"):
            self.accept("CHARACTER", "SET") or self.accept("CHARSET")
            return [_convert(self.take().text.strip("'\"").lower())]
        if self.accept("ENGINE"):
            self.accept("=")
            engine = self.take().text
            return [lambda table: replace(table, engine=engine)]
        if self.peek().word in ("EXCHANGE", "PARTITION"):
            return []
        return []

    def _index(self, added: bool) -> list[Effect]:
        """CREATE and DROP INDEX: whether it was or becomes the key the server knows best."""
        while self.peek().kind != "end" and not self.accept("ON"):
            self.take()
        return [Altered(self.table_name(), _unclear)]

    def _rename(self) -> list[Effect]:
        found: list[Effect] = []
        self.accept("IF", "EXISTS")
        while True:
            old = self.table_name()
            while self.accept("WAIT") or self.accept("NOWAIT"):
                if self.peek().kind == "number":
                    self.take()
            if not self.accept("TO"):
                raise _NotUnderstood
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
            return self._index(added=False)
        if not (self.accept("TABLE") or self.accept("TABLES")):
            return []
        self.accept("IF", "EXISTS")
        found: list[Effect] = [Dropped(self.table_name())]
        while self.accept(","):
            found.append(Dropped(self.table_name()))
        return found


class _Extra(NamedTuple):
    """What stands beside a column's type."""

    primary: bool = False
    unique: bool = False
    row_end: bool = False
    versioned: bool = False
    place: str | None = None  # after which column; "" is first, None last


_AS_BYTES = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip


def _complete(base: str, arguments: str) -> str:
    """With the arguments that the server adds, as far as they matter."""
    if base == "decimal":
        arguments = arguments or "10,0"
        arguments += ",0" if "," not in arguments else ""
    elif base == "float" and arguments.isdigit():
        base, arguments = ("float", "") if int(arguments) < 25 else ("double", "")
    elif base in ("char", "binary", "bit"):
        arguments = arguments or "1"
    elif base in ("text", "blob") and arguments:
        size = int(arguments)
        prefix = "tiny" if size < 256 else "" if size < 65_536 else "medium" if size < 1 << 24 else "long"
        base, arguments = prefix + base, ""
    return f"{base}({arguments})" if arguments else base


def charset_of_collation(collation: str) -> str:
    """``utf8mb4_general_ci`` is a collation of utf8mb4; the uca1400 family leaves the character set open."""
    return "utf8mb4" if collation.startswith("uca1400") else collation.split("_")[0]


def _index_columns(inside: _Reader) -> tuple[str, ...]:
    names = []
    while inside.peek().kind != "end":
        part = inside.sub(inside.rest_of_part())
        inside.accept(",")
        names.append(part.identifier())
    return tuple(names)


def _not_null(columns: list[Column], primary: tuple[str, ...]) -> tuple[Column, ...]:
    folded = {name.lower() for name in primary}
    return tuple(c._replace(nullable=False) if c.name.lower() in folded else c for c in columns)


def _chosen_key(
    columns: list[Column], primary: tuple[str, ...], uniques: list[tuple[str, ...]]
) -> tuple[str, ...]:
    """The primary key, else the first unique index whose columns cannot be NULL."""
    by_name = {column.name.lower(): column for column in columns}
    candidates = [primary] if primary else uniques
    for names in candidates:
        found = [by_name.get(name.lower()) for name in names]
        if all(c is not None and (bool(primary) or not c.nullable) for c in found):
            return tuple(c.name for c in found if c is not None)
    return ()


# -- changes of a table ----------------------------------------------------------------------------


class _UnclearChange(Exception):
    pass


def _all(changes: list[Callable[[Table], Table]], table: Table) -> Table | None:
    try:
        for change in changes:
            table = change(table)
    except _UnclearChange:
        return None
    return table


def _unclear(table: Table) -> Table:
    raise _UnclearChange


def _place(table: Table, name: str) -> int:
    for place, column in enumerate(table.columns):
        if column.name.lower() == name.lower():
            return place
    raise _UnclearChange


def with_versioning(table: Table) -> Table:
    """System versioning without columns of one's own adds two that nobody sees."""
    if table.row_end:
        return table
    hidden = tuple(Column(name, "timestamp(6)", None, True, False) for name in ("row_start", "row_end"))
    return replace(table, columns=table.columns + hidden, row_end="row_end")


def _without_versioning(table: Table) -> Table:
    return replace(table, columns=tuple(c for c in table.columns if not c.hidden), row_end="")


def _insert(columns: list[Column], column: Column, place: str | None) -> tuple[Column, ...]:
    if place == "":
        columns.insert(0, column)
    elif place is not None:
        names = [each.name.lower() for each in columns]
        if place.lower() not in names:
            raise _UnclearChange
        columns.insert(names.index(place.lower()) + 1, column)
    else:  # last, but before what nobody sees
        end = len(columns)
        while end and columns[end - 1].hidden:
            end -= 1
        columns.insert(end, column)
    return tuple(columns)


def _add_column(column: Column, extra: _Extra) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        if any(each.name.lower() == column.name.lower() for each in table.columns):
            return table  # IF NOT EXISTS
        made = replace(table, columns=_insert(list(table.columns), column, extra.place))
        if extra.primary:
            made = replace(made, key=(column.name,))
        elif extra.unique and not table.key:
            raise _UnclearChange
        return made

    return change


def _drop_column(name: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        kept = tuple(each for each in table.columns if each.name.lower() != name.lower())
        if any(part.lower() == name.lower() for part in table.key):
            raise _UnclearChange  # the key lost a column, or another index is the key now
        return replace(table, columns=kept)

    return change


def _change_column(old: str, column: Column, extra: _Extra) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        place = _place(table, old)
        columns = list(table.columns)
        previous = columns.pop(place)
        in_key = any(part.lower() == old.lower() for part in table.key)
        made = column._replace(nullable=column.nullable and not (in_key and not previous.nullable))
        if extra.place is None:
            columns.insert(place, made)
            changed = tuple(columns)
        else:
            changed = _insert(columns, made, extra.place)
        key = tuple(column.name if part.lower() == old.lower() else part for part in table.key)
        return replace(table, columns=changed, key=(column.name,) if extra.primary else key)

    return change


def _rename_column(old: str, new: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        place = _place(table, old)
        columns = list(table.columns)
        columns[place] = columns[place]._replace(name=new)
        key = tuple(new if part.lower() == old.lower() else part for part in table.key)
        return replace(table, columns=tuple(columns), key=key)

    return change


def _add_key(kind: str, names: tuple[str, ...]) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        if kind == "primary":
            found = tuple(table.columns[_place(table, name)].name for name in names)
            return replace(table, columns=_not_null(list(table.columns), found), key=found)
        if table.key:
            return table  # it has a key already
        return replace(table, key=_chosen_key(list(table.columns), (), [names]))

    return change


def _drop_primary(table: Table) -> Table:
    raise _UnclearChange  # a unique index may be the key now


def _convert(charset: str) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        columns = tuple(c._replace(charset=charset) if c.charset is not None else c for c in table.columns)
        return replace(table, columns=columns)

    return change
