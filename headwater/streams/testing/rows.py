"""Rows that a test gives: dicts in batches, made to fit a schema."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.errors import ApplicationInvalid
from headwater.streams.durations import Duration
from headwater.streams.faults import sentence
from headwater.streams.schema import Schema

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of one input, with what a declaration would say of them.

    `rows` is a list of dicts (or of dataclass instances), or a list of such lists: a batch each. `batch`
    cuts a list into batches of so many rows. Without a `schema` the types are taken from the rows. `time`
    and `lateness` override those that are declared.

    >>> Rows([{"n": 1}, {"n": 2}, {"n": 3}], batch=2).batches()
    [[{'n': 1}, {'n': 2}], [{'n': 3}]]
    """

    rows: Sequence[Any]
    batch: int | None = None
    schema: Schema | None = None
    time: str | None = None
    lateness: Duration | None = None

    def batches(self) -> list[list[Row]]:
        """The rows as dicts, by batch."""
        if self.rows and all(isinstance(entry, list | tuple) for entry in self.rows):
            return [[_as_dict(row) for row in entry] for entry in self.rows]
        flat = [_as_dict(row) for row in self.rows]
        size = self.batch or max(len(flat), 1)
        return [flat[start : start + size] for start in range(0, len(flat), size)]


def parsed(ddl: str, subject: str) -> StructType:
    """The schema that a text says."""
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ApplicationInvalid(
            "read the schema of",
            subject,
            sentence(error),
            "Write it as in CREATE TABLE: 'user_id long, page string, at timestamp'.",
        ) from error
    assert isinstance(schema, StructType)
    return schema


def inferred(rows: Iterable[Row], subject: str) -> StructType:
    """The schema that the rows have by themselves."""
    found = list(rows)
    try:
        schema = pa.Table.from_pylist(found).schema
        return from_arrow_schema(schema, prefer_timestamp_ntz=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ApplicationInvalid(
            "read", subject, f"its rows have no common types: {error}", "Say schema=... on testing.Rows."
        ) from error


def arrow_table(rows: Sequence[Row], schema: StructType, subject: str) -> pa.Table:
    """The rows as Spark takes them in; a column that a row lacks is null."""
    fitted = [{field.name: fit(row.get(field.name), field.dataType) for field in schema} for row in rows]
    try:
        return pa.Table.from_pylist(fitted, to_arrow_schema(schema, timezone="UTC"))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ApplicationInvalid(
            "read", subject, f"its rows do not fit its schema: {error}", "Correct the row or the schema."
        ) from error


def check_columns(rows: Iterable[Row], schema: StructType, subject: str) -> None:
    """Refuses a row with a column that the schema does not know."""
    names = schema.fieldNames()
    for row in rows:
        if unknown := sorted(set(row) - set(names)):
            raise ApplicationInvalid(
                "read",
                subject,
                f"the row {row!r} has the column {unknown[0]!r}, and the columns are {', '.join(names)}",
                "Correct the row or the schema.",
            )


def fit(value: Any, kind: DataType) -> Any:
    """A value as its type wants it: times, dates and decimals may be written as texts.

    >>> fit("2026-01-01 10:00", TimestampType())
    datetime.datetime(2026, 1, 1, 10, 0, tzinfo=datetime.timezone.utc)
    """
    if value is None:
        return None
    if isinstance(kind, StructType) and not isinstance(value, str | bytes):
        record = _as_dict(value)
        return {field.name: fit(record.get(field.name), field.dataType) for field in kind}
    if isinstance(kind, ArrayType):
        return [fit(entry, kind.elementType) for entry in value]
    if isinstance(kind, MapType):
        return [(fit(key, kind.keyType), fit(entry, kind.valueType)) for key, entry in dict(value).items()]
    if isinstance(kind, TimestampType):
        return moment(value)
    if isinstance(kind, TimestampNTZType):
        return moment(value).replace(tzinfo=None)
    if isinstance(kind, DateType) and isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(kind, DecimalType) and not isinstance(value, Decimal):
        return Decimal(str(value))
    return value


def moment(value: str | datetime) -> datetime:
    """A time with its zone, which is UTC unless it says another.

    >>> moment("2026-01-01T12:00+02:00")
    datetime.datetime(2026, 1, 1, 10, 0, tzinfo=datetime.timezone.utc)
    """
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def plain_rows(table: pa.Table) -> list[Row]:
    """Rows out of Arrow, with times in ``datetime.UTC``."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(_plain(entry) for entry in value)
    return value


def _as_dict(row: Any) -> Row:
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    if isinstance(row, Mapping):
        return dict(row)
    raise ApplicationInvalid(
        "read", f"the row {row!r}", "it is neither a dict nor a dataclass", "Write {'column': value, ...}."
    )
