"""Kafka Streams, exactly once: no word is lost or counted twice, whatever ends the application."""

import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients import jvm
from tests.clients.peer import Peer
from tests.clients.records import START, Record
from tests.clients.waiting import until
from tests.support.jars import KAFKA_VERSION

pytestmark = pytest.mark.wide

STREAMS = (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", "org.rocksdb:rocksdbjni:9.7.3")
LINES = [
    "All streams lead to Kafka",
    "hello kafka streams",
    "a river is a stream of water",
    "a log is a river",
]


@contextmanager
def application(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The word count at work; closed at the end, unless it was killed."""
    command = [*jvm.program("WordCount", extra=STREAMS), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None and process.stdin is not None:
                process.stdin.close()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def test_word_count_with_a_kill(
    bootstrap: str,
    reference: Peer,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    source, target = make_topic(partitions=2, purpose="source"), make_topic(partitions=2, purpose="target")
    id = unique("word-count")
    said: Counter[str] = Counter()

    def say(times: int) -> None:
        lines = [LINES[i % len(LINES)] for i in range(times)]
        reference.produce(
            source, [Record(None, one.encode(), (), START, i % 2) for i, one in enumerate(lines)]
        )
        said.update(word for line in lines for word in line.lower().split())

    def counted() -> dict[str, list[int]]:
        """Every count that was committed, by word, as they follow each other."""
        ends = {p: reference.ask("offset_at", topic=target, partition=p, timestamp=-1) - 1 for p in (0, 1)}
        counts: dict[str, list[int]] = defaultdict(list)
        asked = {p: end for p, end in ends.items() if end >= 0}
        if asked:
            for one in reference.read(target, last=asked, isolation="read_committed", quiet_ms=500):
                counts[(one.key or b"").decode()].append(int(one.value or b"0"))
        return counts

    def expected() -> dict[str, list[int]]:
        return {word: list(range(1, count + 1)) for word, count in said.items()}

    arguments = (bootstrap, id, source, target)
    with application(*arguments, str(tmp_path / "first")) as first:
        say(8)
        until(counted, lambda seen: seen == expected(), "the words are counted", timeout=60)
        say(40)
        first.kill()  # in the middle of its transactions
    # A new instance without the old one's state folder: the counts come back from the changelog.
    with application(*arguments, str(tmp_path / "second")):
        say(8)
        until(counted, lambda seen: seen == expected(), "the words are counted once", timeout=60)
    topics = reference.ask("topics")
    assert {f"{id}-counts-changelog", f"{id}-counts-repartition"} <= set(topics)
    assert reference.ask("config", topic=f"{id}-counts-changelog")["cleanup.policy"] == "compact"
    repartitioned = f"{id}-counts-repartition"
    # Streams deletes what it has read of its own topic.
    ends = {p: reference.ask("offset_at", topic=repartitioned, partition=p, timestamp=-1) for p in (0, 1)}
    assert all(end > 0 for end in ends.values())
