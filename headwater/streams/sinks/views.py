"""A batch into views: rows, number of the batch and offsets it covers, in a transaction of the store for each.

A query may compute several views (see ``engine.sharing``): their rows come in one frame, in columns of their
own, and a column that says whose row it is.
"""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.errors import UnknownView
from headwater.streams.engine.checkpoint import BatchRecord, Checkpoint
from headwater.streams.naming import col, type_text
from headwater.streams.sinks.collecting import Collector
from headwater.views.model import Batch, Column, ViewSchema
from headwater.views.store import ViewStore

WHOSE = "_whose"


def view_schema(name: str, build: int, schema: StructType, key: tuple[str, ...]) -> ViewSchema:
    """A schema of Spark as the store keeps it."""
    columns = tuple(Column(field.name, type_text(field.dataType)) for field in schema.fields)
    return ViewSchema(name, build, columns, key)


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of several frames in one; `apart` takes them apart again."""
    if len(frames) == 1:
        return frames[0]
    marked = [
        frame.select(
            F.lit(number).alias(WHOSE),
            *(col(name).alias(f"{number}.{name}") for name in frame.columns),
        )
        for number, frame in enumerate(frames)
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), marked)


def apart(rows: pa.Table, count: int) -> list[pa.Table]:
    """The rows of each of the frames that `together` put into one.

    >>> rows = pa.table({WHOSE: [0, 1], "0.word": ["a", None], "1.n": [None, 7]})
    >>> [table.to_pylist() for table in apart(rows, 2)]
    [[{'word': 'a'}], [{'n': 7}]]
    """
    if count == 1:
        return [rows]
    tables = []
    for number in range(count):
        prefix = f"{number}."
        names = [name for name in rows.column_names if name.startswith(prefix)]
        own = rows.filter(pc.equal(rows.column(WHOSE), number)).select(names)
        tables.append(own.rename_columns([name.removeprefix(prefix) for name in names]))
    return tables


class ViewSink:
    """Applies the batches of a query to one build of a view."""

    def __init__(self, store: ViewStore, view: str, build: int, *, whole: bool = False) -> None:
        self._store, self._view, self._build = store, view, build
        self._put = store.replace if whole else store.apply
        self.rows = 0
        self.retired = False  # another build has taken over, and this one is gone

    def put(self, rows: pa.Table, number: int, record: BatchRecord | None) -> None:
        """Applies the rows of a batch, unless that was done before."""
        if self.retired:
            return
        batch = Batch(
            number,
            rows,
            offsets=record.offsets if record else {},
            watermark=record.watermark if record else None,
        )
        try:
            if self._put(self._view, self._build, batch):
                self.rows += rows.num_rows
        except UnknownView:
            if not self.retired:
                raise
            # It went while this batch was on its way, and the query has other views.


class ViewsSink:
    """Applies the batches of a query to all the views that it computes."""

    def __init__(self, sinks: Sequence[ViewSink], checkpoint: Checkpoint) -> None:
        self._sinks, self._checkpoint = sinks, checkpoint
        self._collect = Collector()

    def __call__(self, frame: DataFrame, number: int) -> None:
        record = self._checkpoint.batch(number)
        tables = apart(self._collect(frame, record), len(self._sinks))
        for sink, rows in zip(self._sinks, tables, strict=True):
            sink.put(rows, number, record)
