"""The requests of transactional producers, in the words of the scripts."""

from collections.abc import Iterable
from typing import Any

from tests.broker.conformance.script import PASSING, Run, batch
from tests.broker.wire_client import Answer

Identity = tuple[int, int]
OLD, NEW = 11, 12  # Produce versions: the later one joins partitions to the transaction by itself


def init(
    run: Run,
    step: str,
    version: int,
    transactional_id: str | None,
    identity: Identity = (-1, -1),
    timeout: int = 60_000,
    settle: Iterable[str] = PASSING,
    **more: Any,
) -> Identity:
    """InitProducerId; the identity that was given."""
    if version >= 3:
        more |= {"producer_id": identity[0], "producer_epoch": identity[1]}
    answer = run.call(
        step,
        "init_producer_id",
        version,
        settle=settle,
        transactional_id=transactional_id,
        transaction_timeout=timeout,
        **more,
    )
    return (answer["producer_id"], answer["producer_epoch"]) if answer else (-1, -1)


def add(
    run: Run,
    step: str,
    version: int,
    transactional_id: str,
    identity: Identity,
    topics: dict[str, list[int]],
    *,
    verify_only: bool = False,
    settle: Iterable[str] = PASSING,
) -> Answer:
    """AddPartitionsToTxn."""
    listed = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
    if version >= 4:
        fields: dict[str, Any] = {
            "transactions": [
                {
                    "transactional_id": transactional_id,
                    "producer_id": identity[0],
                    "producer_epoch": identity[1],
                    "verify_only": verify_only,
                    "topics": listed,
                }
            ]
        }
    else:
        fields = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": identity[0],
            "v3_and_below_producer_epoch": identity[1],
            "v3_and_below_topics": listed,
        }
    return run.call(step, "add_partitions_to_txn", version, settle=settle, **fields)


def write(
    run: Run,
    step: str,
    version: int,
    transactional_id: str,
    identity: Identity,
    topic: Any,
    sequence: int,
    *values: str,
    partition: int = 0,
) -> Answer:
    """Produce a transactional batch."""
    records = batch(*values, producer=identity, sequence=sequence, transactional=True)
    return run.produce(step, version, topic, records, partition=partition, transactional_id=transactional_id)


def add_offsets(
    run: Run,
    step: str,
    version: int,
    transactional_id: str,
    identity: Identity,
    group: str,
    settle: Iterable[str] = PASSING,
) -> Answer:
    """AddOffsetsToTxn."""
    return run.call(
        step,
        "add_offsets_to_txn",
        version,
        settle=settle,
        transactional_id=transactional_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        group_id=group,
    )


def commit_offsets(
    run: Run,
    step: str,
    version: int,
    transactional_id: str,
    identity: Identity,
    group: str,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    metadata: str | None = "",
    settle: Iterable[str] = PASSING,
    **more: Any,
) -> Answer:
    """TxnOffsetCommit of one partition."""
    if version >= 3:
        more = {"generation_id": -1, "member_id": "", "group_instance_id": None, **more}
    item: dict[str, Any] = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    if version >= 2:
        item["committed_leader_epoch"] = -1
    return run.call(
        step,
        "txn_offset_commit",
        version,
        settle=settle,
        transactional_id=transactional_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        group_id=group,
        topics=[{"name": topic, "partitions": [item]}],
        **more,
    )


def committed(run: Run, step: str, group: str, topic: str, *, stable: bool, partition: int = 0) -> Answer:
    """OffsetFetch of one partition."""
    return run.call(
        step,
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [partition]}],
        require_stable=stable,
    )


def end(
    run: Run,
    step: str,
    version: int,
    transactional_id: str,
    identity: Identity,
    commit: bool,
    settle: Iterable[str] = PASSING,
) -> Identity:
    """EndTxn; the identity for the next transaction."""
    answer = run.call(
        step,
        "end_txn",
        version,
        settle=settle,
        transactional_id=transactional_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        committed=commit,
    )
    if version >= 5 and answer:
        return answer["producer_id"], answer["producer_epoch"]
    return identity


def settled(run: Run, transactional_id: str) -> None:
    """Wait until no decided transaction of the id is being carried out."""

    def is_settled() -> bool:
        answer = run.ask("describe_transactions", 0, transactional_ids=[transactional_id])
        return answer["transaction_states"][0]["transaction_state"] not in ("PrepareCommit", "PrepareAbort")

    run.wait_for(is_settled, f"{transactional_id} has ended")


def describe(run: Run, step: str, *transactional_ids: str) -> None:
    """DescribeTransactions."""
    run.call(step, "describe_transactions", 0, transactional_ids=list(transactional_ids))


def producers(run: Run, step: str, topic: str, partition: int = 0) -> None:
    """DescribeProducers of one partition."""
    run.call(
        step,
        "describe_producers",
        0,
        topics=[{"name": topic, "partition_indexes": [partition]}],
    )
