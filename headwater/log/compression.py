"""Kafka's compression codecs over the records of a batch, bounded in what may come out.

===  =======  ===============================================================================================
 0   none
 1   gzip
 2   snappy   written as Java does: snappy-java's stream (a magic, then blocks with their lengths); read as
              that and as one raw snappy block, which other clients write
 3   lz4      the frame format, blocks independent of each other (Java reads no other)
 4   zstd
===  =======  ===============================================================================================

A batch is a client's word: a few bytes can claim to be gigabytes. Output goes into a buffer that grows to the
limit at most, so what a batch costs is bounded by what its receiver allows, not by what its sender claims.
"""

import struct
from collections.abc import Callable
from typing import Any

import cramjam

from headwater.errors import InvalidBatch
from headwater.log.batch import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# Numbers by the names that compression.type takes: a producer says "none", a topic "uncompressed".
CODECS = {name: number for number, name in enumerate(CODEC_NAMES)} | {"uncompressed": NONE}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_ZSTD_LEVEL = 3  # Kafka's default
_GZIP_LEVEL = 6  # zlib's, and so Kafka's, default

_SMALLEST_GUESS = 4096
_USUAL_RATIO = 8  # a first guess above most batches' ratio: one pass decompresses them

_Decompress = Callable[[Buffer, bytearray], int]
_STREAMED: dict[int, _Decompress] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def codec_name(codec: int) -> str:
    """What people call a codec.

    >>> codec_name(4), codec_name(7)
    ('zstd', 'unknown codec 7')
    """
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown codec {codec}"


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """What ``data`` holds; `InvalidBatch` when it is damaged or more than ``limit`` bytes come out.

    >>> decompress(GZIP, compress(GZIP, b"a" * 1000), limit=1000) == b"a" * 1000
    True
    >>> decompress(GZIP, compress(GZIP, b"a" * 1000), limit=999)
    Traceback (most recent call last):
    headwater.errors.InvalidBatch: cannot decompress gzip records: more than 999 bytes come out. Fix the ...
    """
    if codec == NONE:
        if len(data) > limit:
            raise _too_much(codec, limit)
        return bytes(data)
    if codec == SNAPPY:
        return _decompress_snappy(data, limit)
    if codec not in _STREAMED:
        raise _fault(codec, "Kafka has no such codec")
    return _decompress_stream(codec, data, limit)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """``data`` as Kafka's clients read it. ``level`` is the codec's own; snappy has none.

    >>> len(compress(ZSTD, b"to be or not to be, " * 100)) < 100
    True
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None or level < 0 else level))
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        options: dict[str, Any] = {"block_linked": False, "content_checksum": False}
        compressor = cramjam.lz4.Compressor(**options if level is None else options | {"level": level})
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise InvalidBatch("compress", "records", f"Kafka has no codec {codec}", "Choose a codec from 0 to 4.")


# -- gzip, lz4 and zstd: streams that do not say how long they are ------------------------------------


def _decompress_stream(codec: int, data: Buffer, limit: int) -> bytes:
    into, full = _STREAMED[codec], _FULL[codec]
    size = min(max(_first_guess(codec, data), _SMALLEST_GUESS), limit)
    while True:
        output = bytearray(size)
        try:
            length = into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != full:
                raise _fault(codec, str(error)) from error
            if size >= limit:
                raise _too_much(codec, limit) from error
        else:
            return bytes(memoryview(output)[:length])
        size = min(size * 4, limit)


def _first_guess(codec: int, data: Buffer) -> int:
    if codec == GZIP and len(data) >= 18:
        # A gzip member ends with its length. It may lie, or be the last of several: it is only a guess.
        length: int = struct.unpack_from("<I", data, len(data) - 4)[0]
        return min(length, len(data) * 1032)  # deflate cannot do better than 1032:1
    return len(data) * _USUAL_RATIO


def _wording_of_a_full_output(codec: int) -> str:
    """How cramjam says that the output is too small: it has one exception class for everything."""
    try:
        _STREAMED[codec](compress(codec, b"two"), bytearray(1))
    except cramjam.DecompressionError as error:
        return str(error)
    raise AssertionError("cramjam wrote three bytes into one")


_FULL = {codec: _wording_of_a_full_output(codec) for codec in _STREAMED}


# -- snappy: blocks that say how long they are --------------------------------------------------------


def _compress_snappy(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(view, limit, limit)
    # The versions behind the magic are not looked at: some clients write them in the other byte order.
    position, end, left = len(_XERIAL_HEADER), len(view), limit
    if end < position:
        raise _fault(SNAPPY, "cut short in its header")
    parts = []
    while position < end:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # streams may follow one another
            continue
        if end - position < _BLOCK_LENGTH.size:
            raise _fault(SNAPPY, "cut short in the length of a block")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= end - position:
            raise _fault(SNAPPY, f"a block of {length} bytes where {end - position} are left")
        part = _decompress_block(view[position : position + length], left, limit)
        parts.append(part)
        left -= len(part)
        position += length
    return b"".join(parts)


def _decompress_block(block: memoryview, left: int, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _too_much(SNAPPY, limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _fault(SNAPPY, str(error)) from error


def _fault(codec: int, cause: str) -> InvalidBatch:
    return InvalidBatch("decompress", f"{codec_name(codec)} records", cause)


def _too_much(codec: int, limit: int) -> InvalidBatch:
    return _fault(codec, f"more than {limit} bytes come out")
