"""JSON values decoded by Spark: for the connector, and for schemas that our source does not decode itself."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from headwater.streams.sources.json_rules import can_convert
from headwater.streams.sources.json_values import JsonDecoder
from headwater.streams.sources.topic_read import PROBLEM

_CORRUPT = "_corrupt_value"
_DECODED = "_decoded_value"
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
REASON = "the value is not JSON of the declared schema"


def decode_in_spark(raw: DataFrame, schema: StructType) -> DataFrame:
    """The same rows with ``value`` as a struct, null where ``problem`` says that it does not parse.

    Spark does not say why a value does not parse: the reason is always the same (but see `decode_with_reasons`).
    """
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    decoded = raw.withColumn(_DECODED, F.from_json(F.col("value").cast("string"), with_corrupt, _OPTIONS))
    is_bad = F.col(f"{_DECODED}.{_CORRUPT}").isNotNull()
    is_null = F.col(_DECODED).isNull()
    fields = [F.col(_DECODED)[field.name].alias(field.name) for field in schema.fields]
    value = F.when(is_bad | is_null, F.lit(None)).otherwise(F.struct(*fields)).cast(schema)
    problem = F.when(is_bad | (is_null & F.col("value").isNotNull()), F.lit(REASON))
    others = [value.alias("value") if name == "value" else F.col(name) for name in raw.columns]
    return decoded.select(*others, problem.alias(PROBLEM))


def decode_with_reasons(raw: DataFrame, schema: StructType) -> DataFrame:
    """The same, with a reason of its own for each value that does not parse: they are looked at once more."""
    zone = str(raw.sparkSession.conf.get("spark.sql.session.timeZone"))

    @arrow_udf("string")  # type: ignore[call-overload, untyped-decorator]
    def reason(values: pa.Array) -> pa.Array:
        return reasons(values, schema, zone)

    kept = "_raw_value"
    decoded = decode_in_spark(raw.withColumn(kept, F.col("value").cast("binary")), schema)
    is_bad = F.col(PROBLEM).isNotNull()
    found = F.when(is_bad, reason(F.when(is_bad, F.col(kept))))
    return decoded.withColumn(PROBLEM, found).drop(kept)


def reasons(values: pa.Array, schema: StructType, zone: str) -> pa.Array:
    """Why values do not parse that Spark has refused, null for no value.

    Columns of types that our own rules do not know are taken for texts: if that parses, they are the reason.

    >>> from pyspark.sql.types import TimestampNTZType
    >>> schema = StructType([StructField("s", StringType()), StructField("day", TimestampNTZType())])
    >>> reasons(pa.array([b'{"s": ', b'{"day": "x"}', None], pa.binary()), schema, "UTC").to_pylist()
    ['not JSON: it ends too early', 'day is not of its type (timestamp_ntz)', None]
    """
    unknown = [field for field in schema.fields if not can_convert(field.dataType)]
    known = [StructField(field.name, StringType()) if field in unknown else field for field in schema.fields]
    _, problems = JsonDecoder(StructType(known), zone).decode(values)
    columns = [f"{field.name} is not of its type ({field.dataType.simpleString()})" for field in unknown]
    rest = " or ".join(columns) or REASON
    return pa.array(
        [
            None if value is None else problem or rest
            for value, problem in zip(values.to_pylist(), problems.to_pylist(), strict=True)
        ],
        pa.string(),
    )
