"""One JSON value into the types of a schema, by the rules of Spark's ``from_json`` in PERMISSIVE mode. Pure.

Fields that are missing are null, fields that the schema does not name are skipped, numbers and objects fit
into strings, and whatever else does not fit its type is a `Misfit` with the reason. As with Spark, what comes
after the first JSON value of a text is not looked at, and of a field named twice the last one counts.

Two rules are stricter than Spark's: a text in single quotes is no JSON, and a time of day alone is no
timestamp, for it would mean another moment whenever a batch is run again.

`json_values` asks these rules about what its quick way refuses, a record at a time.
"""

import binascii
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

from pyspark.sql import types as spark

from headwater.streams.sources.json_times import day_of, moment_of

# A converter reads the value at a position and returns it with the position behind it.
Converter = Callable[[str, int], tuple[Any, int]]

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?")
_NOT_A_NUMBER = {
    "NaN": "nan", "+INF": "inf", "INF": "inf", "+Infinity": "inf", "Infinity": "inf",
    "-INF": "-inf", "-Infinity": "-inf",
}  # fmt: skip
_WORD = re.compile(r"[+\-A-Za-z]+")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
# What Java writes with a backslash: also what UTF-16 has in two parts, and half of such a pair.
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_BLANKS = re.compile(r"[\0- ]*([^\0- ].{3})?", re.DOTALL)  # between the groups of four of base64
_LONGEST_QUOTE = 40


class Misfit(ValueError):
    """Why a value does not parse."""


def text_of(value: bytes) -> str:
    """A value as text. As in Java, what is no UTF-8 becomes replacement characters, a surrogate one.

    >>> text_of(b"a\\xed\\xa0\\x80")
    'a\ufffd'
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub("\ufffd".encode(), value).decode("utf-8", "replace")


def parse(text: str, convert: Converter) -> dict[str, Any]:
    """The value of a record; `Misfit` when it is not what the schema says.

    >>> schema = spark.StructType([spark.StructField("page", spark.StringType())])
    >>> parse('{"page": 12, "other": []}', converter(schema, "UTC"))
    {'page': '12'}
    >>> parse('{"page": ', converter(schema, "UTC"))
    Traceback (most recent call last):
    headwater.streams.sources.json_rules.Misfit: not JSON: it ends too early
    """
    start = _skip(text, 0)
    if start == len(text):
        raise Misfit("it is empty")
    try:
        value, _ = convert(text, start)
    except IndexError:
        raise Misfit("not JSON: it ends too early") from None
    except RecursionError:
        raise Misfit("it is nested too deeply") from None
    if value is None:
        raise Misfit("it is null, not an object")
    fields: dict[str, Any] = value
    return fields


def converter(kind: spark.DataType, zone: str) -> Converter:
    """What reads a JSON value of a type; ``zone`` is that of timestamps without one."""
    convert = _converter(kind, zone)

    def or_null(text: str, position: int) -> tuple[Any, int]:
        if text[position] == "n":
            return None, _literal(text, position, "null")
        return convert(text, position)

    return or_null


def can_convert(kind: spark.DataType) -> bool:
    """Whether there are rules for the type; Spark decodes the others itself.

    >>> can_convert(spark.ArrayType(spark.LongType())), can_convert(spark.VariantType())
    (True, False)
    """
    if isinstance(kind, spark.StructType):
        return all(can_convert(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return can_convert(kind.elementType)
    if isinstance(kind, spark.MapType):
        return type(kind.keyType) is spark.StringType and can_convert(kind.valueType)
    return type(kind) in _SIMPLE or isinstance(kind, spark.DecimalType | spark.TimestampType)


def _converter(kind: spark.DataType, zone: str) -> Converter:
    if isinstance(kind, spark.StructType):
        return _struct({field.name: converter(field.dataType, zone) for field in kind.fields})
    if isinstance(kind, spark.ArrayType):
        return _array(converter(kind.elementType, zone))
    if isinstance(kind, spark.MapType):
        return _map(converter(kind.valueType, zone))
    if isinstance(kind, spark.DecimalType):
        return _decimal(kind.precision, kind.scale)
    if isinstance(kind, spark.TimestampType):
        return _timestamp(zone)
    return _SIMPLE[type(kind)]


# -- objects and arrays ------------------------------------------------------------------------------


def _struct(fields: dict[str, Converter]) -> Converter:
    def convert(text: str, position: int) -> tuple[Any, int]:
        if text[position] != "{":
            _misfit(text, position, "an object")
        row: dict[str, Any] = dict.fromkeys(fields)
        position = _skip(text, position + 1)
        if text[position] == "}":
            return row, position + 1
        while True:
            name, position = _name(text, position)
            field = fields.get(name)
            if field is None:
                position = _skip_value(text, position)
            else:
                try:
                    row[name], position = field(text, position)
                except Misfit as misfit:
                    reason = str(misfit)
                    raise misfit if reason.startswith("not JSON") else Misfit(f"{name}: {reason}") from None
            position, is_last = _following(text, position, "}")
            if is_last:
                return row, position

    return convert


def _array(element: Converter) -> Converter:
    def convert(text: str, position: int) -> tuple[Any, int]:
        if text[position] != "[":
            _misfit(text, position, "an array")
        items: list[Any] = []
        position = _skip(text, position + 1)
        if text[position] == "]":
            return items, position + 1
        while True:
            item, position = element(text, position)
            items.append(item)
            position, is_last = _following(text, position, "]")
            if is_last:
                return items, position

    return convert


def _map(element: Converter) -> Converter:
    def convert(text: str, position: int) -> tuple[Any, int]:
        if text[position] != "{":
            _misfit(text, position, "an object")
        items: dict[str, Any] = {}
        position = _skip(text, position + 1)
        if text[position] == "}":
            return [], position + 1
        while True:
            name, position = _name(text, position)
            items[name], position = element(text, position)
            position, is_last = _following(text, position, "}")
            if is_last:
                return list(items.items()), position

    return convert


def _name(text: str, position: int) -> tuple[str, int]:
    """A field's name and the position of its value."""
    if text[position] != '"':
        _broken(text, position)
    name, position = _string_at(text, position)
    position = _skip(text, position)
    if text[position] != ":":
        _broken(text, position)
    return name, _skip(text, position + 1)


def _following(text: str, position: int, closing: str) -> tuple[int, bool]:
    """Behind a value: the position of the next one, or behind the closing bracket and True."""
    position = _skip(text, position)
    if text[position] == closing:
        return position + 1, True
    if text[position] != ",":
        _broken(text, position)
    return _skip(text, position + 1), False


# -- single values -----------------------------------------------------------------------------------


def _string(text: str, position: int) -> tuple[Any, int]:
    if text[position] == '"':
        return _string_at(text, position)
    value, position = _any_value(text, position)
    return _compact(value), position


def _boolean(text: str, position: int) -> tuple[Any, int]:
    if text[position] == "t":
        return True, _literal(text, position, "true")
    if text[position] == "f":
        return False, _literal(text, position, "false")
    _misfit(text, position, "a boolean")


def _integer(least: int, most: int, name: str, *, wraps: int = 0) -> Converter:
    def convert(text: str, position: int) -> tuple[Any, int]:
        match = _NUMBER.match(text, position)
        if match is None or match[2] or match[3]:
            _misfit(text, position, name)
        number = _whole(match[1])
        if not least <= number <= most:
            if 0 < number <= wraps:  # the parser under Spark takes unsigned bytes for what they are in binary
                return number - wraps - 1, match.end()
            raise Misfit(f"{match[0]} is out of the range of {name}")
        return number, match.end()

    return convert


def _float(text: str, position: int) -> tuple[Any, int]:
    match = _NUMBER.match(text, position)
    if match is not None and not text.startswith("-I", position):
        return float(match[0]), match.end()
    if text[position] == '"':
        word, end = _string_at(text, position)
        if word in _NOT_A_NUMBER and word != "INF":
            return float(_NOT_A_NUMBER[word]), end
        _misfit(text, position, "a number")
    named = _WORD.match(text, position)
    if named is not None and named[0] in _NOT_A_NUMBER:
        return float(_NOT_A_NUMBER[named[0]]), named.end()
    _misfit(text, position, "a number")


def _binary(text: str, position: int) -> tuple[Any, int]:
    if text[position] != '"':
        _misfit(text, position, "a base64 string")
    content, end = _string_at(text, position)
    try:
        return binascii.a2b_base64(_BLANKS.sub(r"\1", content), strict_mode=True), end
    except ValueError:
        raise Misfit(f"{_quoted(content)} is not base64") from None


def _decimal(precision: int, scale: int) -> Converter:
    unit = Decimal(1).scaleb(-scale)

    def convert(text: str, position: int) -> tuple[Any, int]:
        match = _NUMBER.match(text, position)
        if match is not None:
            written, end = match[0], match.end()
        elif text[position] == '"':
            written, end = _string_at(text, position)
        else:
            _misfit(text, position, "a decimal")
        with localcontext() as context:
            context.prec, context.Emax, context.Emin = 400, 999_999, -999_999
            try:
                number = Decimal(written.replace(",", "")).quantize(unit, ROUND_HALF_UP)
            except InvalidOperation:
                raise Misfit(f"{_quoted(written)} is not a decimal") from None
        if not number.is_finite():
            raise Misfit(f"{_quoted(written)} is not a decimal")
        if number and number.adjusted() >= precision - scale:
            raise Misfit(f"{_quoted(written)} has more than {precision - scale} digits before the point")
        return number, end

    return convert


def _timestamp(zone: str) -> Converter:
    def convert(text: str, position: int) -> tuple[Any, int]:
        if text[position] != '"':
            seconds, end = _SIMPLE[spark.LongType](text, position)
            return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63, end  # beyond its range it wraps, as in Java
        written, end = _string_at(text, position)
        moment = moment_of(written, zone)
        if moment is None:
            raise Misfit(f"{_quoted(written)} is not a timestamp")
        return moment, end

    return convert


def _date(text: str, position: int) -> tuple[Any, int]:
    if text[position] != '"':
        _misfit(text, position, "a date")
    written, end = _string_at(text, position)
    day = day_of(written)
    if day is None:
        raise Misfit(f"{_quoted(written)} is not a date")
    return day, end


_SIMPLE: dict[type[spark.DataType], Converter] = {
    spark.StringType: _string,
    spark.BooleanType: _boolean,
    spark.ByteType: _integer(-(2**7), 2**7 - 1, "a byte", wraps=2**8 - 1),
    spark.ShortType: _integer(-(2**15), 2**15 - 1, "a short"),
    spark.IntegerType: _integer(-(2**31), 2**31 - 1, "an int"),
    spark.LongType: _integer(-(2**63), 2**63 - 1, "a long"),
    spark.FloatType: _float,
    spark.DoubleType: _float,
    spark.BinaryType: _binary,
    spark.DateType: _date,
}


# -- any JSON, for what is skipped and what becomes a string -----------------------------------------


class _Pairs(list[tuple[str, Any]]):
    """An object with all its fields, twice named ones as well."""


class _Number(str):
    """A number as Java writes it."""


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python reads 4300 digits at most, the parser under Spark a thousand
        raise Misfit("it has a number of too many digits") from None


def _java_double(text: str) -> _Number:
    """
    >>> _java_double("12.50"), _java_double("1e16"), _java_double("0.0001")
    ('12.5', '1.0E16', '1.0E-4')
    """
    number = float(text)
    if number != number or number in (float("inf"), float("-inf")):
        return _Number('"' + {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)] + '"')
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        plain = f"{Decimal(repr(number)):f}"
        return _Number(plain if "." in plain else f"{plain}.0")
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return _Number(f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}")


_ANY = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_float=_java_double,
    parse_int=lambda text: _Number(_whole(text)),
    parse_constant=_java_double,
)


def _any_value(text: str, position: int) -> tuple[Any, int]:
    try:
        return _ANY.raw_decode(text, position)
    except json.JSONDecodeError as error:
        if error.pos >= len(text):
            raise IndexError from None
        _broken(text, error.pos)


def _skip_value(text: str, position: int) -> int:
    return _any_value(text, position)[1]


def _compact(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case str():
            return _escaped(value)
        case _Pairs():
            return "{" + ",".join(f"{_escaped(name)}:{_compact(item)}" for name, item in value) + "}"
        case list():
            return "[" + ",".join(map(_compact, value)) + "]"
        case True | False:
            return "true" if value else "false"
    return "null"


def _escaped(text: str) -> str:
    """
    >>> print(_escaped("\\x1f \\N{GRINNING FACE} \\ud800 \\\\u001f"))
    "\\u001F \\uD83D\\uDE00 \\uD800 \\\\u001f"
    """
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    written = json.dumps(found[0])[1:-1]
    return written.upper().replace("U", "u") if written[1] == "u" else written


# -- texts and faults --------------------------------------------------------------------------------


def _skip(text: str, position: int) -> int:
    if text[position : position + 1] not in " \t\r\n":  # of which the empty text at the end is one
        return position
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _string_at(text: str, position: int) -> tuple[str, int]:
    try:
        content, end = scanstring(text, position + 1, True)
    except json.JSONDecodeError as error:
        if "Unterminated" in error.msg:
            raise IndexError from None
        _broken(text, error.pos)
    if not content.isascii() and any("\ud800" <= character <= "\udfff" for character in content):
        content = content.encode("utf-8", "replace").decode()  # half of a surrogate pair is no character
    return content, end


def _literal(text: str, position: int, literal: str) -> int:
    end = position + len(literal)
    if text[position:end] != literal or (end < len(text) and text[end].isalnum()):
        if literal.startswith(text[position:]):
            raise IndexError
        _broken(text, position)
    return end


def _broken(text: str, position: int) -> NoReturn:
    raise Misfit(f"not JSON: {_quoted(text[position : position + 10])} at character {position + 1}")


def _misfit(text: str, position: int, wanted: str) -> NoReturn:
    end = _skip_value(text, position)
    raise Misfit(f"{_quoted(text[position:end])} is not {wanted}")


def _quoted(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
