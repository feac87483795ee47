"""Kafka's codecs: round trips, what other implementations write, and bombs."""

import gzip
import os
import random
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import gzip_encode

from headwater.errors import InvalidBatch
from headwater.log.compression import (
    CODEC_NAMES,
    CODECS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    codec_name,
    compress,
    decompress,
)

ALL = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b'{"user": 4711, "page": "/index.html", "at": "2026-03-01T12:00:00Z"}\n'


def mixed(size: int) -> bytes:
    """Bytes that compress partly."""
    source = random.Random(size)
    return b"".join(TEXT if source.random() < 0.7 else source.randbytes(67) for _ in range(size // 67 + 1))[
        :size
    ]


SIZES = [0, 1, 2, 31, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 200_000, 5_000_000]


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
@pytest.mark.parametrize("size", SIZES)
def test_what_goes_in_comes_out(codec: int, size: int) -> None:
    for data in (mixed(size), bytes(size), os.urandom(size)):
        packed = compress(codec, data)
        for form in (packed, bytearray(packed), memoryview(packed)):
            assert decompress(codec, form, limit=size) == data


@pytest.mark.parametrize("codec", COMPRESSING, ids=codec_name)
def test_text_gets_smaller(codec: int) -> None:
    assert len(compress(codec, TEXT * 100)) < len(TEXT) * 100 / 5


@pytest.mark.parametrize(("codec", "levels"), [(GZIP, (-1, 1, 9)), (LZ4, (1, 9, 17)), (ZSTD, (-7, 1, 3, 22))])
def test_levels_of_kafka_are_taken(codec: int, levels: tuple[int, ...]) -> None:
    data = mixed(100_000)
    for level in levels:
        assert decompress(codec, compress(codec, data, level), limit=len(data)) == data


def test_names() -> None:
    assert [CODECS[name] for name in CODEC_NAMES] == ALL
    assert CODECS["uncompressed"] == NONE


# -- what others write -----------------------------------------------------------------------------


def test_gzip_of_other_implementations() -> None:
    data = mixed(100_000)
    assert decompress(GZIP, gzip_encode(data), len(data)) == data
    assert decompress(GZIP, gzip.compress(data), len(data)) == data
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    assert decompress(GZIP, packer.compress(data) + packer.flush(), len(data)) == data


def test_gzip_of_two_members() -> None:
    """The length at the end of the stream is that of the last member only."""
    data = mixed(300_000)
    assert decompress(GZIP, gzip.compress(data) + gzip.compress(b"end"), len(data) + 3) == data + b"end"


def test_snappy_in_one_raw_block() -> None:
    data = mixed(100_000)
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_snappy_with_the_version_in_the_other_byte_order() -> None:
    data = mixed(1000)
    packed = bytearray(compress(SNAPPY, data))
    packed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(SNAPPY, packed, len(data)) == data


def test_snappy_streams_one_after_the_other() -> None:
    assert (
        decompress(SNAPPY, compress(SNAPPY, b"a" * 100) + compress(SNAPPY, b"b" * 100), 200)
        == b"a" * 100 + b"b" * 100
    )


def test_snappy_is_written_as_java_does() -> None:
    packed = compress(SNAPPY, mixed(70_000))
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    lengths, position = [], 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        lengths.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert lengths == [32768, 32768, 70_000 - 65536]


@pytest.mark.parametrize("content_checksum", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_lz4_of_every_kind(linked: bool, content_checksum: bool) -> None:
    data = mixed(300_000)
    packer = cramjam.lz4.Compressor(block_linked=linked, content_checksum=content_checksum)
    packer.compress(data)
    assert decompress(LZ4, bytes(packer.finish()), len(data)) == data


def test_lz4_blocks_are_independent() -> None:
    """Java refuses frames whose blocks refer to one another."""
    assert compress(LZ4, mixed(300_000))[4] & 0x20


# -- bombs and garbage -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
@pytest.mark.parametrize("size", [1, 100, 5000, 1_000_000])
def test_the_limit_is_exact(codec: int, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert decompress(codec, packed, size) == bytes(size)
    with pytest.raises(InvalidBatch, match=f"more than {size - 1} bytes come out"):
        decompress(codec, packed, size - 1)


BOMB = """
import resource, sys
from headwater.errors import InvalidBatch
from headwater.log.compression import decompress
packed = sys.stdin.buffer.read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decompress({codec}, {small!r}, 1000)
before = peak()
try:
    decompress({codec}, packed, 1 << 20)
except InvalidBatch as error:
    print(peak() - before, error)
"""


@pytest.mark.parametrize("codec", COMPRESSING, ids=codec_name)
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec: int) -> None:
    if codec == SNAPPY:
        bomb = bytes(cramjam.snappy.compress_raw(bytes(256 << 20)))
    else:
        bomb = compress(codec, bytes(256 << 20), 1)
    program = BOMB.format(codec=codec, small=compress(codec, b"small"))
    output = subprocess.run(
        [sys.executable, "-c", program], input=bomb, capture_output=True, check=True
    ).stdout
    kilobytes, message = output.decode().split(" ", 1)
    assert "more than 1048576 bytes come out" in message
    assert int(kilobytes) < 24 * 1024, "memory for the output was allocated"


def test_a_snappy_block_that_claims_gigabytes() -> None:
    with pytest.raises(InvalidBatch, match="more than 1000 bytes"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20, 1000)


def test_a_gzip_stream_that_lies_about_its_length() -> None:
    data = mixed(50_000)
    packed = gzip.compress(data)
    for claim in (0, 1, 4096, 2**32 - 1):
        with pytest.raises(InvalidBatch):
            decompress(GZIP, packed[:-4] + struct.pack("<I", claim), 1 << 20)


@pytest.mark.parametrize("codec", COMPRESSING, ids=codec_name)
def test_a_cut_at_every_byte_is_noticed(codec: int) -> None:
    packed = compress(codec, mixed(600))
    for end in range(len(packed)):
        if codec == SNAPPY and end == 16:
            # Java's stream has no end mark: its header alone is a stream of nothing.
            assert decompress(codec, packed[:end], 1000) == b""
            continue
        with pytest.raises(InvalidBatch):
            decompress(codec, packed[:end], 1000)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_codecs_that_kafka_does_not_have(codec: int) -> None:
    with pytest.raises(InvalidBatch, match="no such codec"):
        decompress(codec, b"data", 100)
    with pytest.raises(InvalidBatch, match="no codec"):
        compress(codec, b"data")


@given(st.sampled_from(COMPRESSING), st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_garbage_is_refused(codec: int, garbage: bytes) -> None:
    try:
        decompress(codec, garbage, 10_000)
    except InvalidBatch as error:
        assert codec_name(codec) in str(error)


@given(st.sampled_from(COMPRESSING), st.randoms(use_true_random=False), st.integers(1, 8))
@settings(max_examples=500, deadline=None)
def test_damage_is_refused_or_harmless(codec: int, source: random.Random, flips: int) -> None:
    damaged = bytearray(compress(codec, mixed(source.randrange(2000))))
    for _ in range(flips):
        damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    try:
        assert len(decompress(codec, damaged, 10_000)) <= 10_000
    except InvalidBatch:
        pass
