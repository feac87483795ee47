"""How the rows of a table become records: columns, converters, key and topic, made once for each form of a table."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headwater.connect.cdc.envelope import NULL, Shape
from headwater.connect.cdc.postgres.catalog import TableInfo
from headwater.connect.cdc.postgres.literals import Converter
from headwater.connect.cdc.postgres.pgoutput import Relation, Values
from headwater.connect.cdc.postgres.types import Types, is_as_it_is

# Types whose text is at least as long as what is stored: a short message then has nothing that is stored apart.
_TEXTUAL = frozenset(
    ("text", "varchar", "bpchar", "bytea", "json", "xml", "citext", "numeric", "inet", "cidr", "varbit")
)


@dataclass(frozen=True)
class Names:
    """What every event says about where it comes from."""

    version: str
    logical: str
    database: str


class Field:
    """A column as rows show it. `expression` is that of a generated column, which the stream leaves out."""

    __slots__ = ("expression", "modifier", "name", "stored_apart", "type_oid")

    def __init__(
        self,
        name: str,
        type_oid: int,
        modifier: int,
        stored_apart: bool = True,
        expression: str | None = None,
    ) -> None:
        self.name, self.type_oid, self.modifier = name, type_oid, modifier
        self.stored_apart, self.expression = stored_apart, expression


class Plan:
    """One form of a table. A changed table gets another plan."""

    def __init__(
        self,
        oid: int,
        schema: str,
        table: str,
        topic: str,
        fields: Sequence[Field],
        key: Sequence[str],
        types: Types,
        names: Names,
    ) -> None:
        self.oid, self.schema, self.table, self.topic = oid, schema, table, topic
        self.full_name = f"{schema}.{table}"
        self.fields = tuple(fields)
        self.shape = Shape(topic, [field.name for field in fields], key)
        self.key = tuple(key)
        self.all_converters: list[Converter] = [
            types.converter(field.type_oid, field.modifier) for field in fields
        ]
        self.generated = [place for place, field in enumerate(fields) if field.expression is not None]
        self.streamed = [field for field in fields if field.expression is None]
        self.converters: list[Converter] = [
            convert
            for convert, field in zip(self.all_converters, fields, strict=True)
            if field.expression is None
        ]
        self.key_places = [[field.name for field in self.streamed].index(name) for name in key]
        self.apart = [place for place, field in enumerate(self.streamed) if field.stored_apart]
        textual = all(types.row(self.streamed[place].type_oid).name in _TEXTUAL for place in self.apart)
        self.smallest_apart = 1000 if textual and len(fields) < 50 else 200
        self.hidden: Any = (
            None  # what keeps changes of a table without a key back while it is read: see bags.py
        )
        self._source = _source_template(names, schema, table)
        self._convert = _unrolled(self.converters)

    def source(self, milliseconds_and_more: tuple[int, int, int], last: bytes, lsn: int, xid: int) -> bytes:
        """The source block of a change."""
        ms, us, ns = milliseconds_and_more
        return self._source % (ms, last, lsn, us, ns, xid, lsn)

    def streams_like(self, other: "Plan") -> bool:
        """Whether another plan is of the same table with the same columns in the stream."""

        def described(plan: Plan) -> list[tuple[str, int, int]]:
            return [(field.name, field.type_oid, field.modifier) for field in plan.streamed]

        return (self.full_name, described(self)) == (other.full_name, described(other))

    def fragments(self, values: Values) -> list[bytes]:
        """The values of the stream as JSON; generated columns are null until `with_generated`.

        UNCHANGED has been replaced before, but in the key of a row.
        """
        row = self._convert(values)
        for place in self.generated:
            row.insert(place, NULL)
        return row

    def with_generated(self, row: list[bytes], computed: Sequence[bytes | None]) -> list[bytes]:
        for place, value in zip(self.generated, computed, strict=True):
            row[place] = NULL if value is None else self.all_converters[place](value)
        return row


def _unrolled(converters: Sequence[Converter]) -> Callable[[Values], list[bytes]]:
    """A function that converts one row, its loop over the columns unrolled: twice as quick as the loop.

    >>> _unrolled([bytes.lower, bytes.upper])([b"A", None])
    [b'a', b'null']
    """
    if not converters:
        return lambda values: []
    names = [f"v{number}" for number in range(len(converters))]
    parts = []
    for number, (name, convert) in enumerate(zip(names, converters, strict=True)):
        done = name if is_as_it_is(convert) else f"c{number}({name})"
        parts.append(f"NULL if {name} is None else {done}")
    source = f"def convert(values):\n {', '.join(names)}, = values\n return [{', '.join(parts)}]"
    scope: dict[str, Any] = {"NULL": NULL, **{f"c{number}": each for number, each in enumerate(converters)}}
    exec(source, scope)
    made: Callable[[Values], list[bytes]] = scope["convert"]
    return made


def _source_template(names: Names, schema: str, table: str) -> bytes:
    def text(value: str) -> bytes:
        return orjson.dumps(value).replace(b"%", b"%%")

    return (
        b'{"version":%b,"connector":"postgresql","name":%b,"ts_ms":%%d,"snapshot":"false","db":%b,'
        b'"sequence":"[%%b,\\"%%d\\"]","ts_us":%%d,"ts_ns":%%d,"schema":%b,"table":%b,"txId":%%d,"lsn":%%d,"xmin":null}'
        % (text(names.version), text(names.logical), text(names.database), text(schema), text(table))
    )


def snapshot_source(
    names: Names, plan: Plan, marker: str, nanoseconds: int, lsn: int, last: bytes, xid: int | None
) -> bytes:
    """The source block of a row that was read."""
    return (
        b'{"version":%b,"connector":"postgresql","name":%b,"ts_ms":%d,"snapshot":"%b","db":%b,'
        b'"sequence":"[%b,\\"%d\\"]","ts_us":%d,"ts_ns":%d,"schema":%b,"table":%b,"txId":%b,"lsn":%d,"xmin":null}'
    ) % (
        orjson.dumps(names.version),
        orjson.dumps(names.logical),
        nanoseconds // 1_000_000,
        marker.encode(),
        orjson.dumps(names.database),
        last,
        lsn,
        nanoseconds // 1000,
        nanoseconds,
        orjson.dumps(plan.schema),
        orjson.dumps(plan.table),
        NULL if xid is None else b"%d" % xid,
        lsn,
    )


def fields_of(info: TableInfo) -> list[Field]:
    """The columns of a table as it is now."""
    return [
        Field(column.name, column.type_oid, column.modifier, column.stored_apart, column.generated)
        for column in info.columns
    ]


def fields_of_relation(relation: Relation, info: TableInfo | None) -> list[Field]:
    """The columns of a relation in the stream, with what only the catalogue knows where it fits.

    The catalogue may be ahead of the stream: then generated columns are left out, and every column is taken
    to be one whose values may lie apart.
    """
    streamed = [(column.name, column.type_oid) for column in relation.columns]
    if info is not None and streamed == [(column.name, column.type_oid) for column in info.streamed_columns]:
        modifiers = {column.name: column.modifier for column in relation.columns}
        return [
            Field(
                column.name,
                column.type_oid,
                modifiers.get(column.name, column.modifier),
                column.stored_apart,
                column.generated,
            )
            for column in info.columns
        ]
    return [Field(column.name, column.type_oid, column.modifier) for column in relation.columns]


def key_of_relation(relation: Relation, info: TableInfo | None) -> tuple[str, ...]:
    """The columns that are the key: those of the catalogue if the relation has them, else its identity."""
    names = {column.name for column in relation.columns}
    if info is not None and names.issuperset(key_of(info)):
        return key_of(info)
    if relation.identity in "di":
        return tuple(column.name for column in relation.columns if column.identity)
    return ()


def key_of(info: TableInfo) -> tuple[str, ...]:
    """A row is known by what its changes carry: with REPLICA IDENTITY USING INDEX that index alone.

    Generated columns are in no change: a key with one is none.
    """
    key = info.identity_index if info.replica_identity == "i" else info.key
    return key if set(key) <= {column.name for column in info.streamed_columns} else ()


def form(fields: Sequence[Field], key: Sequence[str]) -> str:
    """A short mark by which a changed table is known from what it was."""
    columns = [(field.name, field.type_oid, field.modifier) for field in fields if field.expression is None]
    return hashlib.blake2b(orjson.dumps([columns, list(key)]), digest_size=6).hexdigest()
