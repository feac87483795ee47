"""Produce: what is taken, what is refused and how."""

import struct
import time
from typing import Any

from headwater.log.batch import assemble, seal
from headwater.log.compression import compress
from headwater.log.records import build_batch, control_batch, encode_record
from tests.broker.conformance.script import Run, batch, produced, script
from tests.broker.wire_client import WireClient

HOUR = 3_600_000
VERSIONS = range(3, 14)


def now() -> int:
    return int(time.time() * 1000)


def edited(content: bytes, position: int, form: str, value: int, sealed: bool = True) -> bytes:
    """The batch with one field of its header changed, and its checksum made right again."""
    changed = bytearray(content)
    struct.pack_into(">" + form, changed, position, value)
    if sealed:
        seal(changed)
    return bytes(changed)


@script
def plain_records_in_every_version(run: Run) -> None:
    topic = run.topic()
    topic_id = run.topic_id("topic")
    for version in VERSIONS:
        for acks in (-1, 1):
            target = topic_id if version >= 13 else topic
            run.produce(f"v{version} acks={acks}", version, target, batch(f"v{version}"), acks=acks)
    for version in (3, 8, 9, 13):
        target = topic_id if version >= 13 else topic
        run.produce(f"v{version} acks=7", version, target, batch("x"), acks=7)
        run.produce(f"v{version} acks=-2", version, target, batch("x"), acks=-2)
        run.produce(f"v{version} empty records", version, target, b"")
        run.produce(f"v{version} unknown partition", version, target, batch("x"), partition=9)
        run.produce(f"v{version} negative partition", version, target, batch("x"), partition=-1)
        if version < 13:
            run.produce(f"v{version} unknown topic", version, run.name("missing"), batch("x"))
            run.produce(f"v{version} invalid name", version, "a/b", batch("x"))
            run.produce(f"v{version} empty name", version, "", batch("x"))
        else:
            run.produce("unknown id", version, run.topic_id("topic").__class__(int=77), batch("x"))
            run.produce("zero id", version, run.topic_id("topic").__class__(int=0), batch("x"))
    run.call("no topics", "produce", 9, acks=-1, timeout=1000, topic_data=[])
    run.call(
        "no partitions",
        "produce",
        9,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": topic, "partition_data": []}],
    )
    run.read("what is there", topic)


@script
def no_acknowledgement_and_a_fault(run: Run) -> None:
    """With acks=0 a connection can only be closed."""
    topic = run.topic()
    for step, records, partition in (
        ("fine", batch("x"), 0),
        ("unknown partition", batch("x"), 7),
        ("wrong checksum", edited(batch("x"), 17, "I", 1, sealed=False), 0),
    ):
        with WireClient(run.port) as client:
            client.send(
                "produce",
                7,
                acks=0,
                timeout=1000,
                topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
            )
            run.note(step, client.is_closed_by_peer(1))


@script
def spoiled_batches(run: Run) -> None:
    topic = run.topic()
    good = batch("one", "two", "three")

    def send(step: str, records: bytes, version: int = 9) -> None:
        run.produce(step, version, topic, records)

    send("wrong checksum", edited(good, 17, "I", 12345, sealed=False))
    send("cut short", good[:-1])
    send("cut in its header", good[:40])
    send("cut in its first field", good[:5])
    send("two batches", good + good)
    send("garbage", b"\xab" * 100)
    send("zeros", b"\0" * 100)
    send("length too small", edited(good, 8, "i", 10, sealed=False))
    send("length negative", edited(good, 8, "i", -1, sealed=False))
    send("length too large", edited(good, 8, "i", len(good), sealed=False))
    send("magic 0", edited(good, 16, "b", 0, sealed=False))
    send("magic 1", edited(good, 16, "b", 1, sealed=False))
    send("magic 3", edited(good, 16, "b", 3, sealed=False))
    send("count and last offset differ", edited(good, 57, "i", 2))
    send("last offset too large", edited(good, 23, "i", 5))
    send("no records claimed", edited(edited(good, 57, "i", 0), 23, "i", -1))
    send("no records", assemble(b"", record_count=0, last_offset_delta=0))
    send("negative count", edited(good, 57, "i", -1))
    send("base offset 7", edited(good, 0, "q", 7))
    send("negative base offset", edited(good, 0, "q", -7))
    send("leader epoch 9", edited(good, 12, "i", 9))
    send("a control batch", control_batch(1, 5, 0, 0, now()))
    send("a control batch by attribute", edited(good, 21, "h", 0x20))
    send("transactional without a producer", edited(good, 21, "h", 0x10))
    send("a delete horizon", edited(good, 21, "h", 0x40))
    send("an unused attribute", edited(good, 21, "h", 0x80))
    send("append time set by the client", edited(good, 21, "h", 0x08))
    send("magic 1 of an old client", edited(good, 16, "b", 1, sealed=False), version=3)
    run.read("what is there", topic)


@script
def batches_that_lie(run: Run) -> None:
    """What is in them is not what their headers say, on a topic where nobody needs to look."""
    topic = run.topic()
    good = batch("one", "two", "three")
    run.produce("bytes that follow", 9, topic, good + b"xyz")
    for codec in (5, 6, 7):
        run.produce(f"codec {codec}", 9, topic, edited(good, 21, "h", codec))
    run.produce("more records than there are", 9, topic, edited(edited(good, 57, "i", 4), 23, "i", 3))
    run.produce("fewer records than there are", 9, topic, edited(edited(good, 57, "i", 2), 23, "i", 1))
    run.produce("no epoch", 9, topic, batch("x", producer=(run.producer(None)[0], -1), sequence=0))
    run.produce(
        "garbage for records",
        9,
        topic,
        assemble(b"\xff" * 50, record_count=1, base_timestamp=now(), max_timestamp=now()),
    )
    strict = run.topic("strict", message_timestamp_before_max_ms="10000")
    run.produce(
        "second record too old",
        9,
        strict,
        build_batch([(b"k", b"a", (), now()), (b"k", b"b", (), now() - 60_000)]),
    )
    timeless = run.topic("timeless")
    start = now()
    large = b"x" * 40_000
    new = [(b"k", large, (), start), (b"k", large, (), start + 20), (b"k", large, (), start + 10)]
    for codec in range(5):
        sent = edited(build_batch(new, codec=codec), 35, "q", -1)
        run.produce(f"no latest timestamp, codec {codec}", 9, timeless, sent)
    for delta in (0, 15, 20, 21):
        answer = run.ask(
            "list_offsets",
            7,
            replica_id=-1,
            topics=[{"name": timeless, "partitions": [{"partition_index": 0, "timestamp": start + delta}]}],
        )
        found = answer["topics"][0]["partitions"][0]
        if found["timestamp"] >= 0:
            found["timestamp"] = f"{found['timestamp'] - start} after the start"
        run.note(f"no latest timestamp, at {delta}", found)
    late = edited(batch("x", timestamp=start + 2 * HOUR), 35, "q", -1)
    run.produce("no latest timestamp, two hours ahead", 9, timeless, late)


@script
def spoiled_records(run: Run) -> None:
    """The header is right; what it holds is not. On a topic that has to look inside: a compacted one."""
    topic = run.topic(cleanup_policy="compact")

    def send(step: str, records: bytes, count: int = 1, attributes: int = 0) -> None:
        content = assemble(
            records, record_count=count, base_timestamp=now(), max_timestamp=now(), attributes=attributes
        )
        run.produce(step, 9, topic, content)

    record = encode_record(0, 0, b"k", b"v")
    send("good", record)
    send("garbage", b"\xff" * 20)
    send("cut short", record[:-2])
    send("bytes that follow", record + b"abc")
    send("record attributes", encode_record(0, 0, b"k", b"v").replace(b"\0", b"\x01", 1))
    send("no key", encode_record(0, 0, None, b"v"))
    send("empty key", encode_record(0, 0, b"", b"v"))
    send("tombstone", encode_record(0, 0, b"k", None))
    for codec in (1, 2, 3, 4):
        good = compress(codec, record)
        send(f"codec {codec}", good, attributes=codec)
        send(f"codec {codec}, no key", compress(codec, encode_record(0, 0, None, b"v")), attributes=codec)
        send(f"codec {codec}, garbage", b"\x01\x02\x03\x04" * 10, attributes=codec)
        send(f"codec {codec}, cut short", good[: len(good) // 2], attributes=codec)
        send(f"codec {codec}, nothing", b"", attributes=codec)
    run.produce(
        "second record without a key",
        9,
        topic,
        build_batch([(b"k", b"v", (), now()), (None, b"v", (), now())]),
    )
    run.produce(
        "second record without a key, v8",
        8,
        topic,
        build_batch([(b"k", b"v", (), now()), (None, b"v", (), now())]),
    )


@script
def keys_and_policies(run: Run) -> None:
    for policy in ("delete", "compact", "compact,delete"):
        topic = run.topic("t-" + policy.replace(",", "-"), cleanup_policy=policy)
        run.produce(f"keyless on {policy}", 9, topic, batch("v", key=None))
        run.produce(f"keyed on {policy}", 9, topic, batch("v"))


@script
def timestamps_and_their_limits(run: Run) -> None:
    topic = run.topic()
    moment = now()
    for step, timestamp in (
        ("far past", 0),
        ("none", -1),
        ("very negative", -5),
        ("30 minutes ahead", moment + HOUR // 2),
        ("two hours ahead", moment + 2 * HOUR),
        ("a million years ahead", 2**62),
    ):
        run.produce(step, 9, topic, batch("x", timestamp=timestamp))
    strict = run.topic(
        "strict", message_timestamp_before_max_ms="10000", message_timestamp_after_max_ms="10000"
    )
    for step, timestamp in (
        ("strict, now", moment),
        ("strict, a minute ago", moment - 60_000),
        ("strict, in a minute", moment + 60_000),
        ("strict, none", -1),
    ):
        run.produce(step, 9, strict, batch("x", timestamp=timestamp))
    run.produce(
        "max timestamp that lies", 9, topic, edited(batch("x", timestamp=moment), 35, "q", moment + 5000)
    )
    stamped = run.topic("stamped", message_timestamp_type="LogAppendTime")
    run.produce("stamped by the broker", 9, stamped, batch("x", timestamp=5))
    run.produce("stamped by the broker, far ahead", 9, stamped, batch("x", timestamp=2**62))
    run.produce("stamped by the broker, duplicate", 9, stamped, batch("x", timestamp=5))


@script
def sizes_and_their_limits(run: Run) -> None:
    topic = run.topic(max_message_bytes="1000")
    run.produce("at the limit", 9, topic, batch("x" * (1000 - 61 - 11)))
    for size in (940, 1000, 2000):
        run.produce(f"value of {size}", 9, topic, batch("x" * size))
    run.produce("compressible", 9, topic, batch("x" * 5000, codec=4))
    squeezed = run.topic("squeezed", max_message_bytes="1000", compression_type="zstd")
    run.produce("compressed by the broker", 9, squeezed, batch("x" * 5000))
    unpacked = run.topic("unpacked", max_message_bytes="1000", compression_type="uncompressed")
    run.produce("decompressed by the broker", 9, unpacked, batch("x" * 5000, codec=4))
    run.read("decompressed", unpacked)
    run.produce(
        "wrong size and wrong checksum", 9, topic, edited(batch("x" * 2000), 17, "I", 1, sealed=False)
    )
    small = run.topic("small", segment_bytes="2000000")
    run.produce("larger than the default limit", 9, small, batch("x" * 1_100_000))


@script
def codecs_and_versions(run: Run) -> None:
    topic = run.topic()
    for version in (3, 6, 7, 9):
        for codec in range(5):
            run.produce(f"v{version} codec {codec}", version, topic, batch("abc" * 50, codec=codec))
    for kind in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        own = run.topic(f"own-{kind}", compression_type=kind)
        for codec in range(5):
            run.produce(f"{kind} from codec {codec}", 9, own, batch("abc" * 50, "def" * 50, codec=codec))
        run.read(f"what {kind} has", own)


@script
def idempotent_producers(run: Run) -> None:
    topic = run.topic()
    producer = run.producer(None)
    producer_id = producer[0]

    def send(step: str, sequence: int, *values: str, epoch: int = 0) -> None:
        run.produce(
            step, 9, topic, batch(*(values or ("x",)), producer=(producer_id, epoch), sequence=sequence)
        )

    send("first", 0, "a", "b")
    for number in range(2, 8):
        send(f"sequence {number}", number)
    send("the last again", 7)
    send("the fifth last again", 3)
    send("the sixth last again", 2)
    send("the first again", 0, "a", "b")
    send("the last, longer", 7, "x", "y")
    send("a gap", 9)
    send("far behind", 1)
    send("a new epoch in mid-sequence", 8, epoch=1)
    send("a new epoch", 0, epoch=1)
    send("the old epoch", 8)
    send("two epochs on", 0, epoch=3)
    send("one epoch back", 0, epoch=2)
    other = run.producer(None)[0]
    run.produce("unknown producer in mid-sequence", 9, topic, batch("x", producer=(other, 0), sequence=5))
    run.produce("goes on from there", 9, topic, batch("x", producer=(other, 0), sequence=6))
    third = run.producer(None)[0]
    run.produce("no sequence", 9, topic, batch("x", producer=(third, 0), sequence=-1))
    run.produce("negative sequence", 9, topic, batch("x", producer=(third, 0), sequence=-5))
    run.produce("negative producer", 9, topic, batch("x", producer=(-5, 0), sequence=0))
    run.produce("largest sequence", 9, topic, batch("x", producer=(third, 0), sequence=2**31 - 1))
    run.produce("wraps to 0", 9, topic, batch("y", producer=(third, 0), sequence=0))
    run.produce(
        "over the edge in one batch: first", 9, topic, batch("x", "y", producer=(third, 1), sequence=0)
    )
    run.read("what is there", topic, committed=False)


@script
def sequences_over_the_edge(run: Run) -> None:
    topic = run.topic()
    producer = run.producer(None)
    last = 2**31 - 1
    run.produce("near the edge", 9, topic, batch("a", producer=producer, sequence=last - 1))
    run.produce("over it", 9, topic, batch("b", "c", "d", producer=producer, sequence=last))
    run.produce("over it again", 9, topic, batch("b", "c", "d", producer=producer, sequence=last))
    run.produce("after it", 9, topic, batch("e", producer=producer, sequence=2))
    run.read("what is there", topic)


@script
def many_partitions_in_one_request(run: Run) -> None:
    topic, other = run.topic(partitions=3), run.topic("other")

    def item(number: int, records: bytes | None) -> dict[str, Any]:
        return {"index": number, "records": records}

    run.call(
        "some good, some bad",
        "produce",
        9,
        acks=-1,
        timeout=1000,
        topic_data=[
            {
                "name": topic,
                "partition_data": [
                    item(2, batch("a")),
                    item(9, batch("a")),
                    item(0, b"junk"),
                    item(1, batch("b")),
                ],
            },
            {"name": run.name("missing"), "partition_data": [item(0, batch("a"))]},
            {"name": other, "partition_data": [item(0, batch("c"))]},
        ],
        show=produced,
    )
    run.call(
        "the same topic twice",
        "produce",
        9,
        acks=-1,
        timeout=1000,
        topic_data=[
            {"name": topic, "partition_data": [item(1, batch("first"))]},
            {"name": topic, "partition_data": [item(2, batch("second"))]},
        ],
        show=produced,
    )
    for number in range(3):
        run.read(f"partition {number}", topic, partition=number)


@script
def topics_of_the_broker(run: Run) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        for version in (9, 12):
            run.produce(f"{name} v{version}", version, name, batch("x"))


@script
def versions_that_are_not_served(run: Run) -> None:
    topic = run.topic()
    for key, version in (
        (0, 2),
        (0, 14),
        (1, 3),
        (1, 99),
        (3, -1),
        (3, 99),
        (999, 0),
        (-1, 0),
        (52, 0),
        (62, 0),
        (4, 0),
    ):
        with WireClient(run.port) as client:
            client.send_frame(struct.pack(">hhih", key, version, 7, -1) + b"\0" * 60)
            run.note(f"key {key} version {version}", client.is_closed_by_peer(5))
    for version in (-1, 5, 99, 32767):
        with WireClient(run.port) as client:
            client.send_frame(struct.pack(">hhih", 18, version, 7, -1) + b"\0\0\0\0")
            frame = client.receive_frame()
            code, count = struct.unpack_from(">hi", frame, 4)
            found = struct.unpack_from(">hhh", frame, 10) if count else None
            run.note(
                f"ApiVersions {version}",
                {"error_code": code, "count": count, "first": list(found or ()), "size": len(frame)},
            )
    run.produce("and it goes on", 9, topic, batch("x"))
