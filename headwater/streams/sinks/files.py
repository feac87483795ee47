"""A batch into Parquet files: a directory a batch, named by its number, that appears by one rename.

The layout is ``<path>/batch=<number>/...``, and below it the columns of ``partition_by`` as Spark, DuckDB and
pandas read them. A batch that comes again finds its directory and writes nothing. Files begun by a batch that
was killed lie in ``<path>/_unfinished``, which readers pass over, and are removed by the next attempt.

A checkpoint that is made anew (of another version, or because the old one was lost) counts its batches from nothing
again. Its directories are numbered from behind those that it finds; ``<path>/_begun/<checkpoint>`` says where.
"""

import functools
import re
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
)

from headwater.streams.engine.checkpoint import Checkpoint

BATCH = "batch"
_NOT_IN_PATHS = (StructType, ArrayType, MapType, VariantType)  # types that Spark takes for no partition


class FileSink:
    """Writes the batches of one query to one directory, each once."""

    def __init__(self, path: str, partition_by: tuple[str, ...], checkpoint: Checkpoint) -> None:
        self._path, self._partition_by, self._checkpoint = path.rstrip("/"), partition_by, checkpoint
        self._first: int | None = None
        self.rows = 0

    def __call__(self, frame: DataFrame, number: int) -> None:
        jvm: Any = frame.sparkSession._jvm
        at = functools.partial(jvm.org.apache.hadoop.fs.Path)
        files = at(self._path).getFileSystem(frame.sparkSession._jsc.hadoopConfiguration())
        if self._first is None:
            self._first = _first(files, at, self._path, self._checkpoint.identity(), number)
        name = f"{BATCH}={self._first + number}"
        done, part = at(f"{self._path}/{name}"), at(f"{self._path}/_unfinished/{name}")
        if files.exists(done):
            return
        frame.persist()
        try:
            rows = frame.count()
            if rows == 0:
                return
            frame.write.mode("overwrite").partitionBy(*self._partition_by).parquet(part.toString())
        finally:
            frame.unpersist()
        files.mkdirs(done.getParent())
        if not files.rename(part, done):
            raise OSError(f"cannot rename {part.toString()} to {done.toString()}")
        self.rows += rows


def _first(files: Any, at: Any, path: str, checkpoint: str, number: int) -> int:
    """The number of the directory of a checkpoint's batch 0, chosen when its first batch comes."""
    note = at(f"{path}/_begun/{checkpoint}")
    if files.exists(note):
        stream = files.open(note)
        try:
            return int(bytes(stream.readAllBytes()))
        finally:
            stream.close()
    if number > 0:  # begun before notes were made
        return 0
    found = files.listStatus(at(path)) if files.exists(at(path)) else []
    names = [re.fullmatch(rf"{BATCH}=(\d+)", each.getPath().getName()) for each in found]
    first = max((int(match[1]) + 1 for match in names if match), default=0)
    begun = at(f"{path}/_begun/_{checkpoint}")
    stream = files.create(begun, True)
    try:
        stream.write(str(first).encode())
    finally:
        stream.close()
    if not files.rename(begun, note):  # at once and whole: nothing is written before it is there
        raise OSError(f"cannot rename {begun.toString()} to {note.toString()}")
    return first


def unwritable(schema: StructType, partition_by: tuple[str, ...] = ()) -> str | None:
    """Why rows of this schema cannot be written, if they cannot.

    >>> unwritable(StructType().add("batch", "integer"))
    "its column 'batch' would be hidden by the number of the batch, which is in the name of each directory"
    >>> unwritable(StructType().add("day", "date"), ("day",))
    'it returns no column besides those of partition_by, and files would be without any'
    """
    for field in schema:
        if field.name in partition_by and isinstance(field.dataType, _NOT_IN_PATHS):
            return (
                f"it is partitioned by {field.name!r} ({field.dataType.simpleString()}), and the name of a directory "
                "has room for a plain value"
            )
        if field.name.lower() == BATCH:
            return (
                f"its column {field.name!r} would be hidden by the number of the batch, which is in the name of each "
                "directory"
            )
        if _is_unknown_to_parquet(field.dataType):
            return f"Parquet has no type for its column {field.name!r} ({field.dataType.simpleString()})"
    if partition_by and set(schema.fieldNames()) == set(partition_by):
        return "it returns no column besides those of partition_by, and files would be without any"
    return None


def _is_unknown_to_parquet(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return not kind.fields or any(_is_unknown_to_parquet(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_unknown_to_parquet(kind.elementType)
    if isinstance(kind, MapType):
        return _is_unknown_to_parquet(kind.keyType) or _is_unknown_to_parquet(kind.valueType)
    return isinstance(kind, NullType | CalendarIntervalType)
