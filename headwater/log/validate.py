"""Checks of a batch that a client sent, before it may enter the log.

Form, size, checksum and timestamps are read off the header; the records stay closed, but on topics that
compact (every record needs a key) or that store another codec than the client's, and where the header does not
know the latest timestamp: lookups by time go by it.
"""

from itertools import islice

from headwater.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidTimestamp, UnsupportedFormat
from headwater.log.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    crc_is_right,
    read_header,
    with_append_time,
    with_create_time,
)
from headwater.log.compression import CODECS, ZSTD
from headwater.log.config import TopicConfig
from headwater.log.records import DECOMPRESSED_LIMIT, open_batch, recompress, spans, with_latest_timestamp

MOST_FAULTS = 100  # records that an error names
LARGEST_RATIO = 64  # of records to their batch: compressed text comes to 20, what is beyond is an attack


def check_batch(batch: Buffer, config: TopicConfig, now_ms: int, subject: str) -> tuple[Buffer, BatchHeader]:
    """The one batch in ``batch``, as it is to be stored, and its header; or an error of the catalogue.

    >>> check_batch(b"\\0" * 70, TopicConfig.resolve(), 0, "orders-0")
    Traceback (most recent call last):
    ...
    headwater.errors.UnsupportedFormat: cannot append to orders-0: message format v0 is not supported. ...
    """
    size = len(batch)
    if size < HEADER_SIZE:
        if size > 16 and batch[16] in (0, 1):
            raise UnsupportedFormat("append to", subject, f"message format v{batch[16]} is not supported")
        raise InvalidBatch("append to", subject, f"{size} bytes are no record batch")
    header = read_header(batch)
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise UnsupportedFormat("append to", subject, f"message format v{header.magic} is not supported")
        raise CorruptBatch("append to", subject, f"unknown message format {header.magic}")
    if header.size != size:
        if header.size < HEADER_SIZE:
            raise CorruptBatch("append to", subject, f"a batch of {header.size} bytes is none")
        if header.size < size:
            raise InvalidBatch("append to", subject, "a request holds one batch a partition, this has more")
        raise InvalidBatch("append to", subject, f"a batch of {header.size} bytes in {size}")
    if size > config.max_message_bytes:
        raise BatchTooLarge(
            "append to", subject, f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if not crc_is_right(batch, header):
        raise CorruptBatch("append to", subject, "the checksum of a batch does not match")
    if header.base_offset != 0:
        raise InvalidBatch("append to", subject, f"its base offset is {header.base_offset}, not 0")
    if header.is_control:
        raise InvalidBatch("append to", subject, "clients may not write control batches")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidBatch(
            "append to",
            subject,
            f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}",
        )
    if header.codec > ZSTD:
        raise InvalidBatch("append to", subject, f"codec {header.codec} is unknown")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidBatch("append to", subject, "a transactional batch without a producer id")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatch("append to", subject, "an idempotent batch without sequence or epoch")
    if config.compact:
        opened = spans(*open_batch(batch, _largest(config)))
        keyless = list(islice((number for number, span in enumerate(opened) if span[4] is None), MOST_FAULTS))
        if keyless:
            fault = InvalidBatch(
                "append to", subject, f"record {keyless[0]} has no key, which a compacted topic needs"
            )
            fault.records = tuple(keyless)
            raise fault
    if config.codec != "producer" and header.codec != CODECS[config.codec]:
        batch = recompress(batch, CODECS[config.codec], config.codec_level, _largest(config))
        header = read_header(batch)
        if header.size > config.max_message_bytes:
            raise BatchTooLarge(
                "append to",
                subject,
                f"a batch of {header.size} bytes as {config.codec}, max.message.bytes is "
                f"{config.max_message_bytes}",
            )
    if config.append_time:
        batch = with_append_time(batch, now_ms)
        return batch, read_header(batch)
    if header.uses_append_time:  # which is not for a client to say
        batch = with_create_time(batch)
        header = read_header(batch)
    if header.max_timestamp < header.base_timestamp:  # Sarama's producers left it out until 2023
        batch = with_latest_timestamp(batch, _largest(config))
        header = read_header(batch)
    if header.max_timestamp - now_ms > config.after_max_ms:
        raise _bad_time(header, subject, f"timestamp {header.max_timestamp} is too far ahead of", now_ms)
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > config.before_max_ms:
        raise _bad_time(header, subject, f"timestamp {header.base_timestamp} is too far behind", now_ms)
    return batch, header


def _largest(config: TopicConfig) -> int:
    """What the records of one batch may come to when they are opened."""
    return min(DECOMPRESSED_LIMIT, config.max_message_bytes * LARGEST_RATIO)


def _bad_time(header: BatchHeader, subject: str, cause: str, now_ms: int) -> InvalidTimestamp:
    fault = InvalidTimestamp("append to", subject, f"{cause} the broker's {now_ms}")
    if header.record_count == 1:
        fault.records = (0,)
    return fault
