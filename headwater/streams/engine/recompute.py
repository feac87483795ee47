"""Views over views: computed as a whole, by an ordinary batch query, whenever an input has a new batch.

That allows whatever Spark can do with a table (ranks, distinct counts, joins), and costs the size of the
inputs each time: it is meant for inputs that fit in memory, as rankings and summaries of aggregates do. The
result is compared with what the view holds, so that its changes are real changes.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import pairwise

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.streams.engine.builds import Build
from headwater.streams.engine.checkpoint import Offsets, merge
from headwater.streams.engine.fingerprint import same_definition
from headwater.streams.engine.watch import first_line
from headwater.streams.planning import Recomputed
from headwater.streams.sinks.views import view_schema
from headwater.views.model import Batch, Snapshot, VersionInfo, ViewInfo
from headwater.views.store import ViewStore

logger = logging.getLogger("headwater.streams")

INPUTS = "views"  # the key among a batch's offsets under which the batches of the inputs are kept
PAUSE = 2.0


@dataclass(frozen=True)
class Done:
    """What has been computed of a view since the start, in the words of ``OutputStatus``."""

    batches: int = 0
    batch: int = -1
    rows_in: int = 0
    rows_out: int = 0
    batch_ms: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)
    watermark: str | None = None

    def with_batch(self, batch: Batch, read: int, moments: tuple[float, float, float, float]) -> "Done":
        """One batch more: its inputs were read, it was computed and it was written between these moments."""
        taken = [round(1000 * (end - begin)) for begin, end in pairwise(moments)]
        watermark = batch.watermark
        return Done(
            self.batches + 1,
            batch.id,
            self.rows_in + read,
            self.rows_out + batch.rows.num_rows,
            float(sum(taken)),
            # As Spark calls them: what reads, what computes, what commits.
            {
                "getBatch": taken[0],
                "addBatch": taken[1],
                "commitBatch": taken[2],
                "triggerExecution": sum(taken),
            },
            None if watermark is None else watermark.astimezone(UTC).isoformat(),
        )


class Recompute:
    """Keeps the recomputed views of an application current."""

    def __init__(
        self,
        spark: SparkSession,
        store: ViewStore,
        views: Sequence[Recomputed],
        schemas: Mapping[str, StructType],
        builds: Mapping[str, Build],
        changed: Callable[[str], None],
    ) -> None:
        """`builds` says which build of each view is the one to have; a replay puts another there."""
        self._spark, self._store, self._views = spark, store, views
        self._schemas, self._builds, self._changed = schemas, builds, changed
        self._news = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="recompute", daemon=True)
        self.errors: dict[str, str | None] = {view.output.name: None for view in views}
        self.done: dict[str, Done] = {view.output.name: Done() for view in views}

    def begin(self) -> None:
        """Computes what is behind, then what changes."""
        if self._views:
            self._news.set()
            self._thread.start()

    def news(self) -> None:
        """A view has a new batch."""
        self._news.set()

    def end(self, seconds: float = 30.0) -> None:
        """Brings the views up to their inputs, and stops."""
        if self._views:
            self._stopped = True
            self._news.set()
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            last = self._stopped
            for view in self._views:
                name = view.output.name
                try:
                    if self.bring_up(view):
                        self._changed(name)
                    self.errors[name] = None
                except Py4JNetworkError:  # Java has ended: the engine says so
                    return
                except Exception as error:  # also what the function raises: nobody else would say so
                    self.errors[name] = first_line(error)
                    logger.error("cannot compute the view %s: %s", name, self.errors[name])
                    if not last:
                        threading.Timer(PAUSE, self._news.set).start()
            if last:
                return

    def bring_up(self, view: Recomputed) -> bool:
        """Computes a view unless it covers its inputs already."""
        name, build = view.output.name, self._builds[view.output.name].number
        known = {info.name: info for info in self._store.views()}
        progress = next(each.progress for each in known[name].versions if each.version == build)
        current = self._standing(view, known)
        if current is None or progress.offsets.get(INPUTS) == current:
            return False
        began = time.monotonic()
        inputs = {source: self._store.snapshot(source) for source in view.inputs}
        frames = {source: self._frame(source, held) for source, held in inputs.items()}
        read = time.monotonic()
        rows = view.output.function(**frames).toArrow()
        computed = time.monotonic()
        offsets: Offsets = {}
        for held in inputs.values():
            merge(offsets, {k: v for k, v in held.progress.offsets.items() if k != INPUTS})
        seen = {source: [held.progress.version, held.progress.batch] for source, held in inputs.items()}
        watermarks = [held.progress.watermark for held in inputs.values() if held.progress.watermark]
        batch = Batch(
            (progress.batch if progress.batch is not None else -1) + 1,
            rows,
            offsets={**offsets, INPUTS: seen},
            watermark=min(watermarks, default=None),
        )
        is_new = self._store.replace(name, build, batch)
        if is_new:
            moments = (began, read, computed, time.monotonic())
            held_rows = sum(len(held.rows) for held in inputs.values())
            self.done[name] = self.done[name].with_batch(batch, held_rows, moments)
        return is_new

    def _standing(self, view: Recomputed, known: Mapping[str, ViewInfo]) -> dict[str, list[int]] | None:
        """Build and batch of each input as it serves; None while the view cannot be computed of these.

        A view over views is of what its inputs show, so that nobody sees it of half of an input that is built anew.
        A new version is for new versions of its inputs, and waits for them: the old one serves meanwhile.
        """
        serving = _serving(known[view.output.name])
        is_new = serving is not None and not same_definition(serving.fingerprint, view.fingerprint)
        found = {}
        for source in view.inputs:
            shown = _serving(known[source])
            if shown is None or shown.progress.batch is None:
                return None
            if is_new and not same_definition(shown.fingerprint, self._builds[source].fingerprint):
                return None
            if shown.schema.columns != view_schema(source, shown.version, self._schemas[source], ()).columns:
                return None  # an older version, without what the function is for
            found[source] = [shown.version, shown.progress.batch]
        return found

    def _frame(self, view: str, held: Snapshot) -> DataFrame:
        schema = self._schemas[view]
        arrow = to_arrow_schema(schema, timezone="UTC")
        return self._spark.createDataFrame(pa.Table.from_pylist(held.rows, schema=arrow), schema)


def _serving(info: ViewInfo) -> VersionInfo | None:
    return next((each for each in info.versions if each.version == info.serving), None)
