"""A function run on rows: see the package's own page."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import ApplicationInvalid, PipelineFailed
from headwater.streams.app import App
from headwater.streams.declarations import Emit, Function, Node, Table, Topic, View
from headwater.streams.engine.session import start_session
from headwater.streams.graph import describe, inputs_of
from headwater.streams.late import FIRST_WATERMARK
from headwater.streams.modes import Mode, choose_mode, prepared
from headwater.streams.settings import load_stream_settings
from headwater.streams.testing.dropped import is_dropped
from headwater.streams.testing.inputs import Given, given
from headwater.streams.testing.memory import MemoryStream
from headwater.streams.testing.rows import Row, Rows, moment, plain_rows

# One partition gives rows in one order, and the least work a batch.
_QUICK = {"spark.sql.shuffle.partitions": "1"}
_JAVA_OPTIONS = "JDK_JAVA_OPTIONS"  # read by every java from 9 on

_session: SparkSession | None = None


class Result(list[Row]):
    """What came out: for a view its rows in the order of their keys, else all rows in the order they came.

    `batches` is what each batch of the test gave, `late` what came too late to count (the input's name and
    the row), `dead` what has no event time or lacks a column that is NOT NULL, `mode` Spark's output mode,
    `watermark` where event time stood at last.
    """

    def __init__(self, rows: Sequence[Row], mode: Mode, late: Callable[[], list[tuple[str, Row]]]) -> None:
        super().__init__(rows)
        self.mode = mode
        self.batches: list[list[Row]] = []
        self.dead: list[tuple[str, Row]] = []
        self.watermark: datetime | None = None
        self._late = late

    @cached_property
    def late(self) -> list[tuple[str, Row]]:
        """What came too late to count; found out when it is asked for."""
        return self._late()


def at(text: str) -> datetime:
    """A moment in UTC.

    >>> at("2026-01-01 10:00:05")
    datetime.datetime(2026, 1, 1, 10, 0, 5, tzinfo=datetime.timezone.utc)
    """
    return moment(text)


def window(start: str, end: str) -> dict[str, datetime]:
    """A window as it is in a result.

    >>> window("2026-01-01 10:00", "2026-01-01 10:01")["end"].minute
    1
    """
    return {"start": at(start), "end": at(end)}


def session() -> SparkSession:
    """The session that tests share: of the one that runs in this process, else a local one is started."""
    global _session
    if _session is None or _session.sparkContext._jsc is None:
        active = SparkSession.getActiveSession()
        if active is None:
            active = _start()
        _session = active.newSession()
        for key, value in _QUICK.items():
            _session.conf.set(key, value)
    return _session


def _start() -> SparkSession:
    folder = Path(tempfile.mkdtemp(prefix="headwater-testing-"))
    # Tests are over before Java's second compiler has paid for itself: without it they take half the time.
    before = os.environ.get(_JAVA_OPTIONS)
    os.environ[_JAVA_OPTIONS] = f"{before or ''} -XX:TieredStopAtLevel=1".strip()
    try:
        return start_session(load_stream_settings(data=folder, master="local[2]"), "testing")
    finally:
        if before is None:
            del os.environ[_JAVA_OPTIONS]
        else:
            os.environ[_JAVA_OPTIONS] = before


def run(
    function: Function,
    *,
    app: App | None = None,
    key: str | Sequence[str] | None = None,
    emit: Emit | None = None,
    restarts: bool = False,
    **inputs: Rows | Sequence[Any],
) -> Result:
    """Runs a function on rows, and gives what came out.

    `inputs` are rows by the name of the function's parameter: a list of dicts is one batch, a list of lists
    is a batch each, and ``Rows`` says more. Schema, time and lateness of a stream are those declared in the
    function's application; for a function without one, ``Rows`` says them. `key` and `emit` stand in for
    those of a declaration. An input that is declared as a table or a view is a DataFrame of all its rows; a
    function of views alone is computed once, as a whole.
    """
    subject = describe(function)
    _check_inputs(function, subject, inputs)
    declared: Node | None = getattr(function, "headwater", None)
    owner: App | None = app or getattr(function, "headwater_app", None)
    nodes = {node.name: node for node in owner.nodes} if owner is not None else {}
    spark = session()
    all_given = {
        name: given(name, rows if isinstance(rows, Rows) else Rows(rows), nodes.get(name))
        for name, rows in inputs.items()
    }
    streams = {name: one for name, one in all_given.items() if not isinstance(nodes.get(name), Table | View)}
    tables = {
        name: one.still(spark, [row for batch in one.batches for row in batch])
        for name, one in all_given.items()
        if name not in streams
    }

    if not streams:
        whole = function(**tables)
        keys = _keys(key, declared, whole, subject)
        rows = plain_rows(whole.toArrow())
        computed = Result(_by_key(rows, keys) if keys else rows, "complete", list)
        computed.batches = [rows]
        return computed

    sources = {name: MemoryStream(spark, one.schema, one.subject) for name, one in streams.items()}
    frames = {name: one.with_time(sources[name].frame) for name, one in streams.items()}
    frame = prepared(function(**frames, **tables))
    wanted = emit or getattr(declared, "emit", None)
    mode = choose_mode(frame, wanted, subject=subject, complete=not isinstance(declared, Topic))
    steps = _run(frame, mode, streams, sources, subject, restarts)

    keys = _keys(key, declared, frame, subject)
    batches = [step.rows for step in steps]
    everything = [row for rows in batches for row in rows]
    if mode == "complete":
        everything = next((step.last for step in reversed(steps) if step.last is not None), [])
    result = Result(
        _by_key(everything, keys) if keys else everything,
        mode,
        lambda: _late(function, streams, tables, steps, spark),
    )
    result.batches = batches
    result.watermark = steps[-1].watermark if steps else None
    result.dead = [(name, row) for name, one in streams.items() for row in one.dead]
    return result


@dataclass
class _Step:
    """What one batch of the test did."""

    rows: list[Row]
    last: list[Row] | None  # of the last of Spark's batches within it
    late_from: datetime | None  # what is at or before this counted as late
    watermark: datetime | None


def _run(
    frame: DataFrame,
    mode: Mode,
    streams: Mapping[str, Given],
    sources: Mapping[str, MemoryStream],
    subject: str,
    restarts: bool,
) -> list[_Step]:
    feeds = {name: sources[name].prepare(one.batches) for name, one in streams.items()}
    outputs: list[list[Row]] = []
    steps: list[_Step] = []
    query: StreamingQuery | None = None
    progress: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headwater-testing-", ignore_cleanup_errors=True) as folder:
        writer = (
            frame.writeStream.outputMode(mode)
            .option("checkpointLocation", folder)
            .foreachBatch(lambda batch, number: outputs.append(plain_rows(batch.toArrow())))
        )
        try:
            for number in range(max((len(feed) for feed in feeds.values()), default=0)):
                if query is None:
                    query = writer.start()
                before = len(outputs)
                _add(
                    query, sources, {name: feed[number] for name, feed in feeds.items() if number < len(feed)}
                )
                query.processAllAvailable()
                progress += [dict(json.loads(one.json)) for one in query.recentProgress]
                late_from, watermark = _watermarks(progress)
                new = outputs[before:]
                steps.append(
                    _Step(
                        [row for rows in new for row in rows], new[-1] if new else None, late_from, watermark
                    )
                )
                if restarts:
                    query.stop()
                    query = None
        except StreamingQueryException as error:
            raise PipelineFailed(
                "run", subject, str(error).splitlines()[0].rstrip("."), "Correct the function."
            ) from error
        finally:
            if query is not None:
                query.stop()
    return steps


def _add(query: StreamingQuery, sources: Mapping[str, MemoryStream], rows: Mapping[str, Any]) -> None:
    lock = query._jsq.streamingQuery().awaitProgressLock()
    lock.lock()  # one of Spark's batches takes all of it
    try:
        for name, some in rows.items():
            sources[name].add(some)
    finally:
        lock.unlock()


def _watermarks(progress: Sequence[Mapping[str, Any]]) -> tuple[datetime | None, datetime | None]:
    """By which watermark the last rows were late, and the newest one.

    Spark takes the watermark of the batch before for what is late, so that what one operator has let
    through is not late for the next.
    """
    batches = {one["batchId"]: one for one in progress if "watermark" in one.get("eventTime", {})}
    marks = {number: moment(one["eventTime"]["watermark"]) for number, one in batches.items()}
    with_data = [number for number, one in batches.items() if one["numInputRows"]]
    return marks.get(max(with_data, default=0) - 1), marks[max(marks)] if marks else None


def _late(
    function: Function,
    streams: Mapping[str, Given],
    tables: Mapping[str, DataFrame],
    steps: Sequence[_Step],
    spark: SparkSession,
) -> list[tuple[str, Row]]:
    late: list[tuple[str, Row]] = []
    for number, step in enumerate(steps):
        late_from = step.late_from or FIRST_WATERMARK
        for name, one in streams.items():
            for row in one.batches[number] if number < len(one.batches) else []:
                time = one.moment_of(row)
                if time is None or time > late_from:
                    continue
                alone = {
                    other: entry.still(spark, [row] if other == name else [])
                    for other, entry in streams.items()
                }
                if is_dropped(function, {**alone, **tables}, late_from):
                    late.append((name, row))
    return late


def _check_inputs(function: Function, subject: str, inputs: Mapping[str, Any]) -> None:
    wanted, got = inputs_of(function), tuple(inputs)
    if set(wanted) != set(got):
        raise ApplicationInvalid(
            "run",
            subject,
            f"it wants the inputs {', '.join(wanted)}, and got {', '.join(got) or 'none'}",
            "Give rows for each input by its name: testing.run(function, clicks=[...]).",
        )


def _keys(
    key: str | Sequence[str] | None, declared: Node | None, frame: DataFrame, subject: str
) -> tuple[str, ...]:
    keys: tuple[str, ...] = ()
    if key is not None:
        keys = (key,) if isinstance(key, str) else tuple(key)
    elif isinstance(declared, View):
        keys = declared.key
    if missing := [name for name in keys if name not in frame.columns]:
        raise ApplicationInvalid(
            "run",
            subject,
            f"its key has the column {missing[0]!r}, and what it returns has {', '.join(frame.columns)}",
            "Let the function return its key.",
        )
    return keys


def _by_key(rows: Sequence[Row], keys: tuple[str, ...]) -> list[Row]:
    newest = {tuple(repr(row[name]) for name in keys): row for row in rows}
    return sorted(newest.values(), key=lambda row: [_sortable(row[name]) for name in keys])


def _sortable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *(_sortable(entry) for entry in value.values()))
    if isinstance(value, list | tuple):
        return (1, *(_sortable(entry) for entry in value))
    return (1, value)
