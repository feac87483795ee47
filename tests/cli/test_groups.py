"""`headwater groups`: lag and the replay."""

import subprocess
import time
from collections.abc import Callable

import pytest

from headwater.client.connection import Connection
from headwater.client.writer import Writer
from tests.cli.conftest import Headwater, run
from tests.support.servers import ApacheKafka, Server

Start = Callable[..., "subprocess.Popen[bytes]"]
ALL = ("--from-beginning", "--exit")


@pytest.fixture
def read(hw: Headwater, server: Server, topic: str) -> str:
    """A topic with two partitions of five records, all of them read by a group with the topic's name."""
    # Their timestamps lie years back, so that retention would take them away during the test.
    hw("topics", "create", topic, "-p", "2", "-c", "retention.ms=-1")
    with Writer(Connection(server.bootstrap)) as writer:
        for number in range(10):
            writer.write(
                topic, str(number), partition=number % 2, timestamp=1_700_000_000_000 + number * 1000
            )  # fmt: skip
    hw("consume", topic, "--group", topic, *ALL)
    return topic


def test_list(hw: Headwater, read: str) -> None:
    assert [read, "Empty", "classic", "0"] in hw("groups", "list").rows
    assert {"group": read, "state": "Empty", "type": "classic", "members": 0} in hw(
        "groups", "list", "--json"
    ).objects


def test_describe_without_members(hw: Headwater, read: str) -> None:
    hw("produce", read, "-p", "1", input="more\nand more\n")
    assert hw("groups", "describe", read).rows == [
        ["partition", read, "0", "5", "5", "0", "-", "-"],
        ["partition", read, "1", "5", "7", "2", "-", "-"],
        ["total_lag", "2"],
    ]
    (found,) = hw("groups", "describe", read, "--json").objects
    assert (found["group"], found["state"], found["members"], found["total_lag"]) == (read, "Empty", [], 2)
    assert found["partitions"][1] == {
        "topic": read, "partition": 1, "committed": 5, "end": 7, "lag": 2, "member": None,
    }  # fmt: skip


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_shown_and_not_touched(
    start: Start, hw: Headwater, fails: Headwater, read: str, protocol: str
) -> None:
    group = f"{read}.active"
    process = start(
        "consume",
        read,
        "-g",
        group,
        "--from-beginning",
        "-X",
        f"group.protocol={protocol}",
        "-X",
        "client.id=me",
    )
    assert process.stdout
    for _ in range(10):
        process.stdout.readline()
    deadline = time.monotonic() + 20
    while True:
        (found,) = hw("groups", "describe", group, "--json").objects
        if found["total_lag"] == 0 and all(place["lag"] == 0 for place in found["partitions"]):
            break
        assert time.monotonic() < deadline
    assert (found["state"], found["type"]) == ("Stable", protocol)
    (member,) = found["members"]
    assert (member["client"], member["host"], len(member["partitions"])) == ("me", "127.0.0.1", 2)
    assert {place["member"] for place in found["partitions"]} == {member["member"]}
    assert [group, "Stable", protocol, "1"] in hw("groups", "list").rows
    for command in (("reset", group, "--to-beginning"), ("delete", group)):
        said = fails("groups", *command).err
        assert f"group {group}: it has 1 active member (me on 127.0.0.1). Stop its consumers first" in said
    process.terminate()
    process.wait(20)
    assert hw("groups", "reset", group, "--to-beginning").code == 0


def test_the_replay(hw: Headwater, read: str) -> None:
    result = hw("groups", "reset", read, "--to-beginning")
    assert result.rows == [[read, "0", "5", "0", ""], [read, "1", "5", "0", ""]]
    assert result.err == f"moved {read} in 2 partitions\n"
    assert sorted(hw("consume", read, "--group", read, "--exit").lines) == [
        str(number) for number in range(10)
    ]


def test_a_dry_run_changes_nothing(hw: Headwater, read: str) -> None:
    result = hw("groups", "reset", read, "--to-beginning", "--dry-run", "--json")
    assert result.objects == [
        {
            "group": read, "topic": read, "partition": partition,
            "old": 5, "new": 0, "remark": "", "applied": False,
        }
        for partition in (0, 1)
    ]  # fmt: skip
    assert hw("groups", "describe", read).rows[-1] == ["total_lag", "0"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--to-end",), [("7", ""), ("7", "")]),
        (("--to-offset", "2"), [("2", ""), ("2", "")]),
        (("--to-offset", "99"), [("7", "99 is past the end"), ("7", "99 is past the end")]),
        (("--to-time", "2023-11-14T22:13:24.500Z"), [("3", ""), ("2", "")]),
        (("--to-time", "1700000004500"), [("3", ""), ("2", "")]),
        (("--to-time", "now"), [("7", ""), ("7", "")]),
        (("--shift-by", "-2"), [("3", ""), ("3", "")]),
        (("--shift-by", "1"), [("6", ""), ("6", "")]),
        (("--shift-by", "-9"), [("0", "-4 is before the beginning"), ("0", "-4 is before the beginning")]),
    ],
)
def test_every_place_to_go_to(
    hw: Headwater, server: Server, read: str, arguments: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    with Writer(Connection(server.bootstrap)) as writer:
        for number in range(4):
            writer.write(read, "more", partition=number % 2, timestamp=1_700_000_020_000)
    rows = hw("groups", "reset", read, *arguments).rows
    assert [(row[3], row[4]) for row in rows] == expected
    described = hw("groups", "describe", read, "--json").objects[0]["partitions"]
    assert [str(place["committed"]) for place in described] == [new for new, _ in expected]


def test_only_some_topics_and_partitions(hw: Headwater, read: str, unique: Callable[[str], str]) -> None:
    other = unique("other")
    hw("topics", "create", other, "-p", "3")
    rows = hw(
        "groups", "reset", read, "--to-beginning", "--topic", f"{read}:1", "--topic", f"{other}:0,2"
    ).rows
    assert sorted(rows) == sorted(
        [[read, "1", "5", "0", ""], [other, "0", "-", "0", ""], [other, "2", "-", "0", ""]]
    )
    described = hw("groups", "describe", read, "--json").objects[0]["partitions"]
    assert {(place["topic"], place["partition"]): place["committed"] for place in described} == {
        (read, 0): 5, (read, 1): 0, (other, 0): 0, (other, 2): 0,
    }  # fmt: skip


def test_a_group_can_be_placed_before_it_first_reads(
    hw: Headwater, read: str, unique: Callable[[str], str]
) -> None:
    group = unique("new")
    hw("groups", "reset", group, "--to-offset", "4", "--topic", read)
    assert sorted(hw("consume", read, "--group", group, "--exit").lines) == ["8", "9"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "it needs one place to go to. Give one of --to-beginning"),
        (("--to-end", "--to-beginning"), "it can go to one place only"),
        (("--to-time", "soon"), "--to-time soon: it is not a time"),
        (("--to-end", "--topic", "{topic}:7"), "has partitions 0 to 1, not '7'"),
        (("--to-end", "--topic", "{topic}:a"), "has partitions 0 to 1, not 'a'"),
        (("--to-end", "--topic", "{topic}:"), "has partitions 0 to 1, not 'none'"),
    ],
)
def test_resets_that_make_no_sense(
    fails: Headwater, read: str, arguments: tuple[str, ...], complaint: str
) -> None:
    filled = [argument.replace("{topic}", read) for argument in arguments]
    assert complaint in fails("groups", "reset", read, *filled).err


def test_shifting_needs_a_place_to_shift_from(
    fails: Headwater, read: str, unique: Callable[[str], str]
) -> None:
    said = fails("groups", "reset", unique("new"), "--shift-by", "1", "--topic", read).err
    assert f"the group has committed nothing for {read}-0" in said


def test_unknown_groups_have_near_names(fails: Headwater, read: str) -> None:
    near = read[:-2] + "x" + read[-2:]
    for command in (("describe", near), ("reset", near, "--to-end"), ("delete", near)):
        said = fails("groups", *command).err
        assert f"group {near}: there is no such group. Did you mean " in said and read in said


def test_delete(hw: Headwater, fails: Headwater, read: str) -> None:
    assert hw("groups", "delete", read, "--yes").out == f"deleted group {read}\n"
    assert read not in [row[0] for row in hw("groups", "list").rows]
    assert len(hw("consume", read, "--group", read, *ALL).lines) == 10
    assert hw("groups", "delete", read, "--json").objects == [{"group": read, "deleted": True}]


def test_a_topic_that_is_gone_is_named(hw: Headwater, fails: Headwater, read: str) -> None:
    hw("topics", "delete", read, "--yes")
    result = fails("groups", "reset", read, "--to-end")
    assert f"group {read}" in result.err


def test_a_cluster_that_has_never_had_a_group_is_given_time_for_a_coordinator() -> None:
    with ApacheKafka() as own:
        run("topics", "create", "fresh", "-b", own.bootstrap)
        moved = run("groups", "reset", "first", "--to-end", "--topic", "fresh", "-b", own.bootstrap)
        assert (moved.code, moved.err) == (0, "moved first in 1 partition\n")
