"""Array counts are checked before kio sees them, and the check agrees with kio on what a request is."""

import random
import struct

import pytest
from kio.index import api_key_map, load_request_schema, schema_name_map
from kio.static.constants import EntityType

from headwater.broker.bounds import check_counts, walk_of
from headwater.broker.messages import request_reader
from headwater.broker.wire import BadRequest
from tests.support.fuzz.seeds import Seeds

# An array in a tagged field is not looked for; the broker serves no request that has one.
NOT_SERVED = {"broker_heartbeat", "streams_group_heartbeat"}
REQUESTS = [
    (key, version)
    for key, name in sorted(api_key_map.items())
    if name not in NOT_SERVED
    for version in sorted(schema_name_map[name])
    if EntityType.request in schema_name_map[name][version]
]


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_the_walk_ends_where_the_decoder_ends(key: int, version: int) -> None:
    schema = load_request_schema(key, version)
    seeds = Seeds(random.Random(key * 100 + version))
    for _ in range(20):
        body = seeds.body(schema, key)
        _, end = request_reader(key, version)(body, 0)
        assert end == len(body)
        assert walk_of(schema)(body, 0) == len(body)
        check_counts(schema, body, 0)


@pytest.mark.parametrize("count", [0x7FFFFFFF, 10**9, 10**7, 21])
def test_a_count_above_the_bytes_left_is_refused(count: int) -> None:
    with pytest.raises(BadRequest, match=f"an array of {count} elements in 20 bytes"):
        check_counts(load_request_schema(3, 0), struct.pack(">i", count) + bytes(20), 0)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x82\x80\x80\x01"])
def test_a_compact_count_above_the_bytes_left_is_refused(count: bytes) -> None:
    with pytest.raises(BadRequest, match=r"an array of \d+ elements in 20 bytes"):
        check_counts(load_request_schema(3, 12), count + bytes(20), 0)


def test_a_nested_count_is_found() -> None:
    # OffsetFetch v5: a group, one topic, two billion partitions
    body = struct.pack(">h1sih1si", 1, b"g", 1, 1, b"t", 2**31 - 1)
    with pytest.raises(BadRequest, match="an array of 2147483647 elements in 0 bytes"):
        check_counts(load_request_schema(9, 5), body, 0)


def test_null_arrays_and_short_frames_are_left_to_the_decoder() -> None:
    check_counts(load_request_schema(3, 1), struct.pack(">i", -1), 0)
    check_counts(load_request_schema(3, 1), b"\x00\x00", 0)
    check_counts(load_request_schema(3, 12), b"\xff\xff\xff", 0)
