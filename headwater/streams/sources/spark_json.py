"""JSON values decoded by Spark: for the connector, and for schemas that our source does not decode itself."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headwater.streams.sources.topic_read import PROBLEM

_CORRUPT = "_corrupt_value"
_DECODED = "_decoded_value"
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
REASON = "the value is not JSON of the declared schema"


def decode_in_spark(raw: DataFrame, schema: StructType) -> DataFrame:
    """The same rows with ``value`` as a struct, null where ``problem`` says that it does not parse.

    Spark does not say why a value does not parse: the reason is always the same.
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
