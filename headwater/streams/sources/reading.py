"""A range of a partition as Arrow batches: what runs in the tasks of Spark's workers."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from headwater.client.bare_requests import EARLIEST, LATEST
from headwater.client.columns import Columns
from headwater.client.connection import Connection
from headwater.client.fetcher import Fetcher
from headwater.client.secured_fetcher import SecuredFetcher, is_secured
from headwater.errors import OffsetOutOfRange, RecordsMissed
from headwater.streams.sources.json_values import JsonDecoder
from headwater.streams.sources.positions import Range
from headwater.streams.sources.topic_read import HEADERS, TopicRead

_MICROSECONDS = pa.timestamp("us", "UTC")


def fetcher_of(read: TopicRead) -> Fetcher | SecuredFetcher:
    """The process's fetcher for these brokers. Python workers outlive batches, so do their connections."""
    return _fetcher(read.bootstrap, tuple(sorted(read.properties.items())))


@cache
def _fetcher(bootstrap: str, properties: tuple[tuple[str, str], ...]) -> Fetcher | SecuredFetcher:
    connection = Connection(bootstrap, dict(properties))
    return SecuredFetcher(connection) if is_secured(connection) else Fetcher(connection)


def read_range(
    read: TopicRead, wanted: Range, schema: pa.Schema, decoder: JsonDecoder | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a range, as batches of ``schema``, which names the columns.

    With a ``decoder`` there is a column for its problems as well.
    """
    for columns in _committed(read, wanted):
        yield _batch(wanted, columns, schema, decoder)


def _committed(read: TopicRead, wanted: Range) -> Iterator[Columns]:
    fetcher = fetcher_of(read)
    place, position = (wanted.topic, wanted.partition), wanted.start
    while position < wanted.end:
        try:
            for columns in fetcher.columns(place, position, wanted.end):
                yield columns
                position = int(columns.offsets[-1]) + 1
            return
        except OffsetOutOfRange:
            position = _after_gap(read, fetcher, wanted, position)


def _after_gap(read: TopicRead, fetcher: Fetcher | SecuredFetcher, wanted: Range, position: int) -> int:
    """Where to go on after the log said that it does not hold the position."""
    place = (wanted.topic, wanted.partition)
    earliest = fetcher.offsets([place], EARLIEST)[place]
    if earliest > position:
        missed = min(earliest, wanted.end) - position
        if read.on_gap == "fail" and not wanted.is_new:
            raise records_missed({place: missed})
        return earliest
    latest = fetcher.offsets([place], LATEST)[place]
    if latest < position and read.on_gap == "fail":
        raise log_shrunk(place, position, latest)
    return wanted.end if latest < position else position


def records_missed(missed: dict[tuple[str, int], int]) -> RecordsMissed:
    """The error for records that retention took before they were read.

    >>> print(records_missed({("clicks", 0): 12}).cause)
    12 records were removed before they were read
    """
    subject = ", ".join(f"{topic}-{number}" for topic, number in sorted(missed))
    count = sum(missed.values())
    cause = "1 record was" if count == 1 else f"{count} records were"
    return RecordsMissed("read on in", subject, f"{cause} removed before they were read")


def log_shrunk(place: tuple[str, int], position: int, latest: int) -> RecordsMissed:
    """The error for a log that ends before what was read of it."""
    cause = f"it ends at offset {latest}, but was read up to {position}: it was deleted and made again"
    return RecordsMissed("read on in", f"{place[0]}-{place[1]}", cause)


def _batch(wanted: Range, columns: Columns, schema: pa.Schema, decoder: JsonDecoder | None) -> pa.RecordBatch:
    count = len(columns)
    decoded, problems = decoder.decode(columns.values()) if decoder is not None else (None, None)
    arrays = []
    for field in schema:
        match field.name:
            case "key":
                array = columns.keys()
            case "value":
                array = columns.values() if decoded is None else decoded
            case "problem":
                array = problems
            case "topic":
                array = pa.array(np.full(count, 0, np.int8))
                array = pa.DictionaryArray.from_arrays(array, pa.array([wanted.topic])).cast(pa.string())
            case "partition":
                array = pa.array(np.full(count, wanted.partition, np.int32))
            case "offset":
                array = pa.array(columns.offsets)
            case "timestamp":
                array = pa.array(columns.timestamps * 1000).cast(_MICROSECONDS)
            case "timestampType":
                array = pa.array(columns.timestamp_types.astype(np.int32))
            case other:
                assert other == HEADERS, other
                array = columns.headers()
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
