"""A batch into a view: its rows, its number and the offsets it covers, in one transaction of the store."""

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.streams.engine.checkpoint import Checkpoint
from headwater.views.model import Batch, Column, ViewSchema
from headwater.views.store import ViewStore


def view_schema(name: str, build: int, schema: StructType, key: tuple[str, ...]) -> ViewSchema:
    """A schema of Spark as the store keeps it."""
    columns = tuple(Column(field.name, field.dataType.simpleString()) for field in schema.fields)
    return ViewSchema(name, build, columns, key)


class ViewSink:
    """Applies the batches of one query to one build of a view."""

    def __init__(
        self, store: ViewStore, view: str, build: int, checkpoint: Checkpoint, *, whole: bool = False
    ) -> None:
        self._store, self._view, self._build, self._checkpoint = store, view, build, checkpoint
        self._put = store.replace if whole else store.apply
        self.rows = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        record = self._checkpoint.batch(number)
        rows = frame.toArrow()
        batch = Batch(
            number,
            rows,
            offsets=record.offsets if record else {},
            watermark=record.watermark if record else None,
        )
        if self._put(self._view, self._build, batch):
            self.rows += rows.num_rows
