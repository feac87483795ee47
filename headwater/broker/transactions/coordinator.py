"""The transaction coordinator.

A state is written to the journal before it is in force. Ending a transaction is two steps: the decision is
written (from then on it will be carried out, whatever crashes), then a marker goes to every partition it
touched. Changes of one transactional id are made one at a time, and go on when the client that asked for
them is gone.
"""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.broker.journal import OFFSETS_TOPIC, Entry, Journal
from headwater.broker.messages import ErrorCode
from headwater.broker.transactions.markers import append_marker, write_markers
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.records import (
    LONGEST_ID,
    NO_PRODUCER_ID,
    Status,
    TopicPartition,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from headwater.broker.transactions.transitions import (
    RAISES_EPOCH,
    ProducerEpoch,
    Refused,
    check_claim,
    check_end,
    check_identity,
    completed,
    decided,
    identity,
    initialised,
    is_exhausted,
    joined,
    needs_new_producer_id,
)
from headwater.errors import (
    HeadwaterError,
    InvalidTransaction,
    NotInTransaction,
    OutOfOrderSequence,
    StaleProducerEpoch,
    UnknownProducer,
)
from headwater.log.batch import BatchHeader
from headwater.log.partition import PartitionLog, now_ms
from headwater.log.producer_ids import PRODUCER_IDS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger("headwater.broker")

T = TypeVar("T")

OFFSETS_PARTITION: TopicPartition = (OFFSETS_TOPIC, 0)
PATIENCE_SECONDS = 5.0  # a request waits this long for its turn, and for markers; then the client tries again
SWEEP_SECONDS = 0.5


class _Entry:
    """A transactional id."""

    __slots__ = ("carrying_out", "lock", "state", "transactional_id")

    def __init__(self, transactional_id: str, state: TransactionState | None = None) -> None:
        self.transactional_id = transactional_id
        self.state = state
        self.lock = asyncio.Lock()
        self.carrying_out: asyncio.Task[None] | None = None  # while it runs, nobody else changes the state


class TransactionCoordinator:
    """All transactional ids."""

    def __init__(self, broker: "Broker", journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._entries: dict[str, _Entry] = {}
        self._ids = ProducerIds(broker.directory.path / PRODUCER_IDS, self._largest_id_in_use)
        self._max_timeout_ms = broker.settings.integer("transaction.max.timeout.ms")
        self._expiration_ms = broker.settings.integer("transactional.id.expiration.ms")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the journal, and begin to carry out the decisions that a crash left open."""
        for item in self._journal.read():
            if isinstance(item, Entry):
                self._replay(item.key, item.value)
        open_decisions = [
            self._begin_carrying_out(entry)
            for entry in self._entries.values()
            if entry.state is not None and entry.state.status.is_ending
        ]
        if open_decisions:
            await asyncio.wait(open_decisions, timeout=PATIENCE_SECONDS)
        self._sweeper = self._broker.loop.create_task(self._sweep())

    def _replay(self, key: bytes, value: bytes | None) -> None:
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._entries.pop(transactional_id, None)
        else:
            self._entries[transactional_id] = _Entry(transactional_id, decode_value(value))

    async def stop(self) -> None:
        """Finish what is under way; what does not finish will be after the next start."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def states(self) -> list[tuple[str, TransactionState]]:
        """Every transactional id and its state."""
        return [(e.transactional_id, e.state) for e in self._entries.values() if e.state is not None]

    def state(self, transactional_id: str) -> TransactionState | None:
        entry = self._entries.get(transactional_id)
        return entry.state if entry is not None else None

    def _largest_id_in_use(self) -> int:
        largest = max((log.producers.largest_id for log in self._broker.directory.partitions()), default=-1)
        for _, state in self.states():
            largest = max(largest, state.producer_id, state.previous_producer_id, state.next_producer_id)
        return largest

    # -- taking turns -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, transactional_id: str, *, create: bool = False) -> AsyncIterator[_Entry]:
        """The id, when nobody else is changing it; with ``create`` it need not be known before."""
        entry = await self._acquire(transactional_id, create)
        try:
            if entry.carrying_out is not None:
                await asyncio.wait({entry.carrying_out}, timeout=PATIENCE_SECONDS)
                if entry.carrying_out is not None:
                    raise Refused(ErrorCode.concurrent_transactions)
            yield entry
        finally:
            if entry.state is None:
                self._entries.pop(transactional_id, None)
            entry.lock.release()

    async def _acquire(self, transactional_id: str, create: bool) -> _Entry:
        while True:
            entry = self._entries.get(transactional_id)
            if entry is None:
                if not create:
                    raise Refused(ErrorCode.invalid_producer_id_mapping)
                entry = self._entries[transactional_id] = _Entry(transactional_id)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await entry.lock.acquire()
            except TimeoutError:
                raise Refused(ErrorCode.concurrent_transactions) from None
            if self._entries.get(transactional_id) is entry:
                return entry
            entry.lock.release()  # it has expired while we waited

    async def _undisturbed(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` to its end, even if the client that waits for it goes away."""
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._broker.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, in case that nobody waits for it any more

    async def _save(self, entry: _Entry, state: TransactionState) -> None:
        state = dataclasses.replace(state, updated_ms=now_ms())
        await self._journal.append([(encode_key(entry.transactional_id), encode_value(state))])
        entry.state = state

    # -- beginning --------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str | None, timeout_ms: int, claimed: ProducerEpoch | None = None
    ) -> ProducerEpoch:
        """An identity for a producer; with a transactional id it ends what earlier producers of it began.

        ``claimed`` is the identity that the producer had so far, if it goes on after a fault (KIP-360).
        """
        if transactional_id is None:
            return ProducerEpoch(await self._ids.take(), 0)
        if not 0 < len(transactional_id.encode()) <= LONGEST_ID:
            raise Refused(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= self._max_timeout_ms:
            raise Refused(ErrorCode.invalid_transaction_timeout)
        return await self._undisturbed(self._init(transactional_id, timeout_ms, claimed))

    async def _init(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerEpoch | None
    ) -> ProducerEpoch:
        while True:
            async with self._turn(transactional_id, create=True) as entry:
                state = entry.state
                if state is not None and state.status is Status.ONGOING:
                    check_claim(state, claimed)
                    await self._decide(entry, committed=False, raises_epoch=True)
                    continue
                new_id = NO_PRODUCER_ID
                if needs_new_producer_id(state):
                    new_id = await self._ids.take()
                fresh = initialised(state, claimed, timeout_ms, new_id)
                await self._save(entry, fresh)
                return identity(fresh)

    async def add_partitions(
        self,
        transactional_id: str,
        claimed: ProducerEpoch,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
    ) -> None:
        """The producer's transaction, begun when there is none, will write to these partitions."""
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request)
        await self._undisturbed(
            self._add_partitions(transactional_id, claimed, frozenset(partitions), client_version)
        )

    async def _add_partitions(
        self,
        transactional_id: str,
        claimed: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> None:
        async with self._turn(transactional_id) as entry:
            await self._join(entry, claimed, partitions, client_version)

    async def _join(
        self,
        entry: _Entry,
        claimed: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> None:
        state = joined(entry.state, claimed, partitions, client_version, now_ms())
        if state is not None:
            await self._save(entry, state)

    # -- writing ----------------------------------------------------------------------------------

    def is_part(self, transactional_id: str, claimed: ProducerEpoch, partition: TopicPartition) -> bool:
        """Whether the producer's transaction is open and has the partition."""
        state = self.state(transactional_id)
        return (
            state is not None
            and state.status is Status.ONGOING
            and identity(state) == claimed
            and partition in state.partitions
        )

    def check_part(self, transactional_id: str, claimed: ProducerEpoch, partition: TopicPartition) -> None:
        """Refuse a producer whose open transaction does not have the partition."""
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request)
        state = check_identity(self.state(transactional_id), claimed)
        if state.status.is_ending:
            raise Refused(ErrorCode.concurrent_transactions)
        if state.status is not Status.ONGOING or partition not in state.partitions:
            raise Refused(ErrorCode.transaction_abortable)

    def check_produce(
        self, transactional_id: str, header: BatchHeader, log: PartitionLog, knows_abortable: bool
    ) -> None:
        """Raise unless a transactional batch belongs to an open transaction that has the partition.

        Without this a late batch could open a transaction that nobody ever ends. ``knows_abortable``: the
        client can be told that aborting is enough, rather than that it did something wrong.
        """
        subject = log.name
        if log.producers.has_later_epoch(header):
            return  # the log will say so
        state = self.state(transactional_id)
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
        if state.status is not Status.ONGOING or (log.topic, log.partition) not in state.partitions:
            kind = NotInTransaction if knows_abortable else InvalidTransaction
            raise kind("append to", subject, f"it is not part of {transactional_id!r}'s open transaction")
        is_first = log.producers.get(header.producer_id) is None
        if is_first and header.base_sequence and state.client_version >= RAISES_EPOCH:
            # The epoch is of this transaction alone: a batch before this one is yet to come.
            cause = f"the first sequence is {header.base_sequence}, not 0"
            raise OutOfOrderSequence("append to", subject, cause)

    async def commit_offsets(
        self,
        transactional_id: str,
        claimed: ProducerEpoch,
        commit: Callable[[], Awaitable[T]],
        client_version: int,
        joins: bool,
    ) -> T:
        """Run ``commit`` while the transaction is open and has the offsets' partition.

        With ``joins`` the partition is added when it is missing. The transaction cannot end meanwhile:
        offsets that came after its marker would belong to nobody.
        """
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request)

        async def work() -> T:
            async with self._turn(transactional_id) as entry:
                if joins:
                    await self._join(entry, claimed, frozenset({OFFSETS_PARTITION}), client_version)
                else:
                    self.check_part(transactional_id, claimed, OFFSETS_PARTITION)
                return await commit()

        return await self._undisturbed(work())

    # -- ending -----------------------------------------------------------------------------------

    async def end(
        self, transactional_id: str, claimed: ProducerEpoch, committed: bool, raises_epoch: bool
    ) -> ProducerEpoch:
        """Commit or abort; the identity for the next transaction is returned.

        Readers see the outcome when this returns, unless a disk keeps the markers waiting.
        """
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request)
        return await self._undisturbed(self._end(transactional_id, claimed, committed, raises_epoch))

    async def _end(
        self, transactional_id: str, claimed: ProducerEpoch, committed: bool, raises_epoch: bool
    ) -> ProducerEpoch:
        async with self._turn(transactional_id) as entry:
            if not check_end(entry.state, claimed, committed, raises_epoch):
                assert entry.state is not None
                return identity(entry.state)
            markers = await self._decide(entry, committed, raises_epoch, may_rotate=raises_epoch)
            assert entry.state is not None
            following = identity(completed(entry.state))
        await asyncio.wait({markers}, timeout=PATIENCE_SECONDS)
        return following

    async def _decide(
        self, entry: _Entry, committed: bool, raises_epoch: bool, may_rotate: bool = False
    ) -> "asyncio.Task[None]":
        """Write the decision down, and begin to carry it out."""
        state = entry.state
        assert state is not None
        next_id = NO_PRODUCER_ID
        if may_rotate and is_exhausted(state.epoch):
            next_id = await self._ids.take()
        await self._save(entry, decided(state, committed, raises_epoch, now_ms(), next_id))
        return self._begin_carrying_out(entry)

    def _begin_carrying_out(self, entry: _Entry) -> "asyncio.Task[None]":
        entry.carrying_out = self._start(self._carry_out(entry))
        return entry.carrying_out

    async def _carry_out(self, entry: _Entry) -> None:
        """Write the markers of a decided transaction, and that it is complete."""
        state = entry.state
        assert state is not None
        committed = state.status is Status.PREPARE_COMMIT
        while True:
            try:
                await write_markers(self._broker, state.partitions, state.producer_id, state.epoch, committed)
                break
            except Exception:  # readers of these partitions wait: it must not be given up
                logger.exception("the transaction of %s cannot be ended yet", entry.transactional_id)
                await asyncio.sleep(PATIENCE_SECONDS)
        if OFFSETS_PARTITION in state.partitions:
            self._broker.groups.complete_transaction(state.producer_id, committed)
        entry.state = complete = dataclasses.replace(completed(state), updated_ms=now_ms())
        entry.carrying_out = None
        # Nobody has to wait for this one: a crash before it is durable writes the markers once more.
        try:
            log = self._journal.log or await self._journal.open()
            record = (encode_key(entry.transactional_id), encode_value(complete))
            self._journal.write(log, [record]).add_done_callback(lambda done: done.exception())
        except HeadwaterError as error:
            logger.warning("%s", error)

    async def write_marker(
        self, log: PartitionLog, producer_id: int, epoch: int, coordinator_epoch: int, committed: bool
    ) -> None:
        """A marker in one partition, as an administrator asks for it; the coordinator's state stays."""
        append_marker(log, producer_id, epoch, coordinator_epoch, committed)
        await self._broker.durable(log)
        if (log.topic, log.partition) == OFFSETS_PARTITION:
            self._broker.groups.complete_transaction(producer_id, committed)

    # -- time -------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = now_ms()
            for entry in list(self._entries.values()):
                state = entry.state
                if state is None or entry.lock.locked() or entry.carrying_out is not None:
                    continue
                if _has_timed_out(state, now):
                    self._start(self._time_out(entry.transactional_id))
                elif self._has_expired(state, now):
                    self._start(self._expire(entry.transactional_id))

    def _has_expired(self, state: TransactionState, now: int) -> bool:
        return state.status is not Status.ONGOING and now > state.updated_ms + self._expiration_ms

    async def _time_out(self, transactional_id: str) -> None:
        try:
            async with self._turn(transactional_id) as entry:
                if entry.state is not None and _has_timed_out(entry.state, now_ms()):
                    logger.info("aborting the transaction of %s: it timed out", transactional_id)
                    await self._decide(entry, committed=False, raises_epoch=True)
        except Refused:
            pass  # the next sweep will look again
        except HeadwaterError as error:
            logger.warning("%s", error)

    async def _expire(self, transactional_id: str) -> None:
        try:
            async with self._turn(transactional_id) as entry:
                if entry.state is not None and self._has_expired(entry.state, now_ms()):
                    await self._journal.append([(encode_key(transactional_id), None)])
                    entry.state = None
        except Refused:
            pass
        except HeadwaterError as error:
            logger.warning("%s", error)


def _has_timed_out(state: TransactionState, now: int) -> bool:
    return state.status is Status.ONGOING and now > state.started_ms + state.timeout_ms
