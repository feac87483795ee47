"""Our data source for Spark, by the name ``headwater``: any Kafka as Arrow batches, with no jar.

A stream has one reader on the driver, in a Python process of its own, which says where batches begin and end;
tasks read the ranges in Spark's Python workers.
"""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.client.bare_requests import EARLIEST, LATEST
from headwater.streams.sources.json_values import JsonDecoder
from headwater.streams.sources.positions import (
    Place,
    Range,
    admitted,
    flat,
    nested,
    not_before,
    ranges,
    tasks,
)
from headwater.streams.sources.reading import fetcher_of, log_shrunk, read_range, records_missed
from headwater.streams.sources.topic_read import Offsets, TopicRead

NAME = "headwater"
READ, START, END, SCHEMA, TIME_ZONE = "read", "start", "end", "valueschema", "timezone"

DISCOVERY_SECONDS = 2.0  # between two looks for new partitions


class RangesPartition(InputPartition):
    """One task's ranges."""

    def __init__(self, wanted: tuple[Range, ...]) -> None:
        self.value = wanted


class HeadwaterSource(DataSource):
    """Topics of any Kafka. Its options are a `TopicRead` as JSON, and for a batch the range's offsets."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options[SCHEMA]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RangeReader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(dict(self.options), schema)


class _Tasks:
    """What both readers do in tasks. It is pickled to the workers, so it holds options and nothing open."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.topic_read = TopicRead.from_json(options[READ])
        self.options = options
        self.output = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of a plan without partitions
            return iter(())
        decoder = None
        value = self.output["value"].dataType if "value" in self.output.names else None
        if isinstance(value, StructType):
            decoder = JsonDecoder(value, self.options[TIME_ZONE])
        schema = to_arrow_schema(self.output, timezone="UTC")
        return chain.from_iterable(
            read_range(self.topic_read, wanted, schema, decoder) for wanted in partition.value
        )


class RangeReader(_Tasks, DataSourceReader):
    """A range of offsets, as a batch."""

    def partitions(self) -> list[InputPartition]:
        start, end = flat(json.loads(self.options[START])), flat(json.loads(self.options[END]))
        return [RangesPartition(each) for each in tasks(ranges(start, end))]


class StreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The topics as a stream."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._places: list[Place] = []
        self._looked_at = 0.0
        self._latest: dict[Place, int] = {}
        self._target: dict[Place, int] | None = None

    def initialOffset(self) -> Offsets:
        read, fetcher = self.topic_read, fetcher_of(self.topic_read)
        places = self._find_places()
        position = read.start_position()
        if isinstance(position, dict):
            first = fetcher.offsets(places, EARLIEST)
            return nested(first | {place: at for place, at in flat(position).items() if place in first})
        if isinstance(position, str):
            return nested(fetcher.offsets(places, EARLIEST if position == "earliest" else LATEST))
        found, latest = fetcher.offsets(places, position), fetcher.offsets(places, LATEST)
        return nested({place: at if at >= 0 else latest[place] for place, at in found.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.topic_read.max_rows
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Where the next batch ends. Waits for a record when there is none."""
        begin = flat(start)
        first: dict[Place, int] = {}
        if self._target is not None:
            latest = self._target
            shrunk = [place for place, at in begin.items() if at > latest.get(place, at)]
            if shrunk and self.topic_read.on_gap == "fail":
                raise log_shrunk(shrunk[0], begin[shrunk[0]], latest[shrunk[0]])
        else:
            latest, first = self._ends(begin)
        end = admitted(begin, first, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return nested(begin | end)  # a partition that nobody mentions any more was read all the same

    def _ends(self, begin: dict[Place, int]) -> tuple[dict[Place, int], dict[Place, int]]:
        """The end of every partition now, and the beginning of those that are new."""
        fetcher = fetcher_of(self.topic_read)
        if time.monotonic() - self._looked_at > DISCOVERY_SECONDS or not self._places:
            self._find_places()
        new = [place for place in self._places if place not in begin]
        first = fetcher.offsets(new, EARLIEST) if new else {}
        positions = {place: begin.get(place, first.get(place, 0)) for place in self._places}
        found = fetcher.await_records(positions, self.topic_read.wait_seconds)
        outside = [place for place, end in found.items() if end is None]
        latest = {place: end for place, end in found.items() if end is not None}
        silent = [place for place in self._places if place not in latest]
        if silent:
            latest |= fetcher.offsets(silent, LATEST)
        if outside:
            self._check_gaps({place: positions[place] for place in outside}, latest)
        self._latest = latest = not_before(positions, latest, outside)
        return latest, first

    def _check_gaps(self, positions: dict[Place, int], latest: dict[Place, int]) -> None:
        if self.topic_read.on_gap == "continue":
            return
        earliest = fetcher_of(self.topic_read).offsets(positions, EARLIEST)
        missed = {place: earliest[place] - at for place, at in positions.items() if at < earliest[place]}
        if missed:
            raise records_missed(missed)
        for place, at in positions.items():
            if at > latest[place]:
                raise log_shrunk(place, at, latest[place])

    def _find_places(self) -> list[Place]:
        self._places = fetcher_of(self.topic_read).partitions(self.topic_read.topics)
        self._looked_at = time.monotonic()
        return self._places

    def reportLatestOffset(self) -> Offsets | None:
        return nested(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = fetcher_of(self.topic_read).offsets(self._find_places(), LATEST)
        self._latest = self._target

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return [RangesPartition(each) for each in tasks(ranges(flat(start), flat(end)))]

    def commit(self, end: Any) -> None:
        """Nothing is to be done: positions are in the query's checkpoint."""

    def stop(self) -> None:
        fetcher_of(self.topic_read).close()
