"""The power fails under idempotent producers: what was acknowledged was synced, and is there."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.harness import (
    KILLS,
    Tail,
    chance,
    create_topic,
    read_acknowledgements,
    read_all,
)
from tests.faults.power.cut import CUT_AT_SYNC, PowerSupply
from tests.faults.program import Program
from tests.faults.verdict import faults_of_log, faults_of_views, report
from tests.support.servers import Headwater

TOPIC = "orders"
PARTITIONS = 3
SENDERS = {
    1: ["--rate", "3000", "--largest", "300", "--linger", "2"],
    2: ["--rate", "200", "--largest", "30000", "--linger", "10"],
}
CUTS = max(4, KILLS // 2)


@pytest.mark.timeout(180 + 30 * CUTS)
def test_what_was_acknowledged_survives_the_loss_of_power(tmp_path: Path) -> None:
    supply = PowerSupply(tmp_path / "synced")
    faults = faults_after_cuts(tmp_path, supply, CUTS, lie="")
    assert not faults, report(faults)
    assert supply.lost > 0, "nothing was unsynced when the power failed: the test tried nothing"


@pytest.mark.timeout(240)
def test_a_disk_that_lies_about_its_syncs_is_noticed(tmp_path: Path) -> None:
    """The harness can fail: without the syncs of the log, records that were acknowledged are gone."""
    supply = PowerSupply(tmp_path / "synced", losses=[CUT_AT_SYNC])
    assert faults_after_cuts(tmp_path, supply, 1, lie=".log")


def faults_after_cuts(tmp_path: Path, supply: PowerSupply, cuts: int, lie: str) -> list[str]:
    """Run producers and a reader over so many power cuts; what is wrong afterwards."""
    dice = chance()
    with ExitStack() as stack:
        server = stack.enter_context(Headwater(environment=supply.environment(lie)))
        create_topic(server.bootstrap, TOPIC, PARTITIONS)
        tail = stack.enter_context(Tail(server.bootstrap, TOPIC, PARTITIONS))
        common = ["--bootstrap", server.bootstrap, "--topic", TOPIC, "--partitions", str(PARTITIONS)]
        senders = {}
        for number, load in SENDERS.items():
            own = ["--sender", str(number), "--acknowledgements", str(tmp_path / str(number))]
            senders[number] = stack.enter_context(Program("sender", *common, *own, *load))
        time.sleep(1.5)
        for _ in range(cuts):
            time.sleep(dice.uniform(0.02, 1.0))
            server.kill()
            supply.cut(server.data, dice)
            server.start()
        summaries = {number: sender.finish() for number, sender in senders.items()}
        log = read_all(server.bootstrap, TOPIC)

    sent = {
        (number, partition): count
        for number, summary in summaries.items()
        for partition, count in enumerate(summary["sent"])
    }
    acknowledged = [
        entry for number in SENDERS for entry in read_acknowledgements(tmp_path / str(number), number)
    ]
    print(
        f"{cuts} power cuts, {supply.lost} bytes lost in {supply.damaged} files, "
        f"{len(log)} records, {len(acknowledged)} acknowledged"
    )
    faults = [f"a sender got {error}" for summary in summaries.values() for error in summary["errors"]]
    faults += [f"a sender could not deliver {s['left']} records" for s in summaries.values() if s["left"]]
    faults += faults_of_log(log, acknowledged, sent)
    return faults + faults_of_views(log, tail.seen) + tail.faults
