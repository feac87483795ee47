"""The readable side of a partition: an ordered sequence of segments, and finding and reading batches in it.

Offsets that matter, in rising order::

    start_offset          the first record that is still there
    last_stable_offset    read_committed readers see what lies before
    durable_offset        synced to disk; readers see what lies before (Kafka's high watermark)
    next_offset           the next batch gets this one

A record is shown to readers once it is durable, so that nothing a reader has seen can vanish in a crash.
``read``, ``read_committed``, ``find_time`` and ``find_latest_time`` run in any thread, beside the one that
writes: when segments were swapped or dropped under their hands, they look again.
"""

import time
from bisect import bisect_right
from collections.abc import Callable

from headwater.errors import InvalidBatch, OffsetOutOfRange, StorageFailed, UnknownTopic
from headwater.log.index import AbortedTransaction
from headwater.log.producers import Producers
from headwater.log.records import find_by_timestamp, max_timestamp_record
from headwater.log.scan import LARGEST_OFFSET, Damage
from headwater.log.segment import Chunk, Retired, Segment, WouldBlock, storage_error

REMEMBERED_CURSORS = 64
LOOKS = 100  # at a list of segments that is being changed
LOOK_SECONDS = 0.005


class ReadableLog:
    """The segments of a partition, and where reading them begins and ends."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.segments: tuple[Segment, ...] = ()
        self._view: tuple[tuple[Segment, ...], list[int]] = ((), [])  # segments and their first offsets
        self.start_offset = 0
        self.next_offset = 0
        self.durable_offset = 0
        self.swaps = 0  # of compacted segments: begun and, each counted as well, ended
        self.producers = Producers(f"{topic}-{partition}")
        self.deleted = False
        self._cursors: dict[int, tuple[tuple[Segment, ...], int, int]] = {}  # segments, number, position

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} [{self.start_offset}, {self.next_offset})>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        if not self.producers.has_transactions:
            return self.durable_offset
        unstable = self.producers.first_unstable(self.durable_offset)
        if unstable is None:
            return self.durable_offset
        return min(max(unstable, self.start_offset), self.durable_offset)

    def set_segments(self, segments: tuple[Segment, ...]) -> None:
        """Swap the list of segments in one step: a reader sees the old or the new one."""
        bases = [segment.base_offset for segment in segments]
        for segment, end_offset in zip(segments, (*bases[1:], LARGEST_OFFSET), strict=True):
            if segment.bounds.end_offset != end_offset:
                segment.bounds = segment.bounds._replace(end_offset=end_offset)
        self._view = (segments, bases)
        self.segments = segments
        self._cursors.clear()

    # -- reading ----------------------------------------------------------------------------------

    def end_for(self, committed: bool) -> int:
        """Where reading ends, for read_committed or read_uncommitted."""
        return self.last_stable_offset if committed else self.durable_offset

    def check_readable(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.next_offset:
            raise OffsetOutOfRange(
                "read", self.name, f"offset {offset} is not in [{self.start_offset}, {self.next_offset}]"
            )

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> Chunk | None:
        """Whole batches from the one that holds ``offset`` up to ``end_offset``; None when there are none.

        CorruptData where ``offset`` lies in damage; what lies before and behind it can be read.
        """
        looks = 0
        while True:
            segments = self.segments
            try:
                return self._read(offset, max_bytes, end_offset, at_least_one, may_block)
            except (Retired, OSError) as error:
                looks += 1
                self._look_again(segments, error, looks, may_block)

    def read_committed(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> tuple[Chunk | None, list[AbortedTransaction]]:
        """What ``read`` gives, with the aborted transactions in it, whose records the reader leaves out.

        ``end_offset`` is the last stable offset, or lower.
        """
        while True:
            swaps = self.swaps
            chunk = self.read(offset, max_bytes, end_offset, at_least_one, may_block)
            if chunk is None:
                return None, []
            aborted = self.producers.aborted
            found = self.producers.aborted_between(offset, chunk.next_offset) if aborted else []
            if swaps == self.swaps:  # else batches and transactions may be of different rounds of compaction
                return chunk, found

    def _look_again(
        self, segments: tuple[Segment, ...], error: Exception, looks: int, may_block: bool = True
    ) -> None:
        """A file was not there, or not as it should be: return if that is because segments are being swapped
        or dropped just now, so that another look is worth it."""
        if self.deleted:
            raise UnknownTopic("read", self.name, "it was deleted") from None
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise storage_error("read", self.name, error) from error
        if looks > LOOKS:
            raise StorageFailed("read", self.name, "a file of it is missing") from error
        if segments is self.segments:
            if not may_block:
                raise WouldBlock
            time.sleep(LOOK_SECONDS)

    def _read(
        self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, may_block: bool
    ) -> Chunk | None:
        if offset >= end_offset:
            return None
        segments, bases = self._view
        if offset < self.start_offset:  # moved since the caller looked
            self.check_readable(offset)
        cursor = self._cursors.pop(offset, None)
        if cursor is not None and cursor[0] is segments:
            _, number, position = cursor
            segment = segments[number]
        else:
            number = max(bisect_right(bases, offset) - 1, 0)
            segment = segments[number]
            position = segment.locate(offset)
        while True:
            while position >= segment.size:
                number += 1
                if number >= len(segments) or bases[number] >= end_offset:
                    return None
                segment, position = segments[number], 0
            if offset < bases[number]:  # compaction or a crash took what was before
                offset = bases[number]
            chunk = segment.read(position, offset, max_bytes, end_offset, at_least_one, may_block)
            if chunk.data:
                self._remember(chunk.next_offset, segments, number, chunk.end_position)
                return chunk
            if chunk.end_position == position:
                return None
            position = chunk.end_position  # behind damage

    def _remember(self, offset: int, segments: tuple[Segment, ...], number: int, position: int) -> None:
        """The next read of a consumer starts where this one ended: no index is searched then."""
        cursors = self._cursors
        if len(cursors) >= REMEMBERED_CURSORS:
            try:
                cursors.pop(next(iter(cursors)), None)
            except (StopIteration, RuntimeError):  # another thread was here first
                pass
        cursors[offset] = (segments, number, position)

    # -- finding by time --------------------------------------------------------------------------

    def find_time(self, timestamp: int, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after ``timestamp``."""
        return self._find(lambda: self._find_time(timestamp, end_offset))

    def find_latest_time(self, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that has the latest timestamp."""
        return self._find(lambda: self._find_latest_time(end_offset))

    def _find(self, look: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
        looks = 0
        while True:
            segments = self.segments
            try:
                return look()
            except (Retired, OSError) as error:
                looks += 1
                self._look_again(segments, error, looks)

    def _find_time(self, timestamp: int, end_offset: int) -> tuple[int, int] | None:
        segments = self.segments
        for segment in segments:
            if segment.base_offset >= end_offset:
                return None
            if segment is not segments[-1] and segment.largest_timestamp() < timestamp:
                continue
            position, first = segment.position_before(timestamp)
            for item in segment.scan(position, first):
                if isinstance(item, Damage) or item.header.max_timestamp < timestamp:
                    continue
                if item.header.base_offset >= end_offset:
                    return None
                try:
                    found = find_by_timestamp(item.batch, timestamp, self.start_offset)
                except InvalidBatch:  # its producer wrote nonsense
                    continue
                if found is not None:
                    return found if found[0] < end_offset else None
        return None

    def _find_latest_time(self, end_offset: int) -> tuple[int, int] | None:
        best: Segment | None = None
        for segment in self.segments:
            latest = segment.largest_timestamp()
            if latest >= 0 and (best is None or latest > best.max_timestamp):
                best = segment
        if best is None:
            return None
        latest, offset = best.max_timestamp, best.max_timestamp_offset
        position = best.locate(offset)
        header = best.header_at(position)
        for item in best.scan(position, header.base_offset if header is not None else offset):
            if isinstance(item, Damage) or item.header.max_timestamp != latest:
                continue
            found = max_timestamp_record(item.batch)
            return found if found is not None and found[0] < end_offset else None
        return None
