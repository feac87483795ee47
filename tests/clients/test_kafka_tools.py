"""Kafka's own command line tools, from its jars: what they print is what they print on Apache Kafka."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients import jvm
from tests.clients.peer import Peer
from tests.clients.records import START, Record, numbered
from tests.clients.tools import Tools
from tests.clients.waiting import until

Topics = Callable[..., str]
Name = Callable[[str], str]
GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[Tools]:
    tools = Tools(bootstrap)
    yield tools
    tools.close()


# -- topics ------------------------------------------------------------------------------------------------


def test_kafka_topics(tools: Tools, reference: Peer, unique: Name) -> None:
    name = unique("topic")
    create = ["TopicCommand", "--create", "--topic", name]
    made = tools.run(
        *create, "--partitions", "2", "--config", "retention.ms=100000000", "--config", "flush.ms=900"
    )
    assert made.lines[-1] == f"Created topic {name}."
    again = tools.run(*create, fails=True)
    assert "Error while executing topic command" in again.out and name in again.out
    tools.run(*create, "--if-not-exists")
    tools.run("TopicCommand", "--alter", "--topic", name, "--partitions", "3")
    until(lambda: reference.ask("partitions", topic=name), lambda count: count == 3, "three partitions")
    first, *rest = tools.run("TopicCommand", "--describe", "--topic", name).lines
    title = rf"Topic: {re.escape(name)}\tTopicId: (\S{{22}})\tPartitionCount: 3\tReplicationFactor: 1"
    found = re.fullmatch(rf"{title}\tConfigs: (\S+)", first)
    assert found, first
    assert {"retention.ms=100000000", "flush.ms=900"} <= set(found[2].split(","))
    for number, line in enumerate(rest):
        assert re.match(
            rf"\tTopic: {re.escape(name)}\tPartition: {number}\tLeader: (\d+)\tReplicas: \1\tIsr: \1", line
        )
    assert len(rest) == 3
    assert tools.run("TopicCommand", "--describe", "--under-replicated-partitions").lines == []
    assert tools.run("TopicCommand", "--describe", "--unavailable-partitions").lines == []
    assert name in tools.run("TopicCommand", "--list").lines
    tools.run("TopicCommand", "--delete", "--topic", name)
    until(lambda: name in tools.run("TopicCommand", "--list").lines, lambda there: not there, "it is gone")
    gone = tools.run("TopicCommand", "--describe", "--topic", name, fails=True)
    assert f"Topic '{name}' does not exist as expected" in gone.out


def test_kafka_configs(tools: Tools, make_topic: Topics) -> None:
    topic = make_topic(config={"retention.ms": "100000000"})
    command = ["kafka.admin.ConfigCommand", "--topic", topic]

    def described() -> list[str]:
        return tools.run(*command, "--describe").lines

    title = f"Dynamic configs for topic {topic} are:"
    kept = "retention.ms=100000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100000000}"
    assert described() == [title, f"  {kept}"]
    changed = tools.run(
        *command, "--alter", "--add-config", "segment.ms=60000,cleanup.policy=[compact,delete]",
        "--delete-config", "retention.ms",
    )  # fmt: skip
    assert changed.lines == [f"Completed updating config for topic {topic}."]
    lines = until(described, lambda seen: len(seen) == 3, "two settings")
    values = {line.split()[0] for line in lines[1:]}
    assert values == {"segment.ms=60000", "cleanup.policy=compact,delete"}
    refused = tools.run(*command, "--alter", "--add-config", "nonsense=1", fails=True)
    assert "InvalidConfigurationException" in refused.err and "nonsense" in refused.err
    everything = tools.run(*command, "--describe", "--all").out
    assert "max.message.bytes=1048588 sensitive=false" in everything
    brokers = tools.run("kafka.admin.ConfigCommand", "--entity-type", "brokers", "--describe", "--all").out
    assert "auto.create.topics.enable=true" in brokers
    for entity in ("users", "clients", "ips"):
        assert tools.run("kafka.admin.ConfigCommand", "--entity-type", entity, "--describe").lines == []


def test_kafka_log_dirs(tools: Tools, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    reference.produce(topic, [Record(b"k", bytes(5000))])
    lines = tools.run("LogDirsCommand", "--describe", "--topic-list", topic).lines
    (broker,) = json.loads(lines[-1])["brokers"]
    (folder,) = broker["logDirs"]
    assert folder["error"] is None and Path(folder["logDir"]).is_absolute()
    partitions = {one.pop("partition"): one for one in folder["partitions"]}
    assert partitions.keys() == {f"{topic}-0", f"{topic}-1"}
    assert 5000 < partitions[f"{topic}-0"]["size"] < 5200
    assert partitions[f"{topic}-1"] == {"size": 0, "offsetLag": 0, "isFuture": False}


# -- records and offsets -----------------------------------------------------------------------------------


def test_kafka_console_producer_and_consumer(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic, group = make_topic(), unique("group")
    reading = [f"--property={one}" for one in ("parse.key=true", "key.separator=|", "parse.headers=true")]
    tools.run(
        "ConsoleProducer", "--topic", topic, *reading, "--property", "null.marker=NULL",
        "--compression-codec", "zstd",
        stdin="h1:v1,h2:v2\tkey|value\nh:x\tother|wert ✓\nh:x\tgone|NULL\n",
    )  # fmt: skip
    read = reference.read(topic, last={0: 2})
    assert [(one.key, one.value, one.headers) for one in read] == [
        (b"key", b"value", (("h1", b"v1"), ("h2", b"v2"))),
        (b"other", "wert ✓".encode(), (("h", b"x"),)),
        (b"gone", None, (("h", b"x"),)),
    ]
    shown = [f"--property=print.{one}=true" for one in ("key", "headers", "partition", "offset", "timestamp")]
    printed = tools.run(
        "consumer.ConsoleConsumer",
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        "3",
        *shown,
    )
    assert printed.lines == [
        f"CreateTime:{read[0].timestamp}\tPartition:0\tOffset:0\th1:v1,h2:v2\tkey\tvalue",
        f"CreateTime:{read[1].timestamp}\tPartition:0\tOffset:1\th:x\tother\twert ✓",
        f"CreateTime:{read[2].timestamp}\tPartition:0\tOffset:2\th:x\tgone\tnull",
    ]
    assert reference.committed(group, topic, [0]) == {0: 3}


def test_kafka_console_consumer_of_committed_records(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic()
    reference.txn_open(unique("id"))
    for end, prefix in (("abort", "dropped "), ("commit", "kept ")):
        reference.ask("txn_begin")
        reference.txn_send(topic, numbered(2, prefix=prefix))
        reference.ask(f"txn_{end}")
    command = ["consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages"]
    assert tools.run(*command, "2", "--isolation-level", "read_committed").lines == ["kept 0", "kept 1"]
    assert tools.run(*command, "4").lines == ["dropped 0", "dropped 1", "kept 0", "kept 1"]


def test_kafka_get_offsets(tools: Tools, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=3)
    times = [100, 300, 200]
    reference.produce(topic, [Record(None, b"v", (), START + time, p) for p in (0, 2) for time in times])

    def offsets(time: str) -> dict[int, int]:
        lines = tools.run("GetOffsetShell", "--topic", topic, "--time", time).lines
        found = [line.rsplit(":", 2) for line in lines]
        assert all(name == topic for name, _, _ in found)
        return {int(partition): int(offset) for _, partition, offset in found}

    assert offsets("latest") == {0: 3, 1: 0, 2: 3}
    assert offsets("earliest") == {0: 0, 1: 0, 2: 0}
    assert offsets("max-timestamp") == {0: 1, 2: 1}
    assert offsets(str(START + 150)) == {0: 1, 2: 1}
    # No record is that late: the partition is left out.
    assert offsets(str(START + 301)) == {}


def test_kafka_delete_records(tools: Tools, reference: Peer, make_topic: Topics, tmp_path: Path) -> None:
    topic = make_topic(partitions=2)
    reference.produce(topic, numbered(20, 2))
    wanted = [{"topic": topic, "partition": 0, "offset": 4}, {"topic": topic, "partition": 1, "offset": -1}]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    lines = tools.run("DeleteRecordsCommand", "--offset-json-file", str(file)).lines
    assert sorted(line for line in lines if line.startswith("partition:")) == [
        f"partition: {topic}-0\tlow_watermark: 4",
        f"partition: {topic}-1\tlow_watermark: 10",
    ]
    assert reference.ask("offset_at", topic=topic, partition=1, timestamp=-2) == 10


def test_kafka_producer_and_consumer_performance(tools: Tools, reference: Peer, make_topic: Topics) -> None:
    topic = make_topic(partitions=2)
    sent = tools.main(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "20000",
        "--record-size", "100", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all",
    )  # fmt: skip
    assert sent.lines[-1].startswith("20000 records sent, ")
    ends = [reference.ask("offset_at", topic=topic, partition=p, timestamp=-1) for p in (0, 1)]
    assert sum(ends) == 20_000
    taken = tools.run("ConsumerPerformance", "--topic", topic, "--messages", "20000", "--timeout", "20000")
    header, row = (line.split(", ") for line in taken.lines)
    assert dict(zip(header, row, strict=True))["data.consumed.in.nMsg"] == "20000"


# -- groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_consumer_groups(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name, protocol: str, bootstrap: str
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    reference.produce(topic, numbered(10, 2))
    reference.join(group, [topic], protocol=protocol, client_id="worker", session_ms=10_000)
    until(lambda: len(reference.taken()), lambda count: count > 0, "records are taken")
    until(reference.assigned, lambda held: len(held) == 2, "it has its partitions")
    reference.ask("commit")
    command = [GROUPS, "--group", group]
    rows = until(
        lambda: tools.run(*command, "--describe").table(),
        lambda seen: len(seen) == 2,
        "both partitions are shown",
    )
    assert {row["CLIENT-ID"] for row in rows} == {"worker"} and {row["HOST"] for row in rows} == {
        "/127.0.0.1"
    }
    shown = sorted((row["TOPIC"], row["PARTITION"], row["LOG-END-OFFSET"]) for row in rows)
    assert shown == [(topic, "0", "5"), (topic, "1", "5")]
    state = tools.run(*command, "--describe", "--state").out
    assignor = "range" if protocol == "classic" else "uniform"
    node = rf"{re.escape(bootstrap)}\s+\(\d+\)"
    assert re.search(rf"{re.escape(group)}\s+{node}\s+{assignor}\s+Stable\s+1\s", state), state
    (member,) = tools.run(*command, "--describe", "--members").table()
    assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("worker", "2")
    busy = tools.run(*command, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    assert "is inactive, but the current state is Stable" in busy.out
    reference.ask("leave")
    until(
        lambda: tools.run(*command, "--describe", "--state").out,
        lambda out: "Empty" in out,
        "the group is empty",
    )
    listed = tools.run(GROUPS, "--list", "--state").table()
    assert {"GROUP": group, "STATE": "Empty"} in listed


RESETS = [
    (["--to-earliest"], [0, 0]),
    (["--to-latest"], [5, 5]),
    (["--to-offset", "2"], [2, 2]),
    (["--shift-by", "-1"], [2, 2]),
    (["--shift-by", "100"], [5, 5]),
    (["--to-datetime", time.strftime("%Y-%m-%dT%H:%M:%S.005Z", time.gmtime(START // 1000))], [3, 2]),
    (["--to-current"], [3, 3]),
]


@pytest.mark.parametrize(("how", "offsets"), RESETS, ids=lambda value: str(value[0]))
def test_kafka_consumer_groups_resets_offsets(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name, how: list[str], offsets: list[int]
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    reference.produce(topic, numbered(10, 2))
    reference.ask("set_offsets", group=group, offsets=[[topic, 0, 3, ""], [topic, 1, 3, ""]])
    command = [GROUPS, "--group", group, "--topic", topic, "--reset-offsets", *how]

    def planned(*arguments: str) -> list[tuple[str, int, int]]:
        rows = tools.run(*command, *arguments).table()
        return sorted((row["TOPIC"], int(row["PARTITION"]), int(row["NEW-OFFSET"])) for row in rows)

    expected = [(topic, 0, offsets[0]), (topic, 1, offsets[1])]
    assert planned("--dry-run") == expected
    assert reference.committed(group, topic, [0, 1]) == {0: 3, 1: 3}
    assert planned("--execute") == expected
    assert reference.committed(group, topic, [0, 1]) == dict(enumerate(offsets))


def test_kafka_consumer_groups_deletes(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    reference.ask("set_offsets", group=group, offsets=[[topic, 0, 0, ""], [topic, 1, 0, ""]])
    command = [GROUPS, "--group", group]
    deleted = tools.run(*command, "--delete-offsets", "--topic", f"{topic}:0")
    assert deleted.lines[0] == f"Request succeeded for deleting offsets from group {group}."
    assert deleted.lines[-1].split() == [topic, "0", "Successful"]
    assert reference.committed(group, topic, [0, 1]) == {0: None, 1: 0}
    gone = tools.run(*command, "--delete")
    assert gone.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    again = tools.run(*command, "--delete")
    assert "GroupIdNotFoundException: The group id does not exist." in again.out
    assert group not in tools.run(GROUPS, "--list").lines
    assert group not in [row["GROUP"] for row in tools.run("GroupsCommand", "--list").table()]


# -- transactions and the cluster --------------------------------------------------------------------------


def test_kafka_transactions(tools: Tools, reference: Peer, make_topic: Topics, unique: Name) -> None:
    topic, id = make_topic(), unique("id")
    reference.txn_open(id)
    reference.ask("txn_begin")
    reference.txn_send(topic, numbered(3))
    (row,) = (row for row in tools.run("TransactionsCommand", "list").table() if row["TransactionalId"] == id)
    assert row["TransactionState"] == "Ongoing"
    described = tools.run("TransactionsCommand", "describe", "--transactional-id", id).lines
    columns = dict(zip(*(re.split(r"\s*\t", line) for line in described), strict=True))
    assert columns["ProducerId"] == row["ProducerId"]
    assert (columns["TransactionState"], columns["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    assert columns["TransactionTimeoutMs"] == "60000"
    (producer,) = tools.run(
        "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    ).table()
    assert (producer["ProducerId"], producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == (
        row["ProducerId"], "2", "0",
    )  # fmt: skip
    assert tools.run("TransactionsCommand", "find-hanging", "--broker-id", row["Coordinator"]).lines[1:] == []
    reference.ask("txn_commit")
    until(
        lambda: tools.run("TransactionsCommand", "describe", "--transactional-id", id).out,
        lambda out: "CompleteCommit" in out,
        "the transaction is complete",
    )


def test_a_transaction_is_aborted_by_the_administrator(
    tools: Tools, reference: Peer, make_topic: Topics, unique: Name
) -> None:
    topic = make_topic()
    reference.txn_open(unique("id"))
    reference.ask("txn_begin")
    reference.txn_send(topic, numbered(3))
    tools.run("TransactionsCommand", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    after = reference.produce(topic, [Record(b"after", b"it")])
    assert [one.offset for one in after] == [4]
    assert reference.read(topic, last={0: 4}, isolation="read_committed") == after


def test_kafka_broker_api_versions(tools: Tools, bootstrap: str) -> None:
    lines = tools.run("BrokerApiVersionsCommand").lines
    assert re.match(rf"{re.escape(bootstrap)} \(id: \d+ rack: null isFenced: false\) -> \($", lines[0]), (
        lines[0]
    )
    found = {
        name: int(high) for name, high in re.findall(r"\t(\w+)\(\d+\): .*\[usable: (\d+)\]", "\n".join(lines))
    }
    # What each client of this version would use; a broker that offers less makes clients do less.
    for name, version in {"Produce": 13, "Fetch": 18, "Metadata": 13, "JoinGroup": 9, "EndTxn": 5}.items():
        assert found[name] == version, name


def test_tools_for_what_one_node_does_not_have(tools: Tools, make_topic: Topics) -> None:
    topic = make_topic()
    election = ["LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0"]
    assert tools.run(*election).lines == [f"Valid replica already elected for partitions {topic}-0"]
    assert tools.run("reassign.ReassignPartitionsCommand", "--list").lines == [
        "No partition reassignments found."
    ]
    refused = tools.run("AclCommand", "--list", fails=True)
    assert "SecurityDisabledException" in refused.out + refused.err
    cluster = tools.main(
        "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", tools.bootstrap
    ).lines
    assert re.fullmatch(r"Cluster ID: \S{22}", cluster[0])


# -- the programs of Kafka's system tests ------------------------------------------------------------------


def test_verifiable_producer_and_consumer(bootstrap: str, make_topic: Topics, unique: Name) -> None:
    topic, group = make_topic(partitions=2), unique("group")
    address = ["--bootstrap-server", bootstrap, "--topic", topic]
    producing = jvm.tool("org.apache.kafka.tools.VerifiableProducer", *address, "--max-messages", "1000")
    result = subprocess.run(producing, capture_output=True, text=True, timeout=60, check=True)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    sent = {event["value"] for event in events if event["name"] == "producer_send_success"}
    assert sent == {str(number) for number in range(1000)}
    consuming = jvm.tool(
        "org.apache.kafka.tools.VerifiableConsumer",
        *address,
        "--group-id",
        group,
        "--max-messages",
        "1000",
        "--verbose",
    )
    with subprocess.Popen(consuming, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout]  # until it ends by itself
    taken = {event["value"] for event in events if event["name"] == "record_data"}
    assert taken == sent
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in committed)
    last = {one["partition"]: one["offset"] for event in committed for one in event["offsets"]}
    assert sum(last.values()) == 1000
