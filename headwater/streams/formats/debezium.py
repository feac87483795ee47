"""Debezium's change events, as JSON with or without its ``schema`` and ``payload`` around them.

The stream's columns are those of the envelope: ``op`` (c, u, d, r for a row of the snapshot, t for truncate),
``before`` and ``after`` (rows), ``ts_ms`` and ``source``.
"""

from collections.abc import Mapping
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Format
from headwater.streams.formats.debezium_values import UNITS
from headwater.streams.schema import Schema, to_ddl
from headwater.streams.sources.topic_read import PROBLEM

_SOURCE = (
    "struct<connector:string,name:string,db:string,schema:string,table:string,ts_ms:bigint,snapshot:string,"
    "lsn:bigint,txId:bigint>"
)
_COLUMNS = ("before", "after", "op", "ts_ms", "source")


def debezium(
    row: Schema = "",
    *,
    timestamps: str | Mapping[str, str] | None = None,
    decimals: Literal["precise", "string"] = "precise",
) -> Format:
    """Change events of a table with these columns.

    The rest is for tables, whose rows get the declared types, and for records without Connect's schema. In
    `timestamps` is what they count, for all columns or by column: "millis", "micros", "nanos" or "seconds";
    else it is what the connector has for a timestamp without a precision. `decimals` are Debezium's bytes
    ("precise") or texts, as its decimal.handling.mode says.

    >>> debezium("id long, name string").name
    'debezium'
    """
    said = timestamps if isinstance(timestamps, str | None) else tuple(sorted(timestamps.items()))
    units = () if said is None else (said,) if isinstance(said, str) else [unit for _, unit in said]
    for unit in units:
        if unit not in UNITS:
            raise ApplicationInvalid(
                "declare", "the format debezium", f"{unit!r} is no unit of time", f"Use {', '.join(UNITS)}."
            )
    if decimals not in ("precise", "string"):
        raise ApplicationInvalid(
            "declare", "the format debezium", f"decimals is {decimals!r}", "Say 'precise' or 'string'."
        )
    options = (("row", to_ddl(row, "a table")), ("timestamps", said), ("decimals", decimals))
    return Format("debezium", options)


def ddl(format: Format) -> str:
    """The columns of the envelope.

    >>> ddl(debezium("id long")).split(", ")[0]
    'before struct<id long>'
    """
    row = f"struct<{format.option('row')}>"
    return f"before {row}, after {row}, op string, ts_ms bigint, source {_SOURCE}"


def both_shapes(envelope: StructType) -> StructType:
    """The envelope as the whole value and as its payload."""
    return StructType([*envelope.fields]).add("payload", envelope)


def unwrapped(decoded: DataFrame, envelope: StructType) -> DataFrame:
    """Takes the envelope out of whichever shape it came in; what has no operation is not a change event."""
    value = F.col("value")
    payload = value.getField("payload")

    def field(name: str) -> Column:
        return F.coalesce(payload.getField(name), value.getField(name)).alias(name)

    is_change = field("op").isNotNull()
    found = F.when(value.isNotNull() & is_change, F.struct(*(field(name) for name in _COLUMNS))).cast(
        envelope
    )
    reason = F.when(value.isNotNull() & ~is_change, F.lit("it is not a change event: it has no op"))
    return decoded.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), reason)).withColumn("value", found)
