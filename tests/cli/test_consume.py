"""`headwater consume`: tail -f for topics."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.client.transactions import TransactionalWriter
from headwater.client.writer import Writer
from tests.cli.conftest import PROGRAM, Headwater, environment
from tests.support.servers import ApacheKafka, Server
from tests.support.servers import Headwater as HeadwaterServer

Start = Callable[..., "subprocess.Popen[bytes]"]
ALL = ("--from-beginning", "--exit")


@pytest.fixture
def filled(hw: Headwater, server: Server, topic: str) -> str:
    """A topic with three partitions, four records each, a second apart."""
    # Their timestamps lie years back, so that retention would take them away during the test.
    hw("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=-1")
    with Writer(Connection(server.bootstrap)) as writer:
        for number in range(12):
            writer.write(
                topic, f"value-{number}", f"key-{number % 4}",
                partition=number % 3, timestamp=1_700_000_000_000 + number * 1000,
            )  # fmt: skip
    return topic


def send_until_seen(server: Server, topic: str, seen: Callable[[], bool], text: str = "tick") -> None:
    """A reader that follows says nothing before its first record: so send until it has one."""
    deadline = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < deadline, "the reader saw nothing"
        with Writer(Connection(server.bootstrap)) as writer:
            writer.write(topic, text)
        time.sleep(0.2)


def has_output(process: "subprocess.Popen[bytes]") -> bool:
    import select

    assert process.stdout
    return bool(select.select([process.stdout], [], [], 0)[0])


def test_everything_to_the_end(hw: Headwater, filled: str) -> None:
    assert sorted(hw("consume", filled, *ALL).lines) == sorted(f"value-{number}" for number in range(12))


def test_one_partition_is_in_order(hw: Headwater, filled: str) -> None:
    assert hw("consume", filled, *ALL, "--partition", "1").lines == [
        "value-1",
        "value-4",
        "value-7",
        "value-10",
    ]
    assert len(hw("consume", filled, *ALL, "-p", "0", "-p", "2").lines) == 8


def test_json(hw: Headwater, filled: str) -> None:
    assert hw("consume", filled, *ALL, "--json", "-p", "1", "-n", "1").objects == [
        {
            "topic": filled, "partition": 1, "offset": 0, "timestamp": 1_700_000_001_000,
            "key": "key-1", "value": "value-1", "headers": [],
        }
    ]  # fmt: skip


def test_bytes_that_are_no_text_are_base64_in_json_and_themselves_elsewhere(
    hw: Headwater, server: Server, topic: str
) -> None:
    with Writer(Connection(server.bootstrap)) as writer:
        hw("topics", "create", topic)
        writer.write(topic, b"\xff\x00", b"\xfe", headers=[("raw", b"\xfd"), ("text", "ü".encode())])
        writer.write(topic, None, "tombstone")
    first, second = hw("consume", topic, *ALL, "--json").objects
    assert (first["key"], first["key_encoding"]) == ("/g==", "base64")
    assert (first["value"], first["value_encoding"]) == ("/wA=", "base64")
    assert first["headers"] == [
        {"key": "raw", "value": "/Q==", "encoding": "base64"}, {"key": "text", "value": "ü"},
    ]  # fmt: skip
    assert (second["key"], second["value"]) == ("tombstone", None)
    assert "key_encoding" not in second and "value_encoding" not in second
    assert os.fsencode(hw("consume", topic, *ALL).out) == b"\xff\x00\n\n"


def test_a_format(hw: Headwater, filled: str) -> None:
    template = "{topic}/{partition}@{offset}\\t{timestamp}|{time}|{key}={value} {{{headers}}}"
    (line,) = hw("consume", filled, *ALL, "-p", "2", "-n", "1", "--format", template).lines
    assert line == f"{filled}/2@0\t1700000002000|2023-11-14T22:13:22.000Z|key-2=value-2 {{}}"


def test_key_and_value_filters(hw: Headwater, filled: str) -> None:
    def values(*arguments: str) -> list[str]:
        return sorted(hw("consume", filled, *ALL, *arguments).lines)

    assert values("--key", "key-1") == ["value-1", "value-5", "value-9"]
    assert values("--key", "key-[23]") == ["value-10", "value-11", "value-2", "value-3", "value-6", "value-7"]
    assert len(values("--key", "*")) == 12
    assert values("--key", "KEY-1") == []
    assert values("--value", "-1") == ["value-1", "value-10", "value-11"]
    assert values("--key", "key-2", "--value", "10") == ["value-10"]


def test_max_counts_what_is_printed(hw: Headwater, filled: str) -> None:
    assert len(hw("consume", filled, "--from-beginning", "-n", "5").lines) == 5
    assert len(hw("consume", filled, "--from-beginning", "--max", "2", "--key", "key-3").lines) == 2


def test_from_a_time(hw: Headwater, filled: str) -> None:
    for moment in ("2023-11-14T22:13:29.500Z", "1700000009500", "2023-11-14 22:13:29.500+00:00"):
        assert sorted(hw("consume", filled, "--exit", "--from-time", moment).lines) == [
            "value-10",
            "value-11",
        ]
    assert len(hw("consume", filled, "--exit", "--from-time", "20000 days ago").lines) == 12
    assert hw("consume", filled, "--exit", "--from-time", "1h").lines == []


def test_from_an_offset(hw: Headwater, fails: Headwater, filled: str) -> None:
    assert hw("consume", filled, "--exit", "-p", "0", "--from-offset", "2").lines == ["value-6", "value-9"]
    assert hw("consume", filled, "--exit", "-p", "0", "--from-offset", "4").lines == []
    said = fails("consume", filled, "--exit", "-p", "0", "--from-offset", "5").err
    assert f"cannot read {filled}-0: offset 5 is not in its range, 0 to 4." in said


def test_the_last_ones(hw: Headwater, filled: str) -> None:
    assert sorted(hw("consume", filled, "--exit", "--last", "1").lines) == ["value-10", "value-11", "value-9"]


def test_several_topics(hw: Headwater, unique: Callable[[str], str]) -> None:
    names = [unique("one"), unique("two")]
    for name in names:
        hw("topics", "create", name)
        hw("produce", name, input=f"in {name}\n")
    assert sorted(hw("consume", *names, *ALL).lines) == sorted(f"in {name}" for name in names)


def test_only_what_is_committed_unless_asked_otherwise(
    hw: Headwater, server: Server, unique: Callable[[str], str], topic: str
) -> None:
    hw("topics", "create", topic)
    with TransactionalWriter(Connection(server.bootstrap), unique("txn")) as writer:
        with writer.transaction():
            writer.write(topic, "kept")
        with pytest.raises(KeyError), writer.transaction():
            writer.write(topic, "aborted")
            writer.producer.flush()
            raise KeyError
    assert hw("consume", topic, *ALL).lines == ["kept"]
    assert hw("consume", topic, *ALL, "--isolation", "read_committed").lines == ["kept"]
    assert hw("consume", topic, *ALL, "--isolation", "read_uncommitted").lines == ["kept", "aborted"]


# -- following -------------------------------------------------------------------------------------


def test_following_starts_now_prints_at_once_and_ends_cleanly(
    start: Start, server: Server, filled: str
) -> None:
    process = start("consume", filled)
    assert process.stdout and process.stderr
    send_until_seen(server, filled, lambda: has_output(process))
    assert process.stdout.readline() == b"tick\n"
    began = time.monotonic()
    with Writer(Connection(server.bootstrap)) as writer:
        writer.write(filled, "now")
    while process.stdout.readline() != b"now\n":
        pass
    assert time.monotonic() - began < 3
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 130
    assert process.stderr.read() == b""


def test_sigterm_ends_it_too(start: Start, server: Server, filled: str) -> None:
    process = start("consume", filled, "--from-beginning")
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.terminate()
    assert process.wait(15) == 143
    assert process.stderr.read() == b""


def test_a_signal_ends_it_while_nobody_takes_the_output(start: Start, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    hw("produce", topic, input="".join(f"{number}\n" for number in range(100_000)))
    process = start("consume", topic, "--group", topic, "--from-beginning")
    assert process.stdout
    process.stdout.read(1)
    time.sleep(1)  # by now it waits for the pipe
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert committed(hw, topic) < 100_000


def test_a_closed_pipe_ends_it_quietly(server: Server, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    hw("produce", topic, input="".join(f"{number}\n" for number in range(100_000)))
    pipeline = subprocess.run(
        ["bash", "-c", f"{PROGRAM} consume {topic} --from-beginning | head -2; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, timeout=30, env=environment(HEADWATER_BOOTSTRAP=server.bootstrap), check=True,
    )  # fmt: skip
    assert pipeline.stdout == b"0\n1\n0\n"
    assert pipeline.stderr == b""


def test_a_closed_pipe_is_noticed_without_a_record(start: Start, filled: str) -> None:
    process = start("consume", filled, "--from-beginning")
    assert process.stdout and process.stderr
    for _ in range(12):
        process.stdout.readline()
    process.stdout.close()
    assert process.wait(15) == 0
    assert process.stderr.read() == b""


@pytest.mark.parametrize("kind", [HeadwaterServer, ApacheKafka])
def test_following_waits_for_a_broker_that_is_away(kind: type[Server]) -> None:
    with kind() as own:
        connection = Connection(own.bootstrap)
        with Writer(connection) as writer:
            writer.write("kept", "first")
        process = subprocess.Popen(
            [PROGRAM, "consume", "kept", "--from-beginning", "-n", "2", "-b", own.bootstrap],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"first\n"
        own.kill()
        waiting = process.stderr.readline().decode()
        assert waiting == f"headwater: {own.bootstrap}: no broker answers; waiting for it\n"
        own.start()
        with Writer(connection) as writer:
            writer.write("kept", "second")
        assert process.stdout.readline() == b"second\n"
        assert process.wait(20) == 0
        assert process.stderr.read().decode() == f"headwater: {own.bootstrap}: the broker answers again\n"


def test_ctrl_c_does_not_wait_for_a_broker_that_is_away() -> None:
    with HeadwaterServer() as own:
        with Writer(Connection(own.bootstrap)) as writer:
            writer.write("kept", "first")
        process = subprocess.Popen(
            [PROGRAM, "consume", "kept", "--group", "g", "--from-beginning", "-b", own.bootstrap],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"first\n"
        own.kill()
        assert b"waiting for it" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.wait(30) in (130, 1)  # 1 when the kill came before the commit
        assert time.monotonic() - began < 15


# -- groups ----------------------------------------------------------------------------------------


def committed(hw: Headwater, group: str) -> int:
    (described,) = hw("groups", "describe", group, "--json").objects
    return sum(place["committed"] or 0 for place in described["partitions"])


def test_a_group_goes_on_where_it_stopped(hw: Headwater, filled: str) -> None:
    assert len(hw("consume", filled, "--group", filled, *ALL).lines) == 12
    assert committed(hw, filled) == 12
    hw("produce", filled, input="more\n")
    assert hw("consume", filled, "--group", filled, *ALL).lines == ["more"]


def test_a_new_group_starts_at_the_end_unless_told_otherwise(hw: Headwater, filled: str) -> None:
    assert hw("consume", filled, "--group", filled, "--exit").lines == []


def test_only_what_was_printed_is_committed(hw: Headwater, filled: str) -> None:
    first = hw("consume", filled, "-g", filled, "--from-beginning", "-n", "5").lines
    assert committed(hw, filled) == 5
    rest = hw("consume", filled, "-g", filled, *ALL).lines
    assert sorted(first + rest) == sorted(f"value-{number}" for number in range(12))


def test_what_the_filter_leaves_out_is_committed_too(hw: Headwater, filled: str) -> None:
    assert len(hw("consume", filled, "-g", filled, *ALL, "--key", "key-1").lines) == 3
    assert committed(hw, filled) == 12


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_what_was_printed(
    start: Start, hw: Headwater, filled: str, how: signal.Signals
) -> None:
    process = start("consume", filled, "--group", filled, "--from-beginning")
    assert process.stdout
    for _ in range(12):
        process.stdout.readline()
    process.send_signal(how)
    assert process.wait(15) == 128 + how
    assert committed(hw, filled) == 12


def test_it_commits_as_it_goes(start: Start, hw: Headwater, filled: str) -> None:
    process = start("consume", filled, "--group", filled, "--from-beginning")
    assert process.stdout
    for _ in range(12):
        process.stdout.readline()
    deadline = time.monotonic() + 15
    while committed(hw, filled) < 12:
        assert time.monotonic() < deadline
    process.kill()


def test_the_new_group_protocol(hw: Headwater, filled: str) -> None:
    arguments = ("consume", filled, "--group", filled, *ALL, "-X", "group.protocol=consumer")
    assert len(hw(*arguments).lines) == 12
    assert hw(*arguments).lines == []


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--json", "--format", "{key}"), "--json and --format exclude each other"),
        (("--format", "{nope}"), "there is no {nope}. Use {topic}, "),
        (("--format", "{"), "there is no {. Use {topic}, "),
        (("--from-beginning", "--last", "1"), "it can start at one place only"),
        (("--from-time", "1h", "--from-offset", "1"), "it can start at one place only"),
        (("--from-offset", "1"), "an offset means something in a partition only. Add --partition N."),
        (("--from-time", "whenever"), "--from-time whenever: it is not a time. Give an ISO 8601 time"),
        (("--from-time", "1700000000"), "milliseconds are wanted, and these look like seconds"),
        (("--group", "g", "--partition", "0"), "a group decides by itself where it reads"),
        (("--group", "g", "--from-time", "1h"), "headwater groups reset g"),
        (("--partition", "9"), "the topic has partitions 0 to 2"),
        (("-X", "nonsense"), "it is not of the form key=value"),
    ],
)
def test_arguments_that_make_no_sense(
    fails: Headwater, filled: str, arguments: tuple[str, ...], complaint: str
) -> None:
    assert complaint in fails("consume", filled, *arguments).err


def test_an_unknown_topic_is_not_made_by_asking(
    fails: Headwater, hw: Headwater, unique: Callable[[str], str]
) -> None:
    name = unique("zzz")
    assert "there is no such topic" in fails("consume", name, *ALL).err
    assert "there is no such topic" in fails("consume", name, *ALL, "--group", "g").err
    assert name not in hw("topics", "list").out


def test_client_properties_come_from_a_file_too(
    hw: Headwater, fails: Headwater, filled: str, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("group.protocol=consumer\nclient.id=from-the-file\n")
    arguments = ("consume", filled, "--group", filled, *ALL, "--config-file", str(properties))
    assert len(hw(*arguments).lines) == 12
    (described,) = hw("groups", "describe", filled, "--json").objects
    assert described["type"] == "consumer"
    properties.write_text("no.such.property=1\n")
    assert 'No such configuration property: "no.such.property"' in fails(*arguments).err


def test_json_of_many_records_is_quick_and_complete(hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic, "-p", "4")
    hw("produce", topic, "-K", ":", input="".join(f"k{number}:{number}\n" for number in range(100_000)))
    lines = hw("consume", topic, *ALL, "--json").lines
    assert sorted(int(json.loads(line)["value"]) for line in lines) == list(range(100_000))
