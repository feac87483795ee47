"""`headwater produce`: every line becomes a record or is accounted for."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PROGRAM, Headwater, run
from tests.support.servers import Server

SUMMARY = re.compile(r"([\d,]+) records?, ([\d,]+) bytes to \S+ in [\d.]+ s \([\d,]+ records/s\)")


@pytest.fixture
def read(hw: Headwater, topic: str) -> Callable[..., list[dict[str, object]]]:
    """All records of the topic, as objects of `consume --json`."""

    def read(*arguments: str) -> list[dict[str, object]]:
        return hw("consume", topic, "--from-beginning", "--exit", "--json", *arguments).objects

    return read


Read = Callable[..., list[dict[str, object]]]


@pytest.fixture(autouse=True)
def created(hw: Headwater, topic: str) -> None:
    # Some records have timestamps that retention would not keep for long.
    hw("topics", "create", topic, "--config", "retention.ms=-1")


def test_lines_become_values(hw: Headwater, topic: str, read: Read) -> None:
    result = hw("produce", topic, input="one\n\n  three \nfour")
    summary = SUMMARY.fullmatch(result.err.strip())
    assert summary and summary.groups() == ("4", "15") and result.out == ""
    assert [(record["key"], record["value"]) for record in read()] == [
        (None, "one"), (None, ""), (None, "  three "), (None, "four"),
    ]  # fmt: skip


def test_nothing_in_nothing_out(hw: Headwater, topic: str, read: Read) -> None:
    assert "0 records" in hw("produce", topic, input="").err
    assert hw("produce", topic, "--quiet", input="").err == ""
    assert read() == []


def test_keys(hw: Headwater, topic: str, read: Read) -> None:
    hw("produce", topic, "--key", "same", input="1\n2\n")
    hw("produce", topic, "--key-separator", ":", input="a:1:2\n:empty key\n")
    hw("produce", topic, "-K", "\\t", input="b\ttab\n")
    hw("produce", topic, "-K", "=>", input="c=>long\n")
    assert [(record["key"], record["value"]) for record in read()] == [
        ("same", "1"), ("same", "2"), ("a", "1:2"), ("", "empty key"), ("b", "tab"), ("c", "long"),
    ]  # fmt: skip


def test_tombstones_are_null_only_when_asked_for(hw: Headwater, topic: str, read: Read) -> None:
    hw("produce", topic, "-K", ":", input="a:\n")
    hw("produce", topic, "-K", ":", "--tombstones", input="a:\nb:1\n")
    assert [record["value"] for record in read()] == ["", None, "1"]


def test_a_tombstone_needs_a_key(fails: Headwater, topic: str, read: Read) -> None:
    said = fails("produce", topic, "--tombstones", "--quiet", input="x\n\n", lines=2).err
    assert "line 2: an empty value stands for a tombstone, which needs a key" in said
    assert [record["value"] for record in read()] == ["x"]


def test_headers_partition_and_codec(hw: Headwater, unique: Callable[[str], str]) -> None:
    topic = unique("wide")
    hw("topics", "create", topic, "-p", "3")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        hw(
            "produce",
            topic,
            "-p",
            "2",
            "-H",
            "a=1",
            "--header",
            "b=x=y",
            "-H",
            "a= 2 ",
            "-z",
            codec,
            input=f"{codec}\n" * 50,
        )
    records = hw("consume", topic, "--from-beginning", "--exit", "--json").objects
    assert len(records) == 250 and {record["partition"] for record in records} == {2}
    assert records[0]["headers"] == [
        {"key": "a", "value": "1"},
        {"key": "b", "value": "x=y"},
        {"key": "a", "value": " 2 "},
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(hw: Headwater, topic: str, read: Read, acks: str) -> None:
    hw("produce", topic, "--acks", acks, input="a\n")
    deadline = time.monotonic() + 10
    while len(read()) < 1 and time.monotonic() < deadline:
        pass
    assert [record["value"] for record in read()] == ["a"]


def test_a_file(hw: Headwater, fails: Headwater, topic: str, read: Read, tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_text("a\nb\n")
    hw("produce", topic, str(source))
    hw("produce", topic, "-", input="c\n")
    assert [record["value"] for record in read()] == ["a", "b", "c"]
    said = fails("produce", topic, str(tmp_path / "missing")).err
    assert "missing: no such file or directory" in said


def test_json_lines(hw: Headwater, topic: str, read: Read) -> None:
    lines = [
        {"key": "k", "value": "text", "headers": {"h": "1"}, "partition": 0, "timestamp": 1_700_000_000_000},
        {"value": {"nested": [1, 2]}, "key": 7, "timestamp": "2026-01-02T12:00:00Z"},
        {"key": "gone", "value": None},
        {"value": "/wA=", "value_encoding": "base64", "headers": [{"key": "a", "value": "1"}, {"key": "a"}]},
    ]
    hw("produce", topic, "--json", "--header", "all=1", input="\n".join(map(json.dumps, lines)))
    first, second, third, fourth = read()
    assert (first["key"], first["value"], first["timestamp"]) == ("k", "text", 1_700_000_000_000)
    assert first["headers"] == [{"key": "h", "value": "1"}, {"key": "all", "value": "1"}]
    assert (second["key"], second["value"]) == ("7", '{"nested":[1,2]}')
    assert second["timestamp"] == 1_767_355_200_000
    assert (third["key"], third["value"]) == ("gone", None)
    assert (fourth["value"], fourth["value_encoding"]) == ("/wA=", "base64")
    assert fourth["headers"] == [
        {"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "all", "value": "1"},
    ]  # fmt: skip


def test_what_consume_prints_can_be_produced_again(
    hw: Headwater, server: Server, topic: str, read: Read, unique: Callable[[str], str]
) -> None:
    hw("produce", topic, "-K", ":", "-H", "h=ü", input=b"k\xff:v\x00\xfe\nplain:text\n")
    copy = unique("copy")
    printed = hw("consume", topic, "--from-beginning", "--exit", "--json").out
    hw("produce", copy, "--create", "--json", input=printed)
    copied = hw("consume", copy, "--from-beginning", "--exit", "--json").objects
    assert [{**record, "topic": topic} for record in copied] == read()
    raw = subprocess.run(
        [PROGRAM, "consume", copy, "--from-beginning", "--exit", "-b", server.bootstrap],
        capture_output=True, check=True,
    )  # fmt: skip
    assert raw.stdout == b"v\x00\xfe\ntext\n"


INVALID = [
    ("{", "it is not JSON"),
    ("[1]", "it is not a JSON object"),
    ('{"key": "a"}', "it has no value"),
    ('{"value": "a", "valeu": "b"}', "there is no field 'valeu' in a record"),
    ('{"value": "a", "partition": -1}', "partition is not a number from 0 on"),
    ('{"value": "a", "partition": 9}', "partition 9 is not one of 0 to 0"),
    ('{"value": "a", "timestamp": "soon"}', "timestamp is neither milliseconds nor an ISO 8601 time"),
    ('{"value": "a", "timestamp": 0}', "timestamp is not a number from 1 on"),
    ('{"value": "a", "timestamp": "1970-01-01T00:00:00Z"}', "timestamp is not a number from 1 on"),
    ('{"value": "a", "timestamp": 9223372036854775808}', "timestamp is too large"),
    ('{"value": "?", "value_encoding": "base64"}', "value is not base64"),
    ('{"value": "a", "value_encoding": "rot13"}', "only base64 is known"),
    ('{"value": "a", "headers": 3}', "headers is neither an object nor a list"),
    ('{"value": "a", "headers": [{"value": "x"}]}', "a header is not of the form"),
]


def test_lines_that_are_no_records_are_named_kept_and_fail_the_command(
    fails: Headwater, topic: str, read: Read
) -> None:
    text = "".join(f'{{"value": "good {number}"}}\n{line}\n' for number, (line, _) in enumerate(INVALID))
    result = fails("produce", topic, "--json", input=text, lines=len(INVALID) + 2)
    *named, summary, verdict = result.err.splitlines()
    for number, ((line, reason), said) in enumerate(zip(INVALID, named, strict=True)):
        assert said.startswith(f"headwater: line {2 * number + 2}: ") and reason in said
        assert said.endswith(f": {line}")
    count = len(INVALID)
    assert summary.startswith(f"{count} records")
    expected = f"cannot send {count} of {2 * count} lines: they are not valid records. They are named above."
    assert expected in verdict
    assert [record["value"] for record in read()] == [f"good {number}" for number in range(count)]


def test_rejected_lines_are_kept_in_a_file(fails: Headwater, topic: str, read: Read, tmp_path: Path) -> None:
    rejects = tmp_path / "rejects"
    text = b"a:1\nno separator \xff\nb:2\n\n"
    result = fails("produce", topic, "-K", ":", "--rejects", str(rejects), "-q", input=text, lines=3)
    assert result.err.splitlines()[0] == "headwater: line 2: there is no ':' after a key"
    assert "cannot send 2 of 4 lines" in result.err and "They are in the --rejects file." in result.err
    assert rejects.read_bytes() == b"no separator \xff\n\n"
    assert [record["key"] for record in read()] == ["a", "b"]


def test_records_that_the_broker_refuses_are_counted_named_and_kept(
    hw: Headwater, fails: Headwater, topic: str, read: Read, tmp_path: Path
) -> None:
    hw("topics", "alter", topic, "--config", "max.message.bytes=1000")
    big = "x" * 3000
    rejects = tmp_path / "rejects"
    result = fails(
        "produce", topic, "--rejects", str(rejects), "-X", "linger.ms=0", "-X", "batch.num.messages=1",
        input=f"a\n{big}\nb\n", lines=3,
    )  # fmt: skip
    first, summary, verdict = result.err.splitlines()
    assert first.startswith("headwater: line 2: not delivered: ") and "too large" in first
    assert summary.startswith("2 records")
    assert verdict.startswith("headwater: cannot deliver 1 of 3 records: ")
    assert verdict.endswith("Send smaller batches or raise max.message.bytes of the topic.")
    assert rejects.read_text() == f"{big}\n"
    assert [record["value"] for record in read()] == ["a", "b"]
    hw("topics", "alter", topic, "--config", "max.message.bytes=5000000")
    hw("produce", topic, input="y" * 3_000_000)
    assert read()[2]["value"] == "y" * 3_000_000


def test_a_keyless_record_on_a_compacted_topic(hw: Headwater, server: Server, topic: str) -> None:
    hw("topics", "alter", topic, "--config", "cleanup.policy=compact")
    deadline = time.monotonic() + 10  # a cluster's brokers hear of it a moment later
    while True:
        result = run("produce", topic, "-b", server.bootstrap, input="keyless\n")
        if result.code or time.monotonic() > deadline:
            break
    assert result.code == 1
    assert "headwater: line 1: not delivered: " in result.err
    assert "cannot deliver 1 of 1 records" in result.err


def test_an_unknown_topic_is_not_made_by_accident(
    fails: Headwater, hw: Headwater, unique: Callable[[str], str]
) -> None:
    name = unique("zzz")
    said = fails("produce", name, input="a\n").err
    assert f"cannot write to {name}: there is no such topic." in said
    assert name not in hw("topics", "list").out
    hw("produce", name, "--create", input="a\n")
    hw("produce", name, "--create", input="b\n")
    assert hw("consume", name, "--from-beginning", "--exit").lines == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--json", "--key", "a"), "do not go with --json"),
        (("--json", "--key-separator", ":"), "do not go with --json"),
        (("--json", "--tombstones"), "do not go with --json"),
        (("--key", "a", "--key-separator", ":"), "exclude each other"),
        (("--key-separator", ""), "--key-separator is empty"),
        (("--header", "novalue"), "it is not of the form key=value"),
        (("--timeout", "inf"), "--timeout inf is not a number of seconds"),
        (("--partition", "7"), "the topic has partitions 0 to 0"),
        (("-X", "no.such.property=1"), "No such configuration property"),
        (("-X", "acks=7777777"), "acks"),
        (("--rejects", "/nonexistent/file"), "/nonexistent/file: no such file or directory"),
    ],
)
def test_arguments_that_make_no_sense(
    fails: Headwater, topic: str, arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in fails("produce", topic, *arguments, input="a\n").err


def test_many_records_arrive_in_order(hw: Headwater, topic: str) -> None:
    text = "".join(f"{number}\n" for number in range(200_000))
    assert "200,000 records" in hw("produce", topic, "-z", "lz4", input=text).err
    assert hw("consume", topic, "--from-beginning", "--exit").out == text


def test_ctrl_c_delivers_what_was_typed(
    start: Callable[..., "subprocess.Popen[bytes]"], topic: str, read: Read
) -> None:
    process = start("produce", topic)
    assert process.stdin and process.stderr
    process.stdin.write(b"typed\n")
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while len(read()) < 1 and time.monotonic() < deadline:
        pass  # a line is sent when it is typed, not at the end of input
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read().startswith(b"1 record, 5 bytes")
    assert [record["value"] for record in read()] == ["typed"]
