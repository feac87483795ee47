"""Offsets that consumers commit in a producer's transaction."""

from tests.broker.conformance.script import Run, script
from tests.broker.conformance.transactional import (
    add_offsets,
    commit_offsets,
    committed,
    describe,
    end,
    init,
    settled,
)


def _offsets(run: Run, generation: int, commit: bool) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    new = generation == 2
    identity = init(run, "init", 5 if new else 4, txn)
    if not new:
        for version in range(5):
            commit_offsets(
                run, f"before adding the group, v{version}", version, txn, identity, group, topic, 5
            )
        add_offsets(run, "add offsets", 3, txn, identity, group)
    commit_offsets(run, "commit offsets", 5 if new else 3, txn, identity, group, topic, 5, metadata="here")
    describe(run, "described", txn)
    committed(run, "stable offsets while it is open", group, topic, stable=True)
    committed(run, "any offsets while it is open", group, topic, stable=False)
    run.call(
        "all stable offsets while it is open",
        "offset_fetch",
        7,
        group_id=group,
        topics=None,
        require_stable=True,
    )
    commit_offsets(
        run, "commit offsets further", 5 if new else 3, txn, identity, group, topic, 7, metadata=None
    )
    commit_offsets(run, "an unknown topic", 5 if new else 3, txn, identity, group, run.name("missing"), 7)
    commit_offsets(run, "an unknown partition", 5 if new else 3, txn, identity, group, topic, 7, partition=9)
    commit_offsets(
        run, "too much metadata", 5 if new else 3, txn, identity, group, topic, 7, metadata="x" * 5000
    )
    commit_offsets(run, "no group", 5 if new else 3, txn, identity, "", topic, 7)
    commit_offsets(
        run,
        "a member nobody knows",
        5 if new else 3,
        txn,
        identity,
        group,
        topic,
        7,
        member_id="nobody",
        generation_id=4,
    )
    end(run, "end", 5 if new else 4, txn, identity, commit)
    settled(run, txn)
    run.wait_for(lambda: _is_stable(run, group, topic), "offsets are stable")
    committed(run, "stable offsets after it", group, topic, stable=True)
    commit_offsets(run, "commit offsets after the end", 3, txn, identity, group, topic, 9)


def _is_stable(run: Run, group: str, topic: str) -> bool:
    answer = run.ask(
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=True,
    )
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == "none")


@script
def offsets_of_the_first_generation_committed(run: Run) -> None:
    _offsets(run, 1, True)


@script
def offsets_of_the_first_generation_aborted(run: Run) -> None:
    _offsets(run, 1, False)


@script
def offsets_of_the_second_generation_committed(run: Run) -> None:
    _offsets(run, 2, True)


@script
def offsets_of_the_second_generation_aborted(run: Run) -> None:
    _offsets(run, 2, False)


@script
def offsets_in_and_beside_a_transaction(run: Run) -> None:
    topic, txn, group = run.topic(), run.name("txn"), run.name("group")
    identity = init(run, "init", 5, txn)
    commit_offsets(run, "in the transaction", 5, txn, identity, group, topic, 5)
    run.call(
        "beside it",
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 20,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    )
    committed(run, "any", group, topic, stable=False)
    committed(run, "stable", group, topic, stable=True)
    run.call("delete the group", "delete_groups", 2, groups_names=[group])
    end(run, "commit", 5, txn, identity, True)
    settled(run, txn)
    run.wait_for(lambda: _is_stable(run, group, topic), "offsets are stable")
    committed(run, "after the commit", group, topic, stable=True)
