"""Definitions of columns and keys in DDL, read token by token; pure."""

import re
from dataclasses import dataclass, replace
from typing import Self

from headwater.connect.cdc.mysql.alterations import Extra, chosen_key, not_null, with_versioning
from headwater.connect.cdc.mysql.schema import TEXTUAL, Column, Table
from headwater.connect.cdc.mysql.tokens import Token

Name = tuple[str, str]  # database and table
OF_TABLE = "default"  # for the character set that the table has, where only the table knows it


class NotUnderstood(Exception):
    """A statement that is not as it is expected."""


@dataclass(frozen=True)
class Defaults:
    """What a statement leaves unsaid."""

    database: str
    charset: str = "utf8mb4"  # of the database
    is_mariadb: bool = True
    ansi_quotes: bool = False


_TYPE_NAMES = {
    "INTEGER": "int", "INT4": "int", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint",
    "MIDDLEINT": "mediumint", "INT8": "bigint", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal",
    "NUMBER": "decimal", "REAL": "double", "FLOAT8": "double", "FLOAT4": "float", "CHARACTER": "char",
    "NCHAR": "char", "NVARCHAR": "varchar", "VARCHAR2": "varchar", "VARCHARACTER": "varchar", "CLOB": "longtext",
    "RAW": "varbinary",
}  # fmt: skip
_NATIONAL = {"NCHAR", "NVARCHAR", "NATIONAL"}
KEY_WORDS = {
    "PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PERIOD",
}  # fmt: skip


class DefinitionReader:
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
            raise NotUnderstood
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
            raise NotUnderstood
        return token.text

    def table_name(self) -> Name:
        first = self.identifier()
        if self.accept("."):
            return first, self.identifier()
        return self._defaults.database, first

    def brackets(self) -> list[Token]:
        """What is between brackets, which are next."""
        if not self.accept("("):
            raise NotUnderstood
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

    def sub(self, inside: list[Token]) -> Self:
        return type(self)(inside, self._defaults)

    # -- columns and keys

    def columns(self, table: Table, charset: str) -> Table:
        """The body of CREATE TABLE."""
        columns: list[Column] = []
        primary: tuple[str, ...] = ()
        uniques: list[tuple[str, ...]] = []
        row_end, versioned = "", False
        while self.peek().kind != "end":
            if self.peek().word in KEY_WORDS and not self.is_column_named_like_a_keyword():
                kind, names = self.key_definition()
                if kind == "primary":
                    primary = names
                elif kind == "unique":
                    uniques.append(names)
            else:
                made, extra = self.column(charset)
                columns.append(made)
                if extra.primary:
                    primary = (made.name,)
                if extra.unique:
                    uniques.append((made.name,))
                row_end = made.name if extra.row_end else row_end
                versioned = versioned or extra.versioned
            if self.peek().kind != "end" and not self.accept(","):
                raise NotUnderstood
        key = chosen_key(columns, primary, uniques)
        made_table = replace(table, columns=not_null(columns, primary), key=key, row_end=row_end)
        return with_versioning(made_table) if versioned and not row_end else made_table

    def is_column_named_like_a_keyword(self) -> bool:
        """``key int`` is a column in no dialect, but ``period int`` is one."""
        return self.peek().word == "PERIOD" and self.peek(1).word != "FOR"

    def key_definition(self) -> tuple[str, tuple[str, ...]]:
        part = self.sub(self.rest_of_part())
        if part.accept("CONSTRAINT") and part.peek().word not in KEY_WORDS:
            part.identifier()
        kind = "primary" if part.accept("PRIMARY", "KEY") else "unique" if part.accept("UNIQUE") else ""
        if not kind:
            return "", ()
        while part.peek().text != "(":
            part.take()
        return kind, _index_columns(part.sub(part.brackets()))

    def column(self, charset: str) -> tuple[Column, "Extra"]:
        name = self.identifier()
        return self._column_type(name, self.sub(self.rest_of_part()), charset)

    def _column_type(self, name: str, part: Self, charset: str) -> tuple[Column, "Extra"]:
        type_text, own_charset, textual, serial = part._type(self._defaults.is_mariadb)
        extra = Extra(primary=False, unique=serial, filled=serial)
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
            elif part.accept("DEFAULT"):
                extra = extra._replace(filled=extra.filled or part.peek().word != "NULL")
                if part.peek().text == "(" and part.peek().kind == "sign":
                    part.brackets()
                else:
                    part.take()
            elif part.accept("AUTO_INCREMENT"):
                extra = extra._replace(filled=True)
            elif part.accept("AS"):
                extra = extra._replace(filled=True, computed=True)
            elif part.accept("COMMENT"):
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
        else:
            own_charset = None
        made = Column(name, type_text, own_charset, False, nullable)
        return made if own_charset is None else in_charset(made, own_charset), extra._replace(
            filled=extra.filled or not nullable or type_text.startswith("timestamp")
        )

    def _type(self, is_mariadb: bool) -> tuple[str, str | None, bool, bool]:
        """Type as information_schema has it, a character set it implies, whether it is a text, whether SERIAL."""
        word = self.take().word
        if not word:
            raise NotUnderstood
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
            arguments = "".join(_argument(token) for token in self.brackets())
        text = _complete(base, arguments)
        return text, charset, text.partition("(")[0] in TEXTUAL, False


_QUOTES = {'""': '"', "'": "''"}
_QUOTE_OR_ESCAPED = re.compile(r"""\\.|""|'""", re.DOTALL)


def _argument(token: Token) -> str:
    """An argument of a type as information_schema has it, where labels have single quotes."""
    if token.kind != "text" or token.text[0] != '"':
        return token.text
    return "'" + _QUOTE_OR_ESCAPED.sub(lambda m: _QUOTES.get(m[0], m[0]), token.text[1:-1]) + "'"


_AS_BYTES = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip


def in_charset(column: Column, charset: str) -> Column:
    """A text as it is in a character set, unless it has one already: in `binary` it is bytes.

    >>> in_charset(Column("note", "varchar(5)", OF_TABLE), "binary").type
    'varbinary(5)'
    """
    if column.charset not in (OF_TABLE, charset):
        return column
    if charset != "binary":
        return column._replace(charset=charset)
    base, bracket, rest = column.type.partition("(")
    kept = charset if base in ("enum", "set") else None
    return column._replace(type=_AS_BYTES.get(base, base) + bracket + rest, charset=kept)


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


def _index_columns(inside: DefinitionReader) -> tuple[str, ...]:
    names = []
    while inside.peek().kind != "end":
        part = inside.sub(inside.rest_of_part())
        inside.accept(",")
        names.append(part.identifier())
    return tuple(names)
