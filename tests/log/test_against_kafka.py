"""Records and markers beside Apache Kafka: we read what its clients and broker write, and it reads ours."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.log.batch import BatchHeader, fault_at, place, split
from headwater.log.compression import CODECS, codec_name
from headwater.log.records import (
    ABORT,
    COMMIT,
    Record,
    build_batch,
    control_batch,
    read_control,
    read_records,
)
from tests.support.servers import ApacheKafka, java, java_tool

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 2000


def create(kafka: ApacheKafka, topic: str, **config: str) -> Path:
    """A topic of one partition; its segment file."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=settings)]).values():
        future.result(30)
    return kafka.data / f"{topic}-0" / "00000000000000000000.log"


def batches_of(segment: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    content = segment.read_bytes()
    for position, header in split(content):
        batch = content[position : position + header.size]
        assert fault_at(batch) is None
        yield header, batch


def value_of(index: int) -> bytes:
    return b'{"index": %d, "page": "/some/page/%d"}' % (index, index % 17)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_of_librdkafka(kafka: ApacheKafka, topic: str, compression: str) -> None:
    segment = create(kafka, topic)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": compression, "linger.ms": 500}
    )
    for index in range(COUNT):
        key = None if index % 11 == 0 else b"key-%d" % index
        value = None if index % 13 == 0 else value_of(index)
        producer.produce(
            topic, value, key, timestamp=1_700_000_000_000 + index, headers={"h": b"x"} if index % 3 else None
        )
    producer.flush(60)
    expected = [
        Record(
            index,
            1_700_000_000_000 + index,
            None if index % 11 == 0 else b"key-%d" % index,
            None if index % 13 == 0 else value_of(index),
            (("h", b"x"),) if index % 3 else (),
        )
        for index in range(COUNT)
    ]
    found = list(batches_of(segment))
    assert [record for _, batch in found for record in read_records(batch)] == expected
    assert {header.codec for header, _ in found} == {CODECS[compression]}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_of_the_java_client(kafka: ApacheKafka, topic: str, compression: str) -> None:
    segment = create(kafka, topic)
    command = [
        *java("-Xmx256m"), "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", kafka.bootstrap,
        "--topic", topic, "--compression-codec", compression, "--batch-size", "200000", "--timeout", "1000",
        "--property", "parse.key=true", "--property", "parse.headers=true",
    ]  # fmt: skip
    lines = b"".join(b"h:x\tkey-%d\t%s\n" % (index, value_of(index)) for index in range(COUNT))
    subprocess.run(command, input=lines, capture_output=True, check=True, timeout=120)
    found = list(batches_of(segment))
    records = [record for _, batch in found for record in read_records(batch)]
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"key-%d" % index, value_of(index), (("h", b"x"),)) for index in range(COUNT)
    ]
    assert {header.codec for header, _ in found} == {CODECS[compression]}
    assert max(header.length for header, _ in found) > 2000


def test_markers_are_written_as_kafka_does(kafka: ApacheKafka, topic: str) -> None:
    segment = create(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key")
        producer.flush(60)
        end(60)
    markers: list[tuple[BatchHeader, bytes]] = []
    deadline = time.monotonic() + 30
    while len(markers) < 2 and time.monotonic() < deadline:  # Kafka answers before it writes them
        time.sleep(0.05)
        markers = [(header, batch) for header, batch in batches_of(segment) if header.is_control]
    assert [marker.kind for _, batch in markers if (marker := read_control(batch))] == [COMMIT, ABORT]
    for header, batch in markers:
        marker = read_control(batch)
        assert marker is not None
        ours = bytearray(control_batch(*marker, timestamp=header.max_timestamp))
        place(ours, header.base_offset, header.leader_epoch)
        assert ours == batch


def test_kafka_reads_our_batches(tmp_path: Path) -> None:
    """Its dump tool reads every record of every codec, decompressing with the Java client's own code."""
    segment = tmp_path / "00000000000000000000.log"
    kinds = [(codec, size) for codec in range(5) for size in (10, 5_000, 50_000)]
    with segment.open("wb") as file:
        for number, (codec, size) in enumerate(kinds):
            records = [
                (b"key-%d" % index, b"-" + b"x" * size, [("h", b"y")], 1000 + index) for index in range(20)
            ]
            file.write(build_batch(records, codec=codec, base_offset=20 * number))
    dump = java_tool(
        "kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log", "--deep-iteration"
    )
    headers = [line for line in dump.splitlines() if line.startswith("baseOffset")]
    records_read = [line for line in dump.splitlines() if line.startswith("|")]
    assert len(headers) == len(kinds) and len(records_read) == 20 * len(kinds)
    for number, (codec, size) in enumerate(kinds):
        assert f"compresscodec: {codec_name(codec)} " in headers[number]
        assert "isvalid: true" in headers[number]
        for index, line in enumerate(records_read[20 * number : 20 * number + 20]):
            assert line.startswith(f"| offset: {20 * number + index} CreateTime: {1000 + index} keySize: ")
            assert line.endswith(f"headerKeys: [h] key: key-{index} payload: -{'x' * size}")
