"""The journal's records are Kafka's: bytes that Apache Kafka 4.1.1 wrote are read, and written the same."""

import asyncio
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups import records
from headwater.broker.groups.records import decode, encode
from headwater.broker.groups.wire import Malformed
from tests.broker.groups.calling import OverTheWire
from tests.broker.groups.scenarios import SCENARIOS
from tests.broker.groups.script import Script
from tests.support.servers import Headwater, java_tool

ALPHA = uuid.UUID("56119031-5144-40e2-966f-d615d504d10d")
BETA = uuid.UUID("9b68877a-68cd-4f63-81ca-21ebc7817292")

# (key, value, what they say), from the partition of __consumer_offsets of a broker that served both protocols
KAFKA_WROTE = [
    (
        "0001000263310005616c70686100000001",
        "000400000000000000050000000301000001a1e368ff5900",
        (records.OffsetKey("c1", "alpha", 1), records.OffsetValue(5, 3, "", 1794816671577)),
    ),
    (
        "0001000274310005616c70686100000000",
        "0004000000000000000500000003026d000001a1e369c81c01001056119031514440e2966fd615d504d10d",
        (
            records.OffsetKey("t1", "alpha", 0),
            records.OffsetValue(5, 3, "m", 1794816722972, topic_id=ALPHA),
        ),
    ),
    (
        "0001000263310005616c70686100000002",
        "0001000000000000000500016d000001a1e368ff68000001a1e369c2b8",
        (
            records.OffsetKey("c1", "alpha", 2),
            records.OffsetValue(5, -1, "m", 1794816671592, expire_ms=1794816721592),
        ),
    ),
    ("000100000005616c70686100000000", None, (records.OffsetKey("", "alpha", 0), None)),
    (
        "000200026331",
        "0003000000000000ffffffff000001a1e368feba00000000",
        (records.GroupKey("c1"), records.GroupValue("", 0, None, None, 1794816671418, ())),
    ),
    (
        "000200026332",
        "00030007636f6e6e65637400000001000973657373696f6e6564002769312d32646631336533302d323661662d34313334"
        "2d623562372d366239653565636633326538000001a1e369154400000001002769312d32646631336533302d323661662d"
        "343133342d623562372d36623965356563663332653800026931000570726f6265000a2f3132372e302e302e3100007530"
        "000027100000000378797a00000003414141",
        (
            records.GroupKey("c2"),
            records.GroupValue(
                "connect",
                1,
                "sessioned",
                "i1-2df13e30-26af-4134-b5b7-6b9e5ecf32e8",
                1794816677188,
                (
                    records.GroupMemberValue(
                        "i1-2df13e30-26af-4134-b5b7-6b9e5ecf32e8",
                        "i1",
                        "probe",
                        "/127.0.0.1",
                        30000,
                        10000,
                        b"xyz",
                        b"AAA",
                    ),
                ),
            ),
        ),
    ),
    ("0002000173", None, (records.GroupKey("s"), None)),
    ("000300027278", "00000000000300", (records.EpochKey("rx"), records.EpochValue(3))),
    (
        "000300036d6978",
        "0000000000010100083b2370c8c4775dc9",
        (records.EpochKey("mix"), records.EpochValue(1, 4261373680014548425)),
    ),
    (
        "00050002737400026131",
        "0000036931000670726f62650b2f3132372e302e302e310206616c70686101000075300001000100",
        (
            records.MemberKey("st", "a1"),
            records.MemberValue("i1", None, "probe", "/127.0.0.1", ("alpha",), "", 30000, None),
        ),
    ),
    (
        "000500036d697800164d3641797870633854462d674e4663634c7a5a6a4177",
        "000000000670726f62650b2f3132372e302e302e310206616c7068610100007530000100240100002710020672616e6765"
        "160001000000010005616c706861ffffffff000000000000",
        (
            records.MemberKey("mix", "M6Ayxpc8TF-gNFccLzZjAw"),
            records.MemberValue(
                None,
                None,
                "probe",
                "/127.0.0.1",
                ("alpha",),
                "",
                30000,
                None,
                records.ClassicMetadata(
                    10000,
                    (("range", bytes.fromhex("0001000000010005616c706861ffffffff00000000")),),
                ),
            ),
        ),
    ),
    ("000600026731", "00000000000100", (records.TargetEpochKey("g1"), records.TargetEpochValue(1))),
    (
        "00070002727800027231",
        "00000356119031514440e2966fd615d504d10d04000000000000000100000002009b68877a68cd4f6381ca21ebc7817292"
        "0300000000000000010000",
        (records.TargetKey("rx", "r1"), records.TargetValue({ALPHA: (0, 1, 2), BETA: (0, 1)})),
    ),
    (
        "00080002673100026d31",
        "00000000000100000001010256119031514440e2966fd615d504d10d030000000000000001000256119031514440e2966f"
        "d615d504d10d02000000020000",
        (
            records.CurrentKey("g1", "m1"),
            records.CurrentValue(1, 1, records.UNREVOKED, {ALPHA: (0, 1)}, {ALPHA: (2,)}),
        ),
    ),
    (
        "00080002737400026131",
        "0000fffffffe00000000000256119031514440e2966fd615d504d10d04000000000000000100000002000100",
        (
            records.CurrentKey("st", "a1"),
            records.CurrentValue(-2, 0, records.STABLE, {ALPHA: (0, 1, 2)}, {}),
        ),
    ),
    (
        "001000027278000a28616c707c6265292e2a",
        "00000306616c70686105626574610000000000000360000001a1e36869c900",
        (
            records.RegexKey("rx", "(alp|be).*"),
            records.RegexValue(("alpha", "beta"), 864, 1794816633289),
        ),
    ),
]


@pytest.mark.parametrize(("key", "value", "record"), KAFKA_WROTE)
def test_kafkas_bytes_are_read_and_written_again(key: str, value: str | None, record: records.Record) -> None:
    written = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert decode(*written) == record
    assert encode(record) == written


def test_a_deleted_partition_metadata_record_is_written_as_kafka_does() -> None:
    key = bytes.fromhex("000400027374")
    assert encode((records.PartitionMetadataKey("st"), None)) == (key, None)
    assert decode(key, None) is None


def test_records_of_share_and_streams_groups_are_passed_over() -> None:
    for kind in (9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23):
        assert decode(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0\0") is None


def test_old_offset_records_are_read() -> None:
    """Version 0 and 2 of the value, and the key of version 0, of logs that old brokers wrote."""
    value = (7).to_bytes(8, "big") + b"\0\1m" + (99).to_bytes(8, "big")
    key = bytes.fromhex("00000001670001740000000000")[:-1]
    for version in (0, 2):
        decoded = decode(key, version.to_bytes(2, "big") + value)
        assert decoded == (records.OffsetKey("g", "t", 0), records.OffsetValue(7, -1, "m", 99))


@given(st.binary(max_size=80), st.none() | st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(key: bytes, value: bytes | None) -> None:
    try:
        decode(key, value)
    except Malformed:
        pass


@given(st.sampled_from(KAFKA_WROTE), st.data())
def test_a_cut_record_is_refused(case: tuple[str, str | None, records.Record], data: st.DataObject) -> None:
    key, value, _ = case
    if value is None:
        return
    whole = bytes.fromhex(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Malformed):
        decode(bytes.fromhex(key), whole[:cut])


async def _use_groups(port: int) -> None:
    call = OverTheWire(port)
    topics = [
        {"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in ("alpha", "beta", "gamma")
    ]
    await call("CreateTopics", 5, topics=topics)
    metadata = await call("Metadata", 12, topics=None)
    ids = {topic.name: topic.topic_id for topic in metadata.topics}
    scenarios = [
        scenario
        for scenario in SCENARIOS
        if not scenario.__name__.startswith(("members_that", "consumer_members_that", "classic_members_that"))
    ]
    await asyncio.gather(*(each(Script(OverTheWire(port), ids, f"{each.__name__}.")) for each in scenarios))
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "(alp|bet).*"}
    await Script(call, ids, "").beat("pattern", "a", 0, **pattern)


def test_kafkas_dump_tool_reads_our_journal() -> None:
    """All that groups write is decoded by name by ``kafka-dump-log --offsets-decoder``."""
    with Headwater() as server:
        asyncio.run(_use_groups(server.port))
        server.stop()
        files = sorted((server.data / "__consumer_offsets-0").glob("*.log"))
        assert files
        arguments = ["--offsets-decoder", "--files", ",".join(map(str, files))]
        dumped = java_tool("kafka.tools.DumpLogSegments", *arguments)
        server.start()
    lines = [line for line in dumped.splitlines() if "payload:" in line and "endTxnMarker" not in line]
    assert len(lines) > 100
    for line in lines:
        assert '"type":"' in line.split("payload:")[0], line
        assert "<DELETE>" in line or '"version":"' in line.split("payload:")[1], line
    kinds = {line.split('"type":"')[1].split('"')[0] for line in lines}
    assert kinds >= {"1", "2", "3", "5", "6", "7", "8", "16"}
