"""Spark's Kafka connector: batches and streams, both ways, over restarts from a checkpoint."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import sparks
from tests.clients.peer import Peer
from tests.clients.records import START, Record, in_order, null_header, numbered, samples

Topics = Callable[..., str]
Name = Callable[[str], str]
# The first test may have to install Spark. In `make test` the sources of streams are read by the connector, too.
pytestmark = [pytest.mark.timeout(900), pytest.mark.wide]


@pytest.fixture(scope="module")
def spark(bootstrap: str) -> Iterator[Peer]:
    with Peer("spark", sparks.driver(), bootstrap) as peer:
        peer.ask("hello", timeout=120)
        yield peer


def records(answer: list[dict[str, Any]]) -> list[Record]:
    return in_order(Record.from_json(fields) for fields in answer)


def test_a_batch_is_read_whole(spark: Peer, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    sent = reference.produce(topic, [*samples(0), *samples(1, seed=2), null_header(1)], codec="zstd")
    assert records(spark.ask("read", topic=topic, options={}, timeout=120)) == in_order(sent)


def test_a_batch_between_offsets_and_times(spark: Peer, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    sent = in_order(reference.produce(topic, numbered(40, 2)))
    some = {
        "startingOffsets": json.dumps({topic: {"0": 5, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 10, "1": -1}}),
    }
    wanted = [one for one in sent if one.partition == 1 or 5 <= (one.offset or 0) < 10]
    assert records(spark.ask("read", topic=topic, options=some)) == wanted
    later = {"startingTimestamp": str(START + 20), "endingTimestamp": str(START + 30)}
    wanted = [one for one in sent if START + 20 <= one.timestamp < START + 30]
    assert records(spark.ask("read", topic=topic, options=later)) == wanted


def test_only_committed_records_are_read(
    spark: Peer, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic()
    reference.txn_open(unique("id"))
    sent = {}
    for end in ("commit", "abort"):
        reference.ask("txn_begin")
        sent[end] = reference.txn_send(topic, numbered(5, prefix=end))
        reference.ask(f"txn_{end}")
    last = reference.produce(topic, numbered(1, prefix="last"))
    committed = {"kafka.isolation.level": "read_committed"}
    assert records(spark.ask("read", topic=topic, options=committed)) == [*sent["commit"], *last]
    assert records(spark.ask("read", topic=topic, options={})) == [*sent["commit"], *sent["abort"], *last]


def test_a_batch_is_written(spark: Peer, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    wanted = numbered(30, 2)
    wanted += [Record(None, b"no key", (("a", b"1"), ("a", b"2"))), Record(b"no value", None, (), 0, 1)]
    options = {"kafka.compression.type": "lz4", "kafka.acks": "all"}
    spark.ask("write", topic=topic, records=[one.to_json() for one in wanted], options=options)
    read = reference.read(topic, last={0: 15, 1: 15})
    # Rows are written in parallel: which comes first within a partition is not given.
    assert sorted(map(content, read)) == sorted(map(content, wanted))


def content(record: Record) -> tuple[int, bytes, bytes, tuple[Any, ...]]:
    """What Spark was told of a record."""
    return record.partition, record.key or b"(none)", record.value or b"(none)", record.headers


def test_a_stream_goes_on_from_its_checkpoint(
    spark: Peer, reference: Peer, make_topic: Topics, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    sent: list[Record] = []
    for round_ in range(2):
        sent += reference.produce(topic, numbered(20, 2, prefix=f"round {round_} "))
        found = spark.ask(
            "stream_to_files",
            topic=topic,
            folder=str(tmp_path / "out"),
            checkpoint=str(tmp_path / "checkpoint"),
            options={"maxOffsetsPerTrigger": "7"},
            timeout=120,
        )
        assert records(found) == in_order(sent)


def test_a_stream_from_a_topic_to_a_topic(
    spark: Peer, reference: Peer, make_topic: Topics, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2, purpose="source"), make_topic(partitions=2, purpose="target")
    sent: list[Record] = []
    for round_ in range(2):
        some = [
            Record(b"k", b"v%d" % i, (("n", b"%d" % i),), START, i % 2)
            for i in range(round_ * 10, round_ * 10 + 10)
        ]
        sent += reference.produce(source, some)
        spark.ask(
            "stream_to_topic",
            topic=source,
            target=target,
            checkpoint=str(tmp_path / "checkpoint"),
            options={},
            timeout=120,
        )
        read = reference.read(target, last=dict.fromkeys((0, 1), round_ * 5 + 4))
        expected = [(one.partition, b"k", (one.value or b"").upper(), one.headers) for one in sent]
        assert sorted(map(content, read)) == sorted(expected)


def test_a_running_stream_sees_what_comes(
    spark: Peer, reference: Peer, make_topic: Topics, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    expected = {"a": 20, "b": 10, "c": 30}
    spark.tell("running_counts", topic=topic, checkpoint=str(tmp_path / "checkpoint"), expected=expected)
    for value, count in expected.items():
        reference.produce(topic, [Record(None, value.encode(), (), START, i % 2) for i in range(count)])
    assert spark.result("running_counts", timeout=150) == expected
