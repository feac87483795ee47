"""The transaction coordinator.

A state is written to the journal before it is in force. Ending a transaction is two steps: the decision is
written (from then on it will be carried out, whatever crashes), then a marker goes to every partition it
touched. Changes of one transactional id are made one at a time, under its lock.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.journal import OFFSETS_TOPIC, Entry, Journal
from headwater.broker.messages import ErrorCode
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.records import (
    Status,
    TopicPartition,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from headwater.errors import (
    HeadwaterError,
    InvalidTransaction,
    StaleProducerEpoch,
    UnknownProducer,
    UnknownTopic,
)
from headwater.log.batch import BatchHeader
from headwater.log.partition import PartitionLog, now_ms
from headwater.log.records import ABORT, COMMIT, control_batch
from headwater.log.segment import Retired

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

LAST_EPOCH = 32766  # the one after it is left for fencing
OFFSETS_PARTITION: TopicPartition = (OFFSETS_TOPIC, 0)
BUMPS_EPOCH = 2  # clients of this transaction version get a new epoch with every transaction
SWEEP_SECONDS = 0.5
RETRY_SECONDS = 0.2


class Refused(Exception):
    """A request that does not fit the state of its transactional id."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class ProducerEpoch(NamedTuple):
    """An identity under which a producer writes."""

    producer_id: int
    epoch: int


class _Entry:
    """A transactional id: its state, and the lock under which it changes."""

    __slots__ = ("lock", "state", "transactional_id")

    def __init__(self, transactional_id: str, state: TransactionState | None) -> None:
        self.transactional_id = transactional_id
        self.state = state
        self.lock = asyncio.Lock()


class TransactionCoordinator:
    """All transactional ids."""

    def __init__(self, broker: "Broker", journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._entries: dict[str, _Entry] = {}
        self._ids = ProducerIds(broker.directory.path / "producer-ids")
        self._max_timeout_ms = broker.settings.integer("transaction.max.timeout.ms")
        self._expiration_ms = broker.settings.integer("transactional.id.expiration.ms")
        self._sweeper: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the journal, and carry out the decisions that a crash left open."""
        for item in self._journal.read():
            if not isinstance(item, Entry):
                continue
            transactional_id = decode_key(item.key)
            if transactional_id is None:
                continue
            if item.value is None:
                self._entries.pop(transactional_id, None)
            else:
                self._entries[transactional_id] = _Entry(transactional_id, decode_value(item.value))
        for entry in list(self._entries.values()):
            if entry.state is not None and entry.state.status.is_ending:
                async with entry.lock:
                    await self._carry_out(entry)
        self._sweeper = self._broker.loop.create_task(self._sweep())

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    def states(self) -> list[tuple[str, TransactionState]]:
        """Every transactional id and its state."""
        return [(e.transactional_id, e.state) for e in self._entries.values() if e.state is not None]

    def state(self, transactional_id: str) -> TransactionState | None:
        entry = self._entries.get(transactional_id)
        return entry.state if entry is not None else None

    async def _save(self, entry: _Entry, state: TransactionState) -> None:
        state = dataclasses.replace(state, updated_ms=now_ms())
        await self._journal.append([(encode_key(entry.transactional_id), encode_value(state))])
        entry.state = state

    async def new_producer_id(self) -> int:
        return await self._broker.loop.run_in_executor(None, self._ids.take)

    # -- beginning --------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str | None, timeout_ms: int, producer_id: int, epoch: int
    ) -> ProducerEpoch:
        """An identity for a producer; with a transactional id it ends what earlier producers of it began."""
        if transactional_id is None:
            return ProducerEpoch(await self.new_producer_id(), 0)
        if transactional_id == "":
            raise Refused(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise Refused(ErrorCode.invalid_transaction_timeout)
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._entries[transactional_id] = _Entry(transactional_id, None)
        async with entry.lock:
            return await self._init(entry, timeout_ms, producer_id, epoch)

    async def _init(self, entry: _Entry, timeout_ms: int, producer_id: int, epoch: int) -> ProducerEpoch:
        state = entry.state
        if state is None:
            if producer_id >= 0:
                raise Refused(ErrorCode.invalid_producer_id_mapping)
            await self._save(entry, TransactionState(await self.new_producer_id(), 0, timeout_ms))
            assert entry.state is not None
            return ProducerEpoch(entry.state.producer_id, entry.state.epoch)
        if producer_id >= 0 and not _may_continue(state, producer_id, epoch):
            raise Refused(ErrorCode.producer_fenced)
        if state.status.is_ending:
            await self._carry_out(entry)
        elif state.status is Status.ONGOING:
            await self._end(entry, committed=False, epoch=min(state.epoch + 1, LAST_EPOCH + 1))
        state = entry.state
        assert state is not None
        if state.epoch >= LAST_EPOCH:
            fresh = TransactionState(
                await self.new_producer_id(), 0, timeout_ms, previous_producer_id=state.producer_id
            )
        else:
            fresh = TransactionState(state.producer_id, state.epoch + 1, timeout_ms)
        await self._save(entry, fresh)
        return ProducerEpoch(fresh.producer_id, fresh.epoch)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
    ) -> None:
        """The producer's transaction, begun when there is none, will write to these partitions."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.state is None:
            raise Refused(ErrorCode.invalid_producer_id_mapping)
        async with entry.lock:
            state = self._checked(entry, producer_id, epoch)
            if state.status.is_ending:
                raise Refused(ErrorCode.concurrent_transactions)
            begun = state.status is Status.ONGOING
            wanted = frozenset(partitions)
            if begun and wanted <= state.partitions:
                return
            added = dataclasses.replace(
                state,
                status=Status.ONGOING,
                partitions=state.partitions | wanted if begun else wanted,
                started_ms=state.started_ms if begun else now_ms(),
                client_version=client_version,
            )
            await self._save(entry, added)

    def _checked(self, entry: _Entry, producer_id: int, epoch: int) -> TransactionState:
        state = entry.state
        if state is None or state.producer_id != producer_id:
            raise Refused(ErrorCode.invalid_producer_id_mapping)
        if state.epoch != epoch:
            raise Refused(ErrorCode.producer_fenced)
        return state

    # -- writing ----------------------------------------------------------------------------------

    def is_part(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> bool:
        """Whether the producer's transaction is open and has the partition."""
        state = self.state(transactional_id)
        return (
            state is not None
            and state.producer_id == producer_id
            and state.epoch == epoch
            and state.status is Status.ONGOING
            and partition in state.partitions
        )

    def check_produce(
        self, transactional_id: str | None, header: BatchHeader, topic: str, partition: int
    ) -> None:
        """Raise unless a transactional batch belongs to an open transaction that has the partition.

        Without this a late batch could open a transaction that nobody ever ends.
        """
        subject = f"{topic}-{partition}"
        state = self.state(transactional_id) if transactional_id is not None else None
        if state is None or state.producer_id != header.producer_id:
            raise UnknownProducer(
                "append to", subject, f"producer {header.producer_id} is not that of {transactional_id!r}"
            )
        if header.producer_epoch != state.epoch:
            raise StaleProducerEpoch(
                "append to",
                subject,
                f"producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"the current one is {state.epoch}",
            )
        if state.status is not Status.ONGOING or (topic, partition) not in state.partitions:
            cause = f"it is not part of {transactional_id!r}'s open transaction"
            raise InvalidTransaction("append to", subject, cause)

    # -- ending -----------------------------------------------------------------------------------

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, committed: bool, bumps_epoch: bool
    ) -> ProducerEpoch:
        """Commit or abort; the identity for the next transaction is returned."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.state is None:
            raise Refused(ErrorCode.invalid_producer_id_mapping)
        async with entry.lock:
            state = entry.state
            if bumps_epoch and _is_repeated_end(state, producer_id, epoch):
                _check_same_end(state, committed)
                return ProducerEpoch(state.producer_id, state.epoch)
            state = self._checked(entry, producer_id, epoch)
            if state.status.is_ending:
                raise Refused(ErrorCode.concurrent_transactions)
            if state.status is Status.ONGOING:
                await self._end(entry, committed, epoch + 1 if bumps_epoch else epoch)
            elif bumps_epoch and not committed:
                # An abort of a transaction that never wrote: only the epoch rises.
                await self._end(entry, committed, epoch + 1)
            elif state.status is Status.EMPTY or bumps_epoch:
                raise Refused(ErrorCode.invalid_txn_state)
            else:
                _check_same_end(state, committed)
            assert entry.state is not None
            return ProducerEpoch(entry.state.producer_id, entry.state.epoch)

    async def _end(self, entry: _Entry, committed: bool, epoch: int) -> None:
        assert entry.state is not None
        status = Status.PREPARE_COMMIT if committed else Status.PREPARE_ABORT
        open_partitions = entry.state.partitions if entry.state.status is Status.ONGOING else frozenset()
        decided = dataclasses.replace(entry.state, status=status, epoch=epoch, partitions=open_partitions)
        await self._save(entry, decided)
        await self._carry_out(entry)

    async def _carry_out(self, entry: _Entry) -> None:
        """Write the markers of a decided transaction, and that it is complete."""
        state = entry.state
        assert state is not None
        committed = state.status is Status.PREPARE_COMMIT
        await self._write_markers(state, committed)
        if OFFSETS_PARTITION in state.partitions:
            self._broker.groups.complete_transaction(state.producer_id, committed)
        complete = dataclasses.replace(
            state,
            status=Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms(),
        )
        if state.epoch > LAST_EPOCH:
            complete = dataclasses.replace(
                complete,
                producer_id=await self.new_producer_id(),
                epoch=0,
                previous_producer_id=state.producer_id,
            )
        entry.state = complete
        # Nobody has to wait for this one: a crash before it is durable writes the markers once more.
        try:
            log = self._journal.log or await self._journal.open()
            record = (encode_key(entry.transactional_id), encode_value(complete))
            self._journal.write(log, [record]).add_done_callback(lambda done: done.exception())
        except HeadwaterError as error:
            logger.warning("%s", error)

    async def _write_markers(self, state: TransactionState, committed: bool) -> None:
        kind = COMMIT if committed else ABORT
        left = set(state.partitions)
        while left:
            waiting = {}
            for topic, partition in sorted(left):
                log = self._broker.find_log(topic, partition)
                batch = control_batch(kind, state.producer_id, state.epoch, 0, now_ms())
                try:
                    if log is not None:
                        log.append_marker(batch, now_ms())
                        waiting[topic, partition] = self._broker.durable(log)
                        continue
                except (StaleProducerEpoch, UnknownTopic, Retired):
                    pass  # a newer epoch's marker is there, or the topic is gone: nothing is open any more
                except HeadwaterError as error:
                    logger.warning("%s", error)
                    continue
                left.discard((topic, partition))
            for key, future in waiting.items():
                try:
                    await future
                    left.discard(key)
                except HeadwaterError as error:
                    logger.warning("%s", error)
            if left:
                await asyncio.sleep(RETRY_SECONDS)

    def write_marker(
        self, log: PartitionLog, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool
    ) -> "asyncio.Future[None]":
        """A marker in one partition, as an administrator asks for it; the coordinator's state stays."""
        kind = COMMIT if committed else ABORT
        log.append_marker(control_batch(kind, producer_id, epoch, coordinator_epoch, now_ms()), now_ms())
        return self._broker.durable(log)

    # -- time-outs --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = now_ms()
            for entry in list(self._entries.values()):
                state = entry.state
                if state is None:
                    continue
                try:
                    if state.status is Status.ONGOING and now > state.started_ms + state.timeout_ms:
                        await self._time_out(entry)
                    elif state.status is not Status.ONGOING and now > state.updated_ms + self._expiration_ms:
                        await self._expire(entry)
                except HeadwaterError as error:
                    logger.warning("%s", error)

    async def _time_out(self, entry: _Entry) -> None:
        async with entry.lock:
            state = entry.state
            if (
                state is not None
                and state.status is Status.ONGOING
                and now_ms() > state.started_ms + state.timeout_ms
            ):
                logger.info("aborting the transaction of %s: it timed out", entry.transactional_id)
                await self._end(entry, committed=False, epoch=state.epoch + 1)

    async def _expire(self, entry: _Entry) -> None:
        async with entry.lock:
            state = entry.state
            if state is None or state.status is Status.ONGOING or state.status.is_ending:
                return
            await self._journal.append([(encode_key(entry.transactional_id), None)])
            entry.state = None
            self._entries.pop(entry.transactional_id, None)


def _may_continue(state: TransactionState, producer_id: int, epoch: int) -> bool:
    """Whether a producer that names its identity may go on with a new epoch (KIP-360)."""
    if producer_id == state.producer_id:
        return epoch in (state.epoch, state.epoch - 1)
    return producer_id == state.previous_producer_id


def _is_repeated_end(state: TransactionState, producer_id: int, epoch: int) -> bool:
    """Whether this end was decided already: the client's epoch is the one before."""
    if state.status in (Status.EMPTY, Status.ONGOING):
        return False
    if producer_id == state.producer_id:
        return epoch == state.epoch - 1
    return producer_id == state.previous_producer_id and state.epoch == 0


def _check_same_end(state: TransactionState, committed: bool) -> None:
    wanted = Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT
    if state.status is not wanted:
        raise Refused(ErrorCode.invalid_txn_state)
