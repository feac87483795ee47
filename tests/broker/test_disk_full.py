"""A broker whose disk is full: writers are told and can retry, readers go on, and all of it resumes."""

import contextlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conformance.script import Run, batch
from tests.broker.wire_client import Answer
from tests.support.servers import Headwater

SIZE = 24 << 20
RETRIABLE_PRODUCE = "kafka_storage_error"
RETRIABLE_COORDINATOR = {"not_coordinator", "coordinator_not_available"}


class Room:
    """A small file system with a broker on it, that can be filled to the last byte."""

    def __init__(self, path: Path) -> None:
        self.server = Headwater(path / "data", environment={"HEADWATER_CHECK_MESSAGES": "1"})
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with open(self._ballast, "ab") as ballast:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(ballast.fileno(), bytes(size))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class LimitedRoom(Room):
    """The broker's files may not grow: for those who have no right to mount anything."""

    def fill(self) -> None:
        self._limit(0)

    def free(self) -> None:
        if self.server.running:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.fixture(params=["small file system", "limited files"])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    path = Path(tempfile.mkdtemp(prefix="headwater-small-"))
    is_mounted = False
    if request.param == "small file system":
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(path)]
        is_mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    room = Room(path) if is_mounted else LimitedRoom(path)
    # The log of the process is not to be on the full disk.
    room.server.log = Path(tempfile.mkstemp(prefix="headwater-log-")[1])
    try:
        room.server.start()
        yield room
        assert "Traceback" not in room.server.output()
    finally:
        room.free()
        if room.server.running:
            room.server.kill()
        if is_mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)
        subprocess.run(["rm", "-rf", str(path), str(room.server.log)], check=True)


def produced(answer: Answer) -> Answer:
    found: Answer = answer["responses"][0]["partition_responses"][0]
    return found


def send(run: Run, topic: str, value: str = "x" * 5000, **more: Any) -> Answer:
    return produced(run.produce("", 9, topic, batch(value), settle=(), **more))


def commit(run: Run, group: str, topic: str, offset: int) -> str:
    item = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    answer = run.ask(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [item]}],
    )
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def committed(run: Run, group: str, topic: str) -> int:
    asked = [{"name": topic, "partition_indexes": [0]}]
    answer = run.ask("offset_fetch", 7, group_id=group, topics=asked)
    return int(answer["topics"][0]["partitions"][0]["committed_offset"])


def init(run: Run, transactional_id: str | None, claimed: tuple[int, int] = (-1, -1)) -> Answer:
    return run.ask(
        "init_producer_id",
        5,
        transactional_id=transactional_id,
        transaction_timeout=60_000,
        producer_id=claimed[0],
        producer_epoch=claimed[1],
    )


def test_writers_are_told_and_readers_go_on(room: Room) -> None:
    run = Run(room.server.port)
    topic = run.topic()
    for _ in range(5):
        assert send(run, topic)["error_code"] == "none"
    room.fill()
    refusals = [send(run, topic, "y" * 50_000) for _ in range(5)]
    assert {refusal["error_code"] for refusal in refusals} == {RETRIABLE_PRODUCE}
    assert "Free space; writing resumes by itself." in refusals[0]["error_message"]
    assert send(run, topic, "y" * 50_000, acks=1)["error_code"] == RETRIABLE_PRODUCE
    assert len(run.read("", topic)) == 5
    room.free()
    assert send(run, topic, "z")["base_offset"] == 5
    assert len(run.read("", topic)) == 6
    run.close()
    assert room.server.stop() == 0
    room.server.start()
    run = Run(room.server.port)
    found = run.read("", topic)
    assert [(item["base_offset"], item["values"][0][0]) for item in found] == [
        *((number, "x") for number in range(5)),
        (5, "z"),
    ]
    run.close()


def test_an_idempotent_producer_goes_on_where_it_was(room: Room) -> None:
    run = Run(room.server.port)
    topic = run.topic()
    producer = run.producer(None)

    def write(sequence: int) -> Answer:
        content = batch("v" * 20_000, producer=producer, sequence=sequence)
        return produced(run.produce("", 9, topic, content, settle=()))

    assert write(0)["error_code"] == "none"
    room.fill()
    assert write(1)["error_code"] == RETRIABLE_PRODUCE
    # A batch that comes after one that failed must not get in before it.
    small = batch("v", producer=producer, sequence=2)
    assert produced(run.produce("", 9, topic, small))["error_code"] in (
        "out_of_order_sequence_number",
        RETRIABLE_PRODUCE,
    )
    room.free()
    assert [write(number)["base_offset"] for number in (1, 2, 1)] == [1, 2, 1]
    run.close()


def test_commits_of_groups_fail_cleanly(room: Room) -> None:
    run = Run(room.server.port)
    topic, group = run.topic(), run.name("group")
    assert commit(run, group, topic, 1) == "none"
    room.fill()
    # The journal has room in its last block for a while.
    codes = [commit(run, group, topic, 100 + number) for number in range(200)]
    first = next(number for number, code in enumerate(codes) if code != "none")
    assert set(codes[first:]) <= RETRIABLE_COORDINATOR
    expected = 1 if first == 0 else 99 + first
    assert committed(run, group, topic) == expected
    room.free()
    assert commit(run, group, topic, 7) == "none"
    assert committed(run, group, topic) == 7
    run.close()
    room.server.kill()
    room.server.start()
    run = Run(room.server.port)
    assert committed(run, group, topic) == 7
    run.close()


def test_transactions_wait_for_room(room: Room) -> None:
    run = Run(room.server.port)
    topic, name = run.topic(), run.name("txn")
    identity = init(run, name)
    assert identity["error_code"] == "none"
    producer = (identity["producer_id"], identity["producer_epoch"])
    content = batch("a", producer=producer, sequence=0, transactional=True)
    assert produced(run.produce("", 12, topic, content, transactional_id=name))["error_code"] == "none"
    room.fill()
    while send(run, topic, "p")["error_code"] == "none":  # the last block of this partition, too
        pass

    def end() -> Answer:
        return run.ask(
            "end_txn",
            5,
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=True,
        )

    answer = end()
    while answer["error_code"] == "none":
        # The journal's last block had room for the decision, and it will be carried out: try with the next.
        producer = (answer["producer_id"], answer["producer_epoch"])
        answer = run.ask(
            "end_txn",
            5,
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=False,
        )
    assert answer["error_code"] in RETRIABLE_COORDINATOR | {"concurrent_transactions"}, answer
    refused = (init(run, run.name(f"another-{number}"))["error_code"] for number in range(200))
    assert next(code for code in refused if code != "none") in RETRIABLE_COORDINATOR
    room.free()
    run.wait_for(lambda: init(run, name)["error_code"] == "none", "the transactional id can be used again")

    def is_stable() -> bool:
        answer = run.ask("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
        producers = answer["topics"][0]["partitions"][0]["active_producers"]
        return all(item["current_txn_start_offset"] == -1 for item in producers)

    run.wait_for(is_stable, "the transaction has ended")
    run.close()
    assert room.server.stop() == 0
    room.server.start()


def test_topics_cannot_be_made_and_can_be_deleted(room: Room) -> None:
    run = Run(room.server.port)
    topic = run.topic()
    for _ in range(100):
        send(run, topic, "x" * 50_000)
    room.fill()
    made = run.ask(
        "create_topics",
        5,
        timeout=5000,
        topics=[{"name": run.name("new"), "num_partitions": 1, "replication_factor": 1}],
    )
    assert made["topics"][0]["error_code"] in (RETRIABLE_PRODUCE, "none")
    deleted = run.ask("delete_topics", 5, topic_names=[topic], timeout=5000)
    assert deleted["responses"][0]["error_code"] in ("none", RETRIABLE_PRODUCE)
    room.free()
    if deleted["responses"][0]["error_code"] != "none":
        deleted = run.ask("delete_topics", 5, topic_names=[topic], timeout=5000)
        assert deleted["responses"][0]["error_code"] == "none"
    fresh = run.topic("fresh")
    assert send(run, fresh)["error_code"] == "none"
    run.close()
    room.server.kill()
    room.server.start()
    run = Run(room.server.port)
    assert len(run.read("", fresh)) == 1
    run.close()
