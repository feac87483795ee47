"""Compaction beside Apache Kafka: its cleaner leaves the same of a log, and its tools read what we leave."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headwater.log.batch import NO_PRODUCER, BatchHeader, fault_at, read_header, split
from headwater.log.compaction import CleanedTransactions, Cleaner, LastRecord, OffsetMap, map_dirty
from headwater.log.records import Record, read_control, read_records
from tests.log.partition_model import RETENTION, AbortedRange, new_partition
from tests.support.servers import ApacheKafka, java_tool

DELETE_RETENTION = 600_000
TOPIC = "compacted"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def cleaning_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(config={"log.cleaner.backoff.ms": "100"}) as server:
        yield server


def batches_in(segments: list[Path]) -> list[bytes]:
    found = []
    for segment in segments:
        content = segment.read_bytes()
        found += [content[position : position + header.size] for position, header in split(content)]
    return found


def aborted_in(batches: list[bytes]) -> list[AbortedRange]:
    begun: dict[int, int] = {}
    aborted = []
    for batch in batches:
        header = read_header(batch)
        if header.is_control:
            marker = read_control(batch)
            first = begun.pop(header.producer_id, None)
            if marker is not None and not marker.committed and first is not None:
                aborted.append(AbortedRange(header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)
    return aborted


def last_records_in(batches: list[bytes]) -> dict[int, LastRecord]:
    last: dict[int, LastRecord] = {}
    for header in map(read_header, batches):
        known = last.get(header.producer_id)
        if not header.is_control:
            last[header.producer_id] = LastRecord(header.last_offset, header.producer_epoch)
        elif known is None or known.producer_epoch != header.producer_epoch:
            last[header.producer_id] = LastRecord(None, header.producer_epoch)
    last.pop(NO_PRODUCER, None)
    return last


def meaning(batch: bytes) -> tuple[BatchHeader, list[Record]]:
    """A batch but for how its timestamps are written: Kafka takes the first record's as a new base."""
    assert fault_at(batch) is None
    header = read_header(batch)
    base = header.base_timestamp if header.delete_horizon is not None else 0
    return header._replace(length=0, crc=0, base_timestamp=base), list(read_records(batch))


def fill(kafka: ApacheKafka) -> None:
    """Puts, tombstones, and transactions of both ends, in every codec, over several segments."""
    for number, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 200}
        plain = Producer({**settings, "enable.idempotence": bool(number % 2)})
        for index in range(40):
            value = None if index % 9 == 4 else b"%s-%d" % (codec.encode(), index)
            plain.produce(TOPIC, value, b"key-%d" % (index * 7 % 29 + number))
        plain.flush(60)
        writer = Producer({**settings, "transactional.id": f"writer-{codec}"})
        writer.init_transactions(60)
        for ending in ("commit", "abort", "commit"):
            writer.begin_transaction()
            for index in range(10):
                value = None if index == 3 else b"%s in %s" % (codec.encode(), ending.encode())
                writer.produce(TOPIC, value, b"key-%d" % (index * 3 + number))
            writer.flush(60)
            writer.commit_transaction(60) if ending == "commit" else writer.abort_transaction(60)
        time.sleep(0.3)  # past segment.ms: the next batch begins a segment


def test_kafkas_cleaner_leaves_the_same(cleaning_kafka: ApacheKafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cleaning_kafka.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(DELETE_RETENTION),
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": "3600000",  # hold the cleaner back
    }
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
    fill(cleaning_kafka)
    last = Producer({"bootstrap.servers": cleaning_kafka.bootstrap})
    last.produce(TOPIC, b"begins the active segment", b"last")
    last.flush(60)

    folder = cleaning_kafka.data / f"{TOPIC}-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    everything = batches_in(segments)
    first_uncleanable = int(segments[-1].stem)
    log = [batch for batch in everything if read_header(batch).base_offset < first_uncleanable]

    change = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    theirs = wait_for_cleaning(folder, first_uncleanable, log)

    horizons = {header.delete_horizon for header in map(read_header, theirs)} - {None}
    (horizon,) = horizons
    assert horizon is not None
    offset_map = OffsetMap(10_000)
    aborted = aborted_in(everything)
    assert aborted
    map_dirty(log, offset_map, CleanedTransactions(aborted))
    cleaner = Cleaner(
        offset_map,
        CleanedTransactions(aborted),
        now_ms=horizon - DELETE_RETENTION,
        delete_retention_ms=DELETE_RETENTION,
        last_records=last_records_in(everything),
        first_uncleanable_offset=first_uncleanable,
    )
    ours = [bytes(batch) for batch in cleaner.clean_all(log)]
    assert [meaning(batch) for batch in ours] == [meaning(batch) for batch in theirs]
    assert cleaner.statistics.records_kept < cleaner.statistics.records_read / 2


def wait_for_cleaning(folder: Path, first_uncleanable: int, before: list[bytes]) -> list[bytes]:
    """The batches below the active segment once the cleaner's checkpoint says that it got there."""
    checkpoint = folder.parent / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if f"{TOPIC} 0 {first_uncleanable}" in (checkpoint.read_text() if checkpoint.exists() else ""):
            after = batches_in(sorted(folder.glob("*.log")))
            return [batch for batch in after if read_header(batch).base_offset < first_uncleanable]
    raise AssertionError(f"Kafka did not clean the log in time: {len(before)} batches")


def test_kafkas_dump_tool_reads_cleaned_segments(tmp_path: Path) -> None:
    partition = new_partition()
    for number in range(60):
        slot = number % 4
        writer = partition.writers[slot]
        keys = [b"key-%d" % (index * (number + 3) % 17) for index in range(5)]
        values = [None if index == 2 else b"value-%d" % number for index in range(5)]
        records = [
            (key, value, [("h", b"x")], 1000 + number) for key, value in zip(keys, values, strict=True)
        ]
        partition.write(records, writer=writer, transactional=bool(slot), codec=number % 5)
        if slot and number % 5 > 1:
            partition.end(writer, committed=number % 3 != 0)
        if number % 20 == 19:
            partition.clean()
            partition.now += RETENTION // 2
    for slot in (1, 2, 3):
        partition.end(partition.writers[slot], committed=False)
    partition.write([(b"key-%d" % index, b"final", [], 2000) for index in range(17) if index % 4])
    partition.clean()
    partition.check()
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"".join(partition.batches))
    dump = java_tool(
        "kafka.tools.DumpLogSegments", "--files", str(segment), "--print-data-log", "--deep-iteration"
    )
    headers = [line for line in dump.splitlines() if line.startswith("baseOffset")]
    assert len(headers) == len(partition.batches)
    for line, header in zip(headers, map(read_header, partition.batches), strict=True):
        assert line.startswith(
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        )
        horizon = header.delete_horizon
        assert f"deleteHorizonMs: OptionalLong{'.empty' if horizon is None else f'[{horizon}]'} " in line
        assert "isvalid: true" in line
    assert any(header.record_count == 0 for header in map(read_header, partition.batches))
    assert any(header.delete_horizon is not None for header in map(read_header, partition.batches))
    read = re.findall(r"^\| offset: (\d+) \w+Time: (\d+) .* key: (\S+)(?: payload: (\S+))?$", dump, re.M)
    assert [(int(offset), int(stamp), key, value) for offset, stamp, key, value in read] == [
        (record.offset, record.timestamp, str(record.key, "ascii"), str(record.value or b"", "ascii"))
        for record in partition.records()
        if record.key is not None
    ]
