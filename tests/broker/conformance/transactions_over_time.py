"""Transactions that time out, overlap, hang, and are looked at by administrators."""

import time

from tests.broker.conformance.script import Run, batch, script
from tests.broker.conformance.transactional import (
    NEW,
    OLD,
    Identity,
    add,
    add_offsets,
    commit_offsets,
    describe,
    end,
    init,
    producers,
    settled,
    write,
)


@script
def transactions_that_take_too_long(run: Run) -> None:
    topic, group = run.topic(partitions=4), run.name("group")
    one, two, three = run.name("one"), run.name("two"), run.name("three")
    first = init(run, "first generation", 4, one, timeout=500)
    add(run, "add", 3, one, first, {topic: [0]})
    write(run, "produce", OLD, one, first, topic, 0, "a")
    second = init(run, "second generation", 5, two, timeout=500)
    write(run, "produce", NEW, two, second, topic, 0, "a", partition=1)
    third = init(run, "an abort comes too late", 5, three, timeout=500)
    write(run, "produce", NEW, three, third, topic, 0, "a", partition=2)

    def timed_out() -> bool:
        answer = run.ask("describe_transactions", 0, transactional_ids=[one, two, three])
        return {state["transaction_state"] for state in answer["transaction_states"]} == {"CompleteAbort"}

    run.wait_for(timed_out, "all have timed out")
    describe(run, "described", one, two, three)
    for number in range(3):
        run.read(f"partition {number}", topic, committed=False, partition=number)
        producers(run, f"producers of partition {number}", topic, number)
    write(run, "late record", OLD, one, first, topic, 1, "b")
    add(run, "late partition", 3, one, first, {topic: [1]})
    add(run, "late partition, before PRODUCER_FENCED was known", 1, one, first, {topic: [1]})
    add_offsets(run, "late offsets", 3, one, first, group)
    commit_offsets(run, "late commit of offsets", 3, one, first, group, topic, 1)
    end(run, "late commit", 4, one, first, True)
    end(run, "late commit, before PRODUCER_FENCED was known", 1, one, first, True)
    end(run, "late abort", 4, one, first, False)
    bumped = init(run, "bump", 4, one, first)
    add(run, "a new transaction", 3, one, bumped, {topic: [0]})
    write(run, "produce", OLD, one, bumped, topic, 0, "c")
    end(run, "commit", 4, one, bumped, True)
    write(run, "late record, second generation", NEW, two, second, topic, 1, "b", partition=1)
    commit_offsets(run, "late commit of offsets, second generation", 5, two, second, group, topic, 1)
    end(run, "late commit, second generation", 5, two, second, True)
    end(run, "late abort after it", 5, two, second, False)
    end(run, "late abort, second generation", 5, three, third, False)
    end(run, "late commit after it", 5, three, third, True)
    bumped = init(run, "bump, second generation", 5, two, second)
    write(run, "produce", NEW, two, bumped, topic, 0, "c", partition=1)
    end(run, "commit, second generation", 5, two, bumped, True)
    settled(run, one)
    settled(run, two)
    run.read("partition 0 in the end", topic)
    run.read("partition 1 in the end", topic, partition=1)


@script
def two_producers_of_different_pace(run: Run) -> None:
    """The last stable offset, and which aborted transactions a reader is told of."""
    topic, slow, fast = run.topic(), run.name("slow"), run.name("fast")
    one, two = init(run, "slow", 5, slow), init(run, "fast", 5, fast)
    write(run, "fast begins", NEW, fast, two, topic, 0, "f1")
    write(run, "slow begins", NEW, slow, one, topic, 0, "s1")
    run.produce("somebody without a transaction", NEW, topic, batch("plain"))
    two = end(run, "fast aborts", 5, fast, two, False)
    settled(run, fast)
    run.read("after the abort", topic)
    write(run, "fast again", NEW, fast, two, topic, 0, "f2")
    two = end(run, "fast commits", 5, fast, two, True)
    settled(run, fast)
    run.read("after the commit", topic)
    for isolation in (0, 1):
        for timestamp in (-1, -2, -3):
            run.call(
                f"offset at {timestamp}, isolation {isolation}",
                "list_offsets",
                7,
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
                        ],
                    }
                ],
                show=lambda answer: [
                    p | {"timestamp": p["timestamp"] >= 0} for t in answer["topics"] for p in t["partitions"]
                ],
            )
    one = end(run, "slow aborts", 5, slow, one, False)
    settled(run, slow)
    run.read("after both", topic)
    for offset in range(9):
        run.read(f"from offset {offset}", topic, offset=offset)


@script
def an_administrator_ends_a_hanging_transaction(run: Run) -> None:
    topic, txn = run.topic(), run.name("txn")
    identity = init(run, "init", 4, txn)
    add(run, "add", 3, txn, identity, {topic: [0]})
    write(run, "produce", OLD, txn, identity, topic, 0, "a")

    def mark(
        step: str,
        producer: Identity,
        coordinator_epoch: int,
        commit: bool,
        name: str = topic,
        partition: int = 0,
    ) -> None:
        run.call(
            step,
            "write_txn_markers",
            1,
            markers=[
                {
                    "producer_id": producer[0],
                    "producer_epoch": producer[1],
                    "transaction_result": commit,
                    "topics": [{"name": name, "partition_indexes": [partition]}],
                    "coordinator_epoch": coordinator_epoch,
                }
            ],
        )

    mark("unknown topic", identity, 0, False, name=run.name("missing"))
    mark("unknown partition", identity, 0, False, partition=5)
    mark("older epoch", (identity[0], identity[1] - 1), 0, False)
    mark("coordinator epoch from the past", identity, -1, False)
    run.read("what is there", topic, committed=False)
    mark("abort", identity, 0, False)
    run.read("what is there now", topic)
    describe(run, "the coordinator's view", txn)
    producers(run, "producers", topic)
    write(run, "the producer goes on", OLD, txn, identity, topic, 1, "b")
    end(run, "and commits", 4, txn, identity, True)
    settled(run, txn)
    run.read("in the end", topic)
    mark("abort of what is not open", identity, 0, False)
    mark("a producer that never wrote", (123_456, 0), 0, True)
    run.read("in the very end", topic)
    producers(run, "producers in the end", topic)
    producers(run, "producers of an unknown topic", run.name("missing"))
    producers(run, "producers of an unknown partition", topic, 9)


@script
def lists_of_transactions(run: Run) -> None:
    topic = run.topic()
    names = [run.name(f"list-{number}") for number in range(3)]
    empty, ongoing, done = (init(run, f"init {number}", 5, name) for number, name in enumerate(names))
    write(run, "begin", NEW, names[1], ongoing, topic, 0, "a")
    write(run, "begin", NEW, names[2], done, topic, 0, "a")
    end(run, "commit", 5, names[2], done, True)
    settled(run, names[2])

    def listed(step: str, version: int, **filters: object) -> None:
        answer = run.ask("list_transactions", version, **filters)
        states = [state for state in answer["transaction_states"] if state["transactional_id"] in names]
        answer["transaction_states"] = sorted(states, key=lambda state: str(state["transactional_id"]))
        run.note(step, answer)

    listed("all", 0)
    listed("ongoing", 0, state_filters=["Ongoing"])
    listed("in two states", 1, state_filters=["Empty", "CompleteCommit"], duration_filter=-1)
    listed("an unknown state", 1, state_filters=["Ongoing", "Nonsense"], duration_filter=-1)
    listed("only an unknown state", 1, state_filters=["Nonsense"], duration_filter=-1)
    listed("by producer", 1, producer_id_filters=[empty[0]], duration_filter=-1)
    listed("by an unknown producer", 1, producer_id_filters=[99_999_999], duration_filter=-1)
    listed("older than a day", 1, duration_filter=86_400_000)
    time.sleep(0.05)
    listed("older than 10 ms", 1, duration_filter=10)
    listed("older than 0 ms", 1, duration_filter=0)
    listed("all of version 2", 2, duration_filter=-1)
    listed("by a pattern", 2, duration_filter=-1, transactional_id_pattern=r"list-[01].*")
    listed("by a pattern that must match whole ids", 2, duration_filter=-1, transactional_id_pattern="list")
    listed("by an empty pattern", 2, duration_filter=-1, transactional_id_pattern="")
    listed("by a broken pattern", 2, duration_filter=-1, transactional_id_pattern="(ab(cd")
    end(run, "abort", 5, names[1], ongoing, False)
