"""PostgreSQL's types: from the text of a value to Debezium's JSON. No I/O; descriptions of types are handed in.

The encoding is Debezium's with its default settings, but for what that loses: see docs/capture-postgresql.md.
"""

import base64
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from headwater.connect.cdc.postgres import temporal
from headwater.connect.cdc.postgres.literals import Converter, array, composite, hstore, point, string

TEXT_OID = 25
_FIRST_USER_OID = 16384


class TypeRow(NamedTuple):
    """A type as pg_type has it. `fields` are those of a composite: name, type, modifier."""

    oid: int
    name: str
    kind: str  # typtype: b(ase), c(omposite), d(omain), e(num), m(ultirange), p(seudo), r(ange)
    element: int = 0  # of an array
    base: int = 0  # of a domain
    modifier: int = -1  # of a domain
    delimiter: str = ","
    fields: tuple[tuple[str, int, int], ...] = ()
    schema: str = "pg_catalog"


class Types:
    """Converters by type and modifier, made when first asked for.

    `look_up` finds rows for the numbers that are not known; what it does not find (a type that was dropped
    since) is passed on as text.

    >>> types = Types(lambda oids: [TypeRow(1700, "numeric", "b"), TypeRow(1231, "_numeric", "b", element=1700)])
    >>> types.converter(1700, (10 << 16 | 2) + 4)(b"1.50")
    b'"AJY="'
    >>> types.converter(1231, -1)(b"{1.50,NULL}")
    b'[{"scale":1,"value":"Dw=="},null]'
    """

    def __init__(self, look_up: Callable[[Iterable[int]], Iterable[TypeRow]]) -> None:
        self._look_up = look_up
        self._rows: dict[int, TypeRow] = {}
        self._converters: dict[tuple[int, int], Converter] = {}

    def forget(self) -> None:
        """Types have changed: ask again. Converters that were handed out stay as they are."""
        self._rows.clear()
        self._converters.clear()

    def row(self, oid: int) -> TypeRow:
        if oid not in self._rows:
            self._rows.update((row.oid, row) for row in self._look_up([oid]))
            self._rows.setdefault(oid, TypeRow(oid, "text", "b"))
        return self._rows[oid]

    def name(self, oid: int, modifier: int) -> str:
        """The type's name for people, as in a column definition.

        >>> Types(lambda oids: [TypeRow(1700, "numeric", "b")]).name(1700, (10 << 16 | 2) + 4)
        'numeric(10,2)'
        """
        row = self.row(oid)
        if row.element and row.name.startswith("_"):
            return self.name(row.element, modifier) + "[]"
        named = row.name if row.schema == "pg_catalog" else f"{row.schema}.{row.name}"
        if modifier < 0:
            return named
        if row.name == "numeric":
            return "numeric({},{})".format(*precision_and_scale(modifier))
        if row.name in ("varchar", "bpchar"):
            return f"{named}({modifier - 4})"
        return f"{named}({modifier})" if row.name in _HAS_LENGTH else named

    def converter(self, oid: int, modifier: int) -> Converter:
        """The function for values of a column."""
        known = self._converters.get((oid, modifier))
        if known is None:
            known = self._converters[oid, modifier] = self._make(self.row(oid), modifier)
        return known

    def _make(self, row: TypeRow, modifier: int) -> Converter:
        if row.kind == "d":
            return self.converter(row.base, row.modifier if modifier < 0 else modifier)
        if row.kind == "c":
            return self._composite(row)
        if row.element and row.name not in NOT_ARRAYS:
            element = self._element(row.element, modifier)
            return partial(array, element=element, delimiter=self.row(row.element).delimiter.encode())
        if row.kind != "b":
            return string
        if not is_built_in(row.oid):
            return hstore if row.name == "hstore" else string
        made = _BY_MODIFIER.get(row.name)
        return made(modifier) if made is not None else _SIMPLE.get(row.name, string)

    def _composite(self, row: TypeRow) -> Converter:
        """Attributes come and go while the tables that have columns of the type stay as they are."""
        fields = self._attributes(row)

        def convert(text: bytes) -> bytes:
            nonlocal fields
            try:
                return composite(text, fields)
            except ValueError:
                self._rows.pop(row.oid, None)
                fields = self._attributes(self.row(row.oid))
            try:
                return composite(text, fields)
            except ValueError:
                return string(text)  # of an earlier time, when it had other attributes than now

        return convert

    def _attributes(self, row: TypeRow) -> list[tuple[str, Converter]]:
        return [(name, self.converter(oid, modifier)) for name, oid, modifier in row.fields]

    def _element(self, oid: int, modifier: int) -> Converter:
        row = self.row(oid)
        # Bits inside arrays have no length that a reader could know.
        return string if row.name in ("bit", "varbit") else self.converter(oid, modifier)


_HAS_LENGTH = frozenset(("bit", "varbit", "time", "timetz", "timestamp", "timestamptz"))
# They have an element type in pg_type, but their text is no array's.
NOT_ARRAYS = frozenset(("name", "point", "lseg", "box", "line", "int2vector", "oidvector"))


def _boolean(text: bytes) -> bytes:
    return b"true" if text == b"t" else b"false"


def _real(text: bytes) -> bytes:
    """
    >>> _real(b"1"), _real(b"1e-07"), _real(b"NaN")
    (b'1.0', b'1e-07', b'"NaN"')
    """
    if text[-1] > 57:  # NaN, Infinity
        return b'"%b"' % text
    return text if b"." in text or b"e" in text else text + b".0"


def _bytea(text: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(bytes.fromhex(text[2:].decode()))


def unscaled(number: int) -> bytes:
    """A big-endian two's complement in base64: how Kafka Connect writes the digits of a decimal.

    >>> unscaled(0), unscaled(-1), unscaled(128)
    (b'AA==', b'/w==', b'AIA=')
    """
    size = (number + (number < 0)).bit_length() // 8 + 1
    return b2a_base64(number.to_bytes(size, "big", signed=True), newline=False)


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """What the modifier of a numeric says.

    >>> precision_and_scale((3 << 16 | (-2 & 0x7FF)) + 4)
    (3, -2)
    """
    scale = (modifier - 4) & 0x7FF
    return (modifier - 4) >> 16, scale - 2048 if scale >= 1024 else scale


# Amounts repeat themselves; so many are looked up instead of computed.
_REMEMBERED = 10_000


def _numeric(modifier: int) -> Converter:
    if modifier < 0:
        return _numeric_of_any_scale
    scale = precision_and_scale(modifier)[1]

    known: dict[bytes, bytes] = {}

    def fixed(text: bytes) -> bytes:
        found = known.get(text)
        if found is None:
            found = convert(text)
            if len(known) < _REMEMBERED:
                known[text] = found
        return found

    def convert(text: bytes) -> bytes:
        # The server writes as many digits as the scale has.
        if scale <= 0:
            digits = text[:scale] if scale and text != b"0" else text
        else:
            digits = text.replace(b".", b"", 1)
        try:
            return b'"%b"' % unscaled(int(digits))
        except ValueError:
            return b'"%b"' % text  # NaN, which no base64 looks like

    return fixed


def _numeric_of_any_scale(text: bytes) -> bytes:
    whole, _, fraction = text.partition(b".")
    fraction = fraction.rstrip(b"0")
    digits = whole + fraction
    try:
        number = int(digits)
    except ValueError:
        if not digits.removeprefix(b"-").isdigit():
            return b'"%b"' % text  # NaN, Infinity, -Infinity
        number = int(Decimal(digits.decode()))  # more digits than `int` takes of a text
    return b'{"scale":%d,"value":"%b"}' % (len(fraction), unscaled(number))


_not_money = re.compile(rb"[^0-9-]+")


def _money(text: bytes) -> bytes:
    """The session's lc_monetary is C: two digits after the point.

    >>> _money(b"-$1,234.56") == b'"%b"' % unscaled(-123456)
    True
    """
    digits = _not_money.sub(b"", text)
    if text[:1] == b"(":
        digits = b"-" + digits
    return b'"%b"' % unscaled(int(digits))


def _bit(modifier: int) -> Converter:
    if modifier == 1:
        return lambda text: b"true" if text == b"1" else b"false"

    def little_endian(text: bytes) -> bytes:
        return b'"%b"' % base64.b64encode(int(text, 2).to_bytes((len(text) + 7) // 8, "little"))

    return little_endian


def _as_it_is(text: bytes) -> bytes:
    return text


_SIMPLE: Mapping[str, Converter] = {
    "bool": _boolean,
    "int2": _as_it_is,
    "int4": _as_it_is,
    "int8": _as_it_is,
    "oid": _as_it_is,
    "float4": _real,
    "float8": _real,
    "bytea": _bytea,
    "money": _money,
    "date": temporal.days,
    "timetz": temporal.zoned_time,
    "interval": temporal.interval,
    "point": point,
}

_BY_MODIFIER: Mapping[str, Callable[[int], Converter]] = {
    "numeric": _numeric,
    "bit": _bit,
    "time": lambda digits: temporal.time_milliseconds if 0 <= digits <= 3 else temporal.time_microseconds,
    "timestamp": lambda digits: (
        temporal.timestamp_milliseconds if 0 <= digits <= 3 else temporal.timestamp_microseconds
    ),
    "timestamptz": lambda digits: temporal.zoned_timestamp(6 if digits < 0 else digits),
}


def is_as_it_is(converter: Converter) -> bool:
    """Whether a converter passes its text on, so that nobody need call it."""
    return converter is _as_it_is


def is_built_in(oid: int) -> bool:
    """Whether a type is PostgreSQL's own, and no extension's or user's."""
    return oid < _FIRST_USER_OID


def keeps_text(before: TypeRow, after: TypeRow) -> bool:
    """Whether values of both types are the same strings, so that a change of type changes no row's JSON."""
    textual = {"text", "varchar"}
    return before.name in textual and after.name in textual
