"""SIGTERM: what is under way is finished and answered, and the log closed. Transactions over a restart."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.log.sealed import unseal
from tests.broker.conformance.script import Run, batch
from tests.broker.wire_client import Answer, Closed, WireClient
from tests.support.servers import Headwater


@pytest.fixture
def server() -> Iterator[Headwater]:
    with Headwater(environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


def send_batch(client: WireClient, topic: str, value: str, acks: int = -1) -> None:
    client.send(
        "produce",
        9,
        acks=acks,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch(value)}]}],
    )


def answers(client: WireClient, api: str, version: int) -> list[Answer]:
    """All that comes until the server closes the connection."""
    found = []
    while True:
        try:
            found.append(client.receive(api, version))
        except Closed:
            return found


def is_closed_cleanly(data: Path) -> bool:
    checkpoint = unseal((data / "checkpoint.json").read_bytes())
    return bool(checkpoint) and all(clean_end >= 0 for _, _, clean_end, *_ in checkpoint.values())


def test_requests_under_way_are_finished(server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    clients = [WireClient(server.port) for _ in range(4)]
    for number in range(300):
        for client in clients:
            send_batch(client, topic, f"{clients.index(client)}:{number}")
    clients[0].receive("produce", 9)
    os.kill(server.pid, signal.SIGTERM)
    answered = {}
    for client in clients:
        for number, answer in enumerate(answers(client, "produce", 9)):
            found = answer["responses"][0]["partition_responses"][0]
            assert found["error_code"] == "none", found
            who = clients.index(client)
            answered[found["base_offset"]] = f"{who}:{number + (who == 0)}"
        client.close()
    run.close()
    assert server.stop() == 0
    assert is_closed_cleanly(server.data)
    server.start()
    run = Run(server.port)
    written = {item["base_offset"]: item["values"][0] for item in run.read("", topic)}
    # One answer was received before the signal; all others, and no batch without one, after it.
    assert len(written) == len(answered) + 1
    assert answered.items() <= written.items()
    run.close()


def test_waiting_requests_are_let_go(server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    run.find_coordinators()
    with WireClient(server.port) as reader, WireClient(server.port) as member:
        reader.send(
            "fetch",
            11,
            replica_id=-1,
            max_wait=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
        )
        member.send(
            "join_group",
            5,
            group_id=run.name("group"),
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id="",
            group_instance_id="static",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        time.sleep(0.05)
        started = time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert [answer["error_code"] for answer in answers(reader, "fetch", 11)] == ["none"]
        answers(member, "join_group", 5)
        assert server.stop() == 0
        assert time.monotonic() - started < 4
    run.close()
    assert is_closed_cleanly(server.data)


def test_an_idle_client_does_not_hold_up_the_end(server: Headwater) -> None:
    with WireClient(server.port) as client:
        client.call("metadata", 4, topics=[])
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 3
        assert client.is_closed_by_peer()


def test_a_second_signal_changes_nothing(server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    run.produce("", 9, topic, batch("a"))
    run.close()
    os.kill(server.pid, signal.SIGINT)
    os.kill(server.pid, signal.SIGTERM)
    assert server.stop() == 0
    assert is_closed_cleanly(server.data)


# -- transactions over a restart ---------------------------------------------------------------------------


class Transactional:
    """A producer of either generation, over restarts."""

    def __init__(self, run: Run, generation: int, topic: str, timeout: int = 60_000) -> None:
        self.run = run
        self.generation = generation
        self.topic = topic
        self.name = run.name("txn")
        answer = run.ask(
            "init_producer_id", 3 + generation, transactional_id=self.name, transaction_timeout=timeout,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        assert answer["error_code"] == "none", answer
        self.identity = (answer["producer_id"], answer["producer_epoch"])
        self.sequence = 0

    def write(self, value: str) -> str:
        if self.generation == 1:
            self.run.ask(
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.identity[0],
                v3_and_below_producer_epoch=self.identity[1],
                v3_and_below_topics=[{"name": self.topic, "partitions": [0]}],
            )
        content = batch(value, producer=self.identity, sequence=self.sequence, transactional=True)
        answer = self.run.produce("", 10 + self.generation, self.topic, content, transactional_id=self.name)
        code = str(answer["responses"][0]["partition_responses"][0]["error_code"])
        self.sequence += code == "none"
        return code

    def end(self, commit: bool) -> Answer:
        return self.run.ask(
            "end_txn",
            3 + self.generation,
            transactional_id=self.name,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            committed=commit,
        )


def values(run: Run, topic: str) -> list[str]:
    """What read_committed readers see; aborted records are taken out by what the broker says of them."""
    found = run.ask(
        "fetch",
        11,
        replica_id=-1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
    )["responses"][0]["partitions"][0]
    aborted = {item["producer_id"] for item in found["aborted_transactions"]}
    read: list[dict[str, Any]] = run.read("", topic)
    return [value for item in read for value in item.get("values", ()) if item["producer_id"] not in aborted]


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_open_transaction_goes_on(generation: int, how: str, server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    producer = Transactional(run, generation, topic)
    assert producer.write("before") == "none"
    run.close()
    server.stop() if how == "stop" else server.kill()
    server.start()
    run = producer.run = Run(server.port)
    assert values(run, topic) == []
    assert producer.write("after") == "none"
    assert producer.end(commit=True)["error_code"] == "none"
    assert values(run, topic) == ["before", "after"]
    run.close()


@pytest.mark.parametrize("generation", [1, 2])
def test_time_goes_on_while_the_broker_is_down(generation: int, server: Headwater) -> None:
    run = Run(server.port)
    topic = run.topic()
    producer = Transactional(run, generation, topic, timeout=1500)
    assert producer.write("late") == "none"
    run.close()
    server.kill()
    time.sleep(1.5)
    server.start()
    run = producer.run = Run(server.port)

    def has_ended() -> bool:
        answer = run.ask("describe_transactions", 0, transactional_ids=[producer.name])
        return bool(answer["transaction_states"][0]["transaction_state"] == "CompleteAbort")

    run.wait_for(has_ended, "the transaction has timed out")
    assert producer.write("later") == "invalid_producer_epoch"
    assert values(run, topic) == []
    run.close()


def test_a_client_that_leaves_while_its_transaction_ends(server: Headwater) -> None:
    """The decision is carried out to the last marker, though nobody waits for the answer."""
    run = Run(server.port)
    topic = run.topic()
    for number in range(20):
        producer = Transactional(run, 2, topic)
        assert producer.write(f"value {number}") == "none"
        leaving = WireClient(server.port)
        leaving.send(
            "end_txn",
            5,
            transactional_id=producer.name,
            producer_id=producer.identity[0],
            producer_epoch=producer.identity[1],
            committed=True,
        )
        leaving.close()
        run.wait_for(lambda: _is_stable(run, topic), "the transaction has ended")
    assert values(run, topic) == [f"value {number}" for number in range(20)]
    run.close()


def _is_stable(run: Run, topic: str) -> bool:
    answer = run.ask("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
    producers = answer["topics"][0]["partitions"][0]["active_producers"]
    return all(item["current_txn_start_offset"] == -1 for item in producers)
