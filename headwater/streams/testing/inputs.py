"""What a test gives for one input of a function, with what its declaration says of it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import LOG_TIME, PROCESSING_TIME, Node, Stream, Table
from headwater.streams.durations import microseconds
from headwater.streams.required import lacking_in, nullable
from headwater.streams.schema import to_ddl
from headwater.streams.state import WATERMARK
from headwater.streams.testing.rows import Row, Rows, arrow_table, check_columns, fit, inferred, parsed
from headwater.streams.times import watermarked

_HEADERS = "array<struct<key:string,value:binary>>"
_META = f"_key binary, _topic string, _partition int, _offset long, _headers {_HEADERS}"


@dataclass(frozen=True)
class Given:
    """The rows of one input, ready to be fed."""

    name: str
    schema: StructType
    batches: list[list[Row]]
    dead: list[Row]  # without what they must have: in production, written to <stream>.dead
    time: str | None
    lateness: int

    @property
    def subject(self) -> str:
        """How errors name it."""
        return f"the input {self.name}"

    def with_time(self, frame: DataFrame) -> DataFrame:
        """The frame with its watermark."""
        if self.time is None:
            return frame
        return watermarked(frame, self.time, f"{self.lateness} microseconds")

    def still(self, spark: SparkSession, rows: list[Row]) -> DataFrame:
        """Some rows as a DataFrame that does not stream, with its event time marked as if it did."""
        frame = spark.createDataFrame(arrow_table(rows, self.schema, self.subject), self.schema)
        if self.time is None:
            return frame
        return frame.withMetadata(self.time, {WATERMARK: self.lateness // 1000})

    def moment_of(self, row: Row) -> datetime | None:
        """The event time of a row."""
        found = fit(row.get(self.time), TimestampType()) if self.time is not None else None
        assert found is None or isinstance(found, datetime)
        return found


def given(name: str, rows: Rows, node: Node | None) -> Given:
    """Brings together what the test says and what is declared."""
    subject = f"the input {name}"
    batches = rows.batches()
    declared = node if isinstance(node, Stream) else None
    time = rows.time or (declared.time if declared else None)
    if rows.lateness is not None:
        lateness = microseconds(rows.lateness, use=f"the lateness of {name}", zero=True)
    else:
        lateness = declared.lateness if declared else 0
    schema = _schema(rows, node, batches, subject)
    if declared is not None and declared.metadata:
        schema = _added(schema, parsed(_META, subject))
    if time in (LOG_TIME, PROCESSING_TIME) or (declared is not None and declared.metadata):
        schema = _added(schema, StructType([StructField(_clock(time), TimestampType())]))
    if time == PROCESSING_TIME:
        now = datetime.now(UTC)
        batches = [[{PROCESSING_TIME: now} | row for row in batch] for batch in batches]
    if time is not None and time not in schema.fieldNames():
        raise ApplicationInvalid(
            "read", subject, f"it has no column {time!r} for its event time", "Correct time=... or the rows."
        )
    check_columns((row for batch in batches for row in batch), schema, subject)
    must, schema = schema, nullable(schema)
    requires = must != schema and not isinstance(node, Table)

    def is_event(row: Row) -> bool:
        if time is not None and row.get(time) is None:
            return False
        return not requires or lacking_in(fit(row, must), must) is None

    dead: list[Row] = []
    if time is not None or requires:
        dead = [row for batch in batches for row in batch if not is_event(row)]
        batches = [[row for row in batch if is_event(row)] for batch in batches]
    return Given(name, schema, batches, dead, time, lateness)


def _clock(time: str | None) -> str:
    return PROCESSING_TIME if time == PROCESSING_TIME else LOG_TIME


def _schema(rows: Rows, node: Node | None, batches: list[list[Row]], subject: str) -> StructType:
    if rows.schema is not None:
        return parsed(to_ddl(rows.schema, subject), subject)
    if isinstance(node, Stream | Table) and node.schema:
        return parsed(node.schema, subject)
    everything = [row for batch in batches for row in batch]
    if not everything:
        raise ApplicationInvalid(
            "read", subject, "it has no rows and no schema", "Say schema=... on testing.Rows."
        )
    schema = inferred(everything, subject)
    if rows.time is not None and rows.time in schema.fieldNames():
        # A time may be written as a text.
        for field in schema:
            if field.name == rows.time:
                field.dataType = TimestampType()
    return schema


def _added(schema: StructType, more: StructType) -> StructType:
    names = set(schema.fieldNames())
    return StructType([*schema, *(field for field in more if field.name not in names)])
