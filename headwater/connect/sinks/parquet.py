"""The history of a topic as Parquet files for a warehouse: a line a record, each of them once.

A file is named by the partition and the offsets that it covers,
``<directory>/<topic>/<partition>-<first>-<behind the last>.parquet``. It is written under another name, synced and
renamed: the names are the position. A sink that is killed begins behind the last file that is there, so that no record
is missing or twice. One process at a time writes to a topic's directory; a lock sees to that. ``.topic`` has
the topic's id, by which another one of the name is known.

Columns: ``_op`` (c, u, d, r, t, m; ``tombstone`` for a record without a value; null for a plain row), ``_key`` (JSON),
``_partition``, ``_offset``, ``_log_time``, ``_source_time`` (when the database changed it), ``_before`` (JSON, where
the event has it), and the columns of the row after the change; of a delete, those of the row before it. A time that no
reader knows is null.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.client.bare_requests import Place
from headwater.client.columns import Columns
from headwater.client.connection import Connection
from headwater.connect.sinks import arrow_rows
from headwater.connect.sinks.changes import Envelope, Format, Row, parse_key, parse_value
from headwater.connect.sinks.dead import DeadLetters
from headwater.connect.sinks.identity import Unreadable
from headwater.connect.sinks.sink import OnGap, Sink, SinkCounts
from headwater.errors import ConnectionLost, SinkImpossible

OWN = ("_op", "_key", "_partition", "_offset", "_log_time", "_source_time", "_before")
_OWN = frozenset(OWN)
_MILLISECONDS = pa.timestamp("ms", "UTC")
_FARTHEST = (2**63 - 1) // 1000  # milliseconds that are microseconds in 64 bits
_NAME = re.compile(r"(\d+)-(\d{20})-(\d{20})\.parquet\Z")
_TEMPORARY = ".part-"  # readers leave out what begins with a dot


@dataclass
class _Held:
    """Records of one partition that are not in a file yet."""

    start: int
    end: int
    since: float = field(default_factory=time.monotonic)
    parts: list[pa.Table] = field(default_factory=list)
    records: int = 0
    bytes: int = 0


class ParquetSink(Sink):
    """A file is closed when it has `rows` or `size` bytes of values, or after `seconds`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        topic: str,
        *,
        rows: int,
        size: int,
        seconds: float,
        format: Format = "auto",
        on_gap: OnGap = "fail",
    ) -> None:
        self.name, self.topic, self.on_gap = name, topic, on_gap
        self._directory, self._format = directory / topic, format
        self._rows, self._size, self._seconds = rows, size, seconds
        self._held: dict[Place, _Held] = {}
        self._positions: dict[Place, int] = {}  # behind what is in files
        self._columns = arrow_rows.Columns()
        self._lock: IO[bytes] | None = None
        self._counts = SinkCounts()

    def attach(self, log: Connection) -> None:
        self._dead = DeadLetters(log, self.topic, self.name)

    def describe(self) -> str:
        return str(self._directory)

    def counts(self) -> SinkCounts:
        return self._counts

    def open(self, places: Iterable[Place]) -> dict[Place, int]:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            for leftover in self._directory.glob(f"{_TEMPORARY}*"):
                leftover.unlink()
            self._positions = self._look()
            self._check_topic()
        except OSError as error:
            raise _refused(self._directory, error) from error
        self._held = {}
        return dict(self._positions)

    def close(self, *, in_order: bool) -> None:
        try:
            if in_order:
                for place in list(self._held):
                    self._write(place)
        finally:
            self._held = {}
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def take(self, place: Place, columns: Columns, after: int) -> None:
        held = self._held.get(place)
        if held is None:
            start = self._positions.get(place, int(columns.offsets[0]))
            held = self._held[place] = _Held(start, after)
        size = columns.values().nbytes
        held.parts.append(self._table(place, columns))
        held.end, held.records, held.bytes = after, held.records + len(columns), held.bytes + size
        now = self._counts
        self._counts = replace(now, records=now.records + len(columns), bytes=now.bytes + size)
        if held.records >= self._rows or held.bytes >= self._size:
            self._write(place)

    def idle(self) -> None:
        now = time.monotonic()
        for place in [place for place, held in self._held.items() if now - held.since >= self._seconds]:
            self._write(place)

    # -- files -------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        self._lock = (self._directory / f"{_TEMPORARY[:1]}lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            step = "It is taken over when that one ends."
            raise ConnectionLost("write to", str(self._directory), "another process does so", step) from error

    def _check_topic(self) -> None:
        """Files without an id, or an id without files, are taken as this topic's."""
        mark = self._directory / ".topic"
        followed = mark.read_text().strip() if mark.exists() else ""
        if self._positions:
            self.require_topic(followed, "Move its files elsewhere: the sink then begins anew.")
        if self.topic_id and followed != self.topic_id:
            part = self._directory / f"{_TEMPORARY}topic"
            part.write_text(f"{self.topic_id}\n")
            part.replace(mark)

    def _look(self) -> dict[Place, int]:
        """The position, from the files that are there; and their columns, from the last of each partition."""
        found: dict[Place, list[tuple[int, int, Path]]] = {}
        for path in self._directory.iterdir():
            if name := _NAME.match(path.name):
                number, start, end = (int(text) for text in name.groups())
                found.setdefault((self.topic, number), []).append((start, end, path))
        positions: dict[Place, int] = {}
        for place, files in found.items():
            behind = -1
            for start, end, path in sorted(files):
                if start < behind:
                    cause = f"{path.name} covers offsets that another file has, too"
                    raise SinkImpossible("write to", str(self._directory), cause)
                behind = end
            positions[place] = behind
            schema = pq.read_schema(max(files)[2])
            self._columns.learn({each.name: each.type for each in schema if each.name not in OWN})
        return positions

    def _write(self, place: Place) -> None:
        began = time.monotonic()
        held = self._held[place]
        table = pa.concat_tables(self._alike(held.parts))
        try:
            # Also without a row, when all was set aside: its name is the position.
            self._store(table, f"{place[1]:05d}-{held.start:020d}-{held.end:020d}.parquet")
        except OSError as error:
            raise _refused(self._directory, error) from error
        del self._held[place]
        self._positions[place] = held.end
        now = self._counts
        seconds = time.monotonic() - began
        self._counts = replace(
            now, written=now.written + table.num_rows, commits=now.commits + 1, commit_seconds=seconds
        )

    def _store(self, table: pa.Table, name: str) -> None:
        part = self._directory / f"{_TEMPORARY}{name}"
        with part.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        part.rename(self._directory / name)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # -- rows --------------------------------------------------------------------------------------

    def _table(self, place: Place, columns: Columns) -> pa.Table:
        keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
        kept: list[int] = []
        events: list[Envelope] = []
        dead: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                event = _TOMBSTONE if value is None else parse_value(value, self._format)
            except Unreadable as error:
                dead[index] = str(error)
                continue
            kept.append(index)
            events.append(event)
        if dead:
            self._dead.write(place, columns, dead)
            self._counts = replace(self._counts, dead=self._counts.dead + len(dead))
        own = {
            "_op": pa.array([event.op for event in events], pa.string()),
            "_key": pa.array([_key_text(keys[index]) for index in kept], pa.string()),
            "_partition": pa.array([place[1]] * len(kept), pa.int32()),
            "_offset": pa.array(columns.offsets[kept], pa.int64()),
            "_log_time": _times(columns.timestamps[kept].tolist()),
            "_source_time": _times([event.source_ms for event in events]),
            "_before": pa.array([_json(event.before) for event in events], pa.string()),
        }
        rows = [_renamed(event.before if event.op == "d" else event.after) for event in events]
        return pa.table({**own, **self._columns.arrays(rows)})

    def _alike(self, tables: list[pa.Table]) -> list[pa.Table]:
        """With the columns and types that are known now; a later part may have widened them."""
        kinds = self._columns.types
        names = [*OWN, *kinds]
        same = []
        for table in tables:
            arrays = [_as(table, name, kinds.get(name)) for name in names]
            same.append(pa.table(arrays, names=names))
        return same


_TOMBSTONE = Envelope("tombstone", None, None)


def _as(table: pa.Table, name: str, kind: pa.DataType | None) -> Any:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    column = table[name]
    if kind is None or column.type == kind:
        return column
    if kind == pa.string():
        texts = [None if value is None else orjson.dumps(value).decode() for value in column.to_pylist()]
        return pa.array(texts, kind)
    return column.cast(kind, safe=False)


def _renamed(row: Row | None) -> Row | None:
    """A row none of whose columns is called like one of our own, nor like another one then.

    >>> _renamed({"_op": 1, "id": 2}), _renamed({"_op": 1, "_op_": 2})
    ({'_op_': 1, 'id': 2}, {'_op__': 1, '_op_': 2})
    """
    if row is None or _OWN.isdisjoint(row):
        return row
    return {_free(name, row) if name in _OWN else name: value for name, value in row.items()}


def _free(name: str, row: Row) -> str:
    while name in row:
        name += "_"
    return name


def _times(milliseconds: Iterable[int | None]) -> pa.Array:
    """Points in time; null for what is none, such as nanoseconds: readers that count in microseconds fail at it, and
    with it at the whole table.

    >>> _times([0, None, 2**60]).cast(pa.int64()).to_pylist()
    [0, None, None]
    """
    kept = [each if each is not None and abs(each) <= _FARTHEST else None for each in milliseconds]
    return pa.array(kept, _MILLISECONDS)


def _key_text(key: bytes | None) -> str | None:
    if key is None:
        return None
    found = parse_key(key)
    return found if isinstance(found, str) else orjson.dumps(found).decode()


def _json(row: Any) -> str | None:
    return None if row is None else orjson.dumps(row).decode()


def _refused(directory: Path, error: OSError) -> ConnectionLost:
    step = "The sink goes on by itself when the directory can be written again."
    return ConnectionLost("write to", str(directory), (error.strerror or str(error)).lower(), step)
