"""Transactions of the first generation, which names its partitions: AddPartitionsToTxn, then Produce."""

from tests.broker.conformance.script import Run, batch, script
from tests.broker.conformance.transactional import (
    NEW,
    OLD,
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
def first_generation_commits(run: Run) -> None:
    topic, txn = run.topic(partitions=2), run.name("txn")
    identity = init(run, "init", 4, txn)
    describe(run, "described when empty", txn)
    add(run, "add", 3, txn, identity, {topic: [0]})
    add(run, "add again", 3, txn, identity, {topic: [0, 1]})
    write(run, "produce", OLD, txn, identity, topic, 0, "a", "b")
    describe(run, "described when ongoing", txn)
    producers(run, "producers while it is open", topic)
    run.read("uncommitted readers", topic, committed=False)
    run.read("committed readers", topic)
    end(run, "commit", 4, txn, identity, True)
    settled(run, txn)
    run.read("committed readers after it", topic)
    run.read("the other partition", topic, partition=1)
    describe(run, "described when complete", txn)
    producers(run, "producers after it", topic)
    end(run, "commit once more", 4, txn, identity, True)
    end(run, "abort what is committed", 4, txn, identity, False)
    add(run, "begin the next", 3, txn, identity, {topic: [0]})
    write(run, "produce", OLD, txn, identity, topic, 2, "c")
    end(run, "abort", 4, txn, identity, False)
    settled(run, txn)
    run.read("committed readers after the abort", topic)
    end(run, "abort once more", 4, txn, identity, False)
    end(run, "commit what is aborted", 4, txn, identity, True)
    describe(run, "described when aborted", txn)


@script
def ends_that_have_no_beginning(run: Run) -> None:
    for version in range(6):
        for commit in (True, False):
            txn = run.name(f"txn-{version}-{commit}")
            word = "commit" if commit else "abort"
            end(run, f"{word} v{version} of an unknown id", version, txn, (4711, 0), commit)
            identity = init(run, f"init for {word} v{version}", 4, txn)
            end(run, f"{word} v{version} without a transaction", version, txn, identity, commit)
            settled(run, txn)
            describe(run, f"after {word} v{version}", txn)


@script
def a_newer_producer_fences_the_older(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    old = init(run, "first", 4, txn)
    add(run, "add by the first", 3, txn, old, {topic: [0]})
    write(run, "produce by the first", OLD, txn, old, topic, 0, "a")
    new = init(run, "second", 4, txn)
    run.read("what is there", topic, committed=False)
    for version in range(4):
        add(run, f"add v{version} by the fenced", version, txn, old, {topic: [0]})
    for version in range(5):
        add_offsets(run, f"add offsets v{version} by the fenced", version, txn, old, group)
    for version in range(6):
        commit_offsets(run, f"commit offsets v{version} by the fenced", version, txn, old, group, topic, 1)
    for version in range(6):
        end(run, f"commit v{version} by the fenced", version, txn, old, True)
        end(run, f"abort v{version} by the fenced", version, txn, old, False)
    for version in (3, 7, 9, 10, 11, 12):
        write(run, f"produce v{version} by the fenced", version, txn, old, topic, 1, "late")
    for version in (3, 4, 5):
        init(run, f"init v{version} with the fenced identity", version, txn, old)
    add(run, "add by the second", 3, txn, new, {topic: [0]})
    write(run, "produce by the second", OLD, txn, new, topic, 0, "b")
    write(run, "late record of the first", OLD, txn, old, topic, 1, "late")
    end(run, "commit by the second", 4, txn, new, True)
    settled(run, txn)
    run.read("what is committed", topic)
    producers(run, "producers", topic)


@script
def an_epoch_from_the_future(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    producer_id, epoch = init(run, "init", 4, txn)
    ahead = (producer_id, epoch + 1)
    add(run, "add", 3, txn, ahead, {topic: [0]})
    add_offsets(run, "add offsets", 3, txn, ahead, group)
    commit_offsets(run, "commit offsets v3", 3, txn, ahead, group, topic, 1)
    commit_offsets(run, "commit offsets v5", 5, txn, ahead, group, topic, 1)
    end(run, "end v4", 4, txn, ahead, True)
    end(run, "end v5", 5, txn, ahead, True)
    for version in (OLD, NEW):
        write(run, f"produce v{version}", version, txn, ahead, topic, 0, "a")
    init(run, "init", 4, txn, ahead)
    run.read("nothing is there", topic, committed=False)


@script
def a_producer_id_of_somebody_else(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    init(run, "init", 4, txn)
    other = init(run, "another", 4, run.name("other"))
    idempotent = init(run, "an idempotent one", 4, None)
    for name, identity in (("another's", other), ("an idempotent one's", idempotent)):
        for version in range(4):
            add(run, f"add v{version} with {name} id", version, txn, identity, {topic: [0]})
        add_offsets(run, f"add offsets with {name} id", 3, txn, identity, group)
        for version in (3, 4, 5):
            commit_offsets(
                run, f"commit offsets v{version} with {name} id", version, txn, identity, group, topic, 1
            )
        for version in (3, 4, 5):
            end(run, f"end v{version} with {name} id", version, txn, identity, True)
        for version in (9, OLD, NEW):
            write(run, f"produce v{version} with {name} id", version, txn, identity, topic, 0, "a")
        init(run, f"init with {name} id", 4, txn, identity)
    run.read("nothing is there", topic, committed=False)


@script
def a_transactional_id_nobody_knows(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    nobody = (123_456_789, 0)
    for version in range(4):
        add(run, f"add v{version}", version, txn, nobody, {topic: [0]})
    for version in range(5):
        add_offsets(run, f"add offsets v{version}", version, txn, nobody, group)
    for version in range(6):
        commit_offsets(run, f"commit offsets v{version}", version, txn, nobody, group, topic, 1)
    for version in (3, 9, OLD, NEW):
        write(run, f"produce v{version}", version, txn, nobody, topic, 0, "a")
    run.produce("without an id", OLD, topic, batch("a", producer=nobody, sequence=0, transactional=True))
    run.produce(
        "without an id, newer", NEW, topic, batch("a", producer=nobody, sequence=0, transactional=True)
    )
    run.produce(
        "id, but a plain batch", OLD, topic, batch("a", producer=nobody, sequence=0), transactional_id=txn
    )
    run.produce(
        "id, but a plain batch, newer",
        NEW,
        topic,
        batch("a", producer=nobody, sequence=0),
        transactional_id=txn,
    )
    run.produce("id, no producer id", NEW, topic, batch("plain"), transactional_id=txn)
    describe(run, "described", txn)
    run.read("what is there", topic, committed=False)


@script
def empty_and_odd_transactional_ids(run: Run) -> None:
    topic, group = run.topic(), run.name("group")
    for version in range(6):
        init(run, f"init v{version} of the empty id", version, "")
    add(run, "add", 3, "", (1, 0), {topic: [0]})
    add_offsets(run, "add offsets", 3, "", (1, 0), group)
    commit_offsets(run, "commit offsets", 3, "", (1, 0), group, topic, 1)
    commit_offsets(run, "commit offsets v5", 5, "", (1, 0), group, topic, 1)
    end(run, "end", 4, "", (1, 0), True)
    describe(run, "described", "")
    txn = run.name("txn")
    for timeout in (0, -1, 900_000, 900_001, 2**31 - 1):
        for version in (0, 3, 5):
            init(run, f"init v{version} with time-out {timeout}", version, txn, timeout=timeout)
    init(run, "idempotent with time-out 0", 4, None, timeout=0)
    init(run, "idempotent that names an identity", 4, None, identity=(5, 3))
    identity = init(run, "idempotent", 4, None)
    init(run, "idempotent that names its identity", 4, None, identity=identity)
    for wrong in ((5, -1), (-1, 5), (-2, 0), (0, -2)):
        init(run, f"identity {wrong}", 4, txn, identity=wrong)
        init(run, f"idempotent with identity {wrong}", 4, None, identity=wrong)


@script
def producers_that_go_on_after_a_fault(run: Run) -> None:
    """KIP-360: a producer bumps its own epoch."""
    topic, txn = run.topic(), run.name("txn")
    nobody = (123_456_789, 0)
    init(run, "an identity for an unknown id", 4, txn, nobody)
    first = init(run, "init", 4, txn)
    second = init(run, "bump", 4, txn, first)
    third = init(run, "bump again", 4, txn, second)
    init(run, "the response was lost: the one before", 4, txn, second)
    init(run, "two before", 4, txn, first)
    now = init(run, "fresh", 4, txn)
    init(run, "three before", 4, txn, third)
    add(run, "add", 3, txn, now, {topic: [0]})
    write(run, "produce", OLD, txn, now, topic, 0, "a")
    bumped = init(run, "bump in a transaction", 4, txn, now)
    describe(run, "after it", txn)
    run.read("what is there", topic, committed=False)
    end(run, "end with the old identity", 4, txn, now, True)
    end(run, "end with the new identity", 4, txn, bumped, True)


@script
def a_zombie_that_wants_a_new_epoch(run: Run) -> None:
    topic, txn = run.topic(), run.name("txn")
    for version in (4, 5):
        old = init(run, f"first v{version}", version, txn)
        init(run, f"second v{version}", version, txn)
        init(run, f"bump by the first v{version}", version, txn, old)
    first = init(run, "third", 5, txn)
    write(run, "begins", NEW, txn, first, topic, 0, "a")
    second = end(run, "commits", 5, txn, first, True)
    settled(run, txn)
    init(run, "did not hear of the end", 5, txn, first)
    init(run, "again", 5, txn, first)
    third = init(run, "had heard of it", 5, txn, second)
    init(run, "did not hear of the end, too late", 5, txn, first)
    end(run, "ends with the epoch before", 5, txn, second, False)
    end(run, "ends with its epoch", 5, txn, third, False)


@script
def partitions_that_are_not_there(run: Run) -> None:
    topic, txn = run.topic(), run.name("txn")
    identity = init(run, "init", 4, txn)
    for version in range(4):
        add(run, f"unknown topic v{version}", version, txn, identity, {run.name("missing"): [0], topic: [0]})
        add(run, f"unknown partition v{version}", version, txn, identity, {topic: [0, 1]})
    add(run, "a negative partition", 3, txn, identity, {topic: [-1]})
    add(run, "an invalid name", 3, txn, identity, {"a/b": [0]})
    add(run, "no topic at all", 3, txn, identity, {})
    add(run, "a topic without partitions", 3, txn, identity, {topic: []})
    describe(run, "described", txn)
    add(run, "the offsets topic", 3, txn, identity, {"__consumer_offsets": [0]})
    add(run, "the transactions topic", 3, txn, identity, {"__transaction_state": [0]})
    run.ask(
        "end_txn",
        4,
        transactional_id=txn,
        producer_id=identity[0],
        producer_epoch=identity[1],
        committed=False,
    )


@script
def records_outside_of_the_transaction(run: Run) -> None:
    """Produce before AddPartitionsToTxn, in another partition, after the end."""
    topic, txn = run.topic(partitions=3), run.name("txn")
    identity = init(run, "init", 4, txn)
    for version in (3, 9, 10, OLD):
        write(run, f"before it has begun, v{version}", version, txn, identity, topic, 0, "a")
    add(run, "add", 3, txn, identity, {topic: [0]})
    for version in (3, 9, 10, OLD):
        write(run, f"another partition, v{version}", version, txn, identity, topic, 0, "a", partition=1)
    write(run, "its partition", OLD, txn, identity, topic, 0, "a")
    run.produce("no id", OLD, topic, batch("a", producer=identity, sequence=1, transactional=True))
    run.produce(
        "plain batch of the producer in its transaction",
        OLD,
        topic,
        batch("p", producer=identity, sequence=1),
        transactional_id=txn,
    )
    run.produce(
        "plain batch elsewhere",
        OLD,
        topic,
        batch("p", producer=identity, sequence=0),
        transactional_id=txn,
        partition=2,
    )
    end(run, "commit", 4, txn, identity, True)
    settled(run, txn)
    write(run, "after the end", OLD, txn, identity, topic, 1, "b")
    run.read("what is there", topic, committed=False)
    run.read("the second partition", topic, committed=False, partition=1)
    run.read("the third partition", topic, committed=False, partition=2)


@script
def asking_whether_partitions_are_part(run: Run) -> None:
    """AddPartitionsToTxn 4 and 5, which brokers send each other."""
    topic, txn = run.topic(partitions=2), run.name("txn")
    identity = init(run, "init", 4, txn)
    for version in (4, 5):
        add(run, f"verify nothing v{version}", version, txn, identity, {topic: [0]}, verify_only=True)
    add(run, "add", 4, txn, identity, {topic: [0]})
    for version in (4, 5):
        add(run, f"verify v{version}", version, txn, identity, {topic: [0, 1]}, verify_only=True)
        add(
            run,
            f"verify v{version} with another epoch",
            version,
            txn,
            (identity[0], 7),
            {topic: [0]},
            verify_only=True,
        )
        add(
            run,
            f"verify v{version} with another id",
            version,
            txn,
            (identity[0] + 1, 0),
            {topic: [0]},
            verify_only=True,
        )
        add(
            run,
            f"verify v{version} of an unknown id",
            version,
            run.name("none"),
            identity,
            {topic: [0]},
            verify_only=True,
        )
        add(
            run,
            f"verify v{version} an unknown topic",
            version,
            txn,
            identity,
            {run.name("none"): [0]},
            verify_only=True,
        )
    end(run, "abort", 4, txn, identity, False)
