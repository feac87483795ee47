"""Bad input: the protocol's own error or a closed connection, one line in the log, and the broker goes on.

Faults of batches, settings and names have their scripts in tests/broker/conformance; here are those that
Kafka treats in its own way, or that are about what the broker must survive.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from headwater.broker.connection import RECEIVE_BUFFER
from headwater.log.batch import assemble
from headwater.log.compression import GZIP, LZ4, ZSTD, compress
from headwater.log.records import encode_record
from tests.broker.conformance.script import Run, batch
from tests.broker.wire_client import API_KEYS, Answer, Closed, WireClient, encode_request
from tests.support.servers import Headwater

MEGABYTE = 1 << 20
NO_ID = struct.pack(">h", -1)


@pytest.fixture(scope="module")
def server() -> Iterator[Headwater]:
    with Headwater(environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        yield server
        assert "Traceback" not in server.output()


@contextmanager
def one_line(server: Headwater, about: str) -> Iterator[None]:
    """What happens inside is worth one line of the log, which says what it is about."""
    before = len(server.output().splitlines())
    yield
    for _ in range(100):
        lines = server.output().splitlines()[before:]
        if lines:
            break
        time.sleep(0.02)
    time.sleep(0.05)
    lines = server.output().splitlines()[before:]
    assert len(lines) == 1, lines
    assert about in lines[0], lines[0]


def assert_serves(server: Headwater) -> None:
    with WireClient(server.port, timeout=10) as client:
        assert client.call("metadata", 4, topics=[])["brokers"]


def header(api: str, version: int, client_id: bytes = NO_ID) -> bytes:
    return struct.pack(">hhi", API_KEYS[api], version, 7) + client_id


# -- frames ------------------------------------------------------------------------------------------------


FRAMES: dict[str, tuple[bytes, str]] = {
    "text": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "1195725856 bytes"),
    "a handshake of TLS": (bytes.fromhex("160301020001000001fc0303") + b"\1" * 32, "369295618 bytes"),
    "two gigabytes": (struct.pack(">i", 2**31 - 1) + b"\0" * 100, "2147483647 bytes"),
    "a negative size": (struct.pack(">i", -1) + b"\0" * 100, "-1 bytes"),
    "the smallest size": (struct.pack(">i", -(2**31)) + b"\0" * 100, "-2147483648 bytes"),
    "nothing": (struct.pack(">i", 0), "0 bytes"),
    "less than a header": (struct.pack(">i", 4) + b"\0" * 4, "4 bytes"),
    "more than the limit": (struct.pack(">i", 100 * MEGABYTE + 1) + b"\0" * 8, "104857601 bytes"),
    "garbage of a good size": (struct.pack(">i", 50) + b"\xab" * 50, "unknown API"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_are_none_end_their_connection(name: str, server: Headwater) -> None:
    content, about = FRAMES[name]
    with one_line(server, about), WireClient(server.port) as client:
        client.send_bytes(content)
        assert client.is_closed_by_peer()
    assert_serves(server)


@pytest.mark.parametrize(
    ("content", "about"),
    [
        (header("metadata", 4, struct.pack(">h", 100) + b"short"), "client id of 100 bytes"),
        (header("metadata", 4, struct.pack(">h", 2) + b"\xff\xfe") + b"\0\0\0\0\0", "not UTF-8"),
        (header("metadata", 4), "MetadataRequest"),
        (header("metadata", 4) + struct.pack(">i", 2**31 - 1), "2147483647 elements"),
        (header("metadata", 4) + struct.pack(">ih", 1, -1), "MetadataRequest"),
        (header("metadata", 4) + struct.pack(">ih", 1, 3) + b"\xff\xff\xff\0", "MetadataRequest"),
        (header("metadata", 12) + b"\0" + b"\xff\xff\xff\xff\x0f", "elements"),
        (header("metadata", 12) + b"\xff\xff\xff\xff\xff\xff", "varint"),
        (header("create_topics", 2) + struct.pack(">i", -1) + b"\0" * 5, "null in the place of topics"),
        (header("heartbeat", 0) + struct.pack(">h", -1) + b"\0" * 20, "HeartbeatRequest"),
        (header("produce", 3) + struct.pack(">hhii", -1, -1, 100, 2**31 - 1), "malformed Produce"),
        (
            header("produce", 9) + b"\0\0" + struct.pack(">hi", -1, 100) + b"\xff\xff\xff\xff\x0f",
            "malformed Produce",
        ),
        (header("fetch", 4) + struct.pack(">iiiibi", -1, 0, 0, 0, 0, 2**31 - 1), "2147483647 elements"),
        (header("list_offsets", 1) + struct.pack(">ii", -1, 1) + b"\0\x05abc", "ListOffsetsRequest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_requests_that_are_none_end_their_connection(content: bytes, about: str, server: Headwater) -> None:
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with one_line(server, about), WireClient(server.port) as client:
        client.send_frame(content)
        assert client.is_closed_by_peer()
    assert process.memory_info().rss - before < 50 * MEGABYTE
    assert_serves(server)


def test_a_claimed_count_costs_nothing_in_any_api(server: Headwater) -> None:
    """Every array that a request can begin with, claimed to have two billion elements."""
    with WireClient(server.port) as client:
        offered = client.call("api_versions", 0)["api_keys"]
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    names = {key: name for name, key in API_KEYS.items()}
    for api in offered:
        for version in {max(api["min_version"], 3 if api["api_key"] == 0 else 0), api["max_version"]}:
            head = header(names[api["api_key"]], version)
            for claim in (
                struct.pack(">i", 2**31 - 1) * 20,
                b"\0" + b"\xff\xff\xff\xff\x07" * 20,
                b"\x7f" * 60,
            ):
                with WireClient(server.port, timeout=5) as client:
                    client.send_frame(head + claim)
                    try:
                        client.receive_frame()
                    except (Closed, TimeoutError):
                        pass
    assert process.memory_info().rss - before < 100 * MEGABYTE
    assert_serves(server)


def test_a_client_that_never_finishes_its_frame_holds_up_nobody(server: Headwater) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(struct.pack(">i", 90 * MEGABYTE) + b"\0" * 1000)
        assert_serves(server)
        assert psutil.Process(server.pid).memory_info().rss < 300 * MEGABYTE


def test_frames_that_are_never_finished_cost_little_more_than_what_came(server: Headwater) -> None:
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    with ExitStack() as held:
        for _ in range(300):
            slow = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            slow.sendall(struct.pack(">i", 90 * MEGABYTE) + b"\0" * 20_000)
        assert_serves(server)
        assert process.memory_info().rss - before < 300 * 200_000


def test_a_client_that_does_not_read_is_not_read_from(server: Headwater) -> None:
    """Responses that nobody fetches must not pile up in memory."""
    process = psutil.Process(server.pid)
    run = Run(server.port)
    topic = run.topic()
    run.produce("some", 9, topic, batch("x" * 900_000))
    before = process.memory_info().rss
    request = encode_request(
        "fetch",
        4,
        1,
        "greedy",
        {
            "replica_id": -1,
            "max_bytes": 50 * MEGABYTE,
            "topics": [
                {"topic": topic, "partitions": [{"partition": 0, "partition_max_bytes": 50 * MEGABYTE}]}
            ],
        },
    )
    frame = struct.pack(">i", len(request)) + request
    with socket.create_connection(("127.0.0.1", server.port)) as greedy:
        greedy.setblocking(False)
        for _ in range(2000):
            try:
                greedy.sendall(frame)
            except BlockingIOError:
                break
        time.sleep(0.5)
        assert_serves(server)
        assert process.memory_info().rss - before < 100 * MEGABYTE
    run.close()


class FewFiles(Headwater):
    """A broker that may open few files, connections among them."""

    def command(self) -> Sequence[str]:
        return ["bash", "-c", 'ulimit -n 200; exec "$@"', "bash", *super().command()]


def test_connections_leave_files_to_the_log() -> None:
    """However many there are: those that came before are served, and so are others when there is room."""
    with FewFiles() as server, ExitStack() as held:
        run = Run(server.port)
        run.topic()
        for _ in range(250):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        while "ulimit -n" not in server.output():
            time.sleep(0.02)
        for number in range(5):
            run.produce("some", 9, run.topic(f"new-{number}"), batch("x"))
        run.close()
        held.close()
        time.sleep(0.2)
        assert_serves(server)
        assert server.output().count("refused") == 1


# -- requests that ask for too much ------------------------------------------------------------------------


def timed(server: Headwater, work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    assert_serves(server)
    return time.monotonic() - started


def test_settings_asked_for_a_thousand_times_over(server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}] * 2_000
    answer = run.ask("describe_configs", 1, resources=asked)
    assert len(answer["results"]) == 2_000
    assert process.memory_info().rss - before < 200 * MEGABYTE
    run.close()
    assert_serves(server)


def test_topics_made_by_asking_are_not_made_by_the_thousand(server: Headwater) -> None:
    run = Run(server.port)
    names = [{"name": run.name(f"asked-{number}")} for number in range(5000)]
    answer = run.ask("metadata", 4, topics=names, allow_auto_topic_creation=True)
    assert len(answer["topics"]) == 5000
    made = [topic for topic in answer["topics"] if topic["error_code"] == "none"]
    assert 0 < len(made) <= 200
    assert {topic["error_code"] for topic in answer["topics"]} == {"none", "leader_not_available"}
    for topic in made:
        run.ask("delete_topics", 1, topic_names=[topic["name"]], timeout=1000)
    run.close()


def test_many_partitions_asked_for_at_once(server: Headwater) -> None:
    """Tens of thousands of entries in one request: slow for who asks, not for others."""
    run = Run(server.port)
    topic = run.topic()
    wanted = [{"partition_index": number, "timestamp": -1} for number in range(20_000)]
    with WireClient(server.port, timeout=60) as client:
        client.send("list_offsets", 1, replica_id=-1, topics=[{"name": topic, "partitions": wanted}])
        started = time.monotonic()
        assert_serves(server)
        assert time.monotonic() - started < 5
        answer = client.receive("list_offsets", 1)
    codes = {partition["error_code"] for partition in answer["topics"][0]["partitions"]}
    assert codes == {"none", "unknown_topic_or_partition"}
    run.close()


# -- bombs -------------------------------------------------------------------------------------------------


def bomb(codec: int, size: int) -> bytes:
    """A small batch that is large when opened."""
    return assemble(
        compress(codec, b"\0" * size), record_count=1, attributes=codec, base_timestamp=1, max_timestamp=1
    )


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
@pytest.mark.parametrize("kind", ["compacted", "uncompressed"])
def test_a_bomb_is_refused_at_little_cost(codec: int, kind: str, server: Headwater) -> None:
    run = Run(server.port)
    compacted = kind == "compacted"
    topic = run.topic(cleanup_policy="compact") if compacted else run.topic(compression_type="uncompressed")
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    records = bomb(codec, 200 * MEGABYTE)
    assert len(records) < MEGABYTE
    for _ in range(3):
        found = _produced(run.produce("bomb", 9, topic, records))
        assert found["error_code"] == "invalid_record", found
    assert process.memory_info().rss - before < 100 * MEGABYTE
    assert _produced(run.produce("fine", 9, topic, batch("x", codec=codec)))["error_code"] == "none"
    run.close()


def test_a_batch_of_millions_of_records_holds_up_nobody_else(server: Headwater) -> None:
    """It is slow to look into, on a topic that must: others are served meanwhile."""
    run = Run(server.port)
    topic = run.topic(cleanup_policy="compact")
    count = 3_000_000
    # Every record is wrong in the same way: no key. The broker stops at the first hundred of them.
    records = assemble(
        compress(ZSTD, encode_record(0, 0, None, b"") * count),
        record_count=count,
        attributes=ZSTD,
        base_timestamp=1,
        max_timestamp=1,
    )
    started = time.monotonic()
    found = _produced(run.produce("millions", 9, topic, records))
    assert found["error_code"] == "invalid_record"
    assert time.monotonic() - started < 10
    run.close()


def _produced(answer: Answer) -> Answer:
    found: Answer = answer["responses"][0]["partition_responses"][0]
    return found


def test_a_batch_that_takes_seconds_to_open_is_opened_beside_the_others(server: Headwater) -> None:
    run = Run(server.port)
    topic, other = run.topic(cleanup_policy="compact"), run.topic("other")
    count = 800_000
    piece = b"".join(encode_record(number, 0, b"k", b"") for number in range(count))
    records = assemble(
        compress(ZSTD, piece), record_count=count, attributes=ZSTD, base_timestamp=1, max_timestamp=1
    )
    assert len(records) < MEGABYTE
    with WireClient(server.port, timeout=120) as client:
        client.send(
            "produce",
            9,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
        )
        worst = 0.0
        for number in range(50):
            started = time.monotonic()
            assert _produced(run.produce(str(number), 9, other, batch("x")))["error_code"] == "none"
            worst = max(worst, time.monotonic() - started)
        assert worst < 1, f"a client waited {worst:.1f} s for another's batch"
        answer = client.receive("produce", 9)
    assert _produced(answer)["error_code"] == "none"
    run.close()


def test_large_requests_that_wait_for_their_turn_are_not_all_taken_into_memory(server: Headwater) -> None:
    """The first has the connection to itself while it waits; what follows stays with the client."""
    topic = Run(server.port).topic()
    process = psutil.Process(server.pid)
    frame = header("metadata", 4) + bytes(30 * MEGABYTE)
    before = process.memory_info().rss
    with WireClient(server.port) as client:
        client.send(
            "fetch",
            4,
            max_wait=20_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[
                {
                    "topic": topic,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
                }
            ],
        )
        sender = threading.Thread(target=_send_until_closed, args=(client, frame, 8), daemon=True)
        sender.start()
        most = 0
        for _ in range(20):
            time.sleep(0.1)
            most = max(most, process.memory_info().rss - before)
        assert most < 100 * MEGABYTE, f"{most >> 20} MB"
    assert_serves(server)


@pytest.mark.parametrize("length", [32_767, 32_768])
def test_a_transactional_id_for_which_the_journal_has_no_room(length: int, server: Headwater) -> None:
    with WireClient(server.port) as client:
        answer = client.call(
            "init_producer_id",
            4,
            transactional_id="x" * length,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
    assert answer["error_code"] == ("none" if length == 32_767 else "invalid_request")


def test_many_small_requests_wait_for_their_turn(server: Headwater) -> None:
    """A producer that waits for no answer looks for leaders meanwhile. What was answered at once led into the
    next request, each some calls deeper, until there was no room for more of them."""
    records = batch("x")
    data = [{"name": "q", "partition_data": [{"index": 0, "records": records}]}]
    fields = {"acks": 1, "timeout": 9000, "topic_data": data}
    count = RECEIVE_BUFFER // len(encode_request("produce", 3, 0, None, fields)) - 10
    with WireClient(server.port) as client:
        client.call("metadata", 4, topics=[{"name": "q"}], allow_auto_topic_creation=True)
        frames = [encode_request("metadata", 4, 0, None, {"topics": None})]
        frames += [encode_request("produce", 3, number, None, fields) for number in range(count)]
        client.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        client.receive("metadata", 4)
        answers = [_produced(client.receive("produce", 3)) for _ in range(count)]
    assert [answer["base_offset"] for answer in answers] == list(range(count))


def _send_until_closed(client: WireClient, frame: bytes, times: int) -> None:
    with contextlib.suppress(OSError):
        for _ in range(times):
            client.send_bytes(struct.pack(">i", len(frame)) + frame)
