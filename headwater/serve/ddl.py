"""A schema written as DDL, as Spark's types, without a Spark at hand. Pure.

The server checks events by the same rules as a stream's reader, which work on Spark's types; Spark itself parses
DDL in Java only, which the server does without. Types that no JSON value is checked against (intervals, variants)
are not known here.
"""

import re
from collections.abc import Callable

from pyspark.sql import types as spark

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*')|([<>(),:]))")
_SIMPLE: dict[str, Callable[[], spark.DataType]] = {
    "string": spark.StringType,
    "boolean": spark.BooleanType,
    "tinyint": spark.ByteType,
    "byte": spark.ByteType,
    "smallint": spark.ShortType,
    "short": spark.ShortType,
    "int": spark.IntegerType,
    "integer": spark.IntegerType,
    "bigint": spark.LongType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "real": spark.FloatType,
    "double": spark.DoubleType,
    "binary": spark.BinaryType,
    "date": spark.DateType,
    "timestamp": spark.TimestampType,
    "timestamp_ltz": spark.TimestampType,
    "timestamp_ntz": spark.TimestampNTZType,
}
_DECIMALS = ("decimal", "dec", "numeric")


class UnknownType(ValueError):
    """A text that is no DDL of the types known here."""


def struct_of(ddl: str) -> spark.StructType:
    """The columns of a DDL text.

    >>> struct_of("id long, `unit price` decimal(10,2) NOT NULL, tags array<string>").simpleString()
    'struct<id:bigint,unit price:decimal(10,2),tags:array<string>>'
    >>> struct_of("at interval")
    Traceback (most recent call last):
    headwater.serve.ddl.UnknownType: 'interval' is not a type that is checked
    """
    return _Parser(_tokens(ddl)).fields(end=None)


def _tokens(text: str) -> list[str]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UnknownType(f"{text[position : position + 20]!r} is no DDL")
        tokens.append(match[match.lastindex or 0])
        position = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0

    def fields(self, end: str | None) -> spark.StructType:
        """Up to the closing bracket, or up to the end of the text."""
        fields: list[spark.StructField] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            kind = self.type()
            nullable = True
            if self._is_word("not"):
                self._next()
                self._next()
                nullable = False
            if self._is_word("comment"):
                self._next()
                self._next()
            fields.append(spark.StructField(name, kind, nullable))
        return spark.StructType(fields)

    def type(self) -> spark.DataType:
        word = self._next().lower()
        if word in ("varchar", "char", "character"):
            self._numbers()
            return spark.StringType()
        if word in _DECIMALS:
            numbers = self._numbers()
            return spark.DecimalType(*(numbers or [10, 0])[:2])
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word == "array":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return spark.ArrayType(element)
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return spark.MapType(key, value)
        if word == "struct":
            self._expect("<")
            struct = self.fields(end=">")
            self._expect(">")
            return struct
        raise UnknownType(f"{word!r} is not a type that is checked")

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        self._next()
        numbers = []
        while (token := self._next()) != ")":
            if token.isdigit():
                numbers.append(int(token))
        return numbers

    def _is_word(self, word: str) -> bool:
        return (self._peek() or "").lower() == word

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise UnknownType("it ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise UnknownType(f"{token!r} was to come, not {found!r}")
