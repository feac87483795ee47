"""kcat, the command line of librdkafka, as Debian has it: an older librdkafka than confluent-kafka's."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.clients.matrix import CODECS
from tests.clients.peer import Peer
from tests.clients.records import START, Record, numbered
from tests.clients.waiting import until
from tests.support.packages import require

Topics = Callable[..., str]
Name = Callable[[str], str]


@pytest.fixture
def kcat(bootstrap: str) -> Callable[..., str]:
    """Run kcat with these arguments; what it printed."""

    def run(*arguments: str, stdin: str | bytes = b"", timeout: float = 40) -> str:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        command = [require("kcat"), "-b", bootstrap, *arguments]
        result = subprocess.run(command, input=given, capture_output=True, timeout=timeout, check=False)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.decode()

    return run


@contextmanager
def running(*command: str) -> Iterator["subprocess.Popen[str]"]:
    """A kcat that runs beside the test; killed at its end when it has not ended."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(
    kcat: Callable[..., str], reference: Peer, make_topic: Topics, codec: str
) -> None:
    topic = make_topic(partitions=2)
    lines = "".join(f"key{i}:value {i} ✓\n" for i in range(200))
    options = ["-X", "enable.idempotence=true", "-X", "acks=all", "-z", codec]
    kcat("-P", "-t", topic, "-p", "1", "-K", ":", "-H", "source=kcat", "-H", "empty=", *options, stdin=lines)
    read = reference.read(topic, last={1: 199})
    headers = (("source", b"kcat"), ("empty", b""))
    got = [(one.offset, one.key, one.value, one.headers) for one in read]
    assert got == [(i, f"key{i}".encode(), f"value {i} ✓".encode(), headers) for i in range(200)]
    printed = kcat("-C", "-t", topic, "-p", "1", "-o", "beginning", "-e", "-q", "-f", "%o %k %s %h %T\n")
    assert printed.splitlines() == [
        f"{i} key{i} value {i} ✓ source=kcat,empty= {read[i].timestamp}" for i in range(200)
    ]


def test_null_keys_and_values(kcat: Callable[..., str], reference: Peer, make_topic: Topics) -> None:
    topic = make_topic()
    kcat("-P", "-t", topic, "-p", "0", "-Z", "-K", ":", stdin="a:\n:b\nc:d\n")
    read = reference.read(topic, last={0: 2})
    assert [(one.key, one.value) for one in read] == [(b"a", None), (None, b"b"), (b"c", b"d")]
    lines = kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()
    found = [(one["offset"], one["key"], one["payload"]) for one in map(json.loads, lines)]
    assert found == [(0, "a", None), (1, None, "b"), (2, "c", "d")]


def test_offsets_from_the_end_and_by_time(
    kcat: Callable[..., str], reference: Peer, make_topic: Topics
) -> None:
    topic = make_topic()
    reference.produce(topic, [Record(None, str(i).encode(), (), START + 1000 * i) for i in range(10)])
    consume = ["-C", "-t", topic, "-p", "0", "-e", "-q"]
    assert kcat(*consume, "-o", "-3").split() == ["7", "8", "9"]
    assert kcat(*consume, "-o", "4", "-c", "2").split() == ["4", "5"]
    assert kcat(*consume, "-o", f"s@{START + 2500}", "-o", f"e@{START + 6000}").split() == ["3", "4", "5"]
    for asked, offset in {START + 2500: 3, -1: 10, -2: 0}.items():
        assert kcat("-Q", "-t", f"{topic}:0:{asked}").split() == [topic, "[0]", "offset", str(offset)]


def test_metadata(kcat: Callable[..., str], bootstrap: str, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    found = json.loads(kcat("-L", "-J", "-t", topic))
    (broker,) = found["brokers"]
    assert broker["name"] == bootstrap
    (described,) = found["topics"]
    assert described["topic"] == topic
    only = [{"id": broker["id"]}]
    assert described["partitions"] == [
        {"partition": p, "leader": broker["id"], "replicas": only, "isrs": only} for p in (0, 1)
    ]


def test_a_transaction(kcat: Callable[..., str], reference: Peer, make_topic: Topics, unique: Name) -> None:
    topic = make_topic()
    kcat("-P", "-t", topic, "-p", "0", "-X", f"transactional.id={unique('id')}", stdin="a\nb\n")
    assert [one.value for one in reference.read(topic, last={0: 1}, isolation="read_committed")] == [
        b"a",
        b"b",
    ]
    # A marker stands behind them.
    assert [one.offset for one in reference.produce(topic, numbered(1))] == [3]


def test_a_group_shares_and_takes_over(
    bootstrap: str, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    command = [require("kcat"), "-b", bootstrap, "-u", "-q", "-f", "%p %o %s\n"]
    command += [
        "-X",
        "session.timeout.ms=3000",
        "-X",
        "heartbeat.interval.ms=300",
        "-X",
        "auto.offset.reset=earliest",
    ]

    def held() -> list[int]:
        described = admin_group(reference, group)
        return sorted(described)

    with running(*command, "-G", group, topic) as first:
        until(held, lambda counts: counts == [4], "one member has all", timeout=40)
        sent = reference.produce(topic, numbered(20, 4))
        with running(*command, "-G", group, topic) as second:
            until(held, lambda counts: counts == [2, 2], "two members share")
            sent += reference.produce(topic, numbered(20, 4, prefix="later "))
            ends = dict.fromkeys(range(4), 10)
            # kcat commits every five seconds what it has printed.
            until(
                lambda: reference.committed(group, topic, ends), lambda seen: seen == ends, "both committed"
            )
            second.kill()
            printed = second.communicate()[0]
        until(held, lambda counts: counts == [4], "the first has all again")
        sent += reference.produce(topic, numbered(20, 4, prefix="last "))
        ends = dict.fromkeys(range(4), 15)
        until(lambda: reference.committed(group, topic, ends), lambda seen: seen == ends, "all is committed")
        first.send_signal(signal.SIGTERM)
        printed += first.communicate(timeout=20)[0]
    lines = sorted(printed.splitlines())
    assert lines == sorted(f"{one.partition} {one.offset} {(one.value or b'').decode()}" for one in sent)
    until(held, lambda counts: counts == [], "the group is empty")


def admin_group(reference: Peer, group: str) -> list[int]:
    """How many partitions each member of the group holds."""
    held: list[int] = reference.ask("group", group=group)["held"]
    return held


def test_a_waiting_fetch_is_answered_when_a_record_comes(
    bootstrap: str, reference: Peer, make_topic: Topics
) -> None:
    topic = make_topic()
    command = [require("kcat"), "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "1"]
    with running(*command, "-q", "-X", "fetch.wait.max.ms=15000") as waiting:
        time.sleep(1)  # it has sent its fetch by then
        started = time.monotonic()
        reference.produce(topic, [Record(b"k", b"v")])
        assert waiting.communicate(timeout=20)[0] == "v\n"
        assert time.monotonic() - started < 5
