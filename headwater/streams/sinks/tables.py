"""A batch of changes into a table: of each key the last change counts, in one transaction of the store.

Changes of one key are in one partition of the topic, so that their offsets are their order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import OrderUnknown
from headwater.streams.engine.checkpoint import BatchRecord
from headwater.streams.sinks.views import ViewSink
from headwater.streams.tables import CHANGE, KEPT, OFFSET, OWN, PARTITION
from headwater.views.model import Batch
from headwater.views.store import ViewStore
from headwater.views.texts import json_objects


class TableSink(ViewSink):
    """Applies the changes of a topic to one build of a table."""

    def __init__(self, store: ViewStore, table: str, build: int, key: Sequence[str]) -> None:
        super().__init__(store, table, build)
        self._key = list(key)

    def put(self, rows: pa.Table, number: int, record: BatchRecord | None) -> None:
        """Applies the changes of a batch, unless that was done before."""
        if self.retired:
            return
        changes = rows.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
        changes, emptied = self._since_truncate(changes, record)
        if rows.column(KEPT).null_count < rows.num_rows:
            changes = self._with_kept(changes, emptied)
        changes = last_changes(changes, self._key)
        is_delete = pc.equal(changes.column(CHANGE), "delete")
        batch = Batch(
            number,
            changes.filter(pc.invert(is_delete)).drop_columns(list(OWN)),
            deleted_keys=changes.filter(is_delete).select(self._key),
            offsets=record.offsets if record else {},
        )
        put = self._store.replace if emptied else self._store.apply
        if put(self._view, self._build, batch):
            self.rows += changes.num_rows

    def _since_truncate(self, changes: pa.Table, record: BatchRecord | None) -> tuple[pa.Table, bool]:
        """What came after the table was last emptied, and whether it was."""
        places = np.flatnonzero(pc.equal(changes.column(CHANGE), "truncate").to_numpy())
        if not len(places):
            return changes, False
        partitions = {number for topic in (record.offsets if record else {}).values() for number in topic}
        if len(partitions) > 1:
            raise OrderUnknown(
                "empty",
                f"the table {self._view}",
                f"its topic has {len(partitions)} partitions, and what came before a truncate in the others "
                "cannot be told",
            )
        return changes.slice(int(places[-1]) + 1), True

    def _with_kept(self, changes: pa.Table, emptied: bool) -> pa.Table:
        """Fills in values that the topic leaves out because they had not changed."""
        columns = [name for name in changes.column_names if name not in OWN]
        listed = changes.to_pylist()
        newest: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        for change in listed:
            key = tuple(change[name] for name in self._key)
            if change[CHANGE] == "delete":
                newest[key] = None
                continue
            for name in change[KEPT] or ():
                if key not in newest:
                    newest[key] = None if emptied else self._store.get(self._view, key, self._build)
                known = newest[key]
                change[name] = known[name] if known is not None else None
            newest[key] = {name: change[name] for name in columns}
        return pa.Table.from_pylist(listed, schema=changes.schema)


def last_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Of each key the last change, in table order.

    >>> changes = pa.table({"id": [1, 2, 1], "n": [5, 6, 7]})
    >>> last_changes(changes, ["id"]).to_pylist()
    [{'id': 2, 'n': 6}, {'id': 1, 'n': 7}]
    """
    if changes.num_rows < 2:
        return changes
    texts = json_objects({name: _array(changes.column(name)) for name in key}).dictionary_encode()
    last = np.empty(len(texts.dictionary), np.int64)
    last[texts.indices.to_numpy()] = np.arange(changes.num_rows)  # of several for one place the last stays
    return changes.take(pa.array(np.sort(last)))


def _array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what older Arrow returns for no or many chunks
        return pa.concat_arrays(array.chunks)
    return array
