"""Whether what the ``.txnindex`` files of a partition say is to be believed, when it is opened.

They have no checksums, and a reader is shown records of an aborted transaction that is not in them. A clean
shutdown notes a checksum over all entries of the partition. After a crash every entry is held against the
batches that it names. Whatever does not hold, all of it is made again from the log.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from fastcrc.crc32 import iscsi as crc32c

from headwater.errors import CorruptData, InvalidBatch
from headwater.log.batch import BatchHeader
from headwater.log.index import AbortedTransaction, pack_aborted
from headwater.log.partition import PartitionLog
from headwater.log.records import ABORT, read_control
from headwater.log.scan import Damage, read_fully
from headwater.log.segment import Segment

logger = logging.getLogger("headwater.log")


def aborted_checksum(aborted: Iterable[AbortedTransaction], start_offset: int) -> int:
    """Of the entries that matter to a log that starts there.

    >>> aborted = [AbortedTransaction(7, 10, 20, 10), AbortedTransaction(7, 30, 40, 30)]
    >>> aborted_checksum(aborted, 21) == aborted_checksum(aborted[1:], 0) != aborted_checksum(aborted, 0)
    True
    """
    return crc32c(b"".join(pack_aborted(each) for each in aborted if each.last_offset >= start_offset))


def read_aborted(segments: Iterable[Segment]) -> list[AbortedTransaction] | None:
    """The aborted transactions that the segments know of; None if one of the files cannot be right."""
    aborted = []
    for segment in segments:
        if len(segment.aborted) or segment.aborted.is_torn:
            if not segment.aborted.are_plausible(segment.base_offset, segment.bounds.end_offset):
                logger.warning("%s is damaged and made again from the log", segment.aborted.path)
                return None
            aborted += segment.aborted.entries()
    return aborted


def fit_the_log(log: PartitionLog, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether these entries, of ``log`` from its first segment on, are those of transactions that it has."""
    first_of_later = None
    bases = [segment.base_offset for segment in log.segments]
    for entry in reversed(aborted):
        try:
            is_right = entry.last_stable_offset <= entry.last_offset + 1 and _is_of_the_log(log, bases, entry)
        except OSError:
            is_right = False
        # Whoever looks for what was aborted up to an offset stops at an entry that was stable up to there.
        if first_of_later is not None and first_of_later < entry.last_stable_offset:
            is_right = False
        if not is_right:
            logger.warning(
                "%s: an entry of a .txnindex, up to offset %d, does not fit the log: made again from it",
                log.name, entry.last_offset,
            )  # fmt: skip
            return False
        if first_of_later is None or entry.first_offset < first_of_later:
            first_of_later = entry.first_offset
    return True


def _is_of_the_log(log: PartitionLog, bases: Sequence[int], entry: AbortedTransaction) -> bool:
    if not _has_batch(log, bases, entry, entry.last_offset, is_marker=True):
        return False
    began_in = bisect_right(bases, entry.first_offset) - 1
    # Its first batch may be gone. Compaction takes aborted ones also behind its end, up to that of the segment.
    if began_in < 0 or bases[began_in] < log.cleaned_offset:
        return True
    return _has_batch(log, bases, entry, entry.first_offset)


def _has_batch(
    log: PartitionLog, bases: Sequence[int], entry: AbortedTransaction, offset: int, is_marker: bool = False
) -> bool:
    """Whether the transaction has a batch at ``offset``. One that is damaged does not speak against it: without
    its marker, the transaction would be taken for a part of the one that follows."""
    segment = log.segments[bisect_right(bases, offset) - 1]
    try:
        position = segment.locate(offset)
    except CorruptData:
        return True
    header = segment.header_at(position)
    if header is None:
        return False
    if (
        header.base_offset == offset
        and _is_of(header, entry, is_marker)
        and (not is_marker or _aborts(read_fully(segment.file(), position, header.size)))
    ):
        return True
    return isinstance(next(segment.scan(position, header.base_offset)), Damage)


def _aborts(batch: bytes) -> bool:
    try:
        marker = read_control(batch)
    except InvalidBatch:
        return False
    return marker is not None and marker.kind == ABORT


def _is_of(header: BatchHeader, entry: AbortedTransaction, is_control: bool = False) -> bool:
    return (
        header.producer_id == entry.producer_id
        and header.is_transactional
        and header.is_control == is_control
    )
