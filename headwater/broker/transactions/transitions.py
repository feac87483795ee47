"""How the state of a transactional id may change: pure functions, by the rules of Apache Kafka 4.1.

There are two generations of clients. The first names its partitions (AddPartitionsToTxn) and keeps its epoch
over many transactions. The second (KIP-890) lets batches join by themselves, and every end of a transaction
raises the epoch, so that whatever arrives late is recognised. A decision that no client asked for, because a
time-out or a newer producer made it, raises the epoch in both.
"""

import dataclasses
from typing import NamedTuple

from headwater.broker.messages import ErrorCode
from headwater.broker.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Status,
    TopicPartition,
    TransactionState,
)

LAST_EPOCH = 32766  # the one after it is left for fencing
RAISES_EPOCH = 2  # the client version (KIP-890) whose epoch rises with every transaction


class Refused(Exception):
    """A request that does not fit the state of its transactional id."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class ProducerEpoch(NamedTuple):
    """An identity under which a producer writes."""

    producer_id: int
    epoch: int


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may get a later epoch than this one.

    >>> is_exhausted(32765), is_exhausted(32766)
    (False, True)
    """
    return epoch >= LAST_EPOCH


def identity(state: TransactionState) -> ProducerEpoch:
    return ProducerEpoch(state.producer_id, state.epoch)


def check_identity(state: TransactionState | None, claimed: ProducerEpoch) -> TransactionState:
    """The state, if the producer that asks is the one it is about."""
    if state is None or state.producer_id != claimed.producer_id:
        raise Refused(ErrorCode.invalid_producer_id_mapping)
    if state.epoch != claimed.epoch:
        raise Refused(ErrorCode.producer_fenced)
    return state


# -- an identity ---------------------------------------------------------------------------------------


def check_claim(state: TransactionState, claimed: ProducerEpoch | None) -> None:
    """Refuse a producer that names an identity (KIP-360) which is not the id's any more."""
    if claimed is not None and claimed not in (identity(state), _last_identity(state)):
        raise Refused(ErrorCode.producer_fenced)


def _last_identity(state: TransactionState) -> ProducerEpoch | None:
    """The identity that the present one replaced, if nobody else can have had it in between."""
    if state.last_epoch == NO_EPOCH:
        return None
    if state.previous_producer_id != NO_PRODUCER_ID and is_exhausted(state.last_epoch):
        return ProducerEpoch(state.previous_producer_id, state.last_epoch)
    return ProducerEpoch(state.producer_id, state.last_epoch)


def needs_new_producer_id(state: TransactionState | None) -> bool:
    """Whether the next identity cannot be the same producer id with a later epoch."""
    return state is None or is_exhausted(state.epoch)


def initialised(
    state: TransactionState | None, claimed: ProducerEpoch | None, timeout_ms: int, new_producer_id: int
) -> TransactionState:
    """The state that InitProducerId leads to when no transaction is open.

    A producer that says who it was gets the next epoch, and gets it again when it did not hear the answer.

    >>> first = initialised(None, None, 1000, 7)
    >>> second = initialised(first, identity(first), 1000, NO_PRODUCER_ID)
    >>> identity(second) == identity(initialised(second, identity(first), 1000, NO_PRODUCER_ID))
    True
    """
    if state is None:
        return TransactionState(new_producer_id, 0, timeout_ms)
    check_claim(state, claimed)
    if claimed is not None and claimed == _last_identity(state) and not is_exhausted(state.epoch):
        return TransactionState(
            state.producer_id,
            state.epoch,
            timeout_ms,
            previous_producer_id=state.previous_producer_id,
            last_epoch=state.last_epoch,
        )
    last_epoch = NO_EPOCH if claimed is None else claimed.epoch
    if is_exhausted(state.epoch):
        return TransactionState(
            new_producer_id, 0, timeout_ms, previous_producer_id=state.producer_id, last_epoch=last_epoch
        )
    return TransactionState(state.producer_id, state.epoch + 1, timeout_ms, last_epoch=last_epoch)


# -- a transaction -------------------------------------------------------------------------------------


def joined(
    state: TransactionState | None,
    claimed: ProducerEpoch,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionState | None:
    """The state once the transaction, begun when there is none, has the partitions; None: it has them."""
    state = check_identity(state, claimed)
    if state.status.is_ending:
        raise Refused(ErrorCode.concurrent_transactions)
    if state.status is Status.ONGOING:
        if partitions <= state.partitions:
            return None
        return dataclasses.replace(state, partitions=state.partitions | partitions)
    return dataclasses.replace(
        state,
        status=Status.ONGOING,
        partitions=partitions,
        started_ms=now_ms,
        client_version=client_version,
        previous_producer_id=NO_PRODUCER_ID,
    )


def check_end(
    state: TransactionState | None, claimed: ProducerEpoch, committed: bool, raises_epoch: bool
) -> bool:
    """Whether there is something to decide; False when the same was decided before, for the same request.

    ``raises_epoch``: the request is of the second generation.
    """
    if state is None:
        raise Refused(ErrorCode.invalid_producer_id_mapping)
    if raises_epoch and _is_repeated(state, claimed):
        _check_outcome(state, committed)
        return False
    check_identity(state, claimed)
    if state.status is Status.ONGOING:
        return True
    if raises_epoch and not state.status.is_ending:
        if committed:
            raise Refused(ErrorCode.invalid_txn_state)
        return True  # an abort of a transaction that never wrote: only the epoch rises
    _check_outcome(state, committed)
    return False


def _is_repeated(state: TransactionState, claimed: ProducerEpoch) -> bool:
    """Whether the request was taken before: its epoch is the one before, or the last of a producer id."""
    if state.status in (Status.EMPTY, Status.ONGOING):
        return False
    if claimed.producer_id == state.producer_id:
        return claimed.epoch == state.epoch - 1
    return claimed == (state.previous_producer_id, LAST_EPOCH) and state.epoch == 0


def _check_outcome(state: TransactionState, committed: bool) -> None:
    if state.status is (Status.PREPARE_COMMIT if committed else Status.PREPARE_ABORT):
        raise Refused(ErrorCode.concurrent_transactions)
    if state.status is not (Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT):
        raise Refused(ErrorCode.invalid_txn_state)


def decided(
    state: TransactionState,
    committed: bool,
    raises_epoch: bool,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionState:
    """The state from which the end of the transaction will be carried out, whatever happens.

    ``next_producer_id`` takes over when the epochs of this one are used up.
    """
    is_open = state.status is Status.ONGOING
    return dataclasses.replace(
        state,
        status=Status.PREPARE_COMMIT if committed else Status.PREPARE_ABORT,
        epoch=state.epoch + 1 if raises_epoch else state.epoch,
        last_epoch=state.epoch if raises_epoch else state.last_epoch,
        partitions=state.partitions if is_open else frozenset(),
        started_ms=state.started_ms if is_open else now_ms,
        next_producer_id=next_producer_id,
        client_version=RAISES_EPOCH if raises_epoch else state.client_version,
    )


def completed(state: TransactionState) -> TransactionState:
    """The state once every partition has its marker."""
    committed = state.status is Status.PREPARE_COMMIT
    complete = dataclasses.replace(
        state,
        status=Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT,
        partitions=frozenset(),
        next_producer_id=NO_PRODUCER_ID,
    )
    if state.next_producer_id == NO_PRODUCER_ID:
        return complete
    return dataclasses.replace(
        complete,
        producer_id=state.next_producer_id,
        epoch=0,
        previous_producer_id=state.producer_id,
    )
