"""Which conversion a column needs, from rows of the log and from rows of a result set. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.connect.cdc.mysql import tablemap as log
from headwater.connect.cdc.mysql import temporal, values
from headwater.connect.cdc.mysql.charsets import decoded
from headwater.connect.cdc.mysql.json_binary import json_text
from headwater.connect.cdc.mysql.schema import CODECS, GEOMETRIES, Column, parse_labels, parse_type
from headwater.connect.cdc.mysql.tablemap import WrittenColumn


class UnknownType(ValueError):
    """A type of column that is not known here."""


class Piece(NamedTuple):
    """How one value is read, for the code that rows.py writes.

    `layout` is a format of struct for a value of fixed size; a value of other size has its length before it, in
    `prefix` bytes. `expression` makes of ``{v}`` (the unpacked value, or the bytes) a number when `is_number`, else
    JSON as bytes; ``{f}`` stands for `function`.
    """

    layout: str = ""
    prefix: int = 0
    expression: str = "{f}({v})"
    function: Callable[[Any], bytes] | dict[Any, bytes] | list[bytes] | None = None
    is_number: bool = False


_INTEGERS = {
    log.TINY: ("b", "B"),
    log.SHORT: ("h", "H"),
    log.LONG: ("i", "I"),
    log.LONGLONG: ("q", "Q"),
}


def binary_piece(column: Column, written: WrittenColumn) -> Piece:
    """How the log's rows have a column; `written` knows sizes and lengths, `column` what the bytes mean."""
    kind, metadata = written.type, written.metadata
    declared = parse_type(column.type)
    unsigned = declared.unsigned if written.unsigned is None else written.unsigned
    if kind in _INTEGERS:
        return Piece(layout=_INTEGERS[kind][unsigned], expression="{v}", is_number=True)
    if kind == log.INT24:
        return Piece("3s", expression=f"from_bytes({{v}}, 'little', signed={not unsigned})", is_number=True)
    if kind == log.YEAR:
        return Piece("B", expression="({v} + 1900 if {v} else 0)", is_number=True)
    if kind == log.FLOAT:
        return Piece("f", function=values.float32)
    if kind == log.DOUBLE:
        return Piece("d", function=values.float64)
    if kind == log.NEWDECIMAL:
        precision, scale = metadata >> 8, metadata & 0xFF
        decoder = values.decimal_decoder(precision, scale)
        return _memo(f"{values.decimal_size(precision, scale)}s", decoder)
    if kind in (log.DATE, log.NEWDATE):
        return _memo("3s", temporal.date_binary)
    if kind == log.DATETIME2:
        return Piece(f"{temporal.datetime_size(metadata)}s", function=temporal.datetime_decoder(metadata))
    if kind == log.TIMESTAMP2:
        return Piece(f"{4 + (metadata + 1) // 2}s", function=temporal.timestamp_decoder(metadata))
    if kind == log.TIME2:
        return Piece(f"{temporal.time_size(metadata)}s", function=temporal.time_decoder(metadata))
    if kind in (log.TIMESTAMP, log.DATETIME, log.TIME):
        return _old_time(kind, declared.numbers)
    if kind == log.BIT:
        bits = (metadata >> 8) * 8 + (metadata & 0xFF)
        return _memo(f"{(bits + 7) // 8}s", values.bit_decoder(bits))
    if kind == log.ENUM:
        labels = values.enum_values(_labels(column, written))
        return Piece("B" if metadata == 1 else "H", expression="{f}[{v}]", function=labels)
    if kind == log.SET:
        return _memo(f"{metadata}s", values.set_decoder(_labels(column, written)))
    if kind == log.STRING:
        return _string(column, declared.base, metadata)
    if kind in (log.VARCHAR, log.VAR_STRING):
        return Piece(prefix=1 if metadata < 256 else 2, **_text(column))
    if kind == log.VARCHAR_COMPRESSED:
        return Piece(prefix=1 if metadata < 256 else 2, **_inflated(column))
    if kind in (log.BLOB, log.TINY_BLOB, log.MEDIUM_BLOB, log.LONG_BLOB):
        return Piece(prefix=metadata, **_text(column))
    if kind == log.BLOB_COMPRESSED:
        return Piece(prefix=metadata, **_inflated(column))
    if kind == log.GEOMETRY:
        return Piece(prefix=metadata, function=values.geometry)
    if kind == log.JSON:
        return Piece(prefix=metadata, function=json_text)
    if kind == log.VECTOR:
        return Piece(prefix=metadata, function=values.base64)
    raise UnknownType(f"column {column.name} is of type {kind}, which is not known")


def _memo(layout: str, convert: Callable[[bytes], bytes]) -> Piece:
    return Piece(layout, expression="{f}[{v}]", function=values.Memo(convert))


def _old_time(kind: int, digits: list[int]) -> Piece:
    """What tables from before MySQL 5.6 and MariaDB 10.1 have, without fractions of a second."""
    if digits and digits[0]:
        raise UnknownType(
            "fractions of a second in the format before mysql56_temporal_format are not written"
        )
    if kind == log.TIMESTAMP:
        convert = temporal.timestamp_decoder(0)
        return Piece("4s", function=lambda raw: convert(raw[::-1]))
    if kind == log.TIME:
        return Piece("3s", function=temporal.old_time)
    return Piece("8s", function=temporal.old_datetime)


def _labels(column: Column, written: WrittenColumn) -> list[str]:
    if written.labels is None:
        return parse_labels(parse_type(column.type).arguments)
    codec = CODECS.get(column.charset or "utf8mb4", "utf-8")
    return [decoded(label, column.charset, codec) for label in written.labels]


def _string(column: Column, base: str, size: int) -> Piece:
    prefix = 1 if size < 256 else 2
    special = {"uuid": values.uuid_binary, "inet6": values.inet6_binary, "inet4": values.inet4_binary}
    if base in special:
        return Piece(prefix=prefix, function=special[base])
    if column.charset is None:
        return Piece(prefix=prefix, function=values.padded_binary_decoder(size))
    return Piece(prefix=prefix, **_text(column))


def _text(column: Column) -> dict[str, Any]:
    """A string of bytes or of characters."""
    if column.charset is None or column.charset == "binary":
        return {"function": values.base64}
    codec = CODECS.get(column.charset)
    if codec is None:
        raise UnknownType(f"column {column.name} has character set {column.charset}, which is not known")
    if codec == "utf-8":
        return {"expression": "dumps({v}.decode('utf-8', 'replace'))"}
    return {"function": values.text_decoder(column.charset, codec)}


def _inflated(column: Column) -> dict[str, Any]:
    if column.charset is None or column.charset == "binary":
        return {"function": lambda raw: values.base64(values.inflated(raw))}
    convert = values.text_decoder(column.charset, CODECS.get(column.charset, "utf-8"))
    return {"function": lambda raw: convert(values.inflated(raw))}


# -- result sets -----------------------------------------------------------------------------------

_PLAIN_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}


def select_expression(column: Column, quoted_name: str) -> str:
    """How a column is asked for, so that nothing of it is lost."""
    base = parse_type(column.type).base
    if base == "float":  # as a float it has six digits
        return f"cast({quoted_name} as double)"
    return quoted_name


def text_piece(column: Column) -> Piece:
    """How a result set has a column; texts are in UTF-8, times in UTC."""
    declared = parse_type(column.type)
    base, numbers = declared.base, declared.numbers
    if base in _PLAIN_NUMBERS:
        if "zerofill" in column.type or base == "year":
            return Piece(expression="b'%d' % int({v})")
        return Piece(expression="{v}")
    if base == "decimal":
        return _text_memo(values.decimal_text_decoder(numbers[1] if len(numbers) > 1 else 0))
    if base == "float":
        return Piece(function=values.float32_text)
    if base == "double":
        return Piece(function=values.float64_text)
    if base == "date":
        return _text_memo(temporal.date_text)
    if base == "datetime":
        return Piece(function=temporal.datetime_text_decoder(numbers[0] if numbers else 0))
    if base == "timestamp":
        return Piece(function=temporal.timestamp_text)
    if base == "time":
        return Piece(function=temporal.time_text)
    if base == "bit":
        return _text_memo(values.bit_decoder(numbers[0] if numbers else 1))
    if base in ("enum", "set"):
        return _text_memo(lambda raw: values.quoted(raw.decode()))
    if base in GEOMETRIES:
        return Piece(function=values.geometry)
    if base in ("uuid", "inet6", "inet4"):
        return Piece(expression="b'\"%b\"' % {v}")
    if base == "json" or (column.charset is not None and column.charset != "binary"):
        return Piece(expression="dumps({v}.decode('utf-8', 'replace'))")
    return Piece(function=values.base64)


def _text_memo(convert: Callable[[bytes], bytes]) -> Piece:
    return Piece(expression="{f}[{v}]", function=values.Memo(convert))


_COMPATIBLE = {
    "tinyint": {log.TINY}, "smallint": {log.SHORT}, "mediumint": {log.INT24}, "int": {log.LONG},
    "bigint": {log.LONGLONG}, "float": {log.FLOAT}, "double": {log.DOUBLE}, "decimal": {log.NEWDECIMAL},
    "bit": {log.BIT}, "year": {log.YEAR}, "date": {log.DATE, log.NEWDATE},
    "time": {log.TIME, log.TIME2}, "datetime": {log.DATETIME, log.DATETIME2},
    "timestamp": {log.TIMESTAMP, log.TIMESTAMP2}, "char": {log.STRING}, "binary": {log.STRING},
    "varchar": {log.VARCHAR, log.VAR_STRING, log.VARCHAR_COMPRESSED},
    "varbinary": {log.VARCHAR, log.VAR_STRING, log.VARCHAR_COMPRESSED},
    "enum": {log.ENUM}, "set": {log.SET}, "json": {log.JSON, log.BLOB},
    "uuid": {log.STRING}, "inet6": {log.STRING}, "inet4": {log.STRING},
}  # fmt: skip
_BLOBS = {log.BLOB, log.TINY_BLOB, log.MEDIUM_BLOB, log.LONG_BLOB, log.BLOB_COMPRESSED}
_BLOB_SIZES = {
    "tinytext": 1, "tinyblob": 1, "text": 2, "blob": 2, "mediumtext": 3, "mediumblob": 3, "longtext": 4,
    "longblob": 4,
}  # fmt: skip


def fits(column: Column, written: WrittenColumn) -> bool:
    """Whether a column as it is known can be what the log has: a check of the history of a table."""
    declared = parse_type(column.type)
    base, numbers = declared.base, declared.numbers
    if base in _BLOB_SIZES:
        return written.type in _BLOBS and written.metadata == _BLOB_SIZES[base]
    if base in GEOMETRIES:
        return written.type == log.GEOMETRY
    if written.type not in _COMPATIBLE.get(base, {written.type}):
        return False
    if base == "decimal" and numbers:
        return written.metadata == numbers[0] << 8 | (numbers[1] if len(numbers) > 1 else 0)
    if written.type in (log.TIME2, log.DATETIME2, log.TIMESTAMP2):
        return written.metadata == (numbers[0] if numbers else 0)
    if base in ("binary", "varbinary") and numbers and written.type != log.VARCHAR_COMPRESSED:
        return written.metadata == numbers[0]
    return True
