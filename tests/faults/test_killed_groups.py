"""The broker is killed under consumer groups of both protocols: committed offsets never go back, nobody finds
an offset that nobody committed, and every record is read by some member."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.faults.harness import KILLS, broker, chance, committed_offsets, create_topic, kill_repeatedly
from tests.faults.program import QUICK, Program
from tests.faults.verdict import faults_of_commits, report

TOPIC = "orders"
PARTITIONS = 4
ROUNDS = max(3, KILLS // 5)

Event = tuple[int, str, int, int]  # time, what, partition, offset


class Auditor:
    """Asks what the group has committed, as anybody may."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.events: list[Event] = []
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUICK})

    def ask(self) -> list[int]:
        asked = time.monotonic_ns()
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        answer = [max(-1, position.offset) for position in committed_offsets(self._consumer, partitions)]
        told = time.monotonic_ns()
        for partition, offset in enumerate(answer):
            self.events += [(asked, "asked", partition, offset), (told, "told", partition, offset)]
        return answer

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(240 + 30 * ROUNDS)
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.wide)])
def test_committed_offsets_never_go_back(protocol: str, tmp_path: Path) -> None:
    dice = chance()
    with ExitStack() as stack:
        server = stack.enter_context(broker())
        create_topic(server.bootstrap, TOPIC, PARTITIONS)
        sender = stack.enter_context(
            Program(
                "sender", "--bootstrap", server.bootstrap, "--topic", TOPIC, "--partitions", str(PARTITIONS),
                "--sender", "1", "--rate", "1000", "--acknowledgements", str(tmp_path / "acknowledged"),
            )
        )  # fmt: skip
        members = [
            stack.enter_context(
                Program(
                    "member", "--bootstrap", server.bootstrap, "--topic", TOPIC, "--group", "audited",
                    "--protocol", protocol, "--history", str(tmp_path / f"member-{number}"),
                )
            )
            for number in range(2)
        ]  # fmt: skip
        auditor = Auditor(server.bootstrap, "audited")
        stack.callback(auditor.close)
        deadline = time.monotonic() + 60
        while max(auditor.ask()) < 0:
            assert time.monotonic() < deadline, "the group does not commit"
            time.sleep(0.1)
        kill_repeatedly(server, ROUNDS, dice, after_start=auditor.ask, longest=2.5)
        ends = sender.finish()["sent"]
        deadline = time.monotonic() + 90
        while auditor.ask() != ends:
            assert time.monotonic() < deadline, f"the group stands at {auditor.ask()} of {ends}"
            time.sleep(0.3)
        failed = [member.finish() for member in members]

    events = [event for number in range(2) for event in history(tmp_path / f"member-{number}")]
    read = {partition: set[int]() for partition in range(PARTITIONS)}
    first: dict[int, int] = {}
    for number in range(2):
        for _, what, partition, offset in history(tmp_path / f"member-{number}"):
            if what == "from":
                first[partition] = offset
            elif what == "read":
                read[partition].update(range(first[partition], offset))
                first[partition] = offset
    timeline = sorted([*events, *auditor.events], key=lambda event: event[0])
    commits = sum(what == "committed" for _, what, _, _ in timeline)
    print(f"{protocol}: {ROUNDS} kills, {sum(ends)} records, {commits} commits, failed: {failed}")
    faults = faults_of_commits((what, partition, offset) for _, what, partition, offset in timeline)
    for partition, end in enumerate(ends):
        unread = set(range(end)) - read[partition]
        if unread:
            faults.append(
                f"partition {partition}: {len(unread)} records nobody read, the first {min(unread)}"
            )
    assert not faults, report(faults)
    assert commits > 3 * ROUNDS, "too few commits for the test to mean something"


def history(path: Path) -> Iterator[Event]:
    """What a member wrote down."""
    with path.open() as lines:
        for line in lines:
            moment, what, partition, offset = line.split()
            yield int(moment), what, int(partition), int(offset)
