"""Settings of the broker that change while it runs: described, in force, kept over a kill, one after another."""

from pathlib import Path

import pytest

from headwater.broker.live_settings import MOST_UNKNOWN, MOST_UNKNOWN_BYTES
from headwater.log.check import check_directory
from tests.broker.conformance.script import batch
from tests.broker.wire_client import WireClient
from tests.support.servers import Headwater, ServerFailed

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
NODE, ALL = "1", ""


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, object]:
    configs = [{"name": setting, "config_operation": how, "value": value} for setting, how, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter(client: WireClient, name: str, *changes: tuple[str, int, str | None]) -> tuple[str, str]:
    resources = [change(BROKER, name, *changes)]
    answer = client.call("incremental_alter_configs", 1, resources=resources)["responses"][0]
    return str(answer["error_code"]), str(answer["error_message"])


def described(client: WireClient, kind: int, name: str) -> dict[str, list[tuple[str, str | None, int]]]:
    """The origins of each setting, that in force first."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = client.call("describe_configs", 4, resources=[resource], include_synonyms=True)
    return {
        one["name"]: [(each["name"], each["value"], each["source"]) for each in one["synonyms"]]
        for one in answer["results"][0]["configs"]
    }


def create(client: WireClient, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
    answer = client.call("create_topics", 7, timeout=10_000, topics=[topic])
    assert answer["topics"][0]["error_code"] == "none"


def produce(client: WireClient, topic: str, size: int) -> str:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch("x" * size)}]}]
    answer = client.call("produce", 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=data)
    return str(answer["responses"][0]["partition_responses"][0]["error_code"])


def test_settings_are_in_force_described_and_kept(tmp_path: Path) -> None:
    kept = tmp_path / "data" / "broker.json"
    given = ["--set", "message.max.bytes=4000", "--set", "log.retention.hours=1"]
    with Headwater(tmp_path / "data", arguments=given) as server:
        with WireClient(server.port) as client:
            create(client, "t")
            assert (produce(client, "t", 3000), produce(client, "t", 5000)) == ("none", "message_too_large")
            assert alter(client, ALL, ("message.max.bytes", SET, "2000"))[0] == "none"
            assert produce(client, "t", 3000) == "message_too_large"
            changes = ("message.max.bytes", SET, " 9000 "), ("log.retention.ms", SET, "7200000")
            assert alter(client, NODE, *changes)[0] == "none"
            assert alter(client, NODE, ("a.plug-in.secret", SET, "x"))[0] == "none"
            assert produce(client, "t", 5000) == "none"
        server.kill()
        good = kept.read_bytes()
        kept.write_bytes(good.replace(b"9000", b"9001"))
        with pytest.raises(ServerFailed, match=r"broker.json: it is damaged: its checksum does not match"):
            server.start()
        assert [(each.path, each.kind) for each in check_directory(tmp_path / "data")] == [(kept, "damage")]
        kept.write_bytes(good)
        server.start()
        with WireClient(server.port) as client:
            assert produce(client, "t", 5000) == "none"
            max_bytes = [("message.max.bytes", value, source) for value, source in
                         (("9000", 2), ("2000", 3), ("4000", 4), ("1048588", 5))]  # fmt: skip
            retention = [("log.retention.ms", "7200000", 2), ("log.retention.ms", "3600000", 4),
                         ("log.retention.hours", "168", 5)]  # fmt: skip
            topic, broker = described(client, TOPIC, "t"), described(client, BROKER, NODE)
            assert (topic["max.message.bytes"], broker["message.max.bytes"]) == (max_bytes, max_bytes)
            assert (topic["retention.ms"], broker["log.retention.ms"]) == (retention, retention)
            assert broker["a.plug-in.secret"] == [("a.plug-in.secret", None, 2)]
            assert described(client, BROKER, ALL) == {"message.max.bytes": [("message.max.bytes", "2000", 3)]}
            assert alter(client, NODE, *((name, DELETE, None) for name, _, _ in changes))[0] == "none"
            assert produce(client, "t", 5000) == "message_too_large"
            assert described(client, TOPIC, "t")["max.message.bytes"] == max_bytes[1:]
            assert alter(client, ALL, ("message.max.bytes", DELETE, None))[0] == "none"
            assert produce(client, "t", 3000) == "none"
            assert described(client, BROKER, ALL) == {}


def test_what_cannot_change_is_refused_in_kafkas_words(tmp_path: Path) -> None:
    with Headwater(tmp_path / "data") as server, WireClient(server.port) as client:
        code, message = alter(client, NODE, ("node.id", SET, "2"), ("log.dirs", SET, "/"))
        assert code == "invalid_request"
        assert "Cannot update these configs dynamically: Set(log.dirs, node.id)" in message
        for name, value in (
            ("log.retention.ms", "0"),
            ("log.retention.ms", "soon"),
            ("headwater.archive.dir", str(tmp_path / "data")),
            ("log.cleaner.threads", "many"),
        ):
            assert alter(client, ALL, (name, SET, value))[0] == "invalid_request", name
        strange = [(f"my.plugin.{number}", SET, "1") for number in range(MOST_UNKNOWN + 1)]
        code, message = alter(client, ALL, *strange)
        assert code == "invalid_request"
        assert f"it has {MOST_UNKNOWN + 1} settings that nobody knows" in message
        assert alter(client, ALL, ("my.plugin", SET, "1" * MOST_UNKNOWN_BYTES))[0] == "invalid_request"
        assert not (tmp_path / "data" / "broker.json").exists()


def test_changes_at_the_same_time_do_not_undo_each_other(tmp_path: Path) -> None:
    with Headwater(tmp_path / "data") as server:
        clients = [WireClient(server.port) for _ in range(8)]
        create(clients[0], "t")
        for kind, name, prefix in ((TOPIC, "t", ""), (BROKER, NODE, "log.")):
            settings = [
                f"{prefix}{each}"
                for each in ("retention.ms", "retention.bytes", "segment.bytes", "index.interval.bytes",
                             "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
                             "preallocate", "cleanup.policy")
            ]  # fmt: skip
            values = ["5000000"] * 6 + ["true", "compact"]
            for client, setting, value in zip(clients, settings, values, strict=True):
                resources = [change(kind, name, (setting, SET, value))]
                client.send("incremental_alter_configs", 1, resources=resources)
            for client in clients:
                assert client.receive("incremental_alter_configs", 1)["responses"][0]["error_code"] == "none"
            now = described(clients[0], kind, name)
            assert [now[setting][0][1] for setting in settings] == values
        for client in clients:
            client.close()
