"""JSON values of a chunk of records as one Arrow struct array, and the problem of each that does not parse.

The quick way: the values become lines of one text, which Arrow parses at once with the schema's types. It
takes strict JSON that fits the types exactly, and what it takes means the same by the rules of `json_rules`.
When it refuses, the chunk is cut into smaller ones, and records are decided one by one in the end, by
`json_objects` or the rules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from headwater.streams.sources.json_objects import Fitter, Odd, fitted, fitter
from headwater.streams.sources.json_rules import Converter, Misfit, converter, parse, text_of

SMALLEST = 256  # a call of Arrow's parser costs as much as so many records one by one
PARTS = 8

_OPEN, _CLOSE = ord("{"), ord("}")
_SAME = (
    spark.BooleanType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
)
# "2026-01-01T00:00:00Z": Arrow takes a zone behind hours or minutes as well, which Spark does not.
_SHORTEST_WITH_ZONE = 20


class _Refused(Exception):
    """The quick way does not take these values."""


class JsonDecoder:
    """Decodes values for one schema; ``zone`` is that of timestamps without one.

    >>> schema = spark.StructType([spark.StructField("n", spark.LongType())])
    >>> values, problems = JsonDecoder(schema, "UTC").decode(pa.array([b'{"n": 1}', b'{"n": "x"}', None]))
    >>> values.to_pylist(), problems.to_pylist()
    ([{'n': 1}, None, None], [None, 'n: "x" is not a long', None])
    """

    def __init__(self, schema: spark.StructType, zone: str) -> None:
        self.type = to_arrow_type(schema, timezone="UTC")
        self._rules: Converter = converter(schema, zone)
        self._fit: Fitter = fitter(schema, zone)
        self._fields = [_field(each, zone) for each in schema.fields]
        self._quick = all(each is not None for each in self._fields) and bool(self._fields)
        self._options: Any = None

    def decode(self, values: pa.BinaryArray) -> tuple[pa.StructArray, pa.StringArray]:
        """The structs and the problems. Both are null where there is no value."""
        parts: list[tuple[pa.StructArray, pa.StringArray]] = []
        self._decode(values, parts)
        if len(parts) == 1:
            return parts[0]
        structs = pa.concat_arrays([struct for struct, _ in parts]) if parts else pa.array([], self.type)
        return structs, pa.concat_arrays([problem for _, problem in parts] or [pa.array([], pa.string())])

    def _decode(self, values: pa.BinaryArray, parts: list[tuple[pa.StructArray, pa.StringArray]]) -> None:
        count = len(values)
        if self._quick and count > SMALLEST // 8:
            try:
                parts.append((self._quickly(values), pa.nulls(count, pa.string())))
                return
            except (_Refused, pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
        if count <= SMALLEST or not self._quick:
            parts.append(self._one_by_one(values))
            return
        size = max(-(-count // PARTS), SMALLEST)
        for start in range(0, count, size):
            self._decode(values.slice(start, size), parts)

    # -- the quick way -----------------------------------------------------------------------------

    def _quickly(self, values: pa.BinaryArray) -> pa.StructArray:
        count = len(values)
        absent = None
        if values.null_count:
            absent = values.is_null()
            values = pc.fill_null(values, b"{}")
        lines = _lines(values)
        if self._options is None:
            schema = pa.schema([(each.name, each.parsed) for each in self._fields if each is not None])
            self._options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        table = pa_json.read_json(
            pa.BufferReader(lines),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=self._options,
        )
        if table.num_rows != count:
            raise _Refused
        arrays = []
        for each, column in zip(self._fields, table.columns, strict=True):
            assert each is not None
            array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
            arrays.append(array if each.finish is None else each.finish(array))
        return pa.StructArray.from_arrays(arrays, fields=list(self.type), mask=absent)

    # -- the rules ---------------------------------------------------------------------------------

    def _one_by_one(self, values: pa.BinaryArray) -> tuple[pa.StructArray, pa.StringArray]:
        structs: list[Any] = []
        problems: list[str | None] = []
        for value in values.to_pylist():
            struct = problem = None
            if value is not None:
                try:
                    struct = fitted(value, self._fit)
                except Odd:
                    try:
                        struct = parse(text_of(value), self._rules)
                    except Misfit as misfit:
                        problem = str(misfit)
            structs.append(struct)
            problems.append(problem)
        return pa.array(structs, self.type), pa.array(problems, pa.string())


def _lines(values: pa.BinaryArray) -> bytes:
    """The values as lines, each of them one JSON object, if Arrow's parser takes the whole.

    That parser reads objects, not lines. But when every line begins with { and ends with }, no object can go
    over the end of a line (} and { do not follow one another in JSON); and when there are as many objects as
    lines, each line is one object.
    """
    count = len(values)
    _, bounds_buffer, data_buffer = values.buffers()
    bounds = np.frombuffer(bounds_buffer, np.int32)[values.offset : values.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    if (bounds[1:] == bounds[:-1]).any():
        raise _Refused
    if (data[bounds[:-1]] != _OPEN).any() or (data[bounds[1:] - 1] != _CLOSE).any():
        raise _Refused
    whole = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), values)
    lines = bytes(pc.binary_join(whole, b"\n")[0].as_buffer())
    if lines.count(b"\n") != count - 1:
        raise _Refused
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            raise _Refused from None
    return lines


@dataclass(frozen=True)
class _Field:
    """How a field is parsed, and what makes of that the type it should have."""

    name: str
    parsed: pa.DataType
    finish: Callable[[pa.Array], pa.Array] | None


def _field(field: spark.StructField, zone: str) -> _Field | None:
    """None when Arrow's parser does not read the type as Spark does."""
    kind, target = field.dataType, to_arrow_type(field.dataType, timezone="UTC")
    if isinstance(kind, _SAME) or type(kind) is spark.StringType:
        return _Field(field.name, target, None)
    if isinstance(kind, spark.DateType):
        return _Field(field.name, pa.string(), _days)
    if isinstance(kind, spark.TimestampType):
        return _Field(field.name, pa.string(), _moments(zone))
    if isinstance(kind, spark.StructType) and kind.fields:
        fields = [_field(each, zone) for each in kind.fields]
        known = [each for each in fields if each is not None]
        if len(known) < len(fields):
            return None
        parsed = pa.struct([(each.name, each.parsed) for each in known])
        return _Field(field.name, parsed, _structs(known, target))
    if isinstance(kind, spark.ArrayType):
        element = _field(spark.StructField("element", kind.elementType), zone)
        if element is None:
            return None
        parsed = pa.list_(pa.field("element", element.parsed))
        return _Field(field.name, parsed, _lists(element, target))
    return None


def _structs(fields: list[_Field], target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def finish(array: pa.Array) -> pa.Array:
        children = [
            child if each.finish is None else each.finish(child)
            for each, child in zip(fields, array.flatten(), strict=True)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)

    return finish


def _lists(element: _Field, target: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def finish(array: pa.Array) -> pa.Array:
        items = array.values if element.finish is None else element.finish(array.values)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=mask)

    return finish


def _days(array: pa.Array) -> pa.Array:
    return array.cast(pa.date32())


def _moments(zone: str) -> Callable[[pa.Array], pa.Array]:
    moment = pa.timestamp("us", "UTC")

    def finish(array: pa.Array) -> pa.Array:
        shortest = pc.min(pc.binary_length(array)).as_py()
        if shortest is None or shortest >= _SHORTEST_WITH_ZONE:
            try:
                return array.cast(moment)
            except pa.ArrowInvalid:
                pass
        local = array.cast(pa.timestamp("us"))
        if zone == "UTC":
            return local.cast(moment)
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="raise").cast(moment)

    return finish
