"""The rows of a batch as an Arrow table, batch after batch of one query.

``DataFrame.toArrow`` asks Java for settings and the schema with every call, and leaves Spark without a call site, so
that it walks the stack for each RDD of the batches that follow: some milliseconds of a small batch.

In small batches Spark interprets the projections and predicates that are outside of its whole stages. Generated, they
are written anew for every task, and the one that holds the watermark is compiled anew for every batch: a fifth of the
time that a small batch takes. Interpreted, a row takes microseconds longer: many rows are quicker with generated ones.
The first change between the two costs a second of compiling, so a query has to be live for a while before it is made.
"""

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from headwater.streams.engine.checkpoint import BatchRecord, Offsets

SMALL = 5_000  # records; at about so many both take the same time
LIVE = 20  # small batches in a row

_MODE = "spark.sql.codegen.factoryMode"
_GENERATED, _INTERPRETED = "FALLBACK", "NO_CODEGEN"


class Collector:
    """Collects the batches of one query, which all have the schema of the first."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._covered: Offsets = {}
        self._mode: str | None = _GENERATED  # None: the user has chosen one
        self._small_batches = 0  # in a row

    def __call__(self, frame: DataFrame, record: BatchRecord | None) -> pa.Table:
        """The rows, with moments in UTC: what ``frame.toArrow()`` gives. `record` is what is known of the batch."""
        if self._schema is None:
            self._schema = to_arrow_schema(
                frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
            )
            if frame.sparkSession.conf.get(_MODE, None) is not None:
                self._mode = None
        self._choose_mode(frame, record)
        port, secret, server = frame._jdf.collectAsArrowToPython()
        try:
            with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:
                batches = list(stream)
        finally:
            with unwrap_spark_exception():
                server.getResult()  # raises what went wrong in Java
        return pa.Table.from_batches(batches).cast(self._schema) if batches else self._schema.empty_table()

    def _choose_mode(self, frame: DataFrame, record: BatchRecord | None) -> None:
        if self._mode is None or record is None:
            return
        is_small = records_between(self._covered, record.offsets) < SMALL
        self._covered = record.offsets
        self._small_batches = self._small_batches + 1 if is_small else 0
        mode = _INTERPRETED if self._small_batches >= LIVE else _GENERATED
        if mode != self._mode:  # of the session that the query has for itself
            frame.sparkSession.conf.set(_MODE, mode)
            self._mode = mode


def records_between(start: Offsets, end: Offsets) -> int:
    """How many records lie between two positions; of partitions that only the second has, all.

    >>> records_between({"clicks": {0: 5}}, {"clicks": {0: 9, 1: 2}})
    6
    """
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )
