"""Requests that are large or strange are refused, and leave nothing behind."""

from typing import Any

import pytest

from headwater.broker.messages import duration
from tests.broker.groups.calling import codes
from tests.broker.groups.script import Script
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import World, offsets

LONG = "\N{ROUND PUSHPIN}" * 8_001
LARGE = b"x" * (5 << 20)
OUTSIDE = {"generation_id_or_member_epoch": -1, "member_id": ""}


def join(**changes: Any) -> tuple[str, int, dict[str, Any]]:
    fields = {
        "group_id": "g",
        "session_timeout": duration(10_000),
        "rebalance_timeout": duration(3_000),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return "JoinGroup", 9, {**fields, **changes}


def beat(**changes: Any) -> tuple[str, int, dict[str, Any]]:
    fields = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": duration(3_000),
        "subscribed_topic_names": ("alpha",),
        "topic_partitions": (),
    }
    return "ConsumerGroupHeartbeat", 1, {**fields, **changes}


@pytest.mark.parametrize(
    "request_",
    [
        join(group_id=LONG),
        join(group_instance_id=LONG),
        join(protocol_type=LONG),
        join(protocols=[{"name": LONG, "metadata": b""}]),
        join(protocols=[{"name": "range", "metadata": LARGE}]),
        beat(group_id=LONG),
        beat(member_id=LONG),
        beat(instance_id=LONG),
        beat(rack_id=LONG),
        beat(subscribed_topic_names=(LONG,)),
        beat(subscribed_topic_names=("x" * 8_000,) * 600),
        ("OffsetCommit", 9, {"group_id": LONG, "topics": offsets("alpha", (0, 1)), **OUTSIDE}),
        (
            "TxnOffsetCommit",
            3,
            {"group_id": LONG, "transactional_id": "t", "producer_id": 1, "producer_epoch": 0,
             "topics": offsets("alpha", (0, 1))},
        ),
    ],
)  # fmt: skip
def test_too_much_is_refused(request_: tuple[str, int, dict[str, Any]]) -> None:
    async def program() -> None:
        world = World.started()
        api, version, fields = request_
        assert codes(await world.call(api, version, **fields)) == "invalid_request"
        assert world.groups.overview() == [] and not world.journal.entries

    run(program())


def test_the_longest_names_go_through_the_journal() -> None:
    async def program() -> None:
        world = World.started()
        longest = "\N{ROUND PUSHPIN}" * 8_000
        k = Script(world.call, world.topics.ids, "")
        assert codes(await k.beat(longest, longest, 0, instance_id=longest)) == "none"
        assert codes(await k.commit("other" + longest[:7_000], 9, -1, "")) == "none"
        await world.restart()
        assert len(world.groups.overview()) == 2
        assert world.groups.registry.consumer(longest) is not None

    run(program())


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_takes_a_member_without_client_id(version: int) -> None:
    async def program() -> None:
        world = World.started()
        world.call.client_id = None  # type: ignore[assignment]
        k = Script(world.call, world.topics.ids, "")
        joined = await k.join("g", version)
        assert joined.member_id.startswith("-") and joined.generation_id == 1
        await k.sync("g", joined, {joined.member_id: b""}, protocol_type="consumer")
        await world.restart()
        assert world.groups.overview()[0].state == "Stable"

    run(program())
