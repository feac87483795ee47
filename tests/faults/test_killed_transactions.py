"""Broker and clients of a consume-transform-produce loop are killed at random: its output has every input
exactly once, in order, and no reader of committed records ever saw one that was aborted."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.faults.harness import KILLS, Tail, broker, chance, committed_offsets, create_topic, read_all
from tests.faults.program import Program
from tests.faults.transformer import FATAL_EXIT
from tests.faults.verdict import faults_of_output, faults_of_views, report

PARTITIONS = 4
PATIENCE = 60.0  # seconds without progress
ROUNDS = max(4, KILLS * 3 // 10)
# A static member takes its place up again at once; a dynamic one is noticed when its session ends.
CLIENTS: dict[str, list[str]] = {"a": ["--instance-id", "member-a"], "b": []}


class Loop:
    """The clients of the loop, each started again when it ends or is killed."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._stack = stack
        self.restarts = 0
        self.programs = {name: self._start(name) for name in CLIENTS}

    def kill(self, name: str) -> None:
        self.programs[name].kill()
        self.programs[name] = self._start(name)

    def revive(self) -> None:
        for name, program in self.programs.items():
            if not program.running:
                code = program.returncode
                assert code == FATAL_EXIT, f"transformer {name} ended with {code}"
                self.restarts += 1
                self.programs[name] = self._start(name)

    def _start(self, name: str) -> Program:
        arguments = ["--bootstrap", self._bootstrap, "--input", "in", "--output", "out", "--group", "loop"]
        arguments += ["--transactional-id", f"loop-{name}", *CLIENTS[name]]
        return self._stack.enter_context(Program("transformer", *arguments))


@pytest.mark.timeout(240 + 60 * ROUNDS)
def test_output_is_exactly_once_over_kills_of_broker_and_clients(tmp_path: Path) -> None:
    dice = chance()
    with ExitStack() as stack:
        server = stack.enter_context(broker())
        for topic in ("in", "out"):
            create_topic(server.bootstrap, topic, PARTITIONS)
        tail = stack.enter_context(Tail(server.bootstrap, "out", PARTITIONS, "read_committed"))
        sender = stack.enter_context(
            Program(
                "sender", "--bootstrap", server.bootstrap, "--topic", "in", "--partitions", str(PARTITIONS),
                "--sender", "1", "--rate", "600", "--acknowledgements", str(tmp_path / "acknowledged"),
            )
        )  # fmt: skip
        loop = Loop(server.bootstrap, stack)
        kills = {"broker": 0, "a": 0, "b": 0}
        time.sleep(2)
        for _ in range(ROUNDS):
            time.sleep(dice.uniform(0.3, 2.5))
            loop.revive()
            victim = dice.choice(["broker", "broker", "a", "b"])
            kills[victim] += 1
            if victim == "broker":
                server.kill()
                server.start()
            else:
                loop.kill(victim)
        summary = sender.finish()
        assert not summary["errors"] and not summary["left"], summary
        wait_until_consumed(server.bootstrap, "loop", "in", summary["sent"], loop)
        counts = {name: program.finish(60) for name, program in loop.programs.items()}
        output = read_all(server.bootstrap, "out", "read_committed")
        everything = read_all(server.bootstrap, "out")

    aborted = len(everything) - len(output)
    print(f"kills {kills}, fatal errors {loop.restarts}, {len(output)} outputs, {aborted} aborted, {counts}")
    sent = {(1, partition): count for partition, count in enumerate(summary["sent"])}
    faults = faults_of_output(output, sent) + faults_of_views(output, tail.seen) + tail.faults
    assert not faults, report(faults)
    assert aborted > 0, "nothing was aborted: the test did not try what it is for"


def wait_until_consumed(bootstrap: str, group: str, topic: str, ends: list[int], loop: Loop) -> None:
    """Until the group's committed positions are the ends of the input; it fails when they stand still."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, number) for number in range(len(ends))]
    deadline = time.monotonic() + PATIENCE
    committed: list[int] = []
    while committed != ends:
        before = committed
        if time.monotonic() > deadline:
            for program in loop.programs.values():
                program.show_stack()
            raise AssertionError(f"the loop stands at {committed} of {ends}")
        time.sleep(0.3)
        loop.revive()
        committed = [position.offset for position in committed_offsets(consumer, partitions)]
        if committed != before:
            deadline = time.monotonic() + PATIENCE
    consumer.close()
