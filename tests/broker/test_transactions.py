"""Transactions against a model: producers of both generations, kills, time-outs, zombies, and all readers.

``HEADWATER_EXAMPLES`` is the number of histories that are tried.
"""

import itertools
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.log.records import read_records
from tests.broker.conformance.script import PASSING, batch
from tests.broker.transaction_logs import batches, committed_values, write_decision
from tests.broker.transaction_model import Batch, Fate, Identity, Model, Transaction
from tests.broker.wire_client import Answer, WireClient
from tests.support.servers import Headwater

EXAMPLES = int(os.environ.get("HEADWATER_EXAMPLES", "3"))
PARTITIONS = 2
GROUPS = ("first", "second")
producers = st.integers(0, 2)
partitions = st.integers(0, PARTITIONS - 1)
groups = st.sampled_from(GROUPS)


class Producer:
    """A transactional id, who holds it now and who held it before."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity: Identity = (-1, -1)
        self.generation = 1
        self.transaction: Transaction | None = None
        self.sequences: dict[int, int] = {}
        self.zombies: list[Identity] = []
        self.last_end: tuple[Identity, bool, Identity] | None = None
        self.last_batch: tuple[int, bytes, int] | None = None

    def becomes(self, identity: Identity) -> None:
        if identity != self.identity:
            if self.identity[0] >= 0:
                self.zombies.append(self.identity)
            self.identity = identity
            self.sequences = {}
            self.last_batch = None


class Histories(RuleBasedStateMachine):
    """One history of producers, and after every step a look at all that can be seen."""

    server: Headwater

    def __init__(self) -> None:
        super().__init__()
        self.client = WireClient(self.server.port)
        self.model = Model(PARTITIONS)
        self.run = uuid.uuid4().hex[:10]
        self.topic = f"topic.{self.run}"
        self.producers = [Producer(f"txn-{number}.{self.run}") for number in range(3)]
        self.values = itertools.count()
        made = self.call(
            "create_topics",
            5,
            timeout=10_000,
            topics=[{"name": self.topic, "num_partitions": PARTITIONS, "replication_factor": 1}],
        )
        assert made["topics"][0]["error_code"] == "none"

    def teardown(self) -> None:
        self.client.close()

    def call(self, api: str, version: int, **fields: Any) -> Answer:
        for _ in range(200):
            answer = self.client.call(api, version, **fields)
            if answer.get("error_code") not in PASSING:
                return answer
            time.sleep(0.01)
        raise AssertionError(f"{api} is put off for ever: {answer}")

    def group(self, name: str) -> str:
        return f"{name}.{self.run}"

    # -- identities -------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for producer in self.producers:
            self.start_anew(producer, 2)

    def start_anew(
        self, producer: Producer, generation: int, timeout: int = 60_000, claim: bool = False
    ) -> None:
        """InitProducerId, which ends what was open."""
        named = producer.identity if claim else (-1, -1)
        answer = self.call(
            "init_producer_id",
            5 if generation == 2 else 4,
            transactional_id=producer.name,
            transaction_timeout=timeout,
            producer_id=named[0],
            producer_epoch=named[1],
        )
        assert answer["error_code"] == "none", answer
        self.ended(producer, Fate.ABORTED)
        given = (answer["producer_id"], answer["producer_epoch"])
        assert given != producer.identity and given[0] == max(given[0], producer.identity[0])
        producer.becomes(given)
        producer.generation = generation
        producer.last_end = None

    @rule(number=producers, generation=st.sampled_from((1, 2)), claim=st.booleans())
    def a_new_instance_takes_over(self, number: int, generation: int, claim: bool) -> None:
        self.start_anew(self.producers[number], generation, claim=claim)

    # -- writing ----------------------------------------------------------------------------------

    @rule(number=producers, partition=partitions, count=st.integers(1, 3))
    def write(self, number: int, partition: int, count: int) -> None:
        producer = self.producers[number]
        values = [str(next(self.values)) for _ in range(count)]
        self.join(producer, partition)
        sequence = producer.sequences.get(partition, 0)
        records = batch(*values, producer=producer.identity, sequence=sequence, transactional=True)
        found = self.produce(producer, partition, records)
        assert found["error_code"] == "none", found
        assert producer.transaction is not None
        producer.transaction.partitions.add(partition)
        producer.sequences[partition] = sequence + count
        producer.last_batch = (partition, records, found["base_offset"])
        self.model.batches[partition].append(Batch(found["base_offset"], values, producer.transaction))

    def join(self, producer: Producer, partition: int) -> None:
        if producer.transaction is None:
            producer.transaction = Transaction(producer.identity[0])
            self.model.transactions.append(producer.transaction)
        if producer.generation == 1 and partition not in producer.transaction.partitions:
            code = self.add_partitions(producer.name, producer.identity, partition)
            assert code == "none", code
            producer.transaction.partitions.add(partition)

    def add_partitions(self, name: str, identity: Identity, partition: int) -> str:
        answer = self.client.call(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[{"name": self.topic, "partitions": [partition]}],
        )
        result = answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
        return str(result["partition_error_code"])

    def produce(
        self, producer: Producer | None, partition: int, records: bytes, version: int | None = None
    ) -> Answer:
        generation = producer.generation if producer is not None else 2
        answer = self.client.call(
            "produce",
            version or (12 if generation == 2 else 11),
            transactional_id=producer.name if producer is not None else None,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": self.topic, "partition_data": [{"index": partition, "records": records}]}],
        )
        found: Answer = answer["responses"][0]["partition_responses"][0]
        return found

    @rule(number=producers)
    def send_the_last_batch_again(self, number: int) -> None:
        producer = self.producers[number]
        if producer.transaction is not None and producer.last_batch is not None:
            partition, records, offset = producer.last_batch
            if partition in producer.transaction.partitions:
                found = self.produce(producer, partition, records)
                assert (found["error_code"], found["base_offset"]) == ("none", offset)

    @rule(partition=partitions)
    def somebody_writes_without_a_transaction(self, partition: int) -> None:
        value = str(next(self.values))
        found = self.produce(None, partition, batch(value))
        assert found["error_code"] == "none"
        self.model.batches[partition].append(Batch(found["base_offset"], [value]))

    # -- offsets ----------------------------------------------------------------------------------

    @rule(number=producers, group=groups, offset=st.integers(0, 1000))
    def commit_offsets_in_it(self, number: int, group: str, offset: int) -> None:
        producer = self.producers[number]
        if producer.transaction is None:
            producer.transaction = Transaction(producer.identity[0])
            self.model.transactions.append(producer.transaction)
        if producer.generation == 1:
            added = self.call(
                "add_offsets_to_txn",
                3,
                transactional_id=producer.name,
                producer_id=producer.identity[0],
                producer_epoch=producer.identity[1],
                group_id=self.group(group),
            )
            assert added["error_code"] == "none", added
        code = self.txn_offset_commit(producer, producer.identity, group, offset)
        assert code == "none", code
        self.model.commit(group, offset, producer.transaction)

    def txn_offset_commit(self, producer: Producer, identity: Identity, group: str, offset: int) -> str:
        answer = self.client.call(
            "txn_offset_commit",
            5 if producer.generation == 2 else 3,
            transactional_id=producer.name,
            group_id=self.group(group),
            producer_id=identity[0],
            producer_epoch=identity[1],
            generation_id=-1,
            topics=[
                {
                    "name": self.topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        return str(answer["topics"][0]["partitions"][0]["error_code"])

    @rule(group=groups, offset=st.integers(0, 1000))
    def commit_offsets_beside_it(self, group: str, offset: int) -> None:
        item = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = self.client.call(
            "offset_commit",
            8,
            group_id=self.group(group),
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": self.topic, "partitions": [item]}],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == "none"
        self.model.commit(group, offset)

    # -- ending -----------------------------------------------------------------------------------

    @rule(number=producers, commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        producer = self.producers[number]
        before = producer.identity
        answer = self.end_txn(producer, before, commit)
        if producer.transaction is None:
            # Nothing was begun: only the second generation may abort that, and an old end may be repeated.
            if producer.generation == 2:
                assert answer["error_code"] == ("invalid_txn_state" if commit else "none"), answer
            else:
                assert answer["error_code"] in ("none", "invalid_txn_state")
        else:
            assert answer["error_code"] == "none", answer
            self.ended(producer, Fate.COMMITTED if commit else Fate.ABORTED)
        if answer["error_code"] == "none" and producer.generation == 2:
            after = (answer["producer_id"], answer["producer_epoch"])
            assert after == (before[0], before[1] + 1)
            producer.becomes(after)
            producer.last_end = (before, commit, after)

    def end_txn(self, producer: Producer, identity: Identity, commit: bool) -> Answer:
        return self.call(
            "end_txn",
            5 if producer.generation == 2 else 4,
            transactional_id=producer.name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )

    def ended(self, producer: Producer, fate: Fate) -> None:
        if producer.transaction is not None:
            self.model.end(producer.transaction, fate)
            producer.transaction = None

    @rule(number=producers)
    def end_again_because_the_answer_was_lost(self, number: int) -> None:
        producer = self.producers[number]
        if producer.last_end is not None and producer.transaction is None and producer.generation == 2:
            before, commit, after = producer.last_end
            if producer.identity == after:
                answer = self.end_txn(producer, before, commit)
                assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (
                    "none",
                    *after,
                )
                assert self.end_txn(producer, before, not commit)["error_code"] == "invalid_txn_state"

    # -- zombies ----------------------------------------------------------------------------------

    @precondition(lambda self: any(producer.zombies for producer in self.producers))
    @rule(number=producers, partition=partitions, data=st.data())
    def a_zombie_tries(self, number: int, partition: int, data: st.DataObject) -> None:
        producer = self.producers[number]
        if not producer.zombies:
            return
        zombie = data.draw(st.sampled_from(producer.zombies))
        refused = {"invalid_producer_epoch", "producer_fenced", "invalid_producer_id_mapping"}
        records = batch("zombie", producer=zombie, sequence=0, transactional=True)
        assert self.produce(producer, partition, records)["error_code"] in refused
        assert self.add_partitions(producer.name, zombie, partition) in refused
        assert self.txn_offset_commit(producer, zombie, "first", 9999) in refused
        if producer.last_end is None or zombie != producer.last_end[0]:
            assert self.end_txn(producer, zombie, True)["error_code"] in refused
            assert self.end_txn(producer, zombie, False)["error_code"] in refused

    # -- time and crashes -------------------------------------------------------------------------

    @rule(number=producers, generation=st.sampled_from((1, 2)), partition=partitions)
    def take_too_long(self, number: int, generation: int, partition: int) -> None:
        producer = self.producers[number]
        self.start_anew(producer, generation, timeout=300)
        self.write(number, partition, 1)
        self.wait_until_ended(producer)
        self.ended(producer, Fate.ABORTED)
        self.start_anew_after_fence(producer, generation)

    def wait_until_ended(self, producer: Producer) -> None:
        deadline = time.monotonic() + 20
        while self.state(producer) not in ("CompleteAbort", "CompleteCommit"):
            assert time.monotonic() < deadline, f"{self.state(producer)} for ever"
            time.sleep(0.05)

    def state(self, producer: Producer) -> str:
        answer = self.client.call("describe_transactions", 0, transactional_ids=[producer.name])
        return str(answer["transaction_states"][0]["transaction_state"])

    def start_anew_after_fence(self, producer: Producer, generation: int) -> None:
        """The producer of a timed-out transaction is fenced; it goes on by naming itself (KIP-360)."""
        records = batch("late", producer=producer.identity, sequence=99, transactional=True)
        found = self.produce(producer, 0, records)
        assert found["error_code"] in ("invalid_producer_epoch", "producer_fenced"), found
        self.start_anew(producer, generation, claim=True)

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            self.server.kill()
        else:
            assert self.server.stop() == 0
        self.server.start()
        self.connect_again()

    def connect_again(self) -> None:
        self.client.close()
        self.client = WireClient(self.server.port)

    @rule(number=producers, commit=st.booleans(), marked=st.integers(0, PARTITIONS))
    def crash_between_decision_and_markers(self, number: int, commit: bool, marked: int) -> None:
        """The broker dies when a decision is on disk, and so many of its markers."""
        producer = self.producers[number]
        if producer.transaction is None:
            return
        self.server.kill()
        raises_epoch = producer.generation == 2
        write_decision(self.server, producer.name, commit, raises_epoch, marked)
        self.server.start()
        self.connect_again()
        self.wait_until_ended(producer)
        self.ended(producer, Fate.COMMITTED if commit else Fate.ABORTED)
        before = producer.identity
        answer = self.end_txn(producer, before, commit)  # the client has not heard, and asks again
        assert answer["error_code"] == "none", answer
        if raises_epoch:
            after = (answer["producer_id"], answer["producer_epoch"])
            assert after == (before[0], before[1] + 1)
            producer.becomes(after)
            producer.last_end = (before, commit, after)

    # -- looking ----------------------------------------------------------------------------------

    @invariant()
    def everybody_sees_what_they_should(self) -> None:
        for partition in range(PARTITIONS):
            self.check_partition(partition)
        for group in GROUPS:
            self.check_group(group)

    def check_partition(self, partition: int) -> None:
        everything = self.fetch(partition, 0, committed=False)
        seen = [
            (record.offset, (record.value or b"").decode())
            for header, content in batches(everything["records"])
            if not header.is_control
            for record in read_records(content)
        ]
        assert seen == self.model.written(partition)
        end = everything["high_watermark"]
        first_open = self.model.first_open(partition)
        stable = end if first_open is None else first_open
        ends = [self.list_offset(partition, committed) for committed in (False, True)]
        assert ends == [end, stable]
        latest = {written.offset for written in self.model.batches[partition][-8:]}
        for start in {0, max(end - 1, 0), end, *latest}:
            found = self.fetch(partition, start, committed=True)
            assert found["last_stable_offset"] == stable
            assert committed_values(found, start) == self.model.visible(partition, start)

    def fetch(self, partition: int, offset: int, committed: bool) -> Answer:
        answer = self.client.call(
            "fetch",
            11,
            replica_id=-1,
            max_bytes=10 << 20,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[
                {
                    "topic": self.topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": 10 << 20,
                        }
                    ],
                }
            ],
        )
        found: Answer = answer["responses"][0]["partitions"][0]
        assert found["error_code"] == "none", found
        return found

    def list_offset(self, partition: int, committed: bool) -> int:
        answer = self.client.call(
            "list_offsets",
            5,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                {
                    "name": self.topic,
                    "partitions": [
                        {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
        )
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def check_group(self, group: str) -> None:
        known = self.model.positions.get(group)
        expected = -1 if known is None else known.offset
        for stable in (False, True):
            answer = self.client.call(
                "offset_fetch",
                7,
                group_id=self.group(group),
                topics=[{"name": self.topic, "partition_indexes": [0]}],
                require_stable=stable,
            )
            found = answer["topics"][0]["partitions"][0]
            if stable and self.model.is_unstable(group):
                assert found["error_code"] == "unstable_offset_commit"
            else:
                assert (found["error_code"], found["committed_offset"]) == ("none", expected)


@pytest.fixture(scope="module")
def server() -> Iterator[Headwater]:
    with Headwater(environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        yield server


@pytest.mark.timeout(1200)
def test_transactions_mean_what_the_model_says(server: Headwater) -> None:
    class OnServer(Histories):
        pass

    OnServer.server = server
    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert "Traceback" not in server.log.read_text()
