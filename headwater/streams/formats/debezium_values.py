"""Values as Debezium encodes them, into JSON that Spark reads by a column's declared type. Pure.

Debezium writes what JSON has no word for as numbers and bytes: a date is a number of days, a timestamp one of
milli-, micro- or nanoseconds, a decimal the base64 of its digits as one big-endian integer. Which of them it is
stands in the schema beside the payload. Without the schema the declared type says it, but for two things. The
scale of a decimal has to be declared as it is in the database. The unit of a timestamp is the one that the
connector has for a timestamp without a precision, unless the format says another; a number that looks like another
unit is refused rather than guessed at.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

# What a timestamp without a precision of its own becomes: PostgreSQL's has six digits, MySQL's DATETIME none.
# SQLite has no timestamps: its unixepoch() counts seconds.
UNITS_BY_CONNECTOR = {
    "postgresql": "micros",
    "mysql": "millis",
    "mariadb": "millis",
    "sqlserver": "nanos",
    "oracle": "micros",
    "sqlite": "seconds",
}
UNENCODED = ("sqlite",)  # connectors whose dates and decimals are what the database holds: a number or a text
_UNITS_BY_NAME = {
    "io.debezium.time.Timestamp": "millis",
    "io.debezium.time.MicroTimestamp": "micros",
    "io.debezium.time.NanoTimestamp": "nanos",
    "org.apache.kafka.connect.data.Timestamp": "millis",
}
_PER_UNIT = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}  # microseconds; nanoseconds are divided
UNITS = (*_PER_UNIT, "nanos")
# Between these a number is taken for the connector's usual unit: for seconds, milliseconds and so on from 1970 that
# is the years up to 5138, and from microseconds on not those within three years of 1970, which may be milliseconds.
_USUAL = {
    "seconds": (0, 10**11),
    "millis": (0, 10**14),
    "micros": (10**14, 10**18),
    "nanos": (10**17, 10**19),
}

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_FIRST = datetime(1970, 1, 1)
_FIRST_DAY = date(1970, 1, 1).toordinal()
_DECIMAL_TYPE = re.compile(r"decimal\((\d+),\s*(-?\d+)\)\Z")
_ARRAY_TYPE = re.compile(r"array<(.*)>\Z")
_EXACT = Context(prec=76)


@dataclass(frozen=True)
class Meaning:
    """What is known of a column besides its declared type."""

    name: str | None = None  # Connect's name of the logical type, when the record brings its schema
    scale: int | None = None
    is_text: bool = False  # the schema says that values are texts as they are
    unit: str | None = None  # of timestamps, when the record brings no schema
    is_usual: bool = False  # the unit is the connector's usual one, and nobody has said so
    decimals: str = "precise"
    encoded: bool = True  # as Debezium does it

    @classmethod
    def of_field(cls, field: Mapping[str, Any]) -> "Meaning":
        """What a field of a Connect schema says; of an array, what it says of the elements.

        >>> Meaning.of_field({"type": "int64", "name": "io.debezium.time.Timestamp", "field": "at"}).name
        'io.debezium.time.Timestamp'
        """
        if field.get("type") == "array":
            return cls.of_field(field.get("items") or {})
        parameters = field.get("parameters") or {}
        scale = parameters.get("scale")
        return cls(
            field.get("name") or "", None if scale is None else int(scale), field.get("type") == "string"
        )


Converter = Callable[[Any, Meaning], Any]


def converter(kind: str) -> Converter | None:
    """What turns Debezium's values into those of a declared type; None where they are the same.

    >>> converter("date")(20454, Meaning())
    '2026-01-01'
    >>> converter("decimal(10,2)")("AN3u", Meaning())
    '568.14'
    >>> converter("string") is None
    True
    """
    if kind == "date":
        return _as_date
    if kind in ("timestamp", "timestamp_ltz"):
        return _as_timestamp
    if kind == "timestamp_ntz":
        return _as_local_timestamp
    decimal = _DECIMAL_TYPE.match(kind)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return lambda value, meaning: _as_decimal(value, meaning, precision, scale)
    array = _ARRAY_TYPE.match(kind)
    inner = converter(array[1]) if array is not None else None
    if inner is None:
        return None

    def elements(value: Any, meaning: Meaning) -> Any:
        if not isinstance(value, list):
            return value  # for the schema to refuse
        return [None if element is None else inner(element, meaning) for element in value]

    return elements


def _as_date(value: Any, meaning: Meaning) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not meaning.encoded:
        return value  # a text is a date as it stands, whatever else is for the schema to refuse
    try:
        return date.fromordinal(_FIRST_DAY + value).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"day {value} since 1970 is not in the years 1 to 9999") from None


def _as_timestamp(value: Any, meaning: Meaning) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return _moment(value, meaning) + "Z"


def _as_local_timestamp(value: Any, meaning: Meaning) -> Any:
    if isinstance(value, str):
        return value[:-1] if value.endswith("Z") else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return _moment(value, meaning)


def _moment(value: float, meaning: Meaning) -> str:
    unit = _UNITS_BY_NAME.get(meaning.name or "") or meaning.unit
    if unit is not None and meaning.is_usual and value != 0:
        least, most = _USUAL[unit]
        unit = unit if least <= abs(value) < most else None
    if unit is None:
        raise ValueError(
            f"nothing says for certain whether {value} counts milliseconds or microseconds; "
            "say it with format=hw.debezium(timestamps=...)"
        )
    micros = int(value) // 1000 if unit == "nanos" else round(value * _PER_UNIT[unit])
    try:
        return (_FIRST + timedelta(microseconds=micros)).isoformat(timespec="microseconds")
    except OverflowError:
        raise ValueError(f"{value} {unit} since 1970 are not in the years 1 to 9999") from None


def _as_decimal(value: Any, meaning: Meaning, precision: int, scale: int) -> Any:
    if isinstance(value, Mapping):  # of any scale: numeric without a precision
        if not isinstance(value.get("value"), str) or not isinstance(value.get("scale"), int):
            return value
        number = _unscaled(value["value"], value["scale"])
    elif not isinstance(value, str):
        return value
    elif (
        meaning.is_text or not meaning.encoded or (meaning.name != _DECIMAL and meaning.decimals == "string")
    ):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return value
    else:
        number = _unscaled(value, scale if meaning.scale is None else meaning.scale)
    if not number.is_finite():
        raise ValueError(f"{number} is not a decimal({precision},{scale})")
    if number.adjusted() >= precision - scale and number != 0:
        raise ValueError(f"{number} has more digits than decimal({precision},{scale})")
    return format(number, "f")


def digits_reader(scale: int | None) -> Converter:
    """What turns Debezium's decimals, also in arrays, into the texts of their digits: no number is too long for that.

    >>> digits_reader(2)("AN3u", Meaning()), digits_reader(None)({"scale": 1, "value": "Dw=="}, Meaning())
    ('568.14', '1.5')
    >>> digits_reader(2)("NaN", Meaning()), digits_reader(None)("Infinity", Meaning())
    ('NaN', 'Infinity')
    """

    def convert(value: Any, meaning: Meaning) -> Any:
        if isinstance(value, list):
            return [convert(element, meaning) for element in value]
        if isinstance(value, Mapping) and isinstance(value.get("scale"), int):
            return format(_unscaled(str(value.get("value")), value["scale"]), "f")
        if scale is None or not isinstance(value, str):
            return value
        try:
            return format(_unscaled(value, scale), "f")
        except ValueError:
            return value

    return convert


def _unscaled(text: str, scale: int) -> Decimal:
    try:
        digits = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(
            f"{text!r} is not a decimal as Debezium writes it; "
            "if it is a text, say format=hw.debezium(decimals='string')"
        ) from None
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)


def fields_named(schema: Any, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The fields of a Connect struct, or of the struct that is its field of the first name that it has.

    >>> row = {"type": "struct", "field": "after", "fields": [{"type": "int32", "field": "id"}]}
    >>> list(fields_named({"type": "struct", "fields": [row]}, ("after",)))
    ['id']
    """
    found = {str(field.get("field")): field for field in _fields(schema) if isinstance(field, Mapping)}
    for name in names:
        if name in found:
            return fields_named(found[name], ())
    return found if not names else {}


def _fields(schema: Any) -> Sequence[Any]:
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    return fields if isinstance(fields, list) else ()
