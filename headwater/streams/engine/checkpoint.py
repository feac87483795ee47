"""What a query's checkpoint says of its batches: the offsets each ends at, and the watermark it ran with.

Spark writes ``offsets/<batch>`` before it runs a batch: a line with the version of the format, a line of JSON
about the batch, and a line for each source with its offsets, as ``{"topic": {"partition": offset}}``. Its
``commits/<batch>`` follows when the batch has ended.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

DEFINITION = "definition.json"

Offsets = dict[str, dict[int, int]]  # by topic and partition: where the next batch begins


@dataclass(frozen=True)
class BatchRecord:
    """What is on record of one batch."""

    id: int
    offsets: Offsets
    watermark: datetime | None  # rows of windows that ended before it were late in this batch


class Checkpoint:
    """The checkpoint of one query, on the local disk or wherever Hadoop can read."""

    def __init__(self, location: str, spark: SparkSession) -> None:
        self.location = location.rstrip("/")
        self.name = self.location.rsplit("/", 1)[-1]
        self._spark = spark

    def batch(self, number: int) -> BatchRecord | None:
        """The record of a batch; None when it is not there, or not any more."""
        text = self._read(f"offsets/{number}")
        return None if text is None else parse_batch(number, text)

    def sync(self, number: int) -> None:
        """Brings the record of a batch to the disk, which Spark leaves to the system; only where that is local.

        Whoever writes elsewhere what the batch gives does this first: after a power cut a batch of this number must
        be the same one.
        """
        root = self._local()
        if root is not None:
            for path in (root / "offsets" / str(number), root / "offsets"):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def identity(self) -> str:
        """The id that Spark gave the query when it made the checkpoint."""
        text = self._read("metadata")
        assert text is not None, f"{self.location} has no metadata: it is read while its query runs"
        return str(json.loads(text)["id"])

    def definition(self) -> str | None:
        """The fingerprint of what the checkpoint was made by; kept beside Spark's own files."""
        return self._read(DEFINITION)

    def define(self, fingerprint: str) -> None:
        """Keeps the fingerprint."""
        files, path = self._hadoop(DEFINITION)
        stream = files.create(path, True)
        try:
            stream.write(fingerprint.encode())
        finally:
            stream.close()

    def children(self) -> list[str]:
        """The names in the directory: of the checkpoints, when it is the directory of an application."""
        return self._names("")

    def remove(self) -> None:
        """Deletes the checkpoint."""
        files, path = self._hadoop("")
        files.delete(path, True)

    def last_finished(self) -> int | None:
        """The newest batch that has ended."""
        return max(self._numbers("commits"), default=None)

    def last_planned(self) -> int | None:
        """The newest batch whose offsets are there, and whole."""
        for number in sorted(self._numbers("offsets"), reverse=True):
            try:
                if self.batch(number) is not None:
                    return number
            except (ValueError, IndexError):
                continue  # torn by a power cut
        return None

    def _numbers(self, folder: str) -> list[int]:
        return [int(name) for name in self._names(folder) if name.isdigit()]

    def _local(self) -> Path | None:
        parts = urlsplit(self.location)
        return Path(parts.path) if parts.scheme in ("", "file") else None

    def _names(self, folder: str) -> list[str]:
        root = self._local()
        if root is not None:
            path = root / folder
            return [entry.name for entry in path.iterdir()] if path.is_dir() else []
        files, path = self._hadoop(folder)
        if not files.exists(path):
            return []
        return [status.getPath().getName() for status in files.listStatus(path)]

    def _read(self, name: str) -> str | None:
        root = self._local()
        if root is not None:
            try:
                return (root / name).read_text()
            except FileNotFoundError:
                return None
        files, path = self._hadoop(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}")
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path


def parse_batch(number: int, text: str) -> BatchRecord:
    """Reads a file of the offset log.

    >>> parse_batch(3, 'v1\\n{"batchWatermarkMs":1000}\\n{"clicks":{"0":7}}').offsets
    {'clicks': {0: 7}}
    """
    lines = text.splitlines()
    about: Mapping[str, Any] = json.loads(lines[1])
    offsets: Offsets = {}
    for line in lines[2:]:
        match = re.search(r"\{.*\}", line)
        if match is not None:
            merge(offsets, json.loads(match[0]))
    milliseconds = about.get("batchWatermarkMs", 0)
    watermark = datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
    return BatchRecord(number, offsets, watermark)


def merge(offsets: Offsets, more: Mapping[str, Mapping[Any, int]]) -> None:
    """Adds a source's offsets; of a topic that is read twice, what both have read."""
    for topic, partitions in more.items():
        known = offsets.setdefault(topic, {})
        for partition, offset in partitions.items():
            known[int(partition)] = min(offset, known.get(int(partition), offset))
