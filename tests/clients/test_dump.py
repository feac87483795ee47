"""Kafka's dump tool reads every file of our partitions and finds no fault, and in them what was written."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clients.conftest import make_server
from tests.clients.matrix import CODECS, CONFLUENT
from tests.clients.peer import Peer
from tests.clients.records import START, Record, null_header, samples
from tests.clients.tools import Tools
from tests.clients.waiting import until
from tests.support.servers import Server

SEGMENT = 1 << 20  # the smallest that Kafka takes
KINDS = ("log", "index", "timeindex", "txnindex", "snapshot")
GAPS = "non-consecutive offsets"  # as they are after compaction
FAULTS = ("mismatch", GAPS, "out of order", "corrupt", "isvalid: false", "exception", "error")


class Written:
    """What was sent to each topic, with its offsets, and the broker that has stored it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sent: dict[str, list[Record]] = {}

    def folder(self, topic: str) -> Path:
        return self.server.data / f"{topic}-0"


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    """A broker that has written topics of every kind, and is down."""
    with make_server() as server:
        written = Written(server)
        with Peer("confluent-kafka", CONFLUENT.command(), server.bootstrap) as client:
            for codec in CODECS:
                write_codec(client, written, codec)
            write_shapes(client, written)
            write_transactions(client, written)
            write_compacted(client, written)
        assert server.stop() in (0, 143)  # Apache Kafka ends with the number of the signal
        yield written


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    tools = Tools("unused")
    yield tools
    tools.close()


def bulky(count: int, keys: int, first: int = 0) -> list[Record]:
    """Records that fill segments: they compress, but not to less than 20 kB each."""
    noise = random.Random(first)
    return [
        Record(f"key {i % keys}".encode(), noise.randbytes(20_000) + bytes(4_000), (), START + i)
        for i in range(first, first + count)
    ]


def write_codec(client: Peer, written: Written, codec: str) -> None:
    topic = f"codec-{codec}"
    client.ask("create_topic", topic=topic, partitions=1, config={"segment.bytes": str(SEGMENT)})
    written.sent[topic] = [
        one
        for first in range(0, 160, 8)  # in many batches, for there is at most one index entry a batch
        for one in client.produce(topic, bulky(8, keys=160, first=first), codec=codec)
    ]


def write_shapes(client: Peer, written: Written) -> None:
    client.ask("create_topic", topic="shapes", partitions=1, config={})
    written.sent["shapes"] = client.produce("shapes", [*samples(), null_header()])


ENDS = ["abort" if number % 3 == 1 else "commit" for number in range(8)]


def write_transactions(client: Peer, written: Written) -> None:
    topic = "transactions"
    client.ask("create_topic", topic=topic, partitions=1, config={"segment.bytes": str(SEGMENT)})
    client.txn_open("dumped")
    sent = []
    for number, end in enumerate(ENDS):
        client.ask("txn_begin")
        sent += client.txn_send(topic, bulky(12, keys=100, first=number * 12))
        client.ask(f"txn_{end}")
    client.txn_open("another")
    client.ask("txn_begin")
    sent += client.txn_send(topic, [Record(b"open", b"transaction")])
    written.sent[topic] = sent


def write_compacted(client: Peer, written: Written) -> None:
    topic = "compacted"
    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT), "min.cleanable.dirty.ratio": "0.01"}
    client.ask("create_topic", topic=topic, partitions=1, config=config)
    sent = []
    for first in range(0, 200, 20):
        sent += client.produce(topic, bulky(20, keys=7, first=first), codec="lz4")
    sent += client.produce(topic, [Record(b"key 3", None)], idempotent=True)
    sent += client.produce(topic, bulky(60, keys=2, first=200), idempotent=True)
    written.sent[topic] = sent

    def size() -> int:
        return sum(file.stat().st_size for file in written.folder(topic).glob("*.log"))

    until(size, lambda size: size < 1.2 * SEGMENT, "the log is compacted")
    # Its first records are gone, but the log still starts where it did.
    assert client.ask("offset_at", topic=topic, partition=0, timestamp=-2) == 0
    assert client.ask("offset_at", topic=topic, partition=0, timestamp=-1) == len(sent)


class Dump:
    """What the tool printed of one partition."""

    def __init__(self, tools: Tools, folder: Path, gaps: bool = False) -> None:
        self.files = sorted(file for file in folder.iterdir() if file.suffix[1:] in KINDS)
        self.names = [file.name for file in self.files]
        printed = tools.main(
            "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log",
            "--files", ",".join(map(str, self.files)),
        )  # fmt: skip
        self.text = printed.out
        said = (printed.out + printed.err).lower()
        faults = [fault for fault in FAULTS if fault in said]
        assert faults == [] or (gaps and faults == [GAPS]), printed.out[-3000:] + printed.err
        for file in self.files:
            if file.suffix in (".index", ".timeindex") and file.stat().st_size:
                check = ["--index-sanity-check", "--files", str(file)]
                assert f"{file} passed sanity check." in tools.main("kafka.tools.DumpLogSegments", *check).out

    @property
    def segments(self) -> int:
        return sum(name.endswith(".log") for name in self.names)

    def batches(self) -> list[dict[str, str]]:
        """The headers of the batches, in the order of the log."""
        lines = [line for line in self.text.splitlines() if line.startswith("baseOffset: ")]
        return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]

    def records(self) -> list[tuple[int, int, str | None, int]]:
        """Offset, timestamp, key and size of the value of each record but markers."""
        pattern = (
            r"\| offset: (\d+) CreateTime: (\d+) keySize: -?\d+ valueSize: (-?\d+) "
            r".*headerKeys: \[.*?\](?: key: (.*?))?(?: payload: .*)?$"
        )
        found = []
        for line in self.text.splitlines():
            match = re.match(pattern, line)
            if match and "endTxnMarker" not in line:
                found.append((int(match[1]), int(match[2]), match[4], int(match[3])))
        return found


def expected(records: Sequence[Record]) -> list[tuple[int, int, str | None, int]]:
    return [
        (
            one.offset or 0,
            one.timestamp,
            (one.key or b"").decode(),
            -1 if one.value is None else len(one.value),
        )
        for one in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_over_several_segments(tools: Tools, written: Written, codec: str) -> None:
    topic = f"codec-{codec}"
    dump = Dump(tools, written.folder(topic))
    assert dump.segments >= 3
    assert {batch["compresscodec"] for batch in dump.batches()} == {codec}
    assert {batch["isvalid"] for batch in dump.batches()} == {"true"}
    assert dump.records() == expected(written.sent[topic])
    assert len(re.findall(r"^offset: \d+ position: \d+$", dump.text, re.MULTILINE)) >= dump.segments
    times = [int(time) for time in re.findall(r"^timestamp: (\d+) offset: \d+$", dump.text, re.MULTILINE)]
    assert START + 159 in times and times == sorted(times)


def test_records_of_every_shape(tools: Tools, written: Written) -> None:
    dump = Dump(tools, written.folder("shapes"))
    offsets = re.findall(r"^\| offset: (\d+) ", dump.text, re.MULTILINE)
    assert [int(offset) for offset in offsets] == [one.offset for one in written.sent["shapes"]]


def test_transactions(tools: Tools, written: Written) -> None:
    dump = Dump(tools, written.folder("transactions"))
    assert dump.segments >= 2
    assert dump.records() == expected(written.sent["transactions"])
    assert re.findall(r"endTxnMarker: (\w+)", dump.text) == [end.upper() for end in ENDS]
    # The transaction index names each aborted range: its first offset and that of its marker.
    entry = r"producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: \d+"
    aborted = [(int(first), int(last)) for first, last in re.findall(entry, dump.text)]
    assert aborted == [(i * 13, i * 13 + 12) for i, end in enumerate(ENDS) if end == "abort"]
    # The newest snapshot of the producers knows both, and that one has a transaction under way.
    snapshot = dump.text[dump.text.rindex(".snapshot") :]
    entries = re.findall(r"^producerId: (\d+) .*currentTxnFirstOffset: (\S+)", snapshot, re.MULTILINE)
    firsts = list(dict(entries).values())  # the last entry of each producer
    assert firsts == ["OptionalLong.empty", f"OptionalLong[{len(ENDS) * 13}]"], snapshot


def test_a_compacted_log(tools: Tools, written: Written) -> None:
    sent = written.sent["compacted"]
    dump = Dump(tools, written.folder("compacted"), gaps=True)
    left = dump.records()
    by_offset = {one.offset: one for one in sent}
    assert left == expected([by_offset[offset] for offset, _, _, _ in left])
    last = {one.key: one.offset for one in sent}
    assert set(last.values()) <= {offset for offset, _, _, _ in left}
    assert len(left) < 50


def test_the_broker_goes_on_with_its_files(written: Written) -> None:
    """What was dumped is served as before: the tool and we agree on what it holds."""
    written.server.start()
    with Peer("confluent-kafka", CONFLUENT.command(), written.server.bootstrap) as client:
        for codec in CODECS:
            topic = f"codec-{codec}"
            assert client.read(topic, last={0: 159}) == written.sent[topic]
        assert client.read("shapes", last={0: 16}) == written.sent["shapes"]
        kept = [one for one in written.sent["transactions"][:-1] if ENDS[(one.offset or 0) // 13] == "commit"]
        last = {0: kept[-1].offset or 0}
        assert client.read("transactions", last=last, isolation="read_committed") == kept
        assert [one.offset for one in client.produce("shapes", [Record(b"k", b"v")])] == [17]
