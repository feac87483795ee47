"""What kio leaves unchecked in a request is checked, and the checks agree with kio on what a request is."""

import random
import struct

import pytest
from kio.index import api_key_map, load_request_schema, schema_name_map
from kio.static.constants import EntityType

from headwater.broker.decode import check_counts, decode_request, walk_of
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
        request, end = request_reader(key, version)(body, 0)
        assert end == len(body)
        assert walk_of(schema)(body, 0, []) == len(body)
        assert decode_request(key, version, body, 0) == request


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


@pytest.mark.parametrize(("key", "version"), [(3, 0), (1, 12), (9, 8), (19, 7), (11, 6)])
def test_null_in_the_place_of_an_array_is_refused(key: int, version: int) -> None:
    """Each of these has an array that may not be null, at the top or nested."""
    schema = load_request_schema(key, version)
    refused = 0
    for number in range(300):
        body = bytearray(Seeds(random.Random(number)).body(schema, key))
        for position in range(len(body)):
            spoiled = body.copy()
            spoiled[position : position + (1 if schema.__flexible__ else 4)] = (
                b"\0" if schema.__flexible__ else b"\xff" * 4
            )
            try:
                decode_request(key, version, bytes(spoiled), 0)
            except BadRequest as error:
                refused += "null in the place of" in str(error)
        if refused:
            return
    raise AssertionError("no null array was refused")


def test_unknown_tagged_fields_are_ignored_wherever_they_stand() -> None:
    # Heartbeat v4: group, generation, member, no instance, then one tagged field: 99, of 3 bytes
    plain = b"\x02g\x00\x00\x00\x05\x02m\x00"
    assert decode_request(12, 4, plain + b"\x01\x63\x03abc", 0) == decode_request(12, 4, plain + b"\x00", 0)
    # Metadata v12: a topic (no id, name t) with a tag of its own, no auto-creation, and two more tags
    topic = bytes(16) + b"\x02t"
    expected = decode_request(3, 12, b"\x02" + topic + b"\x00" + b"\x00\x00" + b"\x00", 0)
    tagged = b"\x02" + topic + b"\x01\x07\x01x" + b"\x00\x00" + b"\x02\x05\x00\x81\x01\x02yz"
    assert decode_request(3, 12, tagged, 0) == expected


def test_known_tagged_fields_are_kept_beside_unknown_ones() -> None:
    # Fetch v12: tag 0 is the cluster id
    body = b"\xff\xff\xff\xff" + bytes(4) + bytes(4) + bytes(4) + b"\x00" + bytes(4) + bytes(4)
    body += b"\x01" + b"\x01" + b"\x01"  # no topics, none forgotten, an empty rack
    request = decode_request(1, 12, body + b"\x02\x00\x03\x03id\x63\x01x", 0)
    assert request.cluster_id == "id"


def test_tagged_fields_that_run_past_the_end_are_refused() -> None:
    with pytest.raises(BadRequest):
        decode_request(12, 4, b"\x02g\x00\x00\x00\x05\x02m\x00\x01\x63\x7fabc", 0)
