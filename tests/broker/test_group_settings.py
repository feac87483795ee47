"""Settings of single groups: set, described, in force for members, kept over a kill."""

import time
from pathlib import Path

import pytest

from headwater.broker.groups.limits import MAX_CHARACTERS
from headwater.broker.groups.own_settings import OwnSettings
from headwater.broker.groups.settings import GroupSettings
from headwater.errors import InvalidConfig
from headwater.log.check import check_directory
from tests.broker.wire_client import Answer, WireClient
from tests.support.servers import Headwater, ServerFailed

GROUP = 32
SET, DELETE = 0, 1
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def alter(client: WireClient, group: str, *changes: tuple[str, int, str | None], only: bool = False) -> str:
    configs = [{"name": name, "config_operation": how, "value": value} for name, how, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = client.call("incremental_alter_configs", 1, resources=[resource], validate_only=only)
    return str(answer["responses"][0]["error_code"])


def described(client: WireClient, group: str) -> dict[str, tuple[str, int, list[int]]]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
    answer = client.call("describe_configs", 4, resources=[resource], include_synonyms=True)
    return {
        one["name"]: (one["value"], one["config_source"], [each["source"] for each in one["synonyms"]])
        for one in answer["results"][0]["configs"]
    }


def listed(client: WireClient) -> list[str]:
    answer = client.call("list_config_resources", 1, resource_types=[GROUP])
    return [resource["resource_name"] for resource in answer["config_resources"]]


def join(client: WireClient, group: str) -> Answer:
    return client.call(
        "consumer_group_heartbeat",
        1,
        group_id=group,
        member_id="member",
        rebalance_timeout=10_000,
        subscribed_topic_names=["nowhere"],
        topic_partitions=[],
    )


def members(client: WireClient, group: str) -> int:
    answer = client.call("consumer_group_describe", 1, group_ids=[group])
    return len(answer["groups"][0]["members"])


def test_a_group_has_settings_of_its_own(tmp_path: Path) -> None:
    with Headwater(tmp_path / "data", environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        with WireClient(server.port) as client:
            assert described(client, "quick") == {SESSION: ("45000", 5, [5]), HEARTBEAT: ("5000", 5, [5])}
            assert alter(client, "quick", (HEARTBEAT, SET, "200"), only=True) == "none"
            assert listed(client) == []
            assert alter(client, "quick", (SESSION, SET, "1000"), (HEARTBEAT, SET, "200")) == "none"
            assert described(client, "quick") == {SESSION: ("1000", 8, [8, 5]), HEARTBEAT: ("200", 8, [8, 5])}
            assert listed(client) == ["quick"]
            assert alter(client, "quick", ("retention.ms", SET, "1")) == "invalid_config"
            assert alter(client, "quick", (SESSION, SET, "soon")) == "invalid_config"
            assert alter(client, "quick", (SESSION, SET, "100")) == "invalid_config"  # shorter than its beats
            assert alter(client, "", (SESSION, SET, "9000")) == "invalid_request"
        server.kill()
        kept = tmp_path / "data" / "groups.json"
        good = kept.read_bytes()
        kept.write_bytes(good.replace(b'"1000"', b'"1001"'))
        with pytest.raises(ServerFailed, match=r"groups.json: it is damaged: its checksum does not match"):
            server.start()
        assert [each.path for each in check_directory(tmp_path / "data")] == [kept]
        kept.write_bytes(good)
        server.start()
        with WireClient(server.port) as client:
            assert listed(client) == ["quick"]
            assert [join(client, group)["heartbeat_interval"] for group in ("quick", "slow")] == [200, 5000]
            end = time.monotonic() + 20
            while members(client, "quick"):  # says nothing any more, and is out after a second
                assert time.monotonic() < end
                time.sleep(0.1)
            assert members(client, "slow") == 1
            assert alter(client, "quick", (SESSION, DELETE, None), (HEARTBEAT, DELETE, None)) == "none"
            assert (listed(client), described(client, "quick")[SESSION]) == ([], ("45000", 5, [5]))


def test_there_is_an_end_to_groups_with_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.groups.own_settings.MOST_GROUPS", 2)
    own = OwnSettings(GroupSettings())
    for group in ("a", "b"):
        own.replace(group, {SESSION: "9000"})
    with pytest.raises(InvalidConfig, match="2 groups have settings of their own already"):
        own.replace("c", {SESSION: "9000"})
    own.replace("a", {SESSION: "8000"})
    own.replace("a", {})
    own.replace("c", {SESSION: "9000"})
    assert own.groups() == ["b", "c"]


def test_no_group_of_an_endless_name_has_settings() -> None:
    """Ten thousand of them would fill the memory; one that was set before can be taken back."""
    own = OwnSettings(GroupSettings())
    own.replace("g" * MAX_CHARACTERS, {SESSION: "9000"})
    with pytest.raises(InvalidConfig, match="8001 characters"):
        own.replace("g" * (MAX_CHARACTERS + 1), {SESSION: "9000"})
    own.replace("g" * (MAX_CHARACTERS + 1), {})
    assert own.groups() == ["g" * MAX_CHARACTERS]
