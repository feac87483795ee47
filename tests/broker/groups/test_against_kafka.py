"""The same conversations with Apache Kafka and with our coordinator: the answers must be the same."""

import asyncio
import difflib
import functools
import itertools
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.broker.groups.calling import Caller, InProcess, OverTheWire
from tests.broker.groups.scenarios import SCENARIOS
from tests.broker.groups.script import Script
from tests.broker.groups.virtual_time import run
from tests.broker.groups.world import SETTINGS, World
from tests.support.servers import ApacheKafka, Headwater

TOPICS = {"alpha": 3, "beta": 2, "gamma": 1}
_numbers = itertools.count(1)

Scenario = Callable[[Script], Awaitable[None]]
Answers = Callable[[Scenario], list[Any]]

# They wait for members to die, each in groups of its own: they wait together.
SLEEPERS = {
    "members_that_die",
    "consumer_members_that_die",
    "classic_members_that_die_in_a_new_group",
    "static_members_change_protocol",
    "versions_of_join",
}


SHARED = {
    "group.initial.rebalance.delay.ms": SETTINGS.initial_rebalance_delay_ms,
    "group.min.session.timeout.ms": SETTINGS.min_session_timeout_ms,
    "group.consumer.session.timeout.ms": SETTINGS.consumer_session_timeout_ms,
    "group.consumer.heartbeat.interval.ms": SETTINGS.consumer_heartbeat_interval_ms,
}


@pytest.fixture(scope="module")
def real() -> Iterator[ApacheKafka]:
    """Apache Kafka with the settings of our coordinator in these tests."""
    config = {name: str(value) for name, value in SHARED.items()}
    config |= {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "unstable.api.versions.enable": "true",  # topic ids in offset requests
    }
    with ApacheKafka(config=config) as server:
        asyncio.run(_prepare(server.port))
        yield server


@pytest.fixture(scope="module")
def embedded() -> Iterator[Headwater]:
    """Our broker, with the same settings."""
    arguments = [word for name, value in SHARED.items() for word in ("--set", f"{name}={value}")]
    with Headwater(arguments=arguments) as server:
        asyncio.run(_prepare(server.port))
        yield server


@pytest.fixture(scope="module")
def answers(real: ApacheKafka) -> Answers:
    """Apache Kafka's part of each conversation."""
    return _player(real.port)


@pytest.fixture(scope="module")
def our_answers(embedded: Headwater) -> Answers:
    """Our broker's part."""
    return _player(embedded.port)


def _player(port: int) -> Answers:
    @functools.cache
    def together() -> dict[str, list[Any]]:
        async def play_all() -> list[list[Any]]:
            return await asyncio.gather(*(_over_the_wire(port, scenario) for scenario in sleepers))

        sleepers = [scenario for scenario in SCENARIOS if scenario.__name__ in SLEEPERS]
        notes = asyncio.run(play_all())
        return {scenario.__name__: each for scenario, each in zip(sleepers, notes, strict=True)}

    @functools.cache
    def play(scenario: Scenario) -> list[Any]:
        if scenario.__name__ in SLEEPERS:
            return together()[scenario.__name__]
        return asyncio.run(_over_the_wire(port, scenario))

    return play


async def _prepare(port: int) -> None:
    """Topics, and a group coordinator that is ready."""
    call = OverTheWire(port)
    topics = [
        {"name": name, "num_partitions": size, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, size in TOPICS.items()
    ]
    await call("CreateTopics", 5, topics=topics)
    deadline = time.monotonic() + 30
    while True:
        await call("FindCoordinator", 4, key_type=0, coordinator_keys=("warm-up",))
        fetched = await call("OffsetFetch", 7, group_id="warm-up", topics=None)
        if fetched.error_code.name == "none":
            return
        assert time.monotonic() < deadline, fetched
        await asyncio.sleep(0.2)


async def _over_the_wire(port: int, scenario: Scenario) -> list[Any]:
    call = OverTheWire(port)
    metadata = await call("Metadata", 12, topics=None)
    ids: dict[str, uuid.UUID] = {t.name: t.topic_id for t in metadata.topics if t.name in TOPICS}
    script = Script(call, ids, f"run{next(_numbers)}.")
    await scenario(script)
    return script.notes()


async def _in_process(scenario: Scenario) -> list[Any]:
    world = World.started()
    script = Script(_Transactions(world), world.topics.ids, "")
    await scenario(script)
    await world.groups.stop()
    return script.notes()


class _Transactions:
    """The coordinator, and as much of a transaction coordinator as the scenarios need."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._call: Caller = InProcess(world.groups)

    async def __call__(self, api: str, version: int, **fields: Any) -> Any:
        match api:
            case "InitProducerId":
                return _Answer(producer_id=1000, producer_epoch=0)
            case "EndTxn":
                self._world.end_transaction(fields["producer_id"], fields["committed"])
            case "FindCoordinator" | "AddOffsetsToTxn":
                pass
            case _:
                return await self._call(api, version, **fields)
        return _Answer()


class _Answer:
    class error_code:
        name = "none"

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@every_scenario
def test_the_coordinator_answers_as_kafka(answers: Answers, scenario: Scenario) -> None:
    _compare(answers(scenario), run(_in_process(scenario)))


@every_scenario
def test_the_broker_answers_as_kafka(answers: Answers, our_answers: Answers, scenario: Scenario) -> None:
    _compare(answers(scenario), our_answers(scenario))


def _compare(theirs: list[Any], ours: list[Any]) -> None:
    for number, (his, mine) in enumerate(zip(theirs, ours, strict=True)):
        shown = difflib.unified_diff(_lines(his), _lines(mine), "kafka", "headwater", lineterm="")
        difference = "\n".join(shown)
        assert not difference, f"request {number}, {mine[:3]}:\n{difference}"


def _lines(note: Any) -> list[str]:
    return json.dumps(note, indent=1, default=str).splitlines()
