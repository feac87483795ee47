"""What the broker does unasked, seen from outside: retention, archiving, compaction, idle connections."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.broker.groups.records import OffsetKey, OffsetValue, encode
from headwater.broker.journal import OFFSETS_TOPIC
from headwater.log.batch import read_header
from headwater.log.directory import DataDirectory
from headwater.log.partition import now_ms
from headwater.log.records import build_batch
from tests.broker.wire_client import WireClient
from tests.support.servers import Headwater

QUICK = {
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "connections.max.idle.ms": "1500",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Headwater]:
    arguments = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    with Headwater(arguments=arguments) as running:
        yield running


def _create(server: Headwater, name: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, 1, config=settings)])[name].result(30)


def _produce(
    server: Headwater, topic: str, records: list[tuple[str, str | None]], timestamp: int = 0
) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for key, value in records:
        producer.produce(topic, value, key, **({"timestamp": timestamp} if timestamp else {}))
    assert producer.flush(30) == 0


def _start(server: Headwater, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "look"})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    consumer.close()
    return int(low)


def _read(server: Headwater, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "look", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def _settled_start(server: Headwater, topic: str) -> int:
    """Where the topic starts, once retention has taken what it takes."""
    _until(lambda: _start(server, topic) > 0)
    start = -1
    while start != (start := _start(server, topic)):
        time.sleep(1)
    return start


def _until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


def test_segments_leave_by_size_and_the_rest_stays_readable(
    server: Headwater, unique: Callable[..., str]
) -> None:
    topic = unique()
    _create(server, topic, segment_bytes="2000", retention_bytes="6000")
    _produce(server, topic, [(str(number), "x" * 200) for number in range(100)])
    start = _settled_start(server, topic)
    found = _read(server, topic)
    assert [offset for offset, _, _ in found] == list(range(start, 100))
    assert server.data is not None
    assert sum(path.stat().st_size for path in (server.data / f"{topic}-0").glob("*.log")) < 8500


def test_segments_leave_by_age_into_the_archive(
    server: Headwater, unique: Callable[..., str], tmp_path: Path
) -> None:
    topic, archive = unique(), tmp_path / "archive"
    _create(server, topic, segment_bytes="2000", retention_ms="3600000", headwater_archive_dir=str(archive))
    yesterday = int(time.time() * 1000) - 86_400_000
    _produce(server, topic, [(str(number), "old" * 70) for number in range(20)], timestamp=yesterday)
    _produce(server, topic, [(str(number), "new" * 70) for number in range(20)])
    start = _settled_start(server, topic)
    assert 10 <= start <= 20
    assert [offset for offset, _, _ in _read(server, topic)] == list(range(start, 40))
    _until(lambda: len(list((archive / f"{topic}-0").glob("*.log"))) >= 1)
    archived = sorted(int(path.stem) for path in (archive / f"{topic}-0").glob("*.log"))
    assert archived[0] == 0
    assert archived[-1] < start


def test_compaction_keeps_the_last_of_each_key_at_its_offset(
    server: Headwater, unique: Callable[..., str]
) -> None:
    topic = unique()
    _create(
        server, topic, cleanup_policy="compact", segment_bytes="3000", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="3600000",
    )  # fmt: skip
    records: list[tuple[str, str | None]] = [(f"key-{number % 7}", f"{number}" * 20) for number in range(200)]
    records[150] = ("gone", "was here")
    records[160] = ("gone", None)
    _produce(server, topic, records)
    last = {key.encode(): (offset, key, value) for offset, (key, value) in enumerate(records)}
    _until(lambda: len(_read(server, topic)) < 60)
    found = _read(server, topic)
    assert {key: (offset, key.decode(), value and value.decode()) for offset, key, value in found} == last
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))


def test_a_start_does_not_read_all_commits_that_ever_were(tmp_path: Path) -> None:
    """The journal of an earlier version as well, whose active segment grew to 100 MB."""
    data = tmp_path / "data"
    directory = DataDirectory(data)
    directory.create_topic("t", 10)
    former = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    journal = directory.create_topic(OFFSETS_TOPIC, 1, former).partitions[0]
    for number in range(3000):
        key, value = encode((OffsetKey("g", "t", number % 10), OffsetValue(number, -1, "x" * 1000, now_ms())))
        batch = build_batch([(key, value, (), now_ms())])
        journal.append(batch, read_header(batch), now_ms())
    directory.close()
    arguments = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    files = data / f"{OFFSETS_TOPIC}-0"
    with Headwater(data, arguments=arguments) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("t", 1, 5000)], asynchronous=False)
        _until(lambda: sum(path.stat().st_size for path in files.glob("*.log")) < 100_000)
        server.stop()
        server.start()
        asked = [TopicPartition("t", number) for number in range(10)]
        assert [each.offset for each in consumer.committed(asked, 30)] == [2990, 5000, *range(2992, 3000)]
        consumer.close()


def test_silent_connections_are_closed_and_busy_ones_are_not(server: Headwater) -> None:
    with WireClient(server.port) as silent, WireClient(server.port) as busy:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert busy.call("metadata", 8, topics=[])["brokers"]
            time.sleep(0.3)
        assert silent.is_closed_by_peer()
        assert busy.call("metadata", 8, topics=[])["brokers"]
