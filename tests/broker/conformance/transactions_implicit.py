"""Transactions of the second generation (KIP-890): batches join by themselves, each end raises the epoch."""

from tests.broker.conformance.script import Run, script
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
def second_generation_commits(run: Run) -> None:
    topic, txn = run.topic(partitions=2), run.name("txn")
    first = init(run, "init", 5, txn)
    write(run, "produce", NEW, txn, first, topic, 0, "a", "b")
    describe(run, "described when ongoing", txn)
    producers(run, "producers while it is open", topic)
    write(run, "second batch", NEW, txn, first, topic, 2, "c")
    write(run, "by id", 13, txn, first, run.topic_id("topic"), 0, "d", partition=1)
    second = end(run, "commit", 5, txn, first, True)
    settled(run, txn)
    run.read("committed readers", topic)
    run.read("the other partition", topic, partition=1)
    describe(run, "described when complete", txn)
    producers(run, "producers after it", topic)
    end(run, "the same commit again", 5, txn, first, True)
    end(run, "an abort with the old epoch", 5, txn, first, False)
    end(run, "a commit with the new epoch, nothing begun", 5, txn, second, True)
    write(run, "a late record", NEW, txn, first, topic, 3, "x")
    write(run, "the next, by the new epoch", NEW, txn, second, topic, 0, "e")
    end(run, "the first commit again, now that the next has begun", 5, txn, first, True)
    third = end(run, "abort", 5, txn, second, False)
    settled(run, txn)
    run.read("committed readers after the abort", topic)
    end(run, "the same abort again", 5, txn, second, False)
    end(run, "a commit with the old epoch", 5, txn, second, True)
    fourth = end(run, "an abort without a transaction", 5, txn, third, False)
    settled(run, txn)
    end(run, "again", 5, txn, third, False)
    describe(run, "described at last", txn)
    init(run, "bump", 5, txn, fourth)


@script
def the_generations_mixed(run: Run) -> None:
    topic, txn, group = run.topic(partitions=3), run.name("txn"), run.name("group")
    identity = init(run, "init", 5, txn)
    add(run, "add v3", 3, txn, identity, {topic: [0]})
    write(run, "produce v11", OLD, txn, identity, topic, 0, "a")
    identity = end(run, "commit v5", 5, txn, identity, True)
    settled(run, txn)
    write(run, "produce v12", NEW, txn, identity, topic, 0, "b")
    end(run, "commit v4", 4, txn, identity, True)
    settled(run, txn)
    describe(run, "described", txn)
    run.read("what is committed", topic)
    write(run, "produce v12", NEW, txn, identity, topic, 1, "c")
    add_offsets(run, "add offsets v4", 4, txn, identity, group)
    commit_offsets(run, "commit offsets v4", 4, txn, identity, group, topic, 3)
    identity = end(run, "abort v5", 5, txn, identity, False)
    settled(run, txn)
    end(run, "commit v4 with nothing begun", 4, txn, identity, True)
    end(run, "abort v4 with nothing begun", 4, txn, identity, False)
    run.read("what is committed now", topic)


@script
def second_generation_refuses(run: Run) -> None:
    topic, txn = run.topic(partitions=2), run.name("txn")
    identity = init(run, "init", 5, txn)
    write(run, "unknown topic", NEW, txn, identity, run.name("missing"), 0, "a")
    write(run, "unknown partition", NEW, txn, identity, topic, 0, "a", partition=7)
    describe(run, "nothing has begun", txn)
    write(run, "sequence that does not start at 0", NEW, txn, identity, topic, 5, "a")
    describe(run, "what has begun", txn)
    run.read("what is there", topic, committed=False)
    identity = end(run, "abort", 5, txn, identity, False)
    settled(run, txn)
    run.read("what is there after the abort", topic, committed=False)
    write(run, "first of the next", NEW, txn, identity, topic, 0, "b")
    write(run, "a gap", NEW, txn, identity, topic, 2, "d")
    write(run, "the first again", NEW, txn, identity, topic, 0, "b")
    end(run, "commit", 5, txn, identity, True)
    settled(run, txn)
    run.read("what is committed", topic)


@script
def the_second_generation_fences(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    old = init(run, "first", 5, txn)
    write(run, "produce by the first", NEW, txn, old, topic, 0, "a")
    new = init(run, "second", 5, txn)
    describe(run, "after the second came", txn)
    end(run, "commit by the fenced", 5, txn, old, True)
    end(run, "abort by the fenced", 5, txn, old, False)
    write(run, "produce by the fenced", NEW, txn, old, topic, 1, "b")
    commit_offsets(run, "commit offsets by the fenced", 5, txn, old, group, topic, 1)
    write(run, "produce by the second", NEW, txn, new, topic, 0, "c")
    end(run, "commit by the second", 5, txn, new, True)
    settled(run, txn)
    run.read("what is committed", topic)
    init(run, "bump of the fenced", 5, txn, old)
