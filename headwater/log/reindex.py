"""Whether the indexes of a segment fit its log file, and making them again where they do not.

Index files have no checksums. When a segment is opened, their ends are held against the log: that finds files
that are missing, cut, grown or full of garbage at the end, for a few reads a segment. An index that is wrong
only in its middle is noticed, entry by entry, when it is used; one that was cut at an entry, by `log check`.
"""

import contextlib
import logging

from headwater.errors import CorruptData
from headwater.log.batch import HEADER_SIZE
from headwater.log.scan import Found
from headwater.log.segment import INDEX_INTERVAL, Segment

logger = logging.getLogger("headwater.log")


def indexes_fit(segment: Segment) -> bool:
    """Whether both indexes of a sealed segment end as its log file does."""
    try:
        if not segment.size:
            return not len(segment.offset_index) and not len(segment.time_index)
        return _fit(segment)
    except (OSError, CorruptData):
        return False


def _fit(segment: Segment) -> bool:
    last = segment.offset_index.last()
    position = 0
    if last is not None:
        relative, position = last
        header = segment.header_at(position)
        if header is None or header.last_offset != segment.base_offset + relative:
            return False
    latest, since_index = _walk_to_end(segment, position)
    if since_index < 0:
        return False
    segment.continue_index(since_index)
    time = segment.time_index.last()
    if time is None:
        return latest < 0
    return latest <= time[0] and segment.holds_time(*time)


def _walk_to_end(segment: Segment, position: int) -> tuple[int, int]:
    """The latest timestamp from ``position`` on, and the bytes there; -1 when an index entry is missing."""
    latest = -1
    since_index = 0
    while (header := segment.header_at(position)) is not None and header.size >= HEADER_SIZE:
        if since_index > INDEX_INTERVAL:
            return latest, -1
        since_index += header.size
        latest = max(latest, header.max_timestamp)
        position += header.size
    return latest, since_index


def rebuild_indexes(segment: Segment) -> None:
    """Make both indexes again from the log file."""
    logger.warning("%s: its indexes do not fit it and are made again", segment.log_path)
    size = segment.size
    segment.reset_indexes()
    for item in segment.scan():
        if isinstance(item, Found):
            segment.index_batch(item.position, item.header)
    segment.size = size
    with contextlib.suppress(OSError):  # without room, they wait in memory
        segment.seal()
