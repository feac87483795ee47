"""What happens when the 32766 epochs of a producer id are used up.

Not among the other scripts: it takes Kafka a minute to get there.
"""

from collections.abc import Callable

from tests.broker.conformance.script import PASSING, Run
from tests.broker.conformance.transactional import NEW, Identity, describe, end, init, settled, write

NAME = "epochs_that_run_out"
NEARLY_ALL = 32764
CASES = ("inits", "claims", "commits", "fencing")

WornOut = Callable[[Run, str], Identity]


def use_up(run: Run, transactional_id: str) -> Identity:
    """Bring a transactional id near its last epoch by asking for one after another."""
    client = run.client("busy")
    sent = received = 0
    fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    while True:
        while sent - received < 64 and sent <= NEARLY_ALL:
            client.send("init_producer_id", 4, **fields)
            sent += 1
        answer = client.receive("init_producer_id", 4)
        if answer["error_code"] in PASSING:
            sent -= 1
            continue
        received += 1
        if answer["producer_epoch"] == NEARLY_ALL:
            return answer["producer_id"], answer["producer_epoch"]


def epochs_that_run_out(run: Run, worn_out: WornOut = use_up) -> None:
    topic = run.topic()

    txn = run.name("inits")
    worn_out(run, txn)
    for number in range(4):
        init(run, f"init {number}", 5, txn)

    txn = run.name("claims")
    first = worn_out(run, txn)
    second = init(run, "claim the one before the last", 5, txn, first)
    third = init(run, "claim the last", 5, txn, second)
    fourth = init(run, "claim a new id", 5, txn, third)
    init(run, "the answer was lost", 5, txn, third)
    init(run, "a claim that is too old", 5, txn, second)
    init(run, "go on", 5, txn, fourth)
    init(run, "the answer was lost, too late", 5, txn, third)

    txn = run.name("commits")
    identity = worn_out(run, txn)
    write(run, "first transaction", NEW, txn, identity, topic, 0, "a")
    identity = end(run, "commit", 5, txn, identity, True)
    settled(run, txn)
    write(run, "second transaction", NEW, txn, identity, topic, 0, "b")
    last = end(run, "commit again", 5, txn, identity, True)
    settled(run, txn)
    describe(run, "before the id changes", txn)
    write(run, "third transaction", NEW, txn, last, topic, 0, "c")
    fresh = end(run, "abort", 5, txn, last, False)
    settled(run, txn)
    describe(run, "after the id changed", txn)
    end(run, "the same abort again", 5, txn, last, False)
    end(run, "a commit of it", 5, txn, last, True)
    end(run, "an older one", 5, txn, identity, False)
    write(run, "late", NEW, txn, last, topic, 1, "x")
    write(run, "by the new id", NEW, txn, fresh, topic, 0, "d")
    end(run, "the abort again, now that the next has begun", 5, txn, last, False)
    end(run, "commit by the new id", 5, txn, fresh, True)
    settled(run, txn)
    run.read("what is committed", topic)

    txn = run.name("fencing")
    identity = worn_out(run, txn)
    identity = init(run, "the last but one", 5, txn)
    identity = init(run, "the last", 5, txn)
    write(run, "begins", NEW, txn, identity, topic, 0, "e")
    init(run, "a newer producer", 5, txn)
    describe(run, "the newer one's", txn)
    write(run, "late and fenced", NEW, txn, identity, topic, 1, "f")
    run.read("all that is committed", topic)
