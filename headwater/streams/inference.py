"""The columns of a table from records of its topic: by a schema that they bring, else by the values they have. Pure.

Values tell less than a database does: a date that capture wrote as a number of days is a whole number. So this is
asked when nobody else can tell. Objects are read as their JSON text, which every object is; so is a column that has
values of several kinds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from headwater.connect.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    MOMENT,
    STRING,
    Column,
    Reading,
    decimal,
)
from headwater.streams.columns import Found
from headwater.streams.formats.changes import Shape, is_envelope, unwrapped
from headwater.streams.formats.debezium_values import fields_named

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_LONG = 2**63
_BIG = 10**38

# Connect's names of what a number or a text means.
_LOGICAL = {
    "io.debezium.time.Date": DATE,
    "org.apache.kafka.connect.data.Date": DATE,
    "io.debezium.time.Timestamp": Reading("timestamp_ntz"),
    "io.debezium.time.MicroTimestamp": Reading("timestamp_ntz"),
    "io.debezium.time.NanoTimestamp": Reading("timestamp_ntz"),
    "org.apache.kafka.connect.data.Timestamp": MOMENT,
    "io.debezium.time.ZonedTimestamp": MOMENT,
    "io.debezium.data.VariableScaleDecimal": Reading("string", scale="any"),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_PLAIN = {
    "int8": BIGINT,
    "int16": BIGINT,
    "int32": BIGINT,
    "int64": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "float32": DOUBLE,
    "float64": DOUBLE,
    "boolean": BOOLEAN,
    "bytes": BINARY,
}


class Record(NamedTuple):
    """A record of the topic."""

    key: bytes | None
    value: bytes | None


class Sample:
    """What some records of a topic say of its rows.

    >>> sample = Sample([Record(b'{"id":1}', b'{"name":"Ada","n":1}'), Record(b'{"id":2}', b'{"name":null,"n":2.5}')])
    >>> [(column.name, column.type) for column in sample.found(("id",), "the topic").columns]
    [('id', 'bigint'), ('name', 'string'), ('n', 'double')]
    """

    def __init__(self, records: Iterable[Record], shape: Shape = "auto") -> None:
        """`records` come oldest first."""
        self.rows: list[Mapping[str, Any]] = []
        self.source: Mapping[str, Any] = {}  # of the newest change event
        self._keys: list[Any] = []
        self._fields: Mapping[str, Mapping[str, Any]] = {}  # of the newest schema
        self._key_fields: Mapping[str, Mapping[str, Any]] = {}
        for record in records:
            self._take(record, shape)

    def _take(self, record: Record, shape: Shape) -> None:
        key, key_schema = unwrapped(_parsed(record.key))
        if key is None and record.key is not None:
            key = record.key.decode(errors="replace")
        document, schema = unwrapped(_parsed(record.value))
        if not isinstance(document, dict):
            return
        if is_envelope(document, shape):
            fields = fields_named(schema, ("after", "before"))
            source = document.get("source")
            self.source = source if isinstance(source, dict) else self.source
            row = document.get("after") or document.get("before")
        elif shape == "debezium":
            return
        else:
            fields, row = fields_named(schema, ()), document
        if not isinstance(row, dict):
            return
        self.rows.append(row)
        self._keys.append(key)
        self._fields = fields or self._fields
        self._key_fields = fields_named(key_schema, ()) or self._key_fields

    @property
    def brings_schema(self) -> bool:
        """Whether Connect's schema is beside the values."""
        return bool(self._fields)

    def values(self, name: str) -> list[Any]:
        """What the rows have in a column."""
        return [row[name] for row in self.rows if row.get(name) is not None]

    def found(
        self, key: Sequence[str], where: str, told: Mapping[str, Reading | None] | None = None
    ) -> Found | None:
        """The columns; None without a row. `told` is what is known of them elsewhere, in their order."""
        if not self.rows:
            return None
        if told is None and self._fields:
            told = {name: of_field(field) for name, field in self._fields.items()}
        names = told if told is not None else dict.fromkeys(name for row in self.rows for name in row)
        columns = [Column(name, (told or {}).get(name) or of_values(self.values(name))) for name in names]
        return Found((*self._only_in_keys(key, names), *columns), where, told is not None)

    def _only_in_keys(self, key: Sequence[str], names: Iterable[str]) -> list[Column]:
        missing = [name for name in key if name not in set(names)]
        columns = []
        for name in missing:
            if name in self._key_fields:
                columns.append(Column(name, of_field(self._key_fields[name])))
                continue
            objects = [each for each in self._keys if isinstance(each, dict)]
            values = [each[name] for each in objects if each.get(name) is not None]
            if not objects and len(key) == 1:  # the key is the column itself
                values = [each for each in self._keys if each is not None]
            if values:
                columns.append(Column(name, of_values(values)))
        return columns


def of_values(values: Iterable[Any]) -> Reading:
    """What reads all of these values; a text reads whatever JSON has.

    >>> [of_values(each).type for each in ([1, 2], [1, 2.5], [True], ["a"], [1, "a"], [{"a": 1}], [[1, 2], []], [])]
    ['bigint', 'double', 'boolean', 'string', 'string', 'string', 'array<bigint>', 'string']
    >>> of_values([2**70]).type, of_values([1.5, "NaN"]).type
    ('decimal(38,0)', 'double')
    """
    found = list(values)
    kinds = {_kind(value) for value in found}
    if kinds == {"array"}:
        elements = [element for value in found for element in value if element is not None]
        inside = of_values(elements).type
        return Reading(f"array<{inside}>") if "<" not in inside else Reading("array<string>")
    if "double" in kinds and kinds <= {"double", "bigint", "big", "string"}:
        numbers = all(_kind(value) != "string" or value in _NOT_FINITE for value in found)
        return DOUBLE if numbers else STRING
    if "big" in kinds and kinds <= {"bigint", "big"}:
        return Reading("decimal(38,0)") if all(abs(value) < _BIG for value in found) else STRING
    (only,) = kinds if len(kinds) == 1 else ("string",)
    return Reading(only) if only in ("bigint", "boolean") else STRING


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_LONG <= value < _LONG else "big"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def of_field(field: Mapping[str, Any]) -> Reading:
    """What reads the values of a field of a Connect schema.

    >>> of_field({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}).type
    'timestamp_ntz'
    >>> of_field({"type": "array", "items": {"type": "int32"}}).type
    'array<bigint>'
    """
    name, kind = field.get("name"), field.get("type")
    if name == _DECIMAL:
        parameters = field.get("parameters") or {}
        scale = int(parameters.get("scale") or 0)
        precision = parameters.get("connect.decimal.precision")
        return Reading("string", scale=scale) if precision is None else decimal(int(precision), scale)
    if name in _LOGICAL:
        return _LOGICAL[name]
    if kind == "array":
        element = of_field(field.get("items") or {})
        return element._replace(type=f"array<{element.type}>")
    return _PLAIN.get(str(kind), STRING)  # of a struct or a map, the text of the object


def _parsed(text: bytes | None) -> Any:
    """JSON with every digit of its numbers; None for what is none."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
