"""The broker answers bare requests as Apache Kafka 4.1.1 does: see tests/broker/conformance."""

import os
from collections.abc import Iterator

import pytest

from tests.broker.conformance.divergences import DIVERGENCES, is_divergent
from tests.broker.conformance.exhaustion import NAME as EXHAUSTION
from tests.broker.conformance.script import differences, run_script
from tests.broker.conformance.scripts import SCRIPTS
from tests.broker.conformance.seen import FOLDER, as_seen, read_seen
from tests.support.servers import ApacheKafka, Headwater

# What Apache Kafka takes its time for; ``make conformance`` waits for it.
LONG = {"transactions_that_take_too_long", "settings_changed_one_by_one", "settings_replaced_as_a_whole"}
ALL = os.environ.get("HEADWATER_TEST_SERVERS") == "both"


@pytest.fixture(scope="module")
def checked_headwater() -> Iterator[Headwater]:
    """A broker that refuses to answer with a field that the protocol does not have."""
    with Headwater(environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        yield server
        assert "Traceback" not in server.output()


def compared(name: str, steps: list[dict[str, object]]) -> list[dict[str, object]]:
    return [step for step in as_seen(steps) if not is_divergent(name, str(step["step"]))]


@pytest.mark.parametrize("name", SCRIPTS)
def test_headwater_answers_as_kafka_was_seen_to(name: str, checked_headwater: Headwater) -> None:
    found = run_script(name, checked_headwater.port)
    assert differences(compared(name, read_seen(name)), compared(name, found)) == []


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in LONG or ALL])
def test_kafka_answers_as_it_was_seen_to(name: str, kafka: ApacheKafka) -> None:
    found = run_script(name, kafka.port, is_patient=True)
    assert differences(read_seen(name), as_seen(found)) == []


def test_every_divergence_is_one() -> None:
    """A step that has come to agree with Kafka leaves the list; one that was renamed does not stay."""
    for name, patterns in DIVERGENCES.items():
        steps = [str(step["step"]) for step in read_seen(name)]
        for pattern in patterns:
            assert any(is_divergent(name, step) for step in steps), f"{name} has no step {pattern}"


def test_every_transcript_has_a_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {*SCRIPTS, EXHAUSTION}
