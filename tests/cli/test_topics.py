"""`headwater topics`."""

from collections.abc import Callable

from tests.cli.conftest import Headwater

Unique = Callable[[str], str]


def test_create_list_and_delete(hw: Headwater, topic: str) -> None:
    assert hw("topics", "create", topic, "--partitions", "3").out == f"created {topic} with 3 partitions\n"
    assert [topic, "3"] in hw("topics", "list").rows
    assert {"topic": topic, "partitions": 3, "internal": False} in hw("topics", "list", "--json").objects
    assert hw("topics", "delete", topic, "--yes").out == f"deleted {topic}\n"
    assert topic not in hw("topics", "list").out


def test_create_as_json_with_the_brokers_defaults(hw: Headwater, topic: str) -> None:
    created = {"topic": topic, "partitions": 1, "created": True}
    assert hw("topics", "create", topic, "--replication", "1", "--json").objects == [created]
    again = hw("topics", "create", topic, "--if-not-exists", "--json")
    assert again.objects == [{**created, "created": False}]
    assert hw("topics", "create", topic, "--if-not-exists").out == (
        f"{topic} is there already, with 1 partition\n"
    )


def test_create_fails_with_the_reason(fails: Headwater, hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    assert f"cannot create {topic}: " in fails("topics", "create", topic).err
    assert "exists" in fails("topics", "create", topic).err
    assert "cannot create a b: " in fails("topics", "create", "a b").err
    assert "no.such" in fails("topics", "create", f"{topic}.x", "--config", "no.such=1").err
    assert "it is not of the form key=value" in fails("topics", "create", f"{topic}.x", "-c", "novalue").err
    assert "--partitions" in fails("topics", "create", f"{topic}.x", "--partitions", "0", code=2).err
    assert "replication" in fails("topics", "create", f"{topic}.x", "--replication", "3").err.lower()
    assert f"{topic}.x" not in hw("topics", "list").out


def test_describe(hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=5000")
    hw("produce", topic, "--partition", "1", input="a\nb\n")
    rows = hw("topics", "describe", topic).rows
    assert [row[:2] + row[3:] for row in rows if row[0] == "partition"] == [
        ["partition", "0", "1 of 1", "0", "0", "0"],
        ["partition", "1", "1 of 1", "0", "2", "2"],
    ]
    assert ["config", "retention.ms", "5000", "topic"] in rows
    assert not [row for row in rows if row[0] == "config" and row[3] == "default"]


def test_describe_all_as_json(hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic, "--config", "retention.ms=5000")
    (found,) = hw("topics", "describe", topic, "--all", "--json").objects
    assert (found["topic"], found["internal"], len(found["id"])) == (topic, False, 22)
    (partition,) = found["partitions"]
    assert (partition["partition"], partition["earliest"], partition["latest"]) == (0, 0, 0)
    assert partition["replicas"] == partition["in_sync"] == [partition["leader"]]
    configs = {config["name"]: (config["value"], config["source"]) for config in found["configs"]}
    assert configs["retention.ms"] == ("5000", "topic")
    assert configs["cleanup.policy"] == ("delete", "default")
    assert len(configs) > 20


def test_alter(hw: Headwater, fails: Headwater, topic: str) -> None:
    hw("topics", "create", topic, "--config", "retention.ms=5000")
    said = hw(
        "topics", "alter", topic, "-p", "3", "-c", "max.message.bytes=2000", "--delete-config", "retention.ms"
    )
    assert said.out == (
        f"altered {topic}: max.message.bytes=2000, retention.ms back to its default, 3 partitions\n"
    )
    rows = hw("topics", "describe", topic).rows
    assert len([row for row in rows if row[0] == "partition"]) == 3
    assert ["config", "max.message.bytes", "2000", "topic"] in rows
    assert "retention.ms" not in [row[1] for row in rows]
    assert hw("topics", "alter", topic, "-c", "retention.ms=1", "--json").objects == [
        {"topic": topic, "partitions": None, "set": {"retention.ms": "1"}, "unset": []}
    ]
    assert "nothing to change was given" in fails("topics", "alter", topic).err
    assert f"cannot alter {topic}: " in fails("topics", "alter", topic, "--partitions", "2").err
    assert "max.message.bytes" in fails("topics", "alter", topic, "-c", "max.message.bytes=-7").err


def test_deleting_several_asks_for_all_of_them_first(hw: Headwater, fails: Headwater, unique: Unique) -> None:
    one, two, missing = unique("one"), unique("two"), unique("missing")
    hw("topics", "create", one)
    hw("topics", "create", two)
    assert f"cannot delete {missing}: there is no such topic" in fails("topics", "delete", one, missing).err
    assert one in hw("topics", "list").out
    deleted = hw("topics", "delete", one, two, one, "--json")
    assert deleted.objects == [{"topic": one, "deleted": True}, {"topic": two, "deleted": True}]


def test_near_names_are_offered(hw: Headwater, fails: Headwater, unique: Unique) -> None:
    name = unique("customers")
    hw("topics", "create", name)
    near = name[:-2] + "x" + name[-2:]
    for command in (
        ("topics", "describe"), ("topics", "alter", "-p", "2"), ("topics", "delete"),
        ("produce",), ("consume",), ("groups", "reset", "g", "--to-end", "--topic"),
    ):  # fmt: skip
        said = fails(*command, near).err
        assert "there is no such topic. Did you mean" in said and name in said


def test_internal_topics(hw: Headwater, topic: str) -> None:
    hw("topics", "create", topic)
    hw("produce", topic, input="a\n")
    hw("consume", topic, "--group", topic, "--from-beginning", "--exit")
    assert "__consumer_offsets" not in hw("topics", "list").out
    assert "__consumer_offsets" in hw("topics", "list", "--internal").out
    internal = [found for found in hw("topics", "list", "--internal", "--json").objects if found["internal"]]
    assert "__consumer_offsets" in [found["topic"] for found in internal]
