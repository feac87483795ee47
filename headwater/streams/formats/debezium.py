"""Debezium's change events, as JSON with or without its ``schema`` and ``payload`` around them.

The stream's columns are those of the envelope: ``op`` (c, u, d, r for a row of the snapshot, t for truncate),
``before`` and ``after`` (rows), ``ts_ms`` and ``source``.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.streams.declarations import Format
from headwater.streams.schema import Schema, to_ddl
from headwater.streams.sources.topic_read import PROBLEM

_SOURCE = (
    "struct<connector:string,name:string,db:string,schema:string,table:string,ts_ms:bigint,snapshot:string,"
    "lsn:bigint,txId:bigint>"
)
_COLUMNS = ("before", "after", "op", "ts_ms", "source")


def debezium(row: Schema) -> Format:
    """Change events of a table with these columns.

    >>> debezium("id long, name string").name
    'debezium'
    """
    return Format("debezium", (("row", to_ddl(row, "a table")),))


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
