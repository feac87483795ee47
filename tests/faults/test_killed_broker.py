"""The broker is killed at random moments under idempotent producers: nothing acknowledged is lost, nothing
is there twice, offsets are dense, order is kept, and what a reader has seen stays."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.harness import (
    KILLS,
    Tail,
    broker,
    chance,
    create_topic,
    kill_repeatedly,
    read_acknowledgements,
    read_all,
)
from tests.faults.program import Program
from tests.faults.verdict import faults_of_log, faults_of_views, report

TOPIC = "orders"
PARTITIONS = 6
SENDERS = {
    1: ["--rate", "3000", "--largest", "300", "--linger", "2"],
    # Large writes take long enough to be cut in the middle.
    2: ["--rate", "300", "--largest", "30000", "--linger", "20"],
    3: ["--rate", "1000", "--largest", "1000", "--linger", "5", "--compression", "lz4"],
}


@pytest.mark.timeout(120 + 30 * KILLS)
def test_no_acknowledged_record_is_lost_doubled_or_moved(tmp_path: Path) -> None:
    dice = chance()
    with ExitStack() as stack:
        server = stack.enter_context(broker())
        create_topic(server.bootstrap, TOPIC, PARTITIONS)
        tail = stack.enter_context(Tail(server.bootstrap, TOPIC, PARTITIONS))
        common = ["--bootstrap", server.bootstrap, "--topic", TOPIC, "--partitions", str(PARTITIONS)]
        senders = {}
        for number, load in SENDERS.items():
            own = ["--sender", str(number), "--acknowledgements", str(tmp_path / str(number))]
            senders[number] = stack.enter_context(Program("sender", *common, *own, *load))
        time.sleep(1.5)  # all of them are sending
        started = time.monotonic()
        kill_repeatedly(server, KILLS, dice)
        took = time.monotonic() - started
        summaries = {number: sender.finish() for number, sender in senders.items()}
        log = read_all(server.bootstrap, TOPIC)

    for number, summary in summaries.items():
        assert not summary["errors"], f"sender {number}: {summary['errors'][:5]}"
        assert summary["left"] == 0, f"sender {number} could not deliver {summary['left']} records"
    sent = {
        (number, partition): count
        for number, summary in summaries.items()
        for partition, count in enumerate(summary["sent"])
    }
    acknowledged = [
        entry for number in SENDERS for entry in read_acknowledgements(tmp_path / f"{number}", number)
    ]
    print(f"{KILLS} kills in {took:.0f} s, {len(log)} records, {len(acknowledged)} acknowledged, "
          f"{len(tail.seen)} seen by the reader")  # fmt: skip
    assert len(acknowledged) == sum(sent.values()) > 1000 * KILLS
    faults = faults_of_log(log, acknowledged, sent) + faults_of_views(log, tail.seen) + tail.faults
    assert not faults, report(faults)
    assert len(tail.seen) > len(log) // 2, "the reader did not follow"
